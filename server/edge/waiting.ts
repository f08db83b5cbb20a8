/** An exchange that waits for a carrier. It may wait several times, within one time limit. */
import { SallyportError } from '../../protocol/base/errors.ts'
import type { HttpRequest } from '../../protocol/exchange.ts'
import type { Carrier } from '../registry.ts'
import type { CarrierSource } from './carriers.ts'
import type { Hold, HoldOutcomes, Ticket, Waiter } from './hold.ts'

/** How long an exchange waits for the directory's answer, even if it would not wait for a session as long. */
const ASK_MS = 2000

/** The exchange that waits. */
interface WaitingOwner {
  readonly request: HttpRequest
  /** A session may have become ready. Returns false to keep waiting. */
  resume(): boolean
  fail(error: SallyportError): void
  threw(error: unknown): void
}

export class Waiting implements Waiter {
  readonly #carriers: CarrierSource
  readonly #hold: Hold
  readonly #owner: WaitingOwner
  readonly sinceMs = performance.now()
  /** Its place in the queue, while it has one. */
  #ticket: Ticket | undefined
  /** The caller's error if no session comes. */
  #reason: SallyportError | undefined
  /** How long it has waited, in ms, without the current wait. */
  waitedMs = 0

  constructor(carriers: CarrierSource, hold: Hold, owner: WaitingOwner) {
    this.#carriers = carriers
    this.#hold = hold
    this.#owner = owner
  }

  /**
   * Queues up with `bytes` of its body, for at most `leftMs`. Returns an error if it may not. `failed` is the carrier that failed
   * last.
   */
  enter(
    reason: SallyportError,
    failed: Carrier | undefined,
    bytes: number,
    leftMs: number,
  ): SallyportError | undefined {
    const { request } = this.#owner
    const asks = this.#ask(failed)
    if (asks === 'refused') return new SallyportError('too-many-requests')
    const patienceMs = this.#patienceMs(asks)
    const forMs = Math.min(patienceMs, leftMs)
    const mayWait = forMs > 0 && this.#hold.admits(request.bodyBytes !== 0)
    if (!mayWait || !this.#carriers.isExpected(request.runtime!)) return reason
    this.#ticket = this.#hold.enter(request.runtime!, request.caller?.address ?? '', this, bytes, forMs)
    if (this.#ticket === undefined) return new SallyportError('overloaded')
    this.#reason = reason
    return undefined
  }

  /** More of the body has arrived. False if there is no room for it. */
  add(bytes: number): boolean {
    return this.#ticket?.add(bytes) !== false
  }

  /** Stops waiting, because the exchange proceeds or is over. */
  leave(outcome: keyof HoldOutcomes): void {
    const ticket = this.#ticket
    this.#ticket = undefined
    if (ticket === undefined) return
    this.waitedMs += ticket.waitedMs
    ticket.leave(outcome)
  }

  /** No session has come yet. Gives up unless one still may. */
  recheck(): void {
    const asks = this.#ask(undefined)
    const mayCome = asks !== 'refused' && this.#patienceMs(asks) > 0
    if (!mayCome || !this.#carriers.isExpected(this.#owner.request.runtime!)) this.giveUp()
  }

  /** False if it does not wait. */
  giveUp(): boolean {
    if (this.#ticket === undefined) return false
    this.leave('expired')
    this.#owner.fail(this.#reason!)
    return true
  }

  /** Callers are counted, since they can make names up. An embedder that names no caller is not. */
  #ask(failed: Carrier | undefined): boolean | 'refused' {
    const { runtime, caller, fromTrustedProxy } = this.#owner.request
    return this.#carriers.ask(runtime!, failed, fromTrustedProxy === undefined ? undefined : caller?.address)
  }

  /** How much longer it may wait. */
  #patienceMs(asks: boolean): number {
    const { holdMs } = this.#hold.limits
    return (asks ? Math.max(holdMs, ASK_MS) : holdMs) - this.waitedMs
  }

  // Called by the hold.

  wake(): boolean {
    return this.#owner.resume()
  }

  expire(): void {
    this.#ticket = undefined
    this.#owner.fail(this.#reason!)
  }

  refuse(): void {
    this.#ticket = undefined
    this.#owner.fail(new SallyportError('overloaded'))
  }

  threw(error: unknown): void {
    this.#owner.threw(error)
  }
}
