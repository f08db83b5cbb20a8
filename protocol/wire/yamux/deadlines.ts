import { type Clock, DeadlineTimer, Delay, type TimerOwner } from './clock.ts'
import type { SessionLimits } from './limits.ts'
import type { Outgoing } from './outgoing.ts'
import type { Pings } from './pings.ts'
import type { StreamChain } from './stream-chain.ts'
import type { YamuxStream } from './yamux-stream.ts'

export interface DeadlineOwner {
  /** It is time to send a ping. */
  keepAlive(): void
  /** The peer should be pinged early, since it owes an answer. */
  knock(): void
  /** The peer did not acknowledge the stream in time. */
  expired(stream: YamuxStream): void
  /** The peer has owed something for too long. The session is over. */
  lost(reason: string): void
  failed(error: unknown): void
}

/** How long an ACK waits for a frame that it can go with. */
const ACK_DELAY_MS = 20
/** A peer that pings in batches may be late by this much. */
const OVERDUE_MS = 500
/** An answer is overdue after twice the usual round trip, and at least after this time. */
const LEAST_LATE_MS = 250
/** If a timer fires this late, the process stood still. The peer then gets another moment before it counts as dead. */
const STOOD_STILL_MS = 2_000

/** The timed work of a session: it sends acknowledgements and pings when they are due, and ends every wait for the peer. */
export class Deadlines implements TimerOwner {
  readonly #clock: Clock
  readonly #limits: SessionLimits
  readonly #pings: Pings
  readonly #unacknowledged: StreamChain
  readonly #out: Outgoing
  readonly #owner: DeadlineOwner
  readonly #timer: DeadlineTimer
  /** Only an end that accepts streams acknowledges any. */
  #acks: Delay | undefined
  #nextPingAt: number
  #closeAt = Number.POSITIVE_INFINITY

  constructor(
    clock: Clock,
    limits: SessionLimits,
    { pings, unacknowledged, out }: { pings: Pings; unacknowledged: StreamChain; out: Outgoing },
    owner: DeadlineOwner,
  ) {
    this.#clock = clock
    this.#limits = limits
    this.#pings = pings
    this.#unacknowledged = unacknowledged
    this.#out = out
    this.#owner = owner
    this.#nextPingAt = clock.now() + limits.pingIntervalMs
    this.#timer = new DeadlineTimer(clock, this)
    this.#timer.by(this.#nextPingAt)
  }

  /** @internal */
  threw(error: unknown): void {
    this.#owner.failed(error)
  }

  /** Whether the peer is late with the answer to a ping or the acknowledgement of a stream. */
  get overdue(): boolean {
    const since = Math.min(this.#pings.oldestAt, this.#oldestOpenAt)
    return since !== Number.POSITIVE_INFINITY && this.#clock.now() - since >= this.#lateMs
  }

  get #oldestOpenAt(): number {
    return this.#unacknowledged.oldest?.openedAt ?? Number.POSITIVE_INFINITY
  }

  get #lateMs(): number {
    return Math.max(LEAST_LATE_MS, 2 * this.#out.delivery.rttMs)
  }

  /** Call it when a stream waits for its acknowledgement. */
  opened(now: number): void {
    this.#timer.by(now + Math.min(this.#lateMs, this.#limits.openDeadlineMs))
  }

  /** Call it when an ACK waits for a frame that it can go with. */
  acknowledging(): void {
    if (this.#closeAt !== Number.POSITIVE_INFINITY) return
    this.#acks ??= new Delay(this.#clock, ACK_DELAY_MS, () => this.#sendAcks(), this)
    this.#acks.start()
  }

  /** Call it when a ping waits for its answer. */
  pinging(): void {
    this.#timer.by(this.#pings.deadline)
  }

  /** Call it when the peer has pinged, so that we need not. */
  pinged(): void {
    this.#nextPingAt = this.#clock.now() + this.#limits.pingIntervalMs + OVERDUE_MS
  }

  /** Call it when bytes wait for the peer to read. */
  writing(now: number): void {
    this.#timer.by(now + this.#limits.writeDeadlineMs)
  }

  /** From now on, only the peer's close matters. It gets as long as for a write. */
  closing(): void {
    this.#acks?.stop()
    this.#closeAt = this.#clock.now() + this.#limits.writeDeadlineMs
    this.#timer.by(this.#closeAt)
  }

  stop(): void {
    this.#timer.stop()
    this.#acks?.stop()
  }

  /** @internal */
  due(now: number, lateMs: number): void {
    if (this.#closeAt !== Number.POSITIVE_INFINITY) {
      if (now >= this.#closeAt) this.#owner.lost('the peer did not close')
      else this.#timer.by(this.#closeAt)
    } else if (lateMs > STOOD_STILL_MS) this.#timer.by(now + STOOD_STILL_MS / 2)
    else {
      this.#expireOpens(now)
      if (this.#isLost(now)) return
      this.#ping(now)
      this.#rearm(now)
    }
  }

  #sendAcks(): void {
    if (this.#out.hasAcks) this.#out.schedule()
  }

  /** On a slow path, an acknowledgement is as late as the answers to pings. It is missing only once those have arrived. */
  #expireOpens(now: number): void {
    const heardUntil = Math.min(now, this.#pings.oldestAt)
    for (let stream = this.#unacknowledged.oldest; stream !== undefined; stream = this.#unacknowledged.oldest) {
      if (stream.openedAt + this.#limits.openDeadlineMs > heardUntil) return
      this.#owner.expired(stream)
    }
  }

  #isLost(now: number): boolean {
    const stalledSince = this.#out.stalledSince ?? Number.POSITIVE_INFINITY
    if (this.#pings.dead(now)) this.#owner.lost('the peer does not answer pings')
    else if (now - stalledSince >= this.#limits.writeDeadlineMs) this.#owner.lost('the peer has stopped reading')
    else return false
    return true
  }

  /** For a stream that is not acknowledged, the peer is pinged without waiting for the next ping. */
  #ping(now: number): void {
    if (now >= this.#nextPingAt) {
      this.#nextPingAt = now + this.#limits.pingIntervalMs
      this.#owner.keepAlive()
    }
    const isAsked = this.#pings.oldestAt !== Number.POSITIVE_INFINITY
    if (!isAsked && now - this.#oldestOpenAt >= this.#lateMs) this.#owner.knock()
  }

  #rearm(now: number): void {
    const opened = this.#oldestOpenAt
    const lateAt = opened + this.#lateMs
    const openAt = lateAt > now ? lateAt : Math.max(opened + this.#limits.openDeadlineMs, now + LEAST_LATE_MS)
    const stalledAt = (this.#out.stalledSince ?? Number.POSITIVE_INFINITY) + this.#limits.writeDeadlineMs
    this.#timer.by(Math.min(this.#nextPingAt, openAt, this.#pings.deadline, stalledAt))
  }
}
