/** Two servers share a store. One stores webhooks and the other one delivers them, which the first one does not see. */
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { SallyportError } from '../../../protocol/base/errors.ts'
import { discarding } from '../../../protocol/base/guard.ts'
import { defaultsOf } from '../../../protocol/base/limit.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import { BODY_UNKNOWN, type Handler } from '../../../protocol/exchange.ts'
import { Inbox } from '../../../server/inbox/inbox.ts'
import { Ledger } from '../../../server/inbox/ledger.ts'
import { type Change, type Message, type SharedStore, StoreError } from '../../../server/inbox/store.ts'
import { INBOX, type InboxLimits } from '../../../server/limits.ts'
import { DEAF, EXCHANGE } from '../../support/ends.ts'
import { answer, reading } from '../fixture.ts'
import { RULE } from './fixture.ts'
import { MemoryDisk, MemoryInboxStore } from './memory-inbox-store.ts'

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

/** All lanes are the other server's, unless `owns`. Each answer to a count takes a while. */
class Shared extends MemoryInboxStore {
  readonly #disk: MemoryDisk
  readonly #owns: boolean
  readonly asked: string[] = []
  other: Shared | undefined
  isLeaseOver = false
  override readonly shared: SharedStore = {
    onLane: undefined,
    onRules: undefined,
    reload() {},
    release() {},
    isLeaseOver: () => this.isLeaseOver,
    waiting: async (runtime, lane) => {
      const found = this.#disk.lanes().find(one => one.runtime === runtime && one.lane === lane)
      await this.#answer('lane')
      return found?.messages ?? 0
    },
  }

  constructor(disk: MemoryDisk, owns: boolean) {
    super(disk)
    this.#disk = disk
    this.#owns = owns
  }

  async #answer(what: string): Promise<void> {
    this.asked.push(what)
    await new Promise(resolve => {
      setTimeout(resolve, 20)
    })
  }

  override async counts() {
    const counts = await super.counts()
    await this.#answer('all')
    return counts
  }

  override async apply(change: Change) {
    const applied = await super.apply(change)
    if (change.op === 'append') this.other?.shared.onLane?.(change.message.runtime, change.message.lane, 'waits')
    return applied
  }

  override async next(runtime: string, lane: string, limit: number): Promise<Message[]> {
    return this.#owns ? await super.next(runtime, lane, limit) : (undefined as unknown as Message[])
  }
}

/** `send` sends one to the server that stores; it resolves to the status. `begin` sends one without its end. */
function start(limits: Partial<InboxLimits>) {
  const disk = new MemoryDisk()
  const stores = [new Shared(disk, false), new Shared(disk, true)] as const
  stores[0].other = stores[1]
  const state = { isLive: true }
  const receive: Handler = (_request, response) => reading(response, () => answer(response, 200, ''))
  const [storing, delivering] = stores.map(store => {
    const inbox = new Inbox({
      ...{ store, limits: { ...defaultsOf(INBOX), ...limits }, plaintext: true, logger: noLogger, now: Date.now },
      ...{ isLive: () => state.isLive, isHere: () => true, isOvertaken: () => false, look: () => {} },
    })
    onTestFinished(() => inbox.close())
    inbox.start(receive, (_request, response, error) => {
      response.responseHead({ status: error.status, headers: [], bodyBytes: 0 })
      return discarding(response)
    })
    return inbox
  }) as [Inbox, Inbox]
  storing.rules.publish('demo', [{ ...RULE, mode: 'always' }], undefined)
  const begin = (path: string, bytes: number, told = (_status: number) => {}, bodyBytes = BODY_UNKNOWN) => {
    const request = { ...EXCHANGE, method: 'POST', path, runtime: 'demo', bodyBytes }
    const sink = storing.layer(receive)(request, { ...DEAF, responseHead: ({ status }) => told(status) })
    sink.requestData(new Uint8Array(bytes))
    return sink
  }
  const send = (path: string, bytes = 10, bodyBytes = bytes) => {
    const { promise, resolve } = Promise.withResolvers<number>()
    begin(path, bytes, resolve, bodyBytes).requestEnd([])
    return promise
  }
  return { stores, storing, delivering, begin, send, state, disk }
}

