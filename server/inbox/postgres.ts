/**
 * The store in PostgreSQL, for servers that share one inbox. A lane has one owner at a time. A server keeps its lanes as long
 * as it renews its lease:
 *
 *     claim ──▶ the lane is ours ──▶ release     attempts and their outcomes can be written only while the lane is ours
 *                    │
 *                    └──▶ our lease expires: another server may claim the lane, and then our writes are refused
 */
import { randomUUID } from 'node:crypto'
import type { QueryConfig, QueryResult, QueryResultRow } from 'pg'
import { elapsedMs } from '../../protocol/base/elapsed.ts'
import { starting } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { within } from '../pause.ts'
import { GroupedStore, UnusableError } from './grouped-store.ts'
import { Connections, configOf, type Package, type PostgresLogin } from './postgres-connections.ts'
import {
  endsConnection,
  isUnusable,
  lacksStandby,
  type PostgresNotice,
  refusesChange,
  storeErrorOf,
} from './postgres-errors.ts'
import { orderingOf } from './postgres-schema.ts'
import * as sql from './postgres-sql.ts'
import {
  type Change,
  type ChangeResult,
  type Contents,
  type Count,
  type Filter,
  type LaneCount,
  type LaneEvent,
  type Message,
  type OpenState,
  type Retention,
  type SharedStore,
  StoreError,
  type StoreState,
  type SweepResult,
} from './store.ts'

export interface PostgresOptions extends PostgresLogin {
  readonly logger: Logger
  /** How long a server that has died keeps its lanes. */
  readonly leaseMs?: number | undefined
  /** How long a query may take. */
  readonly queryMs?: number | undefined
}

/** Long enough to survive one renewal that runs into the query timeout, and the one after it. */
const LEASE_MS = 30_000
export const QUERY_MS = 8000
/** The length of a whole id. */
const ID_CHARS = 36
/** How long it may take to count what is stored, as the store opens. It takes a second per million webhooks. */
const COUNT_MS = 120_000
/** How long one sweep looks for parts without a message, and how long none does after they have looked at all. */
const ORPHANS_MS = 300
const ORPHANS_REST_MS = 3_600_000
/** Before all parts. */
const NO_PART: sql.PartKey = { id: '', n: -1 }
/**
 * For changes that are retried one by one after their group failed. The group may have waited for locks for two seconds, and webhooks wait
 * behind it before they do the same. So this is less than half of what they may take, and each waits for locks only briefly.
 */
const SINGLES_MS = 2500
const SINGLE_LOCK_MS = 100
/** How long to wait before rules that could not be read are read again. */
const RELOAD_MS = 1000
/** How much longer than reading the rules the time until the next reading is, up to that: a client may change its own all the time. */
const RELOAD_REST = 4
/** Longer ones do not come from a server. */
const MAX_PAYLOAD = 256
/** How long `close` waits for PostgreSQL. */
const CLOSE_MS = 2000
const BEATS_PER_LEASE = 6
/** Share of the lease that we use. The rest is for queries that are on their way when we look at the clock. */
const LEASE_MARGIN = 0.9

/** Rejects with a TypeError if the store cannot be used and waiting will not help. If it does not answer, it is tried again. */
export async function openPostgres(options: PostgresOptions): Promise<PostgresStore> {
  const store = new PostgresStore(options, await loadPackage())
  await store.start()
  return store
}

/** `pg` is an optional dependency: only an inbox in PostgreSQL needs it. Rejects with a TypeError if it is not installed. */
export async function loadPackage(): Promise<Package> {
  try {
    return (await import('pg')).default
  } catch (error) {
    throw new TypeError('inbox: a store in PostgreSQL needs the package pg: npm install pg', { cause: error })
  }
}

type Rules = Pick<Contents, 'rules' | 'paused'>
type CountedLane = LaneCount & { readonly oldest: number }
type RulesChange = Extract<Change, { op: 'rules' | 'pause' }>

