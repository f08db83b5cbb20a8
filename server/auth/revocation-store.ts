/** All revocations of a server: its own, which a file keeps over restarts, those of a URL, and those of all replicas. */
import type { Logger } from '../../protocol/log.ts'
import type { Identity } from './claims.ts'
import { RevocationFile } from './revocation-file.ts'
import { formatRule } from './revocation-list.ts'
import { RevocationUrl, type UrlRevocationsOptions } from './revocation-url.ts'
import { checkRevocation, type Revocation, Revocations } from './revocations.ts'

export interface RevocationSources {
  /** Read at the start, watched, and written by `server.revoke`. It must exist; an empty file is an empty list. */
  readonly file?: string | undefined
  /** Asked for every 5 s; https only. */
  readonly url?: string | undefined
  readonly ca?: UrlRevocationsOptions['ca']
}

/** Where all replicas keep theirs. */
export interface SharedRevocations {
  onList: (rules: readonly Revocation[]) => void
  open(): Promise<void>
  add(rule: Revocation): Promise<void>
  close(): void
}

export class RevocationStore {
  readonly #now: () => number
  readonly #own: Revocations
  readonly #listed: Revocations
  readonly #common: Revocations
  readonly #file: RevocationFile | undefined
  readonly #url: RevocationUrl | undefined
  readonly #shared: SharedRevocations | undefined
  /** Rules were added or changed: live sessions must be judged again. */
  onChange: () => void = () => {}

  constructor(sources: RevocationSources, shared: SharedRevocations | undefined, logger: Logger, now: () => number) {
    const into = (revocations: Revocations) => (rules: readonly Revocation[]) => {
      revocations.replace(rules)
      this.onChange()
    }
    this.#now = now
    this.#own = new Revocations(now)
    this.#listed = new Revocations(now)
    this.#common = new Revocations(now)
    this.#shared = shared
    if (shared !== undefined) shared.onList = into(this.#common)
    if (sources.file !== undefined) this.#file = new RevocationFile(sources.file, logger, into(this.#own))
    if (sources.url !== undefined) {
      this.#url = new RevocationUrl({ url: sources.url, ca: sources.ca }, logger, into(this.#listed))
    }
  }

  async start(): Promise<void> {
    await Promise.all([this.#file?.start(), this.#url?.start(), this.#shared?.open()])
  }

  /** Whether it is known who is revoked. */
  get ready(): boolean {
    return this.#url?.ready ?? true
  }

  get list(): readonly Revocation[] {
    const all = [...this.#own.list, ...this.#listed.list, ...this.#common.list]
    return [...new Map(all.map(rule => [formatRule(rule), rule])).values()]
  }

  covers(identity: Identity): boolean {
    return this.#own.covers(identity) || this.#listed.covers(identity) || this.#common.covers(identity)
  }

  /**
   * Adds a rule, which holds here from this call on. Resolves to true once all replicas were told and it would survive a
   * restart, to false where there is neither a file for it nor a directory; rejects if one of these could not be written:
   * then the rule holds until the restart.
   */
  async add(rule: Revocation): Promise<boolean> {
    checkRevocation(rule)
    this.#own.add(rule)
    this.onChange()
    await Promise.all([this.#file?.add([rule], this.#now()), this.#shared?.add(rule)])
    return this.#file !== undefined || this.#shared !== undefined
  }

  close(): void {
    this.#file?.close()
    this.#url?.close()
    this.#shared?.close()
  }
}
