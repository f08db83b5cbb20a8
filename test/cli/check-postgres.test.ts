// @module-tag slow
/** `sallyport check server` with an inbox in PostgreSQL: each probe against the fault that it reports. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { noLogger } from '../../protocol/base/log.ts'
import type { Probe } from '../../protocol/base/probe.ts'
import { openPostgres, type PostgresStore } from '../../server/inbox/postgres.ts'
import { readPostgresUrl } from '../../server/inbox/postgres-url.ts'
import { append, message } from '../server/inbox/messages.ts'
import { needs } from '../support/needs.ts'
import { PgBouncer } from '../support/pgbouncer.ts'
import { PASSWORD, Postgres } from '../support/postgres.ts'
import { makeSecrets, type Secrets } from '../support/secrets.ts'
import { until } from '../support/until.ts'
import { useMachine } from './machine.ts'
import { sallyport } from './run.ts'

const machine = useMachine()

/** The probes of the inbox. */
async function check(url: string, ...more: string[]) {
  const { code, out, notes } = await sallyport([
    ...['check', 'server', '--json', ...machine.serverArgs('--inbox', url, ...more).slice(1)],
  ])
  expect(out + notes).not.toContain(PASSWORD)
  const probes = (JSON.parse(out) as { probes: Probe[] }).probes.filter(probe => probe.code.startsWith('inbox'))
  const [database, disk, room] = probes
  return { code, database: database!, disk: disk!, room: room!, statuses: probes.map(({ status }) => status) }
}

/** A disk that others use is slow, too. */
const isWell = [
  ['ok', 'ok', 'ok'],
  ['ok', 'warn', 'ok'],
]
const NONE_REACHED = ['fail', 'skip', 'skip']

