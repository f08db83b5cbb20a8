/** The SQLite file of an inbox, used in a thread of its own (`sqlite-worker.ts`). Everything here is synchronous. */
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  fsyncSync,
  openSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
} from 'node:fs'
import { dirname, isAbsolute } from 'node:path'
import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite'
import { COLUMNS, SETTABLE } from './columns.ts'
import {
  type Change,
  type ChangeResult,
  type Contents,
  type Count,
  type Filter,
  type LaneCount,
  type Message,
  type NewMessage,
  REFUSED,
  type Retention,
  type SweepResult,
} from './store.ts'

/** `Sinb`, in the header of the file. */
const APPLICATION_ID = 0x53696e62
const VERSION = 1
/** Most messages of each kind that one sweep handles. */
const SWEEP_BATCH = 1000

const SCHEMA = `
CREATE TABLE messages (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, runtime TEXT NOT NULL, lane TEXT NOT NULL,
  route TEXT NOT NULL, why TEXT NOT NULL, state TEXT NOT NULL, received INTEGER NOT NULL, expires INTEGER NOT NULL,
  bytes INTEGER NOT NULL, parts INTEGER NOT NULL, attempts INTEGER NOT NULL, failures INTEGER NOT NULL,
  refusals INTEGER NOT NULL, failedSince INTEGER NOT NULL, next INTEGER NOT NULL, changed INTEGER NOT NULL,
  key TEXT NOT NULL, enc TEXT NOT NULL, caller TEXT NOT NULL, reason TEXT NOT NULL, dedupe TEXT NOT NULL, dedupeMs INTEGER NOT NULL
) STRICT;
CREATE INDEX waiting ON messages (runtime, lane, seq) WHERE state = 'waiting';
CREATE INDEX ending ON messages (expires) WHERE state = 'waiting';
CREATE INDEX settled ON messages (state, changed) WHERE state <> 'waiting';
CREATE INDEX same ON messages (runtime, dedupe) WHERE dedupe <> '';
CREATE TABLE parts (
  seq INTEGER PRIMARY KEY, id TEXT NOT NULL, n INTEGER NOT NULL, bytes BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX part ON parts (id, n);
CREATE TABLE rules (runtime TEXT PRIMARY KEY, rules TEXT NOT NULL, seen INTEGER NOT NULL) STRICT;
CREATE TABLE paused (runtime TEXT PRIMARY KEY) STRICT;
`
const NAMES = COLUMNS.join(', ')
const IS_REFUSED = `reason LIKE '${REFUSED}%'`
/** A message whose commit was reported as failed may be stored all the same. Then its parts stay. */
const FORGET = 'DELETE FROM parts WHERE id = ? AND NOT EXISTS (SELECT 1 FROM messages WHERE id = ?)'

/** SQLITE_CORRUPT and SQLITE_NOTADB. */
const DAMAGED = new Set([11, 26])
const FULL = 13

/** The file cannot be used as it is, and waiting will not help. */
export class FileError extends Error {
  override readonly name = 'FileError'
}

export function isDamage(error: unknown): boolean {
  return error instanceof DamagedError || DAMAGED.has(codeOf(error))
}

export function isFull(error: unknown): boolean {
  return codeOf(error) === FULL
}

class DamagedError extends Error {}

function codeOf(error: unknown): number {
  return ((error as { errcode?: number }).errcode ?? 0) & 0xff
}

/** Opens the file. A damaged one is renamed and replaced by a new one; `setAside` is its new name. */
export function openFile(path: string, minFreeBytes: number): { file: SqliteFile; setAside: string | undefined } {
  try {
    return { file: new SqliteFile(path, minFreeBytes), setAside: undefined }
  } catch (error) {
    if (!isDamage(error)) throw error
  }
  const real = realpathSync(path)
  const setAside = nameAside(real)
  for (const end of ['', '-wal', '-shm']) if (existsSync(real + end)) renameSync(real + end, setAside + end)
  return { file: new SqliteFile(path, minFreeBytes), setAside }
}

function identityOf(path: string): string | undefined {
  const there = statSync(path, { throwIfNoEntry: false })
  return there && `${there.dev} ${there.ino}`
}

/**
 * Creates the file so that nobody else can read it. One that exists must not be opened: closing it would release the locks that another
 * server in this process has on it. If it is a link to nothing, `wx` fails, and the file behind it is created.
 */
function makePrivate(path: string): void {
  try {
    closeSync(openSync(path, 'wx', 0o600))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    if (identityOf(path) === undefined) {
      const target = readlinkSync(path)
      makePrivate(isAbsolute(target) ? target : `${dirname(path)}/${target}`)
    } else accessSync(path, constants.R_OK | constants.W_OK)
  }
}

