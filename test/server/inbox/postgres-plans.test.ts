// @module-tag slow
/** How PostgreSQL finds the rows of each statement where much is stored. One that reads a whole table holds up everybody. */
import { Client } from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { noLogger } from '../../../protocol/base/log.ts'
import { openPostgres } from '../../../server/inbox/postgres.ts'
import * as sql from '../../../server/inbox/postgres-sql.ts'
import { readPostgresUrl } from '../../../server/inbox/postgres-url.ts'
import { needs } from '../../support/needs.ts'
import { Postgres } from '../../support/postgres.ts'
import { bytes, message } from './messages.ts'

const SELF = { server: 'server', graceMs: 0 }
const STATEMENT = /^(SELECT|WITH|INSERT|UPDATE|DELETE)\b/
const appends = (count: number, parts = 2): sql.PostgresChange[] =>
  Array.from({ length: count }, (_, i) => ({
    ...{ op: 'append', message: message(`${i}`, { parts, dedupe: 'x' }), head: bytes('{}'), rest: bytes('x'), at: 0 },
  }))
const update = (set: object, owned = false): sql.PostgresChange[] => [{ op: 'update', id: 'a', set, at: 0, owned }]

const CHANGES: Record<string, sql.PostgresChange[]> = {
  ...{ append: appends(1, 3), 'append all': appends(3) },
  ...{ attempt: update({ attempts: 1 }, true), replay: update({ state: 'waiting' }) },
  ...{ delivery: update({ state: 'delivered' }, true), death: update({ state: 'dead' }, true) },
  ...{ part: [{ op: 'part', id: 'a', n: 1, bytes: bytes('x') }], forget: [{ op: 'forget', id: 'a' }] },
  ...{ drop: [{ op: 'drop', id: 'a' }], 'drop one that waits': [{ op: 'drop', id: 'a', state: 'waiting' }] },
  claim: [{ op: 'claim', runtime: 'demo', lane: 'l' }],
  release: [{ op: 'release', runtime: 'demo', lane: 'l', empty: true }],
}

/** How each statement finds its rows in the large tables. */
const READS: Record<string, readonly string[]> = {
  ...{ SAME: ['messages same'], NEXT: ['messages waiting'], WAITING: ['messages waiting'], PART: ['parts parts_pkey'] },
  ...{
    LIST: ['messages messages_id_key', 'messages messages_pkey'],
    LIST_WHOLE: ['messages messages_id_key'],
    LANES: ['messages waiting'],
    STILL_WAITS: ['messages messages_pkey'],
    OWNED: ['messages waiting'],
  },
  ...{ EXPIRE: ['messages ending', 'messages messages_pkey'], EXPIRED: ['messages settled'] },
  ...{ FORGET: ['messages messages_pkey', 'messages settled', 'parts parts_pkey'] },
  NEWEST_SURPLUS: ['messages settled'],
  DELETE_ORPHANS: ['messages messages_id_key', 'parts parts_pkey'],
  // It counts all of them.
  COUNTS: ['messages Seq Scan'],
  ...{ append: ['messages same', 'parts parts_pkey'], 'append all': ['messages same'] },
  ...{ attempt: ['messages messages_id_key'], death: ['messages messages_id_key'] },
  replay: ['messages messages_id_key', 'messages once'],
  delivery: ['messages messages_id_key', 'parts parts_pkey'],
  forget: ['messages messages_id_key', 'parts parts_pkey'],
  drop: ['messages messages_id_key', 'parts parts_pkey'],
  'drop one that waits': ['messages messages_id_key', 'parts parts_pkey'],
  claim: ['messages waiting'],
}

interface Plan {
  readonly 'Node Type': string
  readonly 'Relation Name'?: string
  readonly 'Index Name'?: string
  readonly Plans?: readonly Plan[]
}

/** Each table of webhooks that a plan reads, with the index. */
function readsOf(plan: Plan): string[] {
  const { 'Relation Name': table, 'Index Name': index, 'Node Type': type, Plans: plans = [] } = plan
  const isRead = type.endsWith('Scan') && (table === 'messages' || table === 'parts')
  return [...(isRead ? [`${table} ${index ?? type}`] : []), ...plans.flatMap(readsOf)]
}

