/** Reads the first messages of a WebSocket (RFC 6455 section 5) or of an event stream from a copy of the bytes. */
import { Buffer } from 'node:buffer'
import { constants, inflateRawSync } from 'node:zlib'

/** Most messages per exchange, both directions together. */
export const MAX_MESSAGES = 50
/** Most bytes kept per message. */
const MAX_MESSAGE_CONTENT_BYTES = 32 * 1024

export type MessageKind = 'text' | 'binary' | 'close' | 'event'

/** `content` is the message, or the beginning of a long one. `why` is set if it cannot be read. */
type OnMessage = (kind: MessageKind, content: Buffer, bytes: number, why: string | undefined) => void

/** Reads bytes until `stop`. */
export interface MessageReader {
  /** Bytes that it holds of incomplete messages, and to read the next ones. */
  readonly heldBytes: number
  add(chunk: Uint8Array): void
}

const OPCODE = { continuation: 0, text: 1, binary: 2, close: 8 } as const
const WINDOW_BYTES = 32 * 1024
const MAX_HEAD_BYTES = 14
const TAIL = Buffer.from([0, 0, 0xff, 0xff])

/** Reads the messages of one direction. `isDeflated`: permessage-deflate was negotiated (RFC 7692). */
export class WebSocketMessages implements MessageReader {
  readonly #onMessage: OnMessage
  readonly #isDeflated: boolean
  /** The part of a frame's head that has arrived. */
  readonly #head = Buffer.alloc(MAX_HEAD_BYTES)
  #headBytes = 0
  /** Bytes of the frame's payload that are still to come. */
  #left = 0
  /** Copied: a slice would keep the whole shared pool in memory. */
  #mask: Uint8Array | undefined
  #maskAt = 0
  #opcode = 0
  #isLast = false
  #message = new MessageContent()
  #isCompressed = false
  #kind: MessageKind = 'text'
  /** Set while a control frame interrupts the frames of a message. */
  #control: MessageContent | undefined
  /** The window that the peer's compressor refers to. */
  #window: Buffer | undefined = Buffer.alloc(0)
  #isBroken = false

  constructor(isDeflated: boolean, onMessage: OnMessage) {
    this.#isDeflated = isDeflated
    this.#onMessage = onMessage
  }

  get heldBytes(): number {
    return this.#message.heldBytes + (this.#control?.heldBytes ?? 0) + (this.#window?.length ?? 0)
  }

