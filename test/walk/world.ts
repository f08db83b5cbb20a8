/** Everything that a walk passes through, in this process and over loopback: server, second replica, router service, client. */
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect, type Tunnel } from '../../client/index.ts'
import { type Logger, noLogger } from '../../protocol/base/log.ts'
import type { RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import { createRouter, type Router, type RouterService, type RouteTable, serveRouter } from '../../router/index.ts'
import type { ServerOptions } from '../../server/options.ts'
import type { Server } from '../../server/server.ts'
import { peerOptions } from '../replicas/fixture.ts'
import { answer, DOMAIN, dial, makeWorld, startServer, type TestClient, token } from '../server/fixture.ts'
import { needs } from '../support/needs.ts'
import { Redis } from '../support/redis.ts'
import { Relay } from '../support/relay.ts'
import { Spans } from '../support/spans.ts'
import { until } from '../support/until.ts'
import { WalkUpstream } from './upstream.ts'

export const RUNTIME = 'demo'
export const HOST = `${RUNTIME}.${DOMAIN}`
export const HOSTILE_HOST = `hostile.${DOMAIN}`
/** Appended to the path of an upstream, for its webhooks. */
export const HOOK = '/hook'

/** Deliveries are not retried for long, since the receiver would do the same again. The log reports it. */
const INBOX = { mode: 'fallback', answerWithin: '500ms', maxAge: '1s', lane: 'none' } as const
const DEAD = 'webhook is a dead letter'

/** Long, since on a busy machine a replica could lose its lease. It would log that, which counts as a fault here. */
const LEASE_MS = 30_000

/** Low limits, so that walks reach them. */
const LIMITS: NonNullable<ServerOptions['limits']> = {
  sessionBufferBytes: 1024 * 1024,
  processBufferBytes: 1536 * 1024,
  exchangesPerRuntime: 10_000,
  exchangesPerAddress: 10_000,
  requestRatePerAddress: 0,
}

export class World {
  readonly upstream: WalkUpstream
  /** The client's server. Its sessions can be cut in between. */
  readonly near: Server
  readonly relay: Relay
  /** Another replica, without a session. Absent without Redis. */
  readonly far: Server | undefined
  readonly service: RouterService
  /** A server of an embedder's that `far` is attached to. */
  readonly host = createServer()
  readonly #hostSockets = new Set<Socket>()
  readonly redis: Redis | undefined
  /** The last one is active. */
  readonly tunnels: Tunnel[] = []
  #hostile: TestClient | undefined
  readonly #table: RouteTable
  /** Folder of the inboxes. */
  readonly #folder: string
  readonly #routers: Router[] = []
  /** Errors that servers logged, and one warning for each session that a flood of pings ended. */
  readonly said: { errors: string[]; floods: number }
  /** Spans of servers, and of every second client. The others return theirs. */
  readonly #spans: Spans
  #clients = 0
  /** Clients that were replaced and are closing. */
  readonly #gone: Promise<unknown>[] = []

  private constructor(parts: {
    upstream: WalkUpstream
    near: Server
    relay: Relay
    far: Server | undefined
    service: RouterService
    redis: Redis | undefined
    table: RouteTable
    folder: string
    said: World['said']
    spans: Spans
  }) {
    this.#spans = parts.spans
    this.said = parts.said
    this.upstream = parts.upstream
    this.near = parts.near
    this.relay = parts.relay
    this.far = parts.far
    this.service = parts.service
    this.redis = parts.redis
    this.#table = parts.table
    this.#folder = parts.folder
  }

  static async start(): Promise<World> {
    const upstream = await WalkUpstream.start()
    const { http1, http2 } = upstream.ports
    const routes = [
      { name: 'http1', match: { path: '/http1' }, target: `http://127.0.0.1:${http1}` },
      { name: 'http2', match: { path: '/http2' }, target: `h2c://127.0.0.1:${http2}` },
    ]
    const hooks = routes.map(({ name, match: { path }, target }) => {
      return { name: `hooks-${name}`, match: { path: path + HOOK, methods: ['POST'] }, target, inbox: INBOX }
    })
    const table: RouteTable = { routes: [...routes, ...hooks] }
    const folder = await mkdtemp(join(tmpdir(), 'sallyport-walk-'))
    const redis = needs('redis') ? await Redis.start() : undefined
    await redis?.age()
    const shared = async (replica: string): Promise<Partial<ServerOptions>> =>
      redis === undefined
        ? {}
        : { replica, directory: { url: redis.url, leaseMs: LEASE_MS }, peer: await peerOptions() }
    const said: World['said'] = { errors: [], floods: 0 }
    const logger: Logger = {
      ...noLogger,
      warn: (_, text) => void (text === 'yamux: the session ends' && said.floods++),
      error: (fields, text) => void (text === DEAD || said.errors.push(`${text} ${JSON.stringify(fields)}`)),
    }
    const spans = new Spans()
    const common = { limits: LIMITS, hold: { holdMs: 3000 }, logger, tracing: { tracer: spans.tracer, ratio: 0.5 } }
    const inbox = (replica: string) => ({
      inbox: { url: `sqlite:${join(folder, replica)}.db`, plaintext: true, diskFreeBytes: 0, attemptMs: 1000 },
    })
    const near = await startServer({ ...common, ...inbox('near'), ...(await shared('near')) })
    const far =
      redis === undefined
        ? undefined
        : await startServer({ ...common, ...inbox('far'), ...(await shared('far')), control: 'off' })
    const relay = await Relay.start({ port: near.controlAddress!.port })
    const service = await serveRouter({ host: '127.0.0.1', port: 0, routes: { routes } })
    const world = new World({ upstream, near, relay, far, service, redis, table, folder, said, spans })
    far?.attach(world.host)
    world.host.on('connection', socket => {
      world.#hostSockets.add(socket)
      socket.on('close', () => world.#hostSockets.delete(socket))
    })
    world.host.listen(0, '127.0.0.1')
    await once(world.host, 'listening')
    await world.replaceClient()
    await world.ready()
    return world
  }

  /** A new instance takes over, and the previous one leaves. */
  async replaceClient(graceMs = 200): Promise<void> {
    const { authority } = await makeWorld()
    const bearer = await token(RUNTIME)
    const router = createRouter({ routes: this.#table })
    const tunnel = await connect({
      url: `wss://127.0.0.1:${this.relay.port}`,
      token: () => bearer,
      ca: authority.certificate,
      proxy: '',
      target: router,
      instance: randomUUID(),
      tracing: this.#clients++ % 2 === 0 ? 'server' : { tracer: this.#spans.tracer },
      connections: 2,
      backoff: { firstMs: 20, capMs: 100, refusedMs: 20, moveMs: 50 },
    })
    await tunnel.connected()
    const before = this.tunnels.splice(0)
    const routers = this.#routers.splice(0)
    this.tunnels.push(tunnel)
    this.#routers.push(router)
    this.#gone.push(
      ...before.map(async (old, i) => {
        await old.close({ graceMs })
        await routers[i]!.close()
      }),
    )
  }

  loseSessions(): void {
    this.relay.cut()
  }

  loseHostile(): void {
    this.#hostile?.ws.terminate()
  }

  drain(graceMs = 200): void {
    this.near.drainRuntime(RUNTIME, { graceMs })
  }

  /** Resolves once exchanges are accepted at all entry points. */
  async ready(): Promise<void> {
    await Promise.all(this.#gone.splice(0))
    if (this.#hostile?.session.closed !== false)
      this.#hostile = await dial(this.near, { runtime: 'hostile', handler: takesNothing })
    const known = () => this.far === undefined || (this.far.stats().peers?.connected ?? 0) > 0
    await until(() => this.tunnels[0]!.stats().sessions.length === 2 && this.tunnels[0]!.ready() && known())
  }

  /** Resolves when the session of a flood in progress has ended. */
  get wasFlooded(): boolean {
    return this.said.floods > 0
  }

  /** Everything that is not 0 although nothing is in progress. */
  left(): Record<string, number> {
    const left: Record<string, number> = {}
    const note = (name: string, count: number) => {
      if (count !== 0) left[name] = count
    }
    for (const [name, server] of Object.entries({ near: this.near, far: this.far })) {
      if (server === undefined) continue
      const stats = server.stats()
      for (const key of NUMBERS) note(`${name}.${key}`, stats[key])
      note(`${name}.inbox.bufferBytes`, stats.inbox!.bufferBytes)
      note(`${name}.inbox.lanes`, stats.inbox!.lanes)
      note(`${name}.peers.streams`, stats.peers?.streams ?? 0)
      note(`${name}.peers.bufferedBytes`, stats.peers?.bufferedBytes ?? 0)
    }
    const { exchanges, sessions } = this.tunnels[0]!.stats()
    note('client.exchanges', exchanges.live)
    for (const session of sessions) {
      note('client.streams', session.streams)
      note('client.bufferedBytes', session.bufferedBytes)
    }
    for (const [name, router] of Object.entries({ client: this.#routers[0]!, service: this.service.router })) {
      const { active, upstreams } = router.stats()
      note(`${name} router.active`, active)
      note(`${name} router.upstreams in use`, upstreams.connections - upstreams.idle)
    }
    this.said.errors.push(...this.upstream.faults.splice(0))
    note('errors', this.said.errors.length)
    note('floods that ended a session more than once', Math.max(0, this.said.floods - 1))
    note('spans', this.#spans.open)
    note('service.connections', this.service.stats().connections)
    note('upstream.upgraded', this.upstream.upgraded.size)
    note('host.connections', this.#hostSockets.size)
    return left
  }

  async stop(): Promise<void> {
    this.#hostile?.session.close('done')
    await Promise.all(this.tunnels.map(tunnel => tunnel.close({ graceMs: 0 })))
    await Promise.all(this.#gone.splice(0))
    await Promise.all(this.#routers.map(router => router.close()))
    await this.relay.stop()
    this.host.close().closeAllConnections()
    await Promise.all([this.near, this.far].map(server => server?.close({ graceMs: 0 })))
    await this.service.close({ graceMs: 0 })
    await this.upstream.stop()
    await this.redis?.stop()
    await rm(this.#folder, { recursive: true, force: true })
  }
}

const NUMBERS = [
  'streams',
  'exchanges',
  'bufferedBytes',
  'replayBytes',
  'held',
  'heldBytes',
  'handshakesWaiting',
  'callers',
  'quotaExchanges',
] as const

/** Answers after a moment, and gives no credit. */
function takesNothing(_preamble: unknown, _request: unknown, response: ResponseSink): RequestSink {
  const timer = setTimeout(() => answer(response, 200, 'taken'), 40)
  return { requestData() {}, requestEnd() {}, requestAbort: () => clearTimeout(timer), responseConsumed() {} }
}
