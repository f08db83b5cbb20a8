/** The store in an SQLite file, which a thread of its own owns (`sqlite-worker.ts`). */
import { existsSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { Logger } from '../../protocol/base/log.ts'
import { within } from '../pause.ts'
import { GroupedStore, UnusableError } from './grouped-store.ts'
import type { Answer, Ask, Committed, WorkerSettings } from './sqlite-messages.ts'
import {
  type Change,
  type ChangeResult,
  type Contents,
  type Count,
  type Filter,
  type LaneCount,
  type Message,
  type OpenState,
  type Retention,
  StoreError,
  type SweepResult,
} from './store.ts'

/** How long `close` waits for the thread. */
const CLOSE_MS = 2000
/** The first version whose `node:sqlite` is good enough. */
const MIN_NODE = [24, 15] as const

export interface SqliteOptions {
  readonly path: string
  readonly minFreeBytes: number
  readonly logger: Logger
}

interface Pending {
  resolve(value: unknown): void
  reject(error: unknown): void
}

/** Rejects with a TypeError if the file cannot be used and waiting will not help. If another server has it, it is tried again. */
export async function openSqlite(options: SqliteOptions): Promise<SqliteStore> {
  checkSqlite(options.path)
  const store = new SqliteStore(options)
  await store.start()
  return store
}

/**
 * Throws a TypeError if no store can be opened there. The folder must exist, since we cannot know who should own it. Only a plain file
 * will do: opening a pipe would block forever.
 */
export function checkSqlite(path: string): void {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  const isOld = major < MIN_NODE[0] || (major === MIN_NODE[0] && minor < MIN_NODE[1])
  if (isOld) {
    throw new TypeError(
      `inbox: this is Node ${process.versions.node}, whose SQLite is not good enough to keep webhooks: use Node 24.15 or newer`,
    )
  }
  const folder = dirname(path)
  if (!existsSync(folder) || !statSync(folder).isDirectory())
    throw new TypeError(`inbox: there is no folder ${folder}: create it, accessible only to the server's user`)
  if (existsSync(path) && !statSync(path).isFile()) throw new TypeError(`inbox: ${path} is not a plain file`)
}

export class SqliteStore extends GroupedStore {
  readonly #options: SqliteOptions
  #worker: Worker | undefined
  #number = 0
  readonly #pending = new Map<number, Pending>()

  constructor(options: SqliteOptions) {
    super(options.logger)
    this.#options = options
  }

  protected override get place(): object {
    return { file: this.#options.path }
  }

  protected override async reopen(): Promise<OpenState> {
    const opened = await this.#ask<{ contents: Contents; setAside: string | undefined }>({ ask: 'open' })
    if (opened.setAside !== undefined) {
      const fields = { ...this.place, setAside: opened.setAside }
      this.logger.error(fields, 'the file of the inbox was damaged or deleted, and was set aside')
    }
    return { open: true, ...opened }
  }

  protected override async commit(changes: readonly Change[]): Promise<(ChangeResult | StoreError)[]> {
    const done = await this.#ask<Committed[]>({ ask: 'apply', changes })
    return done.map(one => (one.status === 'full' ? new StoreError('full', one.message) : one))
  }

  async next(runtime: string, lane: string, limit: number): Promise<readonly Message[]> {
    return await this.#read({ ask: 'next', runtime, lane, limit })
  }

  async part(id: string, n: number): Promise<Uint8Array | undefined> {
    return await this.#read({ ask: 'part', id, n })
  }

  async list(filter: Filter): Promise<readonly Message[]> {
    return await this.#read({ ask: 'list', filter })
  }

  async sweep(at: number, keep: Retention): Promise<SweepResult> {
    return await this.#read({ ask: 'sweep', at, keep })
  }

  async counts(): Promise<readonly Count[]> {
    return await this.#read({ ask: 'counts' })
  }

  async lanes(): Promise<readonly LaneCount[]> {
    return await this.#read({ ask: 'lanes' })
  }

  #read<Value>(ask: Ask): Promise<Value> {
    return this.isOpen && !this.isClosed ? this.#ask(ask) : Promise.reject(this.away())
  }

  #ask<Value>(ask: Ask): Promise<Value> {
    return new Promise<Value>((resolve, reject) => {
      const number = ++this.#number
      this.#pending.set(number, { resolve: resolve as (value: unknown) => void, reject })
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
    const answered = this.guard((answer: Answer) => this.#answered(answer))
    const failed = this.guard((error: Error) => this.#threadLost(worker, error))
    const ended = this.guard(() => this.#threadLost(worker, new Error('its thread has ended')))
    worker.on('message', answered)
    worker.on('error', failed)
    worker.on('exit', ended)
    return worker
  }

  #threadLost(worker: Worker, error: Error): void {
    if (this.#worker !== worker) return
    this.#worker = undefined
    for (const { reject } of this.#pending.values()) reject(new StoreError('away', error.message))
    this.#pending.clear()
    this.lost(error)
  }

  #answered({ number, value, failure }: Answer): void {
    const pending = this.#pending.get(number)
    this.#pending.delete(number)
    if (pending === undefined) return
    if (failure === undefined) {
      pending.resolve(value)
      return
    }
    const { kind, message } = failure
    if (kind === 'unusable' && !this.isOpen) pending.reject(new UnusableError(message))
    else pending.reject(new StoreError(kind === 'full' ? 'full' : 'away', message))
    // After a failed transaction we do not know what is on the disk, so the file is reopened before it is used again.
    if (this.isOpen && kind !== 'full') this.lost(new Error(message))
  }

  protected override async end(): Promise<void> {
    const worker = this.#worker
    if (worker === undefined) return
    const closed = this.#ask({ ask: 'close' }).catch(() => {})
    // A thread that is blocked by its disk cannot be terminated. The file stays consistent either way.
    await within(CLOSE_MS, closed)
    this.#worker = undefined
    await within(CLOSE_MS, worker.terminate())
  }
}
