/** All revocations of a server: those of a URL, and its own, which a file keeps over restarts. */
import type { Logger } from '../../protocol/log.ts'
import type { Identity } from './claims.ts'
import { RevocationFile } from './revocation-file.ts'
import { RevocationUrl, type UrlRevocationsOptions } from './revocation-url.ts'
import { checkRevocation, type Revocation, Revocations } from './revocations.ts'

export interface RevocationSources {
  /** Read at the start, watched, and written by `server.revoke`. It must exist; an empty file is an empty list. */
  readonly file?: string | undefined
  /** Asked for every 5 s; https only. */
  readonly url?: string | undefined
  readonly ca?: UrlRevocationsOptions['ca']
}

export class RevocationStore {
  readonly #now: () => number
  readonly #own: Revocations
  readonly #listed: Revocations
  readonly #file: RevocationFile | undefined
  readonly #url: RevocationUrl | undefined
  /** Rules were added or changed: live sessions must be judged again. */
  onChange: () => void = () => {}

  constructor(sources: RevocationSources, logger: Logger, now: () => number) {
    const into = (revocations: Revocations) => (rules: readonly Revocation[]) => {
      revocations.replace(rules)
      this.onChange()
    }
    this.#now = now
    this.#own = new Revocations(now)
    this.#listed = new Revocations(now)
    if (sources.file !== undefined) this.#file = new RevocationFile(sources.file, logger, into(this.#own))
    if (sources.url !== undefined) {
      this.#url = new RevocationUrl({ url: sources.url, ca: sources.ca }, logger, into(this.#listed))
    }
  }

  async start(): Promise<void> {
    await Promise.all([this.#file?.start(), this.#url?.start()])
  }

  /** Whether it is known who is revoked. */
  get ready(): boolean {
    return this.#url?.ready ?? true
  }

  get list(): readonly Revocation[] {
    return [...this.#own.list, ...this.#listed.list]
  }

  covers(identity: Identity): boolean {
    return this.#own.covers(identity) || this.#listed.covers(identity)
  }

  /**
   * Adds a rule, which holds from this call on. Resolves to true once it would survive a restart, to false where there is
   * no file for it; rejects if the file could not be written: then the rule holds until the restart.
   */
  async add(rule: Revocation): Promise<boolean> {
    checkRevocation(rule)
    this.#own.add(rule)
    this.onChange()
    await this.#file?.add([rule], this.#now())
    return this.#file !== undefined
  }

  close(): void {
    this.#file?.close()
    this.#url?.close()
  }
}
