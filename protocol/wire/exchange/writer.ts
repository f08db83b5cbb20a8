import type { HeaderList } from '../../exchange.ts'
import { messageEndText } from '../bhttp/encode.ts'
import { varintText } from '../varint.ts'
import type { Stream } from '../yamux/stream.ts'

/** Writes one message onto a stream, which sends it at the end of each turn. */
export class MessageWriter {
  readonly #stream: Stream
  /** Bytes of framing that were given to the stream and may not have left yet. */
  #framingBytes = 0
  #contentBytes = 0
  /** Whether everything was written. */
  ended = false

  constructor(stream: Stream) {
    this.#stream = stream
  }

  /** Adds framing, as a latin1 string. */
  text(framing: string): void {
    this.#framingBytes += framing.length
    this.#stream.write(framing)
  }

  /** Adds a chunk of content with its length. An empty chunk is skipped, since it would end the content. */
  content(chunk: Uint8Array): void {
    if (chunk.length === 0) return
    this.text(varintText(chunk.length))
    this.raw(chunk)
  }

  /** Adds bytes that have no framing. */
  raw(chunk: Uint8Array): void {
    this.#contentBytes += chunk.length
    this.#stream.write(chunk)
  }

  /** Ends the content, adds the trailers, and FIN. */
  end(trailers: HeaderList): void {
    this.finish(messageEndText(trailers))
  }

  /** Adds the last framing (none for raw bytes), and FIN. */
  finish(framing: string): void {
    this.text(framing)
    this.ended = true
    this.#stream.end()
  }

  /** Stops writing. */
  drop(): void {
    this.ended = true
  }

  /** How much content has left when the stream reports that `bytes` have left. Framing counts first. */
  left(bytes: number): number {
    const framing = Math.min(bytes, this.#framingBytes)
    this.#framingBytes -= framing
    this.#contentBytes -= bytes - framing
    return bytes - framing
  }

  /** Content that was given to the writer and has not left. */
  get contentBytes(): number {
    return this.#contentBytes
  }
}
