/**
 * Incremental decoder of one Binary HTTP message and of the prefix before it on the stream. Content is passed on as it arrives.
 * Heads and trailers are held until they are complete, at most {@link MAX_HEAD_BYTES} of them.
 *
 *     request:   prefix | 2 | control data | fields 0 | (length chunk)* 0 | trailers 0
 *     response:  prefix | 3 | (status fields 0)* | (length chunk)* 0 | trailers 0
 *     raw bytes instead of content and trailers after {@link MessageDecoder.raw}
 */

import { ByteCache } from '../../base/byte-cache.ts'
import { SMALL_PIECE_BYTES } from '../../base/gathered.ts'
import { latin1 } from '../../base/latin1.ts'
import { ProtocolError } from '../../base/protocol-error.ts'
import { gather, gathered } from '../../base/scratch.ts'
import type { HeaderList } from '../../exchange.ts'
import { BODY_UNKNOWN } from '../../exchange.ts'
import { readVarint, varintSize } from '../varint.ts'
import { FRAMING_INDICATOR } from './encode.ts'
import { decodeSection, MAX_HEAD_BYTES, sectionEnd } from './fields.ts'

export const MAX_INFORMATIONAL = 32

/** Receives the parts of a request or of a response. */
export interface MessageVisitor {
  /** Reads the prefix before the message. Returns its end, or -1 if `bytes` up to `end` do not contain all of it. */
  prefix(bytes: Uint8Array, at: number, end: number): number
  /** The head of a request. Returns how many bytes of content must follow, or BODY_UNKNOWN. */
  request?(method: string, scheme: string, authority: string, path: string, headers: HeaderList): number
  informational?(status: number, headers: HeaderList): void
  /** The final head of a response. Returns the same as {@link request}. */
  response?(status: number, headers: HeaderList): number
  content(chunk: Uint8Array): void
}

const STATE = {
  prefix: 0,
  framing: 1,
  requestLine: 2,
  requestFields: 3,
  status: 4,
  responseFields: 5,
  chunkLength: 6,
  chunk: 7,
  trailers: 8,
  complete: 9,
  raw: 10,
  stopped: 11,
} as const
type State = (typeof STATE)[keyof typeof STATE]

const NO_BYTES = new Uint8Array(0)
/** Field sections of responses. */
const sections = new ByteCache<HeaderList>()
/** More bytes than any item within the limits. */
const MAX_ITEM_BYTES = MAX_HEAD_BYTES + 64

/** Control data of a request (RFC 9292 section 3.4). */
interface RequestLine {
  /** The encoded line, including lengths. */
  readonly text: string
  readonly method: string
  readonly scheme: string
  readonly authority: string
  readonly path: string
}

const NO_LINE: RequestLine = { text: '', method: '', scheme: '', authority: '', path: '' }
/** The previous one. Most requests have the same, and comparing identical strings later costs nothing. */
let lastLine = NO_LINE

export class MessageDecoder {
  readonly #visitor: MessageVisitor
  readonly #framing: number
  #state: State = STATE.prefix
  /** An item that is not complete yet: `#heldLength` bytes of `#held`. */
  #held: Uint8Array = NO_BYTES
  #heldLength = 0
  /** Bytes of the current head so far. */
  #headBytes = 0
  /** Size of the head of a request, and of trailers, once they are complete. */
  #keptBytes = 0
  #status = 0
  #informational = 0
  #line = NO_LINE
  /** Bytes left of the current chunk, and of the announced content. */
  #chunkLeft = 0
  #contentLeft = BODY_UNKNOWN
  /** Bytes of small pieces that were gathered and not passed on yet. */
  #smallLength = 0
  #delivered = 0
  /** Set by `end` of the trailers. */
  trailers: HeaderList = []
  /** Whether a 101 may replace the framing indicator, as the answer to an upgrade (SPEC.md, "Upgrades"). */
  upgrade = false

  constructor(visitor: MessageVisitor, side: 'request' | 'response') {
    this.#visitor = visitor
    this.#framing = FRAMING_INDICATOR[side]
  }

  /** Whether the whole message has arrived, including trailers. */
  get complete(): boolean {
    return this.#state === STATE.complete
  }

  /** Memory held: an incomplete item, and what the exchange keeps to its end, a request's head and trailers. */
  get heldBytes(): number {
    return this.#held.length + this.#keptBytes
  }

  /** Treats everything after the current head as raw bytes. Called from the visitor. */
  raw(): void {
    this.#state = STATE.raw
  }

  /** Ignores everything from here on. */
  stop(): void {
    this.#state = STATE.stopped
    this.#held = NO_BYTES
    this.#heldLength = 0
    this.#keptBytes = 0
    this.#smallLength = 0
  }

