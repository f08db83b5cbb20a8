/**
 * The request router: sends requests to services according to one route table, behind a tunnel, behind an ingress, or in
 * front of your own `http.Server`.
 *
 * @example
 * ```ts
 * import { createRouter } from 'sallyport/router'
 *
 * const router = createRouter({
 *   routes: { routes: [{ name: 'api', match: { path: '/api' }, target: 'http://127.0.0.1:3000' }] },
 * })
 * router.match({ url: '/api/items' }).explanation
 * ```
 */
import type { RouteTable } from './table.ts'

export type { Logger } from '../protocol/base/log.ts'
export type { ExchangeRecord, Handler } from '../protocol/exchange.ts'
export type { CorsPolicy } from '../protocol/http/problem.ts'
export type { CheckedTarget, CheckedTargets } from './check.ts'
export type { MatchQuestion, MatchResult } from './explain.ts'
export { createForwarder, type Forwarder, type ForwarderOptions } from './forward.ts'
export { type GitopsRuntimeOptions, gitopsRuntime } from './preset.ts'
export { type AttachOptions, createRouter, type Router, type RouterOptions, type RouterStats } from './router.ts'
export { type RouterService, type RouterServiceOptions, serveRouter } from './service.ts'
export {
  type HeaderRules,
  type PrefixReplacement,
  type Route,
  type RouteMatch,
  type RouteProblem,
  type RouteRetries,
  type RouteTable,
  RouteTableError,
  type RouteTimeouts,
  type RouteTls,
  type StaticAnswer,
} from './table.ts'

/**
 * Reads and checks a routes file (YAML). Throws `RouteTableError`, whose message has file, line and column.
 *
 * @example
 * ```ts
 * import { createRouter, readRoutes } from 'sallyport/router'
 *
 * const router = createRouter({ routes: await readRoutes('routes.yaml') })
 * ```
 */
export async function readRoutes(file: string): Promise<RouteTable> {
  const tableFile = await import('./table-file.ts')
  return tableFile.readRoutes(file)
}
