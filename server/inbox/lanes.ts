/**
 * Delivers waiting messages lane by lane: in order, one at a time, as soon as the runtime has a session. No state of a
 * message is in memory alone (`attempts.ts`).
 *
 *     idle ──▶ working ──▶ removed, once nothing waits
 *      ▲          │
 *      │          ├──▶ parked: no session, or paused         until there is a session
 *      └──────────┴──▶ scheduled: a retry                    until it is due
 */
import { detached, logGuard } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { Attempts, type AttemptsOptions } from './attempts.ts'
import { Places } from './places.ts'
import { Recount } from './recount.ts'
import { isSuspect, longestWaitMs, type Outcome, tookReceiverDown } from './retry.ts'
import { type LaneCount, type LaneEvent, type Message, StoreError } from './store.ts'

/** After an outage, lanes start at random times within this span, so that they do not all start at once. */
const JITTER_MS = 1000
/** After an outage, a lane delivers at most one message per this time. */
const PACE_MS = 50
/** How many are delivered that way. If it were all, a lane to which more are sent would never catch up. */
const PACED = 100
/** How long a lane waits before it tries again after the store failed, or the runtime was offline. */
const STORE_RETRY_MS = 1000
/** How often the log says why stored webhooks wait although the store is open. */
const SAY_STUCK_MS = 60_000
/** How often a lane that another server owns is tried again, unless that server releases it sooner. */
const OWNED_ELSEWHERE_MS = 5000

/** Most lanes that other servers' messages may add before the store is asked what waits. */
const MAX_HEARD = 100_000

interface Lane {
  readonly runtime: string
  readonly key: string
  /** Messages that wait in the store. */
  waiting: number
  /** Webhooks that are being stored. */
  incoming: number
  /** When the oldest of them arrived, in ms since 1970. 0 if that is not known. */
  oldest: number
  /** Counts additions. If it changed since the store was asked, the store's answer is out of date. */
  arrivals: number
  working: boolean
  /** Its last step failed, since the store did not answer, or did not find a message, or not as ours. */
  isStuck: boolean
  /** Attempts under way that began before their messages were stored. */
  earlyAttempts: number
  /** How many messages it still delivers at a limited pace, because it waited for a session. */
  pacedLeft: number
  timer: NodeJS.Timeout | undefined
  recount: Recount | undefined
}

interface LanesOptions extends Omit<AttemptsOptions, 'pauseAfter'> {
  readonly logger: Logger
  readonly lanesPerRuntime: number
  readonly lanes: number
  /** Whether the runtime has a session now. */
  isLive(runtime: string): boolean
}

export class Lanes {
  readonly #options: LanesOptions
  readonly #runtimes = new Map<string, Map<string, Lane>>()
  readonly #paused = new Set<string>()
  readonly #places: Places<Lane>
  readonly #attempts: Attempts
  /** Runtimes that accepted nothing a moment ago, and when their lanes may try again. */
  readonly #parkedUntil = new Map<string, number>()
  readonly #guard
  /** Work on lanes, and attempts that began before their messages were stored. */
  readonly #underWay = new Set<Promise<void>>()
  #unsure = false
  #heard = 0
  #closed = false
  /** How often an outcome could not be written. */
  #unwritten = 0
  #saidStuckMs = Number.NEGATIVE_INFINITY

  constructor(options: LanesOptions) {
    this.#options = options
    this.#places = new Places(options, lane => this.#begin(lane))
    this.#attempts = new Attempts({ ...options, pauseAfter: error => this.#pauseAfter(error) })
    this.#guard = logGuard(options.logger, 'a lane of the inbox failed')
  }

  /** Whether a webhook must wait behind others: a new one, or with `arrived` one that arrived then and has waited for a session. */
  isBusy(runtime: string, key: string, arrived: number = Number.POSITIVE_INFINITY): boolean {
    const lane = this.#runtimes.get(runtime)?.get(key)
    return lane !== undefined && lane.oldest < arrived
  }

