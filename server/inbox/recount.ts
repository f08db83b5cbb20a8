/**
 * Counts again what servers keep together. A server knows at once what it has stored itself, but what others have delivered only once it
 * has counted. So nothing is refused because of a count that is older than about a second.
 */
import type { Logger } from '../../protocol/base/log.ts'

const FRESH_MS = 1000
/** How much longer than the counting the time until the next one is, if that is more: it takes a while if very much is stored. */
const REST = 4

export class Recount {
  readonly #count: () => Promise<unknown>
  readonly #logger: Logger
  #underWay: Promise<void> | undefined
  #nextMs = Number.NEGATIVE_INFINITY

  constructor(logger: Logger, count: () => Promise<unknown>) {
    this.#logger = logger
    this.#count = count
  }

  /** Resolves once it has counted. False if it did so a moment ago. If it fails, the old counts remain. */
  async run(): Promise<boolean> {
    if (this.#underWay === undefined && performance.now() < this.#nextMs) return false
    this.#underWay ??= this.#run()
    await this.#underWay
    return true
  }

  async #run(): Promise<void> {
    const begunMs = performance.now()
    try {
      await this.#count()
    } catch (error) {
      this.#logger.warn({ err: { message: (error as Error).message } }, 'what the inbox keeps could not be counted')
    }
    const endedMs = performance.now()
    this.#nextMs = Math.max(begunMs + FRESH_MS, endedMs + REST * (endedMs - begunMs))
    this.#underWay = undefined
  }
}
