/** The router as a component: a handler with a table that can be replaced while it serves. */
import type { Server as HttpServer } from 'node:http'
import { checkDuration } from '../protocol/base/durations.ts'
import { hook, safeLogger } from '../protocol/base/guard.ts'
import type { Logger } from '../protocol/base/log.ts'
import type { ExchangeRecord, Handler } from '../protocol/exchange.ts'
import { believing, parseCidrs } from '../protocol/http/forwarded.ts'
import { mount } from '../protocol/http/http1/mount.ts'
import { INNER_LIMITS } from '../protocol/http/limits.ts'
import type { CorsPolicy } from '../protocol/http/problem.ts'
import { record } from '../protocol/http/record.ts'
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
import { createUpstreams, type UpstreamsOptions, type UpstreamsStats } from './upstream/upstreams.ts'

/** What {@link createRouter} takes: the table, and bounds on connections to upstreams. */
export interface RouterOptions extends UpstreamsOptions {
  /** The route table. */
  routes: RouteTable
  /** Added to the table's own `resolve`, which it overrides. */
  resolve?: Record<string, string> | undefined
  /** Where log lines go. Default: nowhere. */
  logger?: Logger | undefined
  /** Called once per exchange, when it is over. */
  onExchange?: ((record: ExchangeRecord) => void) | undefined
}

/** Whom a router on your own `http.Server` believes, and which requests it takes. */
export interface AttachOptions {
  /** Peers (CIDRs) whose `X-Forwarded-*` fields the router believes: the ingress, the tunnel client. Default: nobody. */
  trustedProxies?: readonly string[] | undefined
  /** Whether the router takes requests for this host (with its port, if it has one). Default: it takes all. */
  serves?: ((authority: string) => boolean) | undefined
}

/** Exchanges and connections of a router. */
export interface RouterStats {
  /** Exchanges under way, and all since the start. */
  active: number
  total: number
  routes: number
  upstreams: UpstreamsStats
}

/** A route table at work. */
export interface Router extends AsyncDisposable {
  /** Takes requests; `connect({ target: router })` uses it. */
  readonly handler: Handler
  /** Uses another table for requests from now on. If it is wrong, throws `RouteTableError` and keeps the old one. */
  reload(routes: RouteTable): void
  /** Says which route a request would take, and why. Forwards nothing. */
  match(question: MatchQuestion): MatchResult
  /**
   * Opens a connection to each target whose host no caller names, at most 20, and sends nothing. Each has `connectMs`, all at
   * once. Never rejects.
   */
  check(connectMs: number): Promise<CheckedTargets>
  /** CORS policies by path prefix, for answers that others make when the router cannot be reached. */
  cors(): { path: string; cors: CorsPolicy }[]
  /** Which webhooks may be kept when the router cannot be reached. */
  inbox(): readonly InboxRule[]
  stats(): RouterStats
  /**
   * Serves requests of `httpServer` before its own listeners see them. Returns a function that stops that. With `serves`, the
   * router takes only requests for hosts that it accepts, and the server keeps the rest. Without it, the router takes all.
   *
   * @example
   * const server = http.createServer()
   * router.attach(server, { trustedProxies: ['10.0.0.0/8'] })
   * server.listen(8080)
   *
   * @throws {TypeError} for a bad `trustedProxies`.
   */
  attach(httpServer: HttpServer, options?: AttachOptions): () => void
  /** Lets open exchanges finish within `graceMs` (default 0), and closes idle connections to upstreams. */
  close(options?: { graceMs?: number }): Promise<void>
}

/**
 * Makes a router for a table, to put in front of your own `http.Server` or behind a tunnel.
 *
 * @throws {RouteTableError} with every problem of the table.
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
  const logger = safeLogger(options.logger)
  const compile = (routes: RouteTable): CompiledTable => {
    const table = compileTable(withResolve(routes, options.resolve))
    for (const warning of table.warnings) logger.warn({}, warning)
    return table
  }
  let table = compile(options.routes)
  const upstreams = createUpstreams(options)
  const hooks = new RouterHooks(logger)
  const close = async ({ graceMs = 0 }: { graceMs?: number } = {}): Promise<void> => {
    await hooks.whenIdle(checkDuration('graceMs', graceMs))
    upstreams.close()
  }
  const recorded = record(hook('onExchange', options.onExchange, logger))
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
    }),
    attach: (httpServer, { trustedProxies = [], serves = () => true } = {}) =>
      mount(httpServer, {
        handler: believing(handler, parseCidrs(trustedProxies)),
        serves,
        limits: INNER_LIMITS,
        logger,
      }),
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
    for (const tell of waiting) tell()
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
