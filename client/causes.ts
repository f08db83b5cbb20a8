/** Limits how often the same problem is logged: once when it begins, then once a minute, not per connection and attempt. */

const AGAIN_MS = 60_000
/** Most causes to remember. The server writes the text of some, so they must be bounded. */
const MAX_CAUSES = 32

export class Causes {
  readonly #loggedMs = new Map<string, number>()

  /** Whether to log this cause now. Causes `of` the same thing that differ only in times or ids count as the same. */
  isNews(cause: string, nowMs: number, of = ''): boolean {
    // A duration may have one unit or two: 59 s, 1 min 15 s.
    const alike = cause.replaceAll(/\b(?=\w*\d)[\w-]+/g, '#').replaceAll(/(?:# (?:ms|s|min|h|d)\b ?)+/g, '# ')
    const key = `${of} ${alike}`
    if (nowMs - (this.#loggedMs.get(key) ?? Number.NEGATIVE_INFINITY) < AGAIN_MS) return false
    this.#loggedMs.delete(key)
    this.#loggedMs.set(key, nowMs)
    if (this.#loggedMs.size > MAX_CAUSES) this.#loggedMs.delete(this.#loggedMs.keys().next().value!)
    return true
  }

  /** Call this once things work again, so that the next failure is logged at once. */
  clear(): void {
    this.#loggedMs.clear()
  }
}
