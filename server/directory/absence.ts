/**
 * Whether the store is away for everybody, and was before anything could be missed: then nobody is granted anything, and what
 * is known holds.
 *
 * That nobody listens proves the absence for that moment alone. Who was cut off before may have missed an epoch, so it counts
 * only where all is known up to the time since which each attempt found nobody: because the store itself closed the link
 * right before the first of them, or because the others have vouched since. A store that comes back in between is young,
 * and grants nothing for a lease.
 */
export class Absence {
  readonly #leaseMs: number
  /** Since when each attempt found nobody, and the last of them. */
  #sinceMs = Number.NEGATIVE_INFINITY
  #lastMs = Number.NEGATIVE_INFINITY
  /** All that was granted until then is known. */
  #knownMs = Number.NEGATIVE_INFINITY
  /** Until when what is known holds. */
  untilMs = Number.NEGATIVE_INFINITY

  constructor(leaseMs: number) {
    this.#leaseMs = leaseMs
  }

  /** The store closed the link, and all that it had said was heard: it may have gone. */
  closed(atMs: number): void {
    this.#sinceMs = this.#lastMs = this.#knownMs = atMs
  }

  /** It may have been there. */
  interrupted(): void {
    this.#lastMs = Number.NEGATIVE_INFINITY
  }

  /** Nobody listened at that time. `vouchedMs`: up to when all others vouch that they have told everything. */
  found(atMs: number, vouchedMs: number): void {
    if (atMs - this.#lastMs >= this.#leaseMs) this.#sinceMs = atMs
    this.#lastMs = atMs
    if (Math.max(this.#knownMs, vouchedMs) < this.#sinceMs) return
    this.#knownMs = atMs
    this.untilMs = atMs + this.#leaseMs
  }
}
