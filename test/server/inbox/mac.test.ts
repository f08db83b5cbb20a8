/**
 * What somebody can do who writes to the store without the secret that is kept elsewhere: in a file and in PostgreSQL.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { type Logger, noLogger } from '../../../protocol/base/log.ts'
import { newPrivateKey, publicBytes } from '../../../protocol/sealing/hpke.ts'
import { keyIdOf } from '../../../protocol/sealing/sealed-webhook.ts'
import { AnnouncedRules, RULES_MS } from '../../../server/inbox/announced-rules.ts'
import { InboxMac, parseSecrets } from '../../../server/inbox/mac.ts'
import type { InboxOptions } from '../../../server/inbox/options.ts'
import type { InboxStore } from '../../../server/inbox/store.ts'
import { EXCHANGE } from '../../support/ends.ts'
import { needs } from '../../support/needs.ts'
import { Postgres } from '../../support/postgres.ts'
import { until } from '../../support/until.ts'
import { call, DOMAIN, dial, leave, startServer } from '../fixture.ts'
import { type Ground, makeGround, RULE } from './fixture.ts'
import { message } from './messages.ts'

const OURS = Buffer.alloc(32, 'ours').toString('base64')
const THEIRS = Buffer.alloc(32, 'theirs').toString('hex')
const makeKey = () => publicBytes(newPrivateKey())
const announced = (key: Uint8Array) => Buffer.from(key).toString('base64url')

/** What no server wrote, and none could write again. */
const DEEP = `{"a":${'['.repeat(100_000)}${']'.repeat(100_000)}}`

/** Such a change ends in a dead letter, `bad-mac`. */
const REFUSED = 'refused'
/** It delays, ends or repeats a webhook, and changes nothing in it. */
const HARMLESS = 'harmless'
/** What a writer may do to each column of a message: what it writes there, and the outcome. */
const MESSAGES: Readonly<Record<string, readonly [set: string | undefined, outcome: string]>> = {
  id: [`id = 'x' || substr(id, 2)`, REFUSED],
  runtime: [`runtime = 'other'`, REFUSED],
  lane: [`lane = 'ffffffffffffffffffffffffffffffff'`, REFUSED],
  route: [`route = 'another'`, REFUSED],
  why: [`why = 'always'`, REFUSED],
  received: ['received = received - 1000', REFUSED],
  bytes: ['bytes = bytes + 1', REFUSED],
  parts: ['parts = 1', REFUSED],
  key: [`key = '0123456789abcdef'`, REFUSED],
  enc: [`enc = 'enc'`, REFUSED],
  caller: [`caller = replace(caller, '127.0.0.1', '127.0.0.2')`, REFUSED],
  // PostgreSQL assigns the numbers itself.
  seq: [undefined, HARMLESS],
  state: [`state = 'dead'`, HARMLESS],
  expires: ['expires = expires + 1000', HARMLESS],
  attempts: ['attempts = 7', HARMLESS],
  failures: ['failures = 3', HARMLESS],
  refusals: ['refusals = 2', HARMLESS],
  failedSince: ['"failedSince" = 1', HARMLESS],
  next: ['next = next + 1000000000', HARMLESS],
  changed: ['changed = 1', HARMLESS],
  reason: [`reason = 'x'`, HARMLESS],
  dedupe: [`dedupe = 'x'`, HARMLESS],
  dedupeMs: ['"dedupeMs" = 1', HARMLESS],
  owner: [`owner = 'x'`, HARMLESS],
}
/** The other tables, and why their contents are not webhooks, or are covered. `covered`: by a MAC. */
const OTHERS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  parts: { seq: 'never read', id: 'covered', n: 'covered', bytes: 'covered', came: 'ends a part that has no message' },
  rules: { runtime: 'covered', rules: 'covered', seen: 'ends the rules' },
  paused: { runtime: 'delays' },
  lanes: { runtime: 'delays', lane: 'delays', owner: 'delays' },
  servers: { id: 'delays', until: 'delays' },
  version: { version: 'ends the start' },
}

