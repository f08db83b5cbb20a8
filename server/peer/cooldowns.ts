/**
 * Replicas that refused an exchange of a runtime although the directory says that they have sessions of it. They may not know yet, or
 * may not be allowed to act on what they know. They are not tried again until the state has changed, or a moment has passed.
 */
import { type Guard, logGuard } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { AgedMap } from '../aged-map.ts'

const COOLDOWN_MS = 250
/** If there are more, the oldest ones end early. */
const MAX_COOLDOWNS = 10_000

interface Cooldown {
  readonly runtime: string
  readonly version: number
  readonly untilMs: number
}

export class Cooldowns {
  readonly #now: () => number
  readonly #onOver: (runtime: string) => void
  readonly #guard: Guard
  /** The oldest first. */
  readonly #cooldowns = new AgedMap<Cooldown>()
  #timer: NodeJS.Timeout | undefined

  /** `onOver` is called when a replica may be tried again. */
  constructor(now: () => number, logger: Logger, onOver: (runtime: string) => void) {
    this.#now = now
    this.#guard = logGuard(logger, 'ending a cooldown failed')
    this.#onOver = this.#guard(onOver)
  }

  /** `version` is that of the state by which the replica was chosen. */
  begin(replica: string, runtime: string, version: number): void {
    const key = keyOf(replica, runtime)
    this.#cooldowns.delete(key)
    if (this.#cooldowns.size >= MAX_COOLDOWNS) this.#endOldest()
    this.#cooldowns.put(key, { runtime, version, untilMs: this.#now() + COOLDOWN_MS })
    this.#timer ??= this.#later(COOLDOWN_MS)
  }

  has(replica: string, runtime: string, version: number): boolean {
    const cooldown = this.#cooldowns.get(keyOf(replica, runtime))
    return cooldown !== undefined && cooldown.version === version && this.#now() < cooldown.untilMs
  }

  #endOldest(): void {
    const { key, value } = this.#cooldowns.oldest!
    this.#cooldowns.delete(key)
    // In a microtask, since the callback may begin a cooldown.
    const told = this.#guard(() => this.#onOver(value.runtime))
    queueMicrotask(told)
  }

  #later(ms: number): NodeJS.Timeout {
    const due = this.#guard(() => this.#end())
    return setTimeout(due, ms).unref()
  }

  #end(): void {
    this.#timer = undefined
    const over = new Set<string>()
    for (const [key, { runtime, untilMs }] of this.#cooldowns) {
      const leftMs = untilMs - this.#now()
      if (leftMs > 0) {
        this.#timer = this.#later(leftMs)
        break
      }
      this.#cooldowns.delete(key)
      over.add(runtime)
    }
    for (const runtime of over) this.#onOver(runtime)
  }

  close(): void {
    clearTimeout(this.#timer)
    this.#cooldowns.clear()
  }
}

function keyOf(replica: string, runtime: string): string {
  return `${runtime} ${replica}`
}
