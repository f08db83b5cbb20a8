/** The router as a service: a router with a listener and, optionally, a watched routes file. */

import { parseCidrs } from '../protocol/base/address.ts'
import { checkAuthorities } from '../protocol/base/certificates.ts'
import { type GraceOptions, graceOf } from '../protocol/base/grace.ts'
import { safeLogger } from '../protocol/base/guard.ts'
import { checkMembers, type Members } from '../protocol/base/members.ts'
import { checkTlsMin } from '../protocol/base/tls-profile.ts'
import type { Handler } from '../protocol/exchange.ts'
import { INNER_LIMITS } from '../protocol/http/limits.ts'
import { type Listener, type ListenerOptions, listen } from '../protocol/http/listener.ts'
import { recordRefused } from '../protocol/http/record.ts'
import { followTrace } from '../protocol/trace/follow.ts'
import { resolveTracing, type Tracing, type TracingOptions } from '../protocol/trace/sampling.ts'
import { compileTable } from './compile.ts'
import { createRouter, ROUTER_MEMBERS, type Router, type RouterOptions, type RouterStats } from './router.ts'
import { type RouteTable, RouteTableError } from './table.ts'
import { UPSTREAM_LIMITS } from './upstream/upstreams.ts'
import { type RoutesWatcher, watchRoutes } from './watch.ts'

/** Options of {@link serveRouter}: the table or its file, the listener, and trusted proxies. */
export interface RouterServiceOptions extends Omit<RouterOptions, 'routes'> {
  /** A table, or a file, which is watched and reloaded. */
  routes: RouteTable | { file: string }
  /** Default `127.0.0.1`. */
  host?: string | undefined
  /** Default 8081. 0 picks a free port. */
  port?: number | undefined
  /** A listening socket that a supervisor passed to this process, instead of host and port. */
  fd?: number | undefined
  /** Certificate and key. Default: plain HTTP. */
  tls?: ListenerOptions['tls']
  /** Peers (CIDRs) whose `X-Forwarded-*` fields the router trusts: the ingress, the tunnel client. Default: none. */
  trustedProxies?: readonly string[] | undefined
  /** Serves HTTP/2: by ALPN, or with prior knowledge on a plain listener. Default true. */
  http2?: boolean | undefined
  /** Limits of the listener. Heads may have 128 fields and 32 KiB by default: what the edge accepts, plus what is added on the way. */
  limits?: ListenerOptions['limits']
  /** Traces requests: continues the traces of trusted proxies, and samples a share of the others. Default: off; `traceparent` passes unchanged. */
  tracing?: TracingOptions | undefined
  /** Most connections of callers; see `ListenerOptions`. `maxUpstreamConnections` limits those to upstreams. */
  maxConnections?: number | undefined
}

const MEMBERS: Members<RouterServiceOptions, typeof UPSTREAM_LIMITS> = {
  ...ROUTER_MEMBERS,
  host: 'string',
  port: 'number',
  fd: 'number',
  tls: 'object',
  trustedProxies: 'strings',
  http2: 'boolean',
  limits: 'object',
  tracing: 'object',
  maxConnections: 'number',
}

const TLS: Members<NonNullable<ListenerOptions['tls']>> = {
  key: 'any',
  cert: 'content',
  ca: 'content',
  requestCert: 'boolean',
  rejectUnauthorized: 'boolean',
  minVersion: 'string',
  secureOptions: 'number',
  ocsp: 'object',
}

/** A router with a listener of its own. */
export interface RouterService extends AsyncDisposable {
  /** The address that it listens on. */
  readonly address: { readonly host: string; readonly port: number }
  /** The router behind the listener. */
  readonly router: Router
  readonly listener: Listener
  stats(): RouterStats & { connections: number }
  /** Reads the routes file again, or uses the given table. Throws for a bad table, and keeps the old one. */
  reload(routes?: RouteTable): Promise<void>
  /** Sets the certificates for connections from now on. */
  setTls(tls: NonNullable<ListenerOptions['tls']>): void
  /** Stops taking new requests, and lets open exchanges finish within `graceMs` (default 10 s). */
  close(options?: { graceMs?: number }): Promise<void>
}

