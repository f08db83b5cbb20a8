/**
 * Sends spans to a receiver over OTLP/HTTP, in batches, one request at a time. Spans that do not fit into the queue are dropped and
 * counted. So a slow or unreachable receiver costs a bounded amount of memory, and no request waits for it.
 */
import { request } from 'undici'
import { type EndingAgent, endingAgent } from '../protocol/base/ending-agent.ts'
import { type GraceOptions, graceOf } from '../protocol/base/grace.ts'
import { detached, type Guard, logGuard, safeLogger } from '../protocol/base/guard.ts'
import { type LimitOptions, type Limits, type LimitValues, resolveLimits } from '../protocol/base/limit.ts'
import type { Logger } from '../protocol/base/log.ts'
import { checkMembers, type Members } from '../protocol/base/members.ts'
import { urlForLogs } from '../protocol/base/path.ts'
import { readAtMost } from '../protocol/base/read-at-most.ts'
import { isFieldValue, isToken } from '../protocol/http/headers.ts'
import { readRetryAfter } from '../protocol/http/retry-after.ts'
import type { FinishedSpan } from '../protocol/trace/span.ts'
import { encodeSpans } from './otlp.ts'

export const EXPORT_LIMITS = {
  queuedSpans: { kind: 'count', default: '2048', about: 'Most spans that may wait. More are dropped and counted.' },
  batchSpans: { kind: 'count', default: '512', about: 'Most spans in one request.' },
  delayMs: { kind: 'duration', default: '5s', about: 'How long a span waits at most for others to join its batch.' },
  timeoutMs: { kind: 'duration', default: '10s', most: '10m', about: 'Deadline of one request.' },
} as const satisfies Limits

/** Options of an exporter. */
export interface ExporterOptions extends LimitOptions<typeof EXPORT_LIMITS> {
  /** The full URL, such as `http://127.0.0.1:4318/v1/traces`. */
  readonly url: string | URL
  /** Header fields of the requests. They may contain secrets, and are never logged. */
  readonly headers?: Readonly<Record<string, string>> | undefined
  /** Resource attributes: `service.name` and others. */
  readonly resource: Readonly<Record<string, string>>
  readonly logger?: Logger | undefined
}

/** What became of spans. */
export interface ExporterStats {
  readonly queued: number
  /** The others only grow: spans that the receiver accepted, and spans that it will not get, by reason. */
  readonly exported: number
  readonly dropped: Readonly<Record<DropReason, number>>
}

/** `refused`: the receiver did not accept them. `away`: it could not be reached for a while. `closed`: there was no time left. */
export type DropReason = 'queue-full' | 'refused' | 'away' | 'closed'

/** Sends spans. Pass its `add` to `createTracer`. */
export interface Exporter {
  readonly add: (span: FinishedSpan) => void
  stats(): ExporterStats
  /** Sends one request without spans. Rejects with an error that says why the receiver does not accept it. */
  check(): Promise<void>
  /** Sends what is queued, for at most `graceMs` (default 5,000). The rest is dropped. */
  close(options?: { readonly graceMs?: number | undefined }): Promise<void>
}

/** Waits between the attempts of a batch, unless the receiver sends `Retry-After`. Each is randomly up to twice as long. */
const RETRY_STEPS_MS = [1000, 2000, 4000, 8000, 16_000]
const MAX_RETRY_AFTER_MS = 60_000
/** Statuses after which OTLP wants the request to be sent again. */
const RETRYABLE: ReadonlySet<number> = new Set([429, 502, 503, 504])
const MAX_ANSWER_BYTES = 64 * 1024
const MEMBERS: Members<ExporterOptions, typeof EXPORT_LIMITS> = {
  url: 'any',
  headers: 'object',
  resource: 'object',
  logger: 'object',
}
const DEFAULT_CLOSE_MS = 5000
const FAILED = 'the export of spans failed'

