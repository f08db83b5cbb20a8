/** All the traffic of a deployment: the callers, their rates, and the accounts. */
import type { Place } from '../../support/caller.ts'
import type { Ledger } from './ledger.ts'
import { SteadyCaller } from './steady.ts'
import { type DownloadSize, Downloads, EventStreams, type Lasting, WebSockets } from './streams.ts'
import type { TrafficUpstream } from './upstream.ts'

export interface TrafficOptions {
  readonly upstreams: readonly TrafficUpstream[]
  readonly placeOf: (runtime: string) => Place
  readonly ledger: Ledger
  /** Total rate of all steady callers. */
  readonly requestsPerSecond: number
  /** Each waits for its answer before it sends the next request. */
  readonly callersPerRuntime: number
  readonly download: DownloadSize | undefined
  /** Life of short WebSockets and event streams, within the grace. */
  readonly streamLifeMs: number
  /** Whether there are also some that outlive every grace. */
  readonly endless: boolean
}

/** Distinguishes the ids of two rounds of traffic. */
let rounds = 0

export class Traffic {
  readonly #options: TrafficOptions
  readonly #round = `r${rounds++}`
  readonly #stop = new AbortController()
  readonly #running: Promise<unknown>

  constructor(options: TrafficOptions) {
    this.#options = options
    options.ledger.flowing = true
    const { signal } = this.#stop
    this.#running = Promise.all([...this.#steady(), ...this.#lasting()].map(one => one.run(signal)))
  }

  /** Stops sending, and lets everything in progress finish. */
  async stop(): Promise<void> {
    this.#options.ledger.flowing = false
    this.#stop.abort()
    await this.#running
  }

  *#steady(): IterableIterator<SteadyCaller> {
    const { upstreams, placeOf, ledger, requestsPerSecond, callersPerRuntime } = this.#options
    const everyMs = (1000 * upstreams.length * callersPerRuntime) / requestsPerSecond
    for (const upstream of upstreams) {
      for (let i = 0; i < callersPerRuntime; i++) {
        yield new SteadyCaller(`${this.#round}-s${i}`, placeOf(upstream.runtime), upstream, ledger, everyMs)
      }
    }
  }

  *#lasting(): IterableIterator<Lasting> {
    const { upstreams, placeOf, ledger, download, streamLifeMs, endless } = this.#options
    for (const [i, upstream] of upstreams.entries()) {
      const about = (kind: string) => ({
        name: `${this.#round}-${kind}`,
        place: placeOf(upstream.runtime),
        upstream,
        ledger,
      })
      if (download !== undefined && i === 0) yield new Downloads(about('download'), download)
      yield new EventStreams(about('events'), Math.ceil(streamLifeMs / 100))
      yield new WebSockets(about('ws'), streamLifeMs)
      if (!endless) continue
      yield new EventStreams(about('endless-events'), 0)
      yield new WebSockets(about('endless-ws'), 0)
    }
  }
}
