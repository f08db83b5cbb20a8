/** Places for lanes that work. Lanes that find none free wait in a queue, in which the runtimes take turns. */
import { Tally } from '../../protocol/base/tally.ts'

interface PlaceLimits {
  readonly lanesPerRuntime: number
  readonly lanes: number
}

export class Places<Lane extends { readonly runtime: string }> {
  readonly #limits: PlaceLimits
  readonly #onTurn: (lane: Lane) => void
  /** Taken places, by runtime and in total. */
  readonly #taken = new Tally()
  #allTaken = 0
  readonly #queue = new Map<string, Set<Lane>>()

  /** `onTurn` is called for a lane that waited. It may take a place or not. */
  constructor(limits: PlaceLimits, onTurn: (lane: Lane) => void) {
    this.#limits = limits
    this.#onTurn = onTurn
  }

  /** False if no place is free. The lane is then in the queue. */
  take(lane: Lane): boolean {
    const { runtime } = lane
    if (this.#isFree(runtime)) {
      this.#count(runtime, 1)
      return true
    }
    const lanes = this.#queue.get(runtime) ?? new Set()
    this.#queue.set(runtime, lanes.add(lane))
    return false
  }

  /** Gives the place back, to the lanes that have waited longest. */
  free(lane: Lane): void {
    this.#count(lane.runtime, -1)
    for (const [runtime, lanes] of this.#queue) {
      if (this.#allTaken >= this.#limits.lanes) return
      if (!this.#isFree(runtime)) continue
      const [first] = lanes
      this.leave(first!)
      // Moves the runtime behind the others.
      if (lanes.size > 0 && this.#queue.delete(runtime)) this.#queue.set(runtime, lanes)
      this.#onTurn(first!)
    }
  }

  isQueued(lane: Lane): boolean {
    return this.#queue.get(lane.runtime)?.has(lane) === true
  }

  /** Leaves the queue. */
  leave(lane: Lane): void {
    const lanes = this.#queue.get(lane.runtime)
    if (lanes?.delete(lane) === true && lanes.size === 0) this.#queue.delete(lane.runtime)
  }

  /** A runtime gets at most as many places as it leaves free, so one whose receivers hang cannot take them all. */
  #isFree(runtime: string): boolean {
    const taken = this.#taken.of(runtime)
    return taken < this.#limits.lanesPerRuntime && taken < this.#limits.lanes - this.#allTaken
  }

  #count(runtime: string, change: 1 | -1): void {
    this.#allTaken += change
    this.#taken.add(runtime, change)
  }
}
