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

/** From this share of a runtime's or a lane's quota on, unverified webhooks are rate-limited. */
export const SCARCE = 1 / 2
/** Refused dead letters may take less than this share of a runtime's quota. */
const REFUSED_SHARE = 1 / 2
/** They are deleted by this share of the quota at a time, since all of them are listed each time. */
const LOT = 1 / 16

export class Ledger {
  readonly #limits: LedgerLimits
  /** Waiting and dead webhooks, by runtime. Delivered ones do not count, since their bytes are deleted. */
  readonly #accounts = new Map<string, Account>()
  /** The part of them that are dead letters which were refused. */
  readonly #refused = new Map<string, Account>()
  /** Room reserved for webhooks that are being stored. */
  readonly #reserved = new Map<string, Account>()
  #reservedBytes = 0
  /** Messages of all runtimes, by state. */
  readonly messages: Record<MessageState, number> = { waiting: 0, dead: 0, delivered: 0 }
  #bytes = 0
  #counts: readonly Count[] = []

  constructor(limits: LedgerLimits) {
    this.#limits = limits
  }

  /** Replaces the counts with those of the store. */
  load(counts: readonly Count[]): void {
    this.#counts = counts
    this.#accounts.clear()
    this.#refused.clear()
    this.#bytes = 0
    for (const state of ['waiting', 'dead', 'delivered'] as const) this.messages[state] = 0
    for (const { runtime, state, messages, bytes, refused, refusedBytes } of counts) {
      this.messages[state] += messages
      if (state !== 'delivered') this.add(runtime, messages, bytes)
      if (state === 'dead' && refused > 0) this.addRefused(runtime, refused, refusedBytes)
    }
  }

  /** Negative numbers remove. */
  add(runtime: string, messages: number, bytes: number): void {
    change(this.#accounts, runtime, messages, bytes)
    this.#bytes += bytes
  }

  /** The same for dead letters that were refused. They are in both. */
  addRefused(runtime: string, messages: number, bytes: number): void {
    change(this.#refused, runtime, messages, bytes)
  }

  setRefused(runtime: string, messages: number, bytes: number): void {
    this.#refused.delete(runtime)
    this.addRefused(runtime, messages, bytes)
  }

  /** Records a change of state. `from` is `undefined` for a new message, `to` for a deleted one. */
  move(from: MessageState | undefined, to: MessageState | undefined): void {
    if (from !== undefined) this.messages[from]--
    if (to !== undefined) this.messages[to]++
  }

  /** False if there is no room. Give the room back with {@link release}. */
  reserve(runtime: string, messages: number, bytes: number): boolean {
    const [kept, coming] = [this.#accounts.get(runtime), this.#reserved.get(runtime)]
    const { messagesPerRuntime, bytesPerRuntime } = this.#limits
    if ((kept?.messages ?? 0) + (coming?.messages ?? 0) + messages > messagesPerRuntime) return false
    if (this.#bytesOf(runtime) + bytes > bytesPerRuntime) return false
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

  #bytesOf(runtime: string): number {
    return (this.#accounts.get(runtime)?.bytes ?? 0) + (this.#reserved.get(runtime)?.bytes ?? 0)
  }

  /** Whether a runtime has used so much of its quota that unverified webhooks are rate-limited. */
  isScarce(runtime: string): boolean {
    const messages = this.#accounts.get(runtime)?.messages ?? 0
    const { messagesPerRuntime, bytesPerRuntime } = this.#limits
    return messages >= messagesPerRuntime * SCARCE || this.#bytesOf(runtime) >= bytesPerRuntime * SCARCE
  }

  /** Runtimes that have dead letters which were refused. */
  get withRefused(): readonly string[] {
    return [...this.#refused.keys()]
  }

  /** What the refused dead letters of a runtime must be reduced to. `undefined` as long as they may stay as they are. */
  roomForRefused(runtime: string): Readonly<Account> | undefined {
    const { messagesPerRuntime, bytesPerRuntime } = this.#limits
    const { messages, bytes } = this.#refused.get(runtime) ?? { messages: 0, bytes: 0 }
    if (messages < messagesPerRuntime * REFUSED_SHARE && bytes < bytesPerRuntime * REFUSED_SHARE) return undefined
    const share = REFUSED_SHARE - LOT
    return { messages: messagesPerRuntime * share, bytes: bytesPerRuntime * share }
  }

  get bytes(): number {
    return this.#bytes
  }

  /** The store's counts, as of the last sweep. */
  get counts(): readonly Count[] {
    return this.#counts
  }
}

function change(accounts: Map<string, Account>, runtime: string, messages: number, bytes: number): void {
  const account = accounts.get(runtime) ?? { messages: 0, bytes: 0 }
  account.messages += messages
  account.bytes += bytes
  if (account.messages <= 0) accounts.delete(runtime)
  else accounts.set(runtime, account)
}
