/** What a sweep asks of a store. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { defaultsOf } from '../../../protocol/base/limit.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import { Inbox } from '../../../server/inbox/inbox.ts'
import { InboxMac } from '../../../server/inbox/mac.ts'
import {
  type Filter,
  type Message,
  type Retention,
  type SharedStore,
  StoreError,
  type SweepResult,
} from '../../../server/inbox/store.ts'
import { INBOX, type InboxLimits } from '../../../server/limits.ts'
import { EXCHANGE } from '../../support/ends.ts'
import { MemoryDisk, MemoryInboxStore } from './memory-inbox-store.ts'
import { append, message, NOW } from './messages.ts'

const SWEEP_MS = 30_000
const DAY_MS = 86_400_000
const NO_RETENTION: Retention = { deadMs: 0, deliveredMs: 0, rulesMs: 0, maxDelivered: 0 }
const NOTHING: SweepResult = { expired: [], more: false }

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

class Watched extends MemoryInboxStore {
  override readonly shared: SharedStore | undefined
  readonly asked: string[] = []
  deletesBefore: number[] = []
  swept: () => Promise<SweepResult> = () => Promise.resolve(NOTHING)
  listed: Promise<unknown> = Promise.resolve()

  constructor(disk: MemoryDisk, isShared: boolean) {
    super(disk)
    this.shared = isShared
      ? {
          ...{ onLane: undefined, onRules: undefined, reload() {}, release() {} },
          ...{ isLeaseOver: () => false, waiting: () => Promise.resolve(0) },
        }
      : undefined
  }

  found(filter: Filter): Promise<Message[]> {
    return super.list(filter)
  }

  override async list(filter: Filter): Promise<Message[]> {
    const found = await this.found(filter)
    await this.listed
    return found
  }

  override sweep(at = 0, { deadMs, deliveredMs, rulesMs } = NO_RETENTION): Promise<SweepResult> {
    this.asked.push('sweep')
    this.deletesBefore = [at - deadMs, at - deliveredMs, at - rulesMs]
    return this.swept()
  }

  override counts() {
    this.asked.push('counts')
    return super.counts()
  }

  override lanes() {
    this.asked.push('lanes')
    return super.lanes()
  }
}

/** A store in which two webhooks wait, in one lane, for a runtime without a session. */
async function start({
  isShared = false,
  limits = {} as Partial<InboxLimits>,
  isLive = (): boolean => false,
  mac = undefined as InboxMac | undefined,
} = {}) {
  const store = new Watched(new MemoryDisk(), isShared)
  for (const id of ['a', 'b']) await append(store, message(id))
  const inbox = new Inbox({
    ...{ store, mac, limits: { ...defaultsOf(INBOX), ...limits }, plaintext: true, logger: noLogger, now: Date.now },
    ...{ isLive, isHere: () => false, isOvertaken: () => false, look: () => {} },
  })
  inbox.start(
    () => expect.unreachable(),
    () => expect.unreachable(),
  )
  onTestFinished(() => inbox.close())
  const sweeps = async (count: number) => void (await vi.advanceTimersByTimeAsync(count * SWEEP_MS))
  return { store, inbox, sweeps }
}

test('a store of one server is not asked for its lanes, since nobody else changes them', async () => {
  const { store, inbox, sweeps } = await start()
  await sweeps(2)
  expect(store.asked).toEqual(['sweep', 'counts', 'sweep', 'counts'])
  expect(inbox.stats()).toMatchObject({ lanes: 1, messages: { waiting: 2 } })
})

test('a shared store is asked for its lanes', async () => {
  const { store, sweeps } = await start({ isShared: true })
  await sweeps(2)
  expect(store.asked).toEqual(['sweep', 'counts', 'lanes', 'sweep', 'counts', 'lanes'])
})

test('webhooks are tried once their runtime has a session, even if nobody says so', async () => {
  let isLive = false
  const { inbox, sweeps } = await start({ isLive: () => isLive })
  await sweeps(1)
  isLive = true
  await vi.advanceTimersByTimeAsync(SWEEP_MS - 1)
  expect(inbox.stats().messages.waiting).toBe(2)
  await sweeps(1)
  // What is stored here is no request.
  expect(inbox.stats().dead).toMatchObject({ damaged: 2 })
})

test('once nothing waits, nothing is old, even before the next sweep', async () => {
  const { inbox, sweeps } = await start()
  vi.setSystemTime(NOW)
  await sweeps(1)
  expect(inbox.stats().oldestSeconds).toBeGreaterThan(0)
  await inbox.operations.drop({ limit: 2 })
  expect(inbox.stats()).toMatchObject({ messages: { waiting: 0 }, oldestSeconds: 0 })
})

test('a webhook that an operator replays while it becomes a dead letter waits again from the next sweep on', async () => {
  const { store, inbox, sweeps } = await start()
  const { promise, resolve } = Promise.withResolvers<void>()
  store.listed = promise
  const replayed = inbox.operations.replay({ id: 'a', limit: 1 })
  const expired = await store.found({ limit: 2 })
  store.swept = async () => {
    for (const { id } of expired) await store.apply({ op: 'update', id, set: { state: 'dead' }, at: Date.now() })
    store.swept = () => Promise.resolve(NOTHING)
    return { expired, more: false }
  }
  await sweeps(1)
  expect(inbox.stats().lanes).toBe(0)
  resolve()
  expect(await replayed).toEqual(['a'])
  await sweeps(1)
  expect(inbox.stats()).toMatchObject({ lanes: 1, messages: { waiting: 1, dead: 1 } })
  await sweeps(1)
  expect(store.asked.filter(what => what === 'lanes')).toHaveLength(1)
})

