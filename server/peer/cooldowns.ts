/**
 * Replicas that refused an exchange of a runtime although the directory says that they have sessions of it. They may not know yet, may
 * not be allowed to act on what they know, or have no room. Until the state has changed, or a moment has passed, they get fewer
 * exchanges of the runtime at a time than they had when they refused.
 */
import { type Guard, logGuard } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { Tally } from '../../protocol/base/tally.ts'
import { AgedMap } from '../aged-map.ts'

const COOLDOWN_MS = 250
/** How much a replica that has no room keeps of what it had, so that it stays busy, and other servers get some of its room. */
const KEPT = 3 / 4
/** If there are more, the oldest ones end early. */
const MAX_COOLDOWNS = 10_000

interface Cooldown {
  readonly runtime: string
  readonly version: number
  readonly untilMs: number
  /** How many exchanges of the runtime it may have from us at a time. */
  readonly most: number
}

export class Cooldowns {
  readonly #now: () => number
  readonly #onOver: (runtime: string) => void
  readonly #onRoom: (runtime: string) => void
  readonly #guard: Guard
  /** The oldest first. */
  readonly #cooldowns = new AgedMap<Cooldown>()
  /** Exchanges that were handed over and are not over, by replica and runtime. */
  readonly #open = new Tally()
  #timer: NodeJS.Timeout | undefined

  /** `onOver` is called when a replica may be tried again, and `onRoom` when one that rests may get another exchange meanwhile. */
  constructor(now: () => number, logger: Logger, onOver: (runtime: string) => void, onRoom: (runtime: string) => void) {
    this.#now = now
    this.#guard = logGuard(logger, 'ending a cooldown failed')
    this.#onOver = this.#guard(onOver)
    this.#onRoom = onRoom
  }

  /** `version` is that of the state by which the replica was chosen. */
  begin(replica: string, runtime: string, version: number): void {
    const key = keyOf(replica, runtime)
    this.#cooldowns.delete(key)
    if (this.#cooldowns.size >= MAX_COOLDOWNS) this.#endOldest()
    const most = Math.floor(this.#open.of(key) * KEPT)
    this.#cooldowns.put(key, { runtime, version, untilMs: this.#now() + COOLDOWN_MS, most })
    this.#timer ??= this.#later(COOLDOWN_MS)
  }

  /** Whether the replica gets no further exchange of the runtime now. */
  has(replica: string, runtime: string, version: number): boolean {
    const key = keyOf(replica, runtime)
    const cooldown = this.#cooldowns.get(key)
    if (cooldown === undefined || this.#open.of(key) < cooldown.most) return false
    return cooldown.version === version && this.#now() < cooldown.untilMs
  }

  /** The replica was handed an exchange. */
  opened(replica: string, runtime: string): void {
    this.#open.add(keyOf(replica, runtime), 1)
  }

  /** The exchange is over, or was refused. */
  released(replica: string, runtime: string): void {
    const key = keyOf(replica, runtime)
    this.#open.add(key, -1)
    if (!this.#cooldowns.has(key)) return
    // In a microtask, since `begin` comes later if it was refused.
    queueMicrotask(
      this.#guard(() => {
        const cooldown = this.#cooldowns.get(key)
        if (cooldown !== undefined && this.#open.of(key) < cooldown.most) this.#onRoom(runtime)
      }),
    )
  }

  #endOldest(): void {
    const { key, value } = this.#cooldowns.oldest!
    this.#cooldowns.delete(key)
    // In a microtask, since the callback may begin a cooldown.
    queueMicrotask(this.#guard(() => this.#onOver(value.runtime)))
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