  /** Whether anything waits for the runtime. */
  has(runtime: string): boolean {
    return this.#runtimes.has(runtime)
  }

  waiting(runtime: string, key: string): number {
    const lane = this.#runtimes.get(runtime)?.get(key)
    return lane === undefined ? 0 : lane.waiting + lane.incoming
  }

  isPaused(runtime: string): boolean {
    return this.#paused.has(runtime)
  }

  get paused(): readonly string[] {
    return [...this.#paused]
  }

  /** Whether the store must be asked what waits: other servers may add to it, or a count may be wrong. */
  get isUnsure(): boolean {
    return this.#unsure || this.#options.store.shared !== undefined
  }

  /** A message may have been subtracted twice, or may wait without being counted. */
  doubt(): void {
    this.#unsure = true
  }

  /** Number of lanes that are not empty. */
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

  *#all(): IterableIterator<Lane> {
    for (const lanes of this.#runtimes.values()) yield* lanes.values()
  }

  #lane(runtime: string, key: string, oldest = 0): Lane {
    const lanes = this.#runtimes.get(runtime) ?? new Map<string, Lane>()
    this.#runtimes.set(runtime, lanes)
    const lane = lanes.get(key) ?? {
      ...{ runtime, key, waiting: 0, incoming: 0, oldest, arrivals: 0 },
      ...{ working: false, isStuck: false, earlyAttempts: 0, pacedLeft: 0, timer: undefined, recount: undefined },
    }
    lane.oldest = Math.min(lane.oldest, oldest)
    lanes.set(key, lane)
    return lane
  }

  /** A webhook is about to be stored, perhaps while an attempt of it is under way. Later ones wait behind it. */
  expect(runtime: string, key: string, arrived: number, isUnderWay = false): void {
    const lane = this.#lane(runtime, key, arrived)
    lane.incoming++
    if (isUnderWay) lane.earlyAttempts++
  }

  /**
   * The webhook was stored, or was not (`stored` is `undefined`). `underWay` is an attempt that began before it was stored;
   * the lane waits for its outcome.
   */
  arrived(runtime: string, key: string, stored: Message | undefined, underWay?: Promise<Outcome>): void {
    const lane = this.#runtimes.get(runtime)!.get(key)!
    lane.incoming--
    if (stored === undefined) {
      if (underWay !== undefined) lane.earlyAttempts--
      // Another server may have stored one meanwhile.
      this.#begin(lane)
      this.#removeIfEmpty(lane)
    } else {
      lane.waiting++
      lane.arrivals++
      if (underWay === undefined) this.#begin(lane)
      else this.#run(this.#follow(lane, stored, underWay))
    }
  }

  /** Adds messages that are in the store already: after a start, or because they are replayed. */
  add(runtime: string, key: string, messages: number): void {
    const lane = this.#lane(runtime, key)
    lane.waiting += messages
    lane.arrivals += messages
    lane.pacedLeft = PACED
    this.#begin(lane)
  }

  /** Skips the wait for the next attempt. */
  retryNow(runtime: string, key: string): void {
    const lane = this.#runtimes.get(runtime)?.get(key)
    if (lane !== undefined && !lane.working) this.#schedule(lane, 0)
  }

  /** Messages were dropped by an operator, or expired. */
  remove(runtime: string, key: string, messages: number): void {
    const lane = this.#runtimes.get(runtime)?.get(key)
    if (lane === undefined) return
    // The attempt under way may be of a removed message, and subtracts it again.
    if (lane.working || lane.earlyAttempts > 0) this.doubt()
    this.#decrement(lane, messages)
    this.#removeIfEmpty(lane)
    this.retryNow(runtime, key)
  }

