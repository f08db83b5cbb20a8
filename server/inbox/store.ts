/**
 * Where the inbox keeps webhooks. A store holds facts and decides nothing: changes are handed over in order, those that come
 * together are made durable together, and a promise resolves only once its change is on stable storage.
 */

/** What stands of a message beside its bytes. Times are ms since 1970. */
export interface Message {
  readonly id: string
  readonly runtime: string
  /** Messages of one lane are delivered in order; a digest, which does not tell the path. */
  readonly lane: string
  readonly route: string
  /** Why it was accepted. */
  readonly why: string
  readonly state: MessageState
  readonly received: number
  /** From then on it is dead. */
  readonly expires: number
  /** Of head and body. */
  readonly bytes: number
  /** Of head and body, the head first. */
  readonly parts: number
  /** Deliveries that were begun. */
  readonly attempts: number
  /** Deliveries that failed, and that the receiver refused by a status of 4xx. */
  readonly failures: number
  readonly refusals: number
  /** Of the first failure or refusal; 0 before. */
  readonly failedSince: number
  /** Not to be tried before. */
  readonly next: number
  /** Of its last change of state. */
  readonly changed: number
  /** Which key it is sealed for, and what the owner needs to open it; empty: it is not sealed. */
  readonly key: string
  readonly enc: string
  /** Who brought it, as JSON: in clear, since who may call is checked at the delivery. */
  readonly caller: string
  /** Why it is dead, or what the last attempt met. */
  readonly reason: string
}

export type MessageState = 'waiting' | 'dead' | 'delivered'

/** A message to append. */
export interface NewMessage extends Omit<Message, 'state' | 'changed'> {
  /** Digest of its id and body; empty: it has no id. */
  readonly dedupe: string
  /** How long after its delivery the same one is still recognised. */
  readonly dedupeMs: number
}

/** What becomes of a message; what is absent stays. */
export type Progress = Partial<
  Pick<Message, 'attempts' | 'failures' | 'refusals' | 'failedSince' | 'next' | 'expires' | 'reason' | 'state'>
>

export type Change =
  /**
   * Head and the end of the body; the parts between are there. A duplicate takes them all away. `absent`: not all of them are there any
   * more, and it is not stored.
   */
  | { readonly op: 'append'; readonly message: NewMessage; readonly head: Uint8Array; readonly rest: Uint8Array }
  /** A part of a body that is too long for memory, before its message. A store that opens again may have lost it. */
  | { readonly op: 'part'; readonly id: string; readonly n: number; readonly bytes: Uint8Array }
  /** Parts whose message does not come; those of one that is there stay. */
  | { readonly op: 'forget'; readonly id: string }
  /** What was delivered stays so, and is `absent`. `owned`: only while this server has the lane, else it is `absent`, too. */
  | {
      readonly op: 'update'
      readonly id: string
      readonly set: Progress
      readonly at: number
      readonly owned?: boolean
    }
  /** Removes a message that is not under way. */
  | { readonly op: 'drop'; readonly id: string }
  /** What a runtime announced; undefined: nothing any more. */
  | { readonly op: 'rules'; readonly runtime: string; readonly rules: string | undefined; readonly at: number }
  | { readonly op: 'pause'; readonly runtime: string; readonly paused: boolean }

/** What a change did. `id`: of the message that is kept, which may be an older one. */
export type Applied = { readonly status: 'stored' | 'duplicate' | 'done' | 'absent'; readonly id: string }

/** What `list` shows; what is absent is not asked for. */
export interface Filter {
  readonly runtime?: string | undefined
  readonly lane?: string | undefined
  readonly state?: MessageState | undefined
  /** Received at that time or later. */
  readonly since?: number | undefined
  /** Ids that begin with this. */
  readonly id?: string | undefined
  /** Only what was stored before all of these, of which the store may have none. */
  readonly before?: readonly string[] | undefined
  readonly limit: number
}

/** Of one runtime and state. */
export interface Count {
  readonly runtime: string
  readonly state: MessageState
  readonly messages: number
  readonly bytes: number
  /** When the oldest of them came. */
  readonly oldest: number
}

export interface LaneCount {
  readonly runtime: string
  readonly lane: string
  readonly messages: number
}

/** All that is there. */
export interface Counts {
  readonly counts: readonly Count[]
  readonly lanes: readonly LaneCount[]
}

/** What a store knows when it opens. */
export interface Contents extends Counts {
  readonly rules: readonly { readonly runtime: string; readonly rules: string }[]
  readonly paused: readonly string[]
}

/** What a sweep did. */
export interface Swept {
  /** Messages whose time is over: they are dead now. */
  readonly expired: readonly Message[]
  /** There is more to do. A sweep is bounded, since nothing is stored meanwhile. */
  readonly more: boolean
}

/** How long finished messages are kept, and the rules of runtimes that do not come back; in ms. */
export interface Keep {
  readonly deadMs: number
  readonly deliveredMs: number
  /** Most delivered ones, over all runtimes. */
  readonly mostDelivered: number
  readonly rulesMs: number
}

export interface InboxStore {
  /** Called when the store opens, or opens again, and when it can no longer be used. */
  onState: ((state: StoreState) => void) | undefined
  /** Rejects with a {@link StoreError}. */
  apply(change: Change): Promise<Applied>
  /** What a store adds that several servers share. Undefined: one server has it alone. */
  readonly shared: SharedStore | undefined
  /** The oldest waiting messages of a lane, in order. The lane is this server's from then on. Undefined: another server has it. */
  next(runtime: string, lane: string, limit: number): Promise<readonly Message[] | undefined>
  /** Part `n` of a message, 0 its head; undefined where there is none. */
  part(id: string, n: number): Promise<Uint8Array | undefined>
  /** The newest first. */
  list(filter: Filter): Promise<readonly Message[]>
  sweep(at: number, keep: Keep): Promise<Swept>
  counts(): Promise<Counts>
  stats(): StoreStats
  close(): Promise<void>
}

/** A store that several servers share: one of them has a lane at a time. */
export interface SharedStore {
  /** Called when another server did something to a lane: a message waits in it, or nobody has it any more. */
  onLane: ((runtime: string, lane: string, what: LaneNews) => void) | undefined
  /** Called when any server was told something new about runtimes. */
  onRules: ((contents: Pick<Contents, 'rules' | 'paused'>) => void) | undefined
  /** Gives the lane up. `empty`: nothing waits in it, and the others are told. */
  release(runtime: string, lane: string, empty: boolean): void
}

export type LaneNews = 'waits' | 'free'

export type StoreState =
  | { readonly open: true; readonly contents: Contents; readonly setAside: string | undefined }
  | { readonly open: false; readonly problem: string }

export interface StoreStats {
  readonly open: boolean
  /** Why it is not open. */
  readonly problem: string | undefined
  /** Where a damaged file, or a copy of a deleted one, is now. */
  readonly setAside: string | undefined
  readonly commits: number
  readonly commitSeconds: number
  /** The longest of the last minute or two. */
  readonly commitMaxSeconds: number
}

/** `full`: there is no room. `away`: it cannot be reached, or could not make a change durable. */
export class StoreError extends Error {
  override readonly name = 'StoreError'
  readonly kind: 'full' | 'away'

  constructor(kind: 'full' | 'away', message: string) {
    super(message)
    this.kind = kind
  }
}
