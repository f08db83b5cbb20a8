/** A client with many connections falls silent: they end one after the other, and no exchange may be tried on each of them in turn. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Pair, startPair } from '../support/pair.ts'
import { Relay } from '../support/relay.ts'
import { until } from '../support/until.ts'

const GETS = 240

let pair: Pair
let relay: Relay

beforeAll(async () => {
  pair = await startPair({ target: () => new Response('standby'), server: { limits: { pingTimeoutMs: 2000 } } })
  relay = await Relay.start({ port: pair.server.controlAddress!.port })
})
afterAll(async () => {
  await pair.stop()
  await relay.stop()
})

test.each([4, 16])('GET requests on %d connections that fall silent go to another instance', async connections => {
  const url = `wss://127.0.0.1:${relay.port}`
  const active = await pair.connect('demo', () => new Promise(() => {}), { url, connections })
  await until(() => active.stats().active && active.stats().sessions.length === connections)
  const asked = Array.from({ length: GETS }, async () => {
    const response = await pair.server.fetch('demo', `https://${pair.place.authority}/`)
    return `${response.status} ${response.ok ? await response.text() : response.headers.get('sallyport-error')}`
  })
  await until(() => active.stats().exchanges.live === GETS)
  relay.silent = true
  expect(new Set(await Promise.all(asked))).toEqual(new Set(['200 standby']))
  relay.silent = false
  await active.close({ graceMs: 0 })
})

test('a client whose server falls silent says so, not that the network cut the connection', async () => {
  const url = `wss://127.0.0.1:${relay.port}`
  const tunnel = await pair.connect('demo', () => new Response(), { url, limits: { pingTimeoutMs: 1000 } })
  const lost = new Promise(resolve => tunnel.on('disconnected', resolve))
  relay.silent = true
  expect(await lost).toMatchObject({ reason: 'the peer does not answer pings' })
  relay.silent = false
  await tunnel.close({ graceMs: 0 })
})
