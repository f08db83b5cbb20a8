/** E2, E12: each way in which a head's first line can be wrong, with the reason for its refusal. */
import { describe, expect, test } from 'vitest'
import { HeadParser } from '../../../../protocol/http/http1/head-parser.ts'
import { parseRequest } from '../../../../protocol/http/http1/request-head.ts'

const LIMITS = { headBytes: 200, headFields: 10, uriBytes: 50 }

function refusal(parse: () => unknown): unknown {
  try {
    return parse()
  } catch (error) {
    const { reason, message } = error as Error & { reason: string }
    return `${reason}: ${message.replace(/^head not valid: /, '')}`
  }
}

describe('E2 a request line', () => {
  const read = (line: string) => {
    const parser = new HeadParser(LIMITS, false)
    parser.start()
    return refusal(() => parser.requestLine(Buffer.from(line, 'latin1'), 0, line.length))
  }

  test.each([
    [' GET / HTTP/1.1\r\n', 'bad-request: method'],
    ['G(T / HTTP/1.1\r\n', 'bad-request: method'],
    ['GET  / HTTP/1.1\r\n', 'bad-request: request target'],
    ['GET /\t HTTP/1.1\r\n', 'bad-request: request target'],
    [`GET /${'a'.repeat(50)} HTTP/1.1\r\n`, 'uri-too-long: request target'],
    ['GET / HTTP/1.2\r\n', 'bad-request: version'],
    ['GET / http/1.1\r\n', 'bad-request: version'],
    ['GET / HTTP/2.0\r\n', 'bad-request: version'],
    ['GET / HTTP/1.1 \r\n', 'bad-request: request line'],
    ['GET / HTTP/1.1\n', 'bad-request: request line'],
    ['GET / HTTP/1.10\r\n', 'bad-request: request line'],
    ['GET / HTTP/1.1\rX', 'bad-request: request line'],
  ])('E2 %j', (line, reason) => expect(read(line)).toBe(reason))

  test('E2 a valid one', () => expect(read('GET / HTTP/1.1\r\n')).toBe(16))

  test.each([
    ['GET /xx', 'bad-request: not one head'],
    ['GET / HTTP/1.1\r\na: b\r\n\r\nGET ', 'bad-request: not one head'],
    [`GET / HTTP/1.1\r\na: ${'b'.repeat(300)}\r\n\r\n`, 'head-too-large: '],
  ])('E2 a whole head that is cut or too large: %j', (text, reason) => {
    const bytes = Buffer.from(text)
    expect(refusal(() => parseRequest(bytes, LIMITS, '127.0.0.1', false))).toContain(reason)
  })
})

describe('E2 field lines', () => {
  const read = (lines: string) => {
    const parser = new HeadParser(LIMITS, false)
    parser.start()
    return refusal(() => parser.fields(Buffer.from(lines, 'latin1'), 0, lines.length))
  }

  // The placeholder takes one byte, or two with the next; the line behind it would be valid.
  const ODD = ['\0', '\n', '\r', '\x01', '\x7f', '\r\r', '\0\n', '\n\n', '\rX'].map(odd => `a: b${odd}c: d\r\n`)
  test.each(ODD)('E2 %j', lines => expect(read(lines)).toBe('bad-request: field value'))

  test.each([
    ['a\r\n', 'bad-request: field name'],
    [': b\r\n', 'bad-request: field name'],
    ['a : b\r\n', 'bad-request: field name'],
    [' a: b\r\n', 'bad-request: field name'],
    ['a: b', 'bad-request: field value'],
    ['a: b\r\n'.repeat(11), 'head-too-large: number of fields'],
    ['content-length: 1\r\ncontent-length: 1\r\n', 'bad-request: two content-length'],
    ['content-length: +1\r\n', 'bad-request: content-length'],
  ])('E2 %j', (lines, reason) => expect(read(lines)).toBe(reason))
})

describe('E12 a status line', () => {
  const read = (line: string) => {
    const parser = new HeadParser(LIMITS, true)
    parser.start()
    return refusal(() => parser.statusLine(Buffer.from(line, 'latin1'), 0, line.length))
  }

  test.each([
    ['HTTP/1.2 200 OK\r\n', 'version'],
    ['HTTP/1.1 2x0 OK\r\n', 'status'],
    ['HTTP/1.1 20\r\n', 'status'],
    ['HTTP/1.1 099 OK\r\n', 'status line'],
    ['HTTP/1.1\t200 OK\r\n', 'status line'],
    ['HTTP/1.1 2000 OK\r\n', 'status line'],
    ['HTTP/1.1 200 O\0K\r\n', 'reason'],
    ['HTTP/1.1 200 O\rK\r\n', 'reason'],
    ['HTTP/1.1 200 OK\n', 'bare LF'],
  ])('E12 %j', (line, reason) => expect(read(line)).toBe(`upstream-broken: ${reason}`))

  test.each(['HTTP/1.1 200 OK\r\n', 'HTTP/1.1 200 \r\n', 'HTTP/1.1 200\r\n'])('E12 %j is valid', line => {
    expect(read(line)).toBe(line.length)
  })
})
