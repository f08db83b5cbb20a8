/** Forwards everything to one upstream, without a table: the client's `target: URL`. Loads no YAML. */

import { safeLogger } from '../protocol/base/guard.ts'
import type { Logger } from '../protocol/base/log.ts'
import { checkMembers, type Members } from '../protocol/base/members.ts'
import type { Handler } from '../protocol/exchange.ts'
import { type CheckedTargets, checkTargets } from './check.ts'
import { compileTable } from './compile.ts'
import type { CompiledTable } from './compiled.ts'
import type { ExchangeHooks } from './handler/exchange.ts'
import { routeHandler } from './handler/handler.ts'
import { formatPath, type Route, type RouteTable, RouteTableError } from './table.ts'
import { UPSTREAM_LIMITS, Upstreams, type UpstreamsOptions, type UpstreamsStats } from './upstream/upstreams.ts'

/** Options of a {@link Route} that make sense for a single target. */
export interface ForwarderOptions extends UpstreamsOptions {
  /** Same as in a route. */
  host?: Route['host']
  timeouts?: Route['timeouts']
  limits?: Route['limits']
  tls?: Route['tls']
  trustErrors?: Route['trustErrors']
  retries?: Route['retries']
  cors?: Route['cors']
  resolve?: RouteTable['resolve']
  logger?: Logger | undefined
}

const MEMBERS: Members<ForwarderOptions, typeof UPSTREAM_LIMITS> = {
  host: 'string',
  timeouts: 'object',
  limits: 'object',
  tls: 'object',
  trustErrors: 'boolean',
  retries: 'object',
  cors: 'object',
  resolve: 'object',
  logger: 'object',
}

/** One target, without a table. */
export interface Forwarder {
  readonly handler: Handler
  /** Same as `Router.check`. */
  check(connectMs: number): Promise<CheckedTargets>
  stats(): UpstreamsStats
  close(): void
}

/**
 * Forwards every request to `targetUrl` (`http:`, `https:` or `h2c:`, only host and port), with path and query unchanged.
 * Throws TypeError if the target or an option cannot be used.
 *
 * @example
 * ```ts
 * import { createForwarder } from 'sallyport/router'
 *
 * const forwarder = createForwarder('http://127.0.0.1:3000', { timeouts: { headMs: 10_000 } })
 * ```
 */
export function createForwarder(targetUrl: string | URL, options: ForwarderOptions = {}): Forwarder {
  checkMembers('', options, MEMBERS, UPSTREAM_LIMITS)
  const { host, timeouts, limits, tls, trustErrors, retries, cors, resolve } = options
  const target = String(targetUrl)
  const route: Route = { name: 'target', match: {}, target, host, timeouts, limits, tls, trustErrors, retries, cors }
  const table = compileOne({ routes: [route], resolve })
  const logger = safeLogger(options.logger)
  for (const warning of table.warnings) logger.warn({}, warning)
  const upstreams = new Upstreams(options)
  const hooks: ExchangeHooks = { logger, active: 0, total: 0 }
  return {
    handler: routeHandler(() => table, upstreams, hooks),
    check: connectMs => checkTargets(table, connectMs),
    stats: () => upstreams.stats(),
    close: () => upstreams.close(),
  }
}

function compileOne(table: RouteTable): CompiledTable {
  try {
    return compileTable(table)
  } catch (error) {
    if (!(error instanceof RouteTableError)) throw error
    const lines = error.problems.map(({ path, message }) => `${formatPath(path.slice(2))}: ${message}`)
    throw new TypeError(lines.join('\n'), { cause: error })
  }
}
