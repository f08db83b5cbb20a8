import { FrameFollower } from '../websocket-frames.ts'

/**
 * One direction of an upgraded WebSocket. Bytes pass untouched until the session leaves. Then the direction ends after the
 * current frame.
 */
export class RawDirection {
  readonly #follower = new FrameFollower()
  readonly #pass: (chunk: Uint8Array) => void
  readonly #close: () => void
  #leaving = false
  /** Whether {@link leave} has closed it. Later bytes are discarded. */
  left = false

  /** `close` sends a Close frame after the bytes that were passed on, and ends the direction. */
  constructor(pass: (chunk: Uint8Array) => void, close: () => void) {
    this.#pass = pass
    this.#close = close
  }

  /** Passes `chunk` on. Returns how many of its bytes were discarded. */
  push(chunk: Uint8Array): number {
    if (this.left) return chunk.length
    const passed = this.#follower.push(chunk, this.#leaving && !this.#follower.closed)
    this.#pass(passed === chunk.length ? chunk : chunk.subarray(0, passed))
    if (this.#leaving) this.#closeAtBoundary()
    return this.left ? chunk.length - passed : this.#rest(chunk, passed)
  }

  leave(): void {
    this.#leaving = true
    this.#closeAtBoundary()
  }

  /** If a Close frame of the endpoint itself has passed meanwhile, the rest follows it. */
  #rest(chunk: Uint8Array, passed: number): number {
    if (passed < chunk.length) {
      const rest = chunk.subarray(passed)
      this.#follower.push(rest)
      this.#pass(rest)
    }
    return 0
  }

  #closeAtBoundary(): void {
    if (this.left || this.#follower.closed || !this.#follower.atBoundary) return
    this.left = true
    this.#close()
  }
}
