/**
 * The directory knows which replicas have sessions of a runtime, which of its instances is active, and on which epoch. It is in
 * memory for a single server, and in Redis for several.
 *
 * What a directory knows about a runtime is a {@link RuntimeState}. A change returns the new state, and all replicas that know the
 * runtime are notified.
 */

/** What an instance tells the directory when it has a live session. */
export interface Registration {
  readonly runtime: string
  /** Id that the client generated at its start. */
  readonly instance: string
  /** The epoch that the instance claims to have held last. 0 for none. */
  readonly lastEpoch: number
}

/** What a session is told about its instance. */
export interface Grant {
  readonly epoch: number
  /** Whether the instance is active. Otherwise it is a standby. */
  readonly active: boolean
}

/** An instance of a runtime. */
export interface InstanceState {
  /** The latest epoch that it was granted. 0 for none. */
  readonly epoch: number
  /** Replicas that have live sessions of it. Empty if it has left and is only remembered. */
  readonly replicas: readonly string[]
}

/** What is known about a runtime. */
export interface RuntimeState {
  readonly runtime: string
  /** The latest epoch that was granted. */
  readonly epoch: number
  /** The instance that holds this epoch. Empty if the directory lost that. */
  readonly active: string
  readonly instances: ReadonlyMap<string, InstanceState>
  /** Grows with every change. */
  readonly version: number
  /** When it last changed, by `elapsedMs` of this process, as far as the directory can tell. */
  readonly changedMs: number
}

/** Notified of changes. The registry is a listener. */
export interface DirectoryListener {
  changed(state: RuntimeState): void
  /** Called when what is known may be acted on again, after a time when it could not. */
  regained(): void
  /** The sessions that are live here, for a directory that lost them. */
  live(): Iterable<Registration>
}

/** How the directory is doing, as one replica sees it. */
export interface DirectoryStats {
  /** `memory`, or the kind of a shared store, such as `redis`. */
  readonly kind: string
  readonly state: DirectoryState
  /** Runtimes that are remembered here. */
  readonly known: number
  /** Live replicas, including this one. */
  readonly replicas: number
  readonly operations: number
  readonly failures: number
  readonly roundTripMs: number
}

/**
 * `connected`: the directory answers. `presumed`: it does not, but what was last known is still valid, because no other replica can
 * have been granted anything. `lost`: it does not, and others may know better, so nothing is routed.
 */
export type DirectoryState = 'connected' | 'presumed' | 'lost'

/**
 * What replicas know about each other: which instance of a runtime is active, on which epoch, and which replicas have its sessions.
 */
export interface Directory {
  /** Name of this replica in a {@link InstanceState}. */
  readonly replica: string
  listen(listener: DirectoryListener): void
  /**
   * What is known about the runtime and may be acted on now. `unknown` means that the directory must be asked, and `undefined` that
   * nobody knows the runtime.
   */
  find(runtime: string): RuntimeState | 'unknown' | undefined
  /**
   * Asks the directory. Resolves, in bounded time, to what `find` says then, or to `undefined` if the directory cannot say and none of the
   * other replicas knows the runtime.
   */
  refresh(runtime: string): Promise<RuntimeState | 'unknown' | undefined>
  /**
   * An instance has a live session here: its routes are loaded, and a ping was answered. A new instance becomes active with a new
   * epoch. One that held an epoch keeps it, and is active unless a later one was granted.
   */
  ready(registration: Registration): Promise<RuntimeState>
  /** The instance has no live session here any more. If it was active and has none elsewhere, a standby takes over. */
  gone(runtime: string, instance: string): void
  /** Whether it is certain that the replica is gone. */
  isDead(replica: string): boolean
  stats(): DirectoryStats
  close(): Promise<void>
}

/** Most instances of a runtime that are remembered. Of those that left, the ones with the lowest epochs are forgotten first. */
export const MAX_INSTANCES = 32
/** If a client presents a higher epoch, it counts as none. */
const MAX_EPOCH = 2 ** 48
/** Later epochs from other replicas are ignored. No real epoch gets this high, and there is still room to count above it. */
export const MAX_REPORTED_EPOCH = 2 * MAX_EPOCH
/** Epochs from here on cannot be the result of counting, so they are invalid. `scripts.ts` has the same number. */
export const EPOCHS_END = 1e15

/** The epoch that an instance presents, or 0 if it is implausible. */
export function presentedEpoch(epoch: number): number {
  return Number.isSafeInteger(epoch) && epoch > 0 && epoch <= MAX_EPOCH ? epoch : 0
}
