/**
 * Keeps a link to the store. It reopens the link whenever it breaks, and renews the lease every quarter of its length. The link is
 * one ordered stream, so an answer to a renewal means that we have received every earlier change.
 */
import { starting } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { parseRenewal, type Renewal } from './runtime-state.ts'
import { ClosedByStore, type DirectoryChange, type DirectoryStore, type StoreLink } from './store.ts'

interface ConnectionOptions {
  readonly store: DirectoryStore
  readonly leaseMs: number
  readonly now: () => number
  readonly logger: Logger
  /** Called for each link before it is used. If it rejects, there is another one. */
  readonly prepare: () => Promise<void>
}

/** Acts on what the store reports. */
interface ConnectionOwner {
  notice(text: string): void
  /** What is known comes from an earlier connection, and changes may have been missed. */
  mayHaveMissed(): void
  renewed(renewal: Renewal, sentMs: number): void
  /** Whether the store has yet to be told something that it may have forgotten. */
  isTelling(): boolean
  /** The latest version of any record seen on this link or the one before. */
  latest(): number
  /** Called after each renewal. `mayHaveForgotten`: the store may not know what is live here. It stops once `isCurrent` is false. */
  upkeep(mayHaveForgotten: boolean, isCurrent: () => boolean): Promise<void>
  /** The store closed the link; the next attempt follows at once. */
  closed(atMs: number): void
  /** An attempt at that time found that the store is down for everybody. */
  absent(atMs: number): void
  /** The link was lost or could not be opened, for another reason. */
  unreachable(): void
  /** Called after any of these. */
  updateState(): void
}

const RETRY_MS = 1000
/** How long an answer of the store may take. */
const MIN_DEADLINE_MS = 250
const MAX_DEADLINE_MS = 2000

export class StoreConnection {
  readonly #options: ConnectionOptions
  readonly #owner: ConnectionOwner
  readonly #deadlineMs: number
  #link: StoreLink | undefined
  /** When the attempt began that opened the link. */
  #openedMs = 0
  /** The store has renewed the lease on this link. A link alone does not count, since the store may refuse writes. */
  #isOpen = false
  #timer: NodeJS.Timeout | undefined
  /** Aborted when it closes. */
  readonly #opening = new AbortController()
  closed = false
  operations = 0
  failures = 0
  /** Why there is no link. */
  failure: Error | undefined
  roundTripMs = 0

  constructor(options: ConnectionOptions, owner: ConnectionOwner) {
    this.#options = options
    this.#owner = owner
    this.#deadlineMs = Math.min(MAX_DEADLINE_MS, Math.max(MIN_DEADLINE_MS, options.leaseMs / 4))
  }

  get isOpen(): boolean {
    return this.#isOpen
  }

  /** Resolves after the first attempt, whether or not it succeeded. */
  async open(): Promise<void> {
    if (this.closed) return
    const { store, now, logger } = this.#options
    const startedMs = now()
    try {
      const link = await this.#openLink()
      if (this.closed) {
        link.close()
        return
      }
      this.#link = link
      this.#openedMs = startedMs
      await this.#tick(link)
    } catch (error) {
      this.failures++
      this.failure = error as Error
      if (store.isAbsent(error)) this.#owner.absent(startedMs)
      else this.#owner.unreachable()
      logger.debug({ err: error }, 'the directory is not reachable')
      this.#again()
    }
    this.#owner.updateState()
  }

  async #openLink(): Promise<StoreLink> {
    let link: StoreLink | undefined
    const listener = {
      notice: (text: string) => this.#owner.notice(text),
      closed: (error: Error) => {
        if (link !== undefined) this.#lost(link, error)
      },
    }
    link = await this.#options.store.open(listener, this.#deadlineMs, this.#opening.signal)
    return link
  }

  #lost(link: StoreLink, error: Error): void {
    if (this.#link !== link || this.closed) return
    this.failures++
    this.failure = error
    this.#link = undefined
    const wasOpen = this.#isOpen
    this.#isOpen = false
    if (wasOpen) this.#options.logger.warn({ err: error }, 'the directory was lost')
    const nowMs = this.#options.now()
    // A store that closes each link at once must not be dialled in a tight loop.
    if (wasOpen && error instanceof ClosedByStore && nowMs - this.#openedMs >= this.#options.leaseMs / 4) {
      this.#owner.closed(nowMs)
      this.#in(0, () => this.open())
    } else {
      this.#owner.unreachable()
      this.#again()
    }
    this.#owner.updateState()
  }

  #again(): void {
    this.#in(RETRY_MS * (0.1 + 0.4 * Math.random()), () => this.open())
  }

  /** One step is due at a time, and each schedules the next. */
  #in(ms: number, step: () => Promise<void>): void {
    clearTimeout(this.#timer)
    const due = starting(this.#options.logger, 'a scheduled step of the directory failed', step)
    this.#timer = setTimeout(due, ms).unref()
  }

  /**
   * Renews the lease, followed by the upkeep. It repeats after a quarter of the lease, as long as the link lasts. Any failure, such as
   * an answer that cannot be parsed, ends the link, and another one is opened. So there is always a timer.
   */
  async #tick(link: StoreLink, round = 0): Promise<void> {
    try {
      if (round === 0) await this.#options.prepare()
      if (link !== this.#link || this.closed) return
      const { lapsed } = await this.#renew(link)
      if (link !== this.#link || this.closed) return
      this.#in(this.#options.leaseMs / 4, () => this.#tick(link, round + 1))
      if (lapsed && round > 0) this.#owner.mayHaveMissed()
      await this.#owner.upkeep(lapsed || round === 0, () => link === this.#link)
    } catch (error) {
      this.#lost(link, error as Error)
      link.close()
    }
  }

  async #renew(link: StoreLink): Promise<Renewal> {
    const { leaseMs, now } = this.#options
    clearTimeout(this.#timer)
    const sentMs = now()
    const latest = this.#isOpen ? 0 : this.#owner.latest()
    const renewal = parseRenewal(await this.#timed(() => link.renew(leaseMs, this.#owner.isTelling(), latest)))
    if (link !== this.#link) return renewal
    if (!this.#isOpen) {
      this.#isOpen = true
      this.failure = undefined
      this.#owner.mayHaveMissed()
    }
    this.#owner.renewed(renewal, sentMs)
    return renewal
  }

  /** Rejects if there is no link, or if it has been replaced by the time that the answer comes. */
  async change(change: DirectoryChange): Promise<string | null> {
    const link = this.#link
    if (link === undefined || !this.#isOpen) throw new Error('the directory is not reachable')
    const answer = await this.#timed(() => link.change(change))
    if (link !== this.#link) throw new Error('the directory was lost meanwhile')
    return answer
  }

  async #timed<Answer>(operation: () => Promise<Answer>): Promise<Answer> {
    const { now } = this.#options
    this.operations++
    const sentMs = now()
    const answer = await operation()
    this.roundTripMs = now() - sentMs
    return answer
  }

  async close(): Promise<void> {
    if (this.closed) return
    clearTimeout(this.#timer)
    try {
      await this.#link?.renew(0, false, 0)
    } catch {
      // The lease ends by itself.
    }
    this.closed = true
    this.#opening.abort(new Error('closed'))
    clearTimeout(this.#timer)
    this.#link?.close()
  }
}
