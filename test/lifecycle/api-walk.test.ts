// @module-tag slow
/** Every method of the library's handles in every state, called in that state and just before it: it settles. */
import { once } from 'node:events'
import { createServer as createHttpServer, type Server as HttpServer } from 'node:http'
import { afterEach, beforeAll, describe, expect, test } from 'vitest'
import { connect, createTunnel, type Tunnel } from '../../client/index.ts'
import { createRouter, type Router, type RouterService, serveRouter } from '../../router/index.ts'
import { createServer, type Server } from '../../server/index.ts'
import { DOMAIN, makeSecrets, type Secrets } from '../support/secrets.ts'
import { until } from '../support/until.ts'

/** The result of a call: `ok`, or the error that it threw or rejected with. */
async function outcome(call: () => unknown): Promise<string> {
  try {
    const value = await call()
    return value instanceof Response ? `${value.status} ${value.headers.get('sallyport-error')}` : 'ok'
  } catch (error) {
    return `${(error as Error).name}: ${(error as Error).message}`
  }
}

let secrets: Secrets
const closers: (() => unknown)[] = []
beforeAll(async () => {
  secrets = await makeSecrets()
})
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

async function startServer(): Promise<Server> {
  const server = await createServer({
    public: { port: 0 },
    control: { port: 0, plaintext: true },
    domains: [DOMAIN],
    auth: { jwks: secrets.jwks },
    hold: { startupMs: 0, forgetMs: 0 },
  })
  closers.push(() => server.close({ graceMs: 0 }))
  return server
}

function tunnelOptions(server: Server): Parameters<typeof connect>[0] {
  const url = `ws://127.0.0.1:${server.controlAddress!.port}`
  return { url, token: () => secrets.token('demo'), proxy: '', target: () => new Response('hello'), inspect: 'heads' }
}

async function startTunnel(server: Server): Promise<Tunnel> {
  const tunnel = await connect(tunnelOptions(server))
  closers.push(() => tunnel.close({ graceMs: 0 }))
  return tunnel
}

type Calls<Handle> = Readonly<Record<string, (handle: Handle) => unknown>>
/** Brings a handle from its beginning into the state. */
type States<Handle> = Readonly<Record<string, (handle: Handle) => unknown>>

/** Rows of `[method, state]`. */
function rowsOf(calls: object, states: object): [string, string][] {
  return Object.keys(calls).flatMap(call => Object.keys(states).map((state): [string, string] => [call, state]))
}

const BAD_GRACE = 'TypeError: graceMs must be from 0 to 86400000 ms, not -1'

