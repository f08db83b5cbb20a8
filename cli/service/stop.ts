import { setTimeout as pause } from 'node:timers/promises'
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
  /** Aborted at the first signal. */
  readonly first: AbortSignal
  /** Aborted at the second signal. */
  readonly now: AbortSignal
  /** Lets the first signal end the process, as it does where nobody listens for it. */
  die(): void
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
  const close = () => {
    for (const signal of ending) process.off(signal, onSignal)
    for (const signal of others) process.off(signal, onOther)
  }
  const die = () => {
    close()
    // The kernel gives the first process of a container no signal that nobody listens for.
    if (process.pid !== 1) process.kill(process.pid, first?.signal)
  }
  return { stopped, first: begun.signal, now: now.signal, die, close }
}

/** How long the rest may take to end after giving up: the directory is told, and has 2 s to answer. */
const GIVE_UP_MS = 3000
/** How long the log may take to say so. */
const LAST_WORDS_MS = 50

/**
 * What `starting` gives, or undefined if it failed after the first signal. If it does not end soon after that, or a second one
 * comes, the signal ends the process: it waits for a file or a name, and `process.exit` would wait for these as well.
 */
export async function unlessGivenUp<T>(starting: Promise<T>, stop: StopSignal, logger: Logger): Promise<T | undefined> {
  const { promise: late, resolve } = Promise.withResolvers<void>()
  const guard = logGuard(logger, 'a signal was not heeded')
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
    logger.warn({}, 'the start does not end: the signal ends the process')
    await pause(LAST_WORDS_MS)
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
export async function unlessNow(closing: Promise<void>, now: AbortSignal): Promise<void> {
  if (now.aborted) return
  const { promise, resolve } = Promise.withResolvers<unknown>()
  now.addEventListener('abort', resolve)
  await Promise.race([closing, promise])
}
