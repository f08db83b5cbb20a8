/** Forgeries that a receiver refused: however many, they keep out no other webhooks, and leave room for the dead letters of others. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { SallyportError } from '../../../protocol/base/errors.ts'
import { defaultsOf } from '../../../protocol/base/limit.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import type { Lanes } from '../../../server/inbox/lanes.ts'
import { Ledger } from '../../../server/inbox/ledger.ts'
import { StoredWebhooks } from '../../../server/inbox/operations.ts'
import { openPostgres } from '../../../server/inbox/postgres.ts'
import { readPostgresUrl } from '../../../server/inbox/postgres-url.ts'
import { RefusedLetters } from '../../../server/inbox/refused-letters.ts'
import { openSqlite } from '../../../server/inbox/sqlite.ts'
import type { Change, InboxStore, NewMessage } from '../../../server/inbox/store.ts'
import { INBOX, type InboxLimits } from '../../../server/limits.ts'
import { needs } from '../../support/needs.ts'
import { Postgres } from '../../support/postgres.ts'
import { until } from '../../support/until.ts'
import { dial, leave, reading } from '../fixture.ts'
import { type Ground, makeGround, RULE } from './fixture.ts'
import { append, message, NOW } from './messages.ts'

const FORGED = 'webhook-signature'
const STRANGER = '192.0.2.1'
const SENDER = '198.51.100.1'

describe.each(['sqlite', 'postgres'] as const)('%s', name => {
  const run = name === 'sqlite' || needs('postgres')
  const it = (title: string, body: () => Promise<void>) =>
    test.runIf(run)(title, name === 'sqlite' ? {} : { tags: ['slow'] }, body)
  let postgres: Postgres | undefined
  let folder: string
  let store: InboxStore
  let ground: Ground | undefined

  beforeAll(async () => {
    if (name === 'postgres' && run) postgres = await Postgres.start()
  })
  afterAll(async () => await postgres?.stop())
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'sallyport-inbox-'))
  })
  afterEach(async () => {
    await ground?.close()
    await store?.close()
    ground = undefined
    rmSync(folder, { recursive: true, force: true })
    await postgres?.clear()
  })

  const open = async (): Promise<InboxStore> => {
    const place = postgres && { ...readPostgresUrl(postgres.url), passwordFile: undefined, ca: undefined }
    store = await (place === undefined
      ? openSqlite({ path: join(folder, 'inbox.db'), minFreeBytes: 0, logger: noLogger })
      : openPostgres({ ...place, logger: noLogger }))
    return store
  }

  const from = (address: string): Partial<NewMessage> => ({
    caller: JSON.stringify({ address, scheme: 'https', host: 'demo.example.com' }),
  })
  /** Dead letters, the oldest first. */
  const die = async (ids: readonly string[], more: Partial<NewMessage>, reason = `refused: ${FORGED}`) => {
    await Promise.all(ids.map(id => append(store, message(id, more))))
    await Promise.all(ids.map(id => store.apply({ op: 'update', id, set: { state: 'dead', reason }, at: NOW })))
  }
  const names = (prefix: string, count: number) => Array.from({ length: count }, (_, i) => `${prefix}${i}`)
  /** As a sweep does it. */
  const trim = async (limits: Partial<InboxLimits>) => {
    const all = { ...defaultsOf(INBOX), ...limits }
    const ledger = new Ledger(all)
    ledger.load(await store.counts())
    const letters = new RefusedLetters({ store, limits: all, ledger, logger: noLogger })
    await letters.trimAll()
    return { ledger, letters }
  }
  const left = async () => (await store.list({ limit: 9999 })).map(({ id }) => id).toReversed()

  it('all stay as long as there is room, and take none of it from others', async () => {
    await open()
    await die(names('m', 29), from(STRANGER))
    const { ledger } = await trim({ messagesPerRuntime: 32 })
    expect(await left()).toHaveLength(29)
    expect(ledger.isScarce('demo')).toBe(false)
    expect(ledger.reserve('demo', 32 - 14, 1)).toBe(true)
    expect(ledger.reserve('demo', 1, 1)).toBe(false)
  })

  it('the oldest go once the quota is nearly used up', async () => {
    await open()
    await die(names('m', 30), from(STRANGER))
    const { ledger, letters } = await trim({ messagesPerRuntime: 32 })
    expect(await left()).toEqual(names('m', 30).slice(2))
    expect(letters.deleted).toBe(2)
    expect(ledger.messages.dead).toBe(28)
    ledger.load(await store.counts())
    expect(ledger.roomForRefused('demo')).toBeUndefined()
  })

  it('others need the room: those that wait or have expired stay, and so do seven sixteenths of a quota', async () => {
    await open()
    await die(names('refused', 20), from(STRANGER))
    await die(names('expired', 20), from(STRANGER), 'expired')
    for (const id of names('waits', 20)) await append(store, message(id, from(STRANGER)))
    await trim({ messagesPerRuntime: 32 })
    expect(await left()).toEqual([...names('refused', 20).slice(6), ...names('expired', 20), ...names('waits', 20)])
  })

  it('other runtimes need the room: all together keep seven sixteenths of the limit for all, and only the largest lose some', async () => {
    await open()
    for (const runtime of ['a', 'c']) await die([`small ${runtime}`], { ...from(STRANGER), bytes: 1000, runtime })
    await die(names('large', 20), { ...from(STRANGER), bytes: 4000, runtime: 'b' })
    await append(store, message('other', { runtime: 'other', bytes: 18_000 }))
    await trim({ bytes: 107_000 })
    expect(await left()).toHaveLength(23)
    await trim({ bytes: 106_000 })
    // 7/16 of 106,000 are 46,375.
    const kept = ['small a', 'small c', ...names('large', 20).slice(-11), 'other']
    expect(await left()).toEqual(kept)
    // Others wait, and there are few refused ones.
    await trim({ bytes: 64_000 * 2 })
    await append(store, message('more', { runtime: 'other', bytes: 60_000 }))
    await trim({ bytes: 64_000 * 2 })
    expect(await left()).toEqual([...kept, 'more'])
  })

  it('as long as others leave it no more than its share, a lot is collected before any are deleted', async () => {
    await open()
    for (const id of names('waits', 20)) await append(store, message(id, from(SENDER)))
    await die(names('m', 15), from(STRANGER))
    expect((await trim({ messagesPerRuntime: 32 })).letters.deleted).toBe(0)
    await die(['more'], from(STRANGER))
    expect((await trim({ messagesPerRuntime: 32 })).letters.deleted).toBe(2)
  })

  it('their bytes count as well, and those of other runtimes do not', async () => {
    await open()
    await die(['old', 'new'], { ...from(STRANGER), bytes: 480_000 })
    await die(['other'], { ...from(STRANGER), bytes: 480_000, runtime: 'other' })
    await trim({ bytesPerRuntime: 1_000_000 })
    expect(await left()).toEqual(['new', 'other'])
  })

  it('a network that floods loses its own, whichever of its addresses sent them', async () => {
    await open()
    await die(names('sender', 5), from(SENDER))
    await Promise.all(names('forged', 40).map((id, i) => append(store, message(id, from(`2001:db8::${i + 1}`)))))
    await Promise.all(
      names('forged', 40).map(id =>
        store.apply({ op: 'update', id, set: { state: 'dead', reason: 'refused: 401' }, at: NOW }),
      ),
    )
    for (const id of names('waits', 20)) await append(store, message(id, from(STRANGER)))
    await trim({ messagesPerRuntime: 32 })
    const kept = await left()
    expect(kept.slice(0, 5)).toEqual(names('sender', 5))
    expect(kept).toHaveLength(14 + 20)
  })

  it('thousands are deleted in pages, even if somebody changed their callers', async () => {
    await open()
    await die(names('m', 2050), { caller: 'no JSON' })
    const { letters } = await trim({ messagesPerRuntime: 1600 })
    expect(letters.deleted).toBe(2050 - 1400)
    expect(await left()).toEqual(names('m', 2050).slice(-1400))
  })

  /** Trims, and does this once the first page is listed. */
  const trimDuring = async (limits: Partial<InboxLimits>, change: Change) => {
    const { list } = store
    let isListed = false
    store.list = async filter => {
      const found = await list.call(store, filter)
      if (!isListed) await store.apply(change)
      isListed = true
      return found
    }
    const { letters } = await trim(limits)
    store.list = list
    return letters.deleted
  }

  it('one that is replayed at that moment stays', async () => {
    await open()
    await die(names('m', 30), from(STRANGER))
    const set = { state: 'waiting', reason: 'replayed' } as const
    const deleted = await trimDuring({ messagesPerRuntime: 32 }, { op: 'update', id: 'm0', set, at: NOW })
    expect(deleted).toBe(1)
    expect(await left()).toEqual(['m0', ...names('m', 30).slice(2)])
  })

  it('none is counted twice if another server deletes the last one of a page', async () => {
    await open()
    await die(names('m', 1500), from(STRANGER))
    await trimDuring({ messagesPerRuntime: 1600 }, { op: 'drop', id: 'm500' })
    const kept = names('m', 1500).slice(-1400)
    expect(await left()).toEqual(kept.filter(id => id !== 'm500'))
  })

  it('they are no longer counted once an operator has replayed or dropped them', async () => {
    await open()
    await die(names('m', 28), from(STRANGER))
    const { ledger } = await trim({ messagesPerRuntime: 32 })
    const lanes = new Proxy({} as Lanes, { get: () => () => {} })
    const operations = new StoredWebhooks({ store, mac: undefined, ledger, lanes, logger: noLogger, now: Date.now })
    await operations.replay({ limit: 14 })
    await operations.drop({ state: 'dead', limit: 14 })
    expect(ledger.reserve('demo', 32 - 14 + 1, 1)).toBe(false)
    expect(ledger.reserve('demo', 32 - 14, 1)).toBe(true)
  })

  it('a stranger who sends any number of forgeries keeps out nobody, and what was refused can be replayed', async () => {
    ground = await makeGround(
      { messagesPerRuntime: 32, unverifiedPerMinute: 0, ...(postgres && { url: postgres.url }) },
      { trustedProxies: ['127.0.0.0/8'] },
    )
    const inbox = () => ground!.server.stats().inbox!
    let accepts = false
    const got: string[] = []
    const connect = () =>
      dial(ground!.server, {
        hello: { inbox: [{ ...RULE, mode: 'always' }] },
        handler: (_preamble, _request, response) =>
          reading(response, body => {
            got.push(String(body))
            const { status } = new SallyportError(FORGED)
            if (accepts) response.responseHead({ status: 200, headers: [], bodyBytes: 0 })
            else response.responseHead({ status, headers: ['sallyport-error', FORGED], bodyBytes: 0 })
            response.responseEnd([])
          }),
      })
    const client = await connect()
    const post = async (body: string, address: string) => {
      const headers = { 'x-forwarded-for': address }
      expect((await ground!.post(body, { headers })).status).toBe(202)
    }
    // The operator's secret is wrong.
    for (const body of names('signed', 5)) await post(body, SENDER)
    for (let i = 0; i < 6; i++) {
      for (const body of names('forged', 8)) await post(body, STRANGER)
      await until(() => inbox().messages.waiting === 0 && inbox().messages.dead < 30)
    }
    expect(inbox().evicted).toBeGreaterThan(5 + 6 * 8 - 30)
    expect(inbox().dead.refused).toBe(5 + 6 * 8)
    await leave(ground.server, client)
    for (const body of names('later', 16)) await post(body, SENDER)
    got.length = 0
    accepts = true
    await connect()
    await until(() => inbox().messages.waiting === 0)
    expect(got).toEqual(names('later', 16))
    await ground.server.inbox!.replay({ runtime: 'demo', state: 'dead', limit: 99 })
    await until(() => inbox().messages.dead === 0 && inbox().messages.waiting === 0)
    expect(got.filter(body => body.startsWith('signed')).toSorted()).toEqual(names('signed', 5))
  })
})