const ms = async (count: number) => void (await vi.advanceTimersByTimeAsync(count))

async function settled(sent: Promise<number>): Promise<number> {
  await ms(100)
  return await sent
}

const KIB = 1024
const ONE: (nr: number) => string = () => '/webhooks/a'
const EACH: (nr: number) => string = nr => `/webhooks/${nr}`
const QUOTAS: [string, Partial<InboxLimits>, (nr: number) => string][] = [
  ['a lane', { messagesPerLane: 40 }, ONE],
  ['a runtime', { messagesPerRuntime: 40 }, EACH],
  ["a runtime's bytes", { bytesPerRuntime: 40 * KIB }, EACH],
  ['all bytes', { bytes: 40 * KIB }, EACH],
]

describe.each(QUOTAS)('the quota of %s', (_what, limits, path) => {
  test.each([
    ['unverified webhooks are slowed down', 1],
    ['nothing more is stored', 0],
  ])('no webhook is refused while another server delivers all of them, and %s beyond', async (_beyond, rate) => {
    const { storing, delivering, send, stores } = start({ ...limits, unverifiedPerMinute: rate })
    const told: Promise<number>[] = []
    for (let nr = 0; nr < 140; nr++) {
      told.push(send(path(nr), KIB / 2))
      await ms(200)
      expect(delivering.stats().messages.waiting).toBeGreaterThanOrEqual(0)
      expect(delivering.stats().bytes).toBeGreaterThanOrEqual(0)
    }
    await ms(100)
    expect((await Promise.all(told)).filter(status => status !== 202)).toEqual([])
    // Otherwise the next sweep corrects it.
    if (path === EACH) expect(storing.stats().messages.waiting).toBeLessThan(60)
    expect(stores[0].asked.length).toBeGreaterThan(0)
    expect(stores[0].asked.length).toBeLessThan(28)
    const { length } = stores[0].asked
    await ms(1000)
    expect(stores[0].asked).toHaveLength(length)
  })

  test('a store that is full stays full, and has room a second after another server has delivered', async () => {
    const { send, state, stores, disk, delivering } = start({ ...limits, unverifiedPerMinute: 0 })
    state.isLive = false
    const told: number[] = []
    for (let nr = 0; nr < 100; nr++) {
      const asked = send(path(nr), KIB / 2)
      await ms(25)
      told.push(await asked)
    }
    const stored = told.indexOf(503)
    expect(stored).toBeGreaterThan(15)
    expect(told.slice(stored).filter(status => status !== 503)).toEqual([])
    expect(disk.messages).toHaveLength(stored)
    expect(stores[0].asked.length).toBeGreaterThan(0)
    expect(stores[0].asked.length).toBeLessThanOrEqual(4)
    state.isLive = true
    delivering.wake(undefined)
    await ms(5000)
    const asked = send(path(0), KIB / 2)
    await ms(25)
    expect(await asked).toBe(202)
  })
})

test.each(QUOTAS)(
  'of many that wait for one new count, those are stored that have room in the quota of %s',
  async (_, limits, path) => {
    const { send, state, disk } = start({ ...limits, unverifiedPerMinute: 0 })
    state.isLive = false
    const nr = { next: 0 }
    const stored = async (count: number): Promise<number> => {
      const sent = Array.from({ length: count }, () => send(path(nr.next++), KIB))
      await ms(100)
      return (await Promise.all(sent)).filter(status => status === 202).length
    }
    const fit = await stored(60)
    expect(fit).toBeGreaterThan(25)
    await ms(5000)
    // Another server delivered ten, which is not known here.
    disk.messages.splice(0, 10)
    expect(await stored(20)).toBe(10)
    expect(disk.messages).toHaveLength(fit)
    await ms(5000)
    disk.messages.splice(0, 10)
    expect(await stored(20)).toBe(10)
  },
)

