import { FrameFollower } from '../websocket-frames.ts'

/**
 * One direction of an upgraded WebSocket. Bytes pass untouched until the session leaves; then it ends behind the frame
 * under way.
 */
export class RawDirection {
  readonly #follower = new FrameFollower()
  readonly #pass: (chunk: Uint8Array) => void
  readonly #close: () => void
  #leaving = false
  /** It was closed by {@link leave}; what still comes is discarded. */
  left = false

  /** `close` puts a Close frame behind what was passed, and ends the direction. */
  constructor(pass: (chunk: Uint8Array) => void, close: () => void) {
    this.#pass = pass
    this.#close = close
  }

  /** Passes `chunk` on; returns how many bytes of it are discarded. */
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

  /** A Close frame of the endpoint's own passed in the meantime: the rest follows it. */
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
