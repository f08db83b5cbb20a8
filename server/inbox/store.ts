/**
 * Where the inbox keeps webhooks. A store holds facts and decides nothing. Changes are applied in order, concurrent ones are
 * committed together, and a promise resolves only once its change is on stable storage.
 */

/** Everything about a message except its bytes. Times are ms since 1970. */
export interface Message {
  readonly id: string
  readonly runtime: string
  /** Messages of one lane are delivered in order. A digest, so that it does not reveal the path. */
  readonly lane: string
  readonly route: string
  /** Why it was captured. */
  readonly why: string
  readonly state: MessageState
  readonly received: number
  /** When it becomes a dead letter. */
  readonly expires: number
  /** Size of head and body. */
  readonly bytes: number
  /** Number of parts. Part 0 is the head. */
  readonly parts: number
  /** Deliveries that were started. */
  readonly attempts: number
  /** Deliveries that failed. */
  readonly failures: number
  /** Deliveries that the receiver refused with a 3xx or 4xx status. */
  readonly refusals: number
  /** Time of the first failure or refusal. 0 if there was none. */
  readonly failedSince: number
  /** Time of the next attempt. */
  readonly next: number
  /** When its state last changed. */
  readonly changed: number
  /** Id of the key that it is sealed for, and the HPKE `enc` to open it with. Both are empty if it is not sealed. */
  readonly key: string
  readonly enc: string
  /** The caller, as JSON. Not sealed, because access is checked again at delivery. */
  readonly caller: string
  /** Why it is dead, or how the last attempt ended. */
  readonly reason: string
}

export type MessageState = 'waiting' | 'dead' | 'delivered'

/** How the reason of a dead letter begins that its receiver refused, or a router in front of it. */
export const REFUSED = 'refused: '

export function isRefusedLetter({ state, reason }: Pick<Message, 'state' | 'reason'>): boolean {
  return state === 'dead' && reason.startsWith(REFUSED)
}

/** A message to append. */
export interface NewMessage extends Omit<Message, 'state' | 'changed'> {
  /** Digest of the sender's id, the target and the body. Empty if the sender gave no id. */
  readonly dedupe: string
  /** How long after its delivery a duplicate is still recognised. */
  readonly dedupeMs: number
}

/** Fields of a message to update. */
export type Progress = Partial<
  Pick<Message, 'attempts' | 'failures' | 'refusals' | 'failedSince' | 'next' | 'expires' | 'reason' | 'state'>
>

export type Change =
  /**
   * Adds a message with its head and the last part of its body; the parts between were added before. If it is a duplicate,
   * these are deleted. `absent` if some of them are missing, in which case it is not stored. `at` is when it has arrived in full.
   */
  | {
      readonly op: 'append'
      readonly message: NewMessage
      readonly head: Uint8Array
      readonly rest: Uint8Array
      readonly at: number
    }
  /** Adds a part of a long body ahead of its message. A store that is reopened may have lost it. */
  | { readonly op: 'part'; readonly id: string; readonly n: number; readonly bytes: Uint8Array }
  /** Deletes the parts of a message that is not stored. Parts of a stored message stay. */
  | { readonly op: 'forget'; readonly id: string }
  /** `absent` if the message was delivered. With `owned`, also `absent` unless this server owns the lane. */
  | {
      readonly op: 'update'
      readonly id: string
      readonly set: Progress
      readonly at: number
      readonly owned?: boolean
    }
  /** Deletes a message. With `state`, `absent` unless it is in this state. */
  | { readonly op: 'drop'; readonly id: string; readonly state?: MessageState }
  /** Sets the rules of a runtime. */
  | { readonly op: 'rules'; readonly runtime: string; readonly rules: string; readonly at: number }
  | { readonly op: 'pause'; readonly runtime: string; readonly paused: boolean }

/** What a change did. For a duplicate, `id` is that of the older message. */
export interface ChangeResult {
  readonly status: 'stored' | 'duplicate' | 'done' | 'absent'
  readonly id: string
  /** What a message was when it was dropped. It may have changed since it was listed. */
  readonly dropped?: Pick<Message, 'state' | 'reason'>
}

/** Selects messages. Criteria that are left out match everything; `undefined` is refused. */
export interface Filter {
  readonly runtime?: string
  /** Lanes that begin with this. */
  readonly lane?: string
  readonly state?: MessageState
  /** Received at this time or later. */
  readonly since?: number
  /** Ids that begin with this. */
  readonly id?: string
  /** Reasons that begin with this. */
  readonly reason?: string
  /** Only messages stored before all of these ids. The store need not have them any more. */
  readonly before?: readonly string[]
  readonly limit: number
}

