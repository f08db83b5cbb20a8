/** Turns whatever the embedder gave as `target` into a handler. */
import { Server as HttpServer } from 'node:http'
import type { Logger } from '../../protocol/base/log.ts'
import type { Handler } from '../../protocol/exchange.ts'
import type { CorsRule } from '../../protocol/wire/control.ts'
import type { CheckedTargets } from '../../router/check.ts'
import type { Announcement, HandlerTarget, Target } from '../options.ts'
import { functionTarget } from './function.ts'
import { nodeServerTarget } from './node-server.ts'
import { urlTarget } from './url.ts'

export interface OpenTarget {
  readonly handler: Handler
  /** The CORS rules for error answers, and which webhooks the server may store. */
  announcement(): Announcement
  /** Absent if the target has nothing to dial. */
  check?(connectMs: number): Promise<CheckedTargets>
  /** Frees its resources, once all exchanges have ended. */
  close(): void
}

/** Throws TypeError for anything that is not a target. A router belongs to its maker and is not closed here. */
export function openTarget(target: Target, logger: Logger): OpenTarget {
  if (typeof target === 'string' || target instanceof URL) return urlTarget(target, logger)
  if (target instanceof HttpServer) return nodeServerTarget(target, logger)
  if (typeof target === 'function') {
    return { handler: functionTarget(target, logger), announcement: () => ({ cors: [] }), close() {} }
  }
  if (isHandlerTarget(target))
    return {
      handler: target.handler,
      announcement: () => announcementOf(target),
      close() {},
      ...(target.check && { check: target.check.bind(target) }),
    }
  throw new TypeError('target must be a URL, a router, an http.Server, or a function that takes a Request')
}

function isHandlerTarget(target: unknown): target is HandlerTarget {
  return typeof target === 'object' && target !== null && 'handler' in target && typeof target.handler === 'function'
}

function announcementOf(target: HandlerTarget): Announcement {
  const inbox = target.inbox?.() ?? []
  return { cors: corsOf(target), ...(inbox.length > 0 && { inbox: [...inbox] }) }
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
