/**
 * Decides whether the store is down for every replica, and has been since before this one could miss anything. If so, nobody can
 * be granted an epoch, and what is known stays valid.
 *
 * A refused connection proves only that the store is down at that moment. A replica that was cut off earlier may have missed
 * an epoch. So an outage counts only if everything is known up to its first failed attempt: either the store itself closed the link
 * right before, or the other replicas have vouched since. A store that comes back between two attempts is young, and grants
 * nothing for a lease.
 */
export class Absence {
  readonly #leaseMs: number
  /** The first and the last of consecutive attempts that found the store down. */
  #sinceMs = Number.NEGATIVE_INFINITY
  #lastMs = Number.NEGATIVE_INFINITY
  /** Everything that was granted before this time is known. */
  #knownMs = Number.NEGATIVE_INFINITY
  /** What is known stays valid until then. */
  untilMs = Number.NEGATIVE_INFINITY

  constructor(leaseMs: number) {
    this.#leaseMs = leaseMs
  }

  /** The store closed the link, and we have received everything that it sent. It may be down. */
  closed(atMs: number): void {
    this.#sinceMs = this.#lastMs = this.#knownMs = atMs
  }

  /** The store may have been up. */
  interrupted(): void {
    this.#lastMs = Number.NEGATIVE_INFINITY
  }

  /** An attempt at `atMs` found the store down. `vouchedMs`: all others vouch that they told everything up to then. */
  found(atMs: number, vouchedMs: number): void {
    if (atMs - this.#lastMs >= this.#leaseMs) this.#sinceMs = atMs
    this.#lastMs = atMs
    if (Math.max(this.#knownMs, vouchedMs) < this.#sinceMs) return
    this.#knownMs = atMs
    this.untilMs = atMs + this.#leaseMs
  }
}