describe.runIf(needs('postgres'))('PostgreSQL', () => {
  let postgres: Postgres
  const open: PostgresStore[] = []
  const start = async () => {
    const place = { ...readPostgresUrl(postgres.url), passwordFile: undefined, ca: undefined }
    const store = await openPostgres({ ...place, logger: noLogger })
    open.push(store)
    return store
  }
  const schemas = async () => {
    const found = await postgres.query("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'sally%'", 'sallyport')
    return found.map(({ nspname }) => nspname)
  }
  const set = async (name: string, value: string) => {
    await postgres.query(`ALTER SYSTEM SET ${name} = ${value}`)
    await postgres.query('SELECT pg_reload_conf()')
    await until(async () => (await postgres.query(`SHOW ${name}`))[0]![name] === value.replaceAll("'", ''))
  }
  const reset = async (name: string) => {
    await postgres.query(`ALTER SYSTEM RESET ${name}`)
    await postgres.query('SELECT pg_reload_conf()')
  }

  beforeAll(async () => {
    postgres = await Postgres.start()
    await postgres.query('CREATE ROLE guest LOGIN')
  })
  afterAll(() => postgres.stop())
  afterEach(async () => {
    for (const store of open.splice(0)) await store.close()
    await postgres.clear()
  })

  test('that is empty, or in use by a server: nothing changes there', async () => {
    const empty = await check(postgres.url)
    expect(isWell).toContainEqual(empty.statuses)
    expect([empty.code, empty.disk.found]).toEqual([0, expect.stringMatching(/^\d+\.\d ms to commit 4 KiB/)])
    expect(await schemas()).toEqual([])
    const store = await start()
    await append(store, message('a'))
    const dump = async () => {
      const tables = ['messages', 'parts', 'rules', 'paused', 'lanes', 'version']
      return await Promise.all(tables.map(name => postgres.query(`TABLE sallyport_inbox.${name}`, 'sallyport')))
    }
    const [before, servers] = [
      await dump(),
      await postgres.query('SELECT id FROM sallyport_inbox.servers', 'sallyport'),
    ]
    const used = await check(postgres.url)
    expect(isWell).toContainEqual(used.statuses)
    expect(await dump()).toEqual(before)
    expect(await postgres.query('SELECT id FROM sallyport_inbox.servers', 'sallyport')).toEqual(servers)
    expect(await append(store, message('b'))).toMatchObject({ status: 'stored' })
    const left = "SELECT FROM pg_stat_activity WHERE application_name = 'sallyport' AND xact_start IS NOT NULL"
    await until(async () => (await postgres.query(left)).length === 0)
  })

  test('whose user lacks a right: the first start, and a later one', async () => {
    const guest = postgres.url.replace('sallyport@', 'guest@')
    const first = await check(guest)
    expect(first.statuses).toEqual(NONE_REACHED)
    expect([first.code, first.database.found]).toEqual([5, 'permission denied for database sallyport'])
    await (await start()).close()
    expect((await check(guest)).database.found).toBe('its user may not use the schema sallyport_inbox')
    await postgres.query('GRANT USAGE ON SCHEMA sallyport_inbox TO guest', 'sallyport')
    await postgres.query('GRANT SELECT ON ALL TABLES IN SCHEMA sallyport_inbox TO guest', 'sallyport')
    expect((await check(guest)).database.found).toMatch(/^its user may not (INSERT|UPDATE|DELETE) in sallyport_inbox/)
    await postgres.query('GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA sallyport_inbox TO guest', 'sallyport')
    expect(isWell).toContainEqual((await check(guest)).statuses)
  })

  test('whose user may not write to its log alone, which servers need not: how long that takes is not known', async () => {
    const emits = "SELECT oid::regprocedure AS name FROM pg_proc WHERE proname = 'pg_logical_emit_message'"
    const names = (await postgres.query(emits, 'sallyport')).map(({ name }) => String(name)).join(', ')
    await postgres.query('GRANT CREATE ON DATABASE sallyport TO guest')
    await postgres.query(`REVOKE EXECUTE ON FUNCTION ${names} FROM PUBLIC`, 'sallyport')
    try {
      const { code, statuses } = await check(postgres.url.replace('sallyport@', 'guest@'))
      expect([code, statuses]).toEqual([0, ['ok', 'skip', 'ok']])
    } finally {
      await postgres.query(`GRANT EXECUTE ON FUNCTION ${names} TO PUBLIC`, 'sallyport')
      await postgres.query('REVOKE CREATE ON DATABASE sallyport FROM guest')
    }
  })

  test.runIf(needs('pgbouncer'))('behind a pooler that does not keep sessions', async () => {
    const pooler = await PgBouncer.start(postgres, ['pool_mode = transaction'])
    try {
      const { statuses, database } = await check(`postgres://sallyport@127.0.0.1:${pooler.port}/sallyport`)
      expect([statuses, database.found]).toEqual([NONE_REACHED, expect.stringContaining('pool_mode = session')])
    } finally {
      await pooler.stop()
    }
  })

  test('that is too old, without the database, or of a newer schema', async () => {
    // What PostgreSQL says of itself comes from a function, which a schema that is searched first replaces.
    const lie = "SELECT CASE name WHEN 'server_version_num' THEN '130022' ELSE pg_catalog.current_setting(name) END"
    await postgres.query('CREATE SCHEMA old', 'sallyport')
    await postgres.query(
      `CREATE FUNCTION old.current_setting(name text) RETURNS text LANGUAGE sql AS $$ ${lie} $$`,
      'sallyport',
    )
    await postgres.query('ALTER DATABASE sallyport SET search_path = old, pg_catalog')
    try {
      const old = await check(postgres.url)
      expect([old.statuses, old.database.found]).toEqual([NONE_REACHED, 'this is PostgreSQL 13: use 14 or newer'])
    } finally {
      await postgres.query('ALTER DATABASE sallyport RESET search_path')
      await postgres.query('DROP SCHEMA old CASCADE', 'sallyport')
    }
    expect((await check(postgres.url.replace(/sallyport$/, 'none'))).database.found).toBe(
      'database "none" does not exist',
    )
    await (await start()).close()
    await postgres.query('UPDATE sallyport_inbox.version SET version = 9', 'sallyport')
    expect((await check(postgres.url)).database.found).toMatch(/newer sallyport/)
  })

  test('whose commits are slow, or wait for a standby that is not there', async () => {
    await set('commit_siblings', '0')
    await set('commit_delay', '100000')
    const slow = await check(postgres.url)
    expect([slow.statuses, slow.disk.hint]).toEqual([['ok', 'warn', 'ok'], expect.stringContaining('faster disk')])
    await reset('commit_delay')
    await reset('commit_siblings')
    await set('synchronous_standby_names', "'none'")
    const waiting = await check(postgres.url)
    expect([waiting.statuses, waiting.code]).toEqual([['ok', 'fail', 'ok'], 5])
    expect(waiting.disk.found).toBe('no answer in time')
    await reset('synchronous_standby_names')
  })

  test('with quotas that are half full, or full', async () => {
    const store = await start()
    for (const id of ['a', 'b', 'c']) await append(store, message(id))
    const most = (count: string) => check(postgres.url, '--inbox.messages-per-runtime', count)
    expect((await most('7')).room.status).toBe('ok')
    expect((await most('6')).room).toMatchObject({
      status: 'warn',
      found: expect.stringMatching(/over half is used for demo$/) as unknown,
    })
    const full = await most('3')
    expect([full.code, full.room.status, full.room.found]).toEqual([
      5,
      'fail',
      expect.stringMatching(/no room for demo$/),
    ])
    expect((await check(postgres.url, '--inbox.bytes', '36B')).room.status).toBe('fail')
  })

  test('that hangs, and one that is away', async () => {
    postgres.pause()
    try {
      const hung = await check(postgres.url)
      expect([hung.statuses, hung.database.found]).toEqual([NONE_REACHED, 'no answer in time'])
    } finally {
      postgres.resume()
    }
    await postgres.kill()
    const gone = await check(postgres.url)
    expect(gone.statuses).toEqual(NONE_REACHED)
    expect(gone.database.found).toContain('ECONNREFUSED')
    await postgres.start()
  })

  test('that is a standby', async () => {
    await postgres.kill()
    writeFileSync(join(postgres.folder, 'data', 'standby.signal'), '')
    await postgres.start()
    try {
      const standby = await check(postgres.url)
      expect([standby.statuses, standby.database.found]).toEqual([
        NONE_REACHED,
        'this PostgreSQL is read-only: use the address of the primary',
      ])
    } finally {
      await postgres.query('SELECT pg_promote()')
    }
  })
})