  add(chunk: Uint8Array): void {
    let at = 0
    while (at < chunk.length && !this.#isBroken) {
      if (this.#left > 0) {
        const end = Math.min(chunk.length, at + this.#left)
        this.#payload(chunk.subarray(at, end))
        at = end
      } else {
        this.#head[this.#headBytes++] = chunk[at++]!
        if (this.#headBytes === this.#headLength()) this.#frame()
      }
    }
  }

  #headLength(): number {
    if (this.#headBytes < 2) return 2
    const second = this.#head[1]!
    const length = second & 0x7f
    return 2 + (length === 126 ? 2 : length === 127 ? 8 : 0) + ((second & 0x80) === 0 ? 0 : 4)
  }

  #frame(): void {
    const [first, second] = [this.#head[0]!, this.#head[1]!]
    const short = second & 0x7f
    this.#left =
      short === 126 ? this.#head.readUInt16BE(2) : short === 127 ? Number(this.#head.readBigUInt64BE(2)) : short
    this.#mask =
      (second & 0x80) === 0 ? undefined : new Uint8Array(this.#head.subarray(this.#headBytes - 4, this.#headBytes))
    this.#maskAt = 0
    this.#headBytes = 0
    this.#opcode = first & 0x0f
    this.#isLast = (first & 0x80) !== 0
    // After an invalid frame, nothing can be read correctly.
    if (!Number.isSafeInteger(this.#left) || (first & 0x30) !== 0) this.#isBroken = true
    if (this.#opcode >= OPCODE.close) this.#control = new MessageContent()
    else if (this.#opcode !== OPCODE.continuation) {
      this.#message = new MessageContent()
      this.#isCompressed = this.#isDeflated && (first & 0x40) !== 0
      this.#kind = this.#opcode === OPCODE.text ? 'text' : 'binary'
    }
    if (this.#left === 0 && !this.#isBroken) this.#frameEnd()
  }

  #payload(bytes: Uint8Array): void {
    this.#left -= bytes.length
    const content = this.#control ?? this.#message
    const part = content.add(bytes)
    if (this.#mask !== undefined) {
      for (let i = 0; i < part.length; i++) part[i]! ^= this.#mask[(this.#maskAt + i) & 3]!
      this.#maskAt = (this.#maskAt + bytes.length) & 3
    }
    if (this.#left === 0) this.#frameEnd()
  }

  #frameEnd(): void {
    const control = this.#control
    this.#control = undefined
    if (control !== undefined) {
      if (this.#opcode === OPCODE.close) this.#onMessage('close', control.take().subarray(2), control.bytes, undefined)
    } else if (this.#isLast) this.#messageEnd()
  }

  #messageEnd(): void {
    const { bytes } = this.#message
    const content = this.#message.take()
    this.#message = new MessageContent()
    if (!this.#isCompressed) {
      this.#onMessage(this.#kind, content, bytes, undefined)
      return
    }
    const plain = content.length < bytes ? undefined : this.#inflate(content)
    if (plain === undefined) {
      this.#window = undefined
      this.#onMessage(this.#kind, Buffer.alloc(0), bytes, 'compressed, and too long or broken')
    } else this.#onMessage(this.#kind, plain.subarray(0, MAX_MESSAGE_CONTENT_BYTES), plain.length, undefined)
  }

  /** Each message uses the compression window of the previous ones. If one is not read, no later one can be. */
  #inflate(content: Buffer): Buffer | undefined {
    const dictionary = this.#window
    if (dictionary === undefined) return undefined
    try {
      const plain = inflateRawSync(Buffer.concat([content, TAIL]), {
        dictionary,
        finishFlush: constants.Z_SYNC_FLUSH,
        maxOutputLength: 8 * MAX_MESSAGE_CONTENT_BYTES,
      })
      this.#window = windowOf(dictionary, plain)
      return plain
    } catch {
      return undefined
    }
  }
}

/** A copy of the last {@link WINDOW_BYTES} of both. */
function windowOf(before: Buffer, after: Buffer): Buffer {
  const last = Buffer.concat([before, after]).subarray(-WINDOW_BYTES)
  const window = Buffer.allocUnsafeSlow(last.length)
  window.set(last)
  return window
}

/** Reads the events of an event stream, split at empty lines. */
export class EventStreamMessages implements MessageReader {
  readonly #onMessage: OnMessage
  #event = new MessageContent()
  /** Whether the last byte ended a line (with CRLF, the LF). */
  #isLineStart = true
  #last = 0

  constructor(onMessage: OnMessage) {
    this.#onMessage = onMessage
  }

  get heldBytes(): number {
    return this.#event.heldBytes
  }

  add(chunk: Uint8Array): void {
    let from = 0
    for (let i = 0; i < chunk.length; i++) {
      const byte = chunk[i]!
      const isLf = byte === 0x0a
      const isEnd = isLf || byte === 0x0d
      if (isEnd && !(isLf && this.#last === 0x0d)) {
        if (this.#isLineStart) {
          this.#event.add(chunk.subarray(from, i))
          this.#end()
          from = i + 1
        }
        this.#isLineStart = true
      } else if (!isEnd) this.#isLineStart = false
      this.#last = byte
    }
    this.#event.add(chunk.subarray(from))
  }

  #end(): void {
    const { bytes } = this.#event
    const content = this.#event.take()
    this.#event = new MessageContent()
    const text = content.toString('latin1').trim()
    const isWhole = content.length === bytes
    if (text !== '') this.#onMessage('event', Buffer.from(text, 'latin1'), isWhole ? text.length : bytes, undefined)
  }
}

/** A copy of the beginning of a message. */
class MessageContent {
  #buffer = Buffer.alloc(0)
  #kept = 0
  bytes = 0

  get heldBytes(): number {
    return this.#buffer.length
  }

  /** Returns a copy of the part of `bytes` that is kept. */
  add(bytes: Uint8Array): Buffer {
    const isWhole = this.#kept === this.bytes
    this.bytes += bytes.length
    const take = isWhole ? Math.min(bytes.length, MAX_MESSAGE_CONTENT_BYTES - this.#kept) : 0
    if (take === 0) return NOTHING
    if (this.#kept + take > this.#buffer.length) {
      const room = Math.min(MAX_MESSAGE_CONTENT_BYTES, Math.max(256, 2 * (this.#kept + take)))
      const larger = Buffer.allocUnsafeSlow(room)
      larger.set(this.#buffer.subarray(0, this.#kept))
      this.#buffer = larger
    }
    this.#buffer.set(bytes.subarray(0, take), this.#kept)
    const copy = this.#buffer.subarray(this.#kept, this.#kept + take)
    this.#kept += take
    return copy
  }

  take(): Buffer {
    return this.#buffer.subarray(0, this.#kept)
  }
}

const NOTHING = Buffer.alloc(0)
