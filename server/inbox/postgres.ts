/**
 * The store in PostgreSQL, for servers that share one inbox. One of them has a lane at a time, for as long as it says so by
 * renewing its lease:
 *
 *     claim ──▶ a lane of ours ──▶ release       every attempt, and what came of it, is written only while the lane is ours
 *                    │
 *                    └──▶ our lease is over: whoever claims the lane next has it, and our writes are refused
 */
import { randomUUID } from 'node:crypto'
import type { Client, ClientConfig, Notification, Pool, PoolConfig, QueryConfig, QueryResult, QueryResultRow } from 'pg'
import { detached } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { readPlain } from '../../protocol/base/plain-file.ts'
import { within } from '../pause.ts'
import { GroupedStore, UnusableError } from './grouped-store.ts'
import { examine, prepare, sessionOf } from './postgres-schema.ts'
import * as sql from './postgres-sql.ts'
import type { PostgresLocation } from './postgres-url.ts'
import {
  type Applied,
  type Change,
  type Contents,
  type Counts,
  type Filter,
  type Keep,
  type LaneNews,
  type Message,
  type SharedStore,
  StoreError,
  type StoreState,
  type Swept,
} from './store.ts'

export interface PostgresOptions extends PostgresLocation {
  /** Read at each connection. */
  readonly passwordFile: string | undefined
  /** Authority of its certificate (PEM). Default: those of the system. */
  readonly ca: string | Buffer | undefined
  readonly logger: Logger
  /** How long a server that is gone keeps its lanes. */
  readonly leaseMs?: number | undefined
  /** How long a query may take. */
  readonly queryMs?: number | undefined
}

/** A lease outlives an answer that comes late by as much as we wait for it, and the beat behind it. */
const LEASE_MS = 30_000
const QUERY_MS = 8000
/** One of a group that was refused waits no longer than this: the group has waited, and those behind it still do. */
const BEGIN_ALONE = 'BEGIN; SET LOCAL lock_timeout = 100'
/** A notification takes milliseconds, where it comes. */
const HEARD_MS = 5000
/** How long closing waits for PostgreSQL. */
const CLOSE_MS = 2000
const BEATS_PER_LEASE = 6
/** Of the lease, for what is on its way when we look at the clock. */
const MARGIN = 0.9
const MAX_READERS = 4
/** The code for an int8, which are numbers here: no time and no size of ours is too large for one. */
const INT8 = 20

/** The user may not connect, or lacks a right. Waiting does not help. */
const UNUSABLE = /^(28|3D|42)/
/** The connection is of no use any more: it broke, the server stops, is read-only by now, or let a transaction lie. */
const BROKEN = /^(08|57P|25006|25P03)/
/** What it was asked cannot be, or met what somebody else does. */
const REFUSED = /^(22|23|40|55P03)/
const FULL = '53100'
/** Codes of PostgreSQL's own, other than those of a socket. */
const SQLSTATE = /^[\dFHPX][\dA-Z]{4}$/

/** Rejects with a TypeError if it cannot be used and waiting does not help. If it does not answer, it is tried again. */
export async function openPostgres(options: PostgresOptions, now: () => number): Promise<PostgresStore> {
  const store = new PostgresStore(options, now, await loadPackage())
  await store.start()
  return store
}

/** An optional dependency: only an inbox in PostgreSQL needs it. */
async function loadPackage(): Promise<Package> {
  try {
    return (await import('pg')).default
  } catch (error) {
    throw new TypeError('inbox: a store in PostgreSQL needs the package pg: npm install pg', { cause: error })
  }
}

type Package = typeof import('pg')['default']

type Rules = Pick<Contents, 'rules' | 'paused'>

/** What is open at a time. */
interface Links {
  /** Commits, each in one round trip. */
  readonly writer: Client
  /** Listens to the other servers, and renews the lease. */
  readonly listener: Client
  readonly readers: Pool
}