export class PostgresStore extends GroupedStore {
  readonly #options: PostgresOptions
  readonly #package: Package
  /** Identifies this process among the servers. */
  readonly #server = randomUUID()
  readonly #leaseMs: number
  readonly #queryMs: number
  /** Place in the table of the oldest message that was counted in each lane, until it is seen or known to wait no more. */
  #oldest = new Map<string, number>()
  /** Lanes that we claimed and have not released. False if another server may own them by now. */
  readonly #owned = new Map<string, boolean>()
  #connections: Connections | undefined
  #beatTimer: NodeJS.Timeout | undefined
  /** By `elapsedMs`, as PostgreSQL counts on while this machine is suspended. */
  #leaseEndsMs = 0
  /** After an outage: until then, leases of other servers may look expired although they are alive. */
  #graceEndsMs = 0
  #opened = 0
  /** The sweeps have looked for orphans among the parts up to this one. */
  #checkedPart = NO_PART
  #orphansRestEndMs = 0
  /** When messages expired of which we have not heard, since that sweep was not answered. */
  #unheard: number | undefined
  #committing: Promise<unknown> = Promise.resolve()
  #reloading: Promise<void> = Promise.resolve()
  /** A reload of the rules is queued for these connections. It will see every change that is notified before it starts. */
  #reloadQueued: Connections | undefined
  #reloadTimer: NodeJS.Timeout | undefined
  /** Rules and pauses that we have committed since the last reload began. What it reads may lack them. */
  #rulesChanges: RulesChange[] = []
  override readonly shared: SharedStore = {
    onLane: undefined,
    onRules: undefined,
    reload: () => {
      if (this.isOpen) this.#reload(this.#connections!)
    },
    // The renewal is answered behind the notifications of what was stored before it.
    isLeaseOver: () => this.isOpen && elapsedMs() >= this.#leaseEndsMs,
    waiting: async (runtime, lane) => {
      const [counted] = await this.#ask<{ messages: number }>(sql.WAITING, [runtime, lane])
      return counted!.messages
    },
    release: (runtime, lane, empty) => {
      const key = keyOf(runtime, lane)
      if (!this.#owned.delete(key)) return
      // If it is not written, the lane may still be ours, and can be released again.
      this.#applyOwn({ op: 'release', runtime, lane, empty }).catch(
        this.guard(() => {
          this.#owned.set(key, false)
        }),
      )
    },
  }

  constructor(options: PostgresOptions, pg: Package) {
    super(options.logger)
    this.#options = options
    this.#package = pg
    this.#leaseMs = options.leaseMs ?? LEASE_MS
    this.#queryMs = options.queryMs ?? QUERY_MS
  }

  protected override get place(): object {
    const { host, port, database } = this.#options
    return { host, port, database }
  }

  // Connections.

