import { performance } from 'node:perf_hooks'
import { type Failing, stepOf } from '../../protocol/base/guard.ts'

interface LateOwner extends Failing {
  /** Called when the deadline passes. */
  late(): void
}

const late = stepOf<LateOwner>(owner => owner.late())

/** A time by which something must have happened. */
export class Deadline {
  readonly #at: number
  readonly #timer: NodeJS.Timeout

  constructor(now: number, afterMs: number, owner: LateOwner) {
    this.#at = now + afterMs
    this.#timer = setTimeout(late, afterMs, owner)
  }

  /** At least 1, since 0 means no deadline. */
  get leftMs(): number {
    return Math.max(1, this.#at - performance.now())
  }

  stop(): void {
    clearTimeout(this.#timer)
  }
}
