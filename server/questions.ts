/**
 * Asks the directory about runtimes and hosts that somebody calls and this replica does not know. Anybody can make names up, so
 * questions about unknown names are limited; see {@link UnknownHosts}.
 */
import { Tally } from '../protocol/base/tally.ts'
import type { Directory, RuntimeState } from './directory/directory.ts'
import { UnknownHosts } from './unknown-hosts.ts'

/**
 * Most questions at a time, so that they leave the directory room for the registrations of sessions. A network may ask
 * only while it has fewer under way than are left. So one alone takes at most half, and about 13 together take all. Embedders that pass no
 * address count as one network.
 */
const MAX_ASKED = 4096

type Answer = RuntimeState | 'unknown' | undefined

export class Questions {
  readonly #directory: Directory
  readonly #asked = new Map<string, Promise<Answer>>()
  /** How many each network has asked. */
  readonly #askedBy = new Tally()
  readonly #unknownHosts = new UnknownHosts()

  constructor(directory: Directory) {
    this.#directory = directory
  }

  isAsked(name: string): boolean {
    return this.#asked.has(name)
  }

  /**
   * What the directory knows about the name. `refused` if `network` has asked about too many names that nobody serves, or has too
   * many questions under way. An embedder has no network.
   */
  ask(name: string, network: string | undefined): Promise<Answer> | 'refused' {
    const asked = this.#asked.get(name)
    if (asked !== undefined) return asked
    const by = network ?? ''
    const left = MAX_ASKED - this.#asked.size
    if (this.#askedBy.of(by) >= left || !this.#unknownHosts.allow(network)) return 'refused'
    const answer = this.#ask(name, network).finally(() => {
      this.#asked.delete(name)
      this.#askedBy.add(by, -1)
    })
    this.#asked.set(name, answer)
    this.#askedBy.add(by, 1)
    return answer
  }

  async #ask(name: string, network: string | undefined): Promise<Answer> {
    const state = await this.#directory.refresh(name)
    if (state === undefined) this.#unknownHosts.count(network)
    return state
  }
}