test('the parts of long webhooks are not refused either', async () => {
  const { send, stores } = start({ bytesPerRuntime: 10 * 1024 * KIB, unverifiedPerMinute: 0 })
  const told: Promise<number>[] = []
  for (let nr = 0; nr < 40; nr++) {
    told.push(send('/webhooks/a', 1200 * KIB))
    await ms(700)
  }
  await ms(100)
  expect((await Promise.all(told)).filter(status => status !== 202)).toEqual([])
  expect(stores[0].asked.length).toBeLessThan(28)
})

test.each([
  ['only the first part has room before the next count', 1.2],
  ['no part has', 0.8],
])('parts wait for a count that is out of date, in their order: %s', async (_what, share) => {
  const { send, disk } = start({ bytesPerRuntime: 4096 * KIB, unverifiedPerMinute: 0 })
  // Another server delivers all of it, but here it counts as waiting until the next sweep.
  expect(await settled(send('/webhooks/a', (4096 - 512 * share) * KIB))).toBe(202)
  await ms(5000)
  expect(await settled(send('/webhooks/a', 1700 * KIB))).toBe(202)
  await ms(5000)
  expect(disk.messages.map(({ state }) => state)).toEqual(['delivered', 'delivered'])
})

test('a webhook of a full store leaves no part behind', async () => {
  const { send, state, disk, delivering, storing } = start({ bytesPerRuntime: 4096 * KIB, unverifiedPerMinute: 0 })
  state.isLive = false
  expect(await settled(send('/webhooks/a', 3500 * KIB))).toBe(202)
  await ms(5000)
  const parts = disk.parts.size
  expect(await settled(send('/webhooks/a', 1700 * KIB))).toBe(503)
  await ms(5000)
  expect(disk.parts.size).toBe(parts)
  state.isLive = true
  delivering.wake(undefined)
  await ms(35_000)
  expect(storing.stats().bytes).toBe(0)
  expect(await settled(send('/webhooks/a', 3900 * KIB))).toBe(202)
})

test('a webhook that is refused takes nothing of the rate of its sender', async () => {
  const { send, state, disk } = start({ messagesPerRuntime: 4, unverifiedPerMinute: 3 })
  state.isLive = false
  const told: number[] = []
  for (let nr = 0; nr < 5; nr++) told.push(await settled(send(EACH(nr))))
  expect(told).toEqual([202, 202, 202, 202, 503])
  disk.messages.pop()
  await ms(5000)
  expect(await settled(send(EACH(5)))).toBe(202)
})

test.each([
  ['one by one', 1],
  ['while all of them arrive', 20],
])('no more long webhooks than messagesPerLane wait in a lane, if they are sent %s', async (_how, atOnce) => {
  const { begin, state, disk } = start({ messagesPerLane: 5, unverifiedPerMinute: 0 })
  state.isLive = false
  const told: number[] = []
  for (let sent = 0; sent < 20; sent += atOnce) {
    const sinks = Array.from({ length: atOnce }, () => begin('/webhooks/a', 700 * KIB, status => told.push(status)))
    for (const sink of sinks) {
      await ms(100)
      sink.requestEnd([])
    }
    await ms(100)
  }
  expect(told).toEqual([...Array(5).fill(202), ...Array(15).fill(503)])
  expect(disk.messages).toHaveLength(5)
  expect(disk.parts.size).toBe(15)
})

test('a server whose lease is over may not know what waits, so it lets no webhook pass until it has renewed it', async () => {
  const { storing, send, stores, disk } = start({})
  storing.rules.publish('demo', [RULE], undefined)
  const told: number[] = []
  for (const isLeaseOver of [false, true, false]) {
    stores[0].isLeaseOver = isLeaseOver
    told.push(await settled(send(isLeaseOver ? '/webhooks/a' : '/webhooks/b')))
  }
  expect(told).toEqual([200, 202, 200])
  expect(disk.messages.map(({ why }) => why)).toEqual(['behind'])
})

