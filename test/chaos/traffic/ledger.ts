/**
 * The accounts: the fate of each request, by the fault during which it ended.
 *
 * *Lost* is a request that a caller sent and that ended in anything but the upstream's answer, byte for byte. Counted separately:
 * `cut`, an answer of which the caller already had bytes and that visibly broke off; `outlived`, a stream that was ended
 * because it outlived the grace; `refused`, a connection that was not accepted, so that nothing was sent.
 */
import { untilFarewell } from '../../../server/control/session-drain.ts'

export type Kind = 'GET' | 'POST' | 'download' | 'webSocket' | 'events'

export type Outcome =
  | { readonly kind: 'ok' }
  | { readonly kind: 'lost' | 'outlived' | 'refused'; readonly reason: string }
  /** `abrupt`: a stream did not end in the way that the end of a grace ends it. */
  | { readonly kind: 'cut'; readonly reason: string; readonly abrupt?: boolean }
  /** What must never happen: another request's answer, other bytes, a clean end too early. */
  | { readonly kind: 'wrong'; readonly reason: string }

type Count = 'lost' | 'cut' | 'outlived' | 'refused'

const MOST_WRONGS = 20
/** Requests take a fraction of any grace. So one that was cut has not outlived it, however long it was delayed. */
const REQUESTS: ReadonlySet<Kind> = new Set(['GET', 'POST'])

/** What happened during one fault, or between faults. */
export class Account {
  readonly name: string
  /** Requests and streams that began. */
  requests = 0
  answered = 0
  readonly counts: Record<Count, number> = { lost: 0, cut: 0, outlived: 0, refused: 0 }
  /** `GET: 503 runtime-offline` and how often, for everything that is counted. */
  readonly reasons = new Map<string, number>()
  readonly byKind = new Map<Kind, Record<Count, number>>()
  /** Ids of requests that an upstream executed more than once. */
  readonly twice: string[] = []
  readonly wrong: string[] = []
  /** Conditions of the fault itself that did not hold, in words. */
  readonly notes: string[] = []
  /** The longest time without an answer from a runtime that was called. */
  longestGapMs = 0

  constructor(name: string) {
    this.name = name
  }

  of(kind: Kind): Readonly<Record<Count, number>> {
    return this.byKind.get(kind) ?? NONE
  }

  /** @internal */
  count(kind: Kind, outcome: Exclude<Outcome, { kind: 'ok' | 'wrong' }>): void {
    this.counts[outcome.kind]++
    const own = this.byKind.get(kind) ?? { ...NONE }
    own[outcome.kind]++
    this.byKind.set(kind, own)
    const reason = `${kind} ${outcome.kind}: ${outcome.reason}`
    this.reasons.set(reason, (this.reasons.get(reason) ?? 0) + 1)
  }

  /** @internal */
  fault(list: 'twice' | 'wrong', text: string): void {
    if (this[list].length < MOST_WRONGS) this[list].push(text)
  }
}

const NONE: Readonly<Record<Count, number>> = { lost: 0, cut: 0, outlived: 0, refused: 0 }

/** A request in progress. */
export class Entry {
  readonly kind: Kind
  readonly runtime: string
  readonly beganMs = performance.now()
  readonly #ledger: Ledger

  /** @internal */
  constructor(ledger: Ledger, kind: Kind, runtime: string) {
    this.#ledger = ledger
    this.kind = kind
    this.runtime = runtime
  }

  end(outcome: Outcome): void {
    this.#ledger.ended(this, outcome)
  }
}

export class Ledger {
  readonly total: Account
  readonly #farewellMs: number
  #current: Account
  readonly #open = new Set<Entry>()
  readonly #barriers = new Set<{ readonly entries: Set<Entry>; readonly done: () => void }>()
  #flowing = false
  /** When each runtime last answered. */
  readonly #answeredMs = new Map<string, number>()

  /** `graceMs`: that of the deployment. A stream that is open shortly before its end has outlived it. */
  constructor(name: string, graceMs: number) {
    this.total = new Account(name)
    this.#current = this.total
    this.#farewellMs = untilFarewell(graceMs)
  }

  /** From now until the next call, everything is also counted in a separate account. */
  account(name: string): Account {
    this.#current = new Account(name)
    const now = performance.now()
    for (const runtime of this.#answeredMs.keys()) this.#answeredMs.set(runtime, now)
    return this.#current
  }

  /** Whether steady callers are calling. Once they have stopped, waiting for the last answers is not a gap. */
  set flowing(flowing: boolean) {
    this.#flowing = flowing
    this.#answeredMs.clear()
  }

  begin(kind: Kind, runtime: string): Entry {
    const entry = new Entry(this, kind, runtime)
    this.#open.add(entry)
    this.#each(account => account.requests++)
    return entry
  }

  /** Resolves when all requests that are open now have ended. Does not wait for streams. */
  settled(): Promise<void> {
    const entries = new Set([...this.#open].filter(({ kind }) => REQUESTS.has(kind)))
    if (entries.size === 0) return Promise.resolve()
    return new Promise(done => this.#barriers.add({ entries, done }))
  }

  /** An upstream executed `id` a second time. */
  twice(id: string): void {
    this.#each(account => account.fault('twice', id))
  }

  wrong(what: string): void {
    this.#each(account => account.fault('wrong', what))
  }

  /** @internal */
  ended(entry: Entry, outcome: Outcome): void {
    if (!this.#open.delete(entry)) return
    if (outcome.kind === 'ok') this.#answered(entry)
    else if (outcome.kind === 'wrong') this.wrong(`${entry.kind}: ${outcome.reason}`)
    else this.#count(entry, outcome)
    // Nothing was sent.
    if (outcome.kind === 'refused') this.#each(account => account.requests--)
    for (const barrier of this.#barriers) {
      barrier.entries.delete(entry)
      if (barrier.entries.size > 0) continue
      this.#barriers.delete(barrier)
      barrier.done()
    }
  }

  #count({ kind, beganMs }: Entry, outcome: Exclude<Outcome, { kind: 'ok' | 'wrong' }>): void {
    const isOld = !REQUESTS.has(kind) && performance.now() - beganMs > this.#farewellMs
    const hasOutlived = outcome.kind === 'cut' && outcome.abrupt !== true && isOld
    const counted = hasOutlived ? { kind: 'outlived' as const, reason: outcome.reason } : outcome
    this.#each(account => account.count(kind, counted))
  }

  #answered({ kind, runtime }: Entry): void {
    this.#each(account => account.answered++)
    if (!REQUESTS.has(kind) || !this.#flowing) return
    const now = performance.now()
    const gapMs = now - (this.#answeredMs.get(runtime) ?? now)
    this.#answeredMs.set(runtime, now)
    this.#each(account => {
      account.longestGapMs = Math.max(account.longestGapMs, gapMs)
    })
  }

  #each(act: (account: Account) => void): void {
    act(this.total)
    if (this.#current !== this.total) act(this.#current)
  }
}
