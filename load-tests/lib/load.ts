/** What a load generator is asked to do, and what it reports. */
import { quantile } from './measure.ts'

/** How long an answer that is due, or the next byte of one, may take. Then it is missing. */
export const PATIENCE_MS = 10_000

/** A place to call. */
export interface Place {
  readonly url: string
  /** With `host`, if that differs from the URL's. */
  readonly headers: Readonly<Record<string, string>>
  /** File with the certificate authority, if the URL is https. */
  readonly ca?: string
  /** Speaks HTTP/2 over TLS. */
  readonly http2?: boolean
}

export interface Load extends Place {
  readonly connections: number
  readonly durationMs: number
  readonly method?: string
  readonly body?: string
  /** Default 200. */
  readonly expectStatus?: number
  /** Each answer must have this body. */
  readonly expectBody?: string
  /**
   * Requests per second over all connections, evenly spaced. Latency counts from the moment a request was due, so it is corrected
   * for coordinated omission. If absent, a closed loop: each connection sends as fast as it gets answers.
   */
  readonly rate?: number
  /** The run ends when this share of the answers is wrong, once there are 20 answers. */
  readonly bailout?: number
}

/** Latencies in ms. */
export interface LoadResult {
  readonly requests: number
  /** Answers that are wrong, short or missing. */
  readonly wrong: number
  /** Answers by status, with `broken` for those that did not arrive. */
  readonly answers: Readonly<Record<string, number>>
  readonly durationMs: number
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
  readonly max: number
}

/** How many answers it takes for their share of wrong ones to mean something. */
export const MIN_REQUESTS = 20

/** Collects answers while a load runs. */
export class Tally {
  readonly #times: number[] = []
  readonly #answers: Record<string, number> = {}
  #requests = 0
  #wrong = 0
  readonly #startedAt = performance.now()

  /** Records an answer: its `status`, or `broken`. */
  add(status: string, ms: number, right: boolean): void {
    this.#requests++
    this.#answers[status] = (this.#answers[status] ?? 0) + 1
    if (right) this.#times.push(ms)
    else this.#wrong++
  }

  /** Records a request that waited `ms` and had not been sent when the run ended. It counts as slow, not as wrong. */
  addUnsent(ms: number): void {
    this.#times.push(ms)
  }

  failed(share: number | undefined): boolean {
    return share !== undefined && this.#requests >= MIN_REQUESTS && this.#wrong / this.#requests >= share
  }

  result(durationMs = performance.now() - this.#startedAt): LoadResult {
    const times = this.#times.sort((a, b) => a - b)
    return {
      requests: this.#requests,
      wrong: this.#wrong,
      answers: this.#answers,
      durationMs,
      perSecond: (this.#requests - this.#wrong) / (durationMs / 1000),
      p50: quantile(times, 0.5),
      p99: quantile(times, 0.99),
      max: times.at(-1) ?? Number.NaN,
    }
  }
}
