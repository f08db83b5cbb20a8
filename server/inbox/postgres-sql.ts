/** The statements for PostgreSQL. The rows that they return say what they did. */
import { Buffer } from 'node:buffer'
import { COLUMNS, SETTABLE } from './columns.ts'
import { binaryArray } from './postgres-array.ts'
import { type Change, type ChangeResult, type LaneEvent, type MessageState, type NewMessage, REFUSED } from './store.ts'

/** A statement with a `name` is prepared once per connection. */
export interface Statement {
  readonly name?: string
  readonly text: string
  readonly values: readonly unknown[]
}

export type PostgresChange =
  | Change
  | { readonly op: 'claim'; readonly runtime: string; readonly lane: string }
  /** With `empty`, the other servers are notified. */
  | { readonly op: 'release'; readonly runtime: string; readonly lane: string; readonly empty: boolean }

/** The row that a change returns. */
export interface ChangeRow {
  readonly id?: string | null
  readonly stored?: boolean
  readonly whole?: boolean
  readonly runtime?: string
  readonly lane?: string
  readonly state?: MessageState
  readonly reason?: string
}

export interface PartKey {
  readonly id: string
  readonly n: number
}

/** This server, and for how long after their expiry it still respects leases. */
export interface Self {
  readonly server: string
  readonly graceMs: number
}

export const CHANNEL = 'sallyport_inbox'
/** Sent by a server to find out whether notifications arrive. It has no lane, so other servers ignore it. */
export const PROBE: LaneEvent = 'free'
/** Tells that rules or pauses have changed. */
export const RULES = 'rules'
const APPENDED = {
  ...{ id: 'text', runtime: 'text', lane: 'text', route: 'text', why: 'text', received: 'bigint', expires: 'bigint' },
  ...{ bytes: 'bigint', parts: 'integer', attempts: 'integer', failures: 'integer', refusals: 'integer' },
  ...{ failedSince: 'bigint', next: 'bigint', key: 'text', enc: 'text', caller: 'text', reason: 'text' },
  ...{ dedupe: 'text', dedupeMs: 'bigint' },
} as const satisfies Partial<Record<keyof NewMessage, string>>

/**
 * Others may have written to the tables. So that they cannot end this server, it reads only as much of them as ours may have. What is cut
 * has no valid MAC any more, or cannot be parsed.
 */
const MAX_CHARS = 1024
/** For names of runtimes and lanes where there may be many. */
const MAX_NAME_CHARS = 64
const MAX_ROWS = 500_000
/** The rules of one runtime, and of all. */
const MAX_RULES_BYTES = 64 * 1024
const MAX_ALL_RULES_BYTES = 128 * 1024 * 1024
/** What a row takes in memory besides its rules. */
const RULES_ROW_BYTES = 1024
/** For the MACs of 22,000 parts. */
const MAX_CALLER_CHARS = 1024 * 1024
/** Older versions stored an embedder's body in one part. */
const MAX_PART_BYTES = 32 * 1024 * 1024

const cut = (name: string, chars: number) => `left("${name}", ${chars}) AS "${name}"`
const shortName = (name: 'runtime' | 'lane' | 'state') => cut(name, MAX_NAME_CHARS)

/** The columns of a message. `callerChars` is an expression. */
function namesOf(callerChars: string): string {
  const isText = (name: string) => name === 'state' || (APPENDED as Record<string, string>)[name] === 'text'
  const read = (name: string) => {
    if (name === 'caller') return `left(caller, ${callerChars}) AS caller`
    return isText(name) ? cut(name, MAX_CHARS) : `"${name}"`
  }
  return COLUMNS.map(read).join(', ')
}

type Append = Extract<Change, { op: 'append' }>
type AppendedName = keyof typeof APPENDED
const APPENDED_NAMES = Object.keys(APPENDED) as AppendedName[]

/** Whether the lease of the server `owner` is valid, with `grace` ms on top. */
const isAlive = (owner: string, grace: string) =>
  `EXISTS (SELECT FROM servers WHERE servers.id = ${owner} AND until + ${grace} * interval '1 ms' > clock_timestamp())`

/**
 * Finds a duplicate: a message that waits, or was delivered a moment ago, or while this one arrived. One that seems to be delivered long
 * after now tells nothing.
 */