/**
 * Starts a router with a listener. Rejects with `RouteTableError` for a bad table, with the system's error if it cannot
 * listen, and with TypeError for a bad `trustedProxies`.
 *
 * @example
 * ```ts
 * import { serveRouter } from 'sallyport/router'
 *
 * await using service = await serveRouter({ routes: { file: 'routes.yaml' }, port: 8080, trustedProxies: ['10.0.0.0/8'] })
 * ```
 */
export async function serveRouter(options: RouterServiceOptions): Promise<RouterService> {
  checkMembers('', options, MEMBERS, UPSTREAM_LIMITS)
  checkTls(options.tls)
  if ('file' in options.routes) checkMembers('routes', options.routes, { file: 'string' })
  const logger = safeLogger(options.logger)
  const loaded = 'file' in options.routes ? await loadFile(options.routes.file) : undefined
  const table = loaded?.table ?? (options.routes as RouteTable)
  refuseInbox(table)
  const {
    host = '127.0.0.1',
    port = 8081,
    fd,
    tls,
    trustedProxies,
    http2,
    limits,
    tracing,
    maxConnections,
    ...own
  } = options
  const router = createRouter({ ...own, routes: table })
  const handler = traced(router.handler, resolveTracing(tracing))
  const rest: ListenerOptions = {
    http2,
    limits: { ...INNER_LIMITS, ...limits },
    maxConnections,
    logger,
    handler,
    trustedProxies: parseCidrs(trustedProxies ?? []),
    onBadRequest: recordRefused(options.onExchange),
  }
  const onTable = (table: RouteTable): void => take(router, table)
  const watcher =
    loaded && watchRoutes(loaded.text, loaded.table, { file: loaded.file, parse: loaded.parse, onTable, logger })
  const listener = await listen({ host, port, fd, tls, ...rest }).catch((error: unknown) => {
    watcher?.close()
    throw error
  })
  const close = async (options: GraceOptions = {}): Promise<void> => {
    const graceMs = graceOf(options, 10_000)
    watcher?.close()
    await listener.close({ graceMs })
    await router.close()
  }
  return {
    address: listener.address,
    router,
    listener,
    stats: () => ({ ...router.stats(), connections: listener.connections }),
    reload: routes => reload(router, watcher, routes),
    setTls: material => {
      checkTls(material)
      listener.setTls(material)
    },
    close,
    [Symbol.asyncDispose]: () => close(),
  }
}

function checkTls(tls: ListenerOptions['tls']): void {
  checkMembers('tls', tls, TLS)
  checkAuthorities('tls.ca', tls?.ca)
  checkTlsMin('tls.minVersion', tls?.minVersion)
}

function traced(handler: Handler, tracing: Tracing | undefined): Handler {
  if (tracing === undefined) return handler
  return (request, response) => followTrace(tracing, request.fromTrustedProxy === true, handler, request, response)
}

async function reload(router: Router, watcher: RoutesWatcher | undefined, routes?: RouteTable): Promise<void> {
  if (routes !== undefined) take(router, routes)
  else if (watcher === undefined) throw new TypeError('this router has no routes file: reload takes a table')
  else await watcher.reload()
}

function take(router: Router, table: RouteTable): void {
  refuseInbox(table)
  router.reload(table)
}

/** Refuses routes with an inbox: a server learns of them only from its client, so nobody would store the webhooks. */
function refuseInbox({ routes }: RouteTable): void {
  const problems = routes.flatMap((route, i) =>
    route.inbox === undefined
      ? []
      : [{ path: ['routes', i, 'inbox'], message: 'only a client has an inbox; verify alone works here' }],
  )
  if (problems.length > 0) throw new RouteTableError(problems)
}

interface LoadedFile {
  file: string
  text: string
  table: RouteTable
  parse: (text: string, file: string) => RouteTable
}

/** YAML and its schema are loaded only for a file. */
async function loadFile(file: string): Promise<LoadedFile> {
  const { parseRoutes, readTable } = await import('./table-file.ts')
  const text = await readTable(file)
  const parse = (text: string, file: string): RouteTable =>
    parseRoutes(text, file, table => {
      compileTable(table)
      refuseInbox(table)
    })
  return { file, text, table: parse(text, file), parse }
}
