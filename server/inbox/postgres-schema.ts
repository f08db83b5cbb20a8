/** The tables of an inbox in PostgreSQL, and the checks that they can be used. */
import type { Client, Pool } from 'pg'
import { UnusableError } from './grouped-store.ts'

const SCHEMA = 'sallyport_inbox'
const VERSION = 1
/** The oldest version that was still maintained when this was written. */
const MIN_VERSION = 14
/** Advisory lock, so that servers that start together create the tables once. */
const LOCK = 0x53696e62

/** Ordered by its bytes, whatever the database and the libraries of the system do. No statement needs the order of a language. */
const TEXT = 'text COLLATE "C"'
/** `lanes`: which server owns each lane. `servers`: when the lease of each server ends. */
const TABLES = `
CREATE TABLE messages (
  seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id ${TEXT} NOT NULL UNIQUE, runtime ${TEXT} NOT NULL, lane ${TEXT} NOT NULL,
  route ${TEXT} NOT NULL, why ${TEXT} NOT NULL, state ${TEXT} NOT NULL, received bigint NOT NULL, expires bigint NOT NULL,
  bytes bigint NOT NULL, parts integer NOT NULL, attempts integer NOT NULL, failures integer NOT NULL,
  refusals integer NOT NULL, "failedSince" bigint NOT NULL, next bigint NOT NULL, changed bigint NOT NULL,
  key ${TEXT} NOT NULL, enc ${TEXT} NOT NULL, caller ${TEXT} NOT NULL, reason ${TEXT} NOT NULL, dedupe ${TEXT} NOT NULL,
  "dedupeMs" bigint NOT NULL, owner ${TEXT} NOT NULL
);
CREATE INDEX waiting ON messages (runtime, lane, seq) WHERE state = 'waiting';
CREATE INDEX ending ON messages (expires) WHERE state = 'waiting';
CREATE INDEX settled ON messages (state, changed) WHERE state <> 'waiting';
CREATE INDEX same ON messages (runtime, dedupe) WHERE dedupe <> '';
CREATE UNIQUE INDEX once ON messages (runtime, dedupe) WHERE state = 'waiting' AND dedupe <> '';
CREATE TABLE parts (
  id ${TEXT} NOT NULL, n integer NOT NULL, bytes bytea NOT NULL, came timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (id, n)
);
ALTER TABLE parts ALTER bytes SET STORAGE EXTERNAL;
CREATE TABLE rules (runtime ${TEXT} PRIMARY KEY, rules ${TEXT} NOT NULL, seen bigint NOT NULL);
CREATE TABLE paused (runtime ${TEXT} PRIMARY KEY);
CREATE TABLE lanes (runtime ${TEXT} NOT NULL, lane ${TEXT} NOT NULL, owner ${TEXT} NOT NULL, PRIMARY KEY (runtime, lane));
CREATE TABLE servers (id ${TEXT} PRIMARY KEY, until timestamptz NOT NULL);
CREATE TABLE version (version integer NOT NULL);
INSERT INTO version VALUES (${VERSION});
`
const NAMES = ['messages', 'parts', 'rules', 'paused', 'lanes', 'servers', 'version']
/** Collations of the operating system that order by bytes. */
const BYTES = `('C', 'POSIX')`
/**
 * The statement that makes the order of texts that of their bytes, for tables of an older shape. Theirs is that of the database, which may
 * change with the libraries of the system, after an update or a failover to another machine. Then indexes do not find what they have.
 * PostgreSQL 14 has no column for the provider of a database, which is the operating system there.
 */
const ORDERING = `WITH texts AS (SELECT attrelid, attnum, attname FROM pg_attribute JOIN pg_collation ON pg_collation.oid = attcollation
    JOIN pg_database ON datname = current_database()
    CROSS JOIN LATERAL (SELECT CASE collprovider WHEN 'd' THEN coalesce(to_jsonb(pg_database) ->> 'datlocprovider', 'c') ELSE collprovider::text END,
      CASE collprovider WHEN 'd' THEN datcollate ELSE collcollate END) AS real (provider, locale)
    WHERE attrelid = ANY($1::regclass[]) AND attnum > 0 AND NOT attisdropped AND provider <> 'b' AND (provider = 'i' OR locale NOT IN ${BYTES})),
  tables AS (SELECT format('ALTER TABLE ${SCHEMA}.%I %s', relname, string_agg(format('ALTER %I TYPE text COLLATE "C"', attname), ', ' ORDER BY attnum)) AS text
    FROM texts JOIN pg_class ON pg_class.oid = attrelid GROUP BY relname)
  SELECT string_agg(text, '; ' ORDER BY text) AS text FROM tables`

/** Settings of PostgreSQL that matter to us. */
interface Settings {
  readonly version: number
  readonly readonly: boolean
  readonly fsync: boolean
  readonly forbidden: boolean
}

/** Why this PostgreSQL cannot be used. `undefined` if it can. */
export function problemOf({ version, readonly, fsync }: Omit<Settings, 'forbidden'>): string | undefined {
  const major = Math.floor(version / 10_000)
  if (major < MIN_VERSION) return `this is PostgreSQL ${major}: use ${MIN_VERSION} or newer`
  if (readonly) return 'this PostgreSQL is read-only: use the address of the primary'
  if (!fsync) return 'this PostgreSQL has fsync off, so a crash would lose webhooks that were stored'
  return undefined
}

