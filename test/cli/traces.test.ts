/** `sallyport traces`: the waterfalls that a server keeps, with what its clients return. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { request } from 'undici'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { RecentTraces } from '../../cli/service/recent-traces.ts'
import { waterfall } from '../../cli/waterfall.ts'
import type { FinishedSpan } from '../../protocol/trace/span.ts'
import { until } from '../support/until.ts'
import { ADMIN, useMachine } from './machine.ts'
import type { Running } from './process.ts'
import { sallyport } from './run.ts'

const machine = useMachine()
const { file } = machine
const service = createServer((_, response) => void response.end('hello'))
beforeEach(async () => void (await once(service.listen(0, '127.0.0.1'), 'listening')))
afterEach(() => void service.close().closeAllConnections())

const traces = async (server: Running, ...more: string[]) =>
  await sallyport(['traces', '--admin', `http://${await server.address('admin')}`, ...more], {
    environment: machine.environment,
  })

test('one waterfall of both sides, without a receiver', async () => {
  const server = machine.start(machine.serverArgs('--tracing', 'recent', '--tracing.ratio', '1', '--public.plaintext'))
  await machine.writeToken('token', { runtime: 'demo' })
  const target = `http://127.0.0.1:${(service.address() as AddressInfo).port}`
  const client = machine.start([
    ...['client', '--server', `wss://${await server.address('control')}`, '--ca', file('ca.pem'), ...ADMIN],
    ...['--token.file', file('token'), '--target', target, '--tracing', 'server'],
  ])
  await client.line(({ msg }) => msg === 'connected')
  expect((await traces(server)).out).toBe('no request has been traced yet (--tracing.ratio)\n')
  const headers = { host: 'demo.tunnels.localhost' }
  const { statusCode, body } = await request(`http://${await server.address('public')}/x?secret=1`, { headers })
  expect([statusCode, await body.text()]).toEqual([200, 'hello'])
  await until(async () => (await traces(server)).out.includes('client 200 http'), 'the client has returned its spans')
  const { out } = await traces(server, '--last', '1')
  const lines = out.split('\n').map(line => line.replace(/\|.*\|\s+[\d.]+ ms/, '|'))
  expect(lines.map(line => line.replace(/\s+\|/, ' |'))).toEqual([
    expect.stringMatching(/^trace [0-9a-f]{32}$/),
    '  GET |  server 200 /x',
    '    tunnel |  server 200',
    '      GET / |  client 200 route "target"',
    `        GET |  client 200 ${target}/x`,
    '',
  ])
  expect(out).not.toContain('secret')
  const [trace] = JSON.parse((await traces(server, '--json')).out)
  expect(trace.spans).toHaveLength(4)
})

test('a server that keeps none says so', async () => {
  const server = machine.start(machine.serverArgs())
  const says = 'sallyport: that server keeps no traces: it is not running with --tracing recent\n'
  // Its token is found a moment after it listens.
  await until(async () => (await traces(server)).notes === says, 'it says so')
  expect((await traces(server)).code).toBe(1)
  expect(await traces(server, '--last', '0')).toMatchObject({ code: 2 })
})

const span = (traceId: string, spanId: string, parentId?: string, more: Partial<FinishedSpan> = {}): FinishedSpan => ({
  ...{ traceId, spanId, parentId, state: undefined, name: spanId, kind: 'server', startMs: 0, endMs: 1 },
  ...{ attributes: {}, links: [], failed: false, ...more },
})

interface Kept {
  readonly id: string
  readonly spans: readonly { readonly name: string; readonly attributes: object }[]
}

describe('bounds', () => {
  test('the last 100 traces, 32 spans of each, and only what is shown of a span', () => {
    const recent = new RecentTraces()
    for (let trace = 0; trace < 150; trace++) {
      for (let one = 0; one < 40; one++) recent.add(span(`t${trace}`, `s${one}`))
    }
    const attributes = { 'url.path': 'x'.repeat(1000), 'user_agent.original': 'somebody' }
    recent.add(span('last', 's', undefined, { name: 'n'.repeat(1000), attributes }))
    const kept = recent.list() as Kept[]
    expect(kept).toHaveLength(100)
    expect([kept[0]!.id, kept[0]!.spans.length]).toEqual(['t51', 32])
    const [one] = kept.at(-1)!.spans
    expect(one!.name).toHaveLength(256)
    expect(one!.attributes).toEqual({ 'url.path': 'x'.repeat(256) })
  })

  test('spans in a cycle, with one id, or with invalid times become a few lines of plain text', () => {
    const many = Array.from({ length: 30 }, () => ({ id: 'a', parent: 'a', name: 'x', startMs: 'no', endMs: 1e99 }))
    const text = waterfall({ id: '\u001b[31m', spans: [{ id: 'a', name: 'first\nsecond', startMs: 0 }, ...many] })
    expect(text.split('\n').length).toBeLessThanOrEqual(34)
    expect([text.includes('\u001b'), text.includes('NaN')]).toEqual([false, false])
    expect(waterfall({ id: 'none', spans: [] })).toBe('trace none\n')
  })
})
