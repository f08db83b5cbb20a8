// @module-tag slow
/** P1: an embedder's hook that throws or rejects costs at most its exchange. Each hook, in each way, at each moment. */
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createHttp2Server } from 'node:http2'
import type { AddressInfo, Server } from 'node:net'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { ClientOptions, Handler, HandlerTarget, Tunnel } from '../../client/index.ts'
import type { RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import { createRouter, serveRouter } from '../../router/index.ts'
import { MemoryDirectory } from '../../server/directory/memory.ts'
import type { ServerOptions } from '../../server/index.ts'
import { Http1Caller } from '../support/caller-http1.ts'
import { type Pair, startPair } from '../support/pair.ts'
import { makeSecrets, type Secrets } from '../support/secrets.ts'
import { until } from '../support/until.ts'

const throwing = (..._any: unknown[]): never => {
  throw new Error('thrown on purpose')
}
const rejecting = async (): Promise<never> => throwing()
const WAYS = [
  ['throws', throwing],
  ['rejects', rejecting],
] as const

/** The thrown value need not be an error or have a text. */
const UNREADABLE: readonly (readonly [string, () => unknown])[] = [
  ['an object without a text', () => Object.create(null)],
  [
    'an error whose message cannot be read',
    () => Object.defineProperty(new Error('none'), 'message', { get: throwing }),
  ],
  ['an error whose stack cannot be read', () => Object.defineProperty(new Error('none'), 'stack', { get: throwing })],
  [
    'a revoked proxy',
    () => {
      const { proxy, revoke } = Proxy.revocable({}, {})
      revoke()
      return proxy
    },
  ],
]
const ODD_WAYS = UNREADABLE.flatMap(([what, make]) => {
  const odd = (): never => {
    throw make()
  }
  return [
    [`throws ${what}`, odd],
    [`rejects with ${what}`, async (): Promise<never> => odd()],
  ] as const
})

let secrets: Secrets
let pair: Pair | undefined
const uncaught: unknown[] = []
const note = (error: unknown) => uncaught.push(error)
beforeAll(async () => {
  secrets = await makeSecrets()
  process.on('uncaughtException', note)
  process.on('unhandledRejection', note)
})
afterEach(async () => {
  await pair?.stop()
  pair = undefined
  expect(uncaught.splice(0)).toEqual([])
})
afterAll(() => {
  process.off('uncaughtException', note)
  process.off('unhandledRejection', note)
})

interface Hooks {
  readonly client?: Partial<ClientOptions>
  readonly server?: Partial<ServerOptions>
  readonly target?: ClientOptions['target']
}

const loggers = (call: () => unknown) => ({ debug: call, info: call, warn: call, error: call }) as never
const onAll = (call: () => unknown) => {
  const names = ['connected', 'disconnected', 'draining', 'standing', 'reconnecting', 'refused']
  return Object.fromEntries(names.map(name => [name, call])) as never
}

const HOOKS = WAYS.flatMap<[string, Hooks]>(([way, call]) => [
  [`the client's onExchange ${way}`, { client: { onExchange: call } }],
  [`each listener of the client ${way}`, { client: { on: onAll(call) } }],
  [`the client's logger ${way}`, { client: { logger: loggers(call) } }],
  [`the server's onExchange ${way}`, { server: { onExchange: call } }],
  [`the server's logger ${way}`, { server: { logger: loggers(call) } }],
  [`the recorder of the directory ${way}`, { server: { record: call as never } }],
])
const ALL_AT_ONCE = ODD_WAYS.map<[string, Hooks]>(([way, call]) => {
  const both = { onExchange: call, logger: loggers(call) }
  return [`each ${way}`, { client: { ...both, on: onAll(call) }, server: { ...both, record: call as never } }]
})

/** Answers `/` at once and `/slow` never, so that caller has to leave. */
const patient = (request: Request) =>
  new URL(request.url).pathname === '/slow' ? new Promise<Response>(() => {}) : new Response('served')

async function begin({ client = {}, server = {}, target = patient }: Hooks): Promise<Pair> {
  pair = await startPair({ secrets, target, client, server })
  return pair
}

async function served(from: Pair, runtime = 'demo'): Promise<number> {
  const caller = await Http1Caller.connect(from.placeOf(runtime))
  try {
    return (await caller.ask({ path: '/' })).status
  } finally {
    caller.close()
  }
}

const atRest = (tunnel: Tunnel) => until(() => tunnel.stats().exchanges.live === 0, 'the exchange is over')

/** A caller that leaves during the exchange. */
async function leaves(from: Pair, method = 'GET'): Promise<void> {
  const before = from.tunnel.stats().exchanges.total
  const caller = await Http1Caller.connect(from.place)
  void caller.ask({ method, path: '/slow' }).catch(() => {})
  await until(() => from.tunnel.stats().exchanges.total > before, 'the exchange has begun')
  caller.close()
  await atRest(from.tunnel)
}

describe("P1 embedders' hooks", () => {
  test.each([...HOOKS, ...ALL_AT_ONCE])(
    '%s: for a whole exchange, for a caller that leaves, for a drain',
    async (_name, hooks) => {
      const all = await begin(hooks)
      for (const name of ['session', 'ready', 'sessionEnded', 'refused'] as const) all.server.on(name, rejecting)
      expect(await served(all)).toBe(200)
      await leaves(all)
      await leaves(all, 'POST')
      expect(all.server.stats().sessionsEnded).toBe(0)
      expect(all.server.drainRuntime('demo')).toBe(2)
      await until(() => all.server.stats().sessionsEnded === 2 && all.tunnel.ready(), 'the sessions were replaced')
      expect(await served(all)).toBe(200)
    },
  )

  test.each(WAYS)('a token source that %s while the client runs, and later returns a token', async (_way, call) => {
    let broken = false
    const all = await begin({ client: { token: () => (broken ? call() : secrets.token('demo')) } })
    broken = true
    await expect(all.tunnel.refreshToken()).rejects.toThrow('thrown on purpose')
    for (const { id } of all.server.sessions()) all.server.closeSession(id)
    await until(() => all.tunnel.stats().connections.some(({ lastError }) => lastError !== undefined), 'told')
    broken = false
    all.tunnel.setToken(await secrets.token('demo'))
    await until(() => all.tunnel.ready(), 'the client is back')
    expect(await served(all)).toBe(200)
  })

  test.each([
    ['throws', throwing],
    ['rejects', rejecting],
    ['says nothing of use', (_host: string, _options: object, told: (...args: unknown[]) => void) => told(null)],
    ['fails without an error', (_host: string, _options: object, told: (...args: unknown[]) => void) => told('no')],
  ])('a lookup that %s', async (_way, lookup) => {
    const all = await begin({})
    const url = `wss://connect.example.com:${all.server.controlAddress?.port}`
    const late = all.connect('other', patient, { url, lookup: lookup as never, connectTimeoutMs: 300 })
    await expect(late).rejects.toThrow(/no session within/)
    expect(await served(all)).toBe(200)
  })

  test('a directory that throws on hearing that an instance has gone: its sessions still end', async () => {
    const directory = new MemoryDirectory()
    directory.gone = throwing
    const all = await begin({ server: { directory } })
    const before = all.server.sessions().map(({ id }) => id)
    for (const id of before) expect(all.server.closeSession(id)).toBe(true)
    await until(() => all.server.stats().sessionsEnded === before.length, 'the sessions have ended')
    await until(() => all.tunnel.ready() && all.server.sessions().some(({ active }) => active), 'the client is back')
    expect(await served(all)).toBe(200)
  })

  test("a target's cors that throws while the client runs: new sessions announce what the last ones announced", async () => {
    let broken = false
    const { handler } = createRouter({ routes: { routes: [] } })
    const all = await begin({ target: { handler, cors: () => (broken ? throwing() : []) } })
    broken = true
    const before = all.server.sessions().map(({ id }) => id)
    for (const id of before) all.server.closeSession(id)
    const fresh = () => all.server.sessions().filter(({ id, active }) => active && !before.includes(id))
    await until(() => fresh().length === before.length, 'both connections are back')
  })
})

const CALLBACKS = ['onRequestStart', 'onResponseStart', 'onResponseData', 'onResponseEnd', 'onResponseError'] as const
const CASES = WAYS.flatMap(([way, call]) => CALLBACKS.map(name => [name, way, call] as const))

describe('P1 dispatcher callbacks', () => {
  test.each(CASES)('%s that %s ends its own request', async (name, _way, call) => {
    const all = await begin({
      target: request => (request.url.endsWith('/slow') ? patient(request) : new Response('ok')),
    })
    const told = Promise.withResolvers<string>()
    const path = name === 'onResponseError' ? '/slow' : '/'
    const done = {
      onRequestStart: (controller: { abort(reason: Error): void }) => {
        if (path === '/slow') setImmediate(() => controller.abort(new Error('enough')))
      },
      onResponseEnd: () => told.resolve('whole'),
      onResponseError: (_controller: unknown, error: Error) => told.resolve(error.message),
    }
    const broken = async () => {
      told.resolve(name)
      return call()
    }
    const own = name === 'onResponseError' || name === 'onResponseEnd' ? broken : call
    all.server
      .dispatcher('demo')
      .dispatch({ origin: 'https://demo.test', path, method: 'GET' }, { ...done, [name]: own } as never)
    // A promise rejects a moment later: a small answer may be complete by then.
    const late = call === rejecting && own !== broken ? ['whole'] : []
    expect([own === broken ? name : 'thrown on purpose', ...late]).toContain(await told.promise)
    await atRest(all.tunnel)
    expect(await served(all)).toBe(200)
    expect(all.server.stats().sessionsEnded).toBe(0)
  })

  test('the close callback', async () => {
    const all = await begin({})
    all.server.dispatcher('demo').close(throwing)
    expect(await served(all)).toBe(200)
  })
})

/** A handler whose sink does `sink`, and that answers when told. */
function targetOf(sink: Partial<RequestSink>, answers: (response: ResponseSink) => void = () => {}): HandlerTarget {
  const handler: Handler = (_request, response) => {
    answers(response)
    return {
      requestData: chunk => response.requestConsumed(chunk.length),
      requestEnd() {},
      requestAbort() {},
      responseConsumed() {},
      ...sink,
    }
  }
  return { handler }
}

const answerPart = (response: ResponseSink) => {
  response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
  response.responseData(Buffer.from('part'))
}

describe("P1 embedders' handlers", () => {
  test.each<[string, HandlerTarget, 'told' | 'cut']>([
    ['that throws', { handler: throwing }, 'told'],
    ['that throws with an answer begun', { handler: (_request, response) => throwing(answerPart(response)) }, 'cut'],
    ['that returns no sink', { handler: (() => undefined) as never }, 'told'],
    ['whose sink throws at data', targetOf({ requestData: throwing }), 'told'],
    ['whose sink throws at the end', targetOf({ requestEnd: throwing }), 'told'],
    ['whose sink throws at the end, with an answer begun', targetOf({ requestEnd: throwing }, answerPart), 'cut'],
    ['whose sink throws when bytes are taken', targetOf({ responseConsumed: throwing }, answerPart), 'cut'],
  ])('a handler %s costs its exchange, which is then counted and forgotten', async (_name, target, outcome) => {
    const all = await begin({ target })
    const caller = await Http1Caller.connect(all.place)
    const asked = caller.ask({ method: 'POST', path: '/', body: 'body' })
    const answered = await asked.then(
      reply => reply.status,
      () => 0,
    )
    // The bytes that were begun may have left or not.
    expect(outcome === 'told' ? [502] : [502, 0]).toContain(answered)
    await atRest(all.tunnel)
    expect(all.server.stats().sessionsEnded).toBe(0)
    caller.close()
  })

  test.each(ODD_WAYS)('a function that %s costs its exchange', async (_way, call) => {
    const all = await begin({ target: call })
    expect(await served(all)).toBe(502)
    await atRest(all.tunnel)
    const answer = await all.server.fetch('demo', '/')
    expect([answer.status, answer.headers.get('sallyport-error')]).toEqual([502, 'upstream-broken'])
    await until(() => all.server.stats().quotaExchanges === 0, 'nothing is counted any more')
  })

  test.each(UNREADABLE)('a layer that throws %s costs its exchange', async (_what, make) => {
    const thrower = () => {
      throw make()
    }
    const all = await begin({ server: { layers: [() => thrower] } })
    expect(await served(all)).toBe(500)
    await until(() => all.server.stats().quotaExchanges === 0, 'nothing is counted any more')
  })

  test.each(UNREADABLE)('a body that an in-process caller aborts with %s', async (_what, make) => {
    const all = await begin({ target: async request => new Response(await request.text()) })
    const body = new ReadableStream({ pull: controller => controller.error(make()) })
    const request = new Request('https://demo.test/', { method: 'POST', body, duplex: 'half' })
    await expect(all.server.fetch('demo', request)).rejects.toThrow()
    await atRest(all.tunnel)
    await until(() => all.server.stats().quotaExchanges === 0, 'nothing is counted any more')
  })

  test('a handler whose sink throws when its caller leaves', async () => {
    const all = await begin({ target: targetOf({ requestAbort: throwing }) })
    await leaves(all, 'POST')
    expect(all.server.stats().sessionsEnded).toBe(0)
  })

  test('a node:http server whose listener throws', async () => {
    const all = await begin({ target: createHttpServer(throwing) })
    expect(await served(all)).toBe(502)
    await atRest(all.tunnel)
    expect(all.server.stats().sessionsEnded).toBe(0)
  })
})

/** What can be placed between a router and the end that it answers. */
const SAYS = [
  'responseInformational',
  'responseHead',
  'responseData',
  'responseEnd',
  'responseAbort',
  'requestConsumed',
] as const
const BEHIND = ['http', 'h2c', 'down'] as const

describe("P1 embedders' layers in front of a router", () => {
  const upstreams: Server[] = []
  const urls = { http: '', h2c: '', down: 'http://127.0.0.1:1' }
  const answer = (request: IncomingMessage, response: ServerResponse) => {
    response.writeEarlyHints({ link: '</a>; rel=preload' })
    request.resume().on('end', () => request.url !== '/slow' && response.end('served'.repeat(10_000)))
  }
  beforeAll(async () => {
    const both = { http: createHttpServer(answer), h2c: createHttp2Server(answer as never) }
    for (const [scheme, server] of Object.entries(both)) {
      upstreams.push(server)
      await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
      urls[scheme as 'http' | 'h2c'] = `${scheme}://127.0.0.1:${(server.address() as AddressInfo).port}`
    }
  })
  afterAll(() => {
    for (const server of upstreams) server.close()
  })

  test.each(SAYS.flatMap(name => BEHIND.map(behind => [name, behind] as const)))(
    '%s throws before an upstream of the kind %s: it costs its exchange',
    async (name, behind) => {
      const match = { name: 'all', match: {}, target: urls[behind], timeouts: { headMs: 500 } }
      const router = createRouter({ routes: { routes: [match] } })
      const handler: Handler = (request, response) => {
        const front = new Proxy(response, {
          get: (inner, key) =>
            key === name ? throwing : (inner[key as (typeof SAYS)[number]] as () => void).bind(inner),
        })
        return router.handler(request, front)
      }
      const all = await begin({ target: { handler } })
      for (const path of ['/', '/slow']) {
        const before = router.stats().total
        const caller = await Http1Caller.connect(all.place)
        void caller.ask({ method: 'POST', path, body: 'body'.repeat(50_000) }).catch(() => {})
        await until(() => router.stats().total > before && router.stats().active === 0, 'the router is at rest')
        caller.close()
        await atRest(all.tunnel)
      }
      expect(all.server.stats().sessionsEnded).toBe(0)
      await router.close()
    },
  )
})

describe("P1 a router service's hooks", () => {
  test.each(WAYS)('onExchange and logger that %s, for an answer and for a caller that leaves', async (_way, call) => {
    const upstream = createHttpServer((request, response) => void (request.url === '/' && response.end('served')))
    await new Promise<void>(resolve => upstream.listen(0, '127.0.0.1', resolve))
    const target = `http://127.0.0.1:${(upstream.address() as { port: number }).port}`
    const service = await serveRouter({
      routes: { routes: [{ name: 'all', match: {}, target }] },
      port: 0,
      onExchange: call,
      logger: loggers(call),
    })
    const place = { port: service.address.port, authority: 'router.test', ca: undefined }
    const caller = await Http1Caller.connect(place)
    expect((await caller.ask({ path: '/' })).status).toBe(200)
    void caller.ask({ path: '/slow' }).catch(() => {})
    await until(() => service.stats().active === 1, 'the request has begun')
    caller.close()
    await until(() => service.stats().active === 0, 'the request is over')
    await service.close({ graceMs: 0 })
    upstream.closeAllConnections()
    upstream.close()
  })
})
