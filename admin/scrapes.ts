/** What a scrape costs is paced: whoever may read metrics without a token must not be able to take the process's time with them. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Exposition } from './metrics.ts'

/** Behind each writing, the process has so many times as long for everything else. */
const REST = 9

export class Scrapes {
  /** By kind, of which there are few, those that are still to be written. */
  readonly #waiting = new Map<string, Promise<Exposition>>()
  #turn: Promise<unknown> = Promise.resolve()

  /** What is written after this call, once for all who wait for the same. */
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
