import { messageEndText } from '../bhttp/encode.ts'
import type { HeaderList } from '../exchange.ts'
import { varintText } from '../varint.ts'
import type { Stream } from '../yamux/stream.ts'

/** Content up to this size is copied beside its framing, so that head, body and end leave as one write. */
const COPY_BYTES = 4096

/**
 * Writes one message onto a stream. What is small waits for the end of the turn and leaves in one piece; large chunks
 * are not copied.
 */
export class MessageWriter {
  readonly #stream: Stream
  /** Not yet written: framing, one small chunk of content, and the framing behind it. */
  #text = ''
  #chunk: Uint8Array | undefined
  #tail = ''
  #due = false
  /** Bytes given to the stream that are framing, as far as their leaving was not seen yet. */
  #framingBytes = 0
  #contentBytes = 0
  /** Nothing more is to be written. */
  ended = false

  constructor(stream: Stream) {
    this.#stream = stream
  }

  /** Adds framing, latin1 text. */
  text(framing: string): void {
    if (this.#chunk === undefined) this.#text += framing
    else this.#tail += framing
    this.#later()
  }

  /** Adds a chunk of content with its length. */
  content(chunk: Uint8Array): void {
    this.#contentBytes += chunk.length
    const length = varintText(chunk.length)
    if (chunk.length > COPY_BYTES) {
      this.text(length)
      this.flush()
      this.#stream.write(chunk)
      return
    }
    if (this.#chunk !== undefined) {
      this.#tail += length
      this.flush()
    } else {
      this.#text += length
    }
    this.#chunk = chunk
    this.#later()
  }

  /** Adds bytes that have no framing. */
  raw(chunk: Uint8Array): void {
    this.#contentBytes += chunk.length
    this.flush()
    this.#stream.write(chunk)
  }

  /** Ends the content, adds the trailers, and FIN. */
  end(trailers: HeaderList): void {
    this.finish(messageEndText(trailers))
  }

  /** Adds the last framing (none for raw bytes), and FIN. */
  finish(framing: string): void {
    this.ended = true
    if (this.#chunk === undefined) this.#text += framing
    else this.#tail += framing
    this.flush()
    this.#stream.end()
  }

  /** Drops what waits; nothing more is written. */
  drop(): void {
    this.ended = true
    this.#text = ''
    this.#tail = ''
    this.#chunk = undefined
  }

  /** How much content left, when the stream says that `bytes` of what it was given have left. Framing counts first. */
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

  flush(): void {
    const text = this.#text
    const chunk = this.#chunk
    if (chunk === undefined) {
      if (text.length === 0) return
      this.#text = ''
      this.#framingBytes += text.length
      this.#stream.write(Buffer.from(text, 'latin1'))
      return
    }
    const tail = this.#tail
    this.#text = ''
    this.#chunk = undefined
    this.#tail = ''
    this.#framingBytes += text.length + tail.length
    const bytes = Buffer.allocUnsafe(text.length + chunk.length + tail.length)
    bytes.write(text, 0, 'latin1')
    bytes.set(chunk, text.length)
    if (tail.length > 0) bytes.write(tail, text.length + chunk.length, 'latin1')
    this.#stream.write(bytes)
  }

  #later(): void {
    if (this.#due) return
    this.#due = true
    process.nextTick(flushDue, this)
  }

  /** @internal */
  flushDue(): void {
    this.#due = false
    this.flush()
  }
}

function flushDue(writer: MessageWriter): void {
  writer.flushDue()
}