describe.each(['sqlite', 'postgres'] as const)('%s', name => {
  const run = name === 'sqlite' || needs('postgres')
  // Both do the same here, except for their SQL.
  const it = (title: string, body: () => Promise<void>) =>
    test.runIf(run)(title, name === 'sqlite' ? {} : { tags: ['slow'] }, body)
  let postgres: Postgres | undefined
  let ground: Ground
  let secrets: string

  beforeAll(async () => {
    if (name === 'sqlite' || !run) return
    postgres = await Postgres.start()
    await postgres.query('ALTER DATABASE sallyport SET search_path = sallyport_inbox')
  })
  afterAll(async () => await postgres?.stop())
  afterEach(async () => {
    if (!run) return
    await ground.close()
    await postgres?.clear()
  })

  const url = () => postgres?.url ?? `sqlite:${ground.path}`
  const begin = async (lines: readonly string[] = [OURS]) => {
    ground = await makeGround(postgres && { url: postgres.url })
    secrets = join(ground.folder, 'secrets')
    writeFileSync(secrets, lines.join('\n'), { mode: 0o600 })
    await serve()
  }
  /** Another server has the store from then on; by default with the secrets. */
  const serve = async (options: Partial<InboxOptions> = { mac: { file: secrets } }) => {
    await ground.server.close({ graceMs: 0 })
    const inbox = { url: url(), plaintext: true, diskFreeBytes: 0, ...options }
    ground.server = await startServer({ inbox })
  }
  const stop = () => ground.server.close({ graceMs: 0 })
  /** While no server has the store. */
  const write = async (...statements: string[]): Promise<Record<string, unknown>[]> => {
    if (postgres !== undefined) {
      let rows: Record<string, unknown>[] = []
      for (const statement of statements) rows = await postgres.query(statement, 'sallyport')
      return rows
    }
    const file = new DatabaseSync(ground.path)
    const rows = statements.map(statement => file.prepare(statement).all() as Record<string, unknown>[])
    file.close()
    return rows.at(-1)!
  }
  const columnsOf = async (table: string) => {
    const asked =
      name === 'sqlite'
        ? `SELECT name FROM pragma_table_info('${table}')`
        : `SELECT column_name AS name FROM information_schema.columns WHERE table_name = '${table}' AND table_schema = 'sallyport_inbox'`
    return (await write(asked)).map(row => String(row.name))
  }
  /** By a client that takes no webhook, since it is never ready. */
  const announce = async (hello: object = {}) =>
    await leave(ground.server, await dial(ground.server, { notReady: true, hello: { inbox: [RULE], ...hello } }))
  const settled = () => until(async () => (await ground.messages('waiting')).length === 0)
  const dead = async () => (await ground.messages('dead')).map(({ reason }) => reason)
  const store = async (body: string | Buffer, path: string) => {
    const said = await ground.post(body, { path: `/webhooks/${path}`, headers: { 'idempotency-key': path } })
    expect(said.status, said.text).toBe(202)
    return String((JSON.parse(said.text) as { id: string }).id)
  }
  /** A part's text with one word replaced by another of the same length. */
  const replaced = (was: string, by: string) =>
    name === 'sqlite'
      ? `bytes = CAST(replace(CAST(bytes AS TEXT), '${was}', '${by}') AS BLOB)`
      : `bytes = convert_to(replace(convert_from(bytes, 'UTF8'), '${was}', '${by}'), 'UTF8')`

  it('I4: a webhook is delivered as it was stored, whichever column somebody changes', async () => {
    await begin()
    await announce()
    const columns = await (async () => {
      await stop()
      const found = await columnsOf('messages')
      await serve()
      return found
    })()
    expect(columns.filter(column => MESSAGES[column] === undefined)).toEqual([])
    const tried = columns.filter(column => MESSAGES[column]![0] !== undefined)
    const ids = new Map<string, string>()
    for (const column of tried) ids.set(column, await store(`body of ${column}`, column))
    await store('untouched', 'untouched')
    await stop()
    for (const column of tried) {
      const id = ids.get(column)!
      if (column === 'id') await write(`UPDATE parts SET id = 'x' || substr(id, 2) WHERE id = '${id}'`)
      await write(`UPDATE messages SET ${MESSAGES[column]![0]} WHERE id = '${id}'`)
    }
    await serve()
    await ground.connect()
    await dial(ground.server, { runtime: 'other', handler: ground.receiver.handler })
    await settled()
    const outcome = (wanted: string) => tried.filter(column => MESSAGES[column]![1] === wanted)
    const arrived = [...outcome(HARMLESS).filter(column => column !== 'state'), 'untouched']
    const got = ground.receiver.got.map(({ request, body }) => `${request.path} ${body}`)
    const body = (column: string) => (column === 'untouched' ? column : `body of ${column}`)
    expect(got.sort()).toEqual(arrived.map(column => `/webhooks/${column} ${body(column)}`).sort())
    expect((await dead()).filter(reason => reason === 'bad-mac')).toHaveLength(outcome(REFUSED).length)
    expect(ground.server.stats().inbox!.dead['bad-mac']).toBe(outcome(REFUSED).length)
  })

  it('this test knows every column', async () => {
    await begin()
    await stop()
    for (const [table, decided] of Object.entries(OTHERS)) {
      for (const column of await columnsOf(table)) expect(decided, `${table}.${column}`).toHaveProperty(column)
    }
  })

  it('I4: a part that was changed, taken from elsewhere or moved ends its webhook', async () => {
    await begin()
    await announce()
    const long = Buffer.alloc(1_200_000, 'long body ')
    const of = {
      head: await store('head', 'head'),
      body: await store('body', 'body'),
      late: await store(long, 'late'),
      swapped: await store(long, 'swapped'),
      deep: await store('deep', 'deep'),
      one: await store('of one', 'one'),
      two: await store('of two', 'two'),
    }
    await store(long, 'untouched')
    // It has three parts besides its head, two of which were stored before it.
    await stop()
    const at = (id: string, n: number) => `WHERE id = '${id}' AND n = ${n}`
    await write(
      `UPDATE parts SET ${replaced('/webhooks/head', '/webhooks/evil')} ${at(of.head, 0)}`,
      `UPDATE parts SET ${replaced('body', 'evil')} ${at(of.body, 1)}`,
      `UPDATE parts SET ${replaced('long', 'evil')} ${at(of.late, 2)}`,
      `UPDATE parts SET n = 99 ${at(of.swapped, 1)}`,
      `UPDATE parts SET n = 1 ${at(of.swapped, 2)}`,
      `UPDATE parts SET n = 2 ${at(of.swapped, 99)}`,
      `UPDATE messages SET caller = '${DEEP}' WHERE id = '${of.deep}'`,
      `UPDATE parts SET n = 99 ${at(of.one, 1)}`,
      `UPDATE parts SET id = '${of.one}' ${at(of.two, 1)}`,
      `UPDATE parts SET id = '${of.two}', n = 1 ${at(of.one, 99)}`,
    )
    await serve()
    // They are not shown to anybody, either.
    for (const id of [of.head, of.body, of.late]) expect(await ground.server.inbox!.read(id)).toBeUndefined()
    expect(await ground.server.inbox!.readPart(of.late, 2)).toBeUndefined()
    expect((await ground.server.inbox!.readPart(of.late, 1))?.length).toBeGreaterThan(500_000)
    await ground.connect()
    await settled()
    expect(ground.receiver.got.map(({ request }) => request.path)).toEqual(['/webhooks/untouched'])
    expect(ground.receiver.got[0]!.body.equals(long)).toBe(true)
    expect(await dead()).toEqual(Object.keys(of).map(() => 'bad-mac'))
  })

  it('I4: a webhook that somebody else inserted is not delivered: sealed, in clear, with their own MAC or a copied one', async () => {
    await begin()
    const key = makeKey()
    const hello = { inboxKey: announced(key) }
    await announce(hello)
    const real = await store('real', 'real')
    await writeForeign([{ hello }, {}, { hello, mac: true }, { mac: true }])
    const [copy] = await (async () => {
      await stop()
      return await write(`SELECT id FROM messages WHERE route = 'hooks' AND id <> '${real}' ORDER BY seq LIMIT 1`)
    })()
    await write(
      `UPDATE messages SET caller = (SELECT caller FROM messages WHERE id = '${real}') WHERE id = '${copy!.id}'`,
    )
    await serve()
    await ground.connect()
    await settled()
    expect(ground.receiver.got.map(({ id }) => id)).toEqual([real])
    expect(await dead()).toEqual(Array(4).fill('bad-mac'))
  })

  /** Somebody with a copy of the store runs a server on it, and stores a webhook in each of these ways. */
  const writeForeign = async (ways: readonly { readonly hello?: object; readonly mac?: boolean }[]) => {
    const theirs = join(ground.folder, 'theirs')
    writeFileSync(theirs, THEIRS)
    for (const [i, { hello, mac }] of ways.entries()) {
      await serve(mac === true ? { mac: { file: theirs } } : {})
      await announce(hello)
      await store('forged', `forged-${i}`)
    }
  }

  it('I4: nothing is kept under rules that were replaced, changed, moved or inserted: 503 until the client is back', async () => {
    await begin()
    const [key, evil] = [makeKey(), makeKey()].map(announced) as [string, string]
    const hello = { inboxKey: key }
    const post = async (runtime = 'demo') =>
      (await call(ground.server, `${runtime}.${DOMAIN}`, '/webhooks/a', { method: 'POST', body: 'x' })).status
    const keyInUse = async () => (await ground.server.inbox!.list({ state: 'waiting', limit: 1 }))[0]?.key
    await announce(hello)
    const tamper = [
      async () => await write(`UPDATE rules SET rules = replace(rules, '${key}', '${evil}')`),
      async () => await write(`UPDATE rules SET rules = replace(rules, 'fallback', 'always')`),
      async () => await write(`UPDATE rules SET rules = '{"rules":[{"route":"r","path":"/","mode":"always"}]}'`),
      async () => await write(`UPDATE rules SET rules = 'no JSON'`),
      async () => await write(`UPDATE rules SET rules = 'null'`),
      async () => await write(`UPDATE rules SET rules = '${DEEP}'`),
      async () => {
        await serve({})
        await announce({ inboxKey: evil })
        await stop()
      },
    ]
    for (const change of tamper) {
      await stop()
      await change()
      await serve()
      expect(await post()).toBe(503)
      expect(ground.server.stats().inbox!.unprovenRules).toBe(1)
      await announce(hello)
      expect(await post()).toBe(202)
      expect(await keyInUse()).toBe(keyIdOf(Buffer.from(key, 'base64url')))
      await serve()
      expect(await post()).toBe(202)
      expect(ground.server.stats().inbox!.unprovenRules).toBe(0)
    }
    await stop()
    await write(`UPDATE rules SET runtime = 'other'`)
    await serve()
    expect([await post('demo'), await post('other')]).toEqual([503, 503])
  })

  // Nobody else opens the file while a server has it.
  if (name === 'postgres') {
    test.runIf(run && name === 'postgres')(
      'I4: rules that somebody writes while a server runs are ignored',
      async () => {
        await begin()
        await announce({ inboxKey: announced(makeKey()) })
        await store('before', 'before')
        const evil = `{"key":"${announced(makeKey())}","rules":[{"route":"r","path":"/","mode":"always"}]}`
        await write(`UPDATE rules SET rules = '${evil}'`, `NOTIFY sallyport_inbox, 'somebody rules'`)
        await until(() => ground.server.stats().inbox!.unprovenRules === 1)
        expect((await ground.post('after')).status).toBe(503)
        expect(ground.server.stats().inbox!.messages.waiting).toBe(1)
      },
    )
  }

  it('a webhook that was once valid can be put back: it arrives again, with the same id', async () => {
    await begin()
    await announce()
    const id = await store('real', 'real')
    await stop()
    await write('CREATE TABLE old_messages AS SELECT * FROM messages', 'CREATE TABLE old_parts AS SELECT * FROM parts')
    await serve()
    await ground.connect()
    await settled()
    await stop()
    const own = name === 'postgres' ? 'OVERRIDING SYSTEM VALUE' : ''
    await write(
      'DELETE FROM messages',
      `INSERT INTO messages ${own} SELECT * FROM old_messages`,
      'INSERT INTO parts SELECT * FROM old_parts',
    )
    await serve()
    await ground.connect()
    await until(() => ground.receiver.got.length === 2)
    expect(ground.receiver.got.map(({ id }) => id)).toEqual([id, id])
  })

  it('rules that were once valid can be put back until their secret is removed', async () => {
    await begin()
    const [old, fresh] = [makeKey(), makeKey()]
    await announce({ inboxKey: announced(old) })
    await stop()
    const [{ rules }] = (await write('SELECT rules FROM rules')) as [{ rules: string }]
    await serve()
    await announce({ inboxKey: announced(fresh) })
    await stop()
    await write(`UPDATE rules SET rules = '${rules}'`)
    await serve()
    await store('x', 'a')
    const [kept] = await ground.server.inbox!.list({ limit: 1 })
    expect(kept!.key).toBe(keyIdOf(old))
    writeFileSync(secrets, Buffer.alloc(32, 'another').toString('base64'))
    await serve()
    expect((await ground.post('y')).status).toBe(503)
    await ground.connect()
    await settled()
    expect(await dead()).toEqual(['bad-mac'])
  })

  it('a secret is replaced while webhooks wait; with a wrong file they are dead letters until it is corrected', async () => {
    await begin([THEIRS])
    await announce()
    await store('by the old one', 'old')
    writeFileSync(secrets, `${OURS}\n\n${THEIRS}\n`)
    await serve()
    await store('by the new one', 'new')
    writeFileSync(secrets, Buffer.alloc(40, 'wrong').toString('base64'))
    await serve()
    await leave(ground.server, await ground.connect())
    await ground.connect()
    await settled()
    expect(await dead()).toEqual(['bad-mac', 'bad-mac'])
    expect(ground.receiver.got).toEqual([])
    writeFileSync(secrets, `${OURS}\n${THEIRS}`)
    await serve()
    await ground.connect()
    expect(await ground.server.inbox!.replay({ runtime: 'demo', limit: 10 })).toHaveLength(2)
    await until(() => ground.receiver.got.length === 2)
    expect(ground.receiver.bodies.sort()).toEqual(['by the new one', 'by the old one'])
  })

  it('rules are valid again once a wrong file is corrected, and once their client has announced them', async () => {
    await begin()
    await announce()
    const unproven = () => ground.server.stats().inbox!.unprovenRules
    writeFileSync(secrets, THEIRS)
    await serve()
    expect((await ground.post('x')).status).toBe(503)
    writeFileSync(secrets, OURS)
    await until(() => unproven() === 0)
    await store('by the right one', 'right')
    writeFileSync(secrets, THEIRS)
    await serve()
    expect(unproven()).toBe(1)
    await announce()
    await until(() => unproven() === 0)
  })

  it('turned on: webhooks stored before are delivered while MACs are optional, unless their MAC is wrong', async () => {
    await begin()
    await serve({})
    await announce()
    await store('from before', 'before')
    await serve({ mac: { file: secrets } })
    const client = await ground.connect()
    await settled()
    expect(await dead()).toEqual(['bad-mac'])
    await leave(ground.server, client)
    const changed = await store('changed', 'changed')
    await stop()
    await write(`UPDATE messages SET route = 'x' WHERE id = '${changed}'`)
    await serve({ mac: { file: secrets, optional: true } })
    await ground.connect()
    await ground.server.inbox!.replay({ runtime: 'demo', state: 'dead', limit: 10 })
    await settled()
    expect(ground.receiver.bodies).toEqual(['from before'])
    expect(await dead()).toEqual(['bad-mac'])
  })

  it('turned off: webhooks with MACs are delivered, and accepted by their rules', async () => {
    await begin()
    await announce()
    await store(Buffer.alloc(1_200_000, 'long body '), 'with')
    await serve({})
    await store('without', 'without')
    await ground.connect()
    await until(() => ground.receiver.got.length === 2)
    expect(ground.receiver.got.map(({ body }) => body.length).sort()).toEqual([1_200_000, 'without'.length])
  })
})

