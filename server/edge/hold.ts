/**
 * Holds requests for a runtime that is known but has no live session at the moment. They wait in order, each for a bounded time,
 * until a session comes. Requests and bytes of their bodies are bounded, per runtime and in total; see `hold-room.ts`.
 */
import { type Failing, stepOf } from '../../protocol/base/guard.ts'
import { AgedMap } from '../aged-map.ts'
import type { HoldLimits } from '../limits.ts'
import type { Carrier } from '../registry.ts'
import type { CarrierSource } from './carriers.ts'
import { HoldRoom, type Occupant } from './hold-room.ts'

/** A request that can wait. */
export interface Waiter extends Failing {
  /** When it began to wait. */
  readonly sinceMs: number
  /** A session may have become ready. The request proceeds (true), or keeps its place in the queue (false). */
  wake(): boolean
  /** No session came in time. */
  expire(): void
  /** Its place is needed for another request. */
  refuse(): void
}

/** What became of requests that waited, since the start. */
export interface HoldOutcomes {
  /** A session came. */
  resumed: number
  /** None came in time. */
  expired: number
  /** Too many were waiting, or their bodies were too large. */
  refused: number
  /** The caller has gone. */
  left: number
}

interface Queue {
  readonly tickets: Set<Ticket>
  readonly room: HoldRoom
}

/** Most runtimes that are remembered. Those whose last session ended longest ago are forgotten first. */
const MAX_KNOWN = 100_000

export class Hold {
  readonly limits: HoldLimits
  readonly outcomes: HoldOutcomes = { resumed: 0, expired: 0, refused: 0, left: 0 }
  readonly #queues = new Map<string, Queue>()
  /** When the last session of each runtime ended, oldest first. */
  readonly #known = new AgedMap<number>()
  readonly #now: () => number
  readonly #startedAt: number
  readonly #room: HoldRoom
  #closed = false

  /** `now` must be monotonic. */
  constructor(limits: HoldLimits, now: () => number = () => performance.now()) {
    this.limits = limits
    this.#now = now
    this.#startedAt = now()
    this.#room = new HoldRoom(limits.requests, limits.bytes)
  }

  get requests(): number {
    return this.#room.requests
  }

  get bytes(): number {
    return this.#room.bytes
  }

  /** A session of the runtime has ended. */
  remember(runtime: string): void {
    this.#known.putWithin(MAX_KNOWN, runtime, this.#now())
  }