/**
 * Makes an exporter.
 *
 * @throws {TypeError} for invalid options.
 *
 * @example
 * ```ts
 * import { createExporter, createTracer } from 'sallyport/tracing'
 *
 * const exporter = createExporter({ url: 'http://127.0.0.1:4318/v1/traces', resource: { 'service.name': 'edge' } })
 * const tracer = createTracer(exporter.add)
 * ```
 */
export function createExporter(options: ExporterOptions): Exporter {
  return new OtlpExporter(options)
}

class OtlpExporter implements Exporter {
  readonly add = (span: FinishedSpan): void => this.#add(span)
  readonly #limits: LimitValues<typeof EXPORT_LIMITS>
  readonly #url: URL
  readonly #headers: Record<string, string>
  readonly #resource: Readonly<Record<string, string>>
  readonly #logger: Logger
  readonly #guard: Guard
  readonly #ending: EndingAgent
  readonly #queue: FinishedSpan[] = []
  readonly #dropped: Record<DropReason, number> = { 'queue-full': 0, refused: 0, away: 0, closed: 0 }
  /** The time for `close` is over. */
  #stopped = false
  #exported = 0
  /** Number of spans in the batch that is being sent. */
  #sending = 0
  #timer: NodeJS.Timeout | undefined
  #flushing: Promise<void> | undefined
  #closing: Promise<void> | undefined
  /** Ends the wait between two attempts. */
  #wake: (() => void) | undefined

  constructor(options: ExporterOptions) {
    checkMembers('', options, MEMBERS, EXPORT_LIMITS)
    const { url, headers = {}, resource, logger, ...limits } = options
    this.#limits = resolveLimits(EXPORT_LIMITS, limits, 'exporter')
    this.#url = checkUrl(url)
    this.#headers = { ...checkHeaders(headers), 'content-type': 'application/json' }
    this.#resource = resource
    this.#logger = safeLogger(logger)
    this.#guard = logGuard(this.#logger, FAILED)
    const { timeoutMs } = this.#limits
    const timeouts = { headersTimeout: timeoutMs, bodyTimeout: timeoutMs }
    this.#ending = endingAgent({ connect: { timeout: timeoutMs }, ...timeouts, connections: 1 })
  }

