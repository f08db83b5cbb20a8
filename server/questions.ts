/**
 * Names of runtimes and hosts that the directory is asked about, because somebody calls them and nothing is known of them
 * here. Anybody can make names up, so that what is asked in vain is limited; see {@link UnknownHosts}.
 */
import type { Directory, RuntimeState } from './directory/directory.ts'
import { UnknownHosts } from './unknown-hosts.ts'

/** Names that are being asked about at a time: what sessions tell the directory has room beside them. */
const MAX_ASKED = 4096

type Answer = RuntimeState | 'unknown' | undefined

export class Questions {
  readonly #directory: Directory
  readonly #asked = new Map<string, Promise<Answer>>()
  readonly #unknownHosts = new UnknownHosts()

  constructor(directory: Directory) {
    this.#directory = directory
  }

  isAsked(name: string): boolean {
    return this.#asked.has(name)
  }

  /**
   * What the directory knows of the name. `refused`: `network` has asked for too many names that nobody serves, or too many
   * are being asked for. An embedder has no network.
   */
  ask(name: string, network: string | undefined): Promise<Answer> | 'refused' {
    const asked = this.#asked.get(name)
    if (asked !== undefined) return asked
    if (this.#asked.size >= MAX_ASKED || !this.#unknownHosts.allow(network)) return 'refused'
    const answer = this.#ask(name, network)
    this.#asked.set(name, answer)
    return answer
  }

  async #ask(name: string, network: string | undefined): Promise<Answer> {
    try {
      const state = await this.#directory.refresh(name)
      if (state === undefined) this.#unknownHosts.count(network)
      return state
    } finally {
      this.#asked.delete(name)
    }
  }
}
