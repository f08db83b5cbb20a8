/** A store of the directory as one replica sees it, with what can go wrong on the way: all that `store.ts` allows. */
import {
  ClosedByStore,
  type DirectoryChange,
  type DirectoryStore,
  type StoreLink,
  type StoreListener,
} from '../../server/directory/store.ts'

/** Nobody listens there, for whomever. */
class Absent extends Error {}

export class FaultyStore implements DirectoryStore {
  readonly kind: string
  readonly #inner: DirectoryStore
  readonly #links = new Set<FaultyLink>()
  /** Neither questions nor answers pass, until it ends; what was said meanwhile is lost with its link. */
  silent = false
  /** The store does what it is asked for, and the answer is lost. */
  losesAnswers = false
  /** Each notice comes twice. */
  repeats = false
  /** Of the notices between two answers the last comes first. */
  reorders = false
  /** Nobody listens there. */
  absent = false
  /** It answers, but takes no writes, as if it were full: the link ends. */
  full = false
  /** Leases are renewed, and with any other operation the link ends: it is there for a moment, again and again. */
  flaps = false
  /** How long each answer takes. */
  delayMs = 0

  constructor(inner: DirectoryStore) {
    this.kind = inner.kind
    this.#inner = inner
  }

  isAbsent(error: unknown): boolean {
    return error instanceof Absent || this.#inner.isAbsent(error)
  }

  async open(listener: StoreListener, deadlineMs: number, signal: AbortSignal): Promise<StoreLink> {
    if (this.absent) throw new Absent('nobody listens there')
    if (this.silent) await lost(deadlineMs, signal)
    const link = new FaultyLink(this, listener, deadlineMs, () => this.#links.delete(link))
    this.#links.add(link)
    await link.open(this.#inner, signal)
    return link
  }

  /** All links are closed. */
  cut(): void {
    for (const link of this.#links) link.cut()
  }
}

class FaultyLink implements StoreLink {
  readonly #faults: FaultyStore
  readonly #listener: StoreListener
  readonly #deadlineMs: number
  readonly #onEnd: () => void
  readonly #ended = Promise.withResolvers<never>()
  #inner: StoreLink | undefined
  #isEnded = false
  /** A notice, or an answer, was lost. */
  #isTorn = false
  /** Notices that wait for the next answer, where these come in another order. */
  #held: string[] = []

  constructor(faults: FaultyStore, listener: StoreListener, deadlineMs: number, onEnd: () => void) {
    this.#faults = faults
    this.#listener = listener
    this.#deadlineMs = deadlineMs
    this.#onEnd = onEnd
    this.#ended.promise.catch(() => {})
  }

  async open(inner: DirectoryStore, signal: AbortSignal): Promise<void> {
    const listener = { notice: (text: string) => this.#notice(text), closed: (error: Error) => this.end(error) }
    this.#inner = await inner.open(listener, this.#deadlineMs, signal)
  }

  async change(change: DirectoryChange): Promise<string | null> {
    if (this.#faults.flaps) {
      this.end(new Error('the store is gone again'))
      throw new Error('the store is gone again')
    }
    return this.#call(() => this.#inner!.change(change))
  }

  async renew(leaseMs: number, isTelling: boolean, latest: number): Promise<string> {
    if (this.#faults.full) {
      this.end(new Error('the store is full'))
      throw new Error('the store is full')
    }
    return this.#call(() => this.#inner!.renew(leaseMs, isTelling, latest))
  }

  /** An answer that does not come ends the link, and so does one that was held up too long. */
  async #call<Answer>(operation: () => Promise<Answer>): Promise<Answer> {
    const late = setTimeout(() => this.end(new Error('the store does not answer')), this.#deadlineMs)
    try {
      if (this.#isEnded || this.#isSilent) await this.#ended.promise
      const answer = await Promise.race([operation(), this.#ended.promise])
      const { delayMs } = this.#faults
      if (delayMs > 0) await Promise.race([new Promise(resolve => setTimeout(resolve, delayMs)), this.#ended.promise])
      this.#isTorn ||= this.#faults.silent || this.#faults.losesAnswers
      if (this.#isTorn) await this.#ended.promise
      this.#flush()
      return answer
    } finally {
      clearTimeout(late)
    }
  }

  #notice(text: string): void {
    if (this.#isEnded) return
    // A stream has no gaps: without this one, nothing that comes later may pass.
    if (this.#faults.silent) this.#isTorn = true
    if (this.#isTorn) return
    this.#held.unshift(text)
    if (!this.#faults.reorders) this.#flush()
  }

  get #isSilent(): boolean {
    return this.#isTorn || this.#faults.silent
  }

  #flush(): void {
    for (const text of this.#held.splice(0)) {
      this.#listener.notice(text)
      if (this.#faults.repeats) this.#listener.notice(text)
    }
  }

  close(): void {
    this.end(new Error('closed'))
  }

  /** By the store, where all that it said came here; else by somebody between. */
  cut(): void {
    if (!this.#isSilent) this.#flush()
    this.end(
      this.#isSilent ? new Error('the connection was cut') : new ClosedByStore('the store closed the connection'),
    )
  }

  end(error: Error): void {
    if (this.#isEnded) return
    this.#isEnded = true
    this.#ended.reject(error)
    this.#inner?.close()
    this.#onEnd()
    this.#listener.closed(error)
  }
}

/** Rejects when nothing has come until then. */
function lost(deadlineMs: number, signal: AbortSignal): Promise<never> {
  const { promise, reject } = Promise.withResolvers<never>()
  const late = setTimeout(() => reject(new Error('the store does not answer')), deadlineMs)
  signal.addEventListener('abort', () => {
    clearTimeout(late)
    reject(new Error('closed'))
  })
  return promise
}