const same = (
  runtime: string,
  dedupe: string,
  received: string,
  at: string,
) => `SELECT ${cut('id', MAX_CHARS)} FROM messages WHERE runtime = ${runtime}
  AND dedupe = ${dedupe} AND dedupe <> '' AND (state = 'waiting' OR (state = 'delivered'
    AND (abs(changed - ${received}) < "dedupeMs" OR (${received} < changed AND changed <= ${at}))))
  LIMIT 1`

export const SAME = same('$1', '$2', '$3', '$4')

/** Parts that were stored ahead are claimed: {@link DELETE_ORPHANS} that waits for these rows looks at them again, whatever the clock says. */
const APPEND = (() => {
  const names = APPENDED_NAMES
  const given = (name: AppendedName) => `$${names.indexOf(name) + 1}::${APPENDED[name]}`
  const [owner, head, rest, at] = ['text', 'bytea', 'bytea', 'bigint'].map(
    (type, i) => `$${names.length + 1 + i}::${type}`,
  )
  return `WITH same AS (${same(given('runtime'), given('dedupe'), given('received'), at!)}),
    ahead AS (UPDATE parts SET came = 'infinity' WHERE id = ${given('id')} RETURNING n),
    whole AS (SELECT WHERE (SELECT count(*) FROM ahead) = ${given('parts')} - 1 - sign(length(${rest}))),
    stored AS (
      INSERT INTO messages (${names.map(name => `"${name}"`).join(', ')}, state, changed, owner)
      SELECT ${names.map(given).join(', ')}, 'waiting', ${given('received')}, ${owner}
      WHERE NOT EXISTS (SELECT FROM same) AND EXISTS (SELECT FROM whole)
      ON CONFLICT (runtime, dedupe) WHERE state = 'waiting' AND dedupe <> '' DO NOTHING RETURNING id, parts
    ),
    kept AS (
      INSERT INTO parts (id, n, bytes) SELECT id, 0, ${head} FROM stored
      UNION ALL SELECT id, parts - 1, ${rest} FROM stored WHERE length(${rest}) > 0
    )
    SELECT coalesce((SELECT id FROM stored), (SELECT id FROM same)) AS id, EXISTS (SELECT FROM stored) AS stored,
      EXISTS (SELECT FROM whole) AS whole`
})()

/** Appends whole webhooks in order. One statement for each would cost PostgreSQL and us more than the storing itself. */
const APPEND_ALL = (() => {
  const names = APPENDED_NAMES.map(name => `"${name}"`)
  const arrays = [...names, 'owner', 'at'].map((_, i) => `$${i + 1}::text[]`)
  const [heads, rests] = [1, 2].map(i => `$${arrays.length + i}::bytea[]`)
  const given = APPENDED_NAMES.map(name => `"${name}"::${APPENDED[name]} AS "${name}"`)
  return `WITH given AS MATERIALIZED (
      SELECT ${given.join(', ')}, owner, "at"::bigint AS "at", head, rest, nr
      FROM unnest(${arrays.join(', ')}, ${heads}, ${rests}) WITH ORDINALITY AS texts(${names.join(', ')}, owner, "at", head, rest, nr)
    ), found AS MATERIALIZED (
      SELECT *, (${same('given.runtime', 'given.dedupe', 'given.received', 'given."at"')}) AS same FROM given
    ), stored AS (
      INSERT INTO messages (${names.join(', ')}, state, changed, owner)
      SELECT ${names.join(', ')}, 'waiting', received, owner FROM found WHERE same IS NULL ORDER BY nr
      ON CONFLICT (runtime, dedupe) WHERE state = 'waiting' AND dedupe <> '' DO NOTHING RETURNING id
    ), kept AS (
      INSERT INTO parts (id, n, bytes)
      SELECT id, 0, head FROM found WHERE id IN (SELECT id FROM stored)
      UNION ALL SELECT id, 1, rest FROM found WHERE id IN (SELECT id FROM stored) AND length(rest) > 0
    )
    SELECT CASE WHEN stored.id IS NULL THEN same ELSE found.id END AS id, stored.id IS NOT NULL AS stored, true AS whole
    FROM found LEFT JOIN stored USING (id) ORDER BY nr`
})()

/** Most webhooks in one statement, and most bytes before the last one. */
const MAX_APPENDS = 64
const MAX_APPEND_BYTES = 1024 * 1024

