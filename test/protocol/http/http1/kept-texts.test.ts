/** What is counted by host or address, and spans, outlive their requests. They keep a few texts, and must not keep whole heads alive. */
import { Buffer } from 'node:buffer'
import { expect, test } from 'vitest'
import { liveBytes } from '../../../../load-tests/lib/garbage.ts'
import { parseCidrs } from '../../../../protocol/base/address.ts'
import type { HttpRequest } from '../../../../protocol/exchange.ts'
import { resolveCaller } from '../../../../protocol/http/forwarded.ts'
import { parseRequest } from '../../../../protocol/http/http1/request-head.ts'
import { DEFAULT_HTTP_LIMITS } from '../../../../protocol/http/limits.ts'
import { readContext } from '../../../../protocol/trace/context.ts'

const PROXY = '192.0.2.1'
const trusted = parseCidrs([PROXY])
const long = '~'.repeat(7000)

const authority = (request: HttpRequest) => request.authority
const address = (request: HttpRequest) => {
  resolveCaller(request, trusted)
  return request.caller!.address
}
const hex = (digits: number, i: number) => (i + 1).toString(16).padStart(digits, '0')
const plain = (fields: string) => `GET / HTTP/1.1\r\n${fields}\r\nX-Long: ${long}`
const host = (i: number) => `made-up-name-${i}.example.com`

test.each<[string, (i: number) => string, (request: HttpRequest) => unknown]>([
  ['a host', i => plain(`Host: ${host(i)}`), authority],
  ['the host of an absolute target', i => `GET http://${host(i)}/${long} HTTP/1.1\r\nHost: a`, authority],
  [
    'the address of a caller',
    i => plain(`Host: a\r\nX-Forwarded-For: 203.113.${100 + (i >> 7)}.${100 + (i & 127)}`),
    address,
  ],
  [
    'a trace',
    i => plain(`Host: a\r\nTraceparent: 00-${hex(32, i)}-${hex(16, i)}-01\r\nTracestate: vendor=${hex(32, i)}`),
    ({ headers }) => readContext(headers),
  ],
])('%s keeps nothing else of its head', async (_what, head, kept) => {
  const all: unknown[] = []
  const before = await liveBytes()
  for (let i = 0; i < 2000; i++) {
    const bytes = Buffer.from(`${head(i)}\r\n\r\n`, 'latin1')
    const one = kept(parseRequest(bytes, DEFAULT_HTTP_LIMITS, PROXY, false).request)
    expect(one).toBeTruthy()
    all.push(one)
  }
  expect((await liveBytes()) - before).toBeLessThan(2000 * 1000)
  expect(new Set(all.map(one => JSON.stringify(one))).size).toBe(2000)
})
