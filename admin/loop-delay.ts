/** Measures the delay of the event loop. Any number of readers may ask without affecting each other. */
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { guardWith } from '../protocol/base/guard.ts'

/** Seconds. */
export interface LoopDelays {
  readonly p50: number
  readonly p99: number
  readonly max: number
}

/** Each sample wakes the process, so they should not be too frequent. */
const SAMPLE_MS = 50
/** Scrapers that ask once a minute miss nothing. */
const WINDOW_MS = 60_000

export class LoopDelay {
  readonly #monitor = monitorEventLoopDelay({ resolution: SAMPLE_MS })
  #last: LoopDelays = { p50: 0, p99: 0, max: 0 }
  readonly #timer: NodeJS.Timeout

  constructor() {
    this.#monitor.enable()
    const guard = guardWith(() => {})
    const turn = guard(() => {
      this.#last = this.#measured()
      this.#monitor.reset()
    })
    this.#timer = setInterval(turn, WINDOW_MS).unref()
  }

  /** The worse of the current window and the one before it, which covers at least the last minute. */
  read(): LoopDelays {
    const running = this.#measured()
    return {
      p50: Math.max(running.p50, this.#last.p50),
      p99: Math.max(running.p99, this.#last.p99),
      max: Math.max(running.max, this.#last.max),
    }
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
    clearInterval(this.#timer)
    this.#monitor.disable()
  }
}

/** Node measures the time between samples. What exceeds the interval is the delay. */
function delaySeconds(sampleNs: number): number {
  return Math.max(0, sampleNs / 1e9 - SAMPLE_MS / 1000)
}
