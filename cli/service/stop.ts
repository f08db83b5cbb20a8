import { setTimeout as pause } from 'node:timers/promises'
import { isatty } from 'node:tty'
import { logGuard } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'

/** Within this time, a repeated signal counts as the same: Ctrl-C goes to a whole group of processes, some of which pass it on, and a closing terminal signals more than once. */
const ECHO_MS = 100
const ECHOED: readonly string[] = ['SIGINT', 'SIGHUP']

const STOP_SIGNALS = ['SIGTERM', 'SIGINT']
/** Signals that make other programs reload files or reopen logs. Without a handler, they would end us or open a debugger. */
const IGNORED = ['SIGHUP', 'SIGUSR1', 'SIGUSR2']

export interface StopSignal {
  /** Resolves at the first SIGTERM or SIGINT, or the SIGHUP of a terminal. */
  readonly stopped: Promise<string>
  /** Aborted at the first signal. */
  readonly first: AbortSignal
  /** Aborted at the second signal. */
  readonly now: AbortSignal
  /** Ends the process by the first signal, as if there were no handler. */
  die(): void
  close(): void
}

/**
 * The first signal asks for a graceful stop, and a second one for an immediate one. `hasTerminal`: the process runs at a
 * terminal, and should stop when that closes, since nobody would be left to stop it.
 */
export function awaitStop(logger: Logger, hasTerminal = isatty(0)): StopSignal {
  const now = new AbortController()
  const begun = new AbortController()
  let first: { signal: string; at: number } | undefined
  const { promise: stopped, resolve } = Promise.withResolvers<string>()
  const guard = logGuard(logger, 'a signal could not be handled')
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
  const signals = hasTerminal ? [...STOP_SIGNALS, 'SIGHUP'] : STOP_SIGNALS
  const others = IGNORED.filter(signal => !signals.includes(signal))
  for (const signal of signals) process.on(signal, onSignal)
  for (const signal of others) process.on(signal, onOther)
  const close = () => {
    for (const signal of signals) process.off(signal, onSignal)
    for (const signal of others) process.off(signal, onOther)
  }
  const die = () => {
    close()
    // The kernel gives the first process of a container no signal that nobody listens for.
    if (process.pid !== 1) process.kill(process.pid, first?.signal)
  }
  return { stopped, first: begun.signal, now: now.signal, die, close }
}

/** How long the rest may take after giving up. The directory is notified, and has 2 s to answer. */
const GIVE_UP_MS = 3000
/** How long the log may take to write its last lines. */
const LOG_FLUSH_MS = 50

/**
 * Returns the result of `starting`, or undefined if it failed after the first signal. If it does not end soon after that, or a
 * second signal arrives, the signal ends the process. The start then waits for a file or a name, which `process.exit` would
 * wait for, too.
 */
export async function unlessGivenUp<T>(starting: Promise<T>, stop: StopSignal, logger: Logger): Promise<T | undefined> {
  const { promise: late, resolve } = Promise.withResolvers<void>()
  const guard = logGuard(logger, 'a signal could not be handled')
  let timer: NodeJS.Timeout | undefined
  const onFirst = guard(() => {
    timer = setTimeout(resolve, GIVE_UP_MS)
  })
  const onSecond = guard(() => resolve())
  stop.first.addEventListener('abort', onFirst)
  stop.now.addEventListener('abort', onSecond)
  if (stop.first.aborted) onFirst()
  if (stop.now.aborted) onSecond()
  const ended = starting.catch(error => {
    if (!stop.first.aborted) throw error
    return undefined
  })
  const died = late.then(async () => {
    logger.warn({}, 'the start is stuck: the signal ends the process')
    await pause(LOG_FLUSH_MS)
    stop.die()
    return undefined
  })
  try {
    return await Promise.race([ended, died])
  } finally {
    clearTimeout(timer)
    stop.first.removeEventListener('abort', onFirst)
    stop.now.removeEventListener('abort', onSecond)
  }
}

/** Waits for `closing`, but not beyond the second signal. */
export async function untilSecondSignal(closing: Promise<void>, now: AbortSignal): Promise<void> {
  if (now.aborted) return
  const { promise, resolve } = Promise.withResolvers<unknown>()
  now.addEventListener('abort', resolve)
  await Promise.race([closing, promise])
}