describe.runIf(needs('postgres'))('PostgreSQL with TLS and a password', () => {
  let secrets: Secrets
  let postgres: Postgres
  beforeAll(async () => {
    secrets = await makeSecrets()
    postgres = await Postgres.start({ tls: secrets })
    writeFileSync(machine.file('postgres-ca.pem'), secrets.ca)
    writeFileSync(machine.file('password'), PASSWORD, { mode: 0o600 })
    writeFileSync(machine.file('wrong-password'), `not-${PASSWORD}`, { mode: 0o600 })
  })
  afterAll(() => postgres.stop())

  test('takes the right ones alone', async () => {
    const url = `${postgres.url}?sslmode=verify-full`
    const trust = ['--inbox.tls.ca', machine.file('postgres-ca.pem')]
    const login = ['--inbox.password.file', machine.file('password')]
    expect(isWell).toContainEqual((await check(url, ...trust, ...login)).statuses)
    const wrong = await check(url, ...trust, '--inbox.password.file', machine.file('wrong-password'))
    expect(wrong.statuses).toEqual(NONE_REACHED)
    expect(wrong.database.found).toBe('password authentication failed for user "sallyport"')
    const none = await check(url, ...trust)
    expect([none.statuses, none.database.found]).toEqual([NONE_REACHED, expect.stringMatching(/password/)])
    const stranger = await check(url, '--inbox.tls.ca', machine.file('ca.pem'), ...login)
    expect([stranger.statuses, stranger.database.found]).toEqual([NONE_REACHED, expect.stringMatching(/certificate/)])
    const plain = await check(postgres.url, ...login)
    expect([plain.statuses, plain.database.found]).toEqual([NONE_REACHED, expect.stringMatching(/no encryption/)])
  })
})
