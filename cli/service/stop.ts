import { isatty } from 'node:tty'
import { logGuard } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'

/** A terminal sends its Ctrl-C to a whole group of processes, and some of them pass it on; it says more than once that it is gone. */
const ECHO_MS = 100
const ECHOED: readonly string[] = ['SIGINT', 'SIGHUP']

const ENDING = ['SIGTERM', 'SIGINT']
/** They ask other programs to read their files anew, or to open their logs. Without a handler they end us, or open a debugger. */
const UNHEEDED = ['SIGHUP', 'SIGUSR1', 'SIGUSR2']

export interface StopSignal {
  /** Resolves at the first SIGTERM or SIGINT, or the SIGHUP of a terminal. */
  readonly stopped: Promise<string>
  /** Aborted at the first, too. */
  readonly first: AbortSignal
  /** Aborted at the second. */
  readonly now: AbortSignal
  close(): void
}

/**
 * The first signal asks for a graceful end, a second one for the end at once. `hasTerminal`: somebody sits at one, and when it is
 * gone nobody is left who would end us.
 */
export function awaitStop(logger: Logger, hasTerminal = isatty(0)): StopSignal {
  const now = new AbortController()
  const begun = new AbortController()
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
      begun.abort()
      resolve(signal)
    } else if (!ECHOED.includes(signal) || first.signal !== signal || performance.now() - first.at > ECHO_MS) {
      logger.warn({ signal }, 'stopping at once')
      now.abort()
    }
  })
  const onOther = guard((signal: string) =>
    logger.info({ signal }, 'this signal does nothing: changed files are reloaded automatically'),
  )
  const ending = hasTerminal ? [...ENDING, 'SIGHUP'] : ENDING
  const others = UNHEEDED.filter(signal => !ending.includes(signal))
  for (const signal of ending) process.on(signal, onSignal)
  for (const signal of others) process.on(signal, onOther)
  return {
    stopped,
    first: begun.signal,
    now: now.signal,
    close() {
      for (const signal of ending) process.off(signal, onSignal)
      for (const signal of others) process.off(signal, onOther)
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
