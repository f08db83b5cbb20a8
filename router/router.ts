/** The router as a component: a handler whose table can be replaced while it serves. */
import type { Server as HttpServer } from 'node:http'
import { parseCidrs } from '../protocol/base/address.ts'
import { checkDuration } from '../protocol/base/durations.ts'
import { type GraceOptions, graceOf } from '../protocol/base/grace.ts'
import { hook, safeLogger } from '../protocol/base/guard.ts'
import type { Logger } from '../protocol/base/log.ts'
import { checkMembers, type Members } from '../protocol/base/members.ts'
import type { ExchangeRecord, Handler } from '../protocol/exchange.ts'
import { withListenerLayers } from '../protocol/http/forwarded.ts'
import { mount } from '../protocol/http/http1/mount.ts'
import { INNER_LIMITS } from '../protocol/http/limits.ts'
import type { CorsPolicy } from '../protocol/http/problem.ts'
import { BodyBytes, record, recordRefused } from '../protocol/http/record.ts'
import { compose } from '../protocol/layer.ts'
import type { InboxRule } from '../protocol/wire/control.ts'
import { type CheckedTargets, checkTargets } from './check.ts'
import { compileTable } from './compile.ts'
import { publishedRules } from './compile-cors.ts'
import type { CompiledTable } from './compiled.ts'
import { explainMatch, type MatchQuestion, type MatchResult } from './explain.ts'
import type { ExchangeHooks } from './handler/exchange.ts'
import { routeHandler } from './handler/handler.ts'
import type { RouteTable } from './table.ts'
import { UPSTREAM_LIMITS, Upstreams, type UpstreamsOptions, type UpstreamsStats } from './upstream/upstreams.ts'

/** Options of {@link createRouter}: the table, and limits on connections to upstreams. */
export interface RouterOptions extends UpstreamsOptions {
  /** The route table. */
  routes: RouteTable
  /** Added to the `resolve` of the table. These entries win. */
  resolve?: Record<string, string> | undefined
  /** Receives log lines. Default: none are written. */
  logger?: Logger | undefined
  /** Called once for each exchange, when it has ended. */
  onExchange?: ((record: ExchangeRecord) => void) | undefined
}

export const ROUTER_MEMBERS: Members<RouterOptions, typeof UPSTREAM_LIMITS> = {
  routes: 'object',
  resolve: 'object',
  logger: 'object',
  onExchange: 'function',
}

/** Options of `Router.attach`: which proxies the router trusts, and which requests it takes. */
export interface AttachOptions {
  /**
   * Peers (CIDRs) whose `X-Forwarded-*` fields the router trusts: the ingress, the tunnel client. A peer on a Unix socket
   * counts as 127.0.0.1. Default: none.
   */
  trustedProxies?: readonly string[] | undefined
  /** Returns whether the router takes requests for this host (with its port, if it has one). Default: it takes all. */
  serves?: ((authority: string) => boolean) | undefined
}

const ATTACH_MEMBERS: Members<AttachOptions> = { trustedProxies: 'strings', serves: 'function' }

/** Exchanges and connections of a router. */
export interface RouterStats {
  /** Exchanges in progress, and all since the start. */
  active: number
  total: number
  routes: number
  upstreams: UpstreamsStats
  /** Bytes of the bodies of requests and responses since the start, also of open ones. Counted only with `onExchange`. */
  bodyBytesIn: number
  bodyBytesOut: number
}

