/**
 * Delivers what waits, lane by lane: in order, one at a time, as soon as the runtime has a session. Nothing of a message is
 * only in memory: each attempt and what came of it are written first, and what cannot be written is not done.
 *
 *     idle ──▶ working ──▶ (nothing waits) gone
 *      ▲          │
 *      │          ├──▶ parked: no session, or paused         until a session is live
 *      └──────────┴──▶ due: the next attempt has its time    until then
 */
import { detached, logGuard } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { isSuspect, longestWaitMs, type Outcome, progressOf } from './retry.ts'
import { type InboxStore, type LaneCount, type LaneNews, type Message, type Progress, StoreError } from './store.ts'

/** After an outage, lanes begin within this time, so that they do not all begin at once. */
const JITTER_MS = 1000
/** And deliver at most one message in this time. */
const PACE_MS = 50
/** How often a store that is away is asked again. */
const STORE_AWAY_MS = 1000
/** And how often whether another server still has a lane, unless one of them says so earlier. */
const ELSEWHERE_MS = 5000

interface Lane {
  readonly runtime: string
  readonly key: string
  /** Messages of it that wait in the store. */
  waiting: number
  /** Webhooks that are on their way into the store. */
  coming: number
  /** How many messages came into it. What the store said before is out of date. */
  news: number
  working: boolean
  /** Attempts from before their messages were stored that are still under way. */
  following: number
  /** It waited for a session: it is slow until it is empty. */
  paced: boolean
  timer: NodeJS.Timeout | undefined
}

interface LanesOptions {
  readonly store: InboxStore
  readonly logger: Logger
  readonly now: () => number
  readonly random: () => number
  readonly lanesPerRuntime: number
  readonly lanes: number
  /** Whether the runtime has a session now. */
  isLive(runtime: string): boolean
  /** Rejects with a {@link StoreError}. */
  deliver(message: Message): Promise<Outcome>
  /** The message is delivered or dead, or came closer to it. */
  onProgress(message: Message, outcome: Outcome, progress: Progress): void
}

export class Lanes {
  readonly #options: LanesOptions
  readonly #runtimes = new Map<string, Map<string, Lane>>()
  readonly #paused = new Set<string>()
  /** Lanes that have an attempt under way, by runtime and in all, and those that wait for their turn. */
  readonly #active = new Map<string, number>()
  #allActive = 0
  readonly #queue = new Map<string, Set<Lane>>()
  /** Runtimes that took nothing a moment ago, and when the first of their lanes may ask again. */
  readonly #parked = new Map<string, number>()
  readonly #guard
  #closed = false

  constructor(options: LanesOptions) {
    this.#options = options
    this.#guard = logGuard(options.logger, 'a lane of the inbox failed')
  }

  /** Whether a new webhook has to stand behind others. */
  isBusy(runtime: string, key: string): boolean {
    return this.#runtimes.get(runtime)?.has(key) === true
  }

  /** Whether anything waits for the runtime. */
  has(runtime: string): boolean {
    return this.#runtimes.has(runtime)
  }

  waiting(runtime: string, key: string): number {
    const lane = this.#runtimes.get(runtime)?.get(key)
    return lane === undefined ? 0 : lane.waiting + lane.coming
  }

  isPaused(runtime: string): boolean {
    return this.#paused.has(runtime)
  }

