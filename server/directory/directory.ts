/**
 * Which replicas have sessions of a runtime, which of its instances is active, and on which epoch. In memory for one
 * server; in Redis for several.
 *
 * What a directory knows about a runtime is a {@link RuntimeState}. Whoever changes one gets the new one back, and all
 * replicas that know the runtime are told.
 */

/** What an instance tells the directory when it has a live session. */
export interface Registration {
  readonly runtime: string
  /** Id that the client made at its start. */
  readonly instance: string
  /** The epoch that the instance says it last held; 0 for none. */
  readonly lastEpoch: number
}

/** What a session is told about its instance. */
export interface Grant {
  readonly epoch: number
  /** Whether the instance is the active one; else it is a standby. */
  readonly active: boolean
}

/** An instance of a runtime. */
export interface InstanceState {
  /** The latest epoch that it was granted; 0 for none. */
  readonly epoch: number
  /** Replicas that have live sessions of it; none: it has left, and is remembered. */
  readonly replicas: readonly string[]
}

/** What is known of a runtime. */
export interface RuntimeState {
  readonly runtime: string
  /** The latest epoch that was granted. */
  readonly epoch: number
  /** The instance that holds it; empty if that was lost with the directory. */
  readonly active: string
  readonly instances: ReadonlyMap<string, InstanceState>
  /** Grows with every change. */
  readonly version: number
  /** When that change was, by this process's monotonic clock, as far as the directory can tell. */
  readonly changedMs: number
}

/** Is told of changes. The registry is one. */
export interface DirectoryListener {
  changed(state: RuntimeState): void
  /** What is known may be acted on again, after a time when it could not be. */
  regained(): void
  /** The sessions that are live here, to be written back. */
  live(): Iterable<Registration>
}

/** How the directory is doing, as one replica sees it. */
export interface DirectoryStats {
  /** `memory`, or what several servers share, such as `redis`. */
  readonly kind: string
  readonly state: DirectoryState
  /** Runtimes that are remembered here. */
  readonly known: number
  /** Replicas that are alive, this one included. */
  readonly replicas: number
  readonly operations: number
  readonly failures: number
  readonly roundTripMs: number
}

/**
 * `connected`: the directory answers. `presumed`: it does not, and what was last known holds, because no other replica
 * can have been granted anything. `lost`: it does not, and others may know better: nothing is routed.
 */
export type DirectoryState = 'connected' | 'presumed' | 'lost'

/**
 * What replicas know of each other: which instance of a runtime is active, on which epoch, and which replicas have its
 * sessions.
 */
export interface Directory {
  /** Name of this replica in a {@link InstanceState}. */
  readonly replica: string
  listen(listener: DirectoryListener): void
  /**
   * What is known about the runtime and may be acted on now. `unknown`: the directory has to be asked.
   * `undefined`: nobody has heard of the runtime.
   */
  find(runtime: string): RuntimeState | 'unknown' | undefined
  /** Asks the directory. Resolves, in bounded time, to what `find` says then. */
  refresh(runtime: string): Promise<RuntimeState | 'unknown' | undefined>
  /**
   * An instance has a live session here (its routes are loaded, an echo has crossed). A new one becomes active with a new
   * epoch; one that held an epoch keeps it, and is active unless a later one was granted.
   */
  ready(registration: Registration): Promise<RuntimeState>
  /** The instance has no live session here any more. If it was active and has none elsewhere, a standby takes over. */
  gone(runtime: string, instance: string): void
  /** Whether it is certain that the replica is gone. */
  isDead(replica: string): boolean
  stats(): DirectoryStats
  close(): Promise<void>
}

/** Instances of one runtime that are remembered; of those that left, the ones with the lowest epochs go first. */
export const MAX_INSTANCES = 32
/** An epoch that a client presents over this is taken as none. */
const MAX_EPOCH = 2 ** 48
/** A replica that tells of a later epoch is not believed. Nobody counts this far, and above it there is still room to count. */
export const MAX_TOLD_EPOCH = 2 * MAX_EPOCH
/** An epoch from here on cannot have come from counting, whoever says it. `scripts.ts` has the same number. */
export const EPOCHS_END = 1e15

/** What an instance presents, if it can be true. */
export function presentedEpoch(epoch: number): number {
  return Number.isSafeInteger(epoch) && epoch > 0 && epoch <= MAX_EPOCH ? epoch : 0
}