  stats(): ExporterStats {
    return { queued: this.#queue.length + this.#sending, exported: this.#exported, dropped: { ...this.#dropped } }
  }

  async check(): Promise<void> {
    const { status, cause } = await this.#post(encodeSpans([], this.#resource))
    if (!isAccepted(status)) throw Object.assign(new Error(cause ?? `it answered ${status}`), { code: cause })
  }

  #add(span: FinishedSpan): void {
    if (this.#closing !== undefined) this.#dropped.closed++
    else if (this.#queue.length + this.#sending >= this.#limits.queuedSpans) this.#dropped['queue-full']++
    else {
      this.#queue.push(span)
      if (this.#flushing !== undefined) return
      if (this.#queue.length >= this.#limits.batchSpans) this.#begin()
      else
        this.#timer ??= setTimeout(
          this.#guard(() => this.#begin()),
          this.#limits.delayMs,
        ).unref()
    }
  }

  #begin(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#flushing ??= this.#flush()
    detached(this.#logger, FAILED, this.#flushing)
  }

  async #flush(): Promise<void> {
    try {
      // After the turn in which the last span was added.
      await Promise.resolve()
      while (this.#queue.length > 0) await this.#export(this.#queue.splice(0, this.#limits.batchSpans))
    } finally {
      this.#flushing = undefined
    }
  }

  async #export(batch: readonly FinishedSpan[]): Promise<void> {
    this.#sending = batch.length
    const { rejected, reason } = await this.#deliver(encodeSpans(batch, this.#resource), batch.length)
    this.#sending = 0
    this.#exported += batch.length - rejected
    this.#dropped[reason] += rejected
  }

  /** Sends a batch, with retries. Resolves to the number of spans that the receiver did not accept, and why. */
  async #deliver(body: string, count: number): Promise<{ rejected: number; reason: DropReason }> {
    for (const stepMs of [...RETRY_STEPS_MS, undefined]) {
      if (this.#stopped) break
      const { status, afterMs, rejected = 0, cause } = await this.#post(body)
      if (isAccepted(status)) return { rejected: Math.min(rejected, count), reason: 'refused' }
      this.#logger.warn({ url: urlForLogs(this.#url), status, reason: cause }, 'the receiver did not accept spans')
      if (status !== 0 && !RETRYABLE.has(status)) return { rejected: count, reason: 'refused' }
      if (this.#closing !== undefined) break
      if (stepMs === undefined) return { rejected: count, reason: 'away' }
      await this.#pause(afterMs ?? stepMs * (1 + Math.random()))
    }
    return { rejected: count, reason: 'closed' }
  }

  /** Status 0 means that there was no answer. */
  async #post(body: string): Promise<Answer> {
    try {
      const signal = AbortSignal.timeout(this.#limits.timeoutMs)
      const options = { method: 'POST' as const, headers: this.#headers, body, dispatcher: this.#ending.agent, signal }
      const { statusCode, headers, body: answer } = await request(this.#url, options)
      // A destroyed body emits an error, and nobody else listens for it.
      answer.on('error', () => {})
      const after = headers['retry-after']
      const asked = readRetryAfter(typeof after === 'string' ? after : undefined, Date.now())
      // Longer answers are ignored.
      const text = (await readAtMost(answer, MAX_ANSWER_BYTES))?.toString() ?? ''
      return { status: statusCode, rejected: rejectedIn(text), afterMs: asked && Math.min(asked, MAX_RETRY_AFTER_MS) }
    } catch (error) {
      return { status: 0, cause: codeOf(error) }
    }
  }

  #pause(ms: number): Promise<void> {
    return new Promise(resolve => {
      const timer = setTimeout(resolve, ms).unref()
      this.#wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }

  close(options: GraceOptions = {}): Promise<void> {
    const graceMs = graceOf(options, DEFAULT_CLOSE_MS)
    this.#closing ??= this.#close(graceMs)
    return this.#closing
  }

  async #close(graceMs: number): Promise<void> {
    // Spans that are added from now on are dropped.
    await Promise.resolve()
    this.#wake?.()
    const late = setTimeout(
      this.#guard(() => this.#stop()),
      graceMs,
    )
    if (graceMs === 0) this.#stop()
    this.#begin()
    await this.#flushing
    clearTimeout(late)
    await this.#ending.end()
  }

  #stop(): void {
    this.#stopped = true
    detached(this.#logger, FAILED, this.#ending.end())
  }
}

interface Answer {
  readonly status: number
  readonly cause?: string | undefined
  readonly afterMs?: number | undefined
  /** Spans that it rejected although it accepted the request. */
  readonly rejected?: number
}

function isAccepted(status: number): boolean {
  return status >= 200 && status < 300
}

function rejectedIn(text: string): number {
  try {
    const { partialSuccess } = JSON.parse(text) as { partialSuccess?: { rejectedSpans?: unknown } }
    const rejected = Number(partialSuccess?.rejectedSpans ?? 0)
    return Number.isInteger(rejected) && rejected > 0 ? rejected : 0
  } catch {
    return 0
  }
}

/** A code such as `ECONNREFUSED`, since an error message might quote what was sent. */
function codeOf(error: unknown): string {
  const { code, name } = error as { code?: unknown; name?: unknown }
  // A deadline's error has a number.
  return typeof code === 'string' ? code : String(name ?? 'failed')
}

function checkUrl(given: string | URL): URL {
  const url = URL.canParse(String(given)) ? new URL(given) : undefined
  if (url === undefined || !/^https?:$/.test(url.protocol))
    throw new TypeError('exporter.url must be a URL with http:// or https://')
  if (url.username !== '' || url.password !== '')
    throw new TypeError('exporter.url must have no credentials: use headers')
  return url
}

function checkHeaders(headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  for (const [name, value] of Object.entries(headers)) {
    if (!isToken(name)) throw new TypeError('exporter.headers: a name is not a valid header name')
    if (!isFieldValue(value)) throw new TypeError(`exporter.headers: the value of ${name} is not valid`)
  }
  return headers
}
