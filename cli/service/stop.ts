import { logGuard } from '../../protocol/guard.ts'
import type { Logger } from '../../protocol/log.ts'

/** A terminal sends its Ctrl-C to a whole group of processes, and some of them pass it on. */
const ECHO_MS = 100

export interface StopSignal {
  /** Resolves at the first SIGTERM or SIGINT. */
  readonly stopped: Promise<string>
  /** Aborted at the second, or by `atOnce`. */
  readonly now: AbortSignal
  close(): void
}

/** The first signal asks for a graceful end, a second one for the end at once. */
export function awaitStop(logger: Logger): StopSignal {
  const now = new AbortController()
  let first: { signal: string; at: number } | undefined
  let resolve: (signal: string) => void = () => {}
  const stopped = new Promise<string>(done => {
    resolve = done
  })
  const guard = logGuard(logger, 'a signal was not heeded')
  const onSignal = guard((signal: string) => {
    if (first === undefined) {
      first = { signal, at: performance.now() }
      logger.info({ signal }, 'stopping')
      resolve(signal)
    } else if (signal !== 'SIGINT' || first.signal !== signal || performance.now() - first.at > ECHO_MS) {
      logger.warn({ signal }, 'stopping at once')
      now.abort()
    }
  })
  process.on('SIGTERM', onSignal)
  process.on('SIGINT', onSignal)
  return {
    stopped,
    now: now.signal,
    close() {
      process.off('SIGTERM', onSignal)
      process.off('SIGINT', onSignal)
    },
  }
}

/** Waits for `closing`, but not beyond the second signal. */
export async function unlessNow(closing: Promise<void>, now: AbortSignal): Promise<void> {
  if (now.aborted) return
  const { promise, resolve } = Promise.withResolvers<unknown>()
  now.addEventListener('abort', resolve)
  await Promise.race([closing, promise])
}
