/** Public door of the router: `sallyport/router`. */
import type { RouteTable } from './table.ts'

export type { ExchangeRecord, Handler } from '../protocol/exchange.ts'
export type { Logger } from '../protocol/log.ts'
export type { CorsPolicy } from '../protocol/problem.ts'
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

/** Reads and checks a routes file (YAML). Throws `RouteTableError`; its message has file, line and column. */
export async function readRoutes(file: string): Promise<RouteTable> {
  const tableFile = await import('./table-file.ts')
  return tableFile.readRoutes(file)
}
