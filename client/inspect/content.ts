/** Keeps at most the first {@link MAX_CONTENT_BYTES} of a body, decoded and redacted once it is complete. */
import { Buffer, isUtf8 } from 'node:buffer'
import { brotliDecompressSync, constants, gunzipSync, inflateRawSync, inflateSync, zstdDecompressSync } from 'node:zlib'
import { GatheredChunks } from '../../protocol/base/gathered.ts'
import { listTokens } from '../../protocol/http/headers.ts'
import type { InspectedBody } from './inspected.ts'
import type { Redactor } from './redactor.ts'

/** Most bytes kept of each body. */
export const MAX_CONTENT_BYTES = 128 * 1024
/** Most bytes that a body may decode to. A larger one is not shown. */
const MAX_DECODED_BYTES = 4 * 1024 * 1024
/** Most content encodings of a body, since each can multiply the size again. */
const MAX_ENCODINGS = 4

/** The first bytes of a body, as transferred. */
export class Content {
  readonly #chunks = new GatheredChunks()
  /** Bytes that arrived, and bytes that are kept. */
  bytes = 0
  kept = 0

  /** Keeps at most `room` bytes of `chunk`, and returns how many. */
  add(chunk: Uint8Array, room: number): number {
    // After a gap, nothing more is kept.
    const most = this.kept < this.bytes ? 0 : Math.min(room, MAX_CONTENT_BYTES - this.kept)
    this.bytes += chunk.length
    const take = Math.min(chunk.length, most)
    if (take <= 0) return 0
    this.#chunks.add(chunk.subarray(0, take))
    this.kept += take
    return take
  }

  get isWhole(): boolean {
    return this.kept === this.bytes
  }

  /** Returns the kept bytes in one piece, and keeps nothing any more. */
  take(): Buffer {
    const pieces: Uint8Array[] = []
    for (let piece = this.#chunks.shift(); piece !== undefined; piece = this.#chunks.shift()) pieces.push(piece)
    return Buffer.concat(pieces)
  }
}

/** The body as anyone may see it. `kept` is its beginning; in full it has `bytes`. */
export function showBody(
  kept: Buffer,
  bytes: number,
  contentType: string,
  contentEncoding: string,
  redactor: Redactor,
): InspectedBody {
  const isWhole = kept.length === bytes
  const plain = decode(kept, isWhole, listTokens(contentEncoding))
  if (typeof plain === 'string') return { bytes, truncated: !isWhole, omitted: plain }
  const decodedBytes = isWhole ? plain.length : contentEncoding === '' ? bytes : undefined
  const shown = redactor.body(plain.toString('latin1', 0, MAX_CONTENT_BYTES), contentType)
  const facts = { bytes, decodedBytes, truncated: !isWhole || plain.length > MAX_CONTENT_BYTES }
  if (shown === undefined) return { ...facts, omitted: 'it has secrets in an encoding that cannot be redacted' }
  // A cut may split a character.
  return { ...facts, ...asText(Buffer.from(shown.slice(0, MAX_CONTENT_BYTES), 'latin1'), facts.truncated) }
}

/** Size in memory. A single character beyond latin1 makes the whole text take two bytes per character. */
export function heldBytesOf({ text = '', base64 = '' }: Partial<InspectedBody>): number {
  return (/[^\0-\xff]/.test(text) ? 2 : 1) * text.length + base64.length
}

/** As text if it is UTF-8, else as base64. */
export function asText(bytes: Buffer, isCut: boolean): { text: string } | { base64: string } {
  for (let end = bytes.length; end >= bytes.length - (isCut ? 3 : 0) && end >= 0; end--) {
    const part = bytes.subarray(0, end)
    if (isUtf8(part)) return { text: part.toString('utf8') }
  }
  return { base64: bytes.toString('base64') }
}

/** The decoded bytes, or a text that says why there are none. */
function decode(bytes: Buffer, isWhole: boolean, encodings: readonly string[]): Buffer | string {
  if (encodings.length > MAX_ENCODINGS) return `it has more than ${MAX_ENCODINGS} encodings`
  let plain = bytes
  for (const encoding of encodings.toReversed()) {
    const decoder = Object.hasOwn(DECODERS, encoding) ? DECODERS[encoding] : undefined
    if (decoder === undefined) return `its encoding is unknown: ${encoding.slice(0, 32)}`
    try {
      plain = decoder(plain, isWhole)
    } catch {
      return `it is not ${encoding}, or too long when decoded`
    }
  }
  return plain
}

type Decoder = (bytes: Buffer, isWhole: boolean) => Buffer

const maxOutputLength = MAX_DECODED_BYTES
const flush = (isWhole: boolean) => ({
  maxOutputLength,
  ...(isWhole ? {} : { finishFlush: constants.Z_SYNC_FLUSH }),
})
const gunzip: Decoder = (bytes, isWhole) => gunzipSync(bytes, flush(isWhole))

const DECODERS: Readonly<Record<string, Decoder>> = {
  identity: bytes => bytes,
  gzip: gunzip,
  'x-gzip': gunzip,
  deflate: (bytes, isWhole) => {
    // Zlib according to the standard, or raw deflate, as some send it.
    const isZlib = (bytes[0]! & 0x0f) === 8 && (bytes[0]! * 256 + bytes[1]!) % 31 === 0
    return (isZlib ? inflateSync : inflateRawSync)(bytes, flush(isWhole))
  },
  br: (bytes, isWhole) =>
    brotliDecompressSync(bytes, {
      maxOutputLength,
      ...(isWhole ? {} : { finishFlush: constants.BROTLI_OPERATION_FLUSH }),
    }),
  zstd: (bytes, isWhole) =>
    zstdDecompressSync(bytes, { maxOutputLength, ...(isWhole ? {} : { finishFlush: constants.ZSTD_e_flush }) }),
}
