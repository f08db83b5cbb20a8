/**
 * A real pair in this process, for scripts of hostile peers: server, client, router and upstreams over loopback, with
 * deadlines short enough to be reached. After each script everything must be idle, and nobody else may have been affected.
 */
import type { AddressInfo, Server as NetServer, Socket } from 'node:net'
import { connect as connectNet, createServer as createNetServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect, type Tunnel } from '../../../client/index.ts'
import type { Logger } from '../../../protocol/base/log.ts'
import { resetSocket } from '../../../protocol/base/reset-socket.ts'
import { createRouter, type Router } from '../../../router/index.ts'
import { createServer, type Server } from '../../../server/index.ts'
import { DOMAIN, makeSecrets, type Secrets } from '../../support/secrets.ts'
import { holds } from '../holds.ts'
import { startHttp1Upstream, startHttp2Upstream } from './upstreams.ts'

const HTTP_LIMITS = {
  headMs: 400,
  bodyIdleMs: 400,
  stalledMs: 400,
  keepAliveMs: 1_500,
  drainMs: 200,
  expectMs: 50,
  halfCloseMs: 150,
  http2PingMs: 400,
}

/** By then, everything that a script left open has ended. The longest deadline is that of an upstream's head, 500 ms. */
const REST_MS = 8_000
/** One script, and the wait for everything to be idle again. */
export const LIVE_MS = 20_000
const CANARY_MS = 10_000
const HELD_RUNTIME = 'away'
export const ROGUE_RUNTIME = 'rogue'

export interface WorldOptions {
  /** The target of `/evil`: an upstream that the script plays. */
  readonly evil?: { readonly http1?: number; readonly h2c?: number } | undefined
}

export class World {
  readonly secrets: Secrets
  readonly server: Server
  readonly tunnel: Tunnel
  readonly router: Router
  /** Collects our faults, also those of further parts in this world. */
  readonly logger: Logger
  readonly #witness: Tunnel
  readonly #closers: (() => void)[]
  readonly #faults: string[]
  readonly #relay: Relay

  private constructor(parts: {
    secrets: Secrets
    server: Server
    tunnel: Tunnel
    witness: Tunnel
    router: Router
    relay: Relay
    closers: (() => void)[]
    faults: string[]
    logger: Logger
  }) {
    this.secrets = parts.secrets
    this.server = parts.server
    this.tunnel = parts.tunnel
    this.#witness = parts.witness
    this.router = parts.router
    this.#relay = parts.relay
    this.#closers = parts.closers
    this.#faults = parts.faults
    this.logger = parts.logger
  }

  static async start({ evil }: WorldOptions = {}): Promise<World> {
    const faults: string[] = []
    const logger = faultLogger(faults)
    const secrets = await makeSecrets()
    const http1 = await startHttp1Upstream()
    const http2 = await startHttp2Upstream()
    const server = await createServer({
      public: { host: '127.0.0.1', port: 0, limits: HTTP_LIMITS },
      control: { host: '127.0.0.1', port: 0, plaintext: true },
      domains: [DOMAIN],
      auth: { jwks: secrets.jwks },
      hold: { holdMs: 300, startupMs: 1, forgetMs: 3_600_000 },
      limits: { sessionBufferBytes: 512 * 1024, processBufferBytes: 4 * 1024 * 1024, streams: 200 },
      drainSpreadMs: 0,
      logger,
    })
    const relay = await Relay.start(server.controlAddress!.port)
    const timeouts = { connectMs: 500, headMs: 500 }
    const target = (port: number | undefined, scheme = 'http') => `${scheme}://127.0.0.1:${port ?? 1}`
    const route = (path: string, to: string) => ({ name: path.slice(1), match: { path }, target: to, timeouts })
    const router = createRouter({
      routes: {
        routes: [
          route('/one', target(http1.port)),
          route('/two', target(http2.port, 'h2c')),
          route('/gone', target(1)),
          route('/evil-one', target(evil?.http1)),
          route('/evil-two', target(evil?.h2c, 'h2c')),
        ],
      },
      logger,
    })
    const dial = async (runtime: string, to: Parameters<typeof connect>[0]['target'], url: string) =>
      connect({
        url,
        token: () => secrets.token(runtime),
        target: to,
        proxy: '',
        connectTimeoutMs: 10_000,
        backoff: { firstMs: 5, capMs: 20 },
        random: () => 0.01,
        limits: { sessionBufferBytes: 512 * 1024 },
        logger,
      })
    const direct = `ws://127.0.0.1:${server.controlAddress!.port}`
    const tunnel = await dial('demo', router, `ws://127.0.0.1:${relay.port}`)
    const witness = await dial('witness', () => new Response('well'), direct)
    const away = await dial(HELD_RUNTIME, () => new Response(''), direct)
    await away.close({ graceMs: 0 })
    const closers = [http1.close, http2.close, () => relay.close()]
    return new World({ secrets, server, tunnel, witness, router, relay, closers, faults, logger })
  }

  get port(): number {
    return this.server.publicAddress!.port
  }

  get controlPort(): number {
    return this.server.controlAddress!.port
  }

  dial(): Socket {
    const socket = connectNet({ port: this.port, host: '127.0.0.1', allowHalfOpen: true })
    socket.on('error', ignore)
    return socket
  }

  /** Cuts every session of the runtime `demo`. Its client dials again. */
  cutSessions(): void {
    this.#relay.cut()
  }

