/**
 * The store in one file of SQLite. What comes within two milliseconds, or while the disk is busy, is one transaction: its
 * fsync is what a webhook waits for. The file is in a thread of its own (`sqlite-worker.ts`).
 */
import { existsSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { Worker } from 'node:worker_threads'
import { logGuard } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import type { Answer, Ask, WorkerSettings } from './sqlite-messages.ts'
import {
  type Applied,
  type Change,
  type Contents,
  type Filter,
  type InboxStore,
  type Keep,
  type Message,
  StoreError,
  type StoreState,
  type StoreStats,
  type Swept,
} from './store.ts'

/** What comes within it is committed together. */
const GROUP_MS = 2
/** So much is committed without waiting for more. */
const GROUP_BYTES = 1024 * 1024
/** A file that could not be used is tried again so often. */
const REOPEN_MS = 1000
/** `node:sqlite` is fit for this from here on. */
const LEAST_NODE = [24, 15] as const
/** Between two looks at the longest commit. */
const WINDOW_MS = 60_000

export interface SqliteOptions {
  readonly path: string
  readonly minFreeBytes: number
  readonly logger: Logger
}

interface Waiting<Value> {
  /** It is a commit, whose time counts. */
  readonly commits?: boolean
  resolve(value: Value): void
  reject(error: unknown): void
}

type Grouped = Waiting<Applied> & { readonly change: Change }

/** Rejects with a TypeError where it cannot be used and no time mends that. One that another server has is tried again. */
export async function openSqlite(options: SqliteOptions, now: () => number): Promise<SqliteStore> {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  const isOld = major < LEAST_NODE[0] || (major === LEAST_NODE[0] && minor < LEAST_NODE[1])
  if (isOld) {
    throw new TypeError(
      `inbox: this is Node ${process.versions.node}, and its SQLite is not fit to keep webhooks: use Node 24.15 or newer`,
    )
  }
  const folder = dirname(options.path)
  if (!existsSync(folder) || !statSync(folder).isDirectory()) {
    throw new TypeError(`inbox: there is no folder ${folder}: make it, for the user of the server alone`)
  }
  const store = new SqliteStore(options, now)
  await store.start()
  return store
}

export class SqliteStore implements InboxStore {
  readonly #options: SqliteOptions
  readonly #now: () => number
  readonly #guard
  #worker: Worker | undefined
  #number = 0
  readonly #asked = new Map<number, Waiting<unknown>>()
  /** What the next commit takes. */
  #group: Grouped[] = []
  #groupBytes = 0
  #groupTimer: NodeJS.Timeout | undefined
  #committing = false
  #reopenTimer: NodeJS.Timeout | undefined
  #open = false
  #closed = false
  #state: StoreState = { open: false, problem: 'it is not open yet' }
  #onState: ((state: StoreState) => void) | undefined
  #setAside: string | undefined
  #commits = 0
  #commitMs = 0
  /** The longest of this window and of the one before. */
  #longest = [0, 0]
  #windowAt = 0

  constructor(options: SqliteOptions, now: () => number) {
    this.#options = options
    this.#now = now
    this.#guard = logGuard(options.logger, 'the store of the inbox failed')
  }

  get onState(): ((state: StoreState) => void) | undefined {
    return this.#onState
  }

  /** What is so already is told at once. */
  set onState(listener: ((state: StoreState) => void) | undefined) {
    this.#onState = listener
    listener?.(this.#state)
  }

  /** @internal Rejects with a TypeError for a file that cannot be used. */
  async start(): Promise<void> {
    try {
      await this.#reopen()
    } catch (error) {
      if (error instanceof UnusableError) {
        await this.close()
        throw new TypeError(`inbox: ${error.message}`, { cause: error })
      }
      this.#lost(error as Error)
    }
  }

  async #reopen(): Promise<void> {
    const opened = await this.#ask<{ contents: Contents; setAside: string | undefined }>({ ask: 'open' })
    this.#open = true
    this.#setAside = opened.setAside ?? this.#setAside
    const { logger, path } = this.#options
    if (opened.setAside !== undefined) {
      logger.error({ file: path, setAside: opened.setAside }, 'the file of the inbox is damaged, and was set aside')
    }
    const messages = opened.contents.counts.reduce((sum, count) => sum + count.messages, 0)
    logger.info({ file: path, messages }, 'the store of the inbox is open')
    this.#tell({ open: true, contents: opened.contents, setAside: opened.setAside })
  }

  #tell(state: StoreState): void {
    this.#state = state
    this.#onState?.(state)
  }

  /** What was asked fails, and so does what comes, until the file opens again. */
  #lost(error: Error): void {
    if (this.#closed) return
    if (this.#open || this.#commits === 0) {
      this.#options.logger.error({ err: { message: error.message } }, 'the store of the inbox is away')
    }
    this.#open = false
    this.#failGroup(new StoreError('away', error.message))
    this.#tell({ open: false, problem: error.message })
    if (this.#reopenTimer !== undefined) return
    const again = this.#guard(() => {
      this.#reopenTimer = undefined
      if (!this.#closed) this.#reopen().catch(this.#guard((failed: unknown) => this.#lost(failed as Error)))
    })
    this.#reopenTimer = setTimeout(again, REOPEN_MS).unref()
  }

  #failGroup(error: StoreError): void {
    for (const { reject } of this.#group.splice(0)) reject(error)
    this.#groupBytes = 0
  }

  // Changes.

  apply(change: Change): Promise<Applied> {
    if (!this.#open) return Promise.reject(this.#away())
    return new Promise((resolve, reject) => {
      this.#group.push({ change, resolve, reject })
      this.#groupBytes += bytesOf(change)
      if (this.#committing) return
      if (this.#groupBytes >= GROUP_BYTES) this.#commit()
      else
        this.#groupTimer ??= setTimeout(
          this.#guard(() => this.#commit()),
          GROUP_MS,
        )
    })
  }

  #away(): StoreError {
    return new StoreError('away', this.#state.open ? 'it is closed' : this.#state.problem)
  }

  #commit(): void {
    clearTimeout(this.#groupTimer)
    this.#groupTimer = undefined
    const group = this.#group.splice(0)
    this.#groupBytes = 0
    if (group.length === 0) return
    this.#committing = true
    const over = this.#guard(() => {
      this.#committing = false
      if (this.#open) this.#commit()
    })
    const committed = this.#guard((applied: Applied[]) => {
      for (const [i, { resolve }] of group.entries()) resolve(applied[i]!)
    })
    const refused = this.#guard((error: unknown) => {
      for (const { reject } of group) reject(error)
    })
    this.#ask<Applied[]>({ ask: 'apply', changes: group.map(({ change }) => change) })
      .then(committed, refused)
      .then(over, over)
  }

  // Questions.

  async next(runtime: string, lane: string, limit: number): Promise<readonly Message[]> {
    return await this.#read({ ask: 'next', runtime, lane, limit })
  }

  async part(id: string, n: number): Promise<Uint8Array | undefined> {
    return await this.#read({ ask: 'part', id, n })
  }

  async list(filter: Filter): Promise<readonly Message[]> {
    return await this.#read({ ask: 'list', filter })
  }

  async sweep(at: number, keep: Keep): Promise<Swept> {
    return await this.#read({ ask: 'sweep', at, keep })
  }

  #read<Value>(ask: Ask): Promise<Value> {
    return this.#open ? this.#ask(ask) : Promise.reject(this.#away())
  }

  #ask<Value>(ask: Ask): Promise<Value> {
    return new Promise<Value>((resolve, reject) => {
      const number = ++this.#number
      const commits = ask.ask === 'apply'
      this.#asked.set(number, { commits, resolve: resolve as (value: unknown) => void, reject })
      this.#thread().postMessage({ ...ask, number })
    })
  }

  #thread(): Worker {
    if (this.#worker !== undefined) return this.#worker
    const { path, minFreeBytes } = this.#options
    const file = import.meta.url.endsWith('.ts') ? './sqlite-worker.ts' : './sqlite-worker.js'
    const workerData: WorkerSettings = { path, minFreeBytes }
    const worker = new Worker(new URL(file, import.meta.url), { workerData, name: 'sallyport-inbox' })
    this.#worker = worker
    const answered = this.#guard((answer: Answer) => this.#answered(answer))
    const failed = this.#guard((error: Error) => this.#threadLost(worker, error))
    const ended = this.#guard(() => this.#threadLost(worker, new Error('its thread has ended')))
    worker.on('message', answered)
    worker.on('error', failed)
    worker.on('exit', ended)
    return worker
  }

  #threadLost(worker: Worker, error: Error): void {
    if (this.#worker !== worker) return
    this.#worker = undefined
    for (const { reject } of this.#asked.values()) reject(new StoreError('away', error.message))
    this.#asked.clear()
    this.#lost(error)
  }

  #answered({ number, value, failure, ms }: Answer): void {
    const asked = this.#asked.get(number)
    this.#asked.delete(number)
    if (asked === undefined) return
    if (failure === undefined) {
      if (asked.commits === true) this.#measure(ms)
      asked.resolve(value)
      return
    }
    const { kind, message } = failure
    if (kind === 'unusable' && !this.#open) asked.reject(new UnusableError(message))
    else asked.reject(new StoreError(kind === 'full' ? 'full' : 'away', message))
    // A transaction that failed tells nothing of what the disk has: the file is read afresh before it is believed again.
    if (this.#open && kind !== 'full') this.#lost(new Error(message))
  }

  #measure(ms: number): void {
    this.#commits++
    this.#commitMs += ms
    const now = this.#now()
    if (now - this.#windowAt > WINDOW_MS) {
      this.#windowAt = now
      this.#longest = [0, this.#longest[0]!]
    }
    this.#longest[0] = Math.max(this.#longest[0]!, ms)
  }

  stats(): StoreStats {
    return {
      open: this.#open,
      problem: this.#state.open ? undefined : this.#state.problem,
      setAside: this.#setAside,
      commits: this.#commits,
      commitSeconds: this.#commitMs / 1000,
      commitMaxSeconds: Math.max(...this.#longest) / 1000,
    }
  }

  async close(): Promise<void> {
    if (this.#closed) return
    if (this.#open) this.#commit()
    this.#closed = true
    clearTimeout(this.#reopenTimer)
    const worker = this.#worker
    if (worker === undefined) return
    await this.#ask({ ask: 'close' }).catch(() => {})
    this.#open = false
    this.#failGroup(this.#away())
    this.#worker = undefined
    await worker.terminate()
  }
}

class UnusableError extends Error {}

function bytesOf(change: Change): number {
  if (change.op === 'append') return change.head.length + change.rest.length
  return change.op === 'part' ? change.bytes.length : 0
}
