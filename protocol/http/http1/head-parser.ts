/**
 * The strict parser of HTTP/1.1 heads. It passes over the bytes once and checks each against the grammar (RFC 9112 sections
 * 2 to 5). It refuses bare LF, bare CR, NUL, folded lines, white space before the colon, and empty names.
 */
import type { Buffer } from 'node:buffer'
import { type ErrorCode, SallyportError } from '../../base/errors.ts'
import { latin1 } from '../../base/latin1.ts'
import type { HeaderList } from '../../exchange.ts'
import { FIELD_KIND, findName, kindAt, nameAt } from '../field-names.ts'
import { listTokens, namedByConnection, plainNumber, removeWhere } from '../headers.ts'
import { COLON, CR, HT, LF, SP, TARGET, TOKEN_LOWER, VALUE } from './bytes.ts'

export interface HeadLimits {
  readonly headBytes: number
  readonly headFields: number
  readonly uriBytes: number
}

/** A parsed head. */
export class Head {
  // Start line.
  method = ''
  target = ''
  /** 0 for HTTP/1.0, 1 for HTTP/1.1. */
  minor = 1
  status = 0
  // Fields.
  headers: HeaderList = []
  host: string | undefined = undefined
  hosts = 0
  /** -1 if there is none. */
  contentLength = -1
  transferEncoding: string | undefined = undefined
  close = false
  keepAlive = false
  connectionUpgrade = false
  upgrade: string | undefined = undefined
  expect: string | undefined = undefined
  webSocketKey: string | undefined = undefined
  webSocketVersion: string | undefined = undefined
  webSocketAccept: string | undefined = undefined
  keepAliveParameters: string | undefined = undefined
}

/** Stands in where none is being parsed. */
const NONE = new Head()

/** Reused for all heads of one connection. */
export class HeadParser {
  /** The head parsed since the last call of `start`. */
  head = new Head()
  readonly #limits: HeadLimits
  readonly #response: boolean
  #connection: string[] | undefined

  constructor(limits: HeadLimits, response: boolean) {
    this.#limits = limits
    this.#response = response
  }

  start(): void {
    this.head = new Head()
    this.#connection = undefined
  }

  /** The head, of which an idle connection keeps nothing. */
  take(): Head {
    const { head } = this
    this.head = NONE
    this.#connection = undefined
    return head
  }

  /** Parses the first line from `start`. Returns the offset after it, or -1 if the line is incomplete at `end`. */
  startLine(bytes: Buffer, start: number, end: number): number {
    return this.#response ? this.statusLine(bytes, start, end) : this.requestLine(bytes, start, end)
  }

