/**
 * The strict parser of HTTP/1.1 heads: one pass over the bytes, each checked against what the grammar allows (RFC 9112
 * sections 2 to 5). It refuses bare LF, bare CR, NUL, folded lines, white space before the colon, empty names.
 */
import { Buffer } from 'node:buffer'
import { type ErrorCode, SallyportError } from '../errors.ts'
import type { HeaderList } from '../exchange.ts'
import { findName, KIND, kindAt, nameAt } from '../field-names.ts'
import { listTokens, namedByConnection, plainNumber, removeWhere } from '../headers.ts'
import { latin1 } from '../latin1.ts'
import { COLON, CR, HT, LF, SP, TARGET, TOKEN_LOWER, VALUE } from './bytes.ts'

export interface HeadLimits {
  readonly headBytes: number
  readonly headFields: number
  readonly uriBytes: number
}

/** Longer heads are rarely the same. */
const REPEATED_BYTES = 512

/** Reused for all heads of one connection; the results hold until the next `start`. */
export class HeadParser {
  // Start line.
  method = ''
  target = ''
  /** 0 for HTTP/1.0, 1 for HTTP/1.1. */
  minor = 1
  status = 0
  // Fields.
  headers: HeaderList = []
  host: string | undefined
  hosts = 0
  /** -1 if there is none. */
  contentLength = -1
  transferEncoding: string | undefined
  close = false
  keepAlive = false
  connectionUpgrade = false
  upgrade: string | undefined
  expect: string | undefined
  webSocketKey: string | undefined
  webSocketVersion: string | undefined
  webSocketAccept: string | undefined
  keepAliveParameters: string | undefined

  /** The head that {@link repeats} compares with, and its fields as they were read. */
  #last: Buffer | undefined
  #lastBytes = 0
  #lastHeaders: HeaderList = []
  readonly #limits: HeadLimits
  readonly #response: boolean
  #connection: string[] | undefined

  constructor(limits: HeadLimits, response: boolean) {
    this.#limits = limits
    this.#response = response
  }