/** In a folder of its own. */
async function makeMac(text: string, logger: Logger = noLogger) {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-mac-'))
  const file = join(folder, 'secrets')
  writeFileSync(file, text)
  const mac = await InboxMac.open({ file, optional: false }, logger)
  const close = () => {
    mac.close()
    rmSync(folder, { recursive: true })
  }
  return { mac, file, close }
}

/** They are in files and databases, so none may turn into another. */
test('a MAC stays what it was', async () => {
  const { mac, close } = await makeMac(OURS)
  const caller = { address: '192.0.2.1', scheme: 'https', host: 'h' }
  const given = message('an-id', { caller: JSON.stringify(caller) })
  const made = mac.addMacs(given, [], Buffer.from('{}'), Buffer.from('body'))
  const [head, body] = ['oWnAzw-9CdGGzwVQOUMeuv1Nyunt3PtHSzt8kSi4aus', 'OEqEojKr_Lmb4dMg2mhCuC745iXAZU338x_UT7G7q-k']
  expect(JSON.parse(made.caller)).toEqual({ ...caller, mac: [head, body] })
  const rules = '{"rules":[],"at":5,"mac":"I-TA-X6jZ_dIVC3iWz68mrXijV0JvmsbBep4gaSqXIQ"}'
  expect(mac.addRulesMac('demo', '{"rules":[]}', 5)).toBe(rules)
  expect(mac.verifiedRules('demo', rules)).toEqual({ rules: '{"rules":[]}', at: 5 })
  close()
})