test('a dead letter that two operators replay at once is counted once from the next sweep on', async () => {
  const { store, inbox, sweeps } = await start()
  await store.apply({ op: 'update', id: 'a', set: { state: 'dead' }, at: Date.now() })
  const replay = () => inbox.operations.replay({ id: 'a', limit: 1 })
  expect(await Promise.all([replay(), replay()])).toEqual([['a'], ['a']])
  await sweeps(1)
  expect(inbox.stats()).toMatchObject({ messages: { waiting: 2, dead: 0 } })
  expect(store.asked.filter(what => what === 'lanes')).toHaveLength(1)
})

test('a webhook behind one that an operator drops while it ends waits on from the next sweep on', async () => {
  const { store, inbox, sweeps } = await start()
  const { promise, resolve } = Promise.withResolvers<void>()
  store.listed = promise
  const dropped = inbox.operations.drop({ id: 'a', limit: 1 })
  const expired = await store.found({ id: 'a', limit: 1 })
  store.swept = () => {
    store.swept = () => Promise.resolve(NOTHING)
    return Promise.resolve({ expired, more: false })
  }
  await sweeps(1)
  resolve()
  await dropped
  expect(inbox.stats().lanes).toBe(0)
  await sweeps(1)
  expect(inbox.stats().lanes).toBe(1)
})

test('a webhook that becomes a dead letter after an operator has listed it is dropped as what it is', async () => {
  const { store, inbox, sweeps } = await start()
  const { promise, resolve } = Promise.withResolvers<void>()
  store.listed = promise
  const dropped = inbox.operations.drop({ id: 'a', limit: 1 })
  await store.apply({ op: 'update', id: 'a', set: { state: 'dead', reason: 'refused: 404' }, at: Date.now() })
  await sweeps(1)
  expect(inbox.stats()).toMatchObject({ lanes: 1, messages: { waiting: 1, dead: 1 } })
  resolve()
  expect(await dropped).toEqual(['a'])
  expect(inbox.stats()).toMatchObject({ lanes: 1, messages: { waiting: 1, dead: 0 } })
})

test('a clock that is set forward by a month makes nothing old for an hour, and if it is set back, nothing at all', async () => {
  const { store, sweeps } = await start()
  const start31 = Date.now() + 31 * DAY_MS
  await sweeps(1)
  const before = store.deletesBefore
  vi.setSystemTime(start31)
  await sweeps(118)
  for (const [i, time] of store.deletesBefore.entries()) expect(time).toBeLessThan(before[i]! + 2 * 3_600_000)
  vi.setSystemTime(Date.now() - 31 * DAY_MS)
  await sweeps(1)
  for (const [i, time] of store.deletesBefore.entries()) expect(time).toBeLessThan(before[i]! + 2 * 3_600_000)
  vi.setSystemTime(Date.now() + 31 * DAY_MS)
  await sweeps(123)
  for (const [i, time] of store.deletesBefore.entries()) expect(time).toBeGreaterThan(before[i]! + 30 * DAY_MS)
})

test('nor does it take rules from a server that has MACs, until the hour is over', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-sweep-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  const file = join(folder, 'mac')
  writeFileSync(file, Buffer.alloc(32, 'ours').toString('base64'))
  const mac = await InboxMac.open({ file, optional: false }, noLogger)
  const { store, inbox, sweeps } = await start({ isShared: true, mac })
  const seen = Date.now()
  const rules = JSON.stringify({ rules: [{ route: 'r', path: '/hooks', methods: ['POST'], mode: 'fallback' }] })
  const stored = [{ runtime: 'demo', rules: mac.addRulesMac('demo', rules, seen), seen }]
  const isKept = () => {
    store.shared!.onRules!({ rules: stored, paused: [] })
    return inbox.rules.find({ ...EXCHANGE, method: 'POST', path: '/hooks', headers: [], runtime: 'demo' }) !== undefined
  }
  expect(isKept()).toBe(true)
  vi.setSystemTime(Date.now() + 31 * DAY_MS)
  // The next sweep is not yet.
  expect(isKept()).toBe(true)
  await sweeps(118)
  expect(isKept()).toBe(true)
  vi.setSystemTime(Date.now() - 31 * DAY_MS)
  await sweeps(4)
  expect([isKept(), inbox.rules.unproven]).toEqual([true, 0])
  vi.setSystemTime(Date.now() + 31 * DAY_MS)
  await sweeps(123)
  expect(isKept()).toBe(false)
})

test('refused dead letters of other servers make room', async () => {
  const { store, inbox, sweeps } = await start({ isShared: true, limits: { messagesPerRuntime: 2 } })
  const set = { state: 'dead', reason: 'refused: no-route' } as const
  await store.apply({ op: 'update', id: 'a', set, at: Date.now() })
  await sweeps(1)
  expect((await store.found({ limit: 9 })).map(({ id }) => id)).toEqual(['b'])
  expect(inbox.stats()).toMatchObject({ evicted: 1, messages: { waiting: 1, dead: 0 } })
})

test('a sweep that takes long is not joined by another', async () => {
  const { store, sweeps } = await start()
  const { promise, resolve } = Promise.withResolvers<SweepResult>()
  store.swept = () => promise
  await sweeps(3)
  expect(store.asked).toEqual(['sweep'])
  resolve(NOTHING)
  await sweeps(1)
  expect(store.asked).toEqual(['sweep', 'counts', 'sweep', 'counts'])
})

test('after a sweep that fails comes another', async () => {
  const { store, sweeps } = await start()
  store.swept = () => Promise.reject(new StoreError('away', 'away'))
  await sweeps(2)
  expect(store.asked).toEqual(['sweep', 'sweep'])
})
