import { performance } from 'node:perf_hooks'
import { type Failing, stepOf } from '../../protocol/base/guard.ts'
import { heardFirst } from '../../protocol/base/socket-turns.ts'

interface LateOwner extends Failing {
  /** Called when the deadline passes. */
  late(): void
}

/** Calls its owner's `late` unless it is stopped in time. */
export class Deadline implements Failing {
  static readonly #onDue = heardFirst(stepOf<Deadline>(deadline => deadline.#due()))
  readonly #at: number
  readonly #timer: NodeJS.Timeout
  readonly #owner: LateOwner
  #stopped = false

  constructor(now: number, afterMs: number, owner: LateOwner) {
    this.#at = now + afterMs
    this.#owner = owner
    this.#timer = setTimeout(Deadline.#onDue, afterMs, this)
  }

  /** At least 1, since 0 means no deadline. */
  get leftMs(): number {
    return Math.max(1, this.#at - performance.now())
  }

  #due(): void {
    if (!this.#stopped) this.#owner.late()
  }

  threw(error: unknown): void {
    this.#owner.threw(error)
  }

  stop(): void {
    this.#stopped = true
    clearTimeout(this.#timer)
  }
}
