/** One direction of a slow line: a rate, a delay, and a queue that all connections share in the order of arrival. */

export interface LineOptions {
  readonly delayMs: number
  readonly bytesPerSecond: number
  /** Sources are paused while this much waits for the line. */
  readonly queueMs: number
}

/** Where bytes come from. */
interface Source {
  pause(): void
  resume(): void
}

interface Packet {
  readonly dueMs: number
  readonly deliver: () => void
}

export class Link {
  readonly #options: LineOptions
  readonly #packets: Packet[] = []
  readonly #paused = new Set<Source>()
  #head = 0
  /** When the line will have sent everything that was given to it. */
  #freeAtMs = 0
  #timer: NodeJS.Timeout | undefined

  constructor(options: LineOptions) {
    this.#options = options
  }

  /** Calls `deliver` once `bytes` would have crossed the line. */
  send(bytes: number, source: Source, deliver: () => void): void {
    const now = performance.now()
    const { delayMs, bytesPerSecond, queueMs } = this.#options
    this.#freeAtMs = Math.max(now, this.#freeAtMs) + (bytes * 1000) / bytesPerSecond
    this.#packets.push({ dueMs: this.#freeAtMs + delayMs, deliver })
    if (this.#freeAtMs - now > queueMs) {
      this.#paused.add(source)
      source.pause()
    }
    this.#timer ??= setTimeout(this.#run, 1)
  }

  readonly #run = (): void => {
    this.#timer = undefined
    const now = performance.now()
    while (this.#head < this.#packets.length && this.#packets[this.#head]!.dueMs <= now + 0.5)
      this.#packets[this.#head++]!.deliver()
    if (this.#head > 1000 || this.#head === this.#packets.length) {
      this.#packets.splice(0, this.#head)
      this.#head = 0
    }
    if (this.#freeAtMs - now <= this.#options.queueMs) {
      for (const source of this.#paused) source.resume()
      this.#paused.clear()
    }
    const next = this.#packets[this.#head]
    if (next !== undefined) this.#timer = setTimeout(this.#run, Math.max(1, next.dueMs - now))
  }
}