function makeDurable(path: string): void {
  const file = openSync(path, 'r')
  fsyncSync(file)
  closeSync(file)
}

function nameAside(path: string): string {
  return `${path}.damaged-${new Date().toISOString().replaceAll(':', '')}`
}

export class SqliteFile {
  readonly #database: DatabaseSync
  readonly #path: string
  /** Where it is if `path` is a link. SQLite has the log there. */
  readonly #real: string
  readonly #folder: string
  /** Device and inode of the file and of its log, to notice if they are replaced. */
  readonly #identity: string | undefined
  readonly #log: string | undefined
  readonly #minFreeBytes: number
  readonly #statements = new Map<string, StatementSync>()

  constructor(path: string, minFreeBytes: number) {
    this.#path = path
    this.#minFreeBytes = minFreeBytes
    makePrivate(path)
    this.#real = realpathSync(path)
    this.#folder = dirname(this.#real)
    this.#database = new DatabaseSync(path)
    this.#identity = identityOf(path)
    try {
      this.#prepare(path)
      this.#log = identityOf(`${this.#real}-wal`)
    } catch (error) {
      this.#database.close()
      throw error
    }
  }

  #prepare(path: string): void {
    // Only one server uses the file, for as long as it runs. Nobody else can read an intermediate state.
    this.#database.exec('PRAGMA locking_mode = EXCLUSIVE; PRAGMA busy_timeout = 0')
    const version = this.#versionOf(path)
    this.#database.exec('PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL')
    this.#database.exec('BEGIN EXCLUSIVE; COMMIT')
    if (version === 0) this.#create()
    const { quick_check } = this.#one('PRAGMA quick_check(1)')
    if (quick_check !== 'ok') throw new DamagedError(String(quick_check))
    this.#run('DELETE FROM parts WHERE id NOT IN (SELECT id FROM messages)')
  }

  /** 0 if the file is empty. Does not write, so a file that is not ours stays as it is. */
  #versionOf(path: string): number {
    const version = Number(this.#one('PRAGMA user_version').user_version)
    const application = Number(this.#one('PRAGMA application_id').application_id)
    const { tables } = this.#one('SELECT count(*) AS tables FROM sqlite_schema')
    if (application !== APPLICATION_ID && tables !== 0) throw new FileError(`${path} is not the file of an inbox`)
    if (version > VERSION) {
      throw new FileError(`${path} was written by a newer sallyport (schema ${version}, this one has ${VERSION})`)
    }
    return version
  }

  #create(): void {
    this.#database.exec(
      `BEGIN; ${SCHEMA} PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = ${VERSION}; COMMIT`,
    )
    makeDurable(this.#folder)
  }

  /** Keeps each statement for good, so `sql` must not contain values. */
  #statement(sql: string): StatementSync {
    const known = this.#statements.get(sql)
    if (known !== undefined) return known
    const made = this.#database.prepare(sql)
    this.#statements.set(sql, made)
    return made
  }

  #run(sql: string, ...values: SQLInputValue[]): number {
    return Number(this.#statement(sql).run(...values).changes)
  }

  #all<Row>(sql: string, ...values: SQLInputValue[]): Row[] {
    return this.#statement(sql).all(...values) as Row[]
  }

  #one(sql: string, ...values: SQLInputValue[]): Record<string, unknown> {
    return this.#statement(sql).get(...values) as Record<string, unknown>
  }

  /** Whether the file was deleted or replaced while in use. What is written to it then is lost when this process ends. */
  isGone(): boolean {
    return identityOf(this.#path) !== this.#identity
  }

  /** The same for its write-ahead log, whose content goes into the file when the file is closed. */
  isLogGone(): boolean {
    return identityOf(`${this.#real}-wal`) !== this.#log
  }

  /** Saves a copy of the deleted file next to its old path, and returns the copy's name. */
  rescue(): string {
    const copy = nameAside(this.#real)
    closeSync(openSync(copy, 'wx', 0o600))
    try {
      this.#run('VACUUM INTO ?', copy)
      makeDurable(copy)
      makeDurable(this.#folder)
    } catch (error) {
      // Also deletes what SQLite has written so far. The next try, a second later, uses another name.
      for (const end of ['', '-journal']) rmSync(copy + end, { force: true })
      throw error
    }
    const log = `${this.#real}-wal`
    // SQLite would take it for the log of the new file. Its content is in the copy.
    if (identityOf(log) === this.#log) rmSync(log, { force: true })
    return copy
  }

  /** Whether the disk has enough free space to keep more. */
  hasRoom(): boolean {
    if (this.#minFreeBytes === 0) return true
    const { bavail, bsize } = statfsSync(this.#folder)
    return bavail * bsize >= this.#minFreeBytes
  }

  /** Makes all changes or none. They are durable when this returns. */
  apply(changes: readonly Change[]): ChangeResult[] {
    return this.#transaction(() => changes.map(change => this.#applyOne(change)))
  }

  #transaction<Result>(work: () => Result): Result {
    this.#database.exec('BEGIN IMMEDIATE')
    try {
      const result = work()
      this.#database.exec('COMMIT')
      return result
    } catch (error) {
      if (this.#database.isTransaction) this.#database.exec('ROLLBACK')
      throw error
    }
  }

  #applyOne(change: Change): ChangeResult {
    switch (change.op) {
      case 'append':
        return this.#append(change)
      case 'part':
        this.#addPart(change.id, change.n, change.bytes)
        return { status: 'done', id: change.id }
      case 'forget':
        return done(change.id, this.#run(FORGET, change.id, change.id))
      case 'update':
        return this.#update(change)
      case 'drop':
        return this.#drop(change)
      case 'rules':
        return this.#setRules(change)
      case 'pause':
        if (change.paused) this.#run('INSERT OR IGNORE INTO paused VALUES (?)', change.runtime)
        else this.#run('DELETE FROM paused WHERE runtime = ?', change.runtime)
        return { status: 'done', id: change.runtime }
    }
  }

  #append({ message, head, rest, at }: Extract<Change, { op: 'append' }>): ChangeResult {
    const same = this.#sameAs(message, at)
    if (same !== undefined) {
      this.#run('DELETE FROM parts WHERE id = ?', message.id)
      return { status: 'duplicate', id: same }
    }
    const { id, runtime, lane, route, why, received, expires, bytes, parts, attempts, failures, refusals } = message
    const { failedSince, next, key, enc, caller, reason, dedupe, dedupeMs } = message
    if (!this.#hasParts(id, parts - 1 - Math.sign(rest.length))) return { status: 'absent', id }
    this.#run(
      `INSERT INTO messages (${NAMES}, dedupe, dedupeMs) VALUES (?, ?, ?, ?, ?, 'waiting', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      ...[id, runtime, lane, route, why, received, expires, bytes, parts, attempts, failures, refusals],
      ...[failedSince, next, received, key, enc, caller, reason, dedupe, dedupeMs],
    )
    this.#addPart(id, 0, head)
    if (rest.length > 0) this.#addPart(id, parts - 1, rest)
    return { status: 'stored', id }
  }

  /**
   * The id of a duplicate: a message that waits, or was delivered a moment ago, or while this one arrived. One that seems to be delivered
   * long after now tells nothing.
   */
  #sameAs({ runtime, dedupe, received }: NewMessage, at: number): string | undefined {
    if (dedupe === '') return undefined
    const [same] = this.#all<{ id: string }>(
      `SELECT id FROM messages WHERE runtime = ?1 AND dedupe = ?2 AND dedupe <> ''
       AND (state = 'waiting' OR (state = 'delivered' AND (abs(changed - ?3) < dedupeMs OR (?3 < changed AND changed <= ?4)))) LIMIT 1`,
      ...[runtime, dedupe, received, at],
    )
    return same?.id
  }

  /** Whether the parts that were stored ahead are still there. */
  #hasParts(id: string, count: number): boolean {
    return count === 0 || this.#one('SELECT count(*) AS count FROM parts WHERE id = ?', id).count === count
  }

  #addPart(id: string, n: number, bytes: Uint8Array): void {
    this.#run('INSERT INTO parts (id, n, bytes) VALUES (?, ?, ?)', id, n, bytes)
  }

  #update({ id, set, at }: Extract<Change, { op: 'update' }>): ChangeResult {
    const names = SETTABLE.filter(name => set[name] !== undefined)
    const values: SQLInputValue[] = names.map(name => set[name]!)
    const assignments = names.map(name => `${name} = ?`)
    if (set.state !== undefined) {
      assignments.push('changed = ?')
      values.push(Math.trunc(at))
    }
    const where = "WHERE id = ? AND state <> 'delivered'"
    const changes = this.#run(`UPDATE messages SET ${assignments.join(', ')} ${where}`, ...values, id)
    if (set.state === 'delivered') this.#run('DELETE FROM parts WHERE id = ?', id)
    return done(id, changes)
  }

  #drop({ id, state }: Extract<Change, { op: 'drop' }>): ChangeResult {
    const [dropped] = this.#all<Pick<Message, 'state' | 'reason'>>(
      'DELETE FROM messages WHERE id = ?1 AND (?2 IS NULL OR state = ?2) RETURNING state, reason',
      ...[id, state ?? null],
    )
    if (dropped === undefined) return done(id, 0)
    this.#run('DELETE FROM parts WHERE id = ?', id)
    return { status: 'done', id, dropped }
  }

  #setRules({ runtime, rules, at }: Extract<Change, { op: 'rules' }>): ChangeResult {
    this.#run('INSERT OR REPLACE INTO rules VALUES (?, ?, ?)', runtime, rules, at)
    return { status: 'done', id: runtime }
  }

  next(runtime: string, lane: string, limit: number): Message[] {
    return this.#all(
      `SELECT ${NAMES} FROM messages WHERE runtime = ? AND lane = ? AND state = 'waiting' ORDER BY seq LIMIT ?`,
      ...[runtime, lane, limit],
    )
  }

  part(id: string, n: number): Uint8Array | undefined {
    return this.#all<{ bytes: Uint8Array }>('SELECT bytes FROM parts WHERE id = ? AND n = ?', id, n)[0]?.bytes
  }

  list({ runtime, lane, state, since, id = '', reason, before = [], limit }: Filter): Message[] {
    // By the index. Without an id, the newest are read first.
    const begins = id === '' ? "?5 = ''" : 'id >= ?5 AND id < ?5 || char(0x10ffff)'
    return this.#all(
      `SELECT ${NAMES} FROM messages WHERE (?1 IS NULL OR runtime = ?1) AND substr(lane, 1, length(?2)) = ?2
       AND (?3 IS NULL OR state = ?3) AND received >= ?4 AND ${begins}
       AND substr(reason, 1, length(?6)) = ?6
       AND seq < coalesce((SELECT min(seq) FROM messages WHERE id IN (SELECT value FROM json_each(?7))), 9e18)
       ORDER BY seq DESC LIMIT ?8`,
      ...[runtime ?? null, lane ?? '', state ?? null, since ?? 0, id, reason ?? ''],
      ...[JSON.stringify(before), limit],
    )
  }

  contents(): Contents {
    return {
      counts: this.counts(),
      lanes: this.lanes(),
      rules: this.#all('SELECT runtime, rules, seen FROM rules ORDER BY seen'),
      paused: this.#all<{ runtime: string }>('SELECT runtime FROM paused').map(({ runtime }) => runtime),
    }
  }

  lanes(): LaneCount[] {
    return this.#all(
      "SELECT runtime, lane, count(*) AS messages FROM messages WHERE state = 'waiting' GROUP BY runtime, lane",
    )
  }

  counts(): Count[] {
    return this.#all(
      `SELECT runtime, state, count(*) AS messages, sum(bytes) AS bytes, min(received) AS oldest,
       count(*) FILTER (WHERE ${IS_REFUSED}) AS refused, coalesce(sum(bytes) FILTER (WHERE ${IS_REFUSED}), 0) AS refusedBytes
       FROM messages GROUP BY runtime, state`,
    )
  }

  /** Expires messages that are too old, and deletes those that ended long ago. */
  sweep(at: number, keep: Retention): SweepResult {
    return this.#transaction(() => {
      const expired = this.#all<Message>(
        `UPDATE messages SET state = 'dead', reason = 'expired', changed = ?1 WHERE seq IN
         (SELECT seq FROM messages WHERE state = 'waiting' AND expires <= ?1 LIMIT ${SWEEP_BATCH}) RETURNING ${NAMES}`,
        at,
      )
      const dead = this.#forget('dead', at - keep.deadMs)
      const delivered = this.#forget('delivered', this.#deliveredBefore(at, keep))
      this.#run('DELETE FROM rules WHERE seen < ?', at - keep.rulesMs)
      this.#database.exec('PRAGMA incremental_vacuum(256)')
      return { expired, more: Math.max(expired.length, dead, delivered) === SWEEP_BATCH }
    })
  }

  /** Messages delivered before this time are deleted. */
  #deliveredBefore(at: number, { deliveredMs, maxDelivered }: Retention): number {
    const [last] = this.#all<{ changed: number }>(
      "SELECT changed FROM messages WHERE state = 'delivered' ORDER BY changed DESC LIMIT 1 OFFSET ?",
      maxDelivered,
    )
    return Math.max(at - deliveredMs, (last?.changed ?? -1) + 1)
  }

  /** Returns how many messages it deleted. */
  #forget(state: string, before: number): number {
    const old = this.#all<{ id: string }>(
      `SELECT id FROM messages WHERE state = ? AND changed < ? LIMIT ${SWEEP_BATCH}`,
      ...[state, before],
    )
    for (const { id } of old) {
      this.#run('DELETE FROM parts WHERE id = ?', id)
      this.#run('DELETE FROM messages WHERE id = ?', id)
    }
    return old.length
  }

  close(): void {
    this.#database.close()
  }
}

function done(id: string, changes: number): ChangeResult {
  return { status: changes > 0 ? 'done' : 'absent', id }
}