  /** Whether the bytes up to `end` are those of the head remembered last: then all that was read of it holds again. */
  repeats(bytes: Buffer, end: number): boolean {
    if (end !== this.#lastBytes || this.#last!.compare(bytes, 0, end, 0, end) !== 0) return false
    this.headers = this.#lastHeaders.slice()
    return true
  }

  /** Keeps the head that was just read, unless it is long: most servers begin every answer with the same. */
  remember(bytes: Buffer, end: number): void {
    if (end > REPEATED_BYTES) return
    this.#last ??= Buffer.allocUnsafeSlow(REPEATED_BYTES)
    bytes.copy(this.#last, 0, 0, end)
    this.#lastBytes = end
    this.#lastHeaders = this.headers.slice()
  }

  start(): void {
    this.#lastBytes = 0
    this.method = ''
    this.headers = []
    this.host = undefined
    this.hosts = 0
    this.contentLength = -1
    this.transferEncoding = undefined
    this.close = false
    this.keepAlive = false
    this.connectionUpgrade = false
    this.upgrade = undefined
    this.expect = undefined
    this.webSocketKey = undefined
    this.webSocketVersion = undefined
    this.webSocketAccept = undefined
    this.keepAliveParameters = undefined
    this.#connection = undefined
  }

  /**
   * Parses `METHOD SP target SP HTTP/1.x CRLF` from `start`; returns the offset behind it, or -1 if `end` comes first.
   */
  requestLine(bytes: Buffer, start: number, end: number): number {
    let at = start
    while (at < end && TOKEN_LOWER[bytes[at]!] !== 0) at++
    if (at === end) return this.#unfinished(at - start)
    if (at === start || bytes[at] !== SP) throw this.#fault('bad-request', 'method')
    const methodEnd = at++
    const targetStart = at
    while (at < end && TARGET[bytes[at]!] === 1) at++
    if (at - targetStart > this.#limits.uriBytes) throw this.#fault('uri-too-long', 'request target')
    if (at === end) return -1
    if (at === targetStart || bytes[at] !== SP) throw this.#fault('bad-request', 'request target')
    const targetEnd = at++
    const lineEnd = at + 10
    if (!this.#version(bytes, at, Math.min(end, at + 8))) throw this.#fault('bad-request', 'version')
    if (end > at + 8 && bytes[at + 8] !== CR) throw this.#fault('bad-request', 'request line')
    if (end > at + 9 && bytes[at + 9] !== LF) throw this.#fault('bad-request', 'request line')
    if (end < lineEnd) return -1
    this.method = latin1(bytes, start, methodEnd)
    this.target = latin1(bytes, targetStart, targetEnd)
    return lineEnd
  }

  /** Parses `HTTP/1.x SP 3DIGIT [SP reason] CRLF`; returns the offset behind it, or -1 if `end` comes first. */
  statusLine(bytes: Buffer, start: number, end: number): number {
    if (!this.#version(bytes, start, Math.min(end, start + 8))) throw this.#fault('bad-request', 'version')
    let line = start
    while (line < end && bytes[line] !== LF) line++
    if (line === end) return this.#unfinished(end - start)
    let status = 0
    for (let at = start + 9; at < start + 12; at++) {
      const digit = bytes[at]! - 0x30
      if (digit < 0 || digit > 9) throw this.#fault('bad-request', 'status')
      status = status * 10 + digit
    }
    if (bytes[start + 8] !== SP || status < 100) throw this.#fault('bad-request', 'status line')
    const after = bytes[start + 12]
    if (line < start + 13 || (after !== SP && after !== CR)) throw this.#fault('bad-request', 'status line')
    for (let at = start + 12; at < line - 1; at++) {
      if (VALUE[bytes[at]!] === 0) throw this.#fault('bad-request', 'reason')
    }
    if (bytes[line - 1] !== CR) throw this.#fault('bad-request', 'bare LF')
    this.status = status
    return line + 1
  }

  #version(bytes: Buffer, start: number, end: number): boolean {
    for (let at = start; at < end; at++) {
      if (at - start < 7) {
        if (bytes[at] !== 'HTTP/1.'.charCodeAt(at - start)) return false
      } else {
        this.minor = bytes[at]! - 0x30
        if (this.minor !== 0 && this.minor !== 1) return false
      }
    }
    return true
  }

  #unfinished(length: number): -1 {
    if (length > this.#limits.uriBytes) throw this.#fault('head-too-large', 'start line')
    return -1
  }

  /** Parses whole lines `name: value CRLF`, the last of which ends at `end`. */
  fields(bytes: Buffer, start: number, end: number): void {
    const headers = this.headers
    const most = this.#limits.headFields * 2
    // One string for all lines; the values are slices of it, which cost no call.
    const text = latin1(bytes, start, end)
    let count = 0
    let at = start
    while (at < end) {
      if (++count * 2 > most) throw this.#fault('head-too-large', 'number of fields')
      const nameStart = at
      while (TOKEN_LOWER[bytes[at]!] !== 0) at++
      if (at === nameStart || bytes[at] !== COLON) throw this.#fault('bad-request', 'field name')
      const nameEnd = at++
      while (bytes[at] === SP || bytes[at] === HT) at++
      const valueStart = at
      while (VALUE[bytes[at]!] === 1) at++
      if (at + 1 >= end || bytes[at] !== CR || bytes[at + 1] !== LF) throw this.#fault('bad-request', 'field value')
      let valueEnd = at
      while (valueEnd > valueStart && (bytes[valueEnd - 1] === SP || bytes[valueEnd - 1] === HT)) valueEnd--
      at += 2
      const value = text.slice(valueStart - start, valueEnd - start)
      const slot = findName(bytes, nameStart, nameEnd, TOKEN_LOWER)
      if (slot < 0) headers.push(text.slice(nameStart - start, nameEnd - start).toLowerCase(), value)
      else if (kindAt(slot) === KIND.plain) headers.push(nameAt(slot), value)
      else this.#special(kindAt(slot), nameAt(slot), value)
    }
    if (this.#connection !== undefined) this.#applyConnection(this.#connection)
  }

  #special(kind: number, name: string, value: string): void {
    switch (kind) {
      case KIND.host:
        this.hosts++
        this.host = value
        return
      case KIND.contentLength:
        if (this.contentLength !== -1) throw this.#fault('bad-request', 'two content-length')
        this.contentLength = plainNumber(value)
        if (this.contentLength === -1) throw this.#fault('bad-request', 'content-length')
        this.headers.push(name, value)
        return
      case KIND.transferEncoding:
        this.transferEncoding = this.transferEncoding === undefined ? value.toLowerCase() : 'several'
        return
      case KIND.connection:
        this.#connection ??= []
        this.#connection.push(value)
        return
      case KIND.upgrade:
        this.upgrade = this.upgrade === undefined ? value : `${this.upgrade}, ${value}`
        return
      case KIND.expect:
        this.expect = this.expect === undefined ? value.toLowerCase() : 'several'
        return
      case KIND.webSocketKey:
        this.webSocketKey = this.webSocketKey === undefined ? value : 'several'
        return
      case KIND.webSocketVersion:
        this.webSocketVersion = this.webSocketVersion === undefined ? value : 'several'
        return
      case KIND.webSocketAccept:
        this.webSocketAccept = this.webSocketAccept === undefined ? value : 'several'
        return
      case KIND.keepAlive:
        this.keepAliveParameters = value
    }
  }

  #applyConnection(values: string[]): void {
    const only = values.length === 1 ? values[0] : undefined
    if (only === 'keep-alive' || only === 'Keep-Alive') {
      this.keepAlive = true
      return
    }
    for (const value of values) {
      for (const token of listTokens(value)) {
        if (token === 'close') this.close = true
        else if (token === 'keep-alive') this.keepAlive = true
        else if (token === 'upgrade') this.connectionUpgrade = true
      }
    }
    const named = namedByConnection(values)
    if (named !== undefined) removeWhere(this.headers, name => named.has(name))
  }

  /** A response's faults are the upstream's, whatever they are. */
  #fault(reason: ErrorCode, what: string): SallyportError {
    return new SallyportError(this.#response ? 'upstream-broken' : reason, `head not valid: ${what}`)
  }
}
