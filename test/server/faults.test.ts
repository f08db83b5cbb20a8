/** Our own code fails in one session or exchange: nobody else notices, least of all the process. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { YamuxSession } from '../../protocol/wire/yamux/yamux-session.ts'
import { Credentials } from '../../server/control/credentials.ts'
import { SessionDrain } from '../../server/control/session-drain.ts'
import { Policies } from '../../server/edge/policies.ts'
import { Registry } from '../../server/registry.ts'
import type { Server } from '../../server/server.ts'
import { call, DOMAIN, dial, leave, makeWorld, startServer, type TestClient, token } from './fixture.ts'

const CANARY = `canary.${DOMAIN}`

let server: Server
let canary: TestClient
const uncaught: unknown[] = []
const note = (error: unknown) => void uncaught.push(error)

/** Any method of ours may have a defect: this one throws when `evil` is mentioned. */
function defectIn<Name extends string>(
  type: { readonly prototype: { [Key in Name]: (...args: never[]) => unknown } },
  name: Name,
  strikes: (...args: never[]) => boolean = () => true,
): void {
  const { prototype } = type
  const real = prototype[name]
  prototype[name] = function (this: unknown, ...args: never[]) {
    if (strikes(...args)) throw new Error('a defect')
    return real.apply(this, args)
  }
  undo.push(() => {
    prototype[name] = real
  })
}
const undo: (() => void)[] = []
const ofEvil = (member: { runtime: string }) => member.runtime === 'evil'

beforeEach(() => {
  uncaught.length = 0
  process.on('uncaughtException', note).on('unhandledRejection', note)
})
afterEach(async () => {
  for (const step of undo.splice(0)) step()
  // The canary's session survived it all, and nothing bypassed us to the process.
  expect([canary.session.closed, (await call(server, CANARY)).status]).toEqual([false, 200])
  await new Promise(resolve => setImmediate(resolve))
  expect(uncaught).toEqual([])
  process.off('uncaughtException', note).off('unhandledRejection', note)
  await server.close({ graceMs: 0 })
})

async function startWithCanary(options: Parameters<typeof startServer>[0] = {}): Promise<void> {
  server = await startServer(options)
  canary = await dial(server, { runtime: 'canary' })
}

const evil = (options: Parameters<typeof dial>[1] = {}) => dial(server, { runtime: 'evil', ...options })

describe('a defect in', () => {
  test('hello ends the session', async () => {
    await startWithCanary()
    defectIn(Registry, 'add', ofEvil as never)
    const client = await evil({ silent: true })
    const hello = { type: 'hello', minor: 0, software: 'x', instance: 'i', startedMs: 0, lastEpoch: 0, connection: 0 }
    client.session.control(hello)
    expect((await client.closed).code).toBeGreaterThan(1001)
  })

  test('a control message', async () => {
    await startWithCanary()
    const client = await evil()
    defectIn(Credentials, 'renew')
    client.session.control({ type: 'reauth', token: 'nonsense' })
    expect((await client.closed).code).toBeGreaterThan(1001)
  })

  test('the answer to a refused token', async () => {
    await startWithCanary()
    const client = await evil()
    defectIn(YamuxSession, 'control', ((message: { type: string }) => message.type === 'reauth-refused') as never)
    client.session.control({ type: 'reauth', token: 'nonsense' })
    expect((await client.closed).code).toBeGreaterThan(1001)
  })

  test('the end of a token', async () => {
    await startWithCanary({ auth: { jwks: (await makeWorld()).keys.jwks, clockToleranceS: 0 } })
    const client = await evil({ token: await token('evil', { ttl: 3000 }) })
    defectIn(SessionDrain, 'begin')
    expect((await client.closed).code).toBeGreaterThan(1001)
  })

  test('the end of a session, where all its exchanges are told', async () => {
    await startWithCanary()
    const client = await evil()
    defectIn(Policies, 'touch', ((runtime: string) => runtime === 'evil') as never)
    client.ws.terminate()
    await client.closed
    while (server.sessions().some(session => session.runtime === 'evil')) {
      await new Promise(resolve => setImmediate(resolve))
    }
  })
})

test('a defect before an exchange has a session: it is answered, and its quotas are released', async () => {
  await startWithCanary({ limits: { exchangesPerRuntime: 1 } })
  await evil()
  defectIn(Registry, 'pick', ((runtime: string) => runtime === 'evil') as never)
  for (let i = 0; i < 3; i++) expect((await call(server, `evil.${DOMAIN}`)).status).toBe(500)
  expect(server.stats().quotaExchanges).toBe(0)
})

describe("an embedder's", () => {
  test('listener that throws', async () => {
    await startWithCanary()
    for (const name of ['session', 'ready', 'sessionEnded', 'refused'] as const) {
      server.on(name, () => {
        throw new Error('mine')
      })
    }
    await leave(server, await evil())
  })

  test.each(['onRequestStart', 'onResponseStart', 'onResponseData', 'onResponseEnd', 'onResponseError'])(
    'handler that throws in %s ends its own request',
    async method => {
      await startWithCanary()
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
