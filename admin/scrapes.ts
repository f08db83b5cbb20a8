/** Paces scrapes, so that readers of metrics, who need no token, cannot use up the process's time. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Exposition } from './metrics.ts'

/** After each scrape, no other begins for this many times as long as it took. */
const REST = 9

export class Scrapes {
  /** Scrapes that have not begun yet, by kind. */
  readonly #waiting = new Map<string, Promise<Exposition>>()
  #turn: Promise<unknown> = Promise.resolve()

  /** Resolves to a scrape that begins after this call. Callers that wait for the same kind share it. */
  of(kind: string, write: () => Promise<Exposition>): Promise<Exposition> {
    const waiting = this.#waiting.get(kind)
    if (waiting !== undefined) return waiting
    let begun = 0
    const next = this.#turn.then(() => {
      this.#waiting.delete(kind)
      begun = performance.now()
      return write()
    })
    const rest = () => pause(REST * (performance.now() - begun), undefined, { ref: false })
    this.#waiting.set(kind, next)
    this.#turn = next.then(rest, rest)
    return next
  }
}