function appendAll(changes: readonly Append[], server: string): Statement {
  const texts = [
    ...APPENDED_NAMES.map(name => changes.map(({ message }) => String(message[name]))),
    changes.map(change => ownerOf(change, server)),
    changes.map(({ at }) => String(at)),
  ]
  const bytes = [changes.map(({ head }) => head), changes.map(({ rest }) => rest)]
  const values = [
    ...texts.map(column =>
      binaryArray(
        'text',
        column.map(text => Buffer.from(text)),
      ),
    ),
    ...bytes.map(column => binaryArray('bytea', column)),
  ]
  return statement('append all', APPEND_ALL, ...values)
}

/** A message whose attempt began before it was stored belongs to its server until the outcome is written. */
function ownerOf({ message }: Append, server: string): string {
  return message.attempts > 0 ? server : ''
}

/** Whether no part of it was stored ahead. */
function isWhole(change: PostgresChange): change is Append {
  return change.op === 'append' && change.message.parts === (change.rest.length > 0 ? 2 : 1)
}

/** One statement and the number of consecutive changes that it makes. It returns one row for each of them. */
export interface Step {
  readonly statement: Statement
  readonly changes: number
}

export function stepsOf(changes: readonly PostgresChange[], self: Self): Step[] {
  const steps: Step[] = []
  for (let at = 0; at < changes.length; ) {
    const whole = wholeFrom(changes, at)
    const first = changes[at]!
    const statement = whole.length > 1 ? appendAll(whole, self.server) : statementOf(first, self)
    const step = { statement, changes: Math.max(whole.length, 1) }
    steps.push(step)
    // If it was not stored, the parts that it has claimed go.
    if (first.op === 'append' && whole.length === 0) steps.push({ statement: forget(first.message.id), changes: 0 })
    at += step.changes
  }
  return steps
}

/** The appends from `from` on that go into one statement. */
function wholeFrom(changes: readonly PostgresChange[], from: number): Append[] {
  const whole: Append[] = []
  let bytes = 0
  for (const change of changes.slice(from, from + MAX_APPENDS)) {
    if (!isWhole(change) || bytes > MAX_APPEND_BYTES) break
    whole.push(change)
    bytes += change.head.length + change.rest.length
  }
  return whole
}

/** A message whose commit was reported as failed may be stored all the same. Then its parts stay. */
const FORGET_PARTS =
  'DELETE FROM parts WHERE id = $1 AND NOT EXISTS (SELECT FROM messages WHERE messages.id = $1) RETURNING id'

const DROP = `WITH dropped AS (DELETE FROM messages WHERE id = $1 AND ($2::text IS NULL OR state = $2)
    RETURNING id, ${shortName('state')}, ${cut('reason', MAX_CHARS)}),
  gone AS (DELETE FROM parts WHERE id IN (SELECT id FROM dropped)) SELECT * FROM dropped`

function statementOf(change: PostgresChange, { server, graceMs }: Self): Statement {
  switch (change.op) {
    case 'append': {
      const { message, head, rest, at } = change
      const values = APPENDED_NAMES.map(name => message[name])
      return statement('append', APPEND, ...values, ownerOf(change, server), head, rest, at)
    }
    case 'part':
      return statement(
        'part',
        'INSERT INTO parts (id, n, bytes) VALUES ($1, $2, $3)',
        change.id,
        change.n,
        change.bytes,
      )
    case 'forget':
      return forget(change.id)
    case 'update':
      return update(change, server)
    case 'drop':
      return statement('drop', DROP, change.id, change.state)
    case 'rules':
      return statement(
        'rules',
        'INSERT INTO rules VALUES ($1, $2, $3) ON CONFLICT (runtime) DO UPDATE SET rules = $2, seen = $3',
        ...[change.runtime, change.rules, change.at],
      )
    case 'pause':
      if (!change.paused) return statement('resume', 'DELETE FROM paused WHERE runtime = $1', change.runtime)
      return statement('pause', 'INSERT INTO paused VALUES ($1) ON CONFLICT DO NOTHING', change.runtime)
    case 'claim':
      return statement('claim', CLAIM, change.runtime, change.lane, server, graceMs)
    case 'release':
      return statement(
        'release',
        'DELETE FROM lanes WHERE runtime = $1 AND lane = $2 AND owner = $3 RETURNING runtime AS id',
        ...[change.runtime, change.lane, server],
      )
  }
}

function forget(id: string): Statement {
  return statement('forget', FORGET_PARTS, id)
}

