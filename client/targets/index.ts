/** Turns whatever the embedder gave as `target` into a handler. */
import { Server as HttpServer } from 'node:http'
import type { CorsRule } from '../../protocol/wire/control.ts'
import type { Handler } from '../../protocol/exchange.ts'
import type { Logger } from '../../protocol/base/log.ts'
import type { HandlerTarget, Target } from '../options.ts'
import { functionTarget } from './function.ts'
import { nodeServerTarget } from './node-server.ts'
import { urlTarget } from './url.ts'

export interface OpenTarget {
  readonly handler: Handler
  /** How the target wants its failures shown to browsers. */
  cors(): readonly CorsRule[]
  /** Gives back what it holds; exchanges under way are over by then. */
  close(): void
}

/** Throws TypeError for what is no target. A router belongs to whoever made it and is not closed here. */
export function openTarget(target: Target, logger: Logger): OpenTarget {
  if (typeof target === 'string' || target instanceof URL) return urlTarget(target, logger)
  if (target instanceof HttpServer) return nodeServerTarget(target, logger)
  if (typeof target === 'function') return { handler: functionTarget(target, logger), cors: () => [], close() {} }
  if (isHandlerTarget(target)) return { handler: target.handler, cors: () => corsOf(target), close() {} }
  throw new TypeError('target must be a URL, a router, an http.Server, or a function that takes a Request')
}

function isHandlerTarget(target: unknown): target is HandlerTarget {
  return typeof target === 'object' && target !== null && 'handler' in target && typeof target.handler === 'function'
}

function corsOf(target: HandlerTarget): CorsRule[] {
  const rules: CorsRule[] = []
  for (const { path, cors } of target.cors?.() ?? []) {
    const { origins, methods, headers, exposeHeaders, credentials, maxAge } = cors
    rules.push({
      path,
      origins: [...origins],
      ...(methods && { methods: [...methods] }),
      ...(headers && { headers: [...headers] }),
      ...(exposeHeaders && { exposeHeaders: [...exposeHeaders] }),
      ...(credentials !== undefined && { credentials }),
      ...(maxAge !== undefined && { maxAge }),
    })
  }
  return rules
}
