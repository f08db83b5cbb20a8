/** Puts header blocks together (RFC 9113 sections 4.3, 6.2 and 6.10), and decodes them. */
import { Buffer } from 'node:buffer'
import { GatheredChunks } from '../../base/gathered.ts'
import { CODE, ConnectionError, FLAG, FRAME_HEADER_BYTES, LAST_STREAM_ID, uint32At, unexpected } from './frames.ts'
import { type DecodedBlock, HpackDecoder, HpackError } from './hpack/decoder.ts'

/** A block of more than this many times `headBytes` ends the connection. Smaller ones are decoded, so that their stream alone can be refused. */
const BLOCK_FACTOR = 4

export interface HeaderBlock extends DecodedBlock {
  /** Size as it arrived. */
  readonly bytes: number
  /** Of the stream. */
  readonly id: number
  /** END_STREAM. */
  readonly last: boolean
  /** The stream depends on itself. */
  readonly isLoop: boolean
}

export class HeaderBlocks {
  readonly #decoder = new HpackDecoder()
  readonly #mostBytes: number
  readonly #mostFields: number
  /** The stream of the block of which only a part has arrived; 0 if there is none. */
  #id = 0
  #flags = 0
  #isLoop = false
  readonly #parts = new GatheredChunks(1)
  #bytes = 0

  /** `mostBytes`, `mostFields`: of one block that is not too large. */
  constructor(mostBytes: number, mostFields: number) {
    this.#mostBytes = mostBytes
    this.#mostFields = mostFields
  }

  /** Whether nothing but CONTINUATION may come. */
  get isOpen(): boolean {
    return this.#id !== 0
  }

  /** Bytes of the block of which only a part has arrived. */
  get heldBytes(): number {
    return this.#parts.bytes
  }

  /** HEADERS. Returns the block if it is whole. */
  begin(flags: number, id: number, payload: Uint8Array): HeaderBlock | undefined {
    let start = 0
    let end = payload.length
    if ((flags & FLAG.padded) !== 0) {
      start = 1
      end -= payload[0] ?? 0
    }
    const dependsAt = start
    const hasPriority = (flags & FLAG.priority) !== 0
    if (hasPriority) start += 5
    if (start > payload.length) throw new ConnectionError(CODE.frameSize, 'HEADERS too short')
    if (start > end) throw unexpected('more padding than payload')
    this.#id = id
    this.#flags = flags
    this.#isLoop = hasPriority && (uint32At(payload, dependsAt) & LAST_STREAM_ID) === id
    return this.#add(flags, payload.subarray(start, end))
  }

  /** CONTINUATION. */
  continue(flags: number, id: number, payload: Uint8Array): HeaderBlock | undefined {
    if (id !== this.#id || id === 0) throw unexpected('CONTINUATION')
    return this.#add(flags, payload)
  }

  #add(flags: number, part: Uint8Array): HeaderBlock | undefined {
    const isWhole = (flags & FLAG.endHeaders) !== 0
    if (isWhole && this.#parts.bytes === 0) return this.#end(part)
    this.#bytes += FRAME_HEADER_BYTES + part.length
    if (this.#bytes > BLOCK_FACTOR * this.#mostBytes) throw new ConnectionError(CODE.enhanceYourCalm, 'head too large')
    this.#parts.add(part)
    return isWhole ? this.#end(Buffer.concat([...this.#parts])) : undefined
  }

  #end(encoded: Uint8Array): HeaderBlock {
    const id = this.#id
    this.#id = 0
    this.#parts.clear()
    this.#bytes = 0
    const { fields, tooLarge } = this.#decode(encoded)
    return {
      id,
      bytes: encoded.length,
      last: (this.#flags & FLAG.endStream) !== 0,
      isLoop: this.#isLoop,
      fields,
      tooLarge,
    }
  }

  #decode(encoded: Uint8Array): DecodedBlock {
    try {
      return this.#decoder.decode(encoded, this.#mostBytes, this.#mostFields)
    } catch (error) {
      throw error instanceof HpackError ? new ConnectionError(CODE.compression, error.message) : error
    }
  }
}
