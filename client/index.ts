/**
 * The tunnel client: dials out, keeps sessions with a server, and hands the exchanges that arrive on them to a target.
 *
 * @example
 * ```ts
 * import { connect } from 'sallyport/client'
 *
 * await using tunnel = await connect({
 *   url: 'wss://connect.example.com',
 *   token: () => process.env.TOKEN ?? '',
 *   target: request => new Response(`hello from ${new URL(request.url).pathname}\n`),
 * })
 * ```
 */

import { formatDuration } from '../protocol/base/durations.ts'
import { SallyportError } from '../protocol/base/errors.ts'
import { guardWith, safeLogger } from '../protocol/base/guard.ts'
import type { Logger } from '../protocol/base/log.ts'
import { Client } from './client.ts'
import { type ClientOptions, checkOptionTypes } from './options.ts'
import type { Tunnel } from './tunnel.ts'

export { type ErrorCode, SallyportError } from '../protocol/base/errors.ts'
export type { Logger } from '../protocol/base/log.ts'
export type { Probe } from '../protocol/base/probe.ts'
export type { ExchangeRecord, Handler } from '../protocol/exchange.ts'
export type { Layer } from '../protocol/layer.ts'
export type { CorsRule } from '../protocol/wire/control.ts'
export { diagnose } from './diagnose.ts'
export type { BackoffOptions } from './dial/backoff.ts'
export type { ClientCertificate } from './dial/trust.ts'
export type {
  InspectedBody,
  InspectedDetail,
  InspectedExchange,
  InspectedFields,
  InspectedMessage,
  InspectedTimings,
  Inspector,
  InspectorStats,
  ReplayEdits,
  ReplayOptions,
} from './inspect/inspected.ts'
export type { SessionLimitOptions } from './limits.ts'
export type { ClientOptions, HandlerTarget, Target } from './options.ts'
export type { FetchHandler } from './targets/function.ts'
export type { TokenSource } from './token.ts'
export type { CloseOptions, ConnectionStats, SessionStats, Tunnel, TunnelEvents, TunnelStats } from './tunnel.ts'

/** After this time without a session, `connect` warns. */
const WARN_MS = 10_000

/**
 * Opens a tunnel and waits for its first session. A failed attempt does not reject: the client retries with back-off and
 * reports the reason in the log and in the events `reconnecting` and `refused` (see the option `on`). After 10 s without a
 * session it logs a warning, or emits a process warning (`SALLYPORT_NO_SESSION`) if there is no logger.
 *
 * Rejects with TypeError for options that can never work, with the reason of `signal` when that aborts, and with
 * SallyportError `runtime-offline` after `connectTimeoutMs`.
 *
 * @example
 * ```ts
 * import { readFile } from 'node:fs/promises'
 * import { connect } from 'sallyport/client'
 *
 * await using tunnel = await connect({
 *   url: 'wss://connect.example.com',
 *   token: () => readFile('token', 'utf8'),
 *   target: 'http://127.0.0.1:3000',
 * })
 * ```
 */
export async function connect(options: ClientOptions): Promise<Tunnel> {
  checkOptionTypes(options)
  const { signal, connectTimeoutMs = 0 } = options
  signal?.throwIfAborted()
  const tunnel = createTunnel(options)
  const given = Promise.withResolvers<never>()
  const guard = guardWith(given.reject)
  const onAbort = guard(() => given.reject(signal?.reason))
  signal?.addEventListener('abort', onAbort)
  // A source of tokens, which was just asked for the first one, may have aborted it.
  if (signal?.aborted === true) onAbort()
  const warning = setTimeout(
    guard(() => warnOfWait(tunnel, options.logger)),
    WARN_MS,
  )
  const timer =
    connectTimeoutMs > 0
      ? setTimeout(
          guard(() => given.reject(late(tunnel, connectTimeoutMs))),
          connectTimeoutMs,
        )
      : undefined
  try {
    await Promise.race([tunnel.connected(), given.promise])
    return tunnel
  } catch (error) {
    await tunnel.close({ graceMs: 0 })
    throw error
  } finally {
    clearTimeout(timer)
    clearTimeout(warning)
    signal?.removeEventListener('abort', onAbort)
  }
}

/**
 * Like {@link connect}, but returns the handle at once. Throws TypeError for options that can never work.
 *
 * @example
 * ```ts
 * import { createTunnel } from 'sallyport/client'
 *
 * const tunnel = createTunnel({
 *   url: 'wss://connect.example.com',
 *   token: () => process.env.TOKEN ?? '',
 *   target: 'http://127.0.0.1:3000',
 * })
 * tunnel.on('connected', ({ runtime }) => console.log(`serving ${runtime}`))
 * ```
 */
export function createTunnel(options: ClientOptions): Tunnel {
  return new Client(options)
}

function late(tunnel: Tunnel, afterMs: number): SallyportError {
  return new SallyportError('runtime-offline', noSession(tunnel, afterMs))
}

/** A caller who waits should learn why, even without a logger. */
function warnOfWait(tunnel: Tunnel, logger: Logger | undefined): void {
  const message = `${noSession(tunnel, WARN_MS)}; connect() keeps trying`
  if (logger === undefined) process.emitWarning(message, { code: 'SALLYPORT_NO_SESSION' })
  else safeLogger(logger).warn({}, message)
}

function noSession(tunnel: Tunnel, afterMs: number): string {
  const reason = tunnel.stats().connections.find(({ lastError }) => lastError !== undefined)?.lastError
  return `no session within ${formatDuration(afterMs)}${reason === undefined ? '' : `: ${reason}`}`
}
