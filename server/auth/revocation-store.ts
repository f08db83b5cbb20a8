/** All revocations of a server: its own, which a file keeps across restarts, those of a URL, and those of all replicas. */
import { messageOf } from '../../protocol/base/errors.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { checkNarrowing, type Members } from '../../protocol/base/members.ts'
import type { Identity } from './claims.ts'
import type { PolledDocument } from './polled-document.ts'
import { RevocationFile } from './revocation-file.ts'
import { formatRule, idOf } from './revocation-list.ts'
import { type UrlRevocationsOptions, urlRevocations } from './revocation-url.ts'
import { checkRevocation, checkTimes, type Revocation, Revocations } from './revocations.ts'

/** Where revocations are read from, besides the directory and `server.revoke`. */
export interface RevocationSources {
  /** Read at the start, watched, and written by `server.revoke`. The file must exist, but may be empty. */
  readonly file?: string | undefined
  /** Fetched every 5 s; https only. */
  readonly url?: string | undefined
  readonly ca?: UrlRevocationsOptions['ca']
}

/** The revocations that all replicas share. */
export interface SharedRevocations {
  onList: (rules: readonly Revocation[]) => void
  /** False while the list cannot be read. */
  readonly readable: boolean
  /** Entries that are not valid rules, as texts. */
  readonly odd: readonly string[]
  open(): Promise<void>
  /** Reads the list over a new connection. Rejects if it could not. */
  reread(): Promise<void>
  add(rule: Revocation): Promise<void>
  /** Removes entries by their text, as written by `formatRule`. A replica that missed this does not bring them back. */
  remove(isRemoved: (text: string) => boolean): Promise<void>
  close(): void
}

/** A rule as operators see it. */
export interface ListedRevocation extends Revocation {
  /** The id to remove it by. Equal rules have the same id on all replicas. */
  readonly id: string
  /**
   * `file`: in this replica's file. `memory`: of this replica, until it stops. `url`: can only be removed at its source. `directory`:
   * of all replicas.
   */
  readonly from: ReadonlyArray<'file' | 'memory' | 'url' | 'directory'>
  /** Text of an entry in the directory that is not a valid rule. Nobody may connect until it is removed. */
  readonly unreadable?: string
}

const MEMBERS: Members<Revocation> = { tokenId: 'string', runtime: 'string', issuedBefore: 'number', until: 'number' }

/** How much is shown of an entry that is not a valid rule. */
const MAX_SHOWN = 200

export class RevocationStore {
  readonly #now: () => number
  readonly #own: Revocations
  readonly #listed: Revocations
  readonly #common: Revocations
  readonly #file: RevocationFile | undefined
  /** Until it has a list, no token can be checked. */
  readonly #url: PolledDocument<readonly Revocation[]> | undefined
  readonly #shared: SharedRevocations | undefined
  /** Called when rules were added or changed, so that live sessions are checked again. */
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
    if (sources.file !== undefined) this.#file = new RevocationFile(sources.file, logger, into(this.#own), now)
    const sharedChanged = into(this.#common)
    if (shared !== undefined) {
      shared.onList = rules => {
        this.#leaveTo(rules)
        sharedChanged(rules)
      }
    }
    if (sources.url !== undefined) {
      this.#url = urlRevocations({ url: sources.url, ca: sources.ca }, logger, into(this.#listed))
    }
  }

  /** The directory has these rules. Copies in memory would apply even after another replica took them back. */
  #leaveTo(shared: readonly Revocation[]): void {
    const own = this.#own.list
    if (this.#file !== undefined || own.length === 0 || shared.length === 0) return
    const texts = new Set(shared.map(formatRule))
    this.#own.replace(own.filter(rule => !texts.has(formatRule(rule))))
  }

