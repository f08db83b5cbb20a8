/** Cuts what is read from a connection into frames (RFC 9113 section 4.1). Bodies are passed on as they come, other payloads whole. */
import { Buffer } from 'node:buffer'
import { CODE, ConnectionError, FLAG, FRAME, FRAME_HEADER_BYTES, MAX_FRAME_BYTES, PREFACE, uint32At } from './frames.ts'

/** Throws ConnectionError if the peer broke a rule. */
export interface FrameReceiver {
  /** A frame other than DATA. Its payload may change after the call. */
  frame(type: number, flags: number, id: number, payload: Uint8Array): void
  /** A DATA frame begins. Padding and its length count among its `bytes`, as they do for the windows. */
  dataBegins(id: number, bytes: number): void
  /** The next part of its body, which may change after the call if it is `lent`. */
  dataPart(part: Uint8Array, lent: boolean): void
  dataEnds(flags: number): void
}

const preface = Buffer.from(PREFACE, 'latin1')

export class FrameReader {
  readonly #sink: FrameReceiver
  /** The part of the preface that is still to come. */
  #preface: Buffer
  /** The header of a frame, or its payload, of which only a part has arrived. */
  #part: Buffer | undefined
  readonly #header = Buffer.alloc(FRAME_HEADER_BYTES)
  #filled = 0
  /** The frame in progress. `#left`: how much of its payload is to come, or of the body in a DATA frame. */
  #inFrame = false
  #type = 0
  #flags = 0
  #id = 0
  #left = 0
  /** The first byte of the payload is the length of the padding. */
  #awaitsPadding = false
  #padding = 0
  #stopped = false

  /** `expectsPreface`: the peer is a client. */
  constructor(sink: FrameReceiver, expectsPreface: boolean) {
    this.#sink = sink
    this.#preface = expectsPreface ? preface : preface.subarray(preface.length)
  }

  /** Memory of a frame of which only a part has arrived. */
  get heldBytes(): number {
    return this.#part?.length ?? 0
  }

  /** More of the body in a frame is to come. */
  get isInBody(): boolean {
    return this.#inFrame && this.#type === FRAME.data
  }

  /** Nothing more is passed on. */
  stop(): void {
    this.#stopped = true
    this.#part = undefined
  }

  /** Bytes that are `lent` change after the call. */
  read(bytes: Buffer, lent: boolean): void {
    let at = this.#preface.length > 0 ? this.#readPreface(bytes) : 0
    while (!this.#stopped) {
      if (!this.#inFrame) at = this.#readHeader(bytes, at)
      else if (this.#type === FRAME.data) at = this.#readData(bytes, at, lent)
      else at = this.#readPayload(bytes, at)
      if (at === bytes.length && !this.#isReady) return
    }
  }

  /** The frame in progress needs no more bytes. */
  get #isReady(): boolean {
    return this.#inFrame && this.#left + this.#padding === 0 && !this.#awaitsPadding
  }

  #readPreface(bytes: Buffer): number {
    const length = Math.min(bytes.length, this.#preface.length)
    if (bytes.compare(this.#preface, 0, length, 0, length) !== 0) throw new ConnectionError(CODE.protocol, 'preface')
    this.#preface = this.#preface.subarray(length)
    return length
  }

  #readHeader(bytes: Buffer, at: number): number {
    if (this.#filled === 0 && bytes.length - at >= FRAME_HEADER_BYTES) {
      this.#begin(bytes, at)
      return at + FRAME_HEADER_BYTES
    }
    const end = Math.min(bytes.length, at + FRAME_HEADER_BYTES - this.#filled)
    bytes.copy(this.#header, this.#filled, at, end)
    this.#filled += end - at
    if (this.#filled === FRAME_HEADER_BYTES) {
      this.#filled = 0
      this.#begin(this.#header, 0)
    }
    return end
  }

  #begin(header: Buffer, at: number): void {
    const bytes = (header[at]! << 16) | (header[at + 1]! << 8) | header[at + 2]!
    if (bytes > MAX_FRAME_BYTES) throw new ConnectionError(CODE.frameSize, `frame of ${bytes} bytes`)
    this.#type = header[at + 3]!
    this.#flags = header[at + 4]!
    this.#id = uint32At(header, at + 5) & 0x7fffffff
    this.#left = bytes
    this.#inFrame = true
    this.#padding = 0
    if (this.#type !== FRAME.data) return
    this.#awaitsPadding = (this.#flags & FLAG.padded) !== 0
    if (this.#awaitsPadding && bytes === 0) throw new ConnectionError(CODE.frameSize, 'no room for the padding')
    this.#sink.dataBegins(this.#id, bytes)
  }

  #readData(bytes: Buffer, start: number, lent: boolean): number {
    let at = start
    if (this.#awaitsPadding && at < bytes.length) {
      this.#awaitsPadding = false
      this.#padding = bytes[at++]!
      this.#left -= 1 + this.#padding
      if (this.#left < 0) throw new ConnectionError(CODE.protocol, 'more padding than payload')
    }
    const end = Math.min(bytes.length, at + this.#left)
    if (end > at && !this.#awaitsPadding) {
      this.#left -= end - at
      this.#sink.dataPart(bytes.subarray(at, end), lent)
      at = end
    }
    const skipped = this.#left === 0 ? Math.min(bytes.length - at, this.#padding) : 0
    this.#padding -= skipped
    if (this.#isReady && !this.#stopped) {
      this.#inFrame = false
      this.#sink.dataEnds(this.#flags)
    }
    return at + skipped
  }

  #readPayload(bytes: Buffer, at: number): number {
    const end = Math.min(bytes.length, at + this.#left)
    if (this.#part === undefined && end - at === this.#left) {
      this.#pass(bytes.subarray(at, end))
      return end
    }
    this.#part ??= Buffer.allocUnsafeSlow(this.#left)
    bytes.copy(this.#part, this.#part.length - this.#left, at, end)
    this.#left -= end - at
    if (this.#left === 0) {
      const whole = this.#part
      this.#part = undefined
      this.#pass(whole)
    }
    return end
  }

  #pass(payload: Uint8Array): void {
    this.#inFrame = false
    this.#left = 0
    this.#sink.frame(this.#type, this.#flags, this.#id, payload)
  }
}
