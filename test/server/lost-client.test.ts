/** A client with many connections is lost: they end one after the other, and no exchange may be tried on each of them in turn. */
import { setTimeout } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { type Pair, startPair } from '../support/pair.ts'
import { Relay } from '../support/relay.ts'
import { until } from '../support/until.ts'

const GETS = 240
/** Nobody can say how long the server of a busy machine takes from one end to the next. */
const GAP_MS = 110

let pair: Pair
let relay: Relay
let url: string

beforeAll(async () => {
  pair = await startPair({ target: () => new Response('standby'), server: { limits: { pingTimeoutMs: 2000 } } })
  relay = await Relay.start({ port: pair.server.controlAddress!.port })
  url = `wss://127.0.0.1:${relay.port}`
})
afterEach(() => {
  relay.silent = false
  relay.target = pair.server.controlAddress!.port
})
afterAll(async () => {
  await pair.stop()
  await relay.stop()
})

const LOSSES: Readonly<Record<string, () => unknown>> = {
  'are cut together': () => {
    relay.target = 0
    relay.cut()
  },
  'are cut one after the other': async () => {
    relay.target = 0
    for (const connection of [...relay.connections]) {
      const { sessions } = pair.server.stats()
      connection.cut()
      await until(() => pair.server.stats().sessions < sessions)
      await setTimeout(GAP_MS)
    }
  },
  'fall silent': () => {
    relay.silent = true
  },
}

test.each(Object.keys(LOSSES).flatMap(loss => [4, 16].map(connections => [connections, loss] as const)))(
  'GET requests on %d connections that %s go to another instance',
  async (connections, loss) => {
    const active = await pair.connect('demo', () => new Promise(() => {}), { url, connections })
    await until(() => active.stats().active && active.stats().sessions.length === connections)
    const asked = Array.from({ length: GETS }, async () => {
      const response = await pair.server.fetch('demo', `https://${pair.place.authority}/`)
      return `${response.status} ${response.ok ? await response.text() : response.headers.get('sallyport-error')}`
    })
    await until(() => active.stats().exchanges.live === GETS)
    await LOSSES[loss]!()
    expect(new Set(await Promise.all(asked))).toEqual(new Set(['200 standby']))
    await active.close({ graceMs: 0 })
  },
)

test('a client whose server falls silent says so, not that the network cut the connection', async () => {
  const tunnel = await pair.connect('demo', () => new Response(), { url, limits: { pingTimeoutMs: 1000 } })
  const lost = new Promise(resolve => tunnel.on('disconnected', resolve))
  relay.silent = true
  expect(await lost).toMatchObject({ reason: 'the peer does not answer pings' })
  relay.silent = false
  await tunnel.close({ graceMs: 0 })
})
