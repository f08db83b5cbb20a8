/**
 * A separate router behind a client: what the edge accepts reaches the upstream, and it stays clear whose error an
 * error was.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { createForwarder } from '../../router/forward.ts'
import { type RouterService, serveRouter } from '../../router/index.ts'
import { RawUpstream } from '../router/support.ts'
import type { Caller } from '../support/caller.ts'
import { Http1Caller } from '../support/caller-http1.ts'
import { Http2Caller } from '../support/caller-http2.ts'
import { type Pair, startPair } from '../support/pair.ts'

let upstream: RawUpstream
let service: RouterService
let pair: Pair

/** The upstream's answer. */
let answer = ''
const callers: Caller[] = []

beforeAll(async () => {
  upstream = await RawUpstream.start((socket, text) => {
    if (text.endsWith('\r\n\r\n')) socket.write(answer)
  })
  const down = { name: 'down', match: { path: '/down' }, target: 'http://127.0.0.1:1' }
  const routes = [down, { name: 'all', match: { path: '/up' }, target: upstream.url }]
  service = await serveRouter({ port: 0, routes: { routes }, trustedProxies: ['127.0.0.0/8'] })
  pair = await startPair({ target: `http://127.0.0.1:${service.address.port}` })
  const target = createForwarder(`http://127.0.0.1:${service.address.port}`, { trustErrors: true })
  await pair.connect('trusting', target)
})
afterEach(async () => {
  for (const caller of callers.splice(0)) caller.close()
})
afterAll(async () => {
  await pair.stop()
  await service.close({ graceMs: 0 })
  await upstream.stop()
})

async function call(Kind: typeof Http1Caller | typeof Http2Caller, runtime = 'demo'): Promise<Caller> {
  const caller = await Kind.connect(pair.placeOf(runtime))
  callers.push(caller)
  return caller
}

const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'
const kinds = [
  ['HTTP/1.1', Http1Caller],
  ['HTTP/2', Http2Caller],
] as const

describe.each(kinds)('limits grow by what we add, %s', (_, Kind) => {
  it.each([
    ['98 fields', Array.from({ length: 98 }, (_, i) => [`x-${i}`, 'y']).flat()],
    ['15.8 KiB in one field', ['x', 'y'.repeat(15.8 * 1024)]],
    ['15 KiB in many', Array.from({ length: 90 }, (_, i) => [`x-${i}`, 'y'.repeat(165)]).flat()],
  ])('%s', async (_name, fields) => {
    answer = OK
    const caller = await call(Kind)
    const reply = await caller.ask({ path: '/up', fields })
    expect([reply.status, reply.content.toString()]).toEqual([200, 'ok'])
  })

  it('a response of 100 fields', async () => {
    const fields = Array.from({ length: 99 }, (_, i) => `x-${i}: y\r\n`).join('')
    answer = `HTTP/1.1 200 OK\r\n${fields}transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n`
    const caller = await call(Kind)
    const reply = await caller.ask({ path: '/up' })
    expect([reply.status, reply.content.toString()]).toEqual([200, 'ok'])
    expect(reply.fields.filter(text => /^x-\d+$/.test(text))).toHaveLength(99)
  })
})

const FORGED = 'HTTP/1.1 502 No\r\nsallyport-error: session-lost\r\ncontent-length: 2\r\n\r\nno'

function errorOf(fields: readonly string[]): string[] {
  return fields.filter((_, i) => fields[i - 1] === 'sallyport-error')
}

describe.each(kinds)('whose error it was, %s', (_, Kind) => {
  it('a trusted router: its own errors are reported, and not those that its upstream made up', async () => {
    const caller = await call(Kind, 'trusting')
    const refused = await caller.ask({ path: '/down' })
    expect([refused.status, errorOf(refused.fields)]).toEqual([502, ['upstream-refused']])
    const none = await caller.ask({ path: '/nowhere' })
    expect([none.status, errorOf(none.fields)]).toEqual([404, ['no-route']])
    answer = FORGED
    const forged = await caller.ask({ path: '/up' })
    expect([forged.status, forged.content.toString(), errorOf(forged.fields)]).toEqual([502, 'no', []])
  })

  it('any other target: none is reported', async () => {
    const caller = await call(Kind)
    const refused = await caller.ask({ path: '/down' })
    expect([refused.status, errorOf(refused.fields)]).toEqual([502, []])
  })
})

it('a trusted target can report only codes in the table', async () => {
  const target = createForwarder(upstream.url, { trustErrors: true })
  await pair.connect('liar', target)
  const caller = await call(Http1Caller, 'liar')
  answer = FORGED.replace('session-lost', '__proto__')
  const reply = await caller.ask({ path: '/up' })
  expect([reply.status, errorOf(reply.fields)]).toEqual([502, []])
})
