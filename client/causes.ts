/** What is wrong is said when it begins, and once a minute while it lasts: not by each connection at each attempt. */

const AGAIN_MS = 60_000
/** Causes that are told apart. A server words some of them. */
const MOST = 32

export class Causes {
  readonly #saidMs = new Map<string, number>()

  /** Whether to say it now. Times and ids in it make no other cause of it. */
  isNews(cause: string, nowMs: number): boolean {
    const key = cause.replaceAll(/\b(?=\w*\d)[\w-]+/g, '#')
    if (nowMs - (this.#saidMs.get(key) ?? Number.NEGATIVE_INFINITY) < AGAIN_MS) return false
    this.#saidMs.delete(key)
    this.#saidMs.set(key, nowMs)
    if (this.#saidMs.size > MOST) this.#saidMs.delete(this.#saidMs.keys().next().value!)
    return true
  }

  /** It works again, so the next failure is news. */
  clear(): void {
    this.#saidMs.clear()
  }
}
