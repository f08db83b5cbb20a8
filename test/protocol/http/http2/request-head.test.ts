/** H4: each way in which a header block is not a request, with the reason for its refusal. */
import { describe, expect, test } from 'vitest'
import { http2Request } from '../../../../protocol/http/http2/request-head.ts'
import { DEFAULT_HTTP_LIMITS } from '../../../../protocol/http/limits.ts'

const GET = [':method', 'GET', ':scheme', 'https', ':authority', 'a.example', ':path', '/']
const WEBSOCKET = [
  ...[':method', 'CONNECT', ':protocol', 'websocket', ':scheme', 'https', ':authority', 'a', ':path', '/'],
  ...['sec-websocket-version', '13'],
]

function read(raw: readonly string[], ended = true): string {
  try {
    http2Request(raw, ended, DEFAULT_HTTP_LIMITS, { address: '127.0.0.1', encrypted: true })
    return 'taken'
  } catch (error) {
    const { reason, message } = error as Error & { reason: string }
    return `${reason}: ${message}`
  }
}

const without = (name: string) => {
  const at = GET.indexOf(name)
  return [...GET.slice(0, at), ...GET.slice(at + 2)]
}

describe('H4 a header block', () => {
  test.each([
    ['a method twice', [...GET, ':method', 'GET'], 'pseudo-field'],
    ['a path twice', [...GET, ':path', '/b'], 'pseudo-field'],
    ['no method', without(':method'), ':method of a request'],
    ['a method that is no token', [':method', 'G T', ...without(':method')], 'method'],
    ['no path', without(':path'), ':path of a request'],
    ['a path with a space', [':path', '/a b', ...without(':path')], ':path'],
    ['a value with a line end', [...GET, 'x', 'a\r\nb'], 'field value'],
    ['a value with NUL', [...GET, 'x', 'a\0b'], 'field value'],
    ['a length that is no number', [...GET, 'content-length', '1x'], 'content-length'],
    ['two lengths', [...GET, 'content-length', '1', 'content-length', '1'], 'content-length'],
    ['a length without a body', [...GET, 'content-length', '1'], 'content-length without a body'],
    ['two authorities', [...GET, 'host', 'b.example'], 'two authorities'],
    ['two hosts', [...without(':authority'), 'host', 'a', 'host', 'a'], 'two authorities'],
    ['a WebSocket with a length', [...WEBSOCKET, 'content-length', '5'], 'content-length of a WebSocket'],
  ])('H4 %s', (_, raw, reason) => {
    const said = read(raw)
    expect(said).toMatch(/^bad-request: /)
    expect(said.endsWith(`: ${reason}`)).toBe(true)
  })

  test.each([
    ['GET', GET],
    ['a WebSocket', WEBSOCKET],
    ['a WebSocket without a body', [...WEBSOCKET, 'content-length', '0']],
  ])('H4 %s is accepted', (_, raw) => expect(read(raw)).toBe('taken'))
})