  /**
   * Parses `METHOD SP target SP HTTP/1.x CRLF` from `start`. Returns the offset after it, or -1 if the line is incomplete at `end`.
   */
  requestLine(bytes: Buffer, start: number, end: number): number {
    let at = start
    while (at < end && TOKEN_LOWER[bytes[at]!] !== 0) at++
    if (at === end) return -1
    if (at === start || bytes[at] !== SP) throw this.fault('bad-request', 'method')
    const methodEnd = at++
    const targetStart = at
    while (at < end && TARGET[bytes[at]!] === 1) at++
    if (at - targetStart > this.#limits.uriBytes) throw this.fault('uri-too-long', 'request target')
    if (at === end) return -1
    if (at === targetStart || bytes[at] !== SP) throw this.fault('bad-request', 'request target')
    const targetEnd = at++
    const lineEnd = at + 10
    if (!this.#version(bytes, at, Math.min(end, at + 8))) throw this.fault('bad-request', 'version')
    if (end > at + 8 && bytes[at + 8] !== CR) throw this.fault('bad-request', 'request line')
    if (end > at + 9 && bytes[at + 9] !== LF) throw this.fault('bad-request', 'request line')
    if (end < lineEnd) return -1
    this.head.method = latin1(bytes, start, methodEnd)
    this.head.target = latin1(bytes, targetStart, targetEnd)
    return lineEnd
  }

  /** Parses `HTTP/1.x SP 3DIGIT [SP reason] CRLF`. Returns the offset after it, or -1 if the line is incomplete at `end`. */
  statusLine(bytes: Buffer, start: number, end: number): number {
    if (!this.#version(bytes, start, Math.min(end, start + 8))) throw this.fault('bad-request', 'version')
    let line = start
    while (line < end && bytes[line] !== LF) line++
    if (line === end) return -1
    let status = 0
    for (let at = start + 9; at < start + 12; at++) {
      const digit = bytes[at]! - 0x30
      if (digit < 0 || digit > 9) throw this.fault('bad-request', 'status')
      status = status * 10 + digit
    }
    if (bytes[start + 8] !== SP || status < 100) throw this.fault('bad-request', 'status line')
    const after = bytes[start + 12]
    if (line < start + 13 || (after !== SP && after !== CR)) throw this.fault('bad-request', 'status line')
    for (let at = start + 12; at < line - 1; at++) {
      if (VALUE[bytes[at]!] === 0) throw this.fault('bad-request', 'reason')
    }
    if (bytes[line - 1] !== CR) throw this.fault('bad-request', 'bare LF')
    this.head.status = status
    return line + 1
  }

  #version(bytes: Buffer, start: number, end: number): boolean {
    for (let at = start; at < end; at++) {
      if (at - start < 7) {
        if (bytes[at] !== 'HTTP/1.'.charCodeAt(at - start)) return false
      } else {
        this.head.minor = bytes[at]! - 0x30
        if (this.head.minor !== 0 && this.head.minor !== 1) return false
      }
    }
    return true
  }

  /** Parses whole lines `name: value CRLF`. The last one ends at `end`. */
  fields(bytes: Buffer, start: number, end: number): void {
    const { headers } = this.head
    const most = this.#limits.headFields * 2
    // One string for all lines. The values are slices of it, which need no call.
    const text = latin1(bytes, start, end)
    let count = 0
    let at = start
    while (at < end) {
      if (++count * 2 > most) throw this.fault('head-too-large', 'number of fields')
      const nameStart = at
      while (TOKEN_LOWER[bytes[at]!] !== 0) at++
      if (at === nameStart || bytes[at] !== COLON) throw this.fault('bad-request', 'field name')
      const nameEnd = at++
      while (bytes[at] === SP || bytes[at] === HT) at++
      const valueStart = at
      while (VALUE[bytes[at]!] === 1) at++
      if (at + 1 >= end || bytes[at] !== CR || bytes[at + 1] !== LF) throw this.fault('bad-request', 'field value')
      let valueEnd = at
      while (valueEnd > valueStart && (bytes[valueEnd - 1] === SP || bytes[valueEnd - 1] === HT)) valueEnd--
      at += 2
      const value = text.slice(valueStart - start, valueEnd - start)
      const slot = findName(bytes, nameStart, nameEnd, TOKEN_LOWER)
      if (slot < 0) headers.push(text.slice(nameStart - start, nameEnd - start).toLowerCase(), value)
      else if (kindAt(slot) === FIELD_KIND.plain) headers.push(nameAt(slot), value)
      else this.#special(kindAt(slot), nameAt(slot), value)
    }
    if (this.#connection !== undefined) this.#applyConnection(this.#connection)
  }

  #special(kind: number, name: string, value: string): void {
    const head = this.head
    switch (kind) {
      case FIELD_KIND.host:
        head.hosts++
        head.host = value
        return
      case FIELD_KIND.contentLength:
        if (head.contentLength !== -1) throw this.fault('bad-request', 'two content-length')
        head.contentLength = plainNumber(value)
        if (head.contentLength === -1) throw this.fault('bad-request', 'content-length')
        head.headers.push(name, value)
        return
      case FIELD_KIND.transferEncoding:
        head.transferEncoding = head.transferEncoding === undefined ? value.toLowerCase() : 'several'
        return
      case FIELD_KIND.connection:
        this.#connection ??= []
        this.#connection.push(value)
        return
      case FIELD_KIND.upgrade:
        head.upgrade = head.upgrade === undefined ? value : `${head.upgrade}, ${value}`
        return
      case FIELD_KIND.expect:
        head.expect = head.expect === undefined ? value.toLowerCase() : 'several'
        return
      case FIELD_KIND.webSocketKey:
        head.webSocketKey = head.webSocketKey === undefined ? value : 'several'
        return
      case FIELD_KIND.webSocketVersion:
        head.webSocketVersion = head.webSocketVersion === undefined ? value : 'several'
        return
      case FIELD_KIND.webSocketAccept:
        head.webSocketAccept = head.webSocketAccept === undefined ? value : 'several'
        return
      case FIELD_KIND.keepAlive:
        head.keepAliveParameters = value
        return
      case FIELD_KIND.dropped:
        // The trailers that an HTTP/2 upstream may send for it are passed on, whatever version the caller speaks.
        if (name === 'te' && !this.#response && value.toLowerCase() === 'trailers') head.headers.push(name, 'trailers')
    }
  }

  #applyConnection(values: string[]): void {
    const head = this.head
    const only = values.length === 1 ? values[0] : undefined
    if (only === 'keep-alive' || only === 'Keep-Alive') {
      head.keepAlive = true
      return
    }
    for (const value of values) {
      for (const token of listTokens(value)) {
        if (token === 'close') head.close = true
        else if (token === 'keep-alive') head.keepAlive = true
        else if (token === 'upgrade') head.connectionUpgrade = true
      }
    }
    const named = namedByConnection(values)
    if (named !== undefined) removeWhere(head.headers, name => named.has(name))
  }

  /** Any fault in a response is the upstream's. */
  fault(reason: ErrorCode, what: string): SallyportError {
    return new SallyportError(this.#response ? 'upstream-broken' : reason, `head not valid: ${what}`)
  }
}
