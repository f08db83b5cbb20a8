/** Reads one body: of known length, chunked with trailers (RFC 9112 section 7.1), or until the connection closes. */
import { Buffer } from 'node:buffer'
import { type ErrorCode, SallyportError } from '../../base/errors.ts'
import { SMALL_PIECE_BYTES } from '../../base/gathered.ts'
import { gather, gathered } from '../../base/scratch.ts'
import type { HeaderList } from '../../exchange.ts'
import { stripRequestTrailers, stripResponseTrailers } from '../headers.ts'
import { CR, HEAD_END, HEX, LF, VALUE } from './bytes.ts'
import { type HeadLimits, HeadParser } from './head-parser.ts'

export interface BodyReceiver {
  bodyData(chunk: Uint8Array): void
  bodyEnd(trailers: HeaderList): void
}

const STATE = {
  done: 0,
  length: 1,
  close: 2,
  size: 3,
  extension: 4,
  sizeLf: 5,
  chunk: 6,
  chunkCr: 7,
  chunkLf: 8,
  trailers: 9,
} as const

/** How many digits a chunk size may have, which bounds it to 2^44 bytes. */
const MAX_SIZE_DIGITS = 11
/** How many bytes all chunk extensions of one body may have. Nobody uses them. */
const MAX_EXTENSION_BYTES = 4096

export class BodyReader {
  readonly #receiver: BodyReceiver
  readonly #trailers: HeadParser
  readonly #limits: HeadLimits
  readonly #fault: ErrorCode
  #state: number = STATE.done
  #left = 0
  #digits = 0
  #extensionBytes = 0
  #tail: Buffer | undefined
  /** How many bytes of the current trailers have been checked, in whole lines. */
  #checkedBytes = 0
  /** Content of small chunks, gathered but not yet passed on. */
  #smallBytes = 0

  /** `fault` is the reason of the errors that `feed` throws. */
  constructor(receiver: BodyReceiver, limits: HeadLimits, fault: ErrorCode) {
    this.#receiver = receiver
    this.#limits = limits
    this.#fault = fault
    this.#trailers = new HeadParser(limits, fault === 'upstream-broken')
  }

  /** How many bytes are still to come of a body of known length. */
  get left(): number {
    return this.#state === STATE.length ? this.#left : 0
  }

  /** Bytes of trailers that wait for the rest. */
  get heldBytes(): number {
    return this.#tail?.length ?? 0
  }

  startLength(bytes: number): void {
    this.#left = bytes
    this.#state = STATE.length
  }

  startChunked(): void {
    this.#state = STATE.size
    this.#digits = 0
    this.#left = 0
    this.#extensionBytes = 0
    this.#tail = undefined
    this.#checkedBytes = 0
  }

  startUntilClose(): void {
    this.#state = STATE.close
  }

  /** The connection has ended. Returns true if that properly ends this body. */
  closed(): boolean {
    if (this.#state !== STATE.close) return false
    this.#finish([])
    return true
  }

  /** Gives up on the body and ignores whatever is fed later. */
  stop(): void {
    this.#state = STATE.done
    this.#tail = undefined
    this.#smallBytes = 0
  }

  /** Consumes the bytes of the body, from offset `start` on. Returns the offset after them. */
  feed(bytes: Buffer, start: number): number {
    // Clear what an earlier fault left behind.
    this.#smallBytes = 0
    const end = this.#feed(bytes, start)
    this.#giveSmall()
    return end
  }

  #feed(bytes: Buffer, start: number): number {
    let at = start
    while (at < bytes.length) {
      switch (this.#state) {
        case STATE.done:
          return at
        case STATE.close:
          this.#receiver.bodyData(at === 0 ? bytes : bytes.subarray(at))
          return bytes.length
        case STATE.length:
        case STATE.chunk:
          at = this.#content(bytes, at)
          break
        case STATE.trailers:
          at = this.#trailer(bytes, at)
          break
        default:
          this.#framing(bytes[at++]!)
      }
    }
    return at
  }