/** Rejects with an {@link UnusableError} if webhooks cannot be kept there. */
export async function examine(client: Client): Promise<void> {
  const asked = await client.query<Settings>(`SELECT current_setting('server_version_num')::int AS version,
    pg_is_in_recovery() OR current_setting('transaction_read_only')::bool AS readonly,
    current_setting('fsync')::bool AS fsync,
    NOT coalesce(has_schema_privilege(to_regnamespace('${SCHEMA}'), 'USAGE'), true) AS forbidden`)
  const problem = problemOf(asked.rows[0]!)
  if (problem !== undefined) throw new UnusableError(problem)
  if (asked.rows[0]!.forbidden) throw new UnusableError(`its user may not use the schema ${SCHEMA}`)
}

/** Creates the tables if they do not exist. Rejects with an {@link UnusableError} if they cannot be used. */
export async function prepare(client: Client): Promise<void> {
  await inTransaction(client, 'COMMIT', () => makeUsable(client))
}

/** Does the same, and resolves to what `look` finds. Then takes everything back, so that nothing has changed. */
export async function rehearse<Found>(client: Client, look: () => Promise<Found>): Promise<Found> {
  return await inTransaction(client, 'ROLLBACK', async () => {
    await makeUsable(client)
    return await look()
  })
}

/** If `work` fails, the connection must be closed, which takes its changes back. */
async function inTransaction<Done>(
  client: Client,
  end: 'COMMIT' | 'ROLLBACK',
  work: () => Promise<Done>,
): Promise<Done> {
  await client.query('BEGIN')
  const done = await work()
  await client.query(end)
  return done
}

async function makeUsable(client: Client): Promise<void> {
  await create(client)
  const { rows } = await client.query<{ version: number }>('SELECT version FROM version LIMIT 1')
  const version = rows[0]?.version ?? 0
  if (version > VERSION) {
    throw new UnusableError(`its tables were created by a newer sallyport (schema ${version}, this one has ${VERSION})`)
  }
  const lacking = await client.query<{ name: string; need: string }>(
    `SELECT name, need FROM unnest($1::text[]) AS name, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS need
     WHERE NOT has_table_privilege(name, need)`,
    [NAMES],
  )
  const [lack] = lacking.rows
  if (lack !== undefined) throw new UnusableError(`its user may not ${lack.need} in ${SCHEMA}.${lack.name}`)
}

/** What orders the texts by their bytes. `undefined` if they are, or the user may not read how they are. */
export async function orderingOf(readers: Pool): Promise<string | undefined> {
  const asked = await readers.query<{ text: string | null }>(ORDERING, [NAMES]).catch(() => undefined)
  return asked?.rows[0]?.text ?? undefined
}

/** Somebody else may have made the schema, and left it empty. */
async function create(client: Client): Promise<void> {
  if ((await find(client)).tables) return
  await client.query('SELECT pg_advisory_xact_lock($1)', [LOCK])
  const found = await find(client)
  if (!found.schema) await client.query(`CREATE SCHEMA ${SCHEMA}`)
  if (!found.tables) await client.query(TABLES)
}

/** Reads the catalog: `to_regnamespace` may remember, until the transaction ends, that there was no schema before we had the lock. */
async function find(client: Client): Promise<{ schema: boolean; tables: boolean }> {
  const schema = `SELECT oid FROM pg_namespace WHERE nspname = '${SCHEMA}'`
  const { rows } = await client.query<{ schema: boolean; tables: boolean }>(`SELECT EXISTS (${schema}) AS schema,
    EXISTS (SELECT FROM pg_class WHERE relname = 'version' AND relnamespace = (${schema})) AS tables`)
  return rows[0]!
}

/** PostgreSQL 17 has this setting. The timeouts that we set are enough, and counting what is stored may take longer. */
const UNLIMITED_TRANSACTIONS =
  "SELECT set_config('transaction_timeout', '0', false) WHERE current_setting('transaction_timeout', true) IS NOT NULL"

/** A lock may take a quarter of the query timeout, so that a row that somebody holds does not hold up everybody else. */
const LOCKS_PER_QUERY = 4

/**
 * The settings of each connection. Commits are durable when PostgreSQL confirms them, and a warning says if no standby has one. Idle
 * sessions are not closed. They are set by a statement, since a pooler refuses or drops startup parameters.
 */
export function sessionOf(queryMs: number): string {
  const settings = {
    search_path: SCHEMA,
    synchronous_commit: 'on',
    client_min_messages: 'warning',
    default_transaction_isolation: "'read committed'",
    statement_timeout: queryMs,
    lock_timeout: Math.ceil(queryMs / LOCKS_PER_QUERY),
    idle_in_transaction_session_timeout: queryMs,
    idle_session_timeout: 0,
  }
  const sets = Object.entries(settings).map(([name, value]) => `SET ${name} = ${value}`)
  return [...sets, UNLIMITED_TRANSACTIONS].join('; ')
}
