/** What every inbox store does, in a file and in PostgreSQL. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { noLogger } from '../../../protocol/base/log.ts'
import { openPostgres } from '../../../server/inbox/postgres.ts'
import { readPostgresUrl } from '../../../server/inbox/postgres-url.ts'
import { openSqlite } from '../../../server/inbox/sqlite.ts'
import type { InboxStore } from '../../../server/inbox/store.ts'
import { needs } from '../../support/needs.ts'
import { Postgres } from '../../support/postgres.ts'
import { append, bytes, contentsOf, message, NOW } from './messages.ts'

let folder: string
let postgres: Postgres | undefined

const STORES = {
  sqlite: () => openSqlite({ path: join(folder, 'inbox.db'), minFreeBytes: 0, logger: noLogger }),
  postgres: () =>
    openPostgres({ ...readPostgresUrl(postgres!.url), passwordFile: undefined, ca: undefined, logger: noLogger }),
}
const KEEP = { deadMs: 10_000, deliveredMs: 10_000, maxDelivered: 3, rulesMs: 10_000 }

describe.each(['sqlite', 'postgres'] as const)('%s', name => {
  const run = name === 'sqlite' || needs('postgres')
  const open: InboxStore[] = []
  const start = async (): Promise<InboxStore> => {
    const store = await STORES[name]()
    open.push(store)
    return store
  }

  beforeAll(async () => {
    if (name === 'postgres' && run) postgres = await Postgres.start()
  })
  afterAll(async () => {
    if (name === 'postgres') await postgres?.stop()
  })
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'sallyport-inbox-'))
  })
  afterEach(async () => {
    for (const store of open.splice(0)) await store.close()
    rmSync(folder, { recursive: true, force: true })
    if (name === 'postgres') await postgres?.clear()
  })

  const ids = async (store: InboxStore, lane = 'l') => (await store.next('demo', lane, 99))?.map(({ id }) => id)

  test.runIf(run)('what was appended is there after a restart, byte for byte and in order', async () => {
    const store = await start()
    const all = Uint8Array.from({ length: 256 }, (_, i) => i)
    await store.apply({ op: 'part', id: 'long', n: 1, bytes: all })
    await store.apply({
      op: 'append',
      message: message('long', { parts: 3 }),
      head: bytes('{}'),
      rest: all.toReversed(),
      at: NOW,
    })
    await Promise.all(['c', 'a', 'b'].map(id => append(store, message(id))))
    await store.apply({ op: 'update', id: 'c', set: { state: 'delivered' }, at: NOW })
    await store.close()
    const again = await start()
    expect(await ids(again)).toEqual(['long', 'a', 'b'])
    expect([...(await again.part('long', 1))!]).toEqual([...all])
    expect([...(await again.part('long', 2))!]).toEqual([...all.toReversed()])
    expect(await again.part('c', 1)).toBeUndefined()
    expect(contentsOf(again)).toMatchObject({
      lanes: [{ runtime: 'demo', lane: 'l', messages: 3 }],
      counts: expect.arrayContaining([
        { runtime: 'demo', state: 'waiting', messages: 3, bytes: 36, oldest: NOW, refused: 0, refusedBytes: 0 },
      ]),
    })
    const [first] = (await again.next('demo', 'l', 1))!
    const { dedupe: _, dedupeMs: __, ...kept } = message('long', { parts: 3 })
    expect(first).toMatchObject({ ...kept, state: 'waiting', changed: NOW })
  })

  test.runIf(run)('the same id and body: known while it waits, and for a time after the delivery', async () => {
    const store = await start()
    const same = { dedupe: 'digest', dedupeMs: 1000 }
    expect(await append(store, message('a', same))).toEqual({ status: 'stored', id: 'a' })
    await store.apply({ op: 'part', id: 'b', n: 1, bytes: bytes('part') })
    expect(await append(store, message('b', { ...same, parts: 3 }))).toEqual({ status: 'duplicate', id: 'a' })
    expect(await store.part('b', 1)).toBeUndefined()
    expect(await append(store, message('c', { ...same, runtime: 'other' }))).toMatchObject({ status: 'stored' })
    await store.apply({ op: 'update', id: 'a', set: { state: 'delivered' }, at: NOW })
    expect(await append(store, message('d', { ...same, received: NOW + 999 }))).toMatchObject({ status: 'duplicate' })
    expect(await append(store, message('e', { ...same, received: NOW + 1000 }))).toMatchObject({ status: 'stored' })
  })

  test.runIf(run)(
    'one that was delivered while the clock was ahead: known only if its sender repeats it by itself, and that was lately',
    async () => {
      const store = await start()
      for (const [name, dedupeMs, aheadMs, status] of [
        ['by hand', 0, 90_000, 'stored'],
        ['by itself', 600_000, 90_000, 'duplicate'],
        ['long ago', 600_000, 86_400_000, 'stored'],
      ] as const) {
        const same = { dedupe: name, dedupeMs }
        await append(store, message(name, same))
        await store.apply({ op: 'update', id: name, set: { state: 'delivered' }, at: NOW + aheadMs })
        expect(await append(store, message(`${name} again`, same))).toMatchObject({ status })
        // Alone, and among others.
        const both = ['1', '2'].map(nr => append(store, message(name + nr, { ...same, runtime: nr })))
        await Promise.all(both)
        for (const nr of ['1', '2'])
          await store.apply({ op: 'update', id: name + nr, set: { state: 'delivered' }, at: NOW + aheadMs })
        const again = ['1', '2'].map(nr => append(store, message(`${name + nr} again`, { ...same, runtime: nr })))
        expect(await Promise.all(again)).toMatchObject([{ status }, { status }])
      }
    },
  )

  test.runIf(run)('one that was sent again, and delivered while its repetition arrived, is known', async () => {
    const store = await start()
    for (const [i, [aheadMs, status]] of (
      [
        [500, 'duplicate'],
        [1001, 'stored'],
      ] as const
    ).entries()) {
      // Alone, after a part that was stored ahead, and among others.
      const made = (id: string, n = 0) => message(`${i}-${id}`, { runtime: `${i}-${n}`, dedupe: 'by hand' })
      await Promise.all([0, 1, 2, 3].map(n => append(store, made(`first ${n}`, n))))
      for (const n of [0, 1, 2, 3])
        await store.apply({ op: 'update', id: `${i}-first ${n}`, set: { state: 'delivered' }, at: NOW + aheadMs })
      const again = (n: number, more = {}) =>
        store.apply({
          ...{ op: 'append', head: bytes('{}'), rest: bytes('body'), at: NOW + 1000 },
          message: { ...made(`again ${n}`, n), ...more },
        })
      expect(await again(0)).toMatchObject({ status })
      await store.apply({ op: 'part', id: `${i}-again 1`, n: 1, bytes: bytes('ahead') })
      expect(await again(1, { parts: 3 })).toMatchObject({ status })
      expect(await Promise.all([2, 3].map(n => again(n)))).toMatchObject([{ status }, { status }])
    }
  })

  test.runIf(run)('of several identical ones at once, one is stored', async () => {
    const store = await start()
    const made = ['a', 'b', 'c'].map(id => message(id, { dedupe: 'digest' }))
    const applied = await Promise.all(made.map(one => append(store, one)))
    expect(applied.map(({ status, id }) => `${status} ${id}`)).toEqual(['stored a', 'duplicate a', 'duplicate a'])
  })

  test.runIf(run)('of hundreds at once, each has its own bytes, in order, and reports its own outcome', async () => {
    const store = await start()
    await append(store, message('known', { dedupe: 'known' }))
    const names = Array.from({ length: 300 }, (_, i) => `${i}`)
    const special: Record<string, Partial<Parameters<typeof message>[1]>> = {
      7: { dedupe: 'known' },
      8: { dedupe: 'twice', attempts: 1, route: 'with "quotes", {braces}, \\ and ü' },
      80: { dedupe: 'twice' },
      90: { parts: 1 },
      100: { parts: 3 },
      101: { parts: 3 },
    }
    const all = (name: string) => Uint8Array.from({ length: 256 }, (_, i) => i ^ (Number(name) % 256))
    const part = store.apply({ op: 'part', id: '100', n: 1, bytes: bytes('first of 100') })
    const applied = await Promise.all(
      names.map(name => {
        const rest = name === '90' ? new Uint8Array() : all(name)
        return store.apply({
          op: 'append',
          message: message(name, special[name]),
          head: bytes(`head ${name}`),
          rest,
          at: NOW,
        })
      }),
    )
    await part
    const others = { 7: 'duplicate known', 80: 'duplicate 8', 101: 'absent ' }
    const expected = names.map(name => others[Number(name) as 7] ?? `stored ${name}`)
    expect(applied.map(({ status, id }) => `${status} ${status === 'absent' ? '' : id}`)).toEqual(expected)
    const stored = names.filter(name => !(Number(name) in others))
    expect((await store.next('demo', 'l', 999))!.map(({ id }) => id)).toEqual(['known', ...stored])
    for (const name of ['0', '8', '63', '64', '65', '299']) {
      expect(Buffer.from((await store.part(name, 0))!).toString()).toBe(`head ${name}`)
      expect([...(await store.part(name, 1))!]).toEqual([...all(name)])
    }
    expect(await store.part('90', 1)).toBeUndefined()
    expect(Buffer.from((await store.part('100', 1))!).toString()).toBe('first of 100')
    for (const name of ['7', '80', '101']) expect(await store.part(name, 0)).toBeUndefined()
    expect((await store.list({ id: '8', limit: 99 })).at(-1)).toMatchObject({
      id: '8',
      route: special[8]!.route,
      attempts: 1,
    })
  })

  test.runIf(run)('a dead letter can be replayed, even if the same webhook arrived meanwhile', async () => {
    const store = await start()
    const same = { dedupe: 'digest', dedupeMs: 0 }
    await append(store, message('a', same))
    await store.apply({ op: 'update', id: 'a', set: { state: 'dead', reason: 'refused' }, at: NOW })
    expect(await append(store, message('b', same))).toMatchObject({ status: 'stored' })
    const replayed = await store.apply({ op: 'update', id: 'a', set: { state: 'waiting', failures: 0 }, at: NOW })
    expect(replayed).toMatchObject({ status: 'done' })
    expect(await ids(store)).toEqual(['a', 'b'])
  })

  test.runIf(run)('a webhook whose parts are missing is absent, and nothing of it is stored', async () => {
    const store = await start()
    await store.apply({ op: 'part', id: 'torn', n: 1, bytes: bytes('part') })
    expect(await append(store, message('torn', { parts: 4 }))).toMatchObject({ status: 'absent' })
    expect(await ids(store)).not.toContain('torn')
    expect(await store.part('torn', 0)).toBeUndefined()
    await store.apply({ op: 'part', id: 'whole', n: 1, bytes: bytes('part') })
    expect(await append(store, message('whole'), '')).toMatchObject({ status: 'stored' })
  })

  test.runIf(run)('a change to an absent webhook reports it as absent', async () => {
    const store = await start()
    const changes = [
      { op: 'update', id: 'x', set: { attempts: 1 }, at: NOW, owned: true },
      { op: 'drop', id: 'x' },
      { op: 'forget', id: 'x' },
    ] as const
    for (const change of changes) expect(await store.apply(change)).toMatchObject({ status: 'absent' })
    await append(store, message('a'))
    const dropped = { state: 'waiting', reason: '' }
    expect(await store.apply({ op: 'drop', id: 'a' })).toEqual({ status: 'done', id: 'a', dropped })
    expect(await store.part('a', 0)).toBeUndefined()
  })

  test.runIf(run)('a webhook that changed its state is not dropped for the one that it had', async () => {
    const store = await start()
    for (const id of ['a', 'b']) await append(store, message(id))
    await store.apply({ op: 'update', id: 'b', set: { state: 'dead' }, at: NOW })
    expect(await store.apply({ op: 'drop', id: 'a', state: 'dead' })).toMatchObject({ status: 'absent' })
    expect(await store.part('a', 0)).toBeDefined()
    expect(await store.apply({ op: 'drop', id: 'b', state: 'dead' })).toMatchObject({ status: 'done' })
    expect(await store.part('b', 0)).toBeUndefined()
    expect(await ids(store)).toEqual(['a'])
  })

  test.runIf(run)('counts and lists the dead letters that were refused', async () => {
    const store = await start()
    const reasons = ['refused: 404', 'refused: no-route', 'refusedly', 'expired']
    for (const id of reasons) {
      await append(store, message(id))
      await store.apply({ op: 'update', id, set: { state: 'dead', reason: id }, at: NOW })
    }
    await append(store, message('waits'))
    const one = { runtime: 'demo', oldest: NOW }
    expect(await store.counts()).toEqual(
      expect.arrayContaining([
        { ...one, state: 'waiting', messages: 1, bytes: 12, refused: 0, refusedBytes: 0 },
        { ...one, state: 'dead', messages: 4, bytes: 48, refused: 2, refusedBytes: 24 },
      ]),
    )
    const listed = await store.list({ state: 'dead', reason: 'refused: ', limit: 9 })
    expect(listed.map(({ id }) => id)).toEqual(['refused: no-route', 'refused: 404'])
    expect(await store.list({ reason: '%', limit: 9 })).toEqual([])
  })

  test.runIf(run)('a sweep ends what is too old, and forgets what ended long ago', async () => {
    const store = await start()
    await append(store, message('old'))
    await append(store, message('young', { expires: NOW + 5000 }))
    const first = await store.sweep(NOW + 1000, KEEP)
    expect(first.expired.map(({ id, state, reason }) => [id, state, reason])).toEqual([['old', 'dead', 'expired']])
    expect(first.more).toBe(false)
    expect(await store.lanes()).toEqual([{ runtime: 'demo', lane: 'l', messages: 1 }])
    await store.sweep(NOW + 12_000, KEEP)
    expect((await store.list({ limit: 9 })).map(({ id }) => id)).toEqual(['young'])
  })

  test.runIf(run)('a sweep says that it left something; of the delivered ones, the newest stay', async () => {
    const store = await start()
    const ids = Array.from({ length: 1005 }, (_, i) => `m${i}`)
    await Promise.all(ids.map(id => append(store, message(id))))
    await Promise.all(ids.map((id, i) => store.apply({ op: 'update', id, set: { state: 'delivered' }, at: NOW + i })))
    expect(await store.sweep(NOW + 1000, KEEP)).toEqual({ expired: [], more: true })
    expect(await store.sweep(NOW + 1000, KEEP)).toEqual({ expired: [], more: false })
    expect((await store.list({ limit: 9 })).map(({ id }) => id)).toEqual(['m1004', 'm1003', 'm1002'])
  })

  test.runIf(run)('a delivered webhook does not wait again, and parts of stored ones are not forgotten', async () => {
    const store = await start()
    await append(store, message('a'))
    await store.apply({ op: 'forget', id: 'a' })
    expect(await store.part('a', 0)).toBeDefined()
    await store.apply({ op: 'update', id: 'a', set: { state: 'delivered' }, at: NOW })
    const again = { op: 'update', id: 'a', set: { state: 'waiting' }, at: NOW } as const
    expect(await store.apply(again)).toMatchObject({ status: 'absent' })
    expect((await store.list({ limit: 9 })).map(({ state }) => state)).toEqual(['delivered'])
  })

  test.runIf(run)('lists what is asked for, newest first', async () => {
    const store = await start()
    await append(store, message('a1'))
    await append(store, message('a2', { runtime: 'other', received: NOW + 5 }))
    await append(store, message('b_', { lane: 'm1', received: NOW + 9 }))
    const list = async (filter: object) => (await store.list({ ...filter, limit: 9 })).map(({ id }) => id)
    expect(await list({})).toEqual(['b_', 'a2', 'a1'])
    expect(await list({ id: 'a' })).toEqual(['a2', 'a1'])
    expect(await list({ id: '%' })).toEqual([])
    expect(await list({ runtime: 'demo', since: NOW + 1 })).toEqual(['b_'])
    for (const lane of ['m', 'm1']) expect(await list({ lane })).toEqual(['b_'])
    for (const lane of ['m2', 'm11', '%']) expect(await list({ lane })).toEqual([])
    expect(await list({ state: 'dead' })).toEqual([])
    expect(await list({ before: ['b_', 'nobody'] })).toEqual(['a2', 'a1'])
    expect(await list({ before: ['b_', 'a2'] })).toEqual(['a1'])
    expect(await list({ before: ['nobody'] })).toEqual(['b_', 'a2', 'a1'])
  })

  test.runIf(run)('rules and pauses stay until they are taken back or too old', async () => {
    const store = await start()
    const rules = JSON.stringify({ rules: [{ route: 'nul \0, "quotes" and \u{1f600}' }] })
    await store.apply({ op: 'rules', runtime: 'demo', rules: 'first', at: NOW })
    await store.apply({ op: 'rules', runtime: 'demo', rules, at: NOW })
    for (const paused of [true, true]) await store.apply({ op: 'pause', runtime: 'demo', paused })
    await store.close()
    const again = await start()
    expect(contentsOf(again)).toMatchObject({ rules: [{ runtime: 'demo', rules }], paused: ['demo'] })
    await again.apply({ op: 'pause', runtime: 'demo', paused: false })
    await again.sweep(NOW + 20_000, KEEP)
    await again.close()
    expect(contentsOf(await start())).toMatchObject({ rules: [], paused: [] })
  })
})