  #content(bytes: Buffer, start: number): number {
    const end = Math.min(bytes.length, start + this.#left)
    this.#left -= end - start
    const last = this.#left === 0
    const length = this.#state === STATE.length
    if (last && !length) this.#state = STATE.chunkCr
    if (!length && end - start < SMALL_PIECE_BYTES && (end < bytes.length || this.#smallBytes > 0)) {
      this.#smallBytes = gather(this.#smallBytes, bytes, start, end)
      return end
    }
    if (!this.#giveSmall()) return end
    this.#receiver.bodyData(start === 0 && end === bytes.length ? bytes : bytes.subarray(start, end))
    if (last && length && this.#state === STATE.length) this.#finish([])
    return end
  }

  /** Returns false if the receiver has given up on the body. */
  #giveSmall(): boolean {
    if (this.#smallBytes === 0) return true
    const piece = gathered(this.#smallBytes)
    this.#smallBytes = 0
    this.#receiver.bodyData(piece)
    return this.#state !== STATE.done
  }

  #finish(trailers: HeaderList): void {
    if (!this.#giveSmall()) return
    this.#state = STATE.done
    this.#receiver.bodyEnd(trailers)
  }

  #framing(byte: number): void {
    switch (this.#state) {
      case STATE.size:
        if (HEX[byte]! < 16) {
          if (++this.#digits > MAX_SIZE_DIGITS) throw this.#bad('chunk size')
          this.#left = this.#left * 16 + HEX[byte]!
          return
        }
        if (this.#digits === 0) throw this.#bad('chunk size')
        if (byte === CR) this.#state = STATE.sizeLf
        else if (byte === 0x3b) this.#state = STATE.extension
        else throw this.#bad('chunk size')
        return
      case STATE.extension:
        if (++this.#extensionBytes > MAX_EXTENSION_BYTES) throw this.#bad('chunk extensions')
        if (byte === CR) this.#state = STATE.sizeLf
        else if (VALUE[byte] === 0) throw this.#bad('chunk extension')
        return
      case STATE.sizeLf:
        if (byte !== LF) throw this.#bad('chunk size')
        this.#digits = 0
        this.#state = this.#left === 0 ? STATE.trailers : STATE.chunk
        return
      case STATE.chunkCr:
        if (byte !== CR) throw this.#bad('chunk end')
        this.#state = STATE.chunkLf
        return
      case STATE.chunkLf:
        if (byte !== LF) throw this.#bad('chunk end')
        this.#state = STATE.size
    }
  }

  /** Trailers are rare, so they are collected up to a bound, and parsed once they are complete. */
  #trailer(bytes: Buffer, start: number): number {
    if (this.#tail === undefined && bytes[start] === CR && bytes[start + 1] === LF) {
      this.#finish([])
      return start + 2
    }
    const before = this.#tail?.length ?? 0
    const room = this.#limits.headBytes + HEAD_END.length - before
    const piece = bytes.subarray(start, start + room)
    const tail = this.#tail === undefined ? piece : Buffer.concat([this.#tail, piece])
    const empty = tail[0] === CR && tail.length > 1
    const end = empty ? 0 : tail.indexOf(HEAD_END)
    if (end < 0) {
      const line = tail.lastIndexOf(LF) + 1
      if (line > this.#checkedBytes) this.#parseTrailers(tail, line)
      this.#checkedBytes = line
      if (tail.length >= this.#limits.headBytes) throw this.#bad('trailers')
      // The bytes may be lent, so they are copied.
      this.#tail = Buffer.from(tail)
      return start + piece.length
    }
    this.#tail = undefined
    if (empty) {
      if (tail[1] !== LF) throw this.#bad('trailers')
      this.#finish([])
      return start + 2 - before
    }
    this.#finish(this.#parseTrailers(tail, end + 2))
    return start + end + HEAD_END.length - before
  }

  #parseTrailers(tail: Buffer, end: number): HeaderList {
    this.#trailers.start()
    this.#trailers.fields(tail, 0, end)
    const strip = this.#fault === 'upstream-broken' ? stripResponseTrailers : stripRequestTrailers
    return strip(this.#trailers.take().headers)
  }

  #bad(what: string): SallyportError {
    return new SallyportError(this.#fault, `body not valid: ${what}`)
  }
}
