import { readUint32 } from '../varint.ts'
import { FrameType, HEADER_BYTES, VERSION } from './frame.ts'

/** Receives what a {@link FrameDecoder} reads. */
export interface FrameSink {
  /** One header. For a data frame, its payload and `payloadEnd` follow. */
  frame(type: FrameType, flags: number, id: number, length: number): void
  /** A part of the payload of the current data frame. Never empty. */
  payload(chunk: Uint8Array): void
  /** The data frame is complete. Called at once if it has no payload. */
  payloadEnd(): void
  /** The bytes are not yamux, and the decoder reads no more. */
  broken(reason: string): void
}

/**
 * Reads frames from a byte stream that may be split anywhere. Payload is passed on as it arrives and never collected. It holds
 * at most one header.
 */
export class FrameDecoder {
  readonly #sink: FrameSink
  /** Allocated when a header first arrives in two parts. */
  #partial: Uint8Array | undefined
  #partialBytes = 0
  #payloadBytes = 0
  #inPayload = false
  #stopped = false

  constructor(sink: FrameSink) {
    this.#sink = sink
  }

  /** Ignores everything from now on, with the rest of the current chunk. */
  stop(): void {
    this.#stopped = true
  }

  push(chunk: Uint8Array): void {
    let offset = 0
    while (!this.#stopped && offset < chunk.length) {
      if (this.#inPayload) offset = this.#readPayload(chunk, offset)
      else if (this.#partialBytes === 0 && chunk.length - offset >= HEADER_BYTES) {
        this.#readHeader(chunk, offset)
        offset += HEADER_BYTES
      } else offset = this.#collectHeader(chunk, offset)
    }
  }

  #collectHeader(chunk: Uint8Array, offset: number): number {
    this.#partial ??= new Uint8Array(HEADER_BYTES)
    while (offset < chunk.length && this.#partialBytes < HEADER_BYTES) {
      this.#partial[this.#partialBytes++] = chunk[offset++]!
    }
    if (this.#partialBytes === HEADER_BYTES) {
      this.#partialBytes = 0
      this.#readHeader(this.#partial, 0)
    }
    return offset
  }

  #readHeader(bytes: Uint8Array, offset: number): void {
    const type = bytes[offset + 1]!
    if (bytes[offset] !== VERSION) {
      this.#break('unknown yamux version')
      return
    }
    if (type > FrameType.goAway) {
      this.#break('unknown frame type')
      return
    }
    const flags = (bytes[offset + 2]! << 8) | bytes[offset + 3]!
    const length = readUint32(bytes, offset + 8)
    this.#sink.frame(type as FrameType, flags, readUint32(bytes, offset + 4), length)
    if (type !== FrameType.data || this.#stopped) return
    if (length === 0) this.#sink.payloadEnd()
    else {
      this.#payloadBytes = length
      this.#inPayload = true
    }
  }

  #readPayload(chunk: Uint8Array, offset: number): number {
    const end = Math.min(chunk.length, offset + this.#payloadBytes)
    this.#payloadBytes -= end - offset
    this.#sink.payload(offset === 0 && end === chunk.length ? chunk : chunk.subarray(offset, end))
    if (this.#payloadBytes === 0) {
      this.#inPayload = false
      if (!this.#stopped) this.#sink.payloadEnd()
    }
    return end
  }

  #break(reason: string): void {
    this.#stopped = true
    this.#sink.broken(reason)
  }
}