/** A running router. */
export interface Router extends AsyncDisposable {
  /** Takes requests; `connect({ target: router })` uses it. */
  readonly handler: Handler
  /** Uses this table for requests from now on. Throws `RouteTableError` for a bad table, and keeps the old one. */
  reload(routes: RouteTable): void
  /** Explains which route a request would take, and why. Forwards nothing. */
  match(question: MatchQuestion): MatchResult
  /**
   * Checks that targets accept connections, without sending anything: at most 20 of those whose host does not depend on the
   * request. All are dialled at once, each within `connectMs`. Never rejects.
   */
  check(connectMs: number): Promise<CheckedTargets>
  /** CORS policies by path prefix, for the answers of a server that cannot reach the router. */
  cors(): { path: string; cors: CorsPolicy }[]
  /** Which webhooks the server may store when it cannot reach the router. */
  inbox(): readonly InboxRule[]
  stats(): RouterStats
  /**
   * Serves requests of `httpServer` before its own listeners see them. With `serves`, the router takes only requests for hosts
   * that it accepts, and the server keeps the rest. Without it, the router takes all. A pipeline is answered up to the first request of
   * ours that has to wait, and then the connection ends. Call it last: listeners that are added later get the router's requests, too.
   * Returns a function that detaches the router.
   *
   * @example
   * const server = http.createServer()
   * router.attach(server, { trustedProxies: ['10.0.0.0/8'] })
   * server.listen(8080)
   *
   * @throws {TypeError} for a bad `trustedProxies`, and for a server of `node:http2`, even with `allowHTTP1`.
   */
  attach(httpServer: HttpServer, options?: AttachOptions): () => void
  /** Lets open exchanges finish within `graceMs` (default 0), and closes idle connections to upstreams. */
  close(options?: { graceMs?: number }): Promise<void>
}

/**
 * Creates a router from a table, to put in front of your own `http.Server` or behind a tunnel.
 *
 * @throws {RouteTableError} that lists every problem of the table.
 *
 * @example
 * ```ts
 * import { createServer } from 'node:http'
 * import { createRouter, gitopsRuntime } from 'sallyport/router'
 *
 * const router = createRouter({ routes: gitopsRuntime({ namespaces: ['demo'] }) })
 * const server = createServer()
 * router.attach(server, { trustedProxies: ['10.0.0.0/8'] })
 * server.listen(8080)
 * ```
 */
export function createRouter(options: RouterOptions): Router {
  checkMembers('', options, ROUTER_MEMBERS, UPSTREAM_LIMITS)
  const logger = safeLogger(options.logger)
  const compile = (routes: RouteTable): CompiledTable => {
    const table = compileTable(withResolve(routes, options.resolve))
    for (const warning of table.warnings) logger.warn({}, warning)
    return table
  }
  let table = compile(options.routes)
  const upstreams = new Upstreams(options)
  const hooks = new RouterHooks(logger)
  const close = async (options: GraceOptions = {}): Promise<void> => {
    await hooks.whenIdle(graceOf(options, 0))
    upstreams.close()
  }
  const bodyBytes = new BodyBytes()
  const onExchange = hook('onExchange', options.onExchange, logger)
  const recorded = record(onExchange, bodyBytes)
  const handler = compose(
    [recorded],
    routeHandler(() => table, upstreams, hooks),
  )
  return {
    handler,
    reload: routes => {
      table = compile(routes)
    },
    match: question => explainMatch(table, question),
    check: connectMs => checkTargets(table, checkDuration('connectMs', connectMs)),
    inbox: () => table.inbox,
    cors: () => publishedRules(table.routes.map(({ route }) => route)),
    stats: () => ({
      active: hooks.active,
      total: hooks.total,
      routes: table.routes.length,
      upstreams: upstreams.stats(),
      ...bodyBytes,
    }),
    attach: (httpServer, options = {}) => {
      checkMembers('', options, ATTACH_MEMBERS)
      const { trustedProxies = [], serves = () => true } = options
      return mount(httpServer, {
        handler: withListenerLayers(handler, parseCidrs(trustedProxies), recordRefused(onExchange)),
        serves,
        limits: INNER_LIMITS,
        logger,
      })
    },
    close,
    [Symbol.asyncDispose]: () => close(),
  }
}

function withResolve(routes: RouteTable, resolve: RouteTable['resolve']): RouteTable {
  return resolve === undefined ? routes : { ...routes, resolve: { ...routes.resolve, ...resolve } }
}

class RouterHooks implements ExchangeHooks {
  readonly logger: Logger
  total = 0
  #active = 0
  #idle: (() => void)[] = []

  constructor(logger: Logger) {
    this.logger = logger
  }

  get active(): number {
    return this.#active
  }

  set active(count: number) {
    this.#active = count
    if (count > 0 || this.#idle.length === 0) return
    const waiting = this.#idle
    this.#idle = []
    for (const notify of waiting) notify()
  }

  async whenIdle(ms: number): Promise<void> {
    if (this.#active === 0 || ms <= 0) return
    await new Promise<void>(resolve => {
      const timer = setTimeout(resolve, ms)
      this.#idle.push(() => {
        clearTimeout(timer)
        resolve()
      })
    })
  }
}