const CLAIM = `INSERT INTO lanes AS held (runtime, lane, owner)
  SELECT $1::text, $2::text, $3::text WHERE EXISTS (SELECT FROM messages WHERE runtime = $1 AND lane = $2 AND state = 'waiting')
  ON CONFLICT (runtime, lane) DO UPDATE SET owner = excluded.owner
  WHERE held.owner = excluded.owner OR NOT ${isAlive('held.owner', '$4::int')} RETURNING owner AS id`

function update({ id, set, at, owned = false }: Extract<Change, { op: 'update' }>, server: string): Statement {
  const names = SETTABLE.filter(name => set[name] !== undefined)
  const values: unknown[] = [id]
  const given = (value: unknown) => `$${values.push(value)}`
  const sets = names.map(name => `"${name}" = ${given(set[name])}`)
  if (set.state !== undefined) sets.push(`changed = ${given(at)}`)
  let where = "one.id = $1 AND state <> 'delivered'"
  if (owned) {
    const me = given(server)
    sets.push("owner = ''")
    where += ` AND (owner = ${me} OR EXISTS (SELECT FROM lanes
      WHERE lanes.runtime = one.runtime AND lanes.lane = one.lane AND lanes.owner = ${me}))`
  }
  // A dead letter is replayed. If a duplicate waits already, it gives up its own `dedupe`, which must be unique.
  if (set.state === 'waiting') {
    sets.push(`dedupe = CASE WHEN EXISTS (SELECT FROM messages AS other WHERE other.runtime = one.runtime
      AND other.dedupe = one.dedupe AND other.dedupe <> '' AND other.state = 'waiting' AND other.id <> one.id) THEN '' ELSE dedupe END`)
  }
  const changed = `UPDATE messages AS one SET ${sets.join(', ')} WHERE ${where} RETURNING id, ${shortName('runtime')}, ${shortName('lane')}`
  if (set.state !== 'delivered') return { text: changed, values }
  const text = `WITH done AS (${changed}), gone AS (DELETE FROM parts WHERE id IN (SELECT id FROM done)) SELECT * FROM done`
  return { text, values }
}

function statement(name: string, text: string, ...values: unknown[]): Statement {
  return { name, text, values }
}

/** Names of what a change may contend for with other servers. */
function contended(change: PostgresChange): string[] {
  switch (change.op) {
    case 'append':
      return change.message.dedupe === '' ? [] : [`same ${change.message.runtime} ${change.message.dedupe}`]
    case 'claim':
    case 'release':
      return [`lane ${change.runtime} ${change.lane}`]
    case 'update':
    case 'drop':
      return [`message ${change.id}`]
    case 'rules':
    case 'pause':
      return [`runtime ${change.runtime}`]
    default:
      return []
  }
}

/** All connections share PostgreSQL's memory for locks. Beyond this many in a group, deadlocks remain possible. */
const MAX_LOCKS = 500
const LOCK = `SELECT pg_advisory_xact_lock(key) FROM (SELECT DISTINCT hashtextextended(name, 0) AS key FROM unnest($1::text[]) AS name
  ORDER BY key LIMIT ${MAX_LOCKS}) AS keys`

/**
 * Takes locks before the changes of a group. Two groups with the same rows in different orders would deadlock: PostgreSQL ends one
 * of them a second later, and everybody waits meanwhile. `undefined` if there is no need, as for a single change.
 */
export function lockOf(changes: readonly PostgresChange[]): Statement | undefined {
  const names = changes.length < 2 ? [] : changes.flatMap(contended)
  return names.length < 2 ? undefined : statement('lock', LOCK, names)
}

/** The result of a change, from its row. */
export function appliedOf(change: PostgresChange, row: ChangeRow | undefined): ChangeResult {
  switch (change.op) {
    case 'append':
      if (row?.stored === true) return { status: 'stored', id: change.message.id }
      return { status: row?.id === null && row.whole === false ? 'absent' : 'duplicate', id: row?.id ?? '' }
    case 'part':
      return { status: 'done', id: change.id }
    case 'rules':
    case 'pause':
      return { status: 'done', id: change.runtime }
    case 'drop':
      if (row === undefined) return { status: 'absent', id: '' }
      return { status: 'done', id: change.id, dropped: { state: row.state!, reason: row.reason! } }
    default:
      return { status: row === undefined ? 'absent' : 'done', id: row?.id ?? '' }
  }
}

/** Notifies the other servers. */
export function notify(server: string, events: ReadonlySet<string>): Statement {
  return statement(
    'tell',
    NOTIFY,
    CHANNEL,
    [...events].map(one => `${server} ${one}`),
  )
}