  /** Another server stored a message in a lane, or released the lane. */
  laneChanged(runtime: string, key: string, what: LaneEvent): void {
    const lane = this.#runtimes.get(runtime)?.get(key)
    if (lane !== undefined && what === 'free') this.retryNow(runtime, key)
    else if (lane !== undefined) {
      lane.oldest = 0
      lane.waiting = Math.max(1, lane.waiting)
      lane.arrivals++
    }
    if (lane !== undefined || what === 'free' || this.#heard >= MAX_HEARD) return
    this.#heard++
    const made = this.#lane(runtime, key)
    made.waiting = 1
    made.pacedLeft = PACED
    // The server that stored the message is about to try it.
    this.#schedule(made, JITTER_MS * (1 + this.#options.random()))
  }

  /** The store was opened again: adopts its counts. */
  reset(lanes: readonly LaneCount[]): void {
    for (const lane of this.#all()) lane.waiting = 0
    for (const { runtime, lane, messages } of lanes) this.add(runtime, lane, messages)
    for (const lane of this.#all()) this.#removeIfEmpty(lane)
  }

  /**
   * Call it before asking the store what waits, and pass the answer to the returned function. Unknown lanes are added, and the
   * counts of known ones are corrected. Messages that came meanwhile may be in the answer or not, so they are added: a count that
   * is too high does no harm.
   */
  reconciling(): (lanes: readonly LaneCount[]) => void {
    this.#unsure = false
    this.#heard = 0
    const asked = new Map<Lane, number>()
    for (const lane of this.#all()) asked.set(lane, lane.arrivals)
    return counted => {
      const counts = new Map<Lane, number>()
      for (const { runtime, lane: key, messages } of counted) {
        const lane = this.#runtimes.get(runtime)?.get(key)
        if (lane === undefined) this.add(runtime, key, messages)
        else counts.set(lane, messages)
      }
      for (const [lane, arrivals] of asked) this.#correct(lane, counts.get(lane) ?? 0, arrivals)
    }
  }

  /** `arrivals` are from before the store was asked. */
  #correct(lane: Lane, counted: number, arrivals: number): void {
    if (this.#runtimes.get(lane.runtime)?.get(lane.key) !== lane) return
    lane.waiting = counted + lane.arrivals - arrivals
    this.#removeIfEmpty(lane)
  }

  /** Asks a store that servers share what waits in the lane. False if it did so a moment ago. */
  async recount(runtime: string, key: string): Promise<boolean> {
    const { store, logger } = this.#options
    const lane = this.#runtimes.get(runtime)?.get(key)
    if (lane === undefined || store.shared === undefined) return false
    lane.recount ??= new Recount(logger, async () => {
      const { arrivals } = lane
      this.#correct(lane, await store.shared!.waiting(runtime, key), arrivals)
    })
    return await lane.recount.run()
  }

  /** A session of the runtime may have become ready; `undefined` means any runtime. */
  wake(runtime: string | undefined): void {
    const woken = runtime === undefined ? [...this.#runtimes.keys()] : [runtime]
    for (const each of woken) {
      this.#parkedUntil.delete(each)
      for (const lane of this.#runtimes.get(each)?.values() ?? []) {
        if (lane.pacedLeft > 0 && !lane.working) this.#schedule(lane, JITTER_MS * this.#options.random())
      }
    }
  }

  /** The runtime has a session. Lanes that wait for one begin, in case nobody woke them. */
  resume(runtime: string): void {
    for (const lane of this.#runtimes.get(runtime)?.values() ?? []) this.#begin(lane)
  }

  /**
   * While a lane works on a message, that message may be dropped or expire; and other servers may add to a shared lane. In these
   * cases the count stays at least 1 until the store says that the lane is empty, so that no new webhook overtakes those that are left.
   */
  #decrement(lane: Lane, messages: number): void {
    const isSure = this.#options.store.shared === undefined && !lane.working && lane.earlyAttempts === 0
    lane.waiting = Math.max(isSure ? 0 : 1, lane.waiting - messages)
  }

  #removeIfEmpty(lane: Lane): void {
    if (lane.waiting > 0 || lane.incoming > 0 || lane.working || lane.earlyAttempts > 0) return
    clearTimeout(lane.timer)
    this.#places.leave(lane)
    this.#release(lane)
    const lanes = this.#runtimes.get(lane.runtime)
    if (lanes?.get(lane.key) === lane) lanes.delete(lane.key)
    if (lanes?.size !== 0) return
    this.#runtimes.delete(lane.runtime)
    this.#parkedUntil.delete(lane.runtime)
  }

  /** If servers share the store, another one may own the lane from now on. */
  #release({ runtime, key, waiting }: Lane): void {
    this.#options.store.shared?.release(runtime, key, waiting === 0 || this.#closed)
  }

  #schedule(lane: Lane, ms: number): void {
    clearTimeout(lane.timer)
    if (ms > PACE_MS) this.#release(lane)
    const begin = this.#guard(() => {
      lane.timer = undefined
      this.#begin(lane)
    })
    lane.timer = setTimeout(begin, ms).unref()
  }

