/** Measures the delay of the event loop. Any number of readers may ask without affecting each other. */
import { monitorEventLoopDelay } from 'node:perf_hooks'

/** Seconds. */
export interface LoopDelays {
  readonly p50: number
  readonly p99: number
  readonly max: number
}

/** Each sample wakes the process, so they should not be too frequent. */
const SAMPLE_MS = 50
const WINDOW_MS = 30_000

export class LoopDelay {
  readonly #monitor = monitorEventLoopDelay({ resolution: SAMPLE_MS })
  readonly #now: () => number
  #since: number
  #last: LoopDelays = { p50: 0, p99: 0, max: 0 }

  /** `now` must be monotonic, in ms. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now
    this.#since = now()
    this.#monitor.enable()
  }

  /** The worse of the current window and the one before it, which covers at least the last 30 s. */
  read(): LoopDelays {
    const running = this.#measured()
    const read = {
      p50: Math.max(running.p50, this.#last.p50),
      p99: Math.max(running.p99, this.#last.p99),
      max: Math.max(running.max, this.#last.max),
    }
    if (this.#now() - this.#since >= WINDOW_MS) {
      this.#since = this.#now()
      this.#last = running
      this.#monitor.reset()
    }
    return read
  }

  #measured(): LoopDelays {
    const monitor = this.#monitor
    return {
      p50: delaySeconds(monitor.percentile(50)),
      p99: delaySeconds(monitor.percentile(99)),
      max: delaySeconds(monitor.max),
    }
  }

  close(): void {
    this.#monitor.disable()
  }
}

/** Node measures the time between samples. What exceeds the interval is the delay. */
function delaySeconds(sampleNs: number): number {
  return Math.max(0, sampleNs / 1e9 - SAMPLE_MS / 1000)
}
