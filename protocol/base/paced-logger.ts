/** Limits log lines that strangers can cause at will, so that they neither fill a disk nor bury other lines. */
import type { Logger } from './log.ts'

export const PERIOD_MS = 10_000
/** Most lines of a kind within that time. */
export const LINES_PER_PERIOD = 100

type Level = 'info' | 'warn' | 'error'

/** Most kinds to track within that time. Info lines are counted per runtime, and there may be as many runtimes as sessions. */
const MOST_KINDS: Readonly<Record<Level, number>> = { info: 20_000, warn: 200, error: 200 }
const OTHERS = 'lines of other kinds'

interface Kind {
  readonly message: string
  lines: number
}

/**
 * Writes at most {@link LINES_PER_PERIOD} lines of a kind, and then one whose `unsaid` says how many were left out. Warnings and
 * errors are one kind per message, whoever caused them. Info lines are one kind per message and runtime, so that the sessions of
 * one runtime do not hide those of another.
 */
export class PacedLogger implements Logger {
  readonly #logger: Logger
  readonly #now: () => number
  readonly #kinds = { info: new Map<string, Kind>(), warn: new Map<string, Kind>(), error: new Map<string, Kind>() }
  #sinceMs = Number.NEGATIVE_INFINITY

  constructor(logger: Logger, now = () => performance.now()) {
    this.#logger = logger
    this.#now = now
  }

  /** Not limited: anyone who turns on debug lines wants all of them. */
  debug(fields: object, message: string): void {
    this.#logger.debug(fields, message)
  }

  info(fields: { readonly runtime?: unknown }, message: string): void {
    if (this.#passes('info', message, `${message} ${String(fields.runtime)}`)) this.#logger.info(fields, message)
  }

  warn(fields: object, message: string): void {
    if (this.#passes('warn', message)) this.#logger.warn(fields, message)
  }

  error(fields: object, message: string): void {
    if (this.#passes('error', message)) this.#logger.error(fields, message)
  }

  #passes(level: Level, message: string, name = message): boolean {
    const nowMs = this.#now()
    if (nowMs - this.#sinceMs >= PERIOD_MS) this.#begin(nowMs)
    const kinds = this.#kinds[level]
    let kind = kinds.get(name)
    if (kind === undefined) {
      const isKnown = kinds.size < MOST_KINDS[level]
      kind = (isKnown ? undefined : kinds.get(OTHERS)) ?? { message: isKnown ? message : OTHERS, lines: 0 }
      kinds.set(isKnown ? name : OTHERS, kind)
    }
    kind.lines++
    return kind.lines <= LINES_PER_PERIOD
  }

  #begin(nowMs: number): void {
    this.#sinceMs = nowMs
    for (const level of ['info', 'warn', 'error'] as const) {
      for (const { message, lines } of this.#kinds[level].values()) {
        if (lines > LINES_PER_PERIOD) this.#logger[level]({ unsaid: lines - LINES_PER_PERIOD }, message)
      }
      this.#kinds[level].clear()
    }
  }
}
