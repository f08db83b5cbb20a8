/** Paces scrapes, so that whoever may read metrics without a token cannot use up the process's time. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Exposition } from './metrics.ts'

/** After each scrape, the process has this many times as long for everything else. */
const REST = 9

export class Scrapes {
  /** Scrapes that are still to be written, by kind. */
  readonly #waiting = new Map<string, Promise<Exposition>>()
  #turn: Promise<unknown> = Promise.resolve()

  /** Resolves to what is written after this call. All who wait for the same kind share it. */
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
