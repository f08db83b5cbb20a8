/**
 * Tracks the frames of a WebSocket (RFC 6455 section 5.2) in raw bytes without changing them, so that a session that leaves can
 * insert a Close frame between two of them.
 */
import { Buffer } from 'node:buffer'
import { randomBytes } from 'node:crypto'

const CLOSE = 0x8
const MASKED = 0x80

export class FrameFollower {
  /** Bytes of the current header so far, and its size as far as it is known. */
  #headerBytes = 0
  #headerSize = 2
  #lengthBytes = 0
  #payload = 0
  #payloadLeft = 0
  /** Whether a Close frame has begun to pass. Nothing may follow it. */
  closed = false

  /** Whether the bytes so far end between two frames. */
  get atBoundary(): boolean {
    return this.#headerBytes === 0 && this.#payloadLeft === 0
  }

  /** Tracks `chunk`, with `untilBoundary` only up to the first end of a frame. Returns how far it got. */
  push(chunk: Uint8Array, untilBoundary = false): number {
    let at = 0
    while (at < chunk.length) {
      if (this.#payloadLeft > 0) {
        const taken = Math.min(this.#payloadLeft, chunk.length - at)
        this.#payloadLeft -= taken
        at += taken
      } else {
        this.#header(chunk[at++]!)
      }
      if (untilBoundary && this.atBoundary) return at
    }
    return at
  }

  #header(byte: number): void {
    const index = this.#headerBytes++
    if (index === 0) this.closed ||= (byte & 0x0f) === CLOSE
    else if (index === 1) this.#length(byte)
    else if (index < 2 + this.#lengthBytes) this.#payload = this.#payload * 256 + byte
    if (this.#headerBytes < this.#headerSize) return
    this.#payloadLeft = this.#payload
    this.#headerBytes = 0
    this.#headerSize = 2
  }

  #length(byte: number): void {
    const short = byte & 0x7f
    this.#lengthBytes = short === 126 ? 2 : short === 127 ? 8 : 0
    this.#payload = this.#lengthBytes === 0 ? short : 0
    this.#headerSize = 2 + this.#lengthBytes + (byte & MASKED ? 4 : 0)
  }
}

/** A Close frame; `masked` in the direction from client to server. `reason` has at most 123 bytes of ASCII. */
export function closeFrame(code: number, masked: boolean, reason = ''): Buffer {
  const payload = Buffer.from(`  ${reason}`, 'latin1')
  payload.writeUInt16BE(code)
  if (!masked) return Buffer.concat([Buffer.of(0x80 | CLOSE, payload.length), payload])
  const key = randomBytes(4)
  for (let i = 0; i < payload.length; i++) payload[i]! ^= key[i & 3]!
  return Buffer.concat([Buffer.of(0x80 | CLOSE, MASKED | payload.length), key, payload])
}
