/**
 * Paces handshakes by a budget of event-loop time. Connections beyond it wait unread, shared fairly per address, in a
 * queue that is bounded in all and per address.
 *
 * The budget fills with the clock, at `share` milliseconds per millisecond, and every piece of handshake work is charged
 * as it was measured, afterwards: it may go below zero, and nobody is let in until it is above again.
 */
export interface AdmissionOptions {
  /** Share of the event loop's time, 0 to 1. */
  readonly share: number
  readonly maxWaiting: number
  readonly maxPerAddress: number
  /** Milliseconds, monotonic. */
  readonly now: () => number
}

/** What waits: a connection that was accepted and not yet read. */
export interface Candidate {
  readonly address: string
  /** Begins the handshake. */
  admit(): void
  /** Closes the connection: the queue is full. */
  refuse(): void
}

/** Unused time is kept up to this: what a burst after silence may take at once. */
const BURST_MS = 50
/** Handshakes begun whose cost is not known yet. */
const MAX_UNCHARGED = 8

export class Admission {
  readonly #options: AdmissionOptions
  /** Rounds over addresses: a Map keeps the order in which they came. */
  readonly #waiting = new Map<string, Candidate[]>()
  #waitingCount = 0
  #budgetMs = BURST_MS
  #filledAt: number
  #uncharged = 0
  #timer: NodeJS.Timeout | undefined
  /** Connections refused because the queue was full. */
  refused = 0

  constructor(options: AdmissionOptions) {
    this.#options = options
    this.#filledAt = options.now()
  }

  get waiting(): number {
    return this.#waitingCount
  }

  /** Lets the candidate in now, puts it into the queue, or refuses it or another one. */
  add(candidate: Candidate): void {
    const queue = this.#waiting.get(candidate.address)
    if (queue !== undefined && queue.length >= this.#options.maxPerAddress) {
      this.#refuse(candidate)
      return
    }
    if (this.#waitingCount >= this.#options.maxWaiting && !this.#makeRoom(queue?.length ?? 0)) {
      this.#refuse(candidate)
      return
    }
    if (queue === undefined) this.#waiting.set(candidate.address, [candidate])
    else queue.push(candidate)
    this.#waitingCount++
    this.#run()
  }

  /** Takes a candidate out that left by itself. */
  remove(candidate: Candidate): void {
    const queue = this.#waiting.get(candidate.address)
    const index = queue?.indexOf(candidate) ?? -1
    if (index < 0) return
    queue!.splice(index, 1)
    this.#waitingCount--
    if (queue!.length === 0) this.#waiting.delete(candidate.address)
  }

  /** Books handshake work that was done. `first`: the first charge of a candidate, so that another may begin. */
  charge(costMs: number, first: boolean): void {
    this.#budgetMs -= costMs
    if (first && this.#uncharged > 0) this.#uncharged--
    this.#run()
  }

  close(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    for (const queue of this.#waiting.values()) for (const candidate of queue) candidate.refuse()
    this.#waiting.clear()
    this.#waitingCount = 0
  }

  #run(): void {
    this.#fill()
    while (this.#waitingCount > 0 && this.#uncharged < MAX_UNCHARGED && this.#budgetMs > 0) {
      this.#uncharged++
      this.#next().admit()
    }
    if (this.#waitingCount > 0 && this.#budgetMs <= 0) this.#wake()
  }

  /** The oldest candidate of the address whose turn it is; that address goes to the end of the round. */
  #next(): Candidate {
    const [address, queue] = this.#waiting.entries().next().value!
    const candidate = queue.shift()!
    this.#waitingCount--
    this.#waiting.delete(address)
    if (queue.length > 0) this.#waiting.set(address, queue)
    return candidate
  }

  #fill(): void {
    const now = this.#options.now()
    this.#budgetMs = Math.min(BURST_MS, this.#budgetMs + (now - this.#filledAt) * this.#options.share)
    this.#filledAt = now
  }

  #wake(): void {
    this.#timer ??= setTimeout(
      () => {
        this.#timer = undefined
        this.#run()
      },
      Math.max(1, Math.ceil(-this.#budgetMs / this.#options.share)),
    ).unref()
  }

  /** Refuses the newest of the address that has most waiting, if that is more than `share` of the newcomer's. */
  #makeRoom(share: number): boolean {
    let greediest: Candidate[] | undefined
    for (const queue of this.#waiting.values()) {
      if (greediest === undefined || queue.length > greediest.length) greediest = queue
    }
    if (greediest === undefined || greediest.length <= share + 1) return false
    const victim = greediest.at(-1)!
    this.remove(victim)
    this.#refuse(victim)
    return true
  }

  #refuse(candidate: Candidate): void {
    this.refused++
    candidate.refuse()
  }
}
