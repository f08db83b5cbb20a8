/** How much the inbox keeps, of each runtime and in all, so that a webhook for which there is no room is refused at once. */
import type { Count, MessageState } from './store.ts'

interface LedgerLimits {
  readonly messagesPerRuntime: number
  readonly bytesPerRuntime: number
  readonly bytes: number
}

interface Account {
  messages: number
  bytes: number
}

/** Beyond this share of a runtime's quota, unverified webhooks are slowed. */
const SCARCE = 1 / 2

export class Ledger {
  readonly #limits: LedgerLimits
  /** Waiting and dead webhooks, by runtime. Delivered ones have no bytes left. */
  readonly #accounts = new Map<string, Account>()
  /** Room that was promised to what is on its way into the store. */
  readonly #reserved = new Map<string, Account>()
  #reservedBytes = 0
  /** Of all runtimes, by state. */
  readonly messages: Record<MessageState, number> = { waiting: 0, dead: 0, delivered: 0 }
  #bytes = 0
  #counts: readonly Count[] = []

  constructor(limits: LedgerLimits) {
    this.#limits = limits
  }

  /** What the store says. */
  load(counts: readonly Count[]): void {
    this.#counts = counts
    this.#accounts.clear()
    this.#bytes = 0
    for (const state of ['waiting', 'dead', 'delivered'] as const) this.messages[state] = 0
    for (const { runtime, state, messages, bytes } of counts) {
      this.messages[state] += messages
      if (state !== 'delivered') this.add(runtime, messages, bytes)
    }
  }

  /** Negative: they are gone. */
  add(runtime: string, messages: number, bytes: number): void {
    change(this.#accounts, runtime, messages, bytes)
    this.#bytes += bytes
  }

  /** A message changes its state. Undefined: it is new, or gone. */
  move(from: MessageState | undefined, to: MessageState | undefined): void {
    if (from !== undefined) this.messages[from]--
    if (to !== undefined) this.messages[to]++
  }

  /** False: there is no room. To be given back with {@link release}. */
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

  release(runtime: string, messages: number, bytes: number): void {
    change(this.#reserved, runtime, -messages, -bytes)
    this.#reservedBytes -= bytes
  }

  #bytesOf(runtime: string): number {
    return (this.#accounts.get(runtime)?.bytes ?? 0) + (this.#reserved.get(runtime)?.bytes ?? 0)
  }

  /** Whether a runtime has used so much of its quota that strangers must be slowed. */
  isScarce(runtime: string): boolean {
    const messages = this.#accounts.get(runtime)?.messages ?? 0
    const { messagesPerRuntime, bytesPerRuntime } = this.#limits
    return messages >= messagesPerRuntime * SCARCE || this.#bytesOf(runtime) >= bytesPerRuntime * SCARCE
  }

  get bytes(): number {
    return this.#bytes
  }

  /** As of the last sweep. */
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
