/** A server, a client, a router and nginx in front of one upstream. Each test of `e2e/` runs through every entry point that can carry it. */
import { describe } from 'vitest'
import { createRouter, type Router, type RouterService, type RouteTable, serveRouter } from '../../router/index.ts'
import type { Caller, Place } from './caller.ts'
import { Http1Caller } from './caller-http1.ts'
import { Http2Caller } from './caller-http2.ts'
import { needs } from './needs.ts'
import { startNginx } from './nginx.ts'
import { type Pair, startPair } from './pair.ts'
import type { ProxyProgram } from './proxy-program.ts'
import { DOMAIN, makeSecrets, type Secrets } from './secrets.ts'
import { Upstream } from './upstream.ts'

const ENTRIES = {
  'tunnel, HTTP/1.1': { part: 'tunnel', protocol: 'http1' },
  'tunnel, HTTP/2': { part: 'tunnel', protocol: 'http2' },
  'router, HTTP/1.1': { part: 'router', protocol: 'http1' },
  'router, HTTP/2': { part: 'router', protocol: 'http2' },
  nginx: { part: 'nginx', protocol: 'http1' },
} as const

export type EntryName = keyof typeof ENTRIES

export const allEntries = Object.keys(ENTRIES) as readonly EntryName[]
/** Without nginx, for what it does not carry. */
export const ourEntries = allEntries.filter(name => name !== 'nginx')
export const http1Entries = ourEntries.filter(name => ENTRIES[name].protocol === 'http1')
export const http2Entries = ourEntries.filter(name => ENTRIES[name].protocol === 'http2')

/** Runs the tests through each of these entry points, as far as this machine has them. */
export function describeThrough(names: readonly EntryName[], tests: (name: EntryName) => void): void {
  for (const name of names) describe.runIf(name !== 'nginx' || needs('nginx'))(name, () => tests(name))
}

export const UI_ORIGIN = 'https://ui.example.com'

/** Everything from the entry points to the upstream. Started once per file. */
export class Stack {
  readonly upstream: Upstream
  readonly pair: Pair
  readonly secrets: Secrets
  readonly service: RouterService
  readonly #router: Router
  readonly #nginx: ProxyProgram | undefined
  readonly #callers: Caller[] = []

  private constructor(
    upstream: Upstream,
    pair: Pair,
    secrets: Secrets,
    router: Router,
    service: RouterService,
    nginx: ProxyProgram | undefined,
  ) {
    this.upstream = upstream
    this.pair = pair
    this.secrets = secrets
    this.#router = router
    this.service = service
    this.#nginx = nginx
  }

  static async start(table: (upstream: Upstream) => RouteTable = defaultTable): Promise<Stack> {
    const upstream = await Upstream.start()
    const secrets = await makeSecrets()
    const router = createRouter({ routes: table(upstream) })
    const pair = await startPair({ target: router, secrets })
    const service = await serveRouter({
      host: '127.0.0.1',
      port: 0,
      routes: table(upstream),
      trustedProxies: needs('nginx') ? ['127.0.0.1/32'] : [],
    })
    const nginx = needs('nginx') ? await startNginx(`http://127.0.0.1:${service.address.port}`, secrets) : undefined
    return new Stack(upstream, pair, secrets, router, service, nginx)
  }

  place(name: EntryName): Place {
    const { ca } = this.secrets
    const { part } = ENTRIES[name]
    if (part === 'tunnel') return this.pair.place
    const port = part === 'nginx' ? (this.#nginx?.port ?? 0) : this.service.address.port
    return { port, authority: `ingress.${DOMAIN}:${port}`, ca: part === 'nginx' ? ca : undefined }
  }

  /** A new connection, which is closed with the stack. */
  async caller(name: EntryName): Promise<Caller> {
    const place = this.place(name)
    const caller = await (ENTRIES[name].protocol === 'http1' ? Http1Caller : Http2Caller).connect(place)
    this.#callers.push(caller)
    return caller
  }

  async stop(): Promise<void> {
    for (const caller of this.#callers) caller.close()
    await Promise.all([this.pair.stop(), this.#nginx?.stop(), this.service.close({ graceMs: 0 })])
    await this.#router.close()
    await this.upstream.stop()
    if (this.upstream.faults.length > 0) throw new AggregateError(this.upstream.faults, 'the upstream saw broken HTTP')
  }
}

export function defaultTable(upstream: Upstream): RouteTable {
  const target = `http://127.0.0.1:${upstream.port}`
  const cors = { origins: [UI_ORIGIN], credentials: true }
  return {
    routes: [
      { name: 'app-proxy', match: { path: '/app-proxy' }, target, cors },
      { name: 'nobody-there', match: { path: '/nobody-there' }, target: 'http://127.0.0.1:1', cors },
    ],
  }
}
