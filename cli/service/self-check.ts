import { type ClientOptions, diagnose, type Tunnel } from '../../client/index.ts'
import { detached, logGuard } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'

const AFTER_MS = 30_000

/** Whether there is a live session, even if its server cannot register this instance, so that it is not ready. */
export function hasSession(tunnel: Tunnel): boolean {
  return tunnel.stats().sessions.some(({ state }) => state === 'ready')
}

/**
 * Logs, once per outage and in one line, which step towards the server fails: 30 s after the last session was lost, or after the
 * start. `options` must return the current options, since certificates may have changed.
 */
export function checkWhenAway(
  tunnel: Tunnel,
  options: () => ClientOptions,
  logger: Logger,
  afterMs: number = AFTER_MS,
): { close(): void } {
  const stopping = new AbortController()
  const guard = logGuard(logger, 'the connection to the server could not be checked')
  let timer: NodeJS.Timeout | undefined
  const look = async () => {
    const probes = await diagnose({ ...options(), signal: stopping.signal })
    if (stopping.signal.aborted || hasSession(tunnel)) return
    const failed = probes.filter(({ status }) => status === 'fail')
    for (const { code, what, found, hint } of failed.slice(0, 1)) {
      logger.warn(
        { code, of: what },
        `no session for ${afterMs / 1000} s; the check "${code}" fails: ${found}. ${hint}`.trimEnd(),
      )
    }
    if (failed.length === 0)
      logger.warn({}, 'no session, although a check gets through to the server; the log of the server says more')
  }
  const begin = guard(() => detached(logger, 'the check of the connection to the server', look()))
  const wait = guard(() => {
    clearTimeout(timer)
    if (!hasSession(tunnel)) timer = setTimeout(begin, afterMs).unref()
  })
  const arrived = guard(() => clearTimeout(timer))
  tunnel.on('connected', arrived)
  tunnel.on('disconnected', wait)
  wait()
  return {
    close() {
      clearTimeout(timer)
      stopping.abort()
    },
  }
}
