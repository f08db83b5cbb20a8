import { ZERO } from './clock.ts'
import { SPEC_WINDOW_BYTES } from './frame.ts'
import type { ReceiveWindow } from './receive-window.ts'

/** On shorter paths, windows grow fast anyway, and credit in advance would only cost one more frame per stream. */
const LONG_PATH_MS = 5
/** What was learned is forgotten after one to two of these periods. */
const MEMORY_MS = 30_000

/**
 * Credit that a stream has not earned yet. A window that starts at 64 KiB and doubles with each round trip needs six round
 * trips to fill a long path, for each body again. So a window begins with what other streams of the session needed. The
 * advances of a session are bounded, since credit cannot be taken back from a receiver that turns out to be slow.
 */
export class CreditAdvance {
  readonly #limitBytes: number
  #advancedBytes = 0
  #usualBytes = 0
  #olderBytes = 0
  #spanBegan = ZERO

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes
  }

  /** Records the measured need of the window. If it has now earned its advance, that is released. */
  learn(window: ReceiveWindow, now: number): void {
    const { neededBytes } = window
    if (now - this.#spanBegan >= MEMORY_MS) {
      this.#spanBegan = now
      this.#olderBytes = this.#usualBytes
      this.#usualBytes = 0
    }
    this.#usualBytes = Math.max(this.#usualBytes, neededBytes)
    if (neededBytes * 2 >= window.sizeBytes) this.release(window)
  }

  /** Whether a stream should get credit when it opens, because its first window of `windowBytes` is too small. */
  isWorthwhile(windowBytes: number, rttMs: number, now: number): boolean {
    return rttMs >= LONG_PATH_MS && this.#usual(now) > windowBytes
  }

  /** Books and returns the credit by which the window may grow beyond `growthBytes`, up to `maxBytes` in all. */
  grant(window: ReceiveWindow, growthBytes: number, maxBytes: number, rttMs: number, now: number): number {
    if (rttMs < LONG_PATH_MS) return 0
    const wanted = Math.min(Math.max(SPEC_WINDOW_BYTES, this.#usual(now)), maxBytes)
    const bytes = Math.min(wanted - window.sizeBytes - growthBytes, this.#limitBytes - this.#advancedBytes)
    if (bytes <= 0) return 0
    window.advancedBytes += bytes
    this.#advancedBytes += bytes
    return bytes
  }

  /** Call it when the window has earned its advance, or is gone. */
  release(window: ReceiveWindow): void {
    this.#advancedBytes -= window.advancedBytes
    window.advancedBytes = 0
  }

  #usual(now: number): number {
    return now - this.#spanBegan < 2 * MEMORY_MS ? Math.max(this.#usualBytes, this.#olderBytes) : 0
  }
}