export const NOTIFY = 'SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload'

/** What to notify the other servers of: `waits LANE RUNTIME`, `free LANE RUNTIME`, or `rules`. */
export function eventOf(change: PostgresChange, row: ChangeRow | undefined): string | undefined {
  const of = (what: LaneEvent, runtime: string, lane: string) => `${what} ${lane} ${runtime}`
  switch (change.op) {
    case 'append':
      return row?.stored === true ? of('waits', change.message.runtime, change.message.lane) : undefined
    case 'update':
      return row !== undefined && change.set.state === 'waiting' ? of('waits', row.runtime!, row.lane!) : undefined
    case 'release':
      return row === undefined || !change.empty ? undefined : of('free', change.runtime, change.lane)
    case 'rules':
    case 'pause':
      return RULES
    default:
      return undefined
  }
}

/** `busy`: another server's attempt, begun before the message was stored, is still under way. */
export const NEXT = `SELECT ${namesOf(String(MAX_CALLER_CHARS))}, owner NOT IN ('', $4) AND ${isAlive('owner', '$5::int')} AS busy, seq FROM messages
  WHERE runtime = $1 AND lane = $2 AND state = 'waiting' ORDER BY seq LIMIT $3`

/** The callers of a page share what they may have, since they are needed only to read one message. */
const listOf = (isChosen: string) => `SELECT ${namesOf(`16 * ${MAX_CALLER_CHARS} / $8::int`)} FROM messages
  WHERE ($1::text IS NULL OR runtime = $1) AND starts_with(lane, $2)
  AND ($3::text IS NULL OR state = $3) AND received >= $4 AND ${isChosen} AND starts_with(reason, $6)
  AND seq < coalesce((SELECT min(seq) FROM (SELECT seq FROM messages WHERE id = ANY($7::text[]) OFFSET 0) AS known), 9e18::bigint) ORDER BY seq DESC LIMIT $8::int`

export const LIST = listOf('starts_with(id, $5)')
/** For a whole id. Before PostgreSQL 15, no index finds the beginning of one. */
export const LIST_WHOLE = listOf('id = $5')

export const PART = `SELECT bytes FROM parts WHERE id = $1 AND n = $2 AND octet_length(bytes) <= ${MAX_PART_BYTES}`

const READABLE_RULES = `CASE WHEN octet_length(rules) <= ${MAX_RULES_BYTES} THEN rules ELSE '' END`
const RULES_SIZE = `sum(octet_length(${READABLE_RULES}) + ${RULES_ROW_BYTES})`

/** The oldest first. If they are too many, those that were written last. */
export const READ_RULES = `WITH size AS (SELECT ${RULES_SIZE} > ${MAX_ALL_RULES_BYTES} AS "isTooMuch" FROM rules)
  SELECT ${shortName('runtime')}, ${READABLE_RULES} AS rules, seen, "isTooMuch" FROM rules, size WHERE NOT "isTooMuch" OR runtime IN (
    SELECT runtime FROM (SELECT runtime, ${RULES_SIZE} OVER (ORDER BY seen DESC, runtime) AS total FROM rules) AS newest
    WHERE total <= ${MAX_ALL_RULES_BYTES}) ORDER BY seen`

export const PAUSED = `SELECT ${shortName('runtime')} FROM paused LIMIT ${MAX_ROWS}`

/** Those with the oldest webhooks, if there are more. The others follow once these are empty. */
export const LANES = `SELECT ${shortName('runtime')}, ${shortName('lane')}, count(*) AS messages, min(seq) AS oldest FROM messages WHERE state = 'waiting'
  GROUP BY messages.runtime, messages.lane ORDER BY min(seq) LIMIT ${MAX_ROWS}`

/** Whether a message waits that {@link LANES} has found. No text is compared, so it can be believed where an index of texts is damaged. */
export const STILL_WAITS = "SELECT FROM messages WHERE seq = $1 AND state = 'waiting'"

/** How many wait in one lane. */
export const WAITING = `SELECT count(*) AS messages FROM (
  SELECT FROM messages WHERE runtime = $1 AND lane = $2 AND state = 'waiting' LIMIT ${MAX_ROWS}) AS found`