  get paused(): readonly string[] {
    return [...this.#paused]
  }

  /** Lanes that have something. */
  get size(): number {
    let size = 0
    for (const lanes of this.#runtimes.values()) size += lanes.size
    return size
  }

  /** Runtimes for which something waits. */
  get runtimes(): IterableIterator<string> {
    return this.#runtimes.keys()
  }

  pause(runtime: string, paused: boolean): void {
    if (paused) this.#paused.add(runtime)
    else if (this.#paused.delete(runtime)) this.wake(runtime)
  }

  #lane(runtime: string, key: string): Lane {
    const lanes = this.#runtimes.get(runtime) ?? new Map<string, Lane>()
    this.#runtimes.set(runtime, lanes)
    const lane = lanes.get(key) ?? {
      ...{ runtime, key, waiting: 0, coming: 0, news: 0 },
      ...{ working: false, following: 0, paced: false, timer: undefined },
    }
    lanes.set(key, lane)
    return lane
  }

  /** A webhook is on its way into the store: what comes after it stands behind it. */
  expect(runtime: string, key: string): void {
    this.#lane(runtime, key).coming++
  }

  /**
   * It has arrived, `stored` or not. `underWay`: an attempt that was begun before it was stored, and that the lane waits
   * for.
   */
  arrived(runtime: string, key: string, stored: Message | undefined, underWay?: Promise<Outcome>): void {
    const lane = this.#lane(runtime, key)
    lane.coming--
    if (stored === undefined) this.#leaveIfEmpty(lane)
    else {
      lane.waiting++
      lane.news++
      if (underWay === undefined) this.#begin(lane)
      else detached(this.#options.logger, 'a lane of the inbox failed', this.#follow(lane, stored, underWay))
    }
  }

  /** The store has these, after a start or because they are to be delivered once more. */
  add(runtime: string, key: string, messages: number): void {
    const lane = this.#lane(runtime, key)
    lane.waiting += messages
    lane.news += messages
    lane.paced = true
    this.#begin(lane)
  }

  /** What waits for its next attempt is tried at once. */
  hurry(runtime: string, key: string): void {
    const lane = this.#runtimes.get(runtime)?.get(key)
    if (lane !== undefined && !lane.working) this.#later(lane, 0)
  }

  /** This many are gone: removed by hand, or expired. */
  remove(runtime: string, key: string, messages: number): void {
    const lane = this.#runtimes.get(runtime)?.get(key)
    if (lane === undefined) return
    this.#less(lane, messages)
    if (this.#options.store.shared === undefined) this.#leaveIfEmpty(lane)
    else this.hurry(runtime, key)
  }

  /** Another server stored something in a lane, or has it no longer. */
  heard(runtime: string, key: string, what: LaneNews): void {
    const lane = this.#runtimes.get(runtime)?.get(key)
    if (lane !== undefined && what === 'free') this.hurry(runtime, key)
    else if (lane !== undefined) {
      lane.waiting = Math.max(1, lane.waiting)
      lane.news++
    }
    if (lane !== undefined || what === 'free') return
    const made = this.#lane(runtime, key)
    made.waiting = 1
    made.paced = true
    // Whoever stored it is about to try it.
    this.#later(made, JITTER_MS * (1 + this.#options.random()))
  }

  /** The store opened anew: what it has counts. */
  reset(lanes: readonly LaneCount[]): void {
    for (const each of this.#runtimes.values()) for (const lane of each.values()) lane.waiting = 0
    for (const { runtime, lane, messages } of lanes) this.add(runtime, lane, messages)
    for (const each of this.#runtimes.values()) for (const lane of each.values()) this.#leaveIfEmpty(lane)
  }

  /**
   * Before the store is asked what waits. Takes its answer: a lane that is not known begins, and where servers share a store, what the
   * others did counts. What came into a lane meanwhile may be in the answer or not: it counts, rather twice than not at all.
   */
  reconciling(): (lanes: readonly LaneCount[]) => void {
    const asked = new Map<Lane, number>()
    if (this.#options.store.shared !== undefined)
      for (const lanes of this.#runtimes.values()) for (const lane of lanes.values()) asked.set(lane, lane.news)
    return counted => {
      const counts = new Map<Lane, number>()
      for (const { runtime, lane: key, messages } of counted) {
        const lane = this.#runtimes.get(runtime)?.get(key)
        if (lane === undefined) this.add(runtime, key, messages)
        else counts.set(lane, messages)
      }
      for (const [lane, news] of asked) {
        if (this.#runtimes.get(lane.runtime)?.get(lane.key) !== lane) continue
        lane.waiting = (counts.get(lane) ?? 0) + lane.news - news
        this.#leaveIfEmpty(lane)
      }
    }
  }

  /** A session may have come. `undefined`: of any runtime. */
  wake(runtime: string | undefined): void {
    const woken = runtime === undefined ? [...this.#runtimes.keys()] : [runtime]
    for (const each of woken) {
      this.#parked.delete(each)
      for (const lane of this.#runtimes.get(each)?.values() ?? []) {
        if (lane.paced && !lane.working) this.#later(lane, JITTER_MS * this.#options.random())
      }
    }
  }

  /**
   * Only the store knows when a lane is empty that is at work, or that other servers have, too: what it works on may be ended by hand
   * or by its age meanwhile, and nothing may pass by those that are left.
   */
  #less(lane: Lane, messages: number): void {
    const isSure = this.#options.store.shared === undefined && !lane.working && lane.following === 0
    lane.waiting = Math.max(isSure ? 0 : 1, lane.waiting - messages)
  }

  #leaveIfEmpty(lane: Lane): void {
    if (lane.waiting > 0 || lane.coming > 0 || lane.working || lane.following > 0) return
    clearTimeout(lane.timer)
    this.#leaveQueue(lane)
    this.#release(lane)
    const lanes = this.#runtimes.get(lane.runtime)
    if (lanes?.get(lane.key) === lane) lanes.delete(lane.key)
    if (lanes?.size !== 0) return
    this.#runtimes.delete(lane.runtime)
    this.#parked.delete(lane.runtime)
  }

  /** Where servers share a store, another one may have it. */
  #release({ runtime, key, waiting }: Lane): void {
    this.#options.store.shared?.release(runtime, key, waiting === 0)
  }

  #later(lane: Lane, ms: number): void {
    clearTimeout(lane.timer)
    if (ms > PACE_MS) this.#release(lane)
    const begin = this.#guard(() => {
      lane.timer = undefined
      this.#begin(lane)
    })
    lane.timer = setTimeout(begin, ms).unref()
  }

  #begin(lane: Lane): void {
    if (lane.working || lane.following > 0 || this.#closed || lane.timer !== undefined) return
    if (this.#queue.get(lane.runtime)?.has(lane) === true) return
    detached(this.#options.logger, 'a lane of the inbox failed', this.#work(lane))
  }

  /** An attempt from before the message was stored. */
  async #follow(lane: Lane, message: Message, underWay: Promise<Outcome>): Promise<void> {
    lane.following++
    try {
      const { state } = await this.#note(message, await underWay)
      if (state !== undefined) this.#less(lane, 1)
    } catch (error) {
      this.#failed(lane, error)
    } finally {
      lane.following--
    }
    this.#begin(lane)
    this.#leaveIfEmpty(lane)
  }

  #failed(lane: Lane, error: unknown): void {
    this.#later(lane, STORE_AWAY_MS)
    if (!(error instanceof StoreError)) throw error
  }

  async #work(lane: Lane): Promise<void> {
    lane.working = true
    try {
      while (lane.waiting > 0 && lane.following === 0 && !this.#closed && lane.timer === undefined) {
        if (!this.#mayWork(lane)) break
        this.#count(lane.runtime, 1)
        try {
          await this.#step(lane)
        } finally {
          this.#count(lane.runtime, -1)
          this.#nextInTurn()
        }
      }
    } catch (error) {
      this.#failed(lane, error)
    } finally {
      lane.working = false
      this.#leaveIfEmpty(lane)
    }
  }

  #mayWork(lane: Lane): boolean {
    const { runtime } = lane
    if (this.#paused.has(runtime) || !this.#options.isLive(runtime)) {
      lane.paced = true
      this.#release(lane)
      return false
    }
    const parkedMs = (this.#parked.get(runtime) ?? 0) - performance.now()
    if (parkedMs > 0) {
      lane.paced = true
      this.#later(lane, parkedMs + JITTER_MS * this.#options.random())
      return false
    }
    if (this.#hasPlace(runtime)) return true
    const queued = this.#queue.get(runtime) ?? new Set()
    this.#queue.set(runtime, queued.add(lane))
    return false
  }

  /** A runtime has at most as many places as it leaves: those whose receivers are silent cannot take them all. */
  #hasPlace(runtime: string): boolean {
    const active = this.#active.get(runtime) ?? 0
    return active < this.#options.lanesPerRuntime && active < this.#options.lanes - this.#allActive
  }

  #count(runtime: string, change: 1 | -1): void {
    this.#allActive += change
    const active = (this.#active.get(runtime) ?? 0) + change
    if (active === 0) this.#active.delete(runtime)
    else this.#active.set(runtime, active)
  }

  /** Those that have waited longest and may, until all places are taken: one that has lost its session takes none. */
  #nextInTurn(): void {
    for (const [runtime, lanes] of this.#queue) {
      if (this.#allActive >= this.#options.lanes) return
      if (!this.#hasPlace(runtime)) continue
      const [lane] = lanes
      this.#leaveQueue(lane!)
      // The other runtimes come first.
      if (lanes.size > 0 && this.#queue.delete(runtime)) this.#queue.set(runtime, lanes)
      this.#begin(lane!)
    }
  }

  #leaveQueue(lane: Lane): void {
    const lanes = this.#queue.get(lane.runtime)
    if (lanes?.delete(lane) === true && lanes.size === 0) this.#queue.delete(lane.runtime)
  }

  /** The first of the lane, if its time has come. */
  async #step(lane: Lane): Promise<void> {
    const { store, now } = this.#options
    const { news } = lane
    const heads = await store.next(lane.runtime, lane.key, 2)
    if (heads === undefined) {
      this.#later(lane, ELSEWHERE_MS * (1 + this.#options.random()))
      return
    }
    const [first, second] = heads
    if (first === undefined) {
      if (lane.news === news) lane.waiting = 0
      return
    }
    const waitMs = first.next - now()
    if (waitMs > 0 && waitMs <= longestWaitMs(first)) {
      this.#later(lane, waitMs)
      return
    }
    const startedMs = now()
    const { outcome, progress } = await this.#attempt(first)
    if (progress.state !== undefined) this.#less(lane, 1)
    else if (outcome.kind === 'offline') this.#park(lane)
    else if (second !== undefined && isSuspect({ ...first, ...progress }, now())) await this.#test(lane, first, second)
    if (lane.paced && lane.waiting > 0 && lane.timer === undefined)
      this.#later(lane, PACE_MS - Math.min(PACE_MS, Math.max(0, now() - startedMs)))
    if (lane.waiting === 0) lane.paced = false
  }

  /** The runtime has gone, or is overloaded. Another attempt, of any of its lanes, would only find that out again. */
  #park(lane: Lane): void {
    lane.paced = true
    this.#parked.set(lane.runtime, performance.now() + STORE_AWAY_MS)
    this.#later(lane, STORE_AWAY_MS)
  }

  /** Finds out whether the message fails or its receiver: the next message is tried once. */
  async #test(lane: Lane, first: Message, second: Message): Promise<void> {
    const { outcome } = await this.#attempt(second, true)
    if (outcome.kind !== 'delivered') return
    this.#less(lane, 2)
    const progress: Progress = { state: 'dead', reason: 'poison' }
    await this.#write(first, progress)
    this.#options.onProgress(first, { kind: 'failed', reason: 'poison' }, progress)
  }

  /** `test`: only whether it passes counts. */
  async #attempt(message: Message, test = false): Promise<{ outcome: Outcome; progress: Progress }> {
    const tried = { ...message, attempts: message.attempts + 1 }
    await this.#write(message, { attempts: tried.attempts })
    const outcome = await this.#options.deliver(tried)
    return { outcome, progress: await this.#note(tried, outcome, test) }
  }

  async #note(message: Message, outcome: Outcome, test = false): Promise<Progress> {
    const { now, random } = this.#options
    const progress = test && outcome.kind !== 'delivered' ? {} : progressOf(message, outcome, now(), random())
    if (Object.keys(progress).length > 0) await this.#write(message, progress)
    this.#options.onProgress(message, outcome, progress)
    return progress
  }

  async #write({ id }: Message, set: Progress): Promise<void> {
    const { store, now } = this.#options
    const { status } = await store.apply({ op: 'update', id, set, at: now(), owned: true })
    if (status === 'absent') throw new StoreError('away', 'the message is gone, or another server has its lane')
  }

  close(): void {
    this.#closed = true
    for (const lanes of this.#runtimes.values()) for (const lane of lanes.values()) clearTimeout(lane.timer)
  }
}
