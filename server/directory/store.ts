/**
 * Where several replicas keep what they share. `shared-directory.ts` is the algorithm, the same over every store; a store is
 * one file that keeps records and leases, and one row in `stores.ts`.
 *
 * What a store says is text in the format of `runtime-state.ts`. The algorithm reads it and believes no more of it than it
 * must, so that no store needs defences of its own.
 */
import type { LimitOptions } from '../../protocol/base/limit.ts'
import type { LEASE } from '../limits.ts'

export interface DirectoryStore {
  /** Its name in statistics, such as `redis`. */
  readonly kind: string
  /**
   * Connects. Rejects at the latest after `deadlineMs`, and when `signal` is aborted; with {@link NoRight} where trying again
   * is of no use. From then on each answer takes at most `deadlineMs`, or the link ends.
   */
  open(listener: StoreListener, deadlineMs: number, signal: AbortSignal): Promise<StoreLink>
  /**
   * Whether that error of `open` proves that the store is away for every replica, so that nobody can be granted anything.
   * When in doubt: no.
   */
  isAbsent(error: unknown): boolean
}

export interface StoreListener {
  /** The state of a runtime, by whoever can write to the channel: after a change, in the order of the changes. */
  notice(text: string): void
  /** The link is of no more use; a {@link ClosedByStore} tells more. Called once, and last. */
  closed(error: Error): void
}

/**
 * One connection, and one ordered stream: whoever gets an answer has been given every notice of an earlier change. The
 * algorithm rests on that. Any call that fails for another reason than {@link QueueFull} ends the link.
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

/** `look` changes nothing but what replicas left behind that are dead. */
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

/** What an embedder says of a store. Each kind may take more. */
export interface StoreOptions extends LimitOptions<typeof LEASE> {
  /** Where it is. The scheme says of which kind. */
  readonly url: string
  /** Prefix of the names that it keeps. Default `sallyport`. */
  readonly prefix?: string | undefined
}

/** Who a store acts for. */
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
/** How long a replica that is dead is remembered, so that what it left behind is removed where it is found. */
export const KEEP_DEAD_MS = 3_600_000

/** The user of the store lacks rights: trying again is of no use until somebody has given them. */
export class NoRight extends Error {}

/** As many operations as may wait for the store do; it answers all the same. */
export class QueueFull extends Error {}

/** The store closed the link, and all that it had said on it was heard. When in doubt it is another error. */
export class ClosedByStore extends Error {}
