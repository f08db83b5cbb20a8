/**
 * What all stores have in common. A commit's fsync is what a webhook waits for, so changes that arrive within two milliseconds,
 * or during another commit, are committed in one transaction. A store that failed is reopened before it is used again.
 */
import { type Guard, logGuard } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { within } from '../pause.ts'
import {
  type Change,
  type ChangeResult,
  type Count,
  type Filter,
  type InboxStore,
  type LaneCount,
  type Message,
  type OpenState,
  type Retention,
  type SharedStore,
  StoreError,
  type StoreState,
  type StoreStats,
  type SweepResult,
} from './store.ts'

/** Changes that arrive within this time are committed together. */
const GROUP_MS = 2
/** A group of this size is committed without waiting for more. */
const GROUP_BYTES = 1024 * 1024
/** A store whose commit takes longer counts as failed. PostgreSQL queries time out sooner. */
const COMMIT_MS = 10_000
/** How long to wait before reopening a store that failed. */
const REOPEN_MS = 1000
/** `commitMaxSeconds` covers the last one or two windows of this length. */
const WINDOW_MS = 60_000

interface Grouped {
  readonly change: Change
  resolve(applied: ChangeResult): void
  reject(error: unknown): void
}

/** The store cannot be used as it is, and waiting will not help. */
export class UnusableError extends Error {}

export abstract class GroupedStore implements InboxStore {
  protected readonly logger: Logger
  protected readonly guard: Guard
  /** How long the start waits for the store to open. After that, it goes on opening in the background. */
  protected readonly startMs: number = 10_000
  protected isOpen = false
  protected isClosed = false
  readonly shared: SharedStore | undefined = undefined
  /** Changes of the next commit. */
  #group: Grouped[] = []
  #groupBytes = 0
  #groupTimer: NodeJS.Timeout | undefined
  #committing = false
  #reopenTimer: NodeJS.Timeout | undefined
  #starting = false
  #wasOpen = false
  #state: StoreState = { open: false, problem: 'not open yet' }
  #onState: ((state: StoreState) => void) | undefined
  #setAside: string | undefined
  #commits = 0
  #commitMs = 0
  /** Longest commit of the window, and of the one before. */
  #longest: [number, number] = [0, 0]
  #window = 0

  constructor(logger: Logger) {
    this.logger = logger
    this.guard = logGuard(logger, 'the store of the inbox failed')
  }

  /** Opens the store, or reopens it. Rejects with an {@link UnusableError} if waiting will not help. */
  protected abstract reopen(): Promise<OpenState>
  /** Resolves to the result of each change. Rejects with a {@link StoreError} if none was made. */
  protected abstract commit(changes: readonly Change[]): Promise<readonly (ChangeResult | StoreError)[]>
  /** Closes the store's resources. */
  protected abstract end(): Promise<void>
  /** Log fields that name the store. */
  protected abstract readonly place: object

  abstract next(runtime: string, lane: string, limit: number): Promise<readonly Message[] | undefined>
  abstract part(id: string, n: number): Promise<Uint8Array | undefined>
  abstract list(filter: Filter): Promise<readonly Message[]>
  abstract sweep(at: number, keep: Retention): Promise<SweepResult>
  abstract counts(): Promise<readonly Count[]>
  abstract lanes(): Promise<readonly LaneCount[]>

  get onState(): ((state: StoreState) => void) | undefined {
    return this.#onState
  }