const IS_REFUSED = `reason LIKE '${REFUSED}%'`
export const COUNTS = `SELECT ${shortName('runtime')}, ${shortName('state')}, count(*) AS messages, sum(bytes)::bigint AS bytes, min(received) AS oldest,
  count(*) FILTER (WHERE ${IS_REFUSED}) AS refused,
  coalesce(sum(bytes) FILTER (WHERE ${IS_REFUSED}), 0)::bigint AS "refusedBytes" FROM messages
  GROUP BY messages.runtime, messages.state LIMIT ${MAX_ROWS}`

/** Most messages of each kind that one sweep handles. */
export const SWEEP_BATCH = 1000

export const EXPIRE = `UPDATE messages SET state = 'dead', reason = 'expired', changed = $1 WHERE seq IN (
  SELECT seq FROM messages WHERE state = 'waiting' AND expires <= $1 LIMIT ${SWEEP_BATCH} FOR UPDATE SKIP LOCKED) RETURNING ${namesOf('0')}`

/** What one sweep has expired. */
export const EXPIRED = `SELECT ${namesOf('0')} FROM messages WHERE state = 'dead' AND reason = 'expired' AND changed = $1 LIMIT ${SWEEP_BATCH}`

export const FORGET = `WITH old AS (DELETE FROM messages WHERE seq IN (
    SELECT seq FROM messages WHERE state = $1 AND state <> 'waiting' AND changed < $2 LIMIT ${SWEEP_BATCH} FOR UPDATE SKIP LOCKED) RETURNING id),
  gone AS (DELETE FROM parts WHERE id IN (SELECT id FROM old))
  SELECT count(*) AS messages FROM old`

/**
 * Deletes parts whose message did not come within a day, among those that follow one of them. Returns the last that it has looked at.
 * Such parts remain when a server dies while it stores a long body.
 */
export const DELETE_ORPHANS = `WITH page AS MATERIALIZED (
    SELECT id, n FROM parts WHERE (id, n) > ($1, $2::int) ORDER BY id, n LIMIT ${SWEEP_BATCH}),
  gone AS (DELETE FROM parts USING page WHERE parts.id = page.id AND parts.n = page.n
    AND parts.came < now() - interval '1 day' AND NOT EXISTS (SELECT FROM messages WHERE messages.id = page.id))
  SELECT ${cut('id', MAX_CHARS)}, n FROM page ORDER BY page.id DESC, n DESC LIMIT 1`

/** When the newest of the surplus delivered messages was delivered. */
export const NEWEST_SURPLUS =
  "SELECT changed FROM messages WHERE state = 'delivered' ORDER BY changed DESC LIMIT 1 OFFSET $1"

export const DELETE_OLD_RULES = 'DELETE FROM rules WHERE seen < $1'

/** Deletes servers whose leases expired long ago, and their claims. */
export const DELETE_DEAD_SERVERS = `WITH gone AS (DELETE FROM servers WHERE until < clock_timestamp() - interval '1 hour')
  DELETE FROM lanes WHERE NOT EXISTS (SELECT FROM servers WHERE servers.id = lanes.owner)`

/** Shortens leases that are too long. If PostgreSQL's clock was set back, dead servers would keep their lanes for that much longer. */
export const CLAMP_LEASES = `UPDATE servers SET until = clock_timestamp() + $1::int * interval '1 ms' WHERE id IN (
  SELECT id FROM servers WHERE until > clock_timestamp() + $1::int * interval '1 ms' FOR UPDATE SKIP LOCKED)`

export const BEAT = `INSERT INTO servers VALUES ($1, clock_timestamp() + $2::int * interval '1 ms')
  ON CONFLICT (id) DO UPDATE SET until = excluded.until`

/** The lanes that a server still owns after an outage. It gives up those that are empty. */
export const OWNED = `WITH busy AS (SELECT runtime, lane FROM lanes WHERE owner = $1 AND EXISTS (SELECT FROM messages
    WHERE messages.runtime = lanes.runtime AND messages.lane = lanes.lane AND state = 'waiting')),
  idle AS (DELETE FROM lanes WHERE owner = $1 AND (runtime, lane) NOT IN (SELECT runtime, lane FROM busy))
  SELECT ${shortName('runtime')}, ${shortName('lane')} FROM busy LIMIT ${MAX_ROWS}`

/** Releases all lanes of a server that stops, and notifies the others. */
export const LEAVE = `WITH gone AS (DELETE FROM servers WHERE id = $1),
  released AS (DELETE FROM lanes WHERE owner = $1 RETURNING runtime, lane)
  SELECT pg_notify('${CHANNEL}', $1 || ' free ' || lane || ' ' || runtime) FROM released`
