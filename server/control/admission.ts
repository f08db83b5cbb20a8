/**
 * Paces handshakes by a budget of event-loop time. A connection waits in silence until its first bytes come; from then on
 * it waits for its turn, which goes round the networks. Both kinds are bounded together, in all and per network.
 *
 * The budget fills with the clock, at `share` milliseconds per millisecond, and every piece of handshake work is charged
 * as it was measured, afterwards: it may go below zero, and nobody is let in until it is above again.
 */
import { networkOf } from '../../protocol/base/address.ts'
import { ConnectionSlots, type SlotHolder } from '../../protocol/base/connection-slots.ts'
import type { Guard } from '../../protocol/base/guard.ts'

interface AdmissionOptions {
  /** Share of the event loop's time, 0 to 1. */
  readonly share: number
  readonly maxWaiting: number
  readonly maxPerAddress: number
  /** Milliseconds, monotonic. */
  readonly now: () => number
  readonly guard: Guard
}

/** An accepted connection that waits. It is idle while it is silent, and loses its place when it is destroyed. */
export interface Candidate extends SlotHolder {
  /** Begins the handshake. */
  admit(): void
}

/** Unused time is saved up to this, for a burst after silence. */
const BURST_MS = 50
/** Handshakes that have begun and whose cost is not known yet. */
const MAX_UNCHARGED = 8

export class Admission {
  readonly #options: AdmissionOptions
  readonly #places: ConnectionSlots
  /** By network, those that are ready; a Map keeps the order of their turns. */
  readonly #round = new Map<string, Set<Candidate>>()
  #budgetMs = BURST_MS
  #filledAt: number
  #uncharged = 0
  #timer: NodeJS.Timeout | undefined

  constructor(options: AdmissionOptions) {
    this.#options = options
    this.#places = new ConnectionSlots(options.maxWaiting, options.maxPerAddress)
    this.#filledAt = options.now()
  }

  get waiting(): number {
    return this.#places.size
  }

  /** Gives the candidate a place among the silent, if need be another one's. False if there is none. */
  add(candidate: Candidate): boolean {
    if (!this.#places.makeRoom(candidate.address)) return false
    this.#places.add(candidate)
    return true
  }

  /** The candidate's first bytes are there: it is let in now, or when its turn comes. */
  ready(candidate: Candidate): void {
    const network = networkOf(candidate.address)
    const others = this.#round.get(network)
    if (others === undefined) this.#round.set(network, new Set([candidate]))
    else others.add(candidate)
    this.#run()
  }

  /** Takes a candidate out that left, or had to. */
  remove(candidate: Candidate): void {
    this.#places.delete(candidate)
    const network = networkOf(candidate.address)
    const ready = this.#round.get(network)
    ready?.delete(candidate)
    if (ready?.size === 0) this.#round.delete(network)
  }

  /** Books handshake work that was done. `first`: the first charge of a candidate, so that another may begin. */
  charge(costMs: number, first: boolean): void {
    this.#budgetMs -= costMs
    if (first && this.#uncharged > 0) this.#uncharged--
    this.#run()
  }

  close(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    for (const candidate of [...this.#places]) candidate.destroy()
  }

  #run(): void {
    this.#fill()
    while (this.#round.size > 0 && this.#uncharged < MAX_UNCHARGED && this.#budgetMs > 0) {
      this.#uncharged++
      this.#next().admit()
    }
    if (this.#round.size > 0 && this.#budgetMs <= 0) this.#wake()
  }

  /** The oldest candidate of the network whose turn it is; that network goes to the end of the round. */
  #next(): Candidate {
    const [network, ready] = this.#round.entries().next().value!
    const candidate: Candidate = ready.values().next().value!
    this.#round.delete(network)
    this.#round.set(network, ready)
    this.remove(candidate)
    return candidate
  }

  #fill(): void {
    const now = this.#options.now()
    this.#budgetMs = Math.min(BURST_MS, this.#budgetMs + (now - this.#filledAt) * this.#options.share)
    this.#filledAt = now
  }

  #wake(): void {
    this.#timer ??= setTimeout(
      this.#options.guard(() => {
        this.#timer = undefined
        this.#run()
      }),
      Math.max(1, Math.ceil(-this.#budgetMs / this.#options.share)),
    ).unref()
  }
}