export class PostgresStore extends GroupedStore {
  readonly #options: PostgresOptions
  readonly #package: Package
  /** Unique to this start. */
  readonly #server = randomUUID()
  readonly #leaseMs: number
  readonly #queryMs: number
  /** Lanes that we claimed and have not given back; false: somebody else may have them by now. */
  readonly #owned = new Map<string, boolean>()
  #links: Links | undefined
  #beatTimer: NodeJS.Timeout | undefined
  /** By our own clock. */
  #leaseEndsMs = 0
  /** Until then others may not have had the time to renew theirs. */
  #graceEndsMs = 0
  #opened = 0
  #committing: Promise<unknown> = Promise.resolve()
  #reloading: Promise<void> = Promise.resolve()
  /** Whose rules are about to be read: what they are told of until then is read with them. */
  #unread: Links | undefined
  override readonly shared: SharedStore = {
    onLane: undefined,
    onRules: undefined,
    release: (runtime, lane, empty) => {
      if (this.#owned.delete(keyOf(runtime, lane))) this.#own({ op: 'release', runtime, lane, empty }).catch(() => {})
    },
  }

  constructor(options: PostgresOptions, now: () => number, made: Package) {
    super(options.logger, now)
    this.#options = options
    this.#package = made
    this.#leaseMs = options.leaseMs ?? LEASE_MS
    this.#queryMs = options.queryMs ?? QUERY_MS
  }

  protected override get place(): object {
    const { host, port, database } = this.#options
    return { host, port, database }
  }

  // Connections.

  async #config(): Promise<ClientConfig> {
    const { host, port, database, user, tls, ca, passwordFile } = this.#options
    const password = passwordFile === undefined ? undefined : await readPassword(passwordFile)
    return {
      ...{ host, port, database, user, password, ssl: tls && { ca } },
      ...{ query_timeout: this.#queryMs, connectionTimeoutMillis: this.#queryMs },
      ...{ keepAlive: true, application_name: 'sallyport' },
      types: { getTypeParser: (type: number) => (type === INT8 ? Number : this.#package.types.getTypeParser(type)) },
    } as ClientConfig
  }

  protected override async reopen(): Promise<Extract<StoreState, { open: true }>> {
    await this.#unlink()
    const { Client, Pool } = this.#package
    const config = await this.#config()
    const session = sessionOf(this.#queryMs)
    const verify: PoolConfig['verify'] = (reader, done) => {
      const ready = this.guard(() => done())
      reader.query(session).then(ready, this.guard(done))
    }
    const links: Links = {
      writer: new Client({ ...config, pipeline: true } as ClientConfig),
      listener: new Client(config),
      readers: new Pool({ ...config, max: MAX_READERS, allowExitOnIdle: true, verify }),
    }
    this.#links = links
    const broken = this.guard((error: Error) => {
      if (this.#links === links && this.isOpen) this.lost(error)
    })
    const heard = this.guard((news: Notification) => this.#heard(news.payload ?? ''))
    for (const link of [links.writer, links.listener]) link.on('error', broken)
    links.readers.on('error', broken)
    links.listener.on('notification', heard)
    try {
      await Promise.all([links.writer.connect(), links.listener.connect()])
      await examine(links.listener)
      await this.#listen(links)
      await Promise.all([links.writer.query(session), links.listener.query(session)])
      await prepare(links.listener)
      await this.#beat(links)
      const owned = await links.listener.query<{ runtime: string; lane: string }>(sql.OWNED, [this.#server])
      for (const { runtime, lane } of owned.rows) this.#owned.set(keyOf(runtime, lane), false)
      const contents = await this.#contents(links)
      // One that was away cannot know whether the others could renew their leases meanwhile.
      if (this.#opened++ > 0) this.#graceEndsMs = performance.now() + this.#leaseMs
      return { open: true, contents, setAside: undefined }
    } catch (error) {
      await this.#unlink()
      throw isUnusable(error) ? new UnusableError((error as Error).message, { cause: error }) : error
    }
  }

  /** What another connection tells has to come: a pooler that lends them by the transaction keeps neither that nor a setting. */
  async #listen({ writer, listener }: Links): Promise<void> {
    const sign = `${this.#server} ${sql.NOTHING}`
    const { promise: told, resolve } = Promise.withResolvers<void>()
    let isHeard = false
    const hear = this.guard(({ payload }: Notification) => {
      if (payload !== sign) return
      isHeard = true
      resolve()
    })
    listener.on('notification', hear)
    await listener.query(`LISTEN ${sql.CHANNEL}`)
    await writer.query(sql.TELL, [sql.CHANNEL, [sign]])
    await within(HEARD_MS, told)
    listener.off('notification', hear)
    if (!isHeard) throw new UnusableError('no notifications come: a pooler has to keep sessions (pool_mode = session)')
  }

  async #unlink(): Promise<void> {
    clearTimeout(this.#beatTimer)
    this.#owned.clear()
    const links = this.#links
    this.#links = undefined
    if (links === undefined) return
    // Nobody waits for a server that does not answer.
    for (const { connection } of [links.writer, links.listener] as unknown as {
      connection: { stream: { destroy(): void } }
    }[])
      connection.stream.destroy()
    links.readers.end().catch(() => {})
  }

  /** Renews the lease, and does so again in time. */
  async #beat(links: Links): Promise<void> {
    const startedMs = performance.now()
    await links.listener.query(sql.BEAT, [this.#server, this.#leaseMs])
    if (this.#links !== links) return
    this.#leaseEndsMs = startedMs + this.#leaseMs * MARGIN
    const again = this.guard(() =>
      detached(this.logger, 'the lease of an inbox was not renewed', this.#beatAgain(links)),
    )
    this.#beatTimer = setTimeout(again, this.#leaseMs / BEATS_PER_LEASE).unref()
  }

  async #beatAgain(links: Links): Promise<void> {
    try {
      await this.#beat(links)
    } catch (error) {
      if (this.#links === links) this.lost(error as Error)
    }
  }

  /** Once our lease is over, our lanes may be somebody else's. */
  #checkLease(): void {
    if (performance.now() >= this.#leaseEndsMs) throw new StoreError('away', 'the lease of this server is over')
  }

  // The others.

  #heard(payload: string): void {
    const [server, what, lane = '', runtime = ''] = payload.split(' ')
    if (!this.isOpen) return
    if (what === 'rules') this.#reload(this.#links!)
    else if (server !== this.#server) this.shared.onLane?.(runtime, lane, what as LaneNews)
  }

  /** One after the other, our own too: what stands in the tables in the end is what counts. */
  #reload(links: Links): void {
    if (this.#unread === links) return
    this.#unread = links
    const read = (): Promise<Rules> => {
      this.#unread = undefined
      return this.#rules(links)
    }
    const failed = this.guard((error: unknown) => {
      if (this.#links === links) this.#failed(error)
    })
    const loaded = this.guard((rules: Rules) => {
      if (this.#links === links && this.isOpen) this.shared.onRules?.(rules)
    })
    this.#reloading = this.#reloading.then(read).then(loaded, failed)
  }

  async #rules({ readers }: Links): Promise<Rules> {
    const rules = await readers.query<Rules['rules'][number]>('SELECT runtime, rules FROM rules')
    const paused = await readers.query<{ runtime: string }>('SELECT runtime FROM paused')
    return { rules: rules.rows, paused: paused.rows.map(({ runtime }) => runtime) }
  }

  async #contents(links: Links): Promise<Contents> {
    const counts = await links.readers.query<Contents['counts'][number]>(sql.COUNTS)
    const lanes = await links.readers.query<Contents['lanes'][number]>(sql.LANES)
    return { counts: counts.rows, lanes: lanes.rows, ...(await this.#rules(links)) }
  }

  // Changes.

  #own(change: sql.OwnChange): Promise<Applied> {
    return this.apply(change as Change)
  }

  protected override async commit(changes: readonly Change[]): Promise<readonly (Applied | StoreError)[]> {
    // At the end of the store the last group does not wait for the one before it.
    const committing = this.#committing.then(() => this.#commitOrEach(changes))
    this.#committing = committing.catch(() => {})
    return await committing
  }

  /** One that PostgreSQL refuses takes none of the others with it. */
  async #commitOrEach(changes: readonly Change[]): Promise<readonly (Applied | StoreError)[]> {
    try {
      return await this.#transaction(changes)
    } catch (error) {
      if (changes.length === 1 || !REFUSED.test((error as { code?: string }).code ?? '')) throw this.#failed(error)
    }
    const results: (Applied | StoreError)[] = []
    for (const change of changes) {
      const one = this.#transaction([change], BEGIN_ALONE)
      results.push(await one.then(([applied]) => applied!).catch((error: unknown) => this.#failed(error)))
    }
    return results
  }

  /** The changes are sent at once, then what tells of them, with the end of it. */
  async #transaction(changes: readonly Change[], begin = 'BEGIN'): Promise<Applied[]> {
    const writer = this.#links?.writer
    if (writer === undefined) throw this.away()
    const self = { server: this.#server, graceMs: this.#graceMs }
    const undo = () => writer.query('ROLLBACK')
    const ask = ({ name, text, values }: sql.Statement) =>
      writer.query<sql.Done>({ name, text, values: [...values] } as QueryConfig)
    const begun: Promise<QueryResult<sql.Done>>[] = [writer.query(begin)]
    const lock = sql.lockOf(changes)
    if (lock !== undefined) begun.push(ask(lock))
    const steps = sql.stepsOf(changes, self)
    const asked = steps.map(({ statement }) => ask(statement))
    const results = (await all([...begun, ...asked], undo)).slice(begun.length)
    const rows = results.flatMap(({ rows }, i) => Array.from({ length: steps[i]!.changes }, (_, nr) => rows[nr]))
    const news = new Set(changes.flatMap((change, i) => sql.newsOf(change, rows[i]) ?? []))
    const told = news.size === 0 ? [] : [ask(sql.tell(this.#server, news))]
    const ended = (await all([...told, writer.query('COMMIT')], undo)).at(-1)!
    if (ended.command !== 'COMMIT') throw new Error('PostgreSQL undid the transaction')
    return await Promise.all(changes.map((change, i) => this.#applied(change, rows[i])))
  }

  async #applied(change: sql.OwnChange, row: sql.Done | undefined): Promise<Applied> {
    const applied = sql.appliedOf(change, row)
    // The lanes that we took for ours may be gone, too.
    if (change.op === 'update' && applied.status === 'absent')
      for (const key of this.#owned.keys()) this.#owned.set(key, false)
    if (change.op !== 'append' || row?.id !== null || applied.status === 'absent') return applied
    // Another server stored the same one at the same time.
    const { runtime, dedupe, received, id } = change.message
    const [same] = await this.#ask<{ id: string }>(sql.SAME, [runtime, dedupe, received]).catch(() => [])
    return { status: 'duplicate', id: same?.id ?? id }
  }

  get #graceMs(): number {
    return Math.max(0, Math.ceil(this.#graceEndsMs - performance.now()))
  }

  /** What goes wrong is told in one way; a connection that broke ends all of them. */
  #failed(error: unknown): StoreError {
    if (error instanceof StoreError) return error
    const { code, message } = error as { code?: string; message: string }
    const isAnswer = code !== undefined && SQLSTATE.test(code)
    if (!isAnswer || BROKEN.test(code)) this.lost(error as Error)
    return new StoreError(code === FULL ? 'full' : 'away', message)
  }

  // Questions.

  async #ask<Row extends QueryResultRow>(text: string, values: readonly unknown[]): Promise<Row[]> {
    if (!this.isOpen || this.#links === undefined) throw this.away()
    try {
      const { rows } = await this.#links.readers.query<Row>(text, [...values])
      return rows
    } catch (error) {
      throw this.#failed(error)
    }
  }

  async next(runtime: string, lane: string, limit: number): Promise<readonly Message[] | undefined> {
    const key = keyOf(runtime, lane)
    if (this.#owned.get(key) !== true) {
      const { status } = await this.#own({ op: 'claim', runtime, lane })
      if (status === 'done') this.#owned.set(key, true)
      else this.#owned.delete(key)
    }
    const asked = [runtime, lane, limit, this.#server, this.#graceMs]
    const rows = await this.#ask<Message & { busy: boolean }>(sql.NEXT, asked)
    this.#checkLease()
    const busy = rows.findIndex(row => row.busy)
    if (rows.length > 0 && (busy === 0 || !this.#owned.has(key))) {
      this.shared.release(runtime, lane, false)
      return undefined
    }
    return busy < 0 ? rows : rows.slice(0, busy)
  }

  async part(id: string, n: number): Promise<Uint8Array | undefined> {
    const rows = await this.#ask<{ bytes: Uint8Array }>('SELECT bytes FROM parts WHERE id = $1 AND n = $2', [id, n])
    this.#checkLease()
    return rows[0]?.bytes
  }

  async list({ runtime, lane, state, since = 0, id = '', before = [], limit }: Filter): Promise<readonly Message[]> {
    return await this.#ask(sql.LIST, [runtime, lane, state, since, id, before, limit])
  }

  async sweep(at: number, keep: Keep): Promise<Swept> {
    const expired = await this.#ask<Message & QueryResultRow>(sql.EXPIRE, [at])
    const [last] = await this.#ask<{ changed: number }>(sql.TOO_MANY, [keep.mostDelivered])
    const before = Math.max(at - keep.deliveredMs, (last?.changed ?? -1) + 1)
    const dead = await this.#forget('dead', at - keep.deadMs)
    const delivered = await this.#forget('delivered', before)
    await this.#ask(sql.RULES_OVER, [at - keep.rulesMs])
    await this.#ask(sql.SERVERS_AHEAD, [this.#leaseMs])
    await this.#ask(sql.SERVERS_OVER, [])
    return { expired, more: Math.max(expired.length, dead, delivered) === sql.SWEPT }
  }

  /** Returns how many. */
  async #forget(state: string, before: number): Promise<number> {
    const [gone] = await this.#ask<{ messages: number }>(sql.FORGET, [state, before])
    return gone!.messages
  }

  async counts(): Promise<Counts> {
    return { counts: await this.#ask(sql.COUNTS, []), lanes: await this.#ask(sql.LANES, []) }
  }

  protected override async end(): Promise<void> {
    await within(CLOSE_MS, this.#leave())
    await this.#unlink()
  }

  async #leave(): Promise<void> {
    await this.#committing
    const links = this.#links
    if (this.isOpen && links !== undefined) await links.listener.query(sql.LEAVE, [this.#server]).catch(() => {})
  }
}

function keyOf(runtime: string, lane: string): string {
  return `${runtime}\0${lane}`
}

async function readPassword(path: string): Promise<string> {
  const bytes = await readPlain(path).catch((error: Error) => Promise.reject(new UnusableError(error.message)))
  const password = String(bytes).trim()
  if (password === '') throw new UnusableError(`${path} is empty`)
  return password
}

function isUnusable(error: unknown): boolean {
  return error instanceof UnusableError || UNUSABLE.test((error as { code?: string }).code ?? '')
}

/** The results, or the first failure, once all are over and undone. */
async function all<Value>(asked: readonly Promise<Value>[], undo: () => Promise<unknown>): Promise<Value[]> {
  const results = await Promise.allSettled(asked)
  const failed = results.find(result => result.status === 'rejected')
  if (failed === undefined) return results.map(result => (result as PromiseFulfilledResult<Value>).value)
  await undo().catch(() => {})
  throw failed.reason
}
