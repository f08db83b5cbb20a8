import { randomInt } from 'node:crypto'
import type { DeliveryMark } from './delivery.ts'

const MAX_PINGS_OUT = 64
/** A ping that is never answered ends the session after this many time-outs, even if the peer keeps sending. */
const PATIENCE = 4
/** After this time a round trip is measured again, if windows may grow by it. */
const STALE_MS = 1_000
const VALUES = 2 ** 32

interface PingLimits {
  readonly pingIntervalMs: number
  readonly pingTimeoutMs: number
}

interface Ping {
  readonly value: number
  readonly mark: DeliveryMark
  readonly callbacks: ((rttMs: number) => void)[]
}

/** The unanswered pings of one session, and what they show about the peer. */
export class Pings {
  readonly #timeoutMs: number
  /** The least time that a ping gets for its answer, however long the silence has been. */
  readonly #leastWaitMs: number
  /** Oldest first. It is not a `Map`, since a `Map` with constant turnover leaves old tables behind until a full collection. */
  readonly #out: Ping[] = []
  /** When anything last arrived. */
  heardAt: number
  #measuredAt = Number.NEGATIVE_INFINITY

  constructor({ pingIntervalMs, pingTimeoutMs }: PingLimits, now: number) {
    this.#timeoutMs = pingTimeoutMs
    this.#leastWaitMs = (pingTimeoutMs - pingIntervalMs) / 2
    this.heardAt = now
  }

  /** Whether so many pings wait that another one would show nothing new. */
  get full(): boolean {
    return this.#out.length >= MAX_PINGS_OUT
  }

  /**
   * Registers a ping and returns its value. Values are random: answers release bytes, so a peer must not be able to answer a
   * ping that it has not read.
   */
  place(mark: DeliveryMark, callback: ((rttMs: number) => void) | undefined): number {
    let value = randomInt(VALUES)
    while (this.#find(value) >= 0) value = randomInt(VALUES)
    this.#out.push({ value, mark, callbacks: callback === undefined ? [] : [callback] })
    return value
  }

  /** Adds a callback to the latest ping that waits. */
  share(callback: (rttMs: number) => void): void {
    this.#out.at(-1)?.callbacks.push(callback)
  }

  /** Removes and returns the ping that `value` answers. Undefined if there is none. */
  answered(value: number, now: number): Ping | undefined {
    const index = this.#find(value)
    if (index < 0) return undefined
    this.#measuredAt = now
    return this.#out.splice(index, 1)[0]
  }

  #find(value: number): number {
    return this.#out.findIndex(ping => ping.value === value)
  }

  /** Whether the round trip should be measured again; true once per measurement. */
  stale(now: number): boolean {
    if (this.full || now - this.#measuredAt < STALE_MS) return false
    this.#measuredAt = now
    return true
  }

  /** Call it when anything has arrived from the peer. */
  heard(now: number): void {
    this.heardAt = now
  }

  /** Whether the peer is dead: a ping waits, and nothing at all has arrived during the time-out. */
  dead(now: number): boolean {
    return now >= this.deadline
  }

  /** When the oldest waiting ping was placed; infinity if none waits. */
  get oldestAt(): number {
    return this.#out[0]?.mark.placedAt ?? Number.POSITIVE_INFINITY
  }

  /** When to call `dead` again. */
  get deadline(): number {
    const oldest = this.#out[0]
    if (oldest === undefined) return Number.POSITIVE_INFINITY
    const { placedAt } = oldest.mark
    const silent = Math.max(this.heardAt + this.#timeoutMs, placedAt + this.#leastWaitMs)
    return Math.min(silent, placedAt + PATIENCE * this.#timeoutMs)
  }

  clear(): void {
    this.#out.length = 0
  }
}
