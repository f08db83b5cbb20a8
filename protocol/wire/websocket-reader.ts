/**
 * Reads the socket of a WebSocket. Binary messages of one frame, which are the ones that we send, are passed on as they arrive
 * and unmasked in place. `ws` itself would first collect each in a buffer, and so copy every byte of large bodies. All other
 * frames go to `ws` unchanged, so its checks and limits apply.
 */
import { Buffer } from 'node:buffer'

const BINARY = 2
const CLOSE = 8
const FIN = 0x80
const MASKED = 0x80
/** The first two bytes of a frame, up to 8 bytes of length, and the mask. */
const MAX_HEAD_BYTES = 14

/** The transport that a {@link WebSocketReader} reads for. */
export interface ReaderOwner {
  /** Whether the peer masks, as a client must and a server must not. */
  readonly peerMasks: boolean
  /** Applies the four bytes of the mask where the bytes lie. */
  unmask(bytes: Buffer, mask: number): void
  /** The next bytes of binary messages. They belong to the owner. */
  read(bytes: Buffer): void
  /** A frame without bytes of a message. Returns false after too many. */
  empty(): boolean
  /** The next bytes of frames for `ws`. Returns false if `ws` refused them. */
  passOn(bytes: Buffer): boolean
}

export class WebSocketReader {
  readonly #owner: ReaderOwner
  readonly #maxMessageBytes: number
  /** What has arrived of a head that comes in parts. */
  #partial: Buffer | undefined
  #partialBytes = 0
  #payloadLeft = 0
  #mask = 0
  #isOther = false
  /** `ws` is reading a message of several frames, and also gets the rest of it. */
  #isFragmented = false
  /** The current frame is a Close frame: the last one. */
  #isClose = false
  #stopped = false

  /** @param maxMessageBytes longer messages are left to `ws`, which refuses them */
  constructor(owner: ReaderOwner, maxMessageBytes: number) {
    this.#owner = owner
    this.#maxMessageBytes = maxMessageBytes
  }

  push(chunk: Buffer): void {
    let at = 0
    while (at < chunk.length && !this.#stopped) {
      at = this.#payloadLeft > 0 ? this.#payload(chunk, at) : this.#head(chunk, at)
    }
  }

  #head(chunk: Buffer, start: number): number {
    if (this.#partial !== undefined) return this.#moreOfHead(this.#partial, chunk, start)
    const size = headSize(chunk, start, chunk.length)
    if (start + size <= chunk.length) {
      this.#begin(chunk, start, size)
      return start + size
    }
    this.#partial = Buffer.allocUnsafeSlow(MAX_HEAD_BYTES)
    return this.#moreOfHead(this.#partial, chunk, start)
  }

  #moreOfHead(partial: Buffer, chunk: Buffer, start: number): number {
    let at = start
    while (at < chunk.length) {
      partial[this.#partialBytes++] = chunk[at++]!
      if (this.#partialBytes < headSize(partial, 0, this.#partialBytes)) continue
      const size = this.#partialBytes
      this.#partial = undefined
      this.#partialBytes = 0
      this.#begin(partial, 0, size)
      break
    }
    return at
  }

  /** The head is complete. Decides who gets the frame. */
  #begin(bytes: Buffer, at: number, size: number): void {
    const first = bytes[at]!
    const isMasked = (bytes[at + 1]! & MASKED) !== 0
    this.#payloadLeft = payloadLength(bytes, at)
    const isPlain = first === (FIN | BINARY) && !this.#isFragmented && isMasked === this.#owner.peerMasks
    if ((this.#payloadLeft === 0 || (first & 0x0f) >= CLOSE) && !this.#owner.empty()) {
      this.#stopped = true
      return
    }
    this.#isOther = !isPlain || this.#payloadLeft > this.#maxMessageBytes
    if (!this.#isOther) {
      if (isMasked) this.#mask = bytes.readUInt32BE(at + size - 4)
      return
    }
    const opcode = first & 0x0f
    this.#isClose = opcode === CLOSE
    if (opcode < CLOSE) this.#isFragmented = (first & FIN) === 0
    this.#passOn(bytes.subarray(at, at + size))
  }

  #payload(chunk: Buffer, start: number): number {
    const end = Math.min(chunk.length, start + this.#payloadLeft)
    const bytes = start === 0 && end === chunk.length ? chunk : chunk.subarray(start, end)
    this.#payloadLeft -= bytes.length
    if (this.#isOther) {
      this.#passOn(bytes)
      return end
    }
    if (this.#owner.peerMasks && this.#mask !== 0) {
      this.#owner.unmask(bytes, this.#mask)
      this.#mask = rotated(this.#mask, bytes.length & 3)
    }
    this.#owner.read(bytes)
    return end
  }

  /** Nothing is read after a wrong frame or a Close frame. */
  #passOn(bytes: Buffer): void {
    const isGood = this.#owner.passOn(bytes)
    if (!isGood || (this.#isClose && this.#payloadLeft === 0)) this.#stopped = true
  }
}

/** Length of the head at `start`, as far as the bytes up to `end` show it. */
function headSize(bytes: Buffer, start: number, end: number): number {
  if (end - start < 2) return 2
  const second = bytes[start + 1]!
  const short = second & 0x7f
  return 2 + (short === 126 ? 2 : short === 127 ? 8 : 0) + (second & MASKED ? 4 : 0)
}

function payloadLength(bytes: Buffer, at: number): number {
  const short = bytes[at + 1]! & 0x7f
  if (short < 126) return short
  return short === 126 ? bytes.readUInt16BE(at + 2) : bytes.readUInt32BE(at + 2) * 2 ** 32 + bytes.readUInt32BE(at + 6)
}

/** The mask for bytes that begin `by` bytes later. */
function rotated(mask: number, by: number): number {
  return by === 0 ? mask : ((mask << (8 * by)) | (mask >>> (32 - 8 * by))) >>> 0
}