describe('a server', () => {
  const mounted = (server: Server, httpServer: HttpServer = createHttpServer()) => {
    const unmount = server.attach(httpServer)
    unmount()
    unmount()
  }
  const calls: Calls<Server> = {
    fetch: server => server.fetch('demo', '/'),
    'fetch of another runtime': server => server.fetch('nobody', '/'),
    'fetch of a body that was read': async server => {
      const request = new Request(`http://demo.${DOMAIN}/`, { method: 'POST', body: 'x' })
      await request.text()
      return server.fetch('demo', request)
    },
    dispatcher: server => server.dispatcher('demo').close(),
    attach: server => mounted(server),
    sessions: server => server.sessions(),
    stats: server => server.stats(),
    revoke: server => server.revoke({ runtime: 'other' }),
    'revoke nothing': server => server.revoke({}),
    revocations: server => server.revocations(),
    removeRevocation: server => server.removeRevocation('none'),
    askOthers: server => server.askOthers('/sessions'),
    drainSession: server => server.drainSession(server.sessions()[0]?.id ?? 'none'),
    drainRuntime: server => server.drainRuntime('demo'),
    closeSession: server => server.closeSession(server.sessions()[0]?.id ?? 'none'),
    checkTargets: server => server.checkTargets('demo'),
    reload: server => server.reload(),
    'drain too briefly': server => server.drain({ graceMs: -1 }),
    drain: server => server.drain({ graceMs: 0 }),
    'close too briefly': server => server.close({ graceMs: -1 }),
    close: server => server.close({ graceMs: 0 }),
    'await using': server => server[Symbol.asyncDispose](),
  }
  const states: States<Server> = {
    open: () => {},
    draining: server => void server.drain(),
    drained: server => server.drain({ graceMs: 0 }),
    closing: server => void server.close(),
    closed: server => server.close({ graceMs: 0 }),
  }
  const told: Record<string, string> = {
    'revoke nothing': 'TypeError: a revocation must name a token, a runtime or a time of issue',
    'drain too briefly': BAD_GRACE,
    'close too briefly': BAD_GRACE,
    'fetch of another runtime': '503 runtime-offline',
  }
  /** What depends on which side is quicker. */
  const fetched = /^(200 null|50[23] (runtime-offline|session-lost)|TypeError: .*(locked|disturbed|unusable).*)$/

  test.each(rowsOf(calls, states))('%s, %s', async (name, state) => {
    for (const begin of [
      async (server: Server) => {
        await states[state]!(server)
        return outcome(() => calls[name]!(server))
      },
      async (server: Server) => {
        const called = outcome(() => calls[name]!(server))
        await states[state]!(server)
        return called
      },
    ]) {
      const server = await startServer()
      await startTunnel(server)
      const said = await begin(server)
      if (name === 'fetch' || name === 'fetch of a body that was read') expect(said).toMatch(fetched)
      else expect(said).toBe(told[name] ?? 'ok')
      await server.close({ graceMs: 0 })
      expect(server.ready()).toBe(false)
      await until(() => server.stats().exchanges === 0)
      expect(server.stats()).toMatchObject({ sessions: 0, streams: 0, held: 0, callers: 0, quotaExchanges: 0 })
    }
  })

  const misused: Calls<Server> = {
    'closeSession for no text': server => server.closeSession(server.sessions()[0]!.id, 7 as never),
    'closeSession for a list': server => server.closeSession(server.sessions()[0]!.id, [] as never),
    'drainSession for no text': server => server.drainSession(server.sessions()[0]!.id, { reason: 7 as never }),
    'drainRuntime for no text': server => server.drainRuntime('demo', { reason: null as never }),
    'drainSession too briefly': server => server.drainSession(server.sessions()[0]!.id, { graceMs: -1 }),
  }
  test.each(Object.entries(misused))('%s: it throws, and the session goes on', async (_name, call) => {
    const server = await startServer()
    const tunnel = createTunnel({ ...tunnelOptions(server), connections: 1 })
    closers.push(() => tunnel.close({ graceMs: 0 }))
    await until(() => server.sessions().some(({ active }) => active))
    expect(() => call(server)).toThrow(
      /^(reason must be text(?:, not .*)?|graceMs must be from 0 to 86400000 ms, not -1)$/,
    )
    expect((await server.fetch('demo', '/')).status).toBe(200)
    expect(server.stats().sessionsOpened).toBe(1)
  })

  test.each(Object.entries(states))('%s: what is mounted on it afterwards is taken back', async (_name, bring) => {
    const server = await startServer()
    const httpServer = createHttpServer((_request, response) => response.end('theirs')).listen(0, '127.0.0.1')
    await once(httpServer, 'listening')
    closers.push(() => httpServer.close())
    await bring(server)
    mounted(server, httpServer)
    expect(httpServer.listenerCount('upgrade')).toBe(0)
    expect(httpServer.listenerCount('request')).toBe(1)
  })
})