  /** Whether a session of the runtime may come at any moment: it had one recently, or this server has just started. */
  knows(runtime: string): boolean {
    const now = this.#now()
    if (now - this.#startedAt < this.limits.startupMs) return true
    const endedAt = this.#known.get(runtime)
    if (endedAt === undefined) return false
    if (now - endedAt < this.limits.forgetMs) return true
    this.#known.delete(runtime)
    return false
  }

  /** Whether requests may wait at all, with or without a body. */
  admits(hasBody: boolean): boolean {
    const { requests, requestsPerRuntime, bytes, bytesPerRuntime } = this.limits
    const isOff = requests === 0 || requestsPerRuntime === 0 || (hasBody && (bytes === 0 || bytesPerRuntime === 0))
    return !this.#closed && !isOff
  }

  /** Queues up for at most `forMs`. `undefined` if there is no room. `address` is as in {@link Occupant}. */
  enter(runtime: string, address: string, waiter: Waiter, bytes: number, forMs: number): Ticket | undefined {
    const { requestsPerRuntime, bytesPerRuntime } = this.limits
    const room = this.#queues.get(runtime)?.room ?? new HoldRoom(requestsPerRuntime, bytesPerRuntime)
    if (!this.#makeRoom(room, address, 1, bytes)) {
      this.outcomes.refused++
      return undefined
    }
    const ticket = new Ticket(this, { runtime, address, waiter, bytes, forMs, now: this.#now })
    // If the last one had to leave to make room, its queue is gone.
    const queue = this.#queues.get(runtime) ?? { tickets: new Set(), room }
    this.#queues.set(runtime, queue)
    queue.tickets.add(ticket)
    queue.room.add(ticket)
    this.#room.add(ticket)
    return ticket
  }

  /** Nobody has to leave unless that makes enough room both for the runtime and in total. */
  #makeRoom(room: HoldRoom, address: string, requests: number, bytes: number): boolean {
    const leaving = new Set<Occupant>()
    const admits = (each: HoldRoom) => each.admits(address, requests, bytes, leaving)
    if (!admits(room) || !admits(this.#room)) return false
    for (const each of leaving) each.refuse()
    return true
  }

  /** A session became ready. All requests that wait for it proceed, in order of arrival. `undefined` means any runtime. */
  wake(runtime: string | undefined): void {
    const runtimes = runtime === undefined ? [...this.#queues.keys()] : [runtime]
    for (const each of runtimes) for (const ticket of this.#inOrder(each)) ticket.wake()
  }

  /**
   * Another replica may have room, but only an attempt can tell. The two requests that have waited longest are sent there, and each wakes
   * two more once it is accepted. If all were sent each time, that would be hundreds of attempts a second. Once there is no carrier, the
   * rest are not looked at.
   */
  tryFew(runtime: string, carriers: Pick<CarrierSource, 'pick'>): void {
    let left = 2
    for (const ticket of this.#inOrder(runtime)) {
      if (carriers.pick(runtime) === undefined) return
      if (ticket.wake() && --left === 0) return
    }
  }

  /** Those that wait for a runtime, longest first. One that proceeds may make others leave, and may queue up again. */
  *#inOrder(runtime: string): Iterable<Ticket> {
    const tickets = this.#queues.get(runtime)?.tickets
    const inOrder = [...(tickets ?? [])].sort((a, b) => a.waiter.sinceMs - b.waiter.sinceMs)
    for (const ticket of inOrder) if (tickets!.has(ticket)) yield ticket
  }

  /** A session of the runtime has room again. Waiting requests proceed in turn while it lasts. Some may have to go elsewhere. */
  room(runtime: string, session: Pick<Carrier, 'full'>): void {
    for (const ticket of this.#inOrder(runtime)) {
      if (session.full) return
      ticket.wake()
    }
  }

  /** No session will come. */
  close(): void {
    this.#closed = true
    for (const { tickets } of [...this.#queues.values()]) for (const ticket of [...tickets]) expire(ticket)
  }

  /** @internal Adds bytes to a ticket. If there is no room, gives the ticket up and returns false. */
  add(ticket: Ticket, bytes: number): boolean {
    const { runtime, address } = ticket
    const queue = this.#queues.get(runtime)
    // One that had to leave in this turn is no longer there.
    if (queue?.tickets.has(ticket) === true && this.#makeRoom(queue.room, address, 0, bytes)) {
      for (const each of [queue.room, this.#room]) each.grow(ticket, bytes)
      ticket.bytes += bytes
      return true
    }
    this.leave(ticket, 'refused')
    return false
  }

  /** @internal False if it has left already. */
  leave(ticket: Ticket, outcome: keyof HoldOutcomes): boolean {
    const queue = this.#queues.get(ticket.runtime)
    if (queue?.tickets.delete(ticket) !== true) return false
    this.outcomes[outcome]++
    queue.room.delete(ticket)
    this.#room.delete(ticket)
    if (queue.tickets.size === 0) this.#queues.delete(ticket.runtime)
    return true
  }
}

const expire = stepOf<Ticket>(ticket => ticket.expire())
const refuse = stepOf<Ticket>(ticket => ticket.waiter.refuse())

interface TicketOptions {
  readonly runtime: string
  readonly address: string
  readonly waiter: Waiter
  readonly bytes: number
  readonly forMs: number
  readonly now: () => number
}

/** One request's place in the queue of its runtime. */
export class Ticket implements Occupant {
  readonly runtime: string
  readonly address: string
  readonly waiter: Waiter
  bytes: number
  readonly #hold: Hold
  readonly #now: () => number
  readonly #since: number
  readonly #timer: NodeJS.Timeout

  constructor(hold: Hold, { runtime, address, waiter, bytes, forMs, now }: TicketOptions) {
    this.#hold = hold
    this.#now = now
    this.#since = now()
    this.runtime = runtime
    this.address = address
    this.waiter = waiter
    this.bytes = bytes
    this.#timer = setTimeout(expire, forMs, this)
  }

  /** Like {@link Waiter.wake}. A waiter that throws is removed, and does not stop others. */
  wake(): boolean {
    try {
      return this.waiter.wake()
    } catch (error) {
      this.threw(error)
      return true
    }
  }

  /** @internal */
  expire(): void {
    this.leave('expired')
    this.waiter.expire()
  }

  /** @internal The waiter is told in the next turn, since it may start or end other exchanges, even the one that needs the room. */
  refuse(): void {
    this.leave('refused')
    setImmediate(refuse, this)
  }

  threw(error: unknown): void {
    this.waiter.threw(error)
  }

  get waitedMs(): number {
    return this.#now() - this.#since
  }

  /** More of the body has arrived. If it is too much, the ticket is given up and this returns false. */
  add(bytes: number): boolean {
    const fits = this.#hold.add(this, bytes)
    if (!fits) clearTimeout(this.#timer)
    return fits
  }

  leave(outcome: keyof HoldOutcomes): void {
    clearTimeout(this.#timer)
    this.#hold.leave(this, outcome)
  }
}
