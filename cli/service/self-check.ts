import { type ClientOptions, diagnose, type Tunnel } from '../../client/index.ts'
import { detached, logGuard } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'

const AFTER_MS = 30_000

/**
 * Says once an outage, in one line, at which step the way to the server ends: 30 s after the last session has gone, or the start.
 * `options`: those in force, since certificates may have changed.
 */
export function checkWhenAway(
  tunnel: Tunnel,
  options: () => ClientOptions,
  logger: Logger,
  afterMs: number = AFTER_MS,
): { close(): void } {
  const stopping = new AbortController()
  const guard = logGuard(logger, 'the way to the server could not be checked')
  let timer: NodeJS.Timeout | undefined
  const look = async () => {
    const probes = await diagnose({ ...options(), signal: stopping.signal })
    if (stopping.signal.aborted || tunnel.ready()) return
    const failed = probes.filter(({ status }) => status === 'fail')
    for (const { code, what, found, hint } of failed.slice(0, 1)) {
      logger.warn({ code }, `no session for ${afterMs / 1000} s; ${code} of ${what}: ${found}. ${hint}`.trimEnd())
    }
    if (failed.length === 0) logger.warn({}, 'no session, though a check goes through to the server; its log says more')
  }
  const begin = guard(() => detached(logger, 'the check of the way to the server', look()))
  const wait = guard(() => {
    clearTimeout(timer)
    if (!tunnel.ready()) timer = setTimeout(begin, afterMs).unref()
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
