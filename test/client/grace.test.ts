import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { WebSocketServer } from 'ws'
import { Http1Caller } from '../support/caller-http1.ts'
import { type Pair, startPair } from '../support/pair.ts'
import { Relay } from '../support/relay.ts'

/** What the client reports while it ends. */
const lines: { fields: Record<string, unknown>; message: string }[] = []
const keep = (fields: object, message: string) => void lines.push({ fields: { ...fields }, message })
const logger = { debug() {}, info: keep, warn: keep, error: keep }

const sockets = new WebSocketServer({ noServer: true })
/** Answers at once, after a moment, or never completely. */
const service = createServer((request, response) => {
  if (request.url === '/events') response.write('data: first\n\n')
  else setTimeout(() => response.end('slow but whole'), 300)
})
service.on('upgrade', (request, socket, head) => sockets.handleUpgrade(request, socket, head, () => {}))

let pair: Pair

beforeAll(async () => {
  service.listen(0, '127.0.0.1')
  await once(service, 'listening')
  const target = `http://127.0.0.1:${(service.address() as AddressInfo).port}`
  pair = await startPair({ target, client: { logger } })
})
afterAll(async () => {
  await pair.stop()
  service.close()
  service.closeAllConnections()
})

test('a client that ends finishes what it can; what outlasts its grace is ended properly and counted', async () => {
  const { server, tunnel, place } = pair
  const events = await server.fetch('demo', `https://${place.authority}/events`)
  const reader = events.body!.getReader()
  await reader.read()
  const caller = await Http1Caller.connect(place)
  const socket = await caller.webSocket('/')
  const closed = once(socket, 'close')
  const slow = server.fetch('demo', `https://${place.authority}/slow`)
  await expect.poll(() => tunnel.stats().exchanges.live).toBe(3)

  const closing = tunnel.close({ graceMs: 2000 })
  expect(tunnel.ready()).toBe(false)
  expect(await (await slow).text()).toBe('slow but whole')
  const [code, reason] = await closed
  expect([code, String(reason)]).toEqual([1001, 'this connection is being moved: connect again'])
  await expect(reader.read()).rejects.toThrow()
  await closing
  caller.close()

  expect(lines.find(({ message }) => message.startsWith('draining'))!.fields).toMatchObject({
    exchanges: 2,
    webSockets: 1,
    graceMs: 2000,
  })
  const over = lines.filter(({ message }) => message.startsWith('the grace is over'))
  expect(over.map(({ fields }) => fields)).toEqual([{ exchanges: 1, webSockets: 1 }])
})

test('a client that ends stays until the server has its last response, over a slow path', {
  timeout: 30_000,
}, async () => {
  const relay = await Relay.start({ port: pair.server.controlAddress!.port, bytesPerSecond: 40_000 })
  const body = Buffer.alloc(280_000, 'x')
  const slow = await pair.connect('slow', () => new Response(body), {
    url: `wss://127.0.0.1:${relay.port}`,
    connections: 1,
  })
  const response = await pair.server.fetch('slow', `https://${pair.placeOf('slow').authority}/`)
  const closing = slow.close({ graceMs: 20_000 })
  expect((await response.arrayBuffer()).byteLength).toBe(body.length)
  await closing
  await relay.stop()
})