describe('rules that are read again', () => {
  /** What the server asks of the store, and of the MAC, with the rules of these runtimes. */
  const read = async (...runtimes: string[]) => {
    const { mac, file, close } = await makeMac(OURS)
    onTestFinished(close)
    const logged: string[] = []
    const parts = {
      mac,
      maxAgeMs: RULES_MS,
      plaintext: true,
      logger: { ...noLogger, error: (_: object, text: string) => void logged.push(text) } as Logger,
      isLive: () => false,
      isHere: () => false,
      isOvertaken: () => false,
      look: () => {},
    }
    const clock = { now: RULES_MS }
    const made = new AnnouncedRules({
      ...parts,
      store: {} as InboxStore,
      now: () => clock.now,
      since: () => clock.now - RULES_MS,
    })
    const verified: string[] = []
    const verify = mac.verifiedRules.bind(mac)
    mac.verifiedRules = (runtime, stored) => {
      verified.push(runtime)
      return verify(runtime, stored)
    }
    const rowOf = (runtime: string, path: string, at = clock.now) => {
      const rules = JSON.stringify({ rules: [{ route: 'r', path, mode: 'always' }] })
      return { runtime, rules: mac.addRulesMac(runtime, rules, at), seen: at }
    }
    const known = (runtime: string, path: string) =>
      made.find({ ...EXCHANGE, method: 'POST', path, headers: [], runtime }) !== undefined
    /** The runtimes whose rows were verified. */
    const adopt = (rows: readonly ReturnType<typeof rowOf>[]) => {
      verified.length = 0
      // As from another read: equal, not the same.
      made.adopt(rows.map(row => ({ ...row, rules: Buffer.from(row.rules).toString() })))
      return verified
    }
    return {
      mac,
      file,
      made,
      clock,
      logged,
      verified,
      rowOf,
      known,
      adopt,
      rows: runtimes.map(name => rowOf(name, '/a')),
    }
  }

  test('only those that changed are verified', async () => {
    const { rows, adopt, rowOf, known, made } = await read('one', 'two', 'three')
    expect(adopt(rows)).toEqual(['one', 'two', 'three'])
    const changed = [rows[0]!, rowOf('two', '/b'), rows[2]!]
    expect(adopt(changed)).toEqual(['two'])
    expect([known('one', '/a'), known('two', '/a'), known('two', '/b')]).toEqual([true, false, true])
    const forged = [rows[0]!, { ...changed[1]!, rules: changed[1]!.rules.replace('/b', '/c') }, rows[2]!]
    expect(adopt(forged)).toEqual(['two'])
    expect(adopt(forged)).toEqual([])
    expect([made.unproven, known('two', '/c')]).toEqual([1, false])
    // Rules of another runtime are not trusted because they are known.
    expect(adopt([rows[0]!, { ...rows[0]!, runtime: 'two' }, rows[2]!])).toEqual(['two'])
    expect([made.unproven, known('two', '/a')]).toEqual([1, false])
    // What has gone is forgotten.
    expect(adopt([rows[0]!])).toEqual([])
    expect(adopt(rows)).toEqual(['two', 'three'])
  })

  test('those that become too old are ignored, although they did not change, and the log says why', async () => {
    const { rows, adopt, known, made, clock, logged } = await read('demo')
    adopt(rows)
    clock.now += RULES_MS
    expect([adopt(rows), known('demo', '/a'), made.unproven]).toEqual([[], true, 0])
    clock.now++
    expect([adopt(rows), known('demo', '/a'), made.unproven]).toEqual([[], false, 1])
    expect(logged).toEqual([expect.stringContaining('older than 30 days')])
  })

  test('with other secrets, all are verified', async () => {
    const { rows, adopt, known, mac, made, file } = await read('one', 'two')
    adopt(rows)
    const changed = new Promise<void>(done => {
      mac.onChange = () => {
        made.retryUnproven()
        done()
      }
    })
    writeFileSync(file, THEIRS)
    await changed
    expect([adopt(rows), made.unproven, known('one', '/a')]).toEqual([['one', 'two'], 2, false])
  })
})

