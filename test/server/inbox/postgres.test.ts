// @module-tag slow
/** An inbox in PostgreSQL: what cannot be used, what happens when it fails, and who has a lane. */
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import pg, { Client } from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import type { Logger } from '../../../protocol/base/log.ts'
import { Attempts } from '../../../server/inbox/attempts.ts'
import { openPostgres, type PostgresOptions, PostgresStore } from '../../../server/inbox/postgres.ts'
import { lacksStandby } from '../../../server/inbox/postgres-errors.ts'
import { problemOf } from '../../../server/inbox/postgres-schema.ts'
import { DELETE_ORPHANS } from '../../../server/inbox/postgres-sql.ts'
import { readPostgresUrl } from '../../../server/inbox/postgres-url.ts'
import type { Contents, Message, StoreError } from '../../../server/inbox/store.ts'
import { unhurried } from '../../support/busy.ts'
import { needs } from '../../support/needs.ts'
import { PgBouncer } from '../../support/pgbouncer.ts'
import { PASSWORD, Postgres } from '../../support/postgres.ts'
import { makeSecrets, type Secrets } from '../../support/secrets.ts'
import { eventually, until } from '../../support/until.ts'
import { append, bytes, contentsOf, message, NOW } from './messages.ts'

/** How long the machine of all servers was suspended. */
const machine = vi.hoisted(() => ({ suspendedMs: 0 }))
vi.mock(import('../../../protocol/base/elapsed.ts'), async original => {
  const { elapsedMs, ...rest } = await original()
  return { ...rest, elapsedMs: () => elapsedMs() + machine.suspendedMs }
})

describe('a URL', () => {
  test.each([
    [
      'postgres://u@db.example.com/inbox',
      { host: 'db.example.com', port: 5432, database: 'inbox', user: 'u', tls: true },
    ],
    ['postgresql://u@127.0.0.1:6000/inbox', { host: '127.0.0.1', port: 6000, tls: false }],
    ['postgres://u@[::1]/inbox', { host: '::1', tls: false }],
    ['postgres:///inbox?host=/run/postgresql&user=u%40v', { host: '/run/postgresql', user: 'u@v', tls: false }],
    ['postgres://u@db/inbox?sslmode=disable', { tls: false }],
    ['postgres://u@127.0.0.1/inbox?sslmode=verify-full', { tls: true }],
  ])('%s', (url, place) => {
    expect(readPostgresUrl(url)).toMatchObject(place)
  })
  test.each([
    ['postgres://u:opensesame@db/inbox', /put it into a file/],
    ['postgres://u:opensesame@/inbox', /expected postgres:/],
    ['postgres://db/inbox', /expected postgres:/],
    ['postgres://u@db/', /expected postgres:/],
    ['postgres://u@db/inbox?sslmode=require', /sslmode must be verify-full/],
    ['postgres://u@db/inbox?password=opensesame', /only host, user and sslmode are allowed/],
  ])('I3: %s is refused, and its password is not shown', (url, problem) => {
    expect(() => readPostgresUrl(url)).toThrow(problem)
    expect(() => readPostgresUrl(url)).toThrow(/^(?!.*opensesame)/)
  })
})

test.each([
  ['SyncRepWaitForLSN', true],
  ['asyncQueueFillWarning', false],
  ['exec_stmt_raise', false],
])('as it commits, a warning of %s', (routine, lacks) => {
  expect(lacksStandby({ routine })).toBe(lacks)
})

test.each([
  [{ version: 130_022, readonly: false, fsync: true }, 'this is PostgreSQL 13: use 14 or newer'],
  [{ version: 140_000, readonly: true, fsync: true }, /read-only/],
  [{ version: 140_000, readonly: false, fsync: false }, /fsync off/],
  [{ version: 140_000, readonly: false, fsync: true }, undefined],
])('a server that says %o', (said, problem) => {
  const told = problemOf(said)
  if (problem === undefined) expect(told).toBeUndefined()
  else expect(told).toMatch(problem)
})

const LEASE_MS = unhurried(1500)