  /**
   * Takes the next bytes of the stream. Returns how many of them were not content, so that credit for them can go back at once.
   *
   * @throws ProtocolError if they break the format or a limit.
   */
  push(chunk: Uint8Array): number {
    this.#delivered = 0
    // Clears what an earlier error may have left behind.
    this.#smallLength = 0
    const start = this.#heldLength === 0 ? 0 : this.#resume(chunk)
    if (start >= 0) this.#run(chunk, start)
    return chunk.length - this.#delivered
  }

  /** Completes the held item with bytes of `chunk`. Returns where in `chunk` it ends, or -1 if it is still incomplete. */
  #resume(chunk: Uint8Array): number {
    const before = this.#heldLength
    this.#hold(chunk, 0, Math.min(chunk.length, MAX_ITEM_BYTES))
    const end = this.#step(this.#held, 0, this.#heldLength)
    if (end < 0) return -1
    this.#held = NO_BYTES
    this.#heldLength = 0
    return end - before
  }

  #hold(bytes: Uint8Array, at: number, end: number): void {
    const length = this.#heldLength + end - at
    if (length > this.#held.length) {
      const larger = new Uint8Array(Math.max(length, 2 * this.#held.length, 64))
      larger.set(this.#held.subarray(0, this.#heldLength))
      this.#held = larger
    }
    this.#held.set(at === 0 && end === bytes.length ? bytes : bytes.subarray(at, end), this.#heldLength)
    this.#heldLength = length
  }

  #run(chunk: Uint8Array, start: number): void {
    let at = start
    while (at < chunk.length) {
      if (this.#state === STATE.chunk) {
        at = this.#content(chunk, at)
      } else if (this.#state === STATE.raw) {
        this.#deliver(at === 0 ? chunk : chunk.subarray(at))
        return
      } else if (this.#state === STATE.stopped) {
        return
      } else {
        const next = this.#step(chunk, at, chunk.length)
        if (next < 0) {
          this.#hold(chunk, at, chunk.length)
          break
        }
        at = next
      }
    }
    if (this.#smallLength > 0) this.#flushSmall()
  }

  /** Reads one structural item. Returns its end, or -1 if `bytes` do not contain all of it. */
  #step(bytes: Uint8Array, at: number, end: number): number {
    switch (this.#state) {
      case STATE.prefix:
        return this.#prefix(bytes, at, end)
      case STATE.framing:
        return this.#framingIndicator(bytes, at, end)
      case STATE.requestLine:
        return this.#requestLine(bytes, at, end)
      case STATE.requestFields:
        return this.#requestFields(bytes, at, end)
      case STATE.status:
        return this.#statusCode(bytes, at, end)
      case STATE.responseFields:
        return this.#responseFields(bytes, at, end)
      case STATE.chunkLength:
        return this.#chunkLength(bytes, at, end)
      case STATE.trailers:
        return this.#trailerSection(bytes, at, end)
      default:
        throw new ProtocolError('bytes after the end of the message')
    }
  }

  #prefix(bytes: Uint8Array, at: number, end: number): number {
    const next = this.#visitor.prefix(bytes, at, end)
    if (next >= 0 && this.#state === STATE.prefix) this.#state = STATE.framing
    return next
  }

  #framingIndicator(bytes: Uint8Array, at: number, end: number): number {
    if (at + varintSize(bytes[at]!) > end) return -1
    const indicator = readVarint(bytes, at)
    if (indicator === 101 && this.upgrade) {
      this.#status = 101
      this.#state = STATE.responseFields
    } else if (indicator !== this.#framing) {
      throw new ProtocolError(`framing indicator ${indicator}`)
    } else {
      this.#state = indicator === FRAMING_INDICATOR.request ? STATE.requestLine : STATE.status
    }
    return at + varintSize(bytes[at]!)
  }

  #requestLine(bytes: Uint8Array, at: number, end: number): number {
    const method = this.#stringEnd(bytes, at, at, end)
    if (method < 0) return -1
    const scheme = this.#stringEnd(bytes, at, method, end)
    if (scheme < 0) return -1
    const authority = this.#stringEnd(bytes, at, scheme, end)
    if (authority < 0) return -1
    const path = this.#stringEnd(bytes, at, authority, end)
    if (path < 0) return -1
    const text = latin1(bytes, at, path)
    if (text !== lastLine.text) {
      lastLine = {
        text,
        method: text.slice(varintSize(bytes[at]!), method - at),
        scheme: text.slice(method + varintSize(bytes[method]!) - at, scheme - at),
        authority: text.slice(scheme + varintSize(bytes[scheme]!) - at, authority - at),
        path: text.slice(authority + varintSize(bytes[authority]!) - at),
      }
    }
    this.#line = lastLine
    this.#headBytes = path - at
    this.#state = STATE.requestFields
    return path
  }

  /** End of the length and string at `at`, or -1; `start` is where the control data begins. */
  #stringEnd(bytes: Uint8Array, start: number, at: number, end: number): number {
    if (at >= end) return -1
    const text = at + varintSize(bytes[at]!)
    if (text > end) return -1
    const next = text + readVarint(bytes, at)
    if (next - start > MAX_HEAD_BYTES) throw new ProtocolError('head too long')
    return next > end ? -1 : next
  }

  #requestFields(bytes: Uint8Array, at: number, end: number): number {
    const next = sectionEnd(bytes, at, end, MAX_HEAD_BYTES - this.#headBytes)
    if (next < 0) return -1
    const headers = decodeSection(bytes, at, next)
    this.#keptBytes = this.#headBytes + next - at
    this.#state = STATE.chunkLength
    const { method, scheme, authority, path } = this.#line
    this.#contentLeft = this.#visitor.request!(method, scheme, authority, path, headers)
    return next
  }

  #statusCode(bytes: Uint8Array, at: number, end: number): number {
    const next = at + varintSize(bytes[at]!)
    if (next > end) return -1
    const status = readVarint(bytes, at)
    if (status < 100 || status > 599 || status === 101) throw new ProtocolError(`status ${status}`)
    this.#status = status
    this.#state = STATE.responseFields
    return next
  }

  #responseFields(bytes: Uint8Array, at: number, end: number): number {
    const next = sectionEnd(bytes, at, end, MAX_HEAD_BYTES)
    if (next < 0) return -1
    const headers = responseSection(bytes, at, next)
    if (this.#status < 200 && this.#status !== 101) {
      if (++this.#informational > MAX_INFORMATIONAL) throw new ProtocolError('too many informational responses')
      this.#state = STATE.status
      this.#visitor.informational!(this.#status, headers)
    } else {
      this.#state = this.#status === 101 ? STATE.raw : STATE.chunkLength
      this.#contentLeft = this.#visitor.response!(this.#status, headers)
    }
    return next
  }

  #chunkLength(bytes: Uint8Array, at: number, end: number): number {
    const next = at + varintSize(bytes[at]!)
    if (next > end) return -1
    const length = readVarint(bytes, at)
    if (this.#contentLeft !== BODY_UNKNOWN) {
      if (length > this.#contentLeft) throw new ProtocolError('more content than was announced')
      if (length === 0 && this.#contentLeft > 0) throw new ProtocolError('less content than was announced')
      this.#contentLeft -= length
    } else if (length === Number.POSITIVE_INFINITY) {
      throw new ProtocolError('chunk too long')
    }
    this.#chunkLeft = length
    this.#state = length === 0 ? STATE.trailers : STATE.chunk
    return next
  }

  #content(chunk: Uint8Array, at: number): number {
    const end = Math.min(chunk.length, at + this.#chunkLeft)
    this.#chunkLeft -= end - at
    if (this.#chunkLeft === 0) this.#state = STATE.chunkLength
    if (end - at < SMALL_PIECE_BYTES && (end < chunk.length || this.#smallLength > 0)) {
      this.#smallLength = gather(this.#smallLength, chunk, at, end)
    } else {
      if (this.#smallLength > 0) this.#flushSmall()
      if (this.#state !== STATE.stopped)
        this.#deliver(at === 0 && end === chunk.length ? chunk : chunk.subarray(at, end))
    }
    return end
  }

  #flushSmall(): void {
    const piece = gathered(this.#smallLength)
    this.#smallLength = 0
    this.#deliver(piece)
  }

  #deliver(piece: Uint8Array): void {
    this.#delivered += piece.length
    this.#visitor.content(piece)
  }

  #trailerSection(bytes: Uint8Array, at: number, end: number): number {
    const next = sectionEnd(bytes, at, end, MAX_HEAD_BYTES)
    if (next < 0) return -1
    this.trailers = decodeSection(bytes, at, next)
    this.#keptBytes += next - at
    this.#state = STATE.complete
    return next
  }
}

function responseSection(bytes: Uint8Array, at: number, end: number): HeaderList {
  const seen = sections.find(bytes, at, end)
  if (seen !== undefined) return seen.slice()
  const headers = decodeSection(bytes, at, end)
  sections.keep(bytes, at, end, headers.slice())
  return headers
}
