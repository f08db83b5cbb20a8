/** Events of a component's sessions: counted for the metrics, with the latest kept for the status. */

interface Change {
  /** ISO 8601. */
  readonly at: string
  readonly event: string
  readonly runtime?: string | undefined
  readonly session?: string | undefined
  readonly reason?: string | undefined
}

const MAX_RECENT = 10

export class Changes {
  readonly #counts: Record<string, number> = {}
  readonly #recent: Change[] = []
  readonly #now: () => number

  constructor(now: () => number = Date.now) {
    this.#now = now
  }

  /** `event` must come from a fixed set, since it becomes the label of a metric. */
  note(event: string, more: Omit<Change, 'at' | 'event'> = {}): void {
    this.#counts[event] = (this.#counts[event] ?? 0) + 1
    const isSame = (one: Change) => one.event === event && one.runtime === more.runtime && one.reason === more.reason
    const again = more.session === undefined ? this.#recent.findIndex(isSame) : -1
    if (again >= 0) this.#recent.splice(again, 1)
    this.#recent.unshift({ at: new Date(this.#now()).toISOString(), event, ...more })
    if (this.#recent.length <= MAX_RECENT) return
    // Anybody can be refused again and again, for many reasons. That leaves half of the list to sessions.
    const isMostlyLoose = this.#recent.filter(({ session }) => session === undefined).length > MAX_RECENT / 2
    this.#recent.splice(
      this.#recent.findLastIndex(({ session }) => (session === undefined) === isMostlyLoose),
      1,
    )
  }

  /** Since the start, by event. */
  get counts(): Readonly<Record<string, number>> {
    return this.#counts
  }

  /** Newest first. An event without a session that repeats is listed once, with its latest time. */
  get recent(): readonly Change[] {
    return this.#recent
  }
}
