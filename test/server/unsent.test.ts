/** A path that swallows everything fills up, and what the server then cannot send was not forwarded: another instance gets it. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Pair, startPair } from '../support/pair.ts'
import { Relay } from '../support/relay.ts'

const POSTS = 240
const BODY = Buffer.alloc(6000)

let pair: Pair
let relay: Relay

beforeAll(async () => {
  pair = await startPair({
    target: async request => new Response(`standby ${(await request.arrayBuffer()).byteLength}`),
    server: { limits: { pingTimeoutMs: 4000 } },
  })
  relay = await Relay.start({ port: pair.server.controlAddress!.port, roundTripMs: 10 })
})
afterAll(async () => {
  await pair.stop()
  await relay.stop()
})

test('POST requests that wait for a session that is lost go to another instance', async () => {
  const url = `wss://127.0.0.1:${relay.port}`
  const active = await pair.connect('demo', () => new Response('active'), { url })
  await expect.poll(() => active.stats().active).toBe(true)
  relay.silent = true
  const answers = await Promise.all(
    Array.from({ length: POSTS }, async () => {
      const request = new Request(`https://${pair.place.authority}/`, { method: 'POST', body: BODY })
      const response = await pair.server.fetch('demo', request)
      return `${response.status} ${response.ok ? await response.text() : response.headers.get('sallyport-error')}`
    }),
  )
  // Those that were sent may have begun at the instance that is gone.
  expect(new Set(answers)).toEqual(new Set([`200 standby ${BODY.length}`, '502 session-lost']))
})
