/**
 * Paces handshakes by a budget of event-loop time. A connection waits in silence until its first bytes come; from then on
 * it waits for its turn, which goes round the addresses. Both kinds are bounded together, in all and per address.
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

/** What waits: a connection that was accepted. */
export interface Candidate {
  readonly address: string
  /** Begins the handshake. */
  admit(): void
  /** Closes the connection: there is no room. */
  refuse(): void
}

/** Those of one address, in the order in which they came. */
interface Place {
  readonly silent: Set<Candidate>
  readonly ready: Set<Candidate>
}

/** Unused time is kept up to this: what a burst after silence may take at once. */
const BURST_MS = 50
/** Handshakes begun whose cost is not known yet. */
const MAX_UNCHARGED = 8

export class Admission {
  readonly #options: AdmissionOptions
  readonly #places = new Map<string, Place>()
  /** Addresses with somebody who is ready; a Map keeps the order of their turns. */
  readonly #round = new Map<string, Place>()
  #waitingCount = 0
  #budgetMs = BURST_MS
  #filledAt: number
  #uncharged = 0
  #timer: NodeJS.Timeout | undefined
  /** Connections refused because there was no room. */
  refused = 0

  constructor(options: AdmissionOptions) {
    this.#options = options
    this.#filledAt = options.now()
  }

  get waiting(): number {
    return this.#waitingCount
  }

  /** Gives the candidate a place among the silent, or refuses it or another one. False if it was refused. */
  add(candidate: Candidate): boolean {
    const { address } = candidate
    const count = countOf(this.#places.get(address))
    const full = this.#waitingCount >= this.#options.maxWaiting && !this.#makeRoom(count)
    if (full || count >= this.#options.maxPerAddress) {
      this.#refuse(candidate)
      return false
    }
    let place = this.#places.get(address)
    if (place === undefined) {
      place = { silent: new Set(), ready: new Set() }
      this.#places.set(address, place)
    }
    place.silent.add(candidate)
    this.#waitingCount++
    return true
  }

  /** The candidate's first bytes are there: it is let in now, or when its turn comes. */
  ready(candidate: Candidate): void {
    const place = this.#places.get(candidate.address)
    if (place?.silent.delete(candidate) !== true) return
    place.ready.add(candidate)
    if (place.ready.size === 1) this.#round.set(candidate.address, place)
    this.#run()
  }

  /** Takes a candidate out that left by itself. */
  remove(candidate: Candidate): void {
    const place = this.#places.get(candidate.address)
    if (place === undefined || !(place.silent.delete(candidate) || place.ready.delete(candidate))) return
    this.#waitingCount--
    this.#tidy(candidate.address, place)
  }

  #tidy(address: string, place: Place): void {
    if (place.ready.size === 0) this.#round.delete(address)
    if (countOf(place) === 0) this.#places.delete(address)
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
    const all = [...this.#places.values()].flatMap(({ silent, ready }) => [...silent, ...ready])
    this.#places.clear()
    this.#round.clear()
    this.#waitingCount = 0
    for (const candidate of all) candidate.refuse()
  }

  #run(): void {
    this.#fill()
    while (this.#round.size > 0 && this.#uncharged < MAX_UNCHARGED && this.#budgetMs > 0) {
      this.#uncharged++
      this.#next().admit()
    }
    if (this.#round.size > 0 && this.#budgetMs <= 0) this.#wake()
  }

  /** The oldest candidate of the address whose turn it is; that address goes to the end of the round. */
  #next(): Candidate {
    const [address, place] = this.#round.entries().next().value!
    const candidate: Candidate = place.ready.values().next().value!
    place.ready.delete(candidate)
    this.#waitingCount--
    this.#round.delete(address)
    if (place.ready.size > 0) this.#round.set(address, place)
    this.#tidy(address, place)
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

  /** Refuses one of the address that has most waiting, if that is more than `share` of the newcomer's. */
  #makeRoom(share: number): boolean {
    let greediest: Place | undefined
    for (const place of this.#places.values()) {
      if (greediest === undefined || countOf(place) > countOf(greediest)) greediest = place
    }
    if (greediest === undefined || countOf(greediest) <= share + 1) return false
    // The oldest of the silent has had most time to say something; of those that spoke the newest has lost least.
    const victim = greediest.silent.values().next().value ?? [...greediest.ready].at(-1)!
    this.remove(victim)
    this.#refuse(victim)
    return true
  }

  #refuse(candidate: Candidate): void {
    this.refused++
    candidate.refuse()
  }
}

function countOf(place: Place | undefined): number {
  return place === undefined ? 0 : place.silent.size + place.ready.size
}
