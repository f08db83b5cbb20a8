/**
 * Decides how long a replica may act on what it knows, by a local clock that nobody can set and that goes on while the machine is suspended:
 * for one lease after the store confirmed it, and after that only while it is certain that no other replica was granted anything.
 */
import { Absence } from './absence.ts'
import type { DirectoryState } from './directory.ts'
import type { Renewal, ReplicaLease } from './runtime-state.ts'
import type { Witnesses } from './witnesses.ts'

interface LeaseOptions {
  readonly leaseMs: number
  readonly now: () => number
  readonly witnesses: Witnesses
}

export class Lease {
  readonly #leaseMs: number
  readonly #now: () => number
  readonly #witnesses: Witnesses
  /** When the last successful renewal was sent, and until when it is valid. */
  #contactMs = Number.NEGATIVE_INFINITY
  #contactUntilMs = Number.NEGATIVE_INFINITY
  #young = true
  readonly #absence: Absence
  #replicas: readonly ReplicaLease[] = []

  constructor({ leaseMs, now, witnesses }: LeaseOptions) {
    this.#leaseMs = leaseMs
    this.#now = now
    this.#witnesses = witnesses
    this.#absence = new Absence(leaseMs)
  }

  get state(): DirectoryState {
    const now = this.#now()
    if (now < this.#contactUntilMs) return 'connected'
    return now < this.#presumedUntilMs() ? 'presumed' : 'lost'
  }

  /**
   * The store is new, or lost its data, less than a lease ago, by its last answer. Replicas may not have written their live sessions
   * back yet.
   */
  get young(): boolean {
    return this.#young
  }

  /** If changes are missed from now on, what is known stays valid until then. */
  get validUntilMs(): number {
    const untilMs = Math.max(this.#contactUntilMs, this.#presumedUntilMs())
    return Math.min(untilMs, this.#now() + this.#leaseMs)
  }

  /** Until then it is certain that we know everything that other replicas were granted. */
  #presumedUntilMs(): number {
    return Math.max(this.#absence.untilMs, this.#vouchedUntilMs())
  }

  /** Whether all others vouch that they have told us everything since the store last confirmed what we know. */
  get isVouched(): boolean {
    return this.#now() < this.#vouchedUntilMs()
  }

  #vouchedUntilMs(): number {
    return this.#contactMs > Number.NEGATIVE_INFINITY ? this.#witnesses.vouchedUntilMs() : this.#contactMs
  }

  /**
   * The store answered a renewal that was sent at `sentMs`. Returns whether that confirms what is known, which a young store cannot.
   * `isWhole`: everything that is known was learned on this connection. Until then, others must tell what changed before it.
   */
  renewed({ ageMs, replicas }: Renewal, sentMs: number, isWhole: boolean): boolean {
    this.#young = ageMs < this.#leaseMs
    if (!this.#young) {
      this.#contactMs = sentMs
      this.#contactUntilMs = sentMs + this.#leaseMs
    }
    this.#replicas = replicas
    this.#witnesses.confirmed(this.#young || !isWhole ? undefined : sentMs, replicas)
    return !this.#young
  }

  /**
   * The store closed the link, and the next attempt follows at once. Ignored if the process was suspended meanwhile, as we cannot know
   * when that was.
   */
  closed(atMs: number): void {
    if (atMs < this.#contactUntilMs) this.#absence.closed(atMs)
  }

  /** Nobody could reach the store at that time. */
  absent(atMs: number): void {
    this.#absence.found(atMs, this.#vouchedUntilMs() - this.#leaseMs)
  }

  /** The store could not be reached, or the link broke. Others may still reach it. */
  unreachable(): void {
    this.#absence.interrupted()
  }

  /** How many replicas the store remembers. */
  get replicas(): number {
    return this.#replicas.length
  }

  get alive(): number {
    return this.living.length
  }

  /** Their names. */
  get living(): string[] {
    return this.#replicas.filter(isAlive).map(({ name }) => name)
  }

  isAlive(replica: string): boolean {
    return this.#replicas.some(each => each.name === replica && isAlive(each))
  }

  /** Whether its lease has ended. False for an unknown replica. */
  isDead(replica: string): boolean {
    return this.#replicas.some(each => each.name === replica && !isAlive(each))
  }
}

function isAlive({ leftMs }: ReplicaLease): boolean {
  return leftMs >= 0
}