  #begin(lane: Lane): void {
    if (lane.working || lane.earlyAttempts > 0 || this.#closed || lane.timer !== undefined) return
    if (this.#places.isQueued(lane)) return
    this.#run(this.#work(lane))
  }

  #run(work: Promise<void>): void {
    const over = work.finally(() => this.#underWay.delete(over))
    this.#underWay.add(over)
    detached(this.#options.logger, 'a lane of the inbox failed', over)
  }

  /** Waits for an attempt that began before the message was stored. */
  async #follow(lane: Lane, message: Message, underWay: Promise<Outcome>): Promise<void> {
    try {
      const { state } = await this.#attempts.record(message, await underWay)
      if (state !== undefined) this.#decrement(lane, 1)
    } catch (error) {
      this.#failed(lane, error)
    } finally {
      lane.earlyAttempts--
    }
    this.#begin(lane)
    this.#removeIfEmpty(lane)
  }

  #failed(lane: Lane, error: unknown): void {
    this.#schedule(lane, STORE_RETRY_MS)
    if (!(error instanceof StoreError)) throw error
    if (error.kind === 'full') {
      this.#sayFull(error)
      return
    }
    // Once may be because an operator has dropped it, another server has the lane now, or the store is about to be away.
    if (lane.isStuck && !this.#closed && this.#options.store.stats().open)
      this.#say({ runtime: lane.runtime, lane: lane.key }, error, 'the webhooks of a lane cannot be delivered')
    lane.isStuck = true
  }

  /** Other servers may have taken over the lane when this resolves. */
  async #pauseAfter(error: unknown): Promise<void> {
    if (this.#closed || !(error instanceof StoreError) || error.kind === 'gone') throw error
    if (error.kind === 'full') this.#sayFull(error)
    else if (this.#options.store.stats().open) this.#say({}, error, 'what became of a webhook cannot be written')
    this.#unwritten++
    await new Promise(resolve => {
      setTimeout(resolve, STORE_RETRY_MS).unref()
    })
  }

  #sayFull(error: StoreError): void {
    this.#say({}, error, 'stored webhooks cannot be delivered until the disk has room')
  }

  /** The store stays open then, so nobody else says why nothing is delivered. */
  #say(fields: object, { message }: StoreError, text: string): void {
    const nowMs = performance.now()
    if (nowMs - this.#saidStuckMs < SAY_STUCK_MS) return
    this.#saidStuckMs = nowMs
    this.#options.logger.error({ ...fields, err: { message } }, text)
  }

  async #work(lane: Lane): Promise<void> {
    lane.working = true
    try {
      while (lane.waiting > 0 && lane.earlyAttempts === 0 && !this.#closed && lane.timer === undefined) {
        if (!this.#mayWork(lane) || !this.#places.take(lane)) break
        try {
          await this.#step(lane)
          lane.isStuck = false
        } finally {
          this.#places.free(lane)
        }
      }
    } catch (error) {
      this.#failed(lane, error)
    } finally {
      lane.working = false
      if (this.#closed) this.#release(lane)
      this.#removeIfEmpty(lane)
    }
  }

  #mayWork(lane: Lane): boolean {
    const { runtime } = lane
    if (this.#paused.has(runtime) || !this.#options.isLive(runtime)) {
      lane.pacedLeft = PACED
      this.#release(lane)
      return false
    }
    const parkedMs = (this.#parkedUntil.get(runtime) ?? 0) - performance.now()
    if (parkedMs > 0) {
      lane.pacedLeft = PACED
      this.#schedule(lane, parkedMs + JITTER_MS * this.#options.random())
      return false
    }
    return true
  }

  /** Tries the first message of the lane, if it is due. */
  async #step(lane: Lane): Promise<void> {
    const { store, now } = this.#options
    const { arrivals } = lane
    const heads = await store.next(lane.runtime, lane.key, 2)
    if (heads === undefined) {
      this.#schedule(lane, OWNED_ELSEWHERE_MS * (1 + this.#options.random()))
      return
    }
    const [first, second] = heads
    // The store may return a webhook before we know that it is stored, while its first attempt is under way.
    if (lane.earlyAttempts > 0) return
    if (first === undefined) {
      if (lane.arrivals === arrivals) lane.waiting = 0
      return
    }
    const leftMs = first.expires - now()
    if (leftMs <= 0) {
      await this.#attempts.giveUp(first, 'expired')
      this.#decrement(lane, 1)
      return
    }
    const waitMs = first.next - now()
    if (waitMs > 0 && waitMs <= longestWaitMs(first)) {
      this.#schedule(lane, Math.min(waitMs, leftMs))
      return
    }
    const startedMs = now()
    const isTestDue = second !== undefined && isSuspect(first, startedMs) && tookReceiverDown(first, second)
    if (isTestDue && (await this.#attempts.testBefore(first, second, this.#round(lane)))) return
    const { outcome, progress, tried } = await this.#attempts.try(first)
    if (progress.state !== undefined) this.#decrement(lane, 1)
    else if (outcome.kind === 'offline') this.#park(lane)
    else if (second !== undefined && isSuspect(tried, now())) await this.#attempts.testBehind(first, this.#round(lane))
    if (progress.state === 'delivered' && second !== undefined && second.failedSince > 0)
      await this.#attempts.forgetTests(first)
    if (lane.waiting === 0) lane.pacedLeft = 0
    if (lane.pacedLeft === 0 || lane.timer !== undefined) return
    lane.pacedLeft--
    this.#schedule(lane, PACE_MS - Math.min(PACE_MS, Math.max(0, now() - startedMs)))
  }

  /** The runtime is offline or overloaded, so an attempt of any of its lanes would fail the same way. */
  #park(lane: Lane): void {
    lane.pacedLeft = PACED
    this.#parkedUntil.set(lane.runtime, performance.now() + STORE_RETRY_MS)
    this.#schedule(lane, STORE_RETRY_MS)
  }

  /** After a wait for the store, the receiver may no longer be as the round has found it, so the round ends. */
  #round(lane: Lane): Parameters<Attempts['testBehind']>[1] {
    const unwritten = this.#unwritten
    return {
      mustEnd: () => this.#closed || this.#paused.has(lane.runtime) || this.#unwritten > unwritten,
      onLeft: messages => this.#decrement(lane, messages),
    }
  }

  /** Begins nothing more. Resolves once nothing is under way. Other servers may take each lane as soon as it is idle. */
  async close(): Promise<void> {
    this.#closed = true
    for (const lane of this.#all()) {
      clearTimeout(lane.timer)
      if (!lane.working) this.#release(lane)
    }
    await Promise.allSettled(this.#underWay)
  }
}
