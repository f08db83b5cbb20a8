/**
 * Paces handshakes by a budget of event-loop time. A connection is idle until its first bytes arrive. From then on it waits for its
 * turn; the networks take turns. Both kinds are bounded together, in total and per network.
 *
 * The budget fills at `share` milliseconds per millisecond. Handshake work is measured and charged afterwards, so the budget may go
 * below zero. Nobody is admitted until it is positive again.
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

/** An accepted connection that waits. It is idle until its first bytes arrive, and `destroy` and `end` remove it. */
export interface Candidate extends SlotHolder {
  /** Begins the handshake. */
  admit(): void
  /** Ends it, although there is room. */
  end(): void
}

/** Unused budget accumulates up to this, for a burst after a quiet time. */
const BURST_MS = 50
/** Most handshakes that have begun and whose cost is not known yet. */
const MAX_UNCHARGED = 8

export class Admission {
  readonly #options: AdmissionOptions
  readonly #slots: ConnectionSlots
  /** Candidates that are ready, by network. The order of the Map is the order of turns. */
  readonly #round = new Map<string, Set<Candidate>>()
  #budgetMs = BURST_MS
  #filledAt: number
  #uncharged = 0
  #timer: NodeJS.Timeout | undefined

  constructor(options: AdmissionOptions) {
    this.#options = options
    this.#slots = new ConnectionSlots(options.maxWaiting, options.maxPerAddress)
    this.#filledAt = options.now()
  }

  get waiting(): number {
    return this.#slots.size
  }

  /** Adds an idle candidate, which may take another one's place. False if there is no room. */
  add(candidate: Candidate): boolean {
    if (!this.#slots.makeRoom(candidate.address)) return false
    this.#slots.add(candidate)
    return true
  }

  /** The candidate's first bytes have arrived. It is admitted now, or when its turn comes. */
  ready(candidate: Candidate): void {
    const network = networkOf(candidate.address)
    const others = this.#round.get(network)
    if (others === undefined) this.#round.set(network, new Set([candidate]))
    else others.add(candidate)
    this.#run()
  }

  /** Removes a candidate that has left, or had to. */
  remove(candidate: Candidate): void {
    this.#slots.delete(candidate)
    const network = networkOf(candidate.address)
    const ready = this.#round.get(network)
    ready?.delete(candidate)
    if (ready?.size === 0) this.#round.delete(network)
  }

  /** Charges handshake work. `first` marks a candidate's first charge, after which another candidate may begin. */
  charge(costMs: number, first: boolean): void {
    this.#budgetMs -= costMs
    if (first && this.#uncharged > 0) this.#uncharged--
    this.#run()
  }

  close(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    for (const candidate of [...this.#slots] as Candidate[]) candidate.end()
  }

  #run(): void {
    this.#fill()
    while (this.#round.size > 0 && this.#uncharged < MAX_UNCHARGED && this.#budgetMs > 0) {
      this.#uncharged++
      this.#next().admit()
    }
    if (this.#round.size > 0 && this.#budgetMs <= 0) this.#wake()
  }

  /** Removes and returns the oldest candidate of the network whose turn it is. That network moves to the end of the round. */
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