test('the file is read again when it changes, and a bad one keeps the earlier secrets', async () => {
  let problem: object | undefined
  const error = (fields: object) => {
    problem = fields
  }
  const { mac, file, close } = await makeMac(OURS, { ...noLogger, error } as Logger)
  const make = () => mac.addRulesMac('demo', '{}', 5)
  const before = make()
  writeFileSync(file, `${THEIRS}\n${OURS}`)
  await until(() => make() !== before)
  expect(mac.verifiedRules('demo', before)).toEqual({ rules: '{}', at: 5 })
  const after = make()
  writeFileSync(file, 'bad secret')
  await until(() => problem !== undefined)
  expect(problem).toEqual({ file, err: { message: 'secret 1 is neither hex nor base64' } })
  expect(make()).toBe(after)
  close()
})

test('a file whose secrets are too short, too many or missing is refused, and none is revealed', async () => {
  const secret = Buffer.alloc(32, 'secret').toString('base64')
  expect(parseSecrets(`${secret}\r\n${Buffer.alloc(32).toString('hex')}\n`)).toHaveLength(2)
  for (const [text, problem] of [
    ['\n', /no secret/],
    [Buffer.alloc(31, 'secret').toString('base64'), /secret 1 has fewer than 32 bytes/],
    [`${secret}\nwith a space in it, and long enough otherwise`, /secret 2 is neither hex nor base64/],
    [Array(17).fill(secret).join('\n'), /more than 16 secrets/],
  ] as const) {
    expect(() => parseSecrets(text)).toThrow(problem)
  }
  const missing = InboxMac.open({ file: '/nowhere/secrets', optional: false }, noLogger)
  await expect(missing).rejects.toThrow(/inbox\.mac\.file: .*ENOENT/)
})
