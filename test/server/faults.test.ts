/** Our own code fails, in one session or one exchange: nobody else notices, least of all the process. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { noLogger } from '../../protocol/log.ts'
import type { Server } from '../../server/server.ts'
import { call, DOMAIN, dial, event, makeWorld, startServer, type TestClient, token } from './fixture.ts'

const CANARY = `canary.${DOMAIN}`

let server: Server
let canary: TestClient
const uncaught: unknown[] = []
const note = (error: unknown) => void uncaught.push(error)

/** A logger is called from everywhere: one that throws where a session of `evil` is spoken of is a defect anywhere. */
const failing = (fields: object) => {
  if ('runtime' in fields && fields.runtime === 'evil') throw new Error('a defect')
}
const logger = { ...noLogger, info: failing, warn: failing, error: failing }

beforeEach(() => {
  uncaught.length = 0
  process.on('uncaughtException', note).on('unhandledRejection', note)
})
afterEach(async () => {
  vi.useRealTimers()
  // The canary's session lived through it all, and nothing went past us to the process.
  expect([canary.session.closed, (await call(server, CANARY)).status]).toEqual([false, 200])
  await new Promise(resolve => setImmediate(resolve))
  expect(uncaught).toEqual([])
  process.off('uncaughtException', note).off('unhandledRejection', note)
  await server.close({ graceMs: 0 })
})

async function start(options: Parameters<typeof startServer>[0] = {}): Promise<void> {
  server = await startServer({ logger, ...options })
  canary = await dial(server, { runtime: 'canary' })
}

const evil = (options: Parameters<typeof dial>[1] = {}) => dial(server, { runtime: 'evil', ...options })

describe('a defect in', () => {
  test('hello ends the session', async () => {
    await start()
    const client = await evil({ silent: true })
    const hello = { type: 'hello', minor: 0, software: 'x', instance: 'i', startedMs: 0, lastEpoch: 0, connection: 0 }
    client.session.control(hello)
    expect((await client.closed).code).toBeGreaterThan(1001)
  })

  test('a control message', async () => {
    await start({ logger: { ...noLogger, info: fields => 'notice' in fields && failing(fields) } })
    const client = await evil()
    client.session.control({ type: 'notice', message: 'x' })
    expect((await client.closed).code).toBeGreaterThan(1001)
  })

  test('the answer to a refused token', async () => {
    await start({ logger: { ...noLogger, warn: failing } })
    const client = await evil()
    client.session.control({ type: 'reauth', token: 'nonsense' })
    expect((await client.closed).code).toBeGreaterThan(1001)
  })

  test('the end of a token', async () => {
    await start({
      logger: { ...noLogger, warn: failing },
      auth: { jwks: (await makeWorld()).keys.jwks, clockToleranceS: 0 },
    })
    const client = await evil({ token: await token('evil', { ttl: 3000 }) })
    expect((await client.closed).code).toBeGreaterThan(1001)
  })

  test('the end of a session, in which all its exchanges are told', async () => {
    await start({ logger: { ...noLogger, info: (fields, message) => message === 'session ended' && failing(fields) } })
    const client = await evil()
    client.ws.terminate()
    await client.closed
    while (server.sessions().some(session => session.runtime === 'evil')) {
      await new Promise(resolve => setImmediate(resolve))
    }
  })
})

describe("an embedder's", () => {
  test('listener that throws', async () => {
    await start({ logger: noLogger })
    for (const name of ['session', 'ready', 'sessionEnded', 'refused'] as const) {
      server.on(name, () => {
        throw new Error('mine')
      })
    }
    const client = await evil()
    const ended = event(server, 'sessionEnded')
    client.ws.terminate()
    await ended
  })

  test.each(['onRequestStart', 'onResponseStart', 'onResponseData', 'onResponseEnd', 'onResponseError'])(
    'handler that throws in %s ends its own request',
    async method => {
      await start({ logger: noLogger })
      const over = Promise.withResolvers<void>()
      const fail = () => {
        if (method === 'onResponseEnd' || method === 'onResponseError') over.resolve()
        throw new Error('mine')
      }
      // `onResponseError` is called for an upgrade, which the dispatcher does not carry.
      const upgrade = method === 'onResponseError' ? { upgrade: 'websocket' } : {}
      const options = { origin: 'http://canary', path: '/', method: 'GET' as const, ...upgrade }
      server.dispatcher('canary').dispatch(options, { onResponseError: () => over.resolve(), [method]: fail })
      await over.promise
    },
  )
})