  async start(): Promise<void> {
    await Promise.all([this.#file?.start(), this.#url?.start(), this.#shared?.open()])
  }

  /**
   * Reads the rules of all replicas again, before sessions are entered in a directory that was away: others may have revoked their tokens
   * meanwhile, or before this server started.
   */
  async reread(): Promise<void> {
    await this.#shared?.reread()
  }

  /** Whether all revocations are known. */
  get ready(): boolean {
    return (this.#url === undefined || this.#url.current !== undefined) && (this.#shared?.readable ?? true)
  }

  /** All rules in force, without duplicates. */
  get list(): readonly ListedRevocation[] {
    const found = new Map<string, ListedRevocation>()
    const collect = (from: ListedRevocation['from'][number], rules: readonly Revocation[]) => {
      for (const rule of rules) {
        const id = idOf(formatRule(rule))
        found.set(id, { ...rule, id, from: [...new Set([...(found.get(id)?.from ?? []), from])] })
      }
    }
    const lost = new Set(this.#file?.unwritten.map(rule => idOf(formatRule(rule))))
    const isKept = (rule: Revocation) => this.#file !== undefined && !lost.has(idOf(formatRule(rule)))
    collect('file', this.#own.list.filter(isKept))
    collect(
      'memory',
      this.#own.list.filter(rule => !isKept(rule)),
    )
    collect('url', this.#listed.list)
    collect('directory', this.#common.list)
    for (const text of this.#shared?.odd ?? []) {
      found.set(idOf(text), { id: idOf(text), from: ['directory'], unreadable: text.slice(0, MAX_SHOWN) })
    }
    return [...found.values()]
  }

  covers(identity: Identity): boolean {
    return this.#own.covers(identity) || this.#listed.covers(identity) || this.#common.covers(identity)
  }

  /**
   * Adds a rule, which is in force here from this call on. Resolves to true once it is written to the file and the directory, and to
   * false if there is neither. Rejects if one of these could not be written, and says what holds then.
   */
  async add(rule: Revocation): Promise<boolean> {
    checkNarrowing(rule, MEMBERS, 'revoke more')
    checkRevocation(rule)
    checkTimes(rule, this.#now() / 1000)
    this.#own.add(rule)
    this.onChange()
    const results = await Promise.allSettled([this.#file?.add(rule), this.#shared?.add(rule)])
    const [isKept, isShared] = results.map(({ status }) => status === 'fulfilled') as [boolean, boolean]
    // The directory reports no change if it had the rule already.
    this.#leaveTo(this.#common.list)
    const errors = results.flatMap(result => (result.status === 'rejected' ? [result.reason as Error] : []))
    if (errors.length > 0) {
      const where = this.#whereInForce(this.#file !== undefined && isKept, isShared)
      const Kind = errors[0] instanceof RangeError ? RangeError : Error
      throw new Kind(`the rule is in force ${where}: ${errors.map(messageOf).join('; ')}`, { cause: errors[0] })
    }
    return this.#file !== undefined || this.#shared !== undefined
  }

  /** For a rule that could not be written to the file, to the directory, or to both. */
  #whereInForce(isKept: boolean, isShared: boolean): string {
    if (this.#shared === undefined) return 'until this server stops, but could not be kept'
    if (isShared) return 'and in the directory, but could not be written to the file'
    const later = isKept ? 'do not get it' : 'it is lost'
    return `on this server, but the other replicas do not have it yet, and ${later} if this server stops before`
  }

  /**
   * Removes a rule from all places. Resolves to false if there is no such rule. Rejects if a place could not be written, or if the list
   * of the URL has it. The rule stays in force as long as any place has it.
   */
  async remove(id: string): Promise<boolean> {
    const rule = this.list.find(one => one.id === id)
    if (rule === undefined) return false
    const isRemoved = (one: Revocation) => idOf(formatRule(one)) === id
    // First from where it persists. Otherwise a failure would leave a rule that nobody sees, and that is back after a restart.
    await Promise.all([this.#file?.remove(isRemoved), this.#shared?.remove(text => idOf(text) === id)])
    this.#own.replace(this.#own.list.filter(one => !isRemoved(one)))
    if (rule.from.includes('url')) throw new Error('auth.revocations.url lists the rule: remove it there')
    return true
  }

  close(): void {
    this.#file?.close()
    this.#url?.close()
    this.#shared?.close()
  }
}
