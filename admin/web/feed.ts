import type { ServerResponse } from 'node:http'
import { ERRORS, type ErrorCode } from '../../protocol/base/errors.ts'
import { guardWith, logGuard } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import type { AdminSource } from '../page.ts'
import type { FailedExchange } from '../traffic.ts'

const INTERVAL_MS = 2000
/** A page must reconnect after this time, since its login may have ended. */
const LIFE_MS = 10 * 60_000
const MAX_READERS = 8
/** Longest list in a snapshot. `/status` has all of it. */
const MAX_ROWS = 200
/** How many of an inspector's latest exchanges are in a snapshot. */
const MAX_INSPECTED = 100
const MAX_TEXT = 256
/** Most steps of the traffic that a reader can have missed, unless it is new. */
const LATEST_STEPS = 2

interface Reader {
  readonly response: ServerResponse
  readonly ends: number
}

/**
 * What a page shows, as an event stream (HTML Standard, section 9.2): a snapshot at once and then every two seconds, with the same text
 * for all readers. A slow reader misses snapshots, and nothing is buffered for it.
 */
export class Feed {
  readonly #source: AdminSource
  readonly #logger: Logger
  readonly #readers = new Set<Reader>()
  #timer: NodeJS.Timeout | undefined

  constructor(source: AdminSource, logger: Logger) {
    this.#source = source
    this.#logger = logger
  }

  /** Whether another page may read. */
  hasRoom(): boolean {
    return this.#readers.size < MAX_READERS
  }

  /** Sends snapshots until `response` closes. Its head must have been written. */
  add(response: ServerResponse): void {
    const reader = { response, ends: performance.now() + LIFE_MS }
    const guard = guardWith(() => response.destroy())
    response.once(
      'close',
      guard(() => this.#remove(reader)),
    )
    this.#readers.add(reader)
    response.write(event(this.#source))
    const guarded = logGuard(this.#logger, 'making a snapshot for the page failed')
    const send = guarded(() => this.#send())
    this.#timer ??= setInterval(send, INTERVAL_MS).unref()
  }

  #remove(reader: Reader): void {
    this.#readers.delete(reader)
    if (this.#readers.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  #send(): void {
    const text = event(this.#source, LATEST_STEPS)
    const now = performance.now()
    for (const { response, ends } of this.#readers) {
      const isReading = response.writableLength === 0
      // If nobody reads what is queued, `end` would never complete.
      if (ends < now && !isReading) response.destroy()
      else if (ends < now) response.end()
      else if (isReading) response.write(text)
    }
  }
}

function event(source: AdminSource, steps?: number): string {
  const { traffic, advice = {} } = source
  const failed = traffic?.failed.map(one => ({ ...one, title: titleOf(one), advice: advice[one.code ?? ''] }))
  const inspected = source.inspector?.list().slice(-MAX_INSPECTED).reverse().map(withoutLongTexts)
  const status = shorten(source.status())
  const snapshot = { now: Date.now(), status, history: traffic?.history(steps), failed, inspected }
  return `data: ${JSON.stringify(snapshot)}\n\n`
}

/** Paths may be long, and a hundred of them come every two seconds. */
function withoutLongTexts(row: object): object {
  const entries = Object.entries(row).map(([name, value]: [string, unknown]) => {
    const isLong = typeof value === 'string' && value.length > MAX_TEXT
    return [name, isLong ? `${value.slice(0, MAX_TEXT)}…` : value]
  })
  return Object.fromEntries(entries)
}

/** The error title that the caller saw. */
function titleOf({ code }: FailedExchange): string | undefined {
  return code !== undefined && Object.hasOwn(ERRORS, code) ? ERRORS[code as ErrorCode].title : undefined
}

/** Lists cut to their first rows, and how many rows each had. */
function shorten(status: unknown): object {
  if (typeof status !== 'object' || status === null) return {}
  const lists = Object.entries(status).filter(([, value]) => Array.isArray(value) && value.length > MAX_ROWS)
  const shortened = lists.map(([name, rows]) => [name, (rows as unknown[]).slice(0, MAX_ROWS)])
  const counts = lists.map(([name, rows]) => [name, (rows as unknown[]).length])
  return { ...status, ...Object.fromEntries(shortened), rowsInAll: Object.fromEntries(counts) }
}
