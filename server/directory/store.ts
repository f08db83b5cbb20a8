/**
 * Where several replicas keep what they share. `shared-directory.ts` is the algorithm, the same over every store; a store is
 * one file that keeps records and leases, and one row in `stores.ts`.
 *
 * What a store says is text in the format of `runtime-state.ts`. The algorithm checks it, so that no store needs defences of
 * its own.
 */
import type { LimitOptions } from '../../protocol/base/limit.ts'
import type { LEASE } from '../limits.ts'

export interface DirectoryStore {
  /** Its name in statistics, such as `redis`. */
  readonly kind: string
  /**
   * Connects. Rejects after `deadlineMs` at the latest, and when `signal` is aborted; with {@link NoRight} if trying again is
   * of no use. On the link, each answer comes within `deadlineMs`, or the link ends.
   */
  open(listener: StoreListener, deadlineMs: number, signal: AbortSignal): Promise<StoreLink>
  /**
   * Whether that error of `open` proves that the store is away for every replica, so that nobody can be granted anything.
   * When in doubt: no.
   */
  isAbsent(error: unknown): boolean
}

export interface StoreListener {
  /** The state of a runtime after a change, in the order of the changes. It may come from anybody who can write to the channel. */
  notice(text: string): void
  /** The link is of no more use; {@link ClosedByStore} says why. Called once, and last. */
  closed(error: Error): void
}

/**
 * One connection, and one ordered stream: before an answer come the notices of all earlier changes. The algorithm rests on
 * that. Any call that fails, other than with {@link QueueFull}, ends the link.
 */
export interface StoreLink {
  /**
   * Changes a runtime's record in one piece, by the rules of `record.ts`, and sends a notice to all if that changed
   * anything. Resolves to its state as `parseRuntimeState` reads it; `null`: there is no record.
   */
  change(change: DirectoryChange): Promise<string | null>
  /**
   * Renews this replica's lease; 0 ends it. Resolves to what `parseRenewal` reads. `isTelling`: a store that is young stays so
   * for another half of a lease. `latest`: a store in which no version of a record is as late has lost changes, as in a
   * failover, and is young from now on; 0: nothing to compare.
   */
  renew(leaseMs: number, isTelling: boolean, latest: number): Promise<string>
  close(): void
}

/** `look` only removes what dead replicas left behind. */
export interface DirectoryChange {
  readonly operation: 'enter' | 'leave' | 'look'
  readonly runtime: string
  /** Empty for `look`. */
  readonly instance: string
  /** The epoch that the instance presents; 0 for none. */
  readonly presented: number
  /** The latest epoch that this replica knows of, and who holds it: a store that forgot is reminded. */
  readonly seen: number
  readonly seenActive: string
}

/** What an embedder sets for a store. A kind may have more options. */
export interface StoreOptions extends LimitOptions<typeof LEASE> {
  /** Where the store is. The scheme says its kind. */
  readonly url: string
  /** Prefix of the names that it keeps. Default `sallyport`. */
  readonly prefix?: string | undefined
}

/** The replica that a store acts for. */
export interface StoreMember {
  /** Unique to this process. */
  readonly replica: string
  /** `host:port` where other replicas reach this one; empty: nowhere. */
  readonly address: string
  readonly leaseMs: number
}

/** How long a record is kept: with live sessions (they are confirmed every hour), and without. */
export const KEEP_LIVE_MS = 7 * 86_400_000
export const KEEP_EMPTY_MS = 86_400_000
/** How long a dead replica is remembered, so that what it left behind can be found and removed. */
export const KEEP_DEAD_MS = 3_600_000

/** The user of the store lacks rights. Trying again is of no use until somebody grants them. */
export class NoRight extends Error {}

/** Too many operations wait for the store. The link is well. */
export class QueueFull extends Error {}

/** The store closed the link, and all that it had said on it was heard. When in doubt, use another error. */
export class ClosedByStore extends Error {}
