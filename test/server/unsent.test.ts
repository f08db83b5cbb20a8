/** A path that swallows everything fills up, and what the server then cannot send was not forwarded: another instance gets it. */
import { setImmediate } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { SessionInfo } from '../../server/index.ts'
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

const ENDS: Record<string, (session: SessionInfo) => void> = {
  'is lost': () => {},
  'ends by itself': ({ id }) => pair.server.closeSession(id),
}

test.each(Object.keys(ENDS))('POST requests that wait for a session that %s go to another instance', async end => {
  const url = `wss://127.0.0.1:${relay.port}`
  const active = await pair.connect('demo', () => new Response('active'), { url })
  await expect.poll(() => active.stats().active).toBe(true)
  relay.silent = true
  const asked = Array.from({ length: POSTS }, async () => {
    const request = new Request(`https://${pair.place.authority}/`, { method: 'POST', body: BODY })
    const response = await pair.server.fetch('demo', request)
    return `${response.status} ${response.ok ? await response.text() : response.headers.get('sallyport-error')}`
  })
  await setImmediate()
  for (const session of pair.server.sessions()) if (session.active) ENDS[end]!(session)
  // Those that were sent may have begun at the instance that is gone.
  expect(new Set(await Promise.all(asked))).toEqual(new Set([`200 standby ${BODY.length}`, '502 session-lost']))
  relay.silent = false
  await active.close({ graceMs: 0 })
})