  /** Throws if a script left something behind, or affected somebody else. `more`: further counters. */
  async check(more: () => Record<string, number> = () => ({})): Promise<void> {
    await this.#rest(more)
    for (const runtime of ['witness', 'demo']) await this.#canary(runtime)
    await this.#rest(more)
    holds(this.#faults.length === 0, `no fault of ours: ${this.#faults.join('; ')}`)
  }

  async #rest(more: () => Record<string, number>): Promise<void> {
    const end = performance.now() + REST_MS
    let left = this.#left(more())
    for (let waitMs = 0; left !== '' && performance.now() < end; waitMs = Math.min(20, waitMs + 1)) {
      await sleep(waitMs)
      left = this.#left(more())
    }
    holds(left === '', `at rest all counters are 0, but ${left}`)
  }

  /** What is not idle, in words. */
  #left(more: Record<string, number>): string {
    const { streams, exchanges, bufferedBytes, replayBytes, held, heldBytes } = this.server.stats()
    const counters: Record<string, number> = {
      streams,
      exchanges,
      bufferedBytes,
      replayBytes,
      held,
      heldBytes,
      ...more,
    }
    for (const [name, tunnel] of [
      ['tunnel', this.tunnel],
      ['witness', this.#witness],
    ] as const) {
      const stats = tunnel.stats()
      counters[`${name}: exchanges`] = stats.exchanges.live
      counters[`${name}: streams`] = stats.sessions.reduce((sum, session) => sum + session.streams, 0)
      counters[`${name}: bytes`] = stats.sessions.reduce((sum, session) => sum + session.bufferedBytes, 0)
      counters[`${name}: not ready`] = tunnel.ready() ? 0 : 1
    }
    const routerStats = this.router.stats()
    counters['router: exchanges'] = routerStats.active
    counters['router: busy connections'] = routerStats.upstreams.connections - routerStats.upstreams.idle
    const left = Object.entries(counters).filter(([, count]) => count !== 0)
    return left.map(([name, count]) => `${name} ${count}`).join(', ')
  }

  /** Other callers, of this runtime and of another one, are served as before. */
  async #canary(runtime: string): Promise<void> {
    const status = await Promise.race([this.#ask(runtime), sleep(CANARY_MS, 'no answer', { ref: false })])
    holds(status === '200', `another caller of ${runtime} gets its answer, not ${status}`)
  }

  #ask(runtime: string): Promise<string> {
    return new Promise(resolve => {
      const socket = this.dial()
      let text = ''
      socket.on('data', chunk => (text += chunk.toString('latin1')))
      socket.on('close', () => resolve(text.slice(9, 12) || 'a closed connection'))
      socket.on('end', () => socket.end())
      socket.write(`GET /one/small HTTP/1.1\r\nHost: ${runtime}.${DOMAIN}\r\nConnection: close\r\n\r\n`)
    })
  }

  async stop(): Promise<void> {
    await Promise.all([this.tunnel, this.#witness].map(tunnel => tunnel.close({ graceMs: 0 })))
    await this.server.close({ graceMs: 0 })
    await this.router.close()
    for (const close of this.#closers) close()
  }
}

/** One world for all scripts of a target. After a find it is created anew, so that the damage of one script does not affect the next. */
export class Worlds<W extends { check(): Promise<void>; stop(): Promise<void> }> {
  readonly #start: () => Promise<W>
  #world: W | undefined

  constructor(start: () => Promise<W>) {
    this.#start = start
  }

  async play(script: (world: W) => Promise<void>): Promise<void> {
    this.#world ??= await this.#start()
    const world = this.#world
    try {
      await script(world)
      await world.check()
    } catch (error) {
      this.#world = undefined
      await world.stop()
      throw error
    }
  }

  async stop(): Promise<void> {
    const world = this.#world
    this.#world = undefined
    await world?.stop()
  }
}

/** Sits between a client and its server, so that sessions can be cut as a network cuts them. */
class Relay {
  readonly #server: NetServer
  readonly #sockets = new Set<Socket>()

  private constructor(server: NetServer, to: number) {
    this.#server = server
    server.on('connection', near => {
      const far = connectNet(to, '127.0.0.1')
      for (const [one, other] of [
        [near, far],
        [far, near],
      ] as const) {
        this.#sockets.add(one)
        one.setNoDelay()
        one.on('error', ignore)
        one.on('close', () => {
          this.#sockets.delete(one)
          other.destroy()
        })
        one.pipe(other)
      }
    })
  }

  static async start(to: number): Promise<Relay> {
    const server = createNetServer()
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
    return new Relay(server, to)
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  cut(): void {
    for (const socket of this.#sockets) resetSocket(socket)
  }

  close(): void {
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
  }
}

/** Log lines that only our own defects cause. The three codes of Node's HTTP/2 can be caused by a peer. */
const FAULT = /threw|internal|unexpected|TypeError|RangeError|ERR_HTTP2_(?!(?:STREAM_|SESSION_)?ERROR)/

function faultLogger(faults: string[]): Logger {
  const look = (fields: object, message: string) => {
    const line = `${message} ${JSON.stringify(fields)}`
    if (FAULT.test(line) && faults.length < 10) faults.push(line)
  }
  return {
    debug: look,
    info: look,
    warn: look,
    error: (fields, message) => void faults.push(`${message} ${JSON.stringify(fields)}`),
  }
}

function ignore(): void {}