  /** A new listener is called with the current state at once. */
  set onState(listener: ((state: StoreState) => void) | undefined) {
    this.#onState = listener
    this.tell(this.#state)
  }

  /** Rejects with a TypeError if the store cannot be used. */
  async start(): Promise<void> {
    this.#starting = true
    try {
      await within(this.startMs, this.#openFirst())
    } catch (error) {
      await this.close()
      throw new TypeError(`inbox: ${(error as Error).message}`, { cause: error })
    }
    this.#starting = false
    if (!this.isOpen && this.#reopenTimer === undefined) {
      this.logger.warn(this.place, 'the store of the inbox takes long to open: until it is open, nothing is stored')
    }
  }

  async #openFirst(): Promise<void> {
    try {
      await this.#openNow()
    } catch (error) {
      if (this.#starting && error instanceof UnusableError) throw error
      this.lost(error as Error)
    }
  }

  async #openNow(): Promise<void> {
    const state = await this.reopen()
    if (this.isClosed) return
    this.isOpen = true
    this.#wasOpen = true
    this.#setAside = state.setAside ?? this.#setAside
    const messages = state.contents.counts.reduce((sum, count) => sum + count.messages, 0)
    this.logger.info({ ...this.place, messages }, 'the store of the inbox is open')
    this.tell(state)
  }

  protected tell(state: StoreState): void {
    this.#state = state
    this.#onState?.(state)
  }

  /** The store failed: reopens it. Until then everything asked of it fails. */
  protected lost(error: Error): void {
    if (this.isClosed) return
    if (this.isOpen || !this.#wasOpen) {
      this.logger.error({ ...this.place, err: { message: error.message } }, 'the store of the inbox is away')
    }
    this.#wasOpen = true
    this.isOpen = false
    this.#failGroup(new StoreError('away', error.message))
    this.tell({ open: false, problem: error.message })
    if (this.#reopenTimer !== undefined) return
    const again = this.guard(() => {
      this.#reopenTimer = undefined
      if (!this.isClosed) this.#openNow().catch(this.guard((failed: unknown) => this.lost(failed as Error)))
    })
    this.#reopenTimer = setTimeout(again, REOPEN_MS).unref()
  }

  #failGroup(error: StoreError): void {
    for (const { reject } of this.#group.splice(0)) reject(error)
    this.#groupBytes = 0
  }

  apply(change: Change): Promise<ChangeResult> {
    if (!this.isOpen || this.isClosed) return Promise.reject(this.away())
    return new Promise((resolve, reject) => {
      this.#group.push({ change, resolve, reject })
      this.#groupBytes += bytesOf(change)
      if (this.#committing) return
      if (this.#groupBytes >= GROUP_BYTES) this.#commit()
      else
        this.#groupTimer ??= setTimeout(
          this.guard(() => this.#commit()),
          GROUP_MS,
        )
    })
  }

  protected away(): StoreError {
    return new StoreError('away', this.#state.open ? 'the store is closed' : this.#state.problem)
  }

  #commit(): void {
    clearTimeout(this.#groupTimer)
    this.#groupTimer = undefined
    const group = this.#group.splice(0)
    this.#groupBytes = 0
    if (group.length === 0) return
    this.#committing = true
    const startedMs = performance.now()
    const over = this.guard(() => {
      clearTimeout(slow)
      this.#committing = false
      if (this.isOpen) this.#commit()
    })
    const committed = this.guard((results: readonly (ChangeResult | StoreError)[]) => {
      this.#measure(performance.now() - startedMs)
      for (const [i, { resolve, reject }] of group.entries()) {
        const result = results[i]!
        if (result instanceof StoreError) reject(result)
        else resolve(result)
      }
    })
    const refused = this.guard((error: unknown) => {
      for (const { reject } of group) reject(error)
    })
    const tooSlow = this.guard(() => {
      const error = new StoreError('away', `no commit within ${COMMIT_MS / 1000} s`)
      refused(error)
      this.lost(error)
    })
    const slow = setTimeout(tooSlow, COMMIT_MS)
    this.commit(group.map(({ change }) => change))
      .then(committed, refused)
      .then(over, over)
  }

  #measure(ms: number): void {
    this.#commits++
    this.#commitMs += ms
    const [longest, before] = this.#longestNow()
    this.#longest = [Math.max(longest, ms), before]
  }

  #longestNow(): [number, number] {
    const window = Math.floor(performance.now() / WINDOW_MS)
    if (window !== this.#window) this.#longest = [0, window === this.#window + 1 ? this.#longest[0] : 0]
    this.#window = window
    return this.#longest
  }

  stats(): StoreStats {
    return {
      open: this.isOpen,
      problem: this.#state.open ? undefined : this.#state.problem,
      setAside: this.#setAside,
      commits: this.#commits,
      commitSeconds: this.#commitMs / 1000,
      commitMaxSeconds: Math.max(...this.#longestNow()) / 1000,
    }
  }

  async close(): Promise<void> {
    if (this.isClosed) return
    if (this.isOpen) this.#commit()
    this.isClosed = true
    clearTimeout(this.#reopenTimer)
    await this.end()
    this.isOpen = false
    this.#failGroup(this.away())
  }
}

function bytesOf(change: Change): number {
  if (change.op === 'append') return change.head.length + change.rest.length
  return change.op === 'part' ? change.bytes.length : 0
}
