/**
 * What a person at a terminal sees of a running component: what is running, one line per request, and failures, with advice. A
 * line that repeats the previous one replaces it, with a count.
 */
import { Causes } from '../../client/causes.ts'
import { guardWith } from '../../protocol/base/guard.ts'
import { TokenBucket } from '../../protocol/base/token-bucket.ts'
import type { ExchangeRecord } from '../../protocol/exchange.ts'
import { ADVICE } from './advice.ts'
import { exchangeLine, hasWide, type Piece, paint, requested, timeOfDay, wrapped } from './line.ts'

interface Screen {
  write(text: string): void
  /** Current width. A window may be resized. */
  readonly columns: number
  readonly colours: boolean
  /** `all`: with the fields of log lines. `failures`: only failures. */
  readonly shows: 'all' | 'most' | 'failures'
}

/** A log line, as pino writes it. */
interface LogEntry {
  readonly time?: unknown
  readonly level?: unknown
  readonly msg?: unknown
  readonly err?: { readonly message?: unknown }
  readonly [field: string]: unknown
}

/** More lines than a person can read are only counted. This many are shown in a burst, and per second in the long run. */
const BURST = 60
const LINES_PER_SECOND = 20
/** How often a count on the screen is updated. */
const REFRESH_MS = 100
const INDENT = '          '
const LEVEL_COLOURS = { debug: 'dim', info: 'cyan', warn: 'yellow', error: 'red' } as const

/** The line at the end of the screen, which may be repeated. */
interface LastLine {
  /** A line with the same key is a repeat. An empty key never is. */
  readonly key: string
  readonly times: number
  /** The rows as written, and the width of the window at that time. */
  readonly rows: readonly string[]
  readonly columns: number
}

const NOTHING: LastLine = { key: '', times: 0, rows: [], columns: 0 }

export class Terminal {
  readonly #screen: Screen
  readonly #now: () => Date
  readonly #lines = new TokenBucket(BURST, LINES_PER_SECOND)
  readonly #advised = new Causes()
  /** The advice below the last line. */
  #advice: readonly string[] = []
  #last = NOTHING
  /** Rows that will replace the last ones. */
  #next: readonly string[] | undefined
  /** Requests that were only counted. */
  #unshown = 0
  #timer: NodeJS.Timeout | undefined

  constructor(screen: Screen, now: () => Date = () => new Date()) {
    this.#screen = screen
    this.#now = now
  }

  /** Shows what is running, with `label` in a separate column. */
  banner(label: string, text: string): void {
    if (this.#screen.shows !== 'failures')
      this.#show('', () => this.#rows([[label.padEnd(INDENT.length), 'bold']], text))
  }

  /** Shows an event. */
  note(text: string): void {
    if (this.#screen.shows !== 'failures') this.#showText(text, [[`${this.#time}  `, 'dim']], text)
  }

  /** Shows a log line. */
  log(entry: LogEntry): void {
    const { time: _, level, msg, err, component: __, ...fields } = entry
    const name = String(level) as keyof typeof LEVEL_COLOURS
    const cause = err?.message === undefined ? '' : `: ${String(err.message)}`
    const isVerbose = this.#screen.shows === 'all'
    const rest = isVerbose ? Object.entries(fields).map(([name, value]) => ` ${name}=${asText(value)}`) : []
    const message = `${String(msg)}${cause}`
    // The cause of a failed request, whose own line follows. If a route's came each time, those lines would not fold.
    const isOfRequest = fields.requestId !== undefined && fields.code !== undefined
    if (isOfRequest && !isVerbose && !this.#advised.isNews(message, performance.now(), String(fields.route))) return
    const text = `${message}${rest.join('')}`
    const head: Piece[] = [
      [`${this.#time}  `, 'dim'],
      [`${name} `, LEVEL_COLOURS[name]],
    ]
    this.#showText(`${name} ${text}`, head, text)
  }

  exchange(exchange: ExchangeRecord): void {
    const { method, status, code } = exchange
    const key = `${status} ${method} ${requested(exchange)} ${code ?? ''}`
    if (!this.#isRepeat(key)) {
      if (!this.#lines.take(performance.now())) {
        this.#unshown++
        this.#flushSoon()
        return
      }
      this.#advice = this.#adviceOn(code)
    }
    this.#show(key, times => [this.#line(exchange, times), ...this.#advice])
  }

  /** Advice on a failure, at most once a minute. */
  #adviceOn(code: string | undefined): readonly string[] {
    const advice: string | undefined = ADVICE[code as keyof typeof ADVICE]
    const isNews = advice !== undefined && this.#advised.isNews(code!, performance.now())
    return isNews ? this.#rows([[INDENT, 'plain']], advice) : []
  }

  /** Writes what is still pending. */
  close(): void {
    this.#flush()
  }

  get #width(): number {
    // A row that is as wide as the window would move the cursor to the next one.
    return Math.max(40, this.#screen.columns) - 1
  }

  get #time(): string {
    return timeOfDay(this.#now())
  }

  #paint(pieces: readonly Piece[]): string {
    return paint(pieces, this.#width, this.#screen.colours)
  }

  #line(exchange: ExchangeRecord, times: number): string {
    return this.#paint(exchangeLine(exchange, this.#time, this.#width, times))
  }

  #showText(key: string, head: readonly Piece[], text: string): void {
    this.#show(key, times => this.#rows(head, times > 1 ? `${text} (x${times})` : text))
  }

  /** `text` after `head`, wrapped and aligned with its beginning. */
  #rows(head: readonly Piece[], text: string): string[] {
    const [first = '', ...more] = wrapped(text, this.#width - head.reduce((sum, [{ length }]) => sum + length, 0))
    const rest = wrapped(more.join(' '), this.#width - INDENT.length)
    return [this.#paint([...head, [first, 'plain']]), ...(more.length === 0 ? [] : rest.map(row => INDENT + row))]
  }

  #show(key: string, render: (times: number) => string[]): void {
    const isRepeat = this.#isRepeat(key)
    if (!isRepeat) this.#flush()
    const times = isRepeat ? this.#last.times + 1 : 1
    const rows = render(times)
    if (isRepeat) {
      this.#next = rows
      this.#last = { ...this.#last, times }
      this.#flushSoon()
      return
    }
    this.#put(rows)
    this.#last = { key, times, rows, columns: this.#screen.columns }
  }

  /** Whether the last rows can be replaced: the window was not resized, and no character may be wide, so the row count is right. */
  #isRepeat(key: string): boolean {
    const { rows, columns } = this.#last
    if (key === '' || key !== this.#last.key || this.#unshown > 0) return false
    return columns === this.#screen.columns && !rows.some(hasWide)
  }

  #flushSoon(): void {
    const due = this.#guard(() => this.#flush())
    this.#timer ??= setTimeout(due, REFRESH_MS).unref()
  }

  /** There is nowhere else to report an error. */
  readonly #guard = guardWith(() => {})

  #flush(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    const rows = this.#next
    this.#next = undefined
    if (rows !== undefined) {
      this.#screen.write(`\x1b[${this.#last.rows.length}A\r\x1b[J`)
      this.#put(rows)
      this.#last = { ...this.#last, rows }
    }
    if (this.#unshown === 0) return
    this.#put([this.#paint([[`${this.#time}  and ${this.#unshown} more`, 'dim']])])
    this.#unshown = 0
    this.#last = NOTHING
  }

  #put(rows: readonly string[]): void {
    this.#screen.write(`${rows.join('\n')}\n`)
  }
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : String(JSON.stringify(value))
}
