/** The store in one file of SQLite, which a thread of its own has (`sqlite-worker.ts`). */
import { existsSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { Logger } from '../../protocol/base/log.ts'
import { within } from '../pause.ts'
import { GroupedStore, UnusableError } from './grouped-store.ts'
import type { Answer, Ask, Committed, WorkerSettings } from './sqlite-messages.ts'
import {
  type Applied,
  type Change,
  type Contents,
  type Counts,
  type Filter,
  type Keep,
  type Message,
  StoreError,
  type StoreState,
  type Swept,
} from './store.ts'

/** How long closing waits for the thread. */
const CLOSE_MS = 2000
/** `node:sqlite` is fit for this from here on. */
const LEAST_NODE = [24, 15] as const

export interface SqliteOptions {
  readonly path: string
  readonly minFreeBytes: number
  readonly logger: Logger
}

interface Waiting {
  resolve(value: unknown): void
  reject(error: unknown): void
}

/** Rejects with a TypeError if it cannot be used and waiting does not help. If another server has it, it is tried again. */
export async function openSqlite(options: SqliteOptions, now: () => number): Promise<SqliteStore> {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  const isOld = major < LEAST_NODE[0] || (major === LEAST_NODE[0] && minor < LEAST_NODE[1])
  if (isOld) {
    throw new TypeError(
      `inbox: this is Node ${process.versions.node}, and its SQLite is not fit to keep webhooks: use Node 24.15 or newer`,
    )
  }
  checkPath(options.path)
  const store = new SqliteStore(options, now)
  await store.start()
  return store
}

/** The folder of the file must be there: nobody knows whose it should be. To open a pipe would take for ever. */
export function checkPath(path: string): void {
  const folder = dirname(path)
  if (!existsSync(folder) || !statSync(folder).isDirectory())
    throw new TypeError(`inbox: there is no folder ${folder}: make it, for the user of the server alone`)
  if (existsSync(path) && !statSync(path).isFile()) throw new TypeError(`inbox: ${path} is no plain file`)
}

export class SqliteStore extends GroupedStore {
  readonly #options: SqliteOptions
  #worker: Worker | undefined
  #number = 0
  readonly #asked = new Map<number, Waiting>()

  constructor(options: SqliteOptions, now: () => number) {
    super(options.logger, now)
    this.#options = options
  }

  protected override get place(): object {
    return { file: this.#options.path }
  }

  protected override async reopen(): Promise<Extract<StoreState, { open: true }>> {
    const opened = await this.#ask<{ contents: Contents; setAside: string | undefined }>({ ask: 'open' })
    if (opened.setAside !== undefined) {
      const fields = { ...this.place, setAside: opened.setAside }
      this.logger.error(fields, 'the file of the inbox was damaged or deleted: what is left of it was set aside')
    }
    return { open: true, ...opened }
  }

  protected override async commit(changes: readonly Change[]): Promise<(Applied | StoreError)[]> {
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

  async sweep(at: number, keep: Keep): Promise<Swept> {
    return await this.#read({ ask: 'sweep', at, keep })
  }

  async counts(): Promise<Counts> {
    return await this.#read({ ask: 'counts' })
  }

  #read<Value>(ask: Ask): Promise<Value> {
    return this.isOpen && !this.isClosed ? this.#ask(ask) : Promise.reject(this.away())
  }

  #ask<Value>(ask: Ask): Promise<Value> {
    return new Promise<Value>((resolve, reject) => {
      const number = ++this.#number
      this.#asked.set(number, { resolve: resolve as (value: unknown) => void, reject })
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
    for (const { reject } of this.#asked.values()) reject(new StoreError('away', error.message))
    this.#asked.clear()
    this.lost(error)
  }

  #answered({ number, value, failure }: Answer): void {
    const asked = this.#asked.get(number)
    this.#asked.delete(number)
    if (asked === undefined) return
    if (failure === undefined) {
      asked.resolve(value)
      return
    }
    const { kind, message } = failure
    if (kind === 'unusable' && !this.isOpen) asked.reject(new UnusableError(message))
    else asked.reject(new StoreError(kind === 'full' ? 'full' : 'away', message))
    // A transaction that failed tells nothing of what the disk has: the file is read afresh before it is believed again.
    if (this.isOpen && kind !== 'full') this.lost(new Error(message))
  }

  protected override async end(): Promise<void> {
    const worker = this.#worker
    if (worker === undefined) return
    const closed = this.#ask({ ask: 'close' }).catch(() => {})
    // A thread that waits for its disk cannot be ended, and the file is whole in any case.
    await within(CLOSE_MS, closed)
    this.#worker = undefined
    await within(CLOSE_MS, worker.terminate())
  }
}
