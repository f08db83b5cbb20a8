/** Counts what the inbox keeps, by runtime and in total, so that a webhook that exceeds a quota is refused at once. */
import type { Count, MessageState } from './store.ts'

interface LedgerLimits {
  readonly messagesPerRuntime: number
  readonly bytesPerRuntime: number
  readonly bytes: number
}

export interface Account {
  messages: number
  bytes: number
}

/** From this share of a lane's or a runtime's quota on, or of the limit for all, unverified webhooks are rate-limited. */
export const SCARCE = 1 / 2
/** Refused dead letters may take this share of a runtime's quota. They may take more as long as nobody else needs it. */
const REFUSED_SHARE = 7 / 16
/** Once this share of a quota is used, some of them are deleted. */
const FULL = 15 / 16
/** They are deleted by at least this share of the quota at a time, since all of them are listed each time. */
const LOT = 1 / 16
const NOTHING: Readonly<Account> = { messages: 0, bytes: 0 }

export class Ledger {
  readonly #limits: LedgerLimits
  /** Waiting and dead webhooks, by runtime. Delivered ones do not count, since their bytes are deleted. */
  readonly #accounts = new Map<string, Account>()
  /** The part of them that are dead letters which were refused. */
  readonly #refused = new Map<string, Account>()
  #refusedBytes = 0
  /** The result of {@link #fairQuota}, until they change. */
  #quota: number | undefined
  /** Room reserved for webhooks that are being stored. */
  readonly #reserved = new Map<string, Account>()
  #reservedBytes = 0
  /** Messages of all runtimes, by state. */
  readonly messages: Record<MessageState, number> = { waiting: 0, dead: 0, delivered: 0 }
  #bytes = 0
  #counts: readonly Count[] = []
  /** What was stored since each {@link reload} that is under way began, by runtime. */
  readonly #arrivals = new Set<Map<string, Account>>()

  constructor(limits: LedgerLimits) {
    this.#limits = limits
  }

  /**
   * Replaces the counts with those that `ask` gets from a store that servers share. What is stored here meanwhile may be among them or
   * not, so it is added: a count that is too high for a moment does no harm.
   */
  async reload(ask: () => Promise<readonly Count[]>): Promise<void> {
    const arrived = new Map<string, Account>()
    this.#arrivals.add(arrived)
    try {
      this.load(await ask())
      for (const [runtime, { messages, bytes }] of arrived) {
        this.#change(runtime, messages, bytes)
        this.messages.waiting += messages
      }
    } finally {
      this.#arrivals.delete(arrived)
    }
  }

  /** Replaces the counts with those of the store. */
  load(counts: readonly Count[]): void {
    this.#counts = counts
    this.#accounts.clear()
    this.#refused.clear()
    this.#refusedBytes = 0
    this.#quota = undefined
    this.#bytes = 0
    for (const state of ['waiting', 'dead', 'delivered'] as const) this.messages[state] = 0
    for (const { runtime, state, messages, bytes, refused, refusedBytes } of counts) {
      this.messages[state] += messages
      if (state !== 'delivered') this.#change(runtime, messages, bytes)
      if (state === 'dead' && refused > 0) this.addRefused(runtime, refused, refusedBytes)
    }
  }