describe.runIf(needs('postgres'))('PostgreSQL with 6,000 webhooks', () => {
  let postgres: Postgres
  beforeAll(async () => {
    postgres = await Postgres.start()
    const place = { ...readPostgresUrl(postgres.url), passwordFile: undefined, ca: undefined }
    await (await openPostgres({ ...place, logger: noLogger })).close()
    await postgres.query(
      `SET search_path = sallyport_inbox;
      INSERT INTO messages (id, runtime, lane, route, why, state, received, expires, bytes, parts, attempts, failures, refusals,
        "failedSince", next, changed, key, enc, caller, reason, dedupe, "dedupeMs", owner)
      SELECT gen_random_uuid(), 'runtime' || i % 400, 'lane' || i % 7, 'r', 'offline', (ARRAY['waiting', 'dead', 'delivered'])[i % 3 + 1],
        i, i, 9, 2, 0, 0, 0, 0, 0, i, '', '', '', CASE i % 3 WHEN 1 THEN 'expired' ELSE '' END, 'digest' || i, 0, '' FROM generate_series(1, 6000) AS i;
      INSERT INTO parts SELECT id, n, 'x' FROM messages, generate_series(0, 1) AS n;
      INSERT INTO lanes SELECT DISTINCT runtime, lane, 'server' FROM messages;
      INSERT INTO rules SELECT i, '{}', i FROM generate_series(1, 400) AS i;
      INSERT INTO servers SELECT i, now() FROM generate_series(1, 9) AS i`,
      'sallyport',
    )
    await postgres.query('VACUUM ANALYZE', 'sallyport')
  })
  afterAll(async () => {
    await postgres.stop()
  })

  const statements: [string, string][] = [
    ...Object.entries(sql).filter((pair): pair is [string, string] => STATEMENT.test(String(pair[1]))),
    ...Object.entries(CHANGES).map(([name, changes]): [string, string] => {
      const [step] = sql.stepsOf(changes, SELF)
      return [name, step!.statement.text]
    }),
  ]

  test('finds the beginning of an id by an index, from PostgreSQL 15 on', async () => {
    const plain = sql.LIST.replace(
      /\$\d+/g,
      name => ({ $2: "''", $4: '0', $5: "'0b5f1c2e'", $6: "''", $8: '9' })[name] ?? 'NULL',
    )
    const explain = `SET search_path = sallyport_inbox; EXPLAIN (FORMAT JSON) ${plain}`
    const [{ server_version_num: version }] = (await postgres.query('SHOW server_version_num')) as [
      { server_version_num: string },
    ]
    const client = new Client({ host: postgres.folder, port: postgres.port, user: 'sallyport', database: 'sallyport' })
    await client.connect()
    const answers = (await client.query(explain)) as unknown as { rows: { 'QUERY PLAN': { Plan: Plan }[] }[] }[]
    await client.end()
    const plan = JSON.stringify(answers.at(-1)!.rows)
    if (Number(version) >= 150_000) expect(plan).toContain("(id >= '0b5f1c2e'::text)")
  })

  test.each(statements)('finds the rows of %s by an index', async (name, text) => {
    const count = Math.max(0, ...[...text.matchAll(/\$(\d+)/g)].map(([, nr]) => Number(nr)))
    const values = count === 0 ? '' : `(${Array(count).fill('NULL').join(', ')})`
    // Planned for any values, so that only what the statement itself says is known, and without the ways that suit small tables.
    const explain = `SET search_path = sallyport_inbox; SET plan_cache_mode = force_generic_plan;
      SET enable_seqscan = off; SET enable_bitmapscan = off;
      PREPARE one AS ${text}; EXPLAIN (FORMAT JSON) EXECUTE one ${values}`
    const client = new Client({ host: postgres.folder, port: postgres.port, user: 'sallyport', database: 'sallyport' })
    await client.connect()
    const answers = (await client.query(explain)) as unknown as { rows: { 'QUERY PLAN': { Plan: Plan }[] }[] }[]
    await client.end()
    const [row] = answers.at(-1)!.rows
    const reads = [...new Set(readsOf(row!['QUERY PLAN'][0]!.Plan))].sort()
    expect(reads).toEqual(READS[name] ?? [])
  })
})