describe.runIf(needs('postgres'))('a real one', () => {
  let postgres: Postgres
  const open: PostgresStore[] = []
  const logged: string[] = []
  const log = (fields: object, text: string) => logged.push(`${JSON.stringify(fields)} ${text}`)
  const logger = { debug: log, info: log, warn: log, error: log } as unknown as Logger

  const place = () => ({ ...readPostgresUrl(postgres.url), passwordFile: undefined, ca: undefined, logger })
  const start = async (more: Partial<PostgresOptions> = {}): Promise<PostgresStore> => {
    const store = await openPostgres({ ...place(), ...more })
    open.push(store)
    return store
  }
  /** One whose connections are of classes of the test. It is not started. */
  const over = (classes: Partial<typeof pg>, more: Partial<PostgresOptions> = {}): PostgresStore => {
    const store = new PostgresStore({ ...place(), ...more }, { ...pg, ...classes })
    open.push(store)
    return store
  }

  /** A connection of somebody else. */
  const another = async (host = postgres.folder, port = postgres.port): Promise<Client> => {
    const client = new Client({ host, port, user: 'sallyport', database: 'sallyport' })
    client.on('error', () => {})
    await client.connect()
    return client
  }

  /** Runs a trigger of this name before each change of a table. `body` is what it does with the row `NEW`. */
  const trigger = async (name: string, body: string, when: string) => {
    await postgres.query(
      `CREATE FUNCTION ${name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ${body} END $$`,
      'sallyport',
    )
    await postgres.query(`CREATE TRIGGER hears BEFORE ${when} FOR EACH ROW EXECUTE FUNCTION ${name}()`, 'sallyport')
  }

  beforeAll(async () => {
    postgres = await Postgres.start()
  })
  afterAll(async () => {
    await postgres.stop()
  })
  afterEach(async () => {
    for (const store of open.splice(0)) await store.close()
    await postgres.clear()
    logged.length = 0
  })

  test('that is empty gets its tables once, although several servers start together', async () => {
    for (const store of await Promise.all([1, 2, 3, 4, 5].map(() => start()))) expect(store.stats().open).toBe(true)
    expect(await postgres.query('SELECT version FROM sallyport_inbox.version', 'sallyport')).toEqual([{ version: 1 }])
  })

  test('that has an empty schema gets its tables, with no right but on that', async () => {
    await postgres.query('CREATE ROLE tenant LOGIN; CREATE SCHEMA sallyport_inbox AUTHORIZATION tenant', 'sallyport')
    expect(await append(await start({ user: 'tenant' }), message('a'))).toMatchObject({ status: 'stored' })
  })

  describe('that cannot be used stops the start', () => {
    test('without the right to create the tables, or to use existing ones', async () => {
      await postgres.query('CREATE ROLE guest LOGIN')
      await expect(start({ user: 'guest' })).rejects.toThrow('inbox: permission denied for database sallyport')
      await (await start()).close()
      await expect(start({ user: 'guest' })).rejects.toThrow('inbox: its user may not use the schema sallyport_inbox')
      await postgres.query('GRANT USAGE ON SCHEMA sallyport_inbox TO guest', 'sallyport')
      await postgres.query('GRANT SELECT ON ALL TABLES IN SCHEMA sallyport_inbox TO guest', 'sallyport')
      await expect(start({ user: 'guest' })).rejects.toThrow(/its user may not INSERT in sallyport_inbox\./)
      await postgres.query('GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA sallyport_inbox TO guest', 'sallyport')
      expect(await append(await start({ user: 'guest' }), message('a'))).toMatchObject({ status: 'stored' })
    })

    test('of a newer version, read-only, without the database, without fsync', async () => {
      await (await start()).close()
      await postgres.query('UPDATE sallyport_inbox.version SET version = 9', 'sallyport')
      await expect(start()).rejects.toThrow(/newer sallyport \(schema 9, this one has 1\)/)
      await postgres.query('UPDATE sallyport_inbox.version SET version = 1', 'sallyport')
      await expect(start({ database: 'none' })).rejects.toThrow('inbox: database "none" does not exist')
      await postgres.query('ALTER DATABASE sallyport SET default_transaction_read_only = on')
      await expect(start()).rejects.toThrow(/read-only/)
      await postgres.query('ALTER DATABASE sallyport RESET default_transaction_read_only')
      await postgres.query('ALTER SYSTEM SET fsync = off')
      await postgres.query('SELECT pg_reload_conf()')
      await until(async () => (await postgres.query('SHOW fsync'))[0]!.fsync === 'off')
      await expect(start()).rejects.toThrow(/fsync off/)
      await postgres.query('ALTER SYSTEM RESET fsync')
      await postgres.query('SELECT pg_reload_conf()')
      await until(async () => (await postgres.query('SHOW fsync'))[0]!.fsync === 'on')
    })

    test('a password file that is missing or empty', async () => {
      const passwordFile = join(postgres.folder, 'none')
      await expect(start({ passwordFile })).rejects.toThrow(/^inbox: ENOENT.*none/)
      writeFileSync(passwordFile, '\n')
      await expect(start({ passwordFile })).rejects.toThrow(/none is empty/)
    })
  })

  test("a commit waits for the disk, whatever the database's settings", async () => {
    await (await start()).close()
    await postgres.query('ALTER DATABASE sallyport SET synchronous_commit = off')
    const told = "NEW.rules = current_setting('synchronous_commit'); RETURN NEW;"
    await trigger('tell', told, 'INSERT ON sallyport_inbox.rules')
    await (await start()).apply({ op: 'rules', runtime: 'demo', rules: 'x', at: NOW })
    expect(await postgres.query('SELECT rules FROM sallyport_inbox.rules', 'sallyport')).toEqual([{ rules: 'on' }])
    await postgres.query('ALTER DATABASE sallyport RESET synchronous_commit')
    await postgres.query('DROP FUNCTION tell CASCADE', 'sallyport')
  })

  test('with parts that somebody has locked opens, and what is left of long bodies goes once they are free', async () => {
    await (await start()).close()
    const old = "now() - interval '2 days'"
    await postgres.query(
      `INSERT INTO sallyport_inbox.parts SELECT 'left' || i, n, 'x', ${old} FROM generate_series(1, 2500) AS i, generate_series(0, 1) AS n;
       INSERT INTO sallyport_inbox.parts VALUES ('new', 1, 'x', now())`,
      'sallyport',
    )
    const other = await another()
    await other.query('BEGIN; LOCK TABLE sallyport_inbox.parts')
    const store = await start({ queryMs: 1000 })
    expect(store.stats().open).toBe(true)
    const keep = { deadMs: 1, deliveredMs: 1, maxDelivered: 1, rulesMs: 1 }
    expect(await store.sweep(NOW, keep)).toMatchObject({ expired: [] })
    expect(logged.at(-1)).toContain('a sweep of the inbox could not delete what is old')
    await other.end()
    await append(store, message('kept', { expires: NOW * 2 }))
    await postgres.query(`UPDATE sallyport_inbox.parts SET came = ${old} WHERE id = 'kept'`, 'sallyport')
    const parts = async () =>
      await postgres.query('SELECT id, n FROM sallyport_inbox.parts ORDER BY id, n', 'sallyport')
    const rest = [
      ['kept', 0],
      ['kept', 1],
      ['new', 1],
    ].map(([id, n]) => ({ id, n }))
    await eventually(async () => {
      await store.sweep(NOW, keep)
      expect(await parts()).toEqual(rest)
    })
  })

  describe("with a clock that jumps by a day as a long webhook's message comes behind its parts,", () => {
    /** Its first part is in the store, from before the jump. */
    const begun = async () => {
      const store = await start({ queryMs: 60_000 })
      await store.apply({ op: 'part', id: 'long', n: 1, bytes: bytes('ahead') })
      await postgres.query("UPDATE sallyport_inbox.parts SET came = now() - interval '2 days'", 'sallyport')
      return store
    }
    const isWaiting = async (statement: string) => {
      const waiting = `SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '${statement}%'`
      await until(async () => (await postgres.query(waiting)).length > 0)
    }

    test('none of its parts goes once it is being stored', async () => {
      const store = await begun()
      const other = await another()
      await trigger('waits', 'PERFORM pg_advisory_xact_lock(1); RETURN NEW;', 'INSERT ON sallyport_inbox.messages')
      await other.query('SELECT pg_advisory_lock(1)')
      const stored = append(store, message('long', { parts: 3 }), 'rest')
      await isWaiting('WITH same')
      const swept = store.sweep(NOW, { deadMs: 1, deliveredMs: 1, maxDelivered: 1, rulesMs: 1 })
      await isWaiting('WITH page')
      await other.end()
      expect(await stored).toMatchObject({ status: 'stored' })
      await swept
      for (const n of [0, 1, 2]) expect(await store.part('long', n)).toBeDefined()
    })

    test('it is not stored once its parts go', async () => {
      const store = await begun()
      const other = await another()
      await other.query('SET search_path = sallyport_inbox; BEGIN')
      await other.query(DELETE_ORPHANS, ['', 0])
      const stored = append(store, message('long', { parts: 3 }), 'rest')
      await isWaiting('WITH same')
      await other.query('COMMIT')
      await other.end()
      expect(await stored).toMatchObject({ status: 'absent' })
      expect(await postgres.query('SELECT id FROM sallyport_inbox.parts', 'sallyport')).toEqual([])
    })
  })

  describe('with so much that counting takes longer than a query may', () => {
    const queryMs = unhurried(500)
    class SlowClient extends pg.Client {
      override query = ((...asked: unknown[]) => {
        const [first] = asked as [string | pg.QueryConfig]
        if (typeof first === 'string' || !first.text.includes('"refusedBytes"'))
          return super.query(...(asked as [string]))
        const slept = `FROM (SELECT pg_sleep(${(3 * queryMs) / 1000})) AS slow, messages`
        return super.query({ ...first, text: first.text.replace('FROM messages', slept) })
      }) as pg.Client['query']
    }
    class SlowPool extends pg.Pool {
      constructor(config: pg.PoolConfig) {
        super({ ...config, Client: SlowClient })
        this.on('connect', reader => SlowPool.connected(reader))
      }
      static connected: (reader: Client) => void = () => {}
    }
    const stored = async () => {
      const store = await start()
      await append(store, message('a'))
      await store.close()
    }
    const counting = () =>
      postgres.query("SELECT FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' AND wait_event = 'PgSleep'")

    test('opens', async () => {
      await stored()
      const store = over({ Pool: SlowPool as unknown as typeof pg.Pool }, { queryMs })
      await store.start()
      expect(contentsOf(store)).toMatchObject({ counts: [{ messages: 1 }], lanes: [{ messages: 1 }] })
      expect(logged.filter(line => line.includes('is away'))).toEqual([])
    })

    test('is opened once more if a connection breaks meanwhile', async () => {
      await stored()
      const store = over({ Pool: SlowPool as unknown as typeof pg.Pool }, { queryMs, leaseMs: 6 * queryMs })
      const started = store.start()
      await until(async () => (await counting()).length === 1)
      await postgres.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'WITH busy%'")
      await started
      await until(() => store.stats().open)
      expect(logged.filter(line => line.includes('is away'))).toHaveLength(1)
      expect(await store.list({ limit: 9 })).toHaveLength(1)
    })

    test('is not waited for as it closes', async () => {
      await stored()
      const store = over({ Pool: SlowPool as unknown as typeof pg.Pool }, { queryMs: 20_000 })
      const readers: Client[] = []
      SlowPool.connected = reader => void readers.push(reader)
      const started = store.start()
      await until(async () => (await counting()).length === 1)
      await store.close()
      await started
      const streams = readers.map(reader => (reader as unknown as { connection: { stream: Socket } }).connection.stream)
      expect(streams.map(({ destroyed }) => destroyed)).toEqual([true])
    })
  })

  describe('that does not answer in time', () => {
    /** The answer to the next query like this is lost. */
    let unanswered: RegExp | undefined
    const ask = <Answer>(asked: unknown[], query: (...asked: never[]) => Answer): Answer => {
      const [first] = asked as [string | { text: string }]
      const { text } = typeof first === 'string' ? { text: first } : first
      if (unanswered?.test(text) !== true) return query(...(asked as never[]))
      unanswered = undefined
      const lost = () => Promise.reject(new Error('Query read timeout'))
      return Promise.resolve(query(...(asked as never[]))).then(lost) as Answer
    }
    class AskedClient extends pg.Client {
      override query = ((...asked: unknown[]) => ask(asked, super.query.bind(this))) as pg.Client['query']
    }
    class AskedPool extends pg.Pool {
      override query = ((...asked: unknown[]) => ask(asked, super.query.bind(this))) as pg.Pool['query']
    }

    const begin = async (more: Partial<PostgresOptions> = { leaseMs: 1000 }) => {
      const store = over({ Client: AskedClient, Pool: AskedPool }, more)
      const states: boolean[] = []
      store.onState = state => void states.push(state.open)
      await store.start()
      states.length = 0
      return { store, states }
    }

    test('as its connection is kept alive: all connections are opened anew', async () => {
      const { states } = await begin()
      unanswered = /^SELECT$/
      await until(() => states.join() === 'false,true')
    })

    test('as rules are read again: they are read once more, and the store stays open', async () => {
      const { store, states } = await begin()
      const told: unknown[] = []
      store.shared.onRules = ({ rules }) => told.push(rules)
      unanswered = / AS rules, seen/
      await store.apply({ op: 'rules', runtime: 'demo', rules: 'x', at: NOW })
      await eventually(() => expect(told.at(-1)).toEqual([{ runtime: 'demo', rules: 'x', seen: NOW }]))
      expect(unanswered).toBeUndefined()
      expect(states).toEqual([])
    })

    test('as a webhook is stored: that has failed, and is not tried again', async () => {
      const { store } = await begin()
      unanswered = /^COMMIT$/
      await expect(append(store, message('a'))).rejects.toMatchObject({ kind: 'away' })
    })

    test('as webhooks expire: the next sweep tells of these dead letters, once', async () => {
      const { store, states } = await begin({})
      for (const id of ['a', 'b']) await append(store, message(id))
      await append(store, message('later', { expires: NOW + 2500 }))
      const keep = { deadMs: 10_000, deliveredMs: 1, maxDelivered: 1, rulesMs: 1 }
      unanswered = /^UPDATE messages SET state = 'dead'/
      await expect(store.sweep(NOW + 2000, keep)).rejects.toMatchObject({ kind: 'away' })
      expect(states).toEqual([])
      const sweep = async () => {
        const { expired, more } = await store.sweep(NOW + 3000, keep)
        return [expired.map(({ id }) => id).sort(), more]
      }
      expect(await sweep()).toEqual([['a', 'b'], true])
      expect(await sweep()).toEqual([['later'], false])
      expect(await sweep()).toEqual([[], false])
    })

    describe('as the only webhook of a lane ends', () => {
      const end = async (how: (attempts: Attempts, message: Message) => Promise<unknown>) => {
        const { store, states } = await begin({})
        const told: string[] = []
        const attempts = new Attempts({
          ...{ store, now: Date.now, random: () => 0.5, deliver: () => expect.unreachable() },
          async pauseAfter(error) {
            if ((error as StoreError).kind === 'gone') throw error
            await until(() => states.join() === 'false,true')
          },
          onProgress: ({ id }, _, { state }) => told.push(`${id} ${state}`),
          onGivenUp: ({ id }, reason) => told.push(`${id} ${reason}`),
        })
        await append(store, message('a'))
        const [first] = (await store.next('demo', 'l', 1))!
        unanswered = /^COMMIT$/
        await how(attempts, first!)
        return told
      }

      test('that it is a dead letter is told once', async () => {
        expect(await end((attempts, first) => attempts.giveUp(first, 'expired'))).toEqual(['a expired'])
      })

      test('that it was delivered is told once', async () => {
        const outcome = { kind: 'delivered', reason: '200' } as const
        expect(await end((attempts, first) => attempts.record(first, outcome))).toEqual(['a delivered'])
      })
    })
  })

  describe.runIf(needs('pgbouncer'))('behind a pooler', () => {
    const DROPS =
      'ignore_startup_parameters = options, statement_timeout, lock_timeout, idle_in_transaction_session_timeout'
    let pooler: PgBouncer | undefined
    const behind = async (...lines: string[]): Promise<PostgresStore> => {
      pooler = await PgBouncer.start(postgres, lines)
      return await start({ host: '127.0.0.1', port: pooler.port })
    }
    const settings = ['search_path', 'synchronous_commit', 'statement_timeout', 'lock_timeout']

    afterEach(async () => {
      for (const store of open.splice(0)) await store.close()
      await pooler?.stop()
      pooler = undefined
    })

    test.each([
      ['that takes no setting with the first packet', 'pool_mode = session'],
      ['that drops settings', DROPS],
    ])('%s and keeps sessions: each connection has its settings', async (_, line) => {
      await (await start()).close()
      await postgres.query('ALTER DATABASE sallyport SET synchronous_commit = off')
      const said = settings.map(name => `current_setting('${name}')`).join(` || ', ' || `)
      await trigger('public.tell', `NEW.rules = ${said}; RETURN NEW;`, 'INSERT ON sallyport_inbox.rules')
      try {
        const [one, other] = [await behind(line), await start()]
        let heard = 0
        other.shared.onLane = () => void heard++
        await one.apply({ op: 'rules', runtime: 'demo', rules: 'x', at: NOW })
        expect(await postgres.query('SELECT rules FROM sallyport_inbox.rules', 'sallyport')).toEqual([
          { rules: 'sallyport_inbox, on, 8s, 2s' },
        ])
        expect(await append(one, message('a'))).toMatchObject({ status: 'stored' })
        await until(() => heard > 0)
        expect(await one.list({ limit: 9 })).toMatchObject([{ id: 'a' }])
      } finally {
        await postgres.query('ALTER DATABASE sallyport RESET synchronous_commit')
        await postgres.query('DROP FUNCTION public.tell CASCADE', 'sallyport')
      }
    })

    test('that lends connections per transaction: it is refused, and none of its settings is left behind', async () => {
      await expect(behind('pool_mode = transaction', 'default_pool_size = 2', DROPS)).rejects.toThrow(
        'inbox: notifications do not arrive: a pooler must pool by session (pool_mode = session)',
      )
      const other = await another('127.0.0.1', pooler!.port)
      const { rows } = await other.query<{ search_path: string }>('SHOW search_path')
      expect(rows).toEqual([{ search_path: '"$user", public' }])
      await other.end()
    })
  })

  test('a database that ends idle connections ends none of ours', async () => {
    await postgres.query("ALTER DATABASE sallyport SET idle_session_timeout = '300ms'")
    try {
      const store = await start()
      const other = await another()
      // This one was just as idle, for a shorter time.
      await new Promise(ended => other.once('end', ended))
      expect(await append(store, message('a'))).toMatchObject({ status: 'stored' })
      expect(logged.filter(line => line.includes('is away'))).toEqual([])
    } finally {
      await postgres.query('ALTER DATABASE sallyport RESET idle_session_timeout')
    }
  })

  test('a middlebox that ends idle connections ends none of ours', async () => {
    const idleMs = unhurried(1500)
    const between = createServer(near => {
      const far = connect({ host: '127.0.0.1', port: postgres.port })
      for (const [one, other] of [
        [near, far],
        [far, near],
      ] as const) {
        one.on('error', () => {}).on('close', () => other.destroy())
        one.setTimeout(idleMs, () => one.destroy()).pipe(other)
      }
    })
    between.listen(0, '127.0.0.1')
    await once(between, 'listening')
    const store = await start({ port: (between.address() as AddressInfo).port, leaseMs: LEASE_MS })
    // It is as idle as the store was, for a shorter time.
    const other = connect({ host: '127.0.0.1', port: (between.address() as AddressInfo).port })
    await once(other, 'close')
    expect(await append(store, message('a'))).toMatchObject({ status: 'stored' })
    expect(logged.filter(line => line.includes('is away'))).toEqual([])
    await store.close()
    between.close()
  })

  test('a webhook that PostgreSQL refuses does not take down the ones stored with it', async () => {
    const store = await start()
    const bad = append(store, message('bad', { route: 'nul \0' }))
    const good = ['a', 'b'].map(id => append(store, message(id)))
    await expect(bad).rejects.toMatchObject({ kind: 'away' })
    expect(await Promise.all(good)).toMatchObject([{ status: 'stored' }, { status: 'stored' }])
    expect(store.stats().open).toBe(true)
  })

  test('a webhook for whose copy at a standby nobody waits any more was not stored for sure, and is known if it comes again', async () => {
    await postgres.query('ALTER DATABASE sallyport SET client_min_messages = error')
    const store = await start()
    const standby = async (change: string) => {
      await postgres.query(`ALTER SYSTEM ${change}`)
      await postgres.query('SELECT pg_reload_conf()')
    }
    await standby("SET synchronous_standby_names = 'none'")
    try {
      await until(
        async () => (await postgres.query('SHOW synchronous_standby_names'))[0]!.synchronous_standby_names !== '',
      )
      const unsure = Promise.allSettled([append(store, message('a', { dedupe: 'a' }))])
      const cancelled =
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query = 'COMMIT' AND wait_event = 'SyncRep'"
      await until(async () => (await postgres.query(cancelled)).length > 0)
      expect(await unsure).toMatchObject([{ status: 'rejected', reason: { kind: 'away' } }])
      expect(logged.at(-1)).toContain('no standby may have a commit: canceling wait for synchronous replication')
    } finally {
      await standby('RESET synchronous_standby_names')
      await postgres.query('ALTER DATABASE sallyport RESET client_min_messages')
    }
    await until(() => store.stats().open)
    expect(await append(store, message('b', { dedupe: 'a' }))).toEqual({ status: 'duplicate', id: 'a' })
  })

  test('a message is found by its whole id through the index, and by the beginning of its id', async () => {
    const asked: string[] = []
    class NotedPool extends pg.Pool {
      override query = ((...all: unknown[]) => {
        asked.push(String(all[0]))
        return super.query(...(all as [string]))
      }) as pg.Pool['query']
    }
    const store = over({ Pool: NotedPool as unknown as typeof pg.Pool })
    await store.start()
    const ids = ['0b5f1c2e-0000-4000-8000-000000000001', '0b5f1c2e-0000-4000-8000-000000000002']
    for (const id of ids) await append(store, message(id))
    for (const id of ids) expect(await store.list({ id, limit: 9 })).toMatchObject([{ id }])
    expect(asked.at(-1)).toContain(' id = $5')
    expect(await store.list({ id: ids[0]!.slice(0, 35), limit: 9 })).toHaveLength(2)
    expect(await store.list({ id: ids[0]!, state: 'dead', limit: 9 })).toEqual([])
  })

  describe('whose order of texts changes while the servers are stopped, as with another version of ICU or glibc', () => {
    /** Some of them change places if hyphens no longer count. */
    const runtimes = [
      'shop-eu',
      'shopadmin',
      'pay-prod',
      'payments',
      'api',
      'web-a',
      'webhooks',
      'dev-z',
      'devops',
      'login',
    ]
    /** As an earlier version has made them. */
    const old = `SET search_path = sallyport_inbox; ALTER TABLE messages ALTER runtime TYPE text COLLATE "default",
      ALTER dedupe TYPE text COLLATE "default"; ALTER TABLE lanes ALTER runtime TYPE text COLLATE "default"`
    const warnings = () => logged.filter(line => line.includes('ordered by a library of the system'))
    beforeEach(async context => {
      const [asked] = await postgres.query('SHOW server_version_num')
      // Databases of PostgreSQL 14 have no orders of ICU.
      if (Number(asked!.server_version_num) < 150_000) context.skip()
      const how = `ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'en' LOCALE 'C'`
      await postgres.query(`CREATE DATABASE icu TEMPLATE template0 ${how}`)
    })
    afterEach(async () => {
      await postgres.query('DROP DATABASE IF EXISTS icu WITH (FORCE)')
    })

    test('all webhooks are found, in tables of an earlier version once the statement has run that the log names', async () => {
      const first = await start({ database: 'icu' })
      await postgres.query(old, 'icu')
      for (const runtime of runtimes) await append(first, message(runtime, { runtime, dedupe: 'x' }))
      await first.close()
      expect(warnings()).toEqual([])
      await postgres.query('CREATE ROLE reader LOGIN; REVOKE SELECT ON pg_database FROM public', 'icu')
      await postgres.query('GRANT ALL ON SCHEMA sallyport_inbox TO reader', 'icu')
      await postgres.query('GRANT ALL ON ALL TABLES IN SCHEMA sallyport_inbox TO reader', 'icu')
      await (await start({ database: 'icu', user: 'reader' })).close()
      expect(warnings()).toEqual([])
      await (await start({ database: 'icu' })).close()
      const [warning] = warnings()
      expect(warnings()).toHaveLength(1)
      const { statement } = JSON.parse(warning!.slice(0, warning!.lastIndexOf('}') + 1)) as { statement: string }
      expect(statement).toBe(
        `ALTER TABLE sallyport_inbox.lanes ALTER runtime TYPE text COLLATE "C"; ALTER TABLE sallyport_inbox.messages ALTER runtime TYPE text COLLATE "C", ALTER dedupe TYPE text COLLATE "C"`,
      )
      await postgres.query(statement, 'icu')
      const [name] = await postgres.query(`SELECT attname FROM pg_attribute
        WHERE attrelid = 'pg_database'::regclass AND attname IN ('daticulocale', 'datlocale')`)
      await postgres.query(`UPDATE pg_database SET ${String(name!.attname)} = 'en-u-ka-shifted' WHERE datname = 'icu'`)
      const second = await start({ database: 'icu' })
      expect(warnings()).toHaveLength(1)
      for (const runtime of runtimes) {
        expect(await second.next(runtime, 'l', 1)).toMatchObject([{ id: runtime }])
        const again = message(`${runtime} again`, { runtime, dedupe: 'x' })
        expect(await append(second, again)).toEqual({ status: 'duplicate', id: runtime })
      }
    })

    test('a database that orders by bytes warns of no table', async () => {
      await (await start()).close()
      await postgres.query(old, 'sallyport')
      await (await start()).close()
      expect(warnings()).toEqual([])
    })
  })

  test('whose columns somebody alters is opened again, since what was prepared is refused', async () => {
    const store = await start()
    for (const id of ['a', 'b']) await append(store, message(id))
    await postgres.query('ALTER TABLE sallyport_inbox.messages ALTER id TYPE text COLLATE "default"', 'sallyport')
    await expect(append(store, message('c'))).rejects.toMatchObject({ kind: 'away' })
    await until(() => store.stats().open)
    expect(await append(store, message('d'))).toMatchObject({ status: 'stored' })
  })

  test('a lane in which a webhook waits that a damaged index does not find is not taken for empty, and no later one is delivered', async () => {
    let isBlind = false
    class BlindPool extends pg.Pool {
      override query = (async (...all: unknown[]) => {
        const { rows } = await super.query(...(all as [string]))
        return { rows: isBlind && String(all[0]).includes(' AS busy') ? rows.slice(1) : rows }
      }) as unknown as pg.Pool['query']
    }
    const store = over({ Pool: BlindPool as unknown as typeof pg.Pool })
    await store.start()
    await append(store, message('a'))
    await store.lanes()
    isBlind = true
    const problem = { kind: 'gone', message: expect.stringContaining('REINDEX SCHEMA sallyport_inbox') }
    await expect(store.next('demo', 'l', 2)).rejects.toMatchObject(problem)
    await append(store, message('b'))
    await expect(store.next('demo', 'l', 2)).rejects.toMatchObject(problem)
    await store.apply({ op: 'update', id: 'a', set: { state: 'delivered' }, at: NOW })
    isBlind = false
    expect(await store.next('demo', 'l', 2)).toMatchObject([{ id: 'b' }])
  })

  test('one reader whose connection breaks fails its question alone, and the store stays open', async () => {
    const store = await start()
    const states: boolean[] = []
    store.onState = state => void states.push(state.open)
    const other = await another()
    await other.query('BEGIN; LOCK TABLE sallyport_inbox.rules')
    const asked = Promise.allSettled([store.sweep(NOW, { deadMs: 1, deliveredMs: 1, maxDelivered: 1, rulesMs: 1 })])
    const broken = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'DELETE FROM rules%'"
    await until(async () => (await postgres.query(broken)).length > 0)
    expect(await asked).toMatchObject([{ status: 'fulfilled' }])
    await other.end()
    expect(logged.at(-1)).toContain('a sweep of the inbox could not delete what is old')
    expect(await append(store, message('a'))).toMatchObject({ status: 'stored' })
    expect(await store.list({ limit: 9 })).toHaveLength(1)
    expect(states).toEqual([true])
  })

  test('killed and started again: offline meanwhile, and what was stored is still there', async () => {
    const store = await start({ queryMs: 1000 })
    await append(store, message('a'))
    await postgres.kill()
    await expect(append(store, message('b'))).rejects.toMatchObject({ kind: 'away' })
    expect(store.stats()).toMatchObject({ open: false })
    await postgres.start()
    await until(() => store.stats().open)
    await append(store, message('c'))
    expect((await store.next('demo', 'l', 9))!.map(({ id }) => id)).toEqual(['a', 'c'])
  })

  test('a webhook whose row somebody has locked fails alone, and the store stays open', async () => {
    const store = await start({ queryMs: 4000 })
    await append(store, message('held'))
    const other = await another()
    await other.query("BEGIN; SELECT FROM sallyport_inbox.messages WHERE id = 'held' FOR UPDATE")
    try {
      const held = store.apply({ op: 'update', id: 'held', set: { attempts: 1 }, at: NOW })
      const free = append(store, message('free'))
      await expect(held).rejects.toMatchObject({ kind: 'away' })
      expect(await free).toMatchObject({ status: 'stored' })
      expect(store.stats().open).toBe(true)
    } finally {
      await other.end()
    }
  })

  test('a sweep tells of the dead letters that it made, although the rest of it fails', async () => {
    const store = await start({ queryMs: 2000 })
    await append(store, message('old'))
    await store.apply({ op: 'rules', runtime: 'demo', rules: '{}', at: 0 })
    const keep = { deadMs: 1, deliveredMs: 1, maxDelivered: 1, rulesMs: 1 }
    const other = await another()
    await other.query('BEGIN; SELECT FROM sallyport_inbox.rules FOR UPDATE')
    try {
      const { expired, more } = await store.sweep(NOW + 1000, keep)
      expect([expired.map(({ id }) => id), more]).toEqual([['old'], false])
      expect(logged.at(-1)).toContain('a sweep of the inbox could not delete what is old')
    } finally {
      await other.end()
    }
    await store.sweep(NOW + 2000, keep)
    expect(await store.list({ limit: 9 })).toEqual([])
  })

  test('webhooks whose rows a stopped server has locked fail, and the one beside them is stored', async () => {
    const store = await start({ queryMs: 2000 })
    const ids = Array.from({ length: 12 }, (_, i) => `held${i}`)
    await Promise.all(ids.map(id => append(store, message(id))))
    const other = await another()
    await other.query('BEGIN; SELECT FROM sallyport_inbox.messages FOR UPDATE')
    try {
      const held = ids.map(id => store.apply({ op: 'update', id, set: { attempts: 1 }, at: NOW }))
      const free = append(store, message('free'))
      const failed = Promise.allSettled(held)
      // Half a second for each of them would exceed what all may take one by one.
      expect(await free).toMatchObject({ status: 'stored' })
      expect((await failed).map(({ status }) => status)).toEqual(ids.map(() => 'rejected'))
      expect(store.stats().open).toBe(true)
    } finally {
      await other.end()
    }
  })

  test('a table that somebody has locked: webhooks are refused before their senders give up, and the store stays open', async () => {
    const store = await start({ queryMs: 1000 })
    const states: boolean[] = []
    store.onState = state => void states.push(state.open)
    const other = await another()
    await other.query('BEGIN; LOCK TABLE sallyport_inbox.messages IN SHARE MODE')
    try {
      const first = Array.from({ length: 200 }, (_, i) => append(store, message(`first${i}`)))
      const refused = Promise.allSettled(first)
      await setTimeout(1000)
      const behind = await Promise.allSettled(Array.from({ length: 200 }, (_, i) => append(store, message(`${i}`))))
      for (const one of [...(await refused), ...behind])
        expect(one).toMatchObject({ reason: { message: expect.stringContaining('lock timeout') } })
      expect(states).toEqual([true])
    } finally {
      await other.end()
    }
    expect(await append(store, message('next'))).toMatchObject({ status: 'stored' })
  })

  test('questions for which no reader was free in time have failed, and the store stays open', async () => {
    const store = await start({ queryMs: unhurried(1000) })
    const states: boolean[] = []
    store.onState = state => void states.push(state.open)
    const other = await another()
    await other.query('BEGIN; LOCK TABLE sallyport_inbox.messages')
    try {
      // Four at a time, each for a quarter of the time that the others wait.
      const asked = await Promise.allSettled(Array.from({ length: 40 }, () => store.list({ limit: 1 })))
      const problems = asked.map(one => (one as PromiseRejectedResult).reason.message as string)
      expect(new Set(problems)).toEqual(
        new Set(['canceling statement due to lock timeout', 'timeout exceeded when trying to connect']),
      )
    } finally {
      await other.end()
    }
    expect(await store.list({ limit: 1 })).toEqual([])
    expect(states).toEqual([true])
  })

  test('a lease that cannot be renewed for a while, since somebody has locked the table, goes on, and the store stays open', async () => {
    const store = await start({ queryMs: 2000, leaseMs: unhurried(6000) })
    const states: boolean[] = []
    store.onState = state => void states.push(state.open)
    const other = await another()
    await other.query('BEGIN; LOCK TABLE sallyport_inbox.servers IN SHARE MODE')
    const renewed = async () =>
      (await postgres.query('SELECT until FROM sallyport_inbox.servers', 'sallyport'))[0]!.until
    const before = String(await renewed())
    try {
      const waits = `SELECT FROM pg_stat_activity WHERE query LIKE 'INSERT INTO servers%' AND wait_event_type = 'Lock'`
      for (const count of [1, 0]) await until(async () => (await postgres.query(waits)).length === count)
      expect(await append(store, message('a'))).toMatchObject({ status: 'stored' })
    } finally {
      await other.end()
    }
    await until(async () => String(await renewed()) !== before)
    expect(states).toEqual([true])
  })

  test('a lease that cannot be renewed until it ends: the store is away, and open again once it can be', async () => {
    const store = await start({ queryMs: 1000, leaseMs: LEASE_MS })
    const states: boolean[] = []
    store.onState = state => void states.push(state.open)
    const other = await another()
    await other.query('BEGIN; LOCK TABLE sallyport_inbox.servers IN SHARE MODE')
    await until(() => states.length > 1)
    await other.end()
    await until(() => store.stats().open)
    expect(states.slice(0, 2)).toEqual([true, false])
  })

  test('webhooks that are given up as a connection breaks are not stored over the next one', async () => {
    const store = await start({ queryMs: 2000 })
    const states: boolean[] = []
    store.onState = state => void states.push(state.open)
    const other = await another()
    await other.query('BEGIN; LOCK TABLE sallyport_inbox.messages IN SHARE MODE')
    const appended = Promise.allSettled(Array.from({ length: 60 }, (_, i) => append(store, message(`${i}`))))
    const alone = `SELECT FROM pg_stat_activity WHERE query LIKE 'WITH same%' AND wait_event_type = 'Lock'`
    await until(async () => (await postgres.query(alone)).length > 0)
    const ended = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'WITH busy%'`
    await postgres.query(ended)
    await until(() => states.length > 2)
    await other.end()
    expect((await appended).filter(({ status }) => status === 'fulfilled')).toEqual([])
    expect(states).toEqual([true, false, true])
    expect(await append(store, message('next'))).toMatchObject({ status: 'stored' })
    expect((await store.list({ limit: 99 })).map(({ id }) => id)).toEqual(['next'])
  })

  test('a database that hangs is not waited for at the end', async () => {
    await eventually(async () => {
      const store = await start()
      postgres.pause()
      try {
        const late = append(store, message('late'))
        const startedMs = performance.now()
        const [told] = await Promise.allSettled([late, store.close()])
        expect(told).toMatchObject({ status: 'rejected', reason: { kind: 'away' } })
        expect(performance.now() - startedMs).toBeLessThan(5000)
      } finally {
        postgres.resume()
      }
    })
  })

  test('a database that hangs: offline within the deadline, and back when it answers', async () => {
    const store = await start({ queryMs: unhurried(500) })
    await append(store, message('a'))
    postgres.pause()
    try {
      const asked = [append(store, message('b')), store.part('a', 0), store.list({ limit: 1 })]
      for (const one of await Promise.allSettled(asked)) expect(one).toMatchObject({ reason: { kind: 'away' } })
    } finally {
      postgres.resume()
    }
    // On a busy machine, one more may take too long.
    let tries = 0
    await eventually(async () =>
      expect(await append(store, message(`c${tries++}`))).toMatchObject({ status: 'stored' }),
    )
  })

  test('a database that does not answer at the start is waited for', async () => {
    await postgres.kill()
    const store = await start({ queryMs: 500 })
    await expect(append(store, message('a'))).rejects.toMatchObject({ kind: 'away' })
    await postgres.start()
    await until(() => store.stats().open)
    expect(logged.filter(line => line.includes('is away'))).toHaveLength(1)
  })

  describe('two servers', () => {
    const news = (store: PostgresStore): string[] => {
      const heard: string[] = []
      store.shared.onLane = (runtime, lane, what) => heard.push(`${what} ${runtime} ${lane}`)
      return heard
    }
    const heads = async (store: PostgresStore) => (await store.next('demo', 'l', 9))?.map(({ id }) => id)
    const attempt = (store: PostgresStore, id: string) =>
      store.apply({ op: 'update', id, set: { attempts: 1 }, at: NOW, owned: true })

    test('one has a lane until it gives it back, and the other hears of that', async () => {
      const [a, b] = [await start(), await start()]
      const heard = news(b)
      await append(a, message('1'))
      await until(() => heard.length === 1)
      expect(await heads(a)).toEqual(['1'])
      expect(await heads(b)).toBeUndefined()
      expect(await attempt(b, '1')).toMatchObject({ status: 'absent' })
      expect(await attempt(a, '1')).toMatchObject({ status: 'done' })
      a.shared.release('demo', 'l', true)
      await until(() => heard.length === 2)
      expect(heard).toEqual(['waits demo l', 'free demo l'])
      expect(await heads(b)).toEqual(['1'])
      expect(await heads(a)).toBeUndefined()
    })

    test('one whose lease is over, since its machine was suspended, does not believe what it reads', async () => {
      const store = await start()
      await append(store, message('1'))
      expect(await heads(store)).toEqual(['1'])
      machine.suspendedMs = 3_600_000
      const over = 'the lease of this server has expired'
      await expect(store.next('demo', 'l', 9)).rejects.toThrow(over)
      await expect(store.part('1', 0)).rejects.toThrow(over)
      expect(store.shared.isLeaseOver()).toBe(true)
      machine.suspendedMs = 0
      expect(store.shared.isLeaseOver()).toBe(false)
    })

    test('the same webhook at both at once is stored once', async () => {
      const [a, b] = [await start(), await start()]
      for (let round = 0; round < 20; round++) {
        const same = { dedupe: `digest ${round}` }
        const made = [append(a, message(`a${round}`, same)), append(b, message(`b${round}`, same))]
        const applied = await Promise.all(made)
        expect(applied.map(({ status }) => status).sort()).toEqual(['duplicate', 'stored'])
        expect(new Set(applied.map(({ id }) => id)).size).toBe(1)
      }
    })

    test('an attempt that began before its webhook was stored belongs to nobody else', async () => {
      const [a, b] = [await start(), await start()]
      await append(a, message('1', { attempts: 1 }))
      await append(b, message('2'))
      expect(await heads(b)).toBeUndefined()
      await a.apply({ op: 'update', id: '1', set: { failures: 1 }, at: NOW, owned: true })
      expect(await heads(b)).toEqual(['1', '2'])
      // One behind others, too: it does not show whether the first is poison.
      await append(a, message('3', { attempts: 1 }))
      expect(await heads(b)).toEqual(['1', '2'])
    })

    test('one that closes gives up its lanes at once', async () => {
      const [a, b] = [await start(), await start()]
      await append(a, message('1'))
      expect(await heads(a)).toEqual(['1'])
      const heard = news(b)
      await a.close()
      await until(() => heard.length > 0)
      expect(await heads(b)).toEqual(['1'])
    })

    test('a silent one loses its lanes when its lease is over, and writes nothing more to them', async () => {
      const [a, b] = [await start({ leaseMs: LEASE_MS }), await start({ leaseMs: LEASE_MS })]
      await append(a, message('1'))
      expect(await heads(a)).toEqual(['1'])
      // As if its process had been stopped: it renews nothing.
      const [{ owner }] = (await postgres.query('SELECT owner FROM sallyport_inbox.lanes', 'sallyport')) as [
        { owner: string },
      ]
      const silence = `IF NEW.id = '${owner}' THEN RETURN NULL; END IF; RETURN NEW;`
      await trigger('silent', silence, 'INSERT OR UPDATE ON sallyport_inbox.servers')
      await until(async () => (await heads(b)) !== undefined)
      expect(await attempt(a, '1')).toMatchObject({ status: 'absent' })
      await b.apply({ op: 'update', id: '1', set: { state: 'delivered' }, at: NOW, owned: true })
      expect(await a.apply({ op: 'update', id: '1', set: { failures: 1 }, at: NOW, owned: true })).toMatchObject({
        status: 'absent',
      })
      await postgres.query('DROP FUNCTION silent CASCADE', 'sallyport')
    })

    test("one that is gone keeps its lanes for a lease, even if PostgreSQL's clock was set back", async () => {
      const store = await start({ leaseMs: LEASE_MS })
      await append(store, message('1'))
      await postgres.query(
        `INSERT INTO sallyport_inbox.servers VALUES ('gone', now() + interval '1 hour');
         INSERT INTO sallyport_inbox.lanes VALUES ('demo', 'l', 'gone')`,
        'sallyport',
      )
      expect(await heads(store)).toBeUndefined()
      const keep = { deadMs: 1, deliveredMs: 1, maxDelivered: 1, rulesMs: 1 }
      await store.sweep(NOW, keep)
      await until(async () => (await heads(store)) !== undefined)
    })

    test("after PostgreSQL was offline, neither takes the other's lanes before it could have renewed them", async () => {
      const options = { leaseMs: 2 * LEASE_MS, queryMs: unhurried(400) }
      const [a, b] = [await start(options), await start(options)]
      // On a busy machine, a first query may exceed its deadline.
      await until(() => a.stats().open && b.stats().open)
      await append(a, message('1'))
      expect(await heads(a)).toEqual(['1'])
      postgres.pause()
      await until(() => !a.stats().open && !b.stats().open)
      // Its lease is over by PostgreSQL's clock.
      const endMs = performance.now() + 2 * LEASE_MS + 500
      await until(() => performance.now() > endMs)
      postgres.resume()
      await until(() => b.stats().open)
      expect(await heads(b)).toBeUndefined()
      await until(() => a.stats().open)
      expect(await heads(a)).toEqual(['1'])
      expect(await heads(b)).toBeUndefined()
    })

    test('one that was offline has its lanes as before, and gives back those that it no longer needs', async () => {
      const [a, b] = [await start(), await start()]
      const writers = () =>
        postgres.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sallyport'")
      await append(a, message('1'))
      await append(a, message('2', { lane: 'm' }))
      expect(await heads(a)).toEqual(['1'])
      expect(await a.next('demo', 'm', 1)).toHaveLength(1)
      await a.apply({ op: 'drop', id: '2' })
      await writers()
      await until(() => !a.stats().open || !b.stats().open)
      await until(() => a.stats().open && b.stats().open)
      expect(await heads(b)).toBeUndefined()
      expect(await attempt(a, '1')).toMatchObject({ status: 'done' })
      a.shared.release('demo', 'l', true)
      await until(async () => (await heads(b)) !== undefined)
      const lanes = await postgres.query("SELECT FROM sallyport_inbox.lanes WHERE lane = 'm'", 'sallyport')
      expect(lanes).toEqual([])
    })

    test('what waits in a lane is counted, whoever stored it', async () => {
      const [a, b] = [await start(), await start()]
      for (const id of ['1', '2', '3']) await append(a, message(id))
      await append(b, message('4', { lane: 'm' }))
      await append(b, message('5', { runtime: 'other' }))
      await a.apply({ op: 'update', id: '1', set: { state: 'delivered' }, at: NOW })
      expect(await b.shared.waiting('demo', 'l')).toBe(2)
      expect(await b.shared.waiting('demo', 'none')).toBe(0)
    })

    test('a lane that is no longer ours is still given back', async () => {
      const [a, b] = [await start(), await start()]
      await append(a, message('1'))
      expect(await heads(a)).toEqual(['1'])
      // One that was dropped by hand says nothing about the others.
      expect(await attempt(a, 'dropped')).toMatchObject({ status: 'absent' })
      a.shared.release('demo', 'l', false)
      await until(async () => (await heads(b)) !== undefined)
    })

    test('a lane that is empty, and perhaps no longer ours, is still given back', async () => {
      const [a, b] = [await start(), await start()]
      await append(a, message('1'))
      expect(await heads(a)).toEqual(['1'])
      await a.apply({ op: 'update', id: '1', set: { state: 'delivered' }, at: NOW })
      expect(await attempt(a, 'dropped')).toMatchObject({ status: 'absent' })
      expect(await heads(a)).toEqual([])
      a.shared.release('demo', 'l', true)
      await append(b, message('2'))
      await until(async () => (await heads(b))?.[0] === '2')
    })

    test('a lane that could not be given back can be given back again', async () => {
      const [a, b] = [await start({ queryMs: unhurried(400) }), await start()]
      await append(a, message('1'))
      expect(await heads(a)).toEqual(['1'])
      const other = await another()
      await other.query('BEGIN; SELECT FROM sallyport_inbox.lanes FOR UPDATE')
      a.shared.release('demo', 'l', true)
      // It waits for the lock only so long.
      const waits = `SELECT FROM pg_stat_activity WHERE query LIKE 'DELETE FROM lanes%' AND wait_event_type = 'Lock'`
      for (const count of [1, 0]) await until(async () => (await postgres.query(waits)).length === count)
      await other.end()
      await until(async () => {
        a.shared.release('demo', 'l', true)
        return (await heads(b)) !== undefined
      })
    })

    test('when both change the same things at once, each in its own order, they do not block each other for long', async () => {
      const stores = [await start(), await start()]
      const deadlocks = async () => {
        const [row] = await postgres.query('SELECT sum(deadlocks) AS all FROM pg_stat_database')
        return row!.all
      }
      const before = await deadlocks()
      const names = Array.from({ length: 40 }, (_, i) => `${i}`)
      const ordered = [names, [...names].reverse()]
      for (let round = 0; round < 20; round++) {
        const both = <Value>(change: (store: PostgresStore, name: string, of: number) => Promise<Value>) =>
          Promise.all(stores.map((store, of) => Promise.all(ordered[of]!.map(name => change(store, name, of)))))
        const one = (name: string, of: number) =>
          message(`${round}-${name}-${of}`, { lane: name, dedupe: `${round}-${name}` })
        await both((store, name, of) => append(store, one(name, of)))
        await both((store, name) => store.next('demo', name, 1))
        await both((store, name) => {
          store.shared.release('demo', name, false)
          return store.apply({ op: 'pause', runtime: name, paused: round % 2 === 0 })
        })
      }
      for (const store of stores.splice(0)) await store.close()
      expect(await deadlocks()).toBe(before)
    })

    describe('of what others write there, no more is read than ours may have written:', () => {
      /** The rules as a server reads them that reaches PostgreSQL after this. */
      async function rulesAfter(statement: string): Promise<Contents['rules']> {
        await start()
        const other = await another()
        await other.query(`TRUNCATE sallyport_inbox.rules; INSERT INTO sallyport_inbox.rules ${statement}`)
        const { rules } = contentsOf(await start())
        await other.query('TRUNCATE sallyport_inbox.rules')
        return rules
      }

      test('no rules that are too long', async () => {
        const rules = await rulesAfter("VALUES ('one', repeat('x', 9000000), 1), ('two', repeat('x', 60000), 2)")
        expect(rules).toEqual([
          { runtime: 'one', rules: '', seen: 1 },
          { runtime: 'two', rules: 'x'.repeat(60_000), seen: 2 },
        ])
      })

      test.each([
        ['long', 60_000, 3000],
        ['empty', 0, 150_000],
      ])('of too many %s rules those that were written last, and a log line says so', async (_, length, rows) => {
        const rules = await rulesAfter(`SELECT n, repeat('x', ${length}), n FROM generate_series(1, ${rows}) AS n`)
        expect(rules.at(-1)!.runtime).toBe(String(rows))
        expect(rules.length * (length + 1024)).toBeLessThanOrEqual(128 * 1024 * 1024)
        expect(logged.join()).toContain('more rules than a server reads')
      })

      test('no part that is too long', async () => {
        const store = await start()
        await (await another()).query(`INSERT INTO sallyport_inbox.parts
          VALUES ('long', 0, convert_to(repeat('x', 33554433), 'UTF8')), ('long', 1, 'x')`)
        expect(await store.part('long', 0)).toBeUndefined()
        expect(await store.part('long', 1)).toEqual(Buffer.from('x'))
      })
    })

    test('however often rules changed while they could not be read, they are read once, in their latest form', async () => {
      // What waits for the lock does so for as long as a busy machine needs for the rest.
      const [a, b] = [await start(), await start({ queryMs: 240_000 })]
      const told: unknown[] = []
      b.shared.onRules = ({ rules }) => told.push(rules)
      const other = await another()
      await other.query('BEGIN; LOCK TABLE sallyport_inbox.messages')
      // All reads at b wait.
      const reads = Array.from({ length: 8 }, () => b.list({ limit: 1 }))
      for (let i = 0; i < 30; i++) await a.apply({ op: 'rules', runtime: 'demo', rules: `${i}`, at: NOW })
      await other.end()
      await Promise.all(reads)
      const last = () => expect(told.at(-1)).toEqual([{ runtime: 'demo', rules: '29', seen: NOW }])
      await eventually(last)
      expect(told.length).toBeLessThan(4)
    })

    test('however often somebody changes rules, the others read them only now and then', async () => {
      const [a, b] = [await start(), await start({ queryMs: 240_000 })]
      const told: { rules: unknown; atMs: number }[] = []
      b.shared.onRules = ({ rules }) => told.push({ rules, atMs: performance.now() })
      const other = await another()
      await other.query('BEGIN; LOCK TABLE sallyport_inbox.paused')
      await a.apply({ op: 'rules', runtime: 'demo', rules: 'first', at: NOW })
      const waits = `SELECT FROM pg_stat_activity WHERE query LIKE 'SELECT % FROM paused%' AND wait_event_type = 'Lock'`
      await until(async () => (await postgres.query(waits)).length === 2)
      // What they read now takes so long that the next time is a second later.
      await setTimeout(500)
      await other.end()
      for (let i = 0; i < 20; i++) await a.apply({ op: 'rules', runtime: 'demo', rules: `${i}`, at: NOW })
      await eventually(() => expect(told.at(-1)?.rules).toEqual([{ runtime: 'demo', rules: '19', seen: NOW }]))
      expect(told[1]!.atMs - told[0]!.atMs).toBeGreaterThan(900)
    })

    test('rules that were read before our own were committed do not take these back', async () => {
      const [a, b] = [await start(), await start({ queryMs: 240_000 })]
      const told: string[][] = []
      b.shared.onRules = ({ rules }) => told.push(rules.map(({ runtime }) => runtime))
      const other = await another()
      // Rules are read before pauses. So b has read the rules, and waits.
      await other.query('BEGIN; LOCK TABLE sallyport_inbox.paused')
      await a.apply({ op: 'rules', runtime: 'one', rules: 'rules', at: NOW })
      const waits = `SELECT FROM pg_stat_activity WHERE query LIKE 'SELECT % FROM paused%' AND wait_event_type = 'Lock'`
      await until(async () => (await postgres.query(waits)).length === 1)
      await b.apply({ op: 'rules', runtime: 'ours', rules: 'rules', at: NOW })
      await other.end()
      await eventually(() => expect(told.at(-1)?.sort()).toEqual(['one', 'ours']))
      expect(told.filter(runtimes => !runtimes.includes('ours'))).toEqual([])
    })

    test('rules that PostgreSQL refuses to read are read again, although nobody changes them any more', async () => {
      const [a, b] = [await start(), await start({ queryMs: unhurried(400) })]
      const told: string[] = []
      b.shared.onRules = ({ rules }) => told.push(...rules.map(({ runtime }) => runtime))
      const other = await another()
      await other.query('BEGIN; LOCK TABLE sallyport_inbox.paused')
      await a.apply({ op: 'rules', runtime: 'demo', rules: 'rules', at: NOW })
      // It waits for the lock only so long.
      const waits = `SELECT FROM pg_stat_activity WHERE query LIKE 'SELECT % FROM paused%' AND wait_event_type = 'Lock'`
      for (const count of [1, 0]) await until(async () => (await postgres.query(waits)).length === count)
      await other.end()
      await until(() => told.includes('demo'))
    })

    test('a connection that breaks while a reader is made ready is replaced, and ends no process', async () => {
      let breaks = 0
      class BreakingPool extends pg.Pool {
        constructor(config: pg.PoolConfig) {
          super(config)
          this.on('acquire', reader => {
            const { stream } = (reader as unknown as { connection: { stream: Socket } }).connection
            if (breaks-- > 0) stream.destroy(new Error('reset'))
          })
        }
      }
      const store = over({ Pool: BreakingPool as unknown as typeof pg.Pool })
      breaks = 1
      await store.start()
      await until(() => store.stats().open)
      expect(await store.counts()).toEqual([])
    })

    test('a connection that breaks before its first notification does not count as a pooler, which would stop the start', async () => {
      let breaks = 1
      class BreakingClient extends pg.Client {
        override query = ((...asked: unknown[]) => {
          const answer = super.query(...(asked as [string])) as Promise<unknown>
          const { stream } = (this as unknown as { connection: { stream: Socket } }).connection
          if (!String(asked[0]).startsWith('LISTEN') || breaks-- <= 0) return answer
          return answer.finally(() => stream.destroy(new Error('reset')))
        }) as pg.Client['query']
      }
      const store = over({ Client: BreakingClient })
      await store.start()
      await until(() => store.stats().open)
    })

    test('what others change is known, however late we hear that our own change before it was committed', async () => {
      const { promise: confirmed, resolve: confirm } = Promise.withResolvers<void>()
      let isLate = false
      class LateClient extends pg.Client {
        override query = ((...asked: unknown[]) => {
          const answer = super.query(...(asked as [string])) as Promise<unknown>
          return isLate && asked[0] === 'COMMIT' ? confirmed.then(() => answer) : answer
        }) as pg.Client['query']
      }
      const b = over({ Client: LateClient })
      const a = await start()
      await b.start()
      isLate = true
      const told: string[] = []
      b.shared.onRules = ({ rules }) => told.push(...rules.map(({ rules }) => rules))
      const written = b.apply({ op: 'rules', runtime: 'demo', rules: 'ours', at: NOW })
      await until(async () => (await postgres.query('SELECT FROM sallyport_inbox.rules', 'sallyport')).length > 0)
      await a.apply({ op: 'rules', runtime: 'demo', rules: 'theirs', at: NOW })
      await until(() => told.at(-1) === 'theirs')
      told.length = 0
      confirm()
      await written
      await until(() => told.at(-1) === 'theirs')
    })

    test('what others change is known, however often our own changes overlap with reading it', async () => {
      const [a, b] = [await start(), await start({ queryMs: 240_000 })]
      const told: { rules: string[]; paused: readonly string[] }[] = []
      b.shared.onRules = ({ rules, paused }) => told.push({ rules: rules.map(({ runtime }) => runtime).sort(), paused })
      await b.apply({ op: 'rules', runtime: 'old', rules: 'rules', at: NOW })
      await until(() => told.length === 1)
      const other = await another()
      const lock = 'BEGIN; LOCK TABLE sallyport_inbox.paused'
      const waits = `SELECT FROM pg_stat_activity WHERE query LIKE 'SELECT % FROM paused%' AND wait_event_type = 'Lock'`
      await other.query(lock)
      // Both servers read the rules, and wait.
      await a.apply({ op: 'rules', runtime: 'new', rules: 'rules', at: NOW })
      await until(async () => (await postgres.query(waits)).length === 2)
      await b.apply({ op: 'rules', runtime: 'ours', rules: 'rules', at: NOW })
      told.length = 0
      // The read that waits gets the lock before this one gets it again, and the next one waits.
      await other.query(`COMMIT; ${lock}`)
      await until(() => told.length > 0)
      expect(told[0]).toEqual({ rules: ['new', 'old', 'ours'], paused: [] })
      await other.end()
    })

    test.each(['while it opens its store', 'after that'])(
      'rules that others change %s are known to a server that starts',
      async when => {
        const a = await start()
        const change = () => a.apply({ op: 'rules', runtime: 'demo', rules: 'rules', at: NOW })
        const other = await another()
        // Rules are read before pauses. So b has read the rules, and waits.
        await other.query('BEGIN; LOCK TABLE sallyport_inbox.paused')
        const opening = start({ queryMs: 240_000 })
        const waits = `SELECT FROM pg_stat_activity WHERE query LIKE 'SELECT % FROM paused%' AND wait_event_type = 'Lock'`
        await until(async () => (await postgres.query(waits)).length === 1)
        if (when === 'while it opens its store') await change()
        await other.end()
        const b = await opening
        if (when === 'after that') {
          await change()
          const marked = new Promise<void>(resolve => (b.shared.onLane = () => resolve()))
          await append(a, message('marker'))
          await marked
          // Long enough to have read the rules.
          for (let i = 0; i < 5; i++) await b.list({ limit: 1 })
        }
        const known: string[] = []
        b.onState = () => {}
        b.shared.onRules = ({ rules }) => known.push(...rules.map(({ runtime }) => runtime))
        await until(() => known.length > 0)
        expect(known).toEqual(['demo'])
      },
    )

    test('what one was told about a runtime, the other knows', async () => {
      const [a, b] = [await start(), await start()]
      const told: unknown[] = []
      b.shared.onRules = contents => told.push(contents)
      await a.apply({ op: 'rules', runtime: 'demo', rules: 'rules', at: NOW })
      await until(() => told.length === 1)
      await a.apply({ op: 'pause', runtime: 'demo', paused: true })
      await until(() => told.length === 2)
      expect(told).toEqual([
        { rules: [{ runtime: 'demo', rules: 'rules', seen: NOW }], paused: [] },
        { rules: [{ runtime: 'demo', rules: 'rules', seen: NOW }], paused: ['demo'] },
      ])
    })
  })
})

describe.runIf(needs('postgres'))('with TLS and a password', () => {
  let secrets: Secrets
  let postgres: Postgres
  const logged: string[] = []
  const log = (fields: object, text: string) => logged.push(`${JSON.stringify(fields)} ${text}`)
  const logger = { debug: log, info: log, warn: log, error: log } as unknown as Logger

  beforeAll(async () => {
    secrets = await makeSecrets()
    postgres = await Postgres.start({ tls: secrets })
  })
  afterAll(async () => {
    await postgres.stop()
  })

  const start = (more: Partial<PostgresOptions>) => {
    const url = `postgres://sallyport@localhost:${postgres.port}/sallyport?sslmode=verify-full`
    const passwordFile = join(postgres.folder, 'password')
    return openPostgres({ ...readPostgresUrl(url), passwordFile, ca: secrets.ca, logger, ...more })
  }

  test('I3: works, and a wrong password, authority or name does not; no password is ever logged', async () => {
    const store = await start({})
    expect(await append(store, message('a'))).toMatchObject({ status: 'stored' })
    await store.close()
    const wrong = join(postgres.folder, 'wrong')
    writeFileSync(wrong, `not ${PASSWORD}`)
    const error = await start({ passwordFile: wrong }).catch((caught: unknown) => caught)
    expect((error as Error).message).toBe('inbox: password authentication failed for user "sallyport"')
    await expect(start({ tls: false })).rejects.toThrow(/no pg_hba.conf entry .* no encryption/)
    vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0')
    const stranger = await start({ ca: undefined })
    expect(stranger.stats().problem).toMatch(/certificate/)
    await stranger.close()
    // Its certificate names `localhost` and 127.0.0.1.
    const address = await start({ host: '127.0.0.1' })
    expect(address.stats()).toMatchObject({ open: true })
    await address.close()
    const other = await start({ host: '127.0.0.2' })
    expect(other.stats().problem).toMatch(/127\.0\.0\.2 is not in the cert's list/)
    await other.close()
    expect(logged.join('\n')).not.toContain(PASSWORD)
  })

  test('a password that changes while a server runs is read again at each connection', async () => {
    const passwordFile = join(postgres.folder, 'changed')
    writeFileSync(passwordFile, PASSWORD)
    const store = await start({ passwordFile })
    await append(store, message('b', { lane: 'other' }))
    await postgres.query(`ALTER ROLE sallyport PASSWORD 'another'`)
    writeFileSync(passwordFile, 'another')
    // Those that read are closed when they have been idle for a while.
    await postgres.query(`SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE query LIKE '%FROM paused%'
      AND pid <> pg_backend_pid()`)
    expect(await store.next('demo', 'other', 1)).toMatchObject([{ id: 'b' }])
    await store.close()
  })
})