describe('of the rate of its sender, a long webhook takes', () => {
  /** A little more than half of the quota is used, and the rate allows 45 short webhooks, or one of 1843 KiB. */
  async function startScarce(limits: Partial<InboxLimits> = {}) {
    const ground = start({ bytesPerRuntime: 4096 * KIB, messagesPerRuntime: 100, unverifiedPerMinute: 45, ...limits })
    ground.state.isLive = false
    for (const kib of [2000, 100]) expect(await settled(ground.send('/webhooks/a', kib * KIB))).toBe(202)
    return ground
  }

  async function shortOnes({ send }: ReturnType<typeof start>): Promise<number> {
    let stored = 0
    while ((await settled(send(EACH(stored)))) === 202) stored++
    return stored
  }

  test('nothing if it says that it is longer than that, and nothing of it is stored', async () => {
    const ground = await startScarce()
    const applied = vi.spyOn(ground.stores[0], 'apply')
    for (let nr = 0; nr < 5; nr++) expect(await settled(ground.send('/webhooks/b', 1900 * KIB))).toBe(503)
    expect(applied.mock.calls.filter(([{ op }]) => op === 'part')).toEqual([])
    expect(await shortOnes(ground)).toBeGreaterThan(40)
  })

  test('all of it at once if it says how long it is, so nothing of the next one is stored in vain', async () => {
    const ground = await startScarce()
    const applied = vi.spyOn(ground.stores[0], 'apply')
    const sent = [1, 2].map(() => ground.send('/webhooks/b', 1000 * KIB))
    await ms(100)
    expect(await Promise.all(sent)).toEqual([202, 503])
    expect(applied.mock.calls.filter(([{ op }]) => op === 'part')).toHaveLength(1)
  })

  test('what it has left, and its head goes on top of that', async () => {
    const ground = await startScarce()
    const parts = ground.disk.parts.size
    expect(await settled(ground.send('/webhooks/b', 1843 * KIB + 200))).toBe(202)
    expect(ground.disk.parts.size).toBe(parts + 5)
    expect(await settled(ground.send('/webhooks/b', 10))).toBe(503)
  })

  test('what was stored of it before it turned out to be longer than that', async () => {
    const ground = await startScarce()
    const parts = ground.disk.parts.size
    const applied = vi.spyOn(ground.stores[0], 'apply')
    for (let nr = 0; nr < 5; nr++) expect(await settled(ground.send('/webhooks/b', 1900 * KIB, BODY_UNKNOWN))).toBe(503)
    expect(applied.mock.calls.filter(([{ op }]) => op === 'part')).toHaveLength(3)
    expect(ground.disk.parts.size).toBe(parts)
    expect(await shortOnes(ground)).toBeLessThan(12)
  })

  test('what was stored of it before its sender filled the memory for bodies', async () => {
    const ground = await startScarce({ bufferBytes: 9 * 1024 * KIB })
    const told: number[] = []
    const sink = ground.begin('/webhooks/b', 1100 * KIB, status => told.push(status))
    await ms(100)
    const others = Array.from({ length: 7 }, () => ground.begin('/webhooks/b', 500 * KIB))
    sink.requestData(new Uint8Array(KIB))
    for (const other of others) other.requestAbort(new SallyportError('cancelled'))
    await ms(100)
    expect(told).toEqual([503])
    expect(await shortOnes(ground)).toBeLessThan(24)
  })

  test('what it has not paid when the quota becomes scarce, so its sender is never in debt', async () => {
    const ground = start({ bytesPerRuntime: 16_384 * KIB, messagesPerRuntime: 400, unverifiedPerMinute: 45 })
    ground.state.isLive = false
    const told: number[] = []
    const begin = (_: unknown, nr: number) =>
      ground.begin(`/webhooks/b${nr}`, 600 * KIB, status => told.push(status), 1000 * KIB)
    const sinks = Array.from({ length: 12 }, begin)
    await ms(100)
    expect(await settled(ground.send('/webhooks/a', 2100 * KIB))).toBe(202)
    for (const sink of sinks) {
      sink.requestData(new Uint8Array(400 * KIB))
      sink.requestEnd([])
      await ms(100)
    }
    expect(told.filter(status => status === 202).length).toBeGreaterThan(1)
    expect(told.filter(status => status === 202).length).toBeLessThan(7)
    await ms(5000)
    expect(await settled(ground.send('/webhooks/c'))).toBe(202)
  })

  test('nothing if the store refuses it', async () => {
    const ground = await startScarce()
    const [store] = ground.stores
    const apply = store.apply.bind(store)
    const refusal = new StoreError('away', 'the disk failed')
    const refusing = vi.spyOn(store, 'apply')
    refusing.mockImplementation(change => (change.op === 'append' ? Promise.reject(refusal) : apply(change)))
    expect(await settled(ground.send('/webhooks/b', 1700 * KIB))).toBe(503)
    refusing.mockRestore()
    expect(await shortOnes(ground)).toBeGreaterThan(40)
  })

  test.each([
    [1600, BODY_UNKNOWN],
    [1600, 1700 * KIB],
    [600, 1700 * KIB],
  ])('what was stored of it if the sender breaks off after %d KiB', async (sentKib, bodyBytes) => {
    const ground = await startScarce()
    const sink = ground.begin('/webhooks/b', sentKib * KIB, undefined, bodyBytes)
    await ms(100)
    sink.requestAbort(new SallyportError('cancelled'))
    await ms(100)
    const left = await shortOnes(ground)
    expect(left).toBeGreaterThan(sentKib === 600 ? 24 : 5)
    expect(left).toBeLessThan(sentKib === 600 ? 36 : 12)
  })
})