  /** Negative numbers remove. */
  add(runtime: string, messages: number, bytes: number): void {
    if (messages > 0) for (const arrived of this.#arrivals) change(arrived, runtime, messages, bytes)
    this.#change(runtime, messages, bytes)
  }

  /** What is removed may be another server's, which was not counted here yet. So the total is what the accounts have. */
  #change(runtime: string, messages: number, bytes: number): void {
    const before = this.#accounts.get(runtime)?.bytes ?? 0
    change(this.#accounts, runtime, messages, Math.max(bytes, -before))
    this.#bytes += (this.#accounts.get(runtime)?.bytes ?? 0) - before
  }

  /** The same for dead letters that were refused. They are in both. */
  addRefused(runtime: string, messages: number, bytes: number): void {
    this.#quota = undefined
    change(this.#refused, runtime, messages, bytes)
    this.#refusedBytes += bytes
  }

  setRefused(runtime: string, messages: number, bytes: number): void {
    const before = this.#refused.get(runtime) ?? NOTHING
    this.addRefused(runtime, messages - before.messages, bytes - before.bytes)
  }

  /** Records a change of state. `from` is `undefined` for a new message, `to` for a deleted one. */
  move(from: MessageState | undefined, to: MessageState | undefined): void {
    // Another server's may not be counted here yet.
    if (from !== undefined) this.messages[from] = Math.max(0, this.messages[from] - 1)
    if (to !== undefined) this.messages[to]++
  }

  /** False if there is no room. Give the room back with {@link release}. */
  reserve(runtime: string, messages: number, bytes: number): boolean {
    const { messagesPerRuntime, bytesPerRuntime } = this.#limits
    const taken = this.#takenBy(runtime)
    if (taken.messages + messages > messagesPerRuntime || taken.bytes + bytes > bytesPerRuntime) return false
    if (this.#bytes + this.#reservedBytes + bytes > this.#limits.bytes) return false
    change(this.#reserved, runtime, messages, bytes)
    this.#reservedBytes += bytes
    return true
  }

  /** Whether anything more can be stored for a runtime. */
  hasRoom(runtime: string): boolean {
    const isReserved = this.reserve(runtime, 1, 1)
    if (isReserved) this.release(runtime, 1, 1)
    return isReserved
  }

  release(runtime: string, messages: number, bytes: number): void {
    change(this.#reserved, runtime, -messages, -bytes)
    this.#reservedBytes -= bytes
  }

  /** What a runtime has used of its quota, reserved room included, without what is deleted once somebody needs it. */
  #takenBy(runtime: string): Account {
    const { messagesPerRuntime, bytesPerRuntime } = this.#limits
    const kept = this.#accounts.get(runtime) ?? NOTHING
    const coming = this.#reserved.get(runtime) ?? NOTHING
    const refused = this.#refused.get(runtime) ?? NOTHING
    return {
      messages: kept.messages + coming.messages - Math.max(0, refused.messages - messagesPerRuntime * REFUSED_SHARE),
      bytes: kept.bytes + coming.bytes - Math.max(0, refused.bytes - bytesPerRuntime * REFUSED_SHARE),
    }
  }

  /** Whether a runtime has used so much of its quota that unverified webhooks are rate-limited. */
  isScarce(runtime: string): boolean {
    const { messagesPerRuntime, bytesPerRuntime } = this.#limits
    const { messages, bytes } = this.#takenBy(runtime)
    return messages >= messagesPerRuntime * SCARCE || bytes >= bytesPerRuntime * SCARCE
  }

  /** The same for all runtimes together. */
  get isScarceForAll(): boolean {
    const { bytes } = this.#limits
    const deletable = Math.max(0, this.#refusedBytes - bytes * REFUSED_SHARE)
    return this.#bytes + this.#reservedBytes - deletable >= bytes * SCARCE
  }

  /** Runtimes that have dead letters which were refused, first those that have most. */
  get withRefused(): readonly string[] {
    return [...this.#refused].toSorted(([, a], [, b]) => b.bytes - a.bytes).map(([runtime]) => runtime)
  }

  /** What the refused dead letters of a runtime must be reduced to. `undefined` as long as they may stay as they are. */
  roomForRefused(runtime: string): Readonly<Account> | undefined {
    const { messagesPerRuntime, bytesPerRuntime, bytes } = this.#limits
    const kept = this.#accounts.get(runtime) ?? NOTHING
    const refused = this.#refused.get(runtime) ?? NOTHING
    const isFull = this.#bytes >= bytes * FULL
    const room = {
      messages: roomOf(refused.messages, kept.messages, messagesPerRuntime),
      bytes: isFull
        ? roomOf(refused.bytes, Number.POSITIVE_INFINITY, Math.min(bytesPerRuntime, this.#fairQuota()))
        : roomOf(refused.bytes, kept.bytes, bytesPerRuntime),
    }
    return room.messages < refused.messages || room.bytes < refused.bytes ? room : undefined
  }

  /** With this quota in bytes for each runtime, their refused dead letters would keep to the limit for all. Small ones leave room to large ones. */
  #fairQuota(): number {
    if (this.#quota !== undefined) return this.#quota
    const all = [...this.#refused.values()].map(({ bytes }) => bytes / REFUSED_SHARE).toSorted((a, b) => a - b)
    let left = this.#limits.bytes
    const at = all.findIndex((quota, i) => {
      const isOver = quota > left / (all.length - i)
      if (!isOver) left -= quota
      return isOver
    })
    this.#quota = at < 0 ? Number.POSITIVE_INFINITY : left / (all.length - at)
    return this.#quota
  }

  get bytes(): number {
    return this.#bytes
  }

  /** The store's counts, as they were last read. */
  get counts(): readonly Count[] {
    return this.#counts
  }
}

/** `refused` is a part of `kept`. Infinite if less than a lot would have to go. */
function roomOf(refused: number, kept: number, quota: number): number {
  const room = Math.max(quota * REFUSED_SHARE, quota * (FULL - LOT) - (kept - refused))
  return refused - room < quota * LOT ? Number.POSITIVE_INFINITY : room
}

function change(accounts: Map<string, Account>, runtime: string, messages: number, bytes: number): void {
  const account = accounts.get(runtime) ?? { messages: 0, bytes: 0 }
  account.messages += messages
  account.bytes += bytes
  if (account.messages <= 0) accounts.delete(runtime)
  else accounts.set(runtime, account)
}