describe('a tunnel', () => {
  const calls: Calls<Tunnel> = {
    ready: tunnel => tunnel.ready(),
    url: tunnel => tunnel.url,
    stats: tunnel => tunnel.stats(),
    setToken: async tunnel => tunnel.setToken(await secrets.token('demo')),
    'setToken to none': tunnel => tunnel.setToken(' '),
    refreshToken: tunnel => tunnel.refreshToken(),
    setTrust: tunnel => tunnel.setTrust({ tls: secrets.server }),
    'setTrust to none': tunnel => tunnel.setTrust({ ca: 'none' }),
    republish: tunnel => tunnel.republish(),
    'a replay of nothing': tunnel => tunnel.inspector!.replay('none'),
    'close too briefly': tunnel => tunnel.close({ graceMs: -1 }),
    close: tunnel => tunnel.close({ graceMs: 0 }),
    'await using': tunnel => tunnel[Symbol.asyncDispose](),
  }
  const states: States<Tunnel> = {
    waiting: () => {},
    connected: tunnel => tunnel.connected(),
    closing: tunnel => void tunnel.close(),
    closed: tunnel => tunnel.close({ graceMs: 0 }),
  }
  const told: Record<string, string> = {
    'setToken to none': 'TypeError: no token was given',
    'setTrust to none': 'TypeError: ca has no readable certificate (PEM)',
    'a replay of nothing': 'TypeError: there is no exchange "none"',
    'close too briefly': BAD_GRACE,
  }

  test.each(rowsOf(calls, states))('%s, %s', async (name, state) => {
    const server = await startServer()
    for (const before of [false, true]) {
      const tunnel = createTunnel(tunnelOptions(server))
      tunnel.connected().catch(() => {})
      const bring = () => outcome(() => states[state]!(tunnel))
      if (!before) await bring()
      const called = outcome(() => calls[name]!(tunnel))
      if (before) await bring()
      expect(await called).toBe(told[name] ?? 'ok')
      await tunnel.close({ graceMs: 0 })
      expect(tunnel.ready()).toBe(false)
      expect(tunnel.stats()).toMatchObject({ sessions: [], exchanges: { live: 0 } })
    }
    await until(() => server.sessions().length === 0)
  })
})

describe('a router', () => {
  const table = { routes: [] }
  const calls: Calls<Router> = {
    match: router => router.match({ url: '/' }),
    cors: router => router.cors(),
    inbox: router => router.inbox(),
    stats: router => router.stats(),
    reload: router => router.reload(table),
    attach: router => router.attach(createHttpServer())(),
    'close too briefly': router => router.close({ graceMs: -1 }),
    close: router => router.close(),
    'await using': router => router[Symbol.asyncDispose](),
  }
  const states: States<Router> = {
    open: () => {},
    closing: router => void router.close({ graceMs: 1000 }),
    closed: router => router.close(),
  }
  test.each(rowsOf(calls, states))('%s, %s', async (name, state) => {
    const router = createRouter({ routes: table })
    await states[state]!(router)
    const told = name === 'close too briefly' ? 'TypeError: graceMs must be from 0 to 2147483647 ms, not -1' : 'ok'
    expect(await outcome(() => calls[name]!(router))).toBe(told)
    await router.close()
    expect(router.stats()).toMatchObject({ active: 0, upstreams: { connections: 0 } })
  })

  const serviceCalls: Calls<RouterService> = {
    stats: service => service.stats(),
    reload: service => service.reload(table),
    'reload of no file': service => service.reload(),
    setTls: service => service.setTls(secrets.server),
    close: service => service.close({ graceMs: 0 }),
    'await using': service => service[Symbol.asyncDispose](),
  }
  const serviceStates: States<RouterService> = {
    open: () => {},
    closing: service => void service.close(),
    closed: service => service.close({ graceMs: 0 }),
  }
  const told: Record<string, string> = {
    'reload of no file': 'TypeError: this router has no routes file: reload takes a table',
    setTls: 'TypeError: this listener has no TLS',
  }
  test.each(rowsOf(serviceCalls, serviceStates))('as a service: %s, %s', async (name, state) => {
    const service = await serveRouter({ port: 0, routes: table })
    closers.push(() => service.close({ graceMs: 0 }))
    await serviceStates[state]!(service)
    expect(await outcome(() => serviceCalls[name]!(service))).toBe(told[name] ?? 'ok')
  })
})