  protected override async reopen(): Promise<OpenState> {
    await this.#disconnect()
    const config = await configOf(this.#package, this.#options, this.#queryMs)
    const connections: Connections = new Connections(this.#package, config, this.#queryMs, {
      guard: this.guard,
      broken: error => {
        if (this.#connections === connections && this.isOpen) this.lost(error)
      },
      heard: payload => this.#handleNotification(payload),
    })
    this.#connections = connections
    try {
      await connections.open(this.#server)
      await this.#beat(connections)
      const owned = await connections.listener.query<{ runtime: string; lane: string }>(sql.OWNED, [this.#server])
      for (const { runtime, lane } of owned.rows) this.#owned.set(keyOf(runtime, lane), false)
      const contents = await this.#contents(connections)
      // After an outage, we cannot know whether the other servers could renew their leases.
      if (this.#opened++ > 0) this.#graceEndsMs = elapsedMs() + this.#leaseMs
      else await this.#warnOfOrder(connections)
      return { open: true, contents, setAside: undefined }
    } catch (error) {
      if (this.#connections === connections) await this.#disconnect()
      throw isUnusable(error) ? new UnusableError((error as Error).message, { cause: error }) : error
    }
  }

  async #warnOfOrder({ readers }: Connections): Promise<void> {
    const statement = await orderingOf(readers)
    if (statement !== undefined) this.logger.warn({ ...this.place, statement }, NOT_BY_BYTES)
  }

  async #disconnect(): Promise<void> {
    clearTimeout(this.#beatTimer)
    this.#owned.clear()
    const connections = this.#connections
    this.#connections = undefined
    connections?.destroy()
  }

  /** Renews the lease, and schedules the next renewal. */
  async #beat(connections: Connections): Promise<void> {
    const startedMs = elapsedMs()
    this.#keepAlive(connections)
    await connections.listener.query(sql.BEAT, [this.#server, this.#leaseMs])
    if (this.#connections !== connections) return
    this.#leaseEndsMs = startedMs + this.#leaseMs * LEASE_MARGIN
    this.#scheduleBeat(connections)
  }

  #scheduleBeat(connections: Connections): void {
    const again = starting(this.logger, 'renewing the lease of the inbox failed', () => this.#beatAgain(connections))
    this.#beatTimer = setTimeout(again, this.#leaseMs / BEATS_PER_LEASE).unref()
  }

  /** Uses the connection regularly. Load balancers and firewalls forget idle connections, and the next webhook would be refused. */
  #keepAlive(connections: Connections): void {
    const lost = this.guard((error: unknown) => this.#failed(error, connections))
    connections.writer.query('SELECT').catch(lost)
  }

  async #beatAgain(connections: Connections): Promise<void> {
    try {
      await this.#beat(connections)
    } catch (error) {
      if (this.#connections !== connections) return
      const isOver = elapsedMs() >= this.#leaseEndsMs
      if (isOver || endsConnection(error)) this.#broken(error as Error, connections)
      // Somebody has locked the table, for example. Until the lease ends, our lanes are still ours.
      else this.#scheduleBeat(connections)
    }
  }

  /** Throws once our lease has expired, since our lanes may belong to another server then. */
  #checkLease(): void {
    if (elapsedMs() >= this.#leaseEndsMs) throw new StoreError('away', 'the lease of this server has expired')
  }

  // Notifications.

  /** Changes of the rules since they were read were notified to nobody, so they are read again. */
  protected override tell(state: StoreState): void {
    super.tell(state)
    if (this.isOpen && this.onState !== undefined) this.#reload(this.#connections!)
  }

  #handleNotification(payload: string): void {
    const [server, what, lane = '', runtime = ''] = payload.split(' ')
    if (!this.isOpen || server === this.#server || payload.length > MAX_PAYLOAD) return
    if (what === sql.RULES) this.#reload(this.#connections!)
    else this.shared.onLane?.(runtime, lane, what as LaneEvent)
  }

  /**
   * Reads the rules again after a change, our own included: another server may have changed the same ones before we knew that ours were
   * committed. Reloads run one by one, so the last one sees the final state.
   */
  #reload(connections: Connections): void {
    if (this.#reloadQueued === connections) return
    this.#reloadQueued = connections
    let begunMs = 0
    const read = (): Promise<Rules> => {
      begunMs = performance.now()
      this.#reloadQueued = undefined
      this.#rulesChanges = []
      return this.#rules(connections)
    }
    const isCurrent = () => this.#connections === connections && this.isOpen
    const retry = this.guard(() => {
      this.#reloadTimer = undefined
      this.shared.reload()
    })
    const failed = this.guard(() => {
      // PostgreSQL refused to read them now, for example because it has too many connections. Nobody tells of the change again.
      if (isCurrent()) this.#reloadTimer ??= setTimeout(retry, RELOAD_MS).unref()
    })
    const loaded = this.guard((rules: Rules) => {
      if (isCurrent()) this.shared.onRules?.(withChanges(rules, this.#rulesChanges))
    })
    const rest = () =>
      new Promise<void>(resolve => {
        setTimeout(resolve, Math.min(RELOAD_MS, RELOAD_REST * (performance.now() - begunMs))).unref()
      })
    this.#reloading = this.#reloading.then(read).then(loaded, failed).then(rest)
  }

  async #rules({ readers }: Connections): Promise<Rules> {
    const read = await readers.query<Rules['rules'][number] & { isTooMuch: boolean }>(sql.READ_RULES)
    if (read.rows[0]?.isTooMuch === true) this.logger.error(this.place, TOO_MUCH_RULES)
    const rules = read.rows.map(({ runtime, rules, seen }) => ({ runtime, rules, seen }))
    const paused = await readers.query<{ runtime: string }>(sql.PAUSED)
    return { rules, paused: paused.rows.map(({ runtime }) => runtime) }
  }

  async #contents(connections: Connections): Promise<Contents> {
    const counted = await connections.askPatiently(COUNT_MS, async query => {
      const { rows: counts } = await query<Contents['counts'][number]>(sql.COUNTS)
      const { rows: lanes } = await query<CountedLane>(sql.LANES)
      return { counts, lanes: this.#note(lanes) }
    })
    return { ...counted, ...(await this.#rules(connections)) }
  }

  // Changes.

  #applyOwn(change: sql.PostgresChange): Promise<ChangeResult> {
    return this.apply(change as Change)
  }

  protected override async commit(changes: readonly Change[]): Promise<readonly (ChangeResult | StoreError)[]> {
    const connections = this.#connections!
    // On close, the last group is committed while the one before may still be under way.
    const committing = this.#committing.then(() => this.#commitOrEach(connections, changes))
    this.#committing = committing.catch(() => {})
    return await committing
  }

  /**
   * If PostgreSQL refuses a group, its changes are tried one by one, so that one bad change does not fail the others. They share the time
   * for that, and those for which none is left have failed.
   */
  async #commitOrEach(
    connections: Connections,
    changes: readonly Change[],
  ): Promise<readonly (ChangeResult | StoreError)[]> {
    try {
      return await this.#transaction(connections, changes)
    } catch (error) {
      if (changes.length === 1 || !refusesChange(error)) throw this.#failed(error, connections)
      const endMs = performance.now() + SINGLES_MS
      const results: (ChangeResult | StoreError)[] = []
      for (const [i, change] of changes.entries()) {
        const leftMs = endMs - performance.now()
        const lockMs = Math.min(SINGLE_LOCK_MS, Math.ceil(leftMs / (changes.length - i)))
        results.push(leftMs > 0 ? await this.#single(connections, change, lockMs) : storeErrorOf(error))
      }
      return results
    }
  }

  async #single(connections: Connections, change: Change, lockMs: number): Promise<ChangeResult | StoreError> {
    try {
      const [applied] = await this.#transaction(connections, [change], `BEGIN; SET LOCAL lock_timeout = ${lockMs}`)
      return applied!
    } catch (error) {
      return this.#failed(error, connections)
    }
  }

  /** Sends all changes in one round trip, then the notifications together with the COMMIT. Sends nothing once the commit is given up. */
  async #transaction(connections: Connections, changes: readonly Change[], begin = 'BEGIN'): Promise<ChangeResult[]> {
    if (this.#connections !== connections || !this.isOpen) throw new StoreError('away', 'the connection was lost')
    const { writer } = connections
    const self = { server: this.#server, graceMs: this.#graceMs }
    const undo = () => writer.query('ROLLBACK')
    const ask = ({ name, text, values }: sql.Statement) =>
      writer.query<sql.ChangeRow>({ name, text, values: [...values] } as QueryConfig)
    const begun: Promise<QueryResult<sql.ChangeRow>>[] = [writer.query(begin)]
    const lock = sql.lockOf(changes)
    if (lock !== undefined) begun.push(ask(lock))
    const steps = sql.stepsOf(changes, self)
    const asked = steps.map(({ statement }) => ask(statement))
    const results = (await all([...begun, ...asked], undo)).slice(begun.length)
    const rows = results.flatMap(({ rows }, i) => Array.from({ length: steps[i]!.changes }, (_, nr) => rows[nr]))
    const news = new Set(changes.flatMap((change, i) => sql.eventOf(change, rows[i]) ?? []))
    const warnings: string[] = []
    const hear = this.guard((notice: PostgresNotice) => {
      if (lacksStandby(notice)) warnings.push(String(notice.message))
    })
    writer.on('notice', hear)
    const told = news.size === 0 ? [] : [ask(sql.notify(this.#server, news))]
    const ended = (await all([...told, writer.query('COMMIT')], undo).finally(() => writer.off('notice', hear))).at(-1)!
    if (ended.command !== 'COMMIT') throw new Error('PostgreSQL rolled the transaction back')
    // It has committed, so everything is read again.
    if (warnings.length > 0) throw new Error(`no standby may have a commit: ${warnings[0]}`)
    const ofRules = changes.filter(change => change.op === 'rules' || change.op === 'pause')
    this.#rulesChanges.push(...ofRules)
    if (ofRules.length > 0 && this.#connections === connections) this.#reload(connections)
    return await Promise.all(changes.map((change, i) => this.#applied(change, rows[i])))
  }

  async #applied(change: sql.PostgresChange, row: sql.ChangeRow | undefined): Promise<ChangeResult> {
    const applied = sql.appliedOf(change, row)
    // We may have lost other lanes, too.
    if (change.op === 'update' && applied.status === 'absent')
      for (const key of this.#owned.keys()) this.#owned.set(key, false)
    if (change.op !== 'append' || row?.id !== null || applied.status === 'absent') return applied
    // Another server stored the same webhook at the same time.
    const { runtime, dedupe, received, id } = change.message
    const [same] = await this.#ask<{ id: string }>(sql.SAME, [runtime, dedupe, received, change.at]).catch(() => [])
    return { status: 'duplicate', id: same?.id ?? id }
  }

  get #graceMs(): number {
    return Math.max(0, Math.ceil(this.#graceEndsMs - elapsedMs()))
  }

  /** Turns an error into a {@link StoreError}. If the writer or the listener broke, all are reopened, unless they were already. */
  #failed(error: unknown, connections: Connections): StoreError {
    if (error instanceof StoreError) return error
    if (endsConnection(error)) this.#broken(error as Error, connections)
    return storeErrorOf(error)
  }

  #broken(error: Error, connections: Connections): void {
    if (this.#connections !== connections) return
    if (this.isOpen) this.lost(error)
    // The opening fails, and is tried again. It may take minutes.
    else connections.destroy()
  }

  // Queries.

  async #ask<Row extends QueryResultRow>(text: string, values: readonly unknown[]): Promise<Row[]> {
    const connections = this.#connections
    if (!this.isOpen || connections === undefined) throw this.away()
    try {
      const { rows } = await connections.readers.query<Row>(text, [...values])
      return rows
    } catch (error) {
      // A reader that broke is replaced by the next one. If PostgreSQL is gone, the others break, too.
      throw storeErrorOf(error)
    }
  }

  async next(runtime: string, lane: string, limit: number): Promise<readonly Message[] | undefined> {
    const key = keyOf(runtime, lane)
    let isOurs = this.#owned.get(key) === true
    if (!isOurs) {
      const { status } = await this.#applyOwn({ op: 'claim', runtime, lane })
      isOurs = status === 'done'
      // A lane that is empty cannot be claimed again, although it may still be ours. Then the release is needed.
      if (isOurs) this.#owned.set(key, true)
    }
    const asked = [runtime, lane, limit, this.#server, this.#graceMs]
    const rows = await this.#ask<Message & { busy: boolean; seq: number }>(sql.NEXT, asked)
    this.#checkLease()
    const busy = rows.findIndex(row => row.busy)
    if (rows.length > 0 && (busy === 0 || !isOurs || !this.#owned.has(key))) {
      this.shared.release(runtime, lane, false)
      return undefined
    }
    await this.#checkOldest(key, rows[0]?.seq)
    return busy < 0 ? rows : rows.slice(0, busy)
  }

  #note(lanes: readonly CountedLane[]): readonly LaneCount[] {
    this.#oldest = new Map(lanes.map(({ runtime, lane, oldest }) => [keyOf(runtime, lane), oldest]))
    return lanes.map(({ runtime, lane, messages }) => ({ runtime, lane, messages }))
  }

  /** Throws if a message still waits that was counted in the lane and is not found there. Later ones would overtake it. */
  async #checkOldest(key: string, first = Number.POSITIVE_INFINITY): Promise<void> {
    const oldest = this.#oldest.get(key)
    if (oldest === undefined) return
    const isHidden = first > oldest && (await this.#ask(sql.STILL_WAITS, [oldest])).length > 0
    if (isHidden)
      throw new StoreError('gone', 'an index does not find a webhook that waits (REINDEX SCHEMA sallyport_inbox)')
    this.#oldest.delete(key)
  }

  async part(id: string, n: number): Promise<Uint8Array | undefined> {
    const rows = await this.#ask<{ bytes: Uint8Array }>(sql.PART, [id, n])
    this.#checkLease()
    return rows[0]?.bytes
  }

  async list(filter: Filter): Promise<readonly Message[]> {
    const { runtime, lane = '', state, since = 0, id = '', reason = '', before = [], limit } = filter
    const statement = id.length < ID_CHARS ? sql.LIST : sql.LIST_WHOLE
    return await this.#ask(statement, [runtime, lane, state, since, id, reason, before, limit])
  }

  /** What has expired is reported even if the rest of the sweep fails, or it was not answered: then by the next one. */
  async sweep(at: number, keep: Retention): Promise<SweepResult> {
    if (this.#unheard !== undefined) {
      const expired = await this.#ask<Message & QueryResultRow>(sql.EXPIRED, [this.#unheard])
      this.#unheard = undefined
      return { expired, more: true }
    }
    this.#unheard = at
    const expired = await this.#ask<Message & QueryResultRow>(sql.EXPIRE, [at])
    this.#unheard = undefined
    const failed = (error: StoreError) => {
      this.logger.warn(
        { ...this.place, err: { message: error.message } },
        'a sweep of the inbox could not delete what is old',
      )
      return 0
    }
    const deleted = await this.#deleteOld(at, keep).catch(failed)
    const more = Math.max(expired.length, deleted) === sql.SWEEP_BATCH
    if (!more) await this.#deleteOrphans().catch(failed)
    return { expired, more }
  }

  /** Goes on where the last sweep has ended. */
  async #deleteOrphans(): Promise<void> {
    const startMs = performance.now()
    if (startMs < this.#orphansRestEndMs) return
    do {
      const { id, n } = this.#checkedPart
      const [last] = await this.#ask<sql.PartKey & QueryResultRow>(sql.DELETE_ORPHANS, [id, n])
      this.#checkedPart = last ?? NO_PART
      if (last === undefined) this.#orphansRestEndMs = startMs + ORPHANS_REST_MS
    } while (this.#checkedPart !== NO_PART && performance.now() < startMs + ORPHANS_MS)
  }

  /** Returns the larger number of messages that it deleted, of either state. */
  async #deleteOld(at: number, keep: Retention): Promise<number> {
    const [last] = await this.#ask<{ changed: number }>(sql.NEWEST_SURPLUS, [keep.maxDelivered])
    const before = Math.max(at - keep.deliveredMs, (last?.changed ?? -1) + 1)
    const dead = await this.#forget('dead', at - keep.deadMs)
    const delivered = await this.#forget('delivered', before)
    await this.#ask(sql.DELETE_OLD_RULES, [at - keep.rulesMs])
    await this.#ask(sql.CLAMP_LEASES, [this.#leaseMs])
    await this.#ask(sql.DELETE_DEAD_SERVERS, [])
    return Math.max(dead, delivered)
  }

  /** Returns how many messages it deleted. */
  async #forget(state: string, before: number): Promise<number> {
    const [gone] = await this.#ask<{ messages: number }>(sql.FORGET, [state, before])
    return gone!.messages
  }

  async counts(): Promise<readonly Count[]> {
    return await this.#ask<Count & QueryResultRow>(sql.COUNTS, [])
  }

  async lanes(): Promise<readonly LaneCount[]> {
    return this.#note(await this.#ask<CountedLane & QueryResultRow>(sql.LANES, []))
  }

  protected override async end(): Promise<void> {
    await within(CLOSE_MS, this.#signOff())
    await this.#disconnect()
  }

  async #signOff(): Promise<void> {
    await this.#committing
    const connections = this.#connections
    if (this.isOpen && connections !== undefined)
      await connections.listener.query(sql.LEAVE, [this.#server]).catch(() => {})
  }
}

const NOT_BY_BYTES =
  'the texts of the inbox are ordered by a library of the system: with another version of it, webhooks may not be found. Stop all servers, and run the statement'
const TOO_MUCH_RULES =
  'the store of the inbox has more rules than a server reads: webhooks of runtimes whose rules are oldest are not stored'

function keyOf(runtime: string, lane: string): string {
  return `${runtime}\0${lane}`
}

/** What was read, with changes that were committed after it. */
function withChanges({ rules, paused }: Rules, changes: readonly RulesChange[]): Rules {
  const rows = new Map(rules.map(row => [row.runtime, row]))
  const stopped = new Set(paused)
  for (const change of changes) {
    const { runtime } = change
    if (change.op === 'rules') rows.set(runtime, { runtime, rules: change.rules, seen: change.at })
    else if (change.paused) stopped.add(runtime)
    else stopped.delete(runtime)
  }
  return { rules: [...rows.values()], paused: [...stopped] }
}

/** Waits for all. Resolves to the results, or undoes them and rejects with the first failure. */
async function all<Value>(asked: readonly Promise<Value>[], undo: () => Promise<unknown>): Promise<Value[]> {
  const results = await Promise.allSettled(asked)
  const failed = results.find(result => result.status === 'rejected')
  if (failed === undefined) return results.map(result => (result as PromiseFulfilledResult<Value>).value)
  await undo().catch(() => {})
  throw failed.reason
}
