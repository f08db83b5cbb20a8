import { describe, expect, test } from 'vitest'
import { HeadParser } from '../../../../protocol/http/http1/head-parser.ts'
import { requestHead } from '../../../../protocol/http/http1/request-head.ts'

const limits = { headBytes: 16384, headFields: 100, uriBytes: 8192 }

function parse(text: string) {
  const bytes = Buffer.from(text, 'latin1')
  const parser = new HeadParser(limits, false)
  parser.start()
  const end = bytes.indexOf('\r\n\r\n') + 2
  const fields = parser.requestLine(bytes, 0, end)
  parser.fields(bytes, fields, end)
  return requestHead(parser.head, '192.0.2.1', false)
}

describe('request heads', () => {
  test('names are lower case, order, case of values and duplicates are kept', () => {
    const { request } = parse(
      'FOO /a%2e/b?c=d|{}&e HTTP/1.1\r\nHOST: A.example:80\r\nSet-Cookie: A=1\r\nX-Unusual:\t v v \t\r\nset-cookie:B\r\nE:\r\n__proto__: p\r\nx: \xe9\xff\r\n\r\n',
    )
    expect(request.method).toBe('FOO')
    expect(request.path).toBe('/a%2e/b?c=d|{}&e')
    expect(request.authority).toBe('A.example:80')
    expect(request.headers).toEqual([
      'set-cookie',
      'A=1',
      'x-unusual',
      'v v',
      'set-cookie',
      'B',
      'e',
      '',
      '__proto__',
      'p',
      'x',
      '\xe9\xff',
    ])
    expect(request.bodyBytes).toBe(0)
  })

  test('R1: hop-by-hop fields are not in the list, except te: trailers', () => {
    const { request, keepAlive } = parse(
      'GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Gone, close\r\nX-Gone: 1\r\nTE: trailers\r\nKeep-Alive: x\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\nProxy-Connection: y\r\nX-Kept: 2\r\n\r\n',
    )
    expect(request.headers).toEqual(['te', 'trailers', 'x-kept', '2'])
    expect(request.upgrade).toBe(false)
    expect(keepAlive).toBe(false)
  })

  test('E9: an absolute form wins over Host', () => {
    const { request } = parse('GET http://b.example?x HTTP/1.1\r\nHost: a.example\r\n\r\n')
    expect([request.authority, request.path]).toEqual(['b.example', '/?x'])
  })

  test('HTTP/1.0 needs no Host, and keeps alive only when asked', () => {
    expect(parse('GET / HTTP/1.0\r\n\r\n')).toMatchObject({
      http10: true,
      keepAlive: false,
      request: { authority: '' },
    })
    expect(parse('GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n').keepAlive).toBe(true)
  })

  test('E8: only 100-continue with a body is an expectation', () => {
    const post = (expect: string) =>
      parse(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: ${expect}\r\n\r\n`)
    expect(post('100-Continue')).toMatchObject({ expectsContinue: true })
    expect(post('100-continue').request.headers).toContain('100-continue')
    expect(post('200-ok')).toMatchObject({ expectsContinue: false })
    expect(post('100-continue\r\nExpect: 100-continue').expectsContinue).toBe(false)
    expect(parse('GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n').expectsContinue).toBe(false)
  })

  const upgrade = (over: Record<string, string> = {}) => {
    const fields = { Connection: 'keep-alive, Upgrade', Upgrade: 'WebSocket', 'Sec-WebSocket-Version': '13' }
    const all = { ...fields, 'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==', ...over }
    const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
    return parse(`GET / HTTP/1.1\r\nHost: a\r\n${lines.join('')}Sec-WebSocket-Protocol: p\r\n\r\n`)
  }

  test('E6: a WebSocket handshake drops its hop-by-hop fields', () => {
    const { request, webSocketKey } = upgrade()
    expect(request.upgrade).toBe(true)
    expect(webSocketKey).toBe('dGhlIHNhbXBsZSBub25jZQ==')
    expect(request.headers).toEqual(['sec-websocket-protocol', 'p'])
  })

  test.each([
    ['version', { 'Sec-WebSocket-Version': '8' }],
    ['key length', { 'Sec-WebSocket-Key': 'c2hvcnQ=' }],
    ['key padding', { 'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZX==' }],
    ['protocol', { Upgrade: 'h2c' }],
    ['connection', { Connection: 'keep-alive' }],
  ])('E6: without the right %s it is a plain GET', (_name, over) => {
    const { request } = upgrade(over as unknown as Record<string, string>)
    expect(request.upgrade).toBe(false)
    expect(request.headers).toEqual(['sec-websocket-protocol', 'p'])
  })

  test('chunked has unknown length; the last of many names may be anything', () => {
    expect(parse('POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n').request.bodyBytes).toBe(-1)
  })
})
