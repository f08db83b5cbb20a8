/**
 * A client's answer to a server that asks about its targets: no address, nothing that the server named, and not often.
 */
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { createServer } from 'node:net'
import { afterEach, expect, test } from 'vitest'
import { connect, type Target, type Tunnel } from '../../client/index.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { createRouter } from '../../router/index.ts'
import { FakeServer, type FakeSession } from './fake-server.ts'

const stops: (() => unknown)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop()
})

/** A service that counts its connections. */
async function service() {
  const dialled = { count: 0 }
  const server = createServer(socket => {
    dialled.count++
    socket.on('error', () => {}).resume()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  stops.push(() => server.close())
  return { dialled, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
}

/** The client's log. */
let log: string[] = []
const logger = { ...noLogger, info: (_fields: object, message: string) => void log.push(message) }

async function session(target: Target, features = ['checks']): Promise<FakeSession> {
  log = []
  const server = await FakeServer.listen()
  stops.push(() => server.close())
  const token = 'a.b.c'
  const tunnel: Promise<Tunnel> = connect({ url: server.url, token, target, proxy: '', connections: 1, logger })
  const peer = await server.serve(1, 'fake', features)
  await tunnel
  stops.push(async () => (await tunnel).close({ graceMs: 0 }))
  return peer
}

const ASKED = 'the server asks which targets accept connections'
const DEAD = 'http://127.0.0.1:9'

test('each route is reported, with the reason if it failed, and without an address', async () => {
  const { url, dialled } = await service()
  const router = createRouter({
    routes: {
      routes: [
        { name: 'api', match: { path: '/api' }, target: url },
        { name: 'same', match: { path: '/same' }, target: url },
        { name: 'dead', match: { path: '/dead' }, target: DEAD },
        { name: 'by-name', match: { path: '/ns/{name}' }, target: 'http://{name}.example:80' },
        { name: 'fixed', match: { path: '/ok' }, answer: { status: 200 } },
      ],
    },
  })
  const peer = await session(router)
  peer.send({ type: 'check', id: 4_000_000_000 })
  const answer = await peer.receive('checked')
  expect(answer).toEqual({
    ...{ type: 'checked', id: 4_000_000_000, more: 0 },
    targets: [
      { route: 'api', ms: expect.any(Number) },
      { route: 'dead', ms: expect.any(Number), code: 'upstream-refused' },
    ],
  })
  expect(dialled.count).toBe(1)
  expect(log).toContain(ASKED)
})

test('a URL is checked, too: a server that asks often, and names an address, gets the same answer and causes no more connections', async () => {
  const { url, dialled } = await service()
  const elsewhere = await service()
  const peer = await session(url)
  for (let id = 0; id < 10; id++)
    peer.send({ type: 'check', id, targets: [elsewhere.url], url: elsewhere.url } as never)
  const answers = []
  for (let id = 0; id < 10; id++) answers.push(await peer.receive('checked'))
  expect(answers.map(({ id }) => id)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
  expect(new Set(answers.map(({ targets }) => JSON.stringify(targets))).size).toBe(1)
  expect(answers[0]!.targets).toEqual([{ route: 'target', ms: expect.any(Number) }])
  expect([dialled.count, elsewhere.dialled.count]).toEqual([1, 0])
})

test('a function dials nothing', async () => {
  const peer = await session(() => new Response('hello'))
  peer.send({ type: 'check', id: 1 })
  expect(await peer.receive('checked')).toEqual({ type: 'checked', id: 1, targets: [], more: 0 })
})

test('a server that did not name the feature gets no answer', async () => {
  const { url, dialled } = await service()
  const peer = await session(url, [])
  peer.send({ type: 'check', id: 1 })
  // It has read that before it answers this.
  await new Promise(resolve => peer.yamux.ping(resolve))
  expect(log).toContain('connected')
  expect(log).not.toContain(ASKED)
  expect([peer.has('checked'), dialled.count]).toEqual([false, 0])
})

test("an embedder's answer about its target is cut to what a server accepts", async () => {
  const { url } = await service()
  const { handler } = createRouter({ routes: { routes: [{ name: 'a', match: {}, target: url }] } })
  const one = { route: 'a name\nthat is none', target: url, ms: Number.MAX_VALUE, error: undefined }
  const peer = await session({ handler, check: async () => ({ targets: Array(30).fill(one), more: 5 }) })
  peer.send({ type: 'check', id: 1 })
  const { targets, more } = await peer.receive('checked')
  expect([targets.length, more]).toEqual([20, 15])
  expect(targets[0]).toEqual({ route: 'unnamed', ms: 86_400_000 })
})

test.each<[string, object, object]>([
  ['a time that is not a number', { ms: Number.NaN }, { ms: 0 }],
  ['no time', { ms: undefined }, { ms: 0 }],
  ['an error of another class', { error: new Error('no route to host') }, { code: 'internal' }],
  ['a reason that is not a code', { error: { reason: 'no route to host' } }, { code: 'internal' }],
  ['a route without a name', { route: undefined }, { route: 'unnamed' }],
  ['no count of the others', {}, {}],
])("%s is sent in the protocol's form", async (_what, said, expected) => {
  const { handler } = createRouter({ routes: { routes: [] } })
  const check = async () => ({ targets: [{ route: 'api', target: DEAD, ms: 3, ...said }] }) as never
  const peer = await session({ handler, check })
  peer.send({ type: 'check', id: 1 })
  const answer = { type: 'checked', id: 1, targets: [{ route: 'api', ms: 3, ...expected }], more: 0 }
  expect(await peer.receive('checked')).toEqual(answer)
})
