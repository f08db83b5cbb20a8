/**
 * The interface of a store in which several replicas keep what they share. `shared-directory.ts` is the algorithm, the same over
 * every store. A store is one file that keeps records and leases, and one row in `stores.ts`.
 *
 * A store's answers are text in the format of `runtime-state.ts`. The algorithm validates them, so that no store needs defences
 * of its own.
 */
import type { LimitOptions } from '../../protocol/base/limit.ts'
import type { LEASE } from '../limits.ts'

export interface DirectoryStore {
  /** Its name in statistics, such as `redis`. */
  readonly kind: string
  /**
   * Connects. Rejects after `deadlineMs` at the latest, and when `signal` is aborted; with {@link NoRight} if trying again will not
   * help. On the link, each answer comes within `deadlineMs`, or the link ends.
   */
  open(listener: StoreListener, deadlineMs: number, signal: AbortSignal): Promise<StoreLink>
  /**
   * Whether this error of `open` proves that the store is down for every replica, so that nobody can be granted anything. When in
   * doubt, it returns false.
   */
  isAbsent(error: unknown): boolean
}

export interface StoreListener {
  /** Called with the state of a runtime after each change, in order. Anybody who can write to the channel may have sent it. */
  notice(text: string): void
  /** Called once, and last, when the link has ended. The error may be a {@link ClosedByStore}. */
  closed(error: Error): void
}

/**
 * One connection with one ordered stream: the notices of all earlier changes come before an answer. The algorithm relies on that.
 * Any call that fails, other than with {@link QueueFull}, ends the link.
 */
export interface StoreLink {
  /**
   * Changes a runtime's record atomically, by the rules of `record.ts`, and notifies all replicas if that changed anything. Resolves to
   * the runtime's state, for `parseRuntimeState`, or to `null` if there is no record. If a young store is asked (`look`), and may have
   * forgotten the record, to an empty text.
   */
  change(change: DirectoryChange): Promise<string | null>
  /**
   * Renews this replica's lease; 0 ends it. Resolves to text for `parseRenewal`. `isTelling` keeps a young store young for another
   * half of a lease. `latest` is the latest version of a record that this replica has seen, or 0. If the store has none as late, it
   * has lost changes, as in a failover, and is young from now on.
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
  /** The latest epoch that this replica knows, and its holder, to remind a store that forgot. */
  readonly seen: number
  readonly seenActive: string
}

/** What an embedder sets for a store. A kind may have more options. */
export interface StoreOptions extends LimitOptions<typeof LEASE> {
  /** The URL of the store. Its scheme determines the kind. */
  readonly url: string
  /** Prefix of the names that it keeps. Default `sallyport`. */
  readonly prefix?: string | undefined
}

/** The replica that a store acts for. */
export interface StoreMember {
  /** Unique to this process. */
  readonly replica: string
  /** `host:port` at which other replicas reach this one. Empty if they cannot. */
  readonly address: string
  readonly leaseMs: number
}

/**
 * How long a record is kept: with live sessions, and without. The store's clock decides, and may jump ahead by years. What a replica that
 * crashed left behind is kept until somebody asks for it, and then like a record without sessions.
 */
export const KEEP_LIVE_MS = 100 * 365 * 86_400_000
export const KEEP_EMPTY_MS = 86_400_000
/** How long a dead replica is remembered, so that what it left behind can be found and removed. */
export const KEEP_DEAD_MS = 3_600_000

/** The user of the store lacks permissions. Trying again will not help until somebody grants them. */
export class NoRight extends Error {}

/** Too many operations wait for the store. The link itself is fine. */
export class QueueFull extends Error {}

/** The store closed the link, and everything that it had sent was received. When in doubt, use another error. */
export class ClosedByStore extends Error {}