test('a store that is not near a limit is not asked between sweeps', async () => {
  const { send, stores } = start({ messagesPerLane: 20, messagesPerRuntime: 20 })
  for (let nr = 0; nr < 8; nr++) void send(ONE(nr))
  await ms(29_000)
  expect(stores[0].asked).toEqual([])
})

test('if the store cannot count, the old counts remain', async () => {
  const { send, stores, state } = start({ messagesPerRuntime: 4, unverifiedPerMinute: 0 })
  state.isLive = false
  vi.spyOn(stores[0], 'counts').mockRejectedValue(new Error('it takes too long'))
  const told = [1, 2, 3, 4, 5, 6].map(nr => send(EACH(nr)))
  await ms(100)
  expect(await Promise.all(told)).toEqual([202, 202, 202, 202, 503, 503])
  expect(stores[0].counts).toHaveBeenCalledOnce()
})

test('what is stored while the store counts is not lost', async () => {
  const ledger = new Ledger({ messagesPerRuntime: 10, bytesPerRuntime: 1000, bytes: 1000 })
  const count = {
    runtime: 'demo',
    state: 'waiting',
    messages: 2,
    bytes: 20,
    oldest: 0,
    refused: 0,
    refusedBytes: 0,
  } as const
  const reloaded = ledger.reload(async () => {
    await sleep(1)
    return [count]
  })
  ledger.add('demo', 3, 30)
  ledger.add('other', 1, 7)
  // It may have been counted already.
  ledger.add('demo', -1, -10)
  await ms(1)
  await reloaded
  expect(ledger).toMatchObject({ bytes: 57, messages: { waiting: 6 } })
  await ledger.reload(async () => [count])
  expect(ledger).toMatchObject({ bytes: 20, messages: { waiting: 2 } })
  expect(ledger.reserve('demo', 8, 1)).toBe(true)
  expect(ledger.reserve('demo', 1, 1)).toBe(false)
})

test('what another server has stored leaves no debt when it is delivered here', () => {
  const ledger = new Ledger({ messagesPerRuntime: 10, bytesPerRuntime: 1000, bytes: 1000 })
  ledger.add('demo', 2, 20)
  ledger.add('demo', -1, -900)
  ledger.add('other', -1, -900)
  ledger.move('waiting', 'delivered')
  expect(ledger).toMatchObject({ bytes: 0, messages: { waiting: 0, delivered: 1 } })
})
