/**
 * Sallyport: a secure reverse tunnel for HTTP. This entry point loads all three parts; `sallyport/server`,
 * `sallyport/client` and `sallyport/router` load only one.
 *
 * @example
 * ```ts
 * import { connect, createRouter, readRoutes } from 'sallyport'
 *
 * const router = createRouter({ routes: await readRoutes('routes.yaml') })
 * await using tunnel = await connect({ url: 'wss://connect.example.com', token: () => process.env.TOKEN ?? '', target: router })
 * ```
 */
export { type ClientOptions, connect, type Tunnel } from './client/index.ts'
export { ERRORS, type ErrorCode, SallyportError } from './protocol/base/errors.ts'
export type { Logger } from './protocol/base/log.ts'
export type { ExchangeRecord, Handler } from './protocol/exchange.ts'
export {
  createRouter,
  gitopsRuntime,
  type Router,
  type RouterOptions,
  type RouteTable,
  readRoutes,
  serveRouter,
} from './router/index.ts'
export { createServer, type Server, type ServerOptions } from './server/index.ts'