/** Totals of one runtime and state. */
export interface Count {
  readonly runtime: string
  readonly state: MessageState
  readonly messages: number
  readonly bytes: number
  /** When the oldest of them was received. */
  readonly oldest: number
  /** How many of them have a reason that begins with {@link REFUSED}, and their bytes. */
  readonly refused: number
  readonly refusedBytes: number
}

export interface LaneCount {
  readonly runtime: string
  readonly lane: string
  readonly messages: number
}

/** What a store has when it opens. */
export interface Contents {
  readonly counts: readonly Count[]
  readonly lanes: readonly LaneCount[]
  /** `seen` is when they were written, in ms since 1970. The oldest come first. */
  readonly rules: readonly { readonly runtime: string; readonly rules: string; readonly seen: number }[]
  readonly paused: readonly string[]
}

/** What a sweep did. */
export interface SweepResult {
  /** Messages that expired, and are dead letters now. */
  readonly expired: readonly Message[]
  /** There is more to sweep. A sweep is bounded because nothing is stored while it runs. */
  readonly more: boolean
}

/** How long finished messages are kept, and the rules of runtimes that do not come back. */
export interface Retention {
  readonly deadMs: number
  readonly deliveredMs: number
  /** How many delivered messages are kept at most, over all runtimes. */
  readonly maxDelivered: number
  readonly rulesMs: number
}

export interface InboxStore {
  /** Called when the store opens, or opens again, and when it can no longer be used. */
  onState: ((state: StoreState) => void) | undefined
  /** Rejects with a {@link StoreError}. */
  apply(change: Change): Promise<ChangeResult>
  /** `undefined` if only one server uses the store. */
  readonly shared: SharedStore | undefined
  /** The oldest waiting messages of a lane, in order. Claims the lane for this server. `undefined` if another server owns it. */
  next(runtime: string, lane: string, limit: number): Promise<readonly Message[] | undefined>
  /** Part `n` of a message; 0 is its head. `undefined` if there is no such part. */
  part(id: string, n: number): Promise<Uint8Array | undefined>
  /** The newest first. */
  list(filter: Filter): Promise<readonly Message[]>
  sweep(at: number, keep: Retention): Promise<SweepResult>
  counts(): Promise<readonly Count[]>
  /** The lanes in which messages wait. There may be hundreds of thousands. */
  lanes(): Promise<readonly LaneCount[]>
  stats(): StoreStats
  close(): Promise<void>
}

/** What a store that several servers share can do besides. Each lane has one owner at a time. */
export interface SharedStore {
  /** Called when another server stored a message in a lane, or released the lane. */
  onLane: ((runtime: string, lane: string, what: LaneEvent) => void) | undefined
  /** Called when any server changed rules or pauses, and after `reload`. */
  onRules: ((contents: Pick<Contents, 'rules' | 'paused'>) => void) | undefined
  /** Reads the rules and pauses again. */
  reload(): void
  /** True while the store is open and our lease has expired. What others have stored since then may not be known here yet. */
  isLeaseOver(): boolean
  /** How many messages wait in the lane. */
  waiting(runtime: string, lane: string): Promise<number>
  /** Releases the lane. With `empty`, nothing waits in it, and the other servers are notified. */
  release(runtime: string, lane: string, empty: boolean): void
}

export type LaneEvent = 'waits' | 'free'

export interface OpenState {
  readonly open: true
  readonly contents: Contents
  readonly setAside: string | undefined
}

export type StoreState = OpenState | { readonly open: false; readonly problem: string }

export interface StoreStats {
  readonly open: boolean
  /** Why it is not open. */
  readonly problem: string | undefined
  /** Path of the damaged file, or of a copy of the deleted one. */
  readonly setAside: string | undefined
  readonly commits: number
  readonly commitSeconds: number
  /** The longest commit of the last minute or two. */
  readonly commitMaxSeconds: number
}

/**
 * `full`: there is no room. `away`: the store cannot be reached, or could not make a change durable. `gone`: the message is no longer
 * there, or no longer ours.
 */
export class StoreError extends Error {
  override readonly name = 'StoreError'
  readonly kind: 'full' | 'away' | 'gone'

  constructor(kind: StoreError['kind'], message: string) {
    super(message)
    this.kind = kind
  }
}
