/** The lanes over a store in memory: order, outages, and the poison test. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { noLogger } from '../../../protocol/base/log.ts'
import { Lanes } from '../../../server/inbox/lanes.ts'
import { Ledger } from '../../../server/inbox/ledger.ts'
import { StoredWebhooks } from '../../../server/inbox/operations.ts'
import type { Outcome } from '../../../server/inbox/retry.ts'
import {
  type Change,
  type ChangeResult,
  type InboxStore,
  type Message,
  StoreError,
} from '../../../server/inbox/store.ts'
import { eventually, until } from '../../support/until.ts'

type LanesOptions = ConstructorParameters<typeof Lanes>[0]

const OK: Outcome = { kind: 'delivered', reason: '200' }
/** Woken lanes begin within this time. */
const JITTER_MS = 1000
const DOWN: Outcome = { kind: 'failed', reason: '500' }

const WAITING = { state: 'waiting', next: 0, attempts: 0, failures: 0, refusals: 0, failedSince: 0 } as const

function messageOf(id: string, lane = 'l', more: Partial<Message> = {}): Message {
  const now = Date.now()
  return {
    ...{ id, runtime: 'demo', lane, route: 'r', why: 'offline', received: now, expires: now + 1e9, changed: now },
    ...{ bytes: 1, parts: 1, key: '', enc: '', caller: '', reason: '' },
    ...WAITING,
    ...more,
  }
}

/** As much of a store as lanes need. */
class Memory {
  readonly messages: Message[] = []
  away = false
  /** There is no room even for what becomes of a message. */
  full = false

  apply(change: Change): Promise<ChangeResult> {
    if (this.away) return Promise.reject(new StoreError('away', 'away'))
    if (this.full) return Promise.reject(new StoreError('full', 'full'))
    if (change.op !== 'update') throw new Error(change.op)
    const at = this.messages.findIndex(({ id }) => id === change.id)
    this.messages[at] = { ...this.messages[at]!, ...change.set }
    return Promise.resolve({ status: 'done', id: change.id })
  }

  stats(): { open: boolean } {
    return { open: true }
  }

  next(runtime: string, lane: string, limit: number): Promise<Message[]> {
    if (this.away) return Promise.reject(new StoreError('away', 'away'))
    const waits = (each: Message) => each.runtime === runtime && each.lane === lane && each.state === 'waiting'
    return Promise.resolve(this.messages.filter(waits).slice(0, limit))
  }
}

function lanesOver(store: object, more: Pick<LanesOptions, 'deliver'> & Partial<LanesOptions>): Lanes {
  return new Lanes({
    ...{ store: store as InboxStore, logger: noLogger, now: Date.now, random: () => 0.5, lanesPerRuntime: 2, lanes: 3 },
    ...{ isLive: () => true, onProgress: () => {}, onGivenUp: () => {} },
    ...more,
  })
}

function make(says: (message: Message) => Outcome, takesMs = 0) {
  const store = new Memory()
  const ground = {
    store,
    live: true,
    tried: [] as string[],
    delivered: [] as string[],
    active: new Set<string>(),
    most: 0,
  }
  const lanes = lanesOver(store, {
    isLive: () => ground.live,
    deliver: async message => {
      ground.tried.push(message.id)
      expect(ground.active.has(message.lane)).toBe(false)
      ground.active.add(message.lane)
      ground.most = Math.max(ground.most, ground.active.size)
      await (takesMs === 0 ? Promise.resolve() : new Promise(done => setTimeout(done, takesMs)))
      ground.active.delete(message.lane)
      const outcome: Outcome = ground.live ? says(message) : { kind: 'offline', reason: 'runtime-offline' }
      if (outcome.kind === 'delivered') ground.delivered.push(message.id)
      return outcome
    },
  })
  const add = (id: string, lane = 'l', more: Partial<Message> = {}) => {
    const message = messageOf(id, lane, more)
    lanes.expect('demo', lane, Date.now())
    store.messages.push(message)
    lanes.arrived('demo', lane, message)
  }
  const state = (id: string) => store.messages.find(each => each.id === id)
  return { ...ground, ground, lanes, add, state }
}

/** Time passes, as the lanes see it. */
async function pass(ms: number): Promise<void> {
  await vi.advanceTimersByTimeAsync(ms)
}

describe('lanes', () => {
  beforeEach(() => {
    vi.useFakeTimers()
  })
  afterEach(() => {
    vi.useRealTimers()
  })

  test('one at a time, in order; as many lanes as a runtime may have', async () => {
    const { add, lanes, ground, tried } = make(() => OK)
    for (const id of ['a1', 'a2', 'a3']) add(id, 'a')
    for (const lane of ['b', 'c', 'd']) add(`${lane}1`, lane)
    await pass(10)
    expect(tried.filter(id => id.startsWith('a'))).toEqual(['a1', 'a2', 'a3'])
    expect(tried).toHaveLength(6)
    expect(ground.most).toBeLessThanOrEqual(2)
    expect(lanes.size).toBe(0)
  })

  test('without a session nothing is tried, and with one everything, at 20 a second', async () => {
    const { add, lanes, ground, tried, state } = make(() => OK)
    ground.live = false
    for (let i = 0; i < 10; i++) add(`m${i}`)
    await pass(3_600_000)
    expect(tried).toEqual([])
    expect(state('m0')).toMatchObject({ attempts: 0, failures: 0 })
    ground.live = true
    lanes.wake('demo')
    await pass(500 + 4 * 50 + 10)
    expect(tried).toHaveLength(5)
    await pass(1000)
    expect(tried).toEqual(Array.from({ length: 10 }, (_, i) => `m${i}`))
  })

  test('a lane that nobody woke begins once it is known that there is a session', async () => {
    const { add, lanes, ground, tried } = make(() => OK)
    ground.live = false
    add('m')
    await pass(1000)
    ground.live = true
    await pass(1000)
    expect(tried).toEqual([])
    lanes.resume('demo')
    await pass(1)
    expect(tried).toEqual(['m'])
    await pass(50)
    expect(lanes.size).toBe(0)
  })

  test('after an outage, a lane keeps up with its arrivals again', async () => {
    const { add, lanes, ground } = make(() => OK)
    ground.live = false
    for (let i = 0; i < 100; i++) add(`before${i}`)
    await pass(1000)
    ground.live = true
    lanes.wake('demo')
    for (let i = 0; i < 2000 && lanes.size > 0; i++) {
      add(`after${i}`)
      await pass(25)
    }
    expect(lanes.size).toBe(0)
  })

  test('a lane whose first message was dropped does not wait until that one was due', async () => {
    const { add, lanes, store, state } = make(({ id }) => (id === 'down' ? DOWN : OK))
    for (const id of ['down', 'next']) add(id)
    await pass(30 * 60_000)
    const { next } = state('down')!
    expect(next - Date.now()).toBeGreaterThan(60_000)
    store.messages.shift()
    lanes.remove('demo', 'l', 1)
    await pass(JITTER_MS)
    expect(state('next')).toMatchObject({ state: 'delivered' })
  })

  test('a dead letter that is replayed does not wait for the one that blocks its lane', async () => {
    const { add, lanes, store, state } = make(({ id }) => (id === 'down' ? DOWN : OK))
    store.messages.push(messageOf('dead', 'l', { state: 'dead' }))
    add('down')
    await pass(30 * 60_000)
    const listed = Object.assign(store, { list: () => Promise.resolve([state('dead')!]) }) as unknown as InboxStore
    const ledger = new Ledger({ messagesPerRuntime: 9, bytesPerRuntime: 9, bytes: 9 })
    const parts = { store: listed, mac: undefined, ledger, lanes, logger: noLogger, now: Date.now }
    expect(await new StoredWebhooks(parts).replay({ limit: 1 })).toEqual(['dead'])
    await pass(JITTER_MS)
    expect(state('dead')).toMatchObject({ state: 'delivered' })
  })

  test('an overloaded runtime is tried with a few of its lanes, and with all once it reconnects', async () => {
    let busy = true
    const { add, lanes, tried } = make(() => (busy ? { kind: 'offline', reason: 'overloaded' } : OK))
    for (let i = 0; i < 500; i++) add(`m${i}`, `lane${i}`)
    await pass(10_000)
    expect(tried.length).toBeGreaterThan(5)
    expect(tried.length).toBeLessThan(40)
    busy = false
    tried.length = 0
    lanes.wake('demo')
    await pass(JITTER_MS)
    expect(tried).toHaveLength(500)
    expect(lanes.size).toBe(0)
  })

  test('a message that alone fails is poison; the lane goes on', async () => {
    const { add, state } = make(({ id }) => (id === 'bad' ? DOWN : OK))
    for (const id of ['bad', 'good', 'better']) add(id)
    await pass(25 * 60_000)
    expect(state('good')).toMatchObject({ state: 'waiting', attempts: 0 })
    await pass(90 * 60_000)
    expect(state('bad')).toMatchObject({ state: 'dead', reason: 'poison' })
    expect([state('good')!.state, state('better')!.state]).toEqual(['delivered', 'delivered'])
  })

  const SEALED: Outcome = { kind: 'failed', reason: 'inbox-sealed' }
  test.each<[string, readonly (Outcome | undefined)[], number, string]>([
    ['two in a row', [DOWN, DOWN], 2, 'poison poison'],
    ['three for a lost key', [SEALED, SEALED, SEALED], 3, 'poison poison poison'],
    ['as many as are tested', Array.from({ length: 8 }, () => DOWN), 6, 'poison '.repeat(8).trim()],
    ['one that is refused behind it', [DOWN, { kind: 'refused', reason: '400' }], 2, 'poison refused: 400'],
    ['one that is refused for good behind it', [DOWN, { kind: 'gone', reason: '410' }], 2, 'poison refused: 410'],
    ['one that is damaged behind it', [DOWN, { kind: 'damaged', reason: 'damaged' }], 2, 'poison damaged'],
    ['one that is delivered between two', [DOWN, undefined, DOWN], 2, 'poison 200 poison'],
  ])('poison, %s: the lane goes on, in order', async (_what, outcomes, hours, reasons) => {
    const { add, lanes, store, delivered } = make(({ id }) => outcomes[Number(id)] ?? OK)
    for (let i = 0; i < outcomes.length + 3; i++) add(`${i}`)
    await pass(hours * 3_600_000)
    expect(store.messages.map(({ reason }) => reason)).toEqual([
      ...reasons.split(/ (?!\d)|(?<!:) /),
      '200',
      '200',
      '200',
    ])
    expect(delivered).toEqual(store.messages.flatMap(({ id, state }) => (state === 'delivered' ? [id] : [])))
    expect(lanes.size).toBe(0)
  })

  test('a receiver that is down is no reason to give up on a message, and all arrive in order', async () => {
    let down = true
    const { add, store, tried, delivered } = make(() => (down ? DOWN : OK))
    const ids = Array.from({ length: 12 }, (_, i) => `m${i}`)
    for (const id of ids) add(id)
    for (const hours of [1, 12, 12]) {
      tried.length = 0
      await pass(hours * 3_600_000)
      expect(store.messages.map(({ state }) => state)).toEqual(ids.map(() => 'waiting'))
      expect(tried).not.toContain('m9')
    }
    down = false
    await pass(15 * 60_000)
    expect(delivered).toEqual(ids)
  })

  test.each<[string, Outcome]>([
    ['is overloaded', { kind: 'failed', reason: '429' }],
    ['refuses', { kind: 'refused', reason: '404' }],
  ])('what failed while a receiver was down does not count when it is back and %s for a moment', async (_, outcome) => {
    const from = Date.now()
    const refused = new Set<string>()
    const { add, store, delivered } = make(({ id }) => {
      if (Date.now() - from < 6 * 3_600_000) return DOWN
      if (Number(id) % 2 === 0 || refused.has(id)) return OK
      refused.add(id)
      return outcome
    })
    const ids = Array.from({ length: 12 }, (_, i) => `${i}`)
    for (const id of ids) add(id)
    await pass(7 * 3_600_000)
    expect(refused.size).toBe(6)
    expect(store.messages.map(({ state }) => state)).toEqual(ids.map(() => 'delivered'))
    expect(delivered).toEqual(ids)
  })

  test('what failed while a receiver was down does not count once a later message is delivered', async () => {
    const from = Date.now()
    const refused = new Set<string>()
    const { add, store } = make(({ id }) => {
      if (Date.now() - from < 6 * 3_600_000) return DOWN
      if (Number(id) % 2 === 1 || (refused.has(id) && id !== '0')) return OK
      refused.add(id)
      return { kind: 'failed', reason: '429' }
    })
    const ids = Array.from({ length: 12 }, (_, i) => `${i}`)
    for (const id of ids) add(id)
    await pass(7 * 3_600_000)
    expect(refused.size).toBe(6)
    expect(store.messages.map(({ reason }) => reason)).toEqual(['poison', ...Array(11).fill('200')])
  })

  test('a receiver that was busy with a single webhook when it came back gets that one, too', async () => {
    const from = Date.now()
    const refused = new Set<string>()
    const { add, store, delivered } = make(({ id }) => {
      if (Date.now() - from < 6 * 3_600_000) return DOWN
      if (id !== '0' || refused.has(id)) return OK
      refused.add(id)
      return { kind: 'failed', reason: '429' }
    })
    for (const id of ['0', '1', '2']) add(id)
    await pass(7 * 3_600_000)
    expect(refused.size).toBe(1)
    expect(store.messages.map(({ reason }) => reason)).toEqual(['200', '200', '200'])
    expect(delivered).toEqual(['1', '0', '2'])
  })

  test('a receiver that hangs for hours, and comes back while a webhook waits for its answer, gets them all', async () => {
    const store = new Memory()
    const from = Date.now()
    let hangs = true
    const lanes = lanesOver(store, {
      deliver: async () => {
        if (!hangs) return OK
        if (Date.now() - from > 3 * 3_600_000) setTimeout(() => (hangs = false), 30_000)
        await new Promise(done => setTimeout(done, 60_000))
        return { kind: 'failed', reason: 'upstream-timeout' }
      },
    })
    for (const id of ['0', '1', '2']) store.messages.push(messageOf(id))
    lanes.add('demo', 'l', 3)
    await pass(4 * 3_600_000)
    expect(store.messages.map(({ reason }) => reason)).toEqual(['200', '200', '200'])
  })

  /** A receiver that `bad` takes down for a time, and a lane of three webhooks with `bad` in front. */
  const crashing = (downMs: number) => {
    const store = new Memory()
    const delivered: string[] = []
    let upAt = 0
    for (const id of ['bad', 'good', 'better']) store.messages.push(messageOf(id))
    const start = () => {
      const lanes = lanesOver(store, {
        deliver: ({ id }) => {
          if (Date.now() < upAt) return Promise.resolve({ kind: 'failed', reason: 'upstream-refused' })
          if (id !== 'bad') {
            delivered.push(id)
            return Promise.resolve(OK)
          }
          upAt = Date.now() + downMs
          return Promise.resolve({ kind: 'failed', reason: 'upstream-broken' })
        },
      })
      const waiting = store.messages.filter(({ state }) => state === 'waiting')
      lanes.add('demo', 'l', waiting.length)
      return lanes
    }
    const reasons = () => store.messages.map(({ reason }) => reason)
    return { start, delivered, reasons }
  }

  test.each([100, 20_000, 5 * 60_000])('a webhook that takes its receiver down for %i ms is poison', async downMs => {
    const { start, delivered, reasons } = crashing(downMs)
    const lanes = start()
    await pass(28 * 60_000)
    expect(reasons()).toEqual([expect.stringMatching(/^upstream-/), '', ''])
    await pass(2 * 3_600_000)
    expect(reasons()).toEqual(['poison', '200', '200'])
    expect(delivered).toEqual(['good', 'better'])
    expect(lanes.size).toBe(0)
  })

  test('a webhook that takes its receiver down is poison, however often the server restarts', async () => {
    const { start, delivered, reasons } = crashing(20_000)
    for (let minutes = 0; minutes < 150; minutes += 7) {
      const lanes = start()
      await pass(7 * 60_000)
      lanes.close()
    }
    expect(reasons()).toEqual(['poison', '200', '200'])
    expect(delivered).toEqual(['good', 'better'])
  })

  test('a webhook that takes its receiver down for a moment, after a long outage, costs none behind it', async () => {
    const store = new Memory()
    const from = Date.now()
    let upAt = from + 2 * 3_600_000
    for (const id of ['bad', 'good', 'better', 'best']) store.messages.push(messageOf(id))
    const lanes = lanesOver(store, {
      deliver: async ({ id }) => {
        await new Promise(done => setTimeout(done, 60))
        if (Date.now() < upAt) return { kind: 'failed', reason: 'upstream-refused' }
        if (id !== 'bad') return OK
        upAt = Date.now() + 100
        return { kind: 'failed', reason: 'upstream-broken' }
      },
    })
    lanes.add('demo', 'l', 4)
    await pass(6 * 3_600_000)
    expect(store.messages.map(({ reason }) => reason)).toEqual(['poison', '200', '200', '200'])
  })

  test('a receiver in front of which everything is refused for a while costs one webhook of a lane, not those behind it', async () => {
    const from = Date.now()
    const { add, store } = make(() => {
      const hours = (Date.now() - from) / 3_600_000
      if (hours < 6) return DOWN
      return hours < 6.25 ? { kind: 'refused', reason: '404' } : OK
    })
    for (let i = 0; i < 12; i++) add(`${i}`)
    await pass(8 * 3_600_000)
    const [first, ...others] = store.messages
    expect(first).toMatchObject({ state: 'dead', reason: 'refused: 404' })
    expect(others.map(({ state }) => state)).toEqual(others.map(() => 'delivered'))
  })

  test('a receiver that is silent for long is tried with two messages a round, as it may be back meanwhile', async () => {
    const { add, tried } = make(() => DOWN, 60_000)
    for (let i = 0; i < 6; i++) add(`${i}`)
    await pass(24 * 3_600_000)
    expect([...new Set(tried)]).toEqual(['0', '1'])
  })

  test('a pause also ends a round of tests', async () => {
    const { add, lanes, tried } = make(() => DOWN, 100)
    for (let i = 0; i < 6; i++) add(`${i}`)
    await pass(4 * 3_600_000)
    tried.length = 0
    while (!tried.includes('1')) await pass(50)
    lanes.pause('demo', true)
    await pass(3_600_000)
    expect(tried).toEqual(['0', '1'])
  })

  test('a receiver that returns between two tests gets all of them, in order', async () => {
    const { add, delivered, store } = make(({ id }) => (Date.now() - from < 3 * 3_600_000 || id === '0' ? DOWN : OK))
    const from = Date.now()
    for (let i = 0; i < 6; i++) add(`${i}`)
    await pass(5 * 3_600_000)
    expect(store.messages[0]).toMatchObject({ state: 'dead', reason: 'poison' })
    expect(delivered).toEqual(['1', '2', '3', '4', '5'])
  })

  test('an expired message is not tried, and holds up nothing', async () => {
    const { add, ground, lanes, state, tried } = make(({ id }) => (id === 'fails' ? DOWN : OK))
    ground.live = false
    add('old', 'l', { expires: Date.now() + 60_000 })
    add('fails', 'l', { expires: Date.now() + 20 * 60_000 })
    add('good')
    await pass(120_000)
    ground.live = true
    lanes.wake('demo')
    await pass(18 * 60_000 + 100)
    expect(tried).not.toContain('old')
    expect([state('old'), state('fails')]).toMatchObject([
      { state: 'dead', reason: 'expired' },
      { state: 'dead', reason: 'expired' },
    ])
    expect(state('good')).toMatchObject({ state: 'delivered' })
    expect(lanes.size).toBe(0)
  })

  test.each(['expired', 'poison'])(
    'a dead letter is told of although the store did not say that it has written it: %s',
    async reason => {
      const store = new Memory()
      const told = vi.fn()
      const outcomeOf = ({ id }: Message) => Promise.resolve(id === 'first' ? DOWN : OK)
      const lanes = lanesOver(store, { deliver: outcomeOf, onGivenUp: ({ id }, why) => told(id, why) })
      const apply = store.apply.bind(store)
      vi.spyOn(store, 'apply').mockImplementation(async change => {
        const applied = await apply(change)
        if (change.op !== 'update' || change.set.state !== 'dead' || told.mock.calls.length > 0) return applied
        vi.mocked(store.apply).mockRestore()
        throw new StoreError('away', 'the connection was lost')
      })
      store.messages.push(
        messageOf('first', 'l', reason === 'expired' ? { expires: Date.now() } : {}),
        messageOf('good'),
      )
      lanes.add('demo', 'l', 2)
      await pass(3 * 3_600_000)
      expect(told.mock.calls).toEqual([['first', reason]])
      expect(store.messages.map(({ state }) => state)).toEqual(['dead', 'delivered'])
      expect(lanes.size).toBe(0)
    },
  )

  test('an offline store: nothing is tried whose outcome could not be written', async () => {
    const { add, store, tried } = make(() => OK)
    store.away = true
    add('a')
    await pass(60_000)
    expect(tried).toEqual([])
    store.away = false
    await pass(1000)
    expect(tried).toEqual(['a'])
  })

  test.each(['full', 'away'] as const)(
    'a store that is %s after an attempt: the webhook is not delivered again',
    async how => {
      const { add, lanes, state, store, tried } = make(() => {
        store[how] = true
        return OK
      })
      add('a')
      await pass(60_000)
      store[how] = false
      await pass(1000)
      expect(tried).toEqual(['a'])
      expect(state('a')).toMatchObject({ state: 'delivered', attempts: 1 })
      expect(lanes.size).toBe(0)
    },
  )

  test('a full disk: an attempt from before it was stored is not repeated, either', async () => {
    const { lanes, state, store, tried } = make(() => OK)
    store.messages.push(messageOf('slow', 'l', { attempts: 1 }))
    lanes.expect('demo', 'l', Date.now(), true)
    lanes.arrived('demo', 'l', state('slow'), Promise.resolve(OK))
    store.full = true
    await pass(60_000)
    store.full = false
    await pass(1000)
    expect(tried).toEqual([])
    expect(state('slow')).toMatchObject({ state: 'delivered' })
    expect(lanes.size).toBe(0)
  })

  test("another server's lane: the outcome of an attempt from before it was stored is not written, and the lane pauses", async () => {
    const { add, lanes, state, store, tried } = make(() => OK)
    store.messages.push(messageOf('slow', 'l', { attempts: 1 }))
    lanes.expect('demo', 'l', Date.now(), true)
    vi.spyOn(store, 'apply').mockRejectedValueOnce(new StoreError('gone', 'gone'))
    lanes.arrived('demo', 'l', state('slow'), Promise.resolve(OK))
    add('behind')
    await pass(900)
    expect(tried).toEqual([])
    await pass(1000)
    expect(tried).toEqual(['slow', 'behind'])
  })

  test.each([
    ['of which the store says again and again that it is gone', 'apply', 'gone'],
    ['that cannot be read although the store is open', 'next', 'away'],
  ] as const)('a webhook %s keeps its lane, and the log says so once a minute', async (_, what, kind) => {
    const error = vi.spyOn(noLogger, 'error')
    const { add, lanes, store, tried } = make(() => OK)
    const apply = vi.spyOn(store, what).mockRejectedValue(new StoreError(kind, kind))
    const said = [{ runtime: 'demo', lane: 'l', err: { message: kind } }, 'the webhooks of a lane cannot be delivered']
    add('a')
    await pass(500)
    expect(error).not.toHaveBeenCalled()
    await pass(58_000)
    expect(error.mock.calls).toEqual([said])
    await pass(5000)
    expect(error.mock.calls).toEqual([said, said])
    expect(lanes.isBusy('demo', 'l')).toBe(true)
    apply.mockRestore()
    add('b')
    await pass(2000)
    expect(tried).toEqual(['a', 'b'])
    error.mockRestore()
  })

  test('an outcome that cannot be written although the store is open: the log says so once a minute', async () => {
    const error = vi.spyOn(noLogger, 'error')
    const { add, store, tried } = make(() => {
      store.away = true
      return OK
    })
    add('a')
    await pass(30_000)
    const said = [{ err: { message: expect.any(String) } }, 'what became of a webhook cannot be written']
    expect(error.mock.calls).toEqual([said])
    store.away = false
    await pass(2000)
    expect(tried).toEqual(['a'])
    error.mockRestore()
  })

  test('a full disk during a round of tests: nobody is blamed for what the receiver does hours later', async () => {
    let isDown = false
    const { add, lanes, state, store, tried } = make(({ id }) => {
      if (id === 'good') store.full = true
      return id === 'good' && !isDown ? OK : DOWN
    })
    add('bad')
    add('good')
    await until(() => pass(60_000).then(() => tried.includes('good')))
    isDown = true
    await pass(3_600_000)
    store.full = false
    await pass(2000)
    expect([state('bad'), state('good')]).toMatchObject([{ state: 'waiting' }, { state: 'delivered' }])
    expect(tried.filter(id => id === 'good')).toHaveLength(1)
    expect(lanes.waiting('demo', 'l')).toBe(1)
  })

  test('a full disk, and the server stops: it does not wait for room', async () => {
    const { add, lanes, store } = make(() => {
      store.full = true
      return OK
    })
    add('a')
    await pass(60_000)
    const closed = vi.fn()
    void lanes.close().then(closed)
    await pass(1000)
    expect(closed).toHaveBeenCalledOnce()
  })

  test('a full disk: those behind a message that expires then are not forgotten', async () => {
    const { add, lanes, ground, store, state } = make(() => OK)
    ground.live = false
    add('old', 'l', { expires: Date.now() + 60_000 })
    for (const id of ['a', 'b', 'c']) add(id)
    await pass(120_000)
    ground.live = true
    store.full = true
    lanes.wake('demo')
    await pass(60_000)
    store.full = false
    expect(state('old')).toMatchObject({ state: 'waiting' })
    expect(lanes.waiting('demo', 'l')).toBe(4)
  })

  test('a full disk: the log says why nothing is delivered, once a minute', async () => {
    const store = new Memory()
    const error = vi.fn()
    const lanes = lanesOver(store, { logger: { ...noLogger, error }, deliver: () => Promise.resolve(OK) })
    store.full = true
    for (const lane of ['a', 'b']) {
      store.messages.push(messageOf(`${lane}1`, lane))
      lanes.add('demo', lane, 1)
    }
    await pass(59_000)
    const said = [{ err: { message: 'full' } }, 'stored webhooks cannot be delivered until the disk has room']
    expect(error.mock.calls).toEqual([said])
    await pass(60_000)
    expect(error.mock.calls).toEqual([said, said])
    store.full = false
    await pass(3_600_000)
    expect(error.mock.calls).toEqual([said, said])
    expect(lanes.size).toBe(0)
  })

  test('paused: nothing is tried until it is resumed', async () => {
    const { add, lanes, tried } = make(() => OK)
    lanes.pause('demo', true)
    add('a')
    await pass(60_000)
    expect(tried).toEqual([])
    lanes.pause('demo', false)
    await pass(1000)
    expect(tried).toEqual(['a'])
  })

  test('an attempt from before it was stored: the lane waits for it, and a 2xx settles it', async () => {
    const { add, lanes, store, tried } = make(() => OK)
    let answered: (outcome: Outcome) => void = () => {}
    const underWay = new Promise<Outcome>(resolve => (answered = resolve))
    const message = { ...WAITING, id: 'slow', runtime: 'demo', lane: 'l', attempts: 1 } as Message
    store.messages.push(message)
    lanes.expect('demo', 'l', Date.now(), true)
    lanes.arrived('demo', 'l', message, underWay)
    add('behind')
    await pass(60_000)
    expect(tried).toEqual([])
    answered(OK)
    await pass(100)
    expect(tried).toEqual(['behind'])
    expect(store.messages.map(({ state }) => state)).toEqual(['delivered', 'delivered'])
  })
})

test('lanes of a runtime that has left take no turn from others', async () => {
  const store = new Memory()
  const tried: string[] = []
  const live = new Set(['gone', 'here'])
  const { promise, resolve } = Promise.withResolvers<Outcome>()
  const lanes = lanesOver(store, {
    lanes: 1,
    isLive: runtime => live.has(runtime),
    deliver: ({ runtime }) => {
      tried.push(runtime)
      return runtime === 'gone' ? promise : Promise.resolve(OK)
    },
  })
  for (const [runtime, lane] of [
    ['gone', '1'],
    ['gone', '2'],
    ['here', '3'],
  ] as const) {
    store.messages.push({ ...WAITING, id: lane, runtime, lane } as Message)
    lanes.add(runtime, lane, 1)
  }
  await eventually(() => expect(tried).toEqual(['gone']))
  live.delete('gone')
  resolve({ kind: 'offline', reason: 'runtime-offline' })
  await eventually(() => expect(tried).toEqual(['gone', 'here']))
  lanes.close()
})

test('a turn costs the same, however many lanes wait for theirs', async () => {
  const waiting = new Set(Array.from({ length: 40_000 }, (_, i) => `lane${i}`))
  const store: Partial<InboxStore> = {
    next: (_runtime, lane) =>
      Promise.resolve(waiting.has(lane) ? [{ id: lane, runtime: 'demo', lane } as Message] : []),
    apply: change => {
      if (change.op === 'update' && change.set.state === 'delivered') waiting.delete(change.id)
      return Promise.resolve({ status: 'done', id: '' })
    },
  }
  const lanes = lanesOver(store, { random: () => 0, deliver: () => Promise.resolve(OK) })
  for (const lane of [...waiting]) {
    lanes.expect('demo', lane, Date.now())
    lanes.arrived('demo', lane, { id: lane } as Message)
  }
  await until(() => lanes.size === 0)
  expect(waiting.size).toBe(0)
})

test('runtimes whose receivers are silent leave a place for another', async () => {
  const store = new Memory()
  const tried: string[] = []
  const lanes = lanesOver(store, {
    ...{ random: () => 0, lanesPerRuntime: 4, lanes: 8 },
    deliver: ({ runtime }) => {
      tried.push(runtime)
      return runtime === 'here' ? Promise.resolve(OK) : new Promise(() => {})
    },
  })
  for (const runtime of [...Array.from({ length: 10 }, (_, i) => ['silent', 'mute'][i % 2]!), 'here']) {
    const id = `${store.messages.length}`
    store.messages.push({ ...WAITING, id, runtime, lane: id } as Message)
    lanes.add(runtime, id, 1)
  }
  await until(() => tried.includes('here'))
  expect(tried.length).toBeGreaterThan(4)
  lanes.close()
})

test('a message that expires during an attempt is counted once, and the lane goes on', async () => {
  const { add, lanes, tried } = make(() => {
    if (tried.length < 3) lanes.remove('demo', 'l', 1)
    return OK
  })
  for (const id of ['a', 'b', 'c']) add(id)
  await until(() => lanes.size === 0)
  expect(tried).toEqual(['a', 'b', 'c'])
})

test('a webhook whose attempt began before it was stored is not tried again beside it', async () => {
  const { add, lanes, store, tried, state } = make(() => OK)
  const { promise: underWay, resolve } = Promise.withResolvers<Outcome>()
  const { promise: confirmed, resolve: confirm } = Promise.withResolvers<void>()
  const late = messageOf('late')
  const next = store.next.bind(store)
  store.next = (...asked) => {
    if (tried.length === 1 && store.messages.length === 1) {
      lanes.expect('demo', 'l', Date.now(), true)
      store.messages.push(late)
    }
    return next(...asked)
  }
  add('first')
  await until(() => store.messages.length === 2)
  // What the store returns may overtake its confirmation.
  setImmediate(confirm)
  await confirmed
  lanes.arrived('demo', 'l', late, underWay)
  resolve(OK)
  await until(() => lanes.size === 0)
  expect(state('late')).toMatchObject({ state: 'delivered' })
  expect(tried).toEqual(['first'])
})

test('a webhook whose attempt began before it could not be stored holds up nothing', async () => {
  const { add, lanes, tried } = make(() => OK)
  lanes.expect('demo', 'l', Date.now(), true)
  add('behind')
  lanes.arrived('demo', 'l', undefined, Promise.resolve(OK))
  await until(() => lanes.size === 0)
  expect(tried).toEqual(['behind'])
})

test('a store of one server is asked what waits once a webhook ends while an attempt is under way', async () => {
  const { lanes, add, ground } = make(() => OK, 50)
  for (const id of ['a', 'b', 'c']) add(id)
  await until(() => ground.active.has('l'))
  expect(lanes.isUnsure).toBe(false)
  lanes.remove('demo', 'l', 2)
  expect([lanes.isUnsure, lanes.waiting('demo', 'l')]).toEqual([true, 1])
  lanes.reconciling()([{ runtime: 'demo', lane: 'l', messages: 3 }])
  expect([lanes.isUnsure, lanes.waiting('demo', 'l')]).toEqual([false, 3])
})

describe("where servers share a store, the store's contents count", () => {
  /** 20 wait in lane `l`, as far as this server knows, and it has no session. */
  const offline = () => {
    const made = make(() => OK)
    Object.assign(made.store, { shared: { release() {} } })
    made.ground.live = false
    for (let i = 0; i < 20; i++) made.add(`m${i}`)
    return made
  }

  test.each([0, 5, 300])('the others left %i of 20', messages => {
    const { lanes } = offline()
    lanes.reconciling()(messages === 0 ? [] : [{ runtime: 'demo', lane: 'l', messages }])
    expect(lanes.waiting('demo', 'l')).toBe(messages)
    expect(lanes.size).toBe(Math.min(1, messages))
    expect(lanes.has('demo')).toBe(messages > 0)
  })

  test('lanes are gone if their webhooks were dropped or expired, or if only others had them', () => {
    const { lanes } = offline()
    lanes.laneChanged('demo', 'theirs', 'waits')
    lanes.remove('demo', 'l', 20)
    lanes.reconciling()([])
    expect(lanes.size).toBe(0)
  })

  test('what another server stored is tried, although ours turned out to be a duplicate of it', async () => {
    const { lanes, store, delivered } = make(() => OK)
    Object.assign(store, { shared: { release() {} } })
    lanes.expect('demo', 'l', Date.now())
    store.messages.push(messageOf('theirs'))
    lanes.laneChanged('demo', 'l', 'waits')
    lanes.arrived('demo', 'l', undefined)
    await until(() => lanes.size === 0)
    expect(delivered).toEqual(['theirs'])
  })

  test.each<[string, (made: ReturnType<typeof offline>) => void]>([
    ['stored', ({ add }) => add('new')],
    ['stored elsewhere', ({ lanes }) => lanes.laneChanged('demo', 'l', 'waits')],
    ['replayed', ({ lanes }) => lanes.add('demo', 'l', 1)],
    ['on its way', ({ lanes }) => lanes.expect('demo', 'l', Date.now())],
  ])('what is %s while the store is queried is not forgotten', (_what, come) => {
    const made = offline()
    const reconcile = made.lanes.reconciling()
    come(made)
    reconcile([])
    expect(made.lanes.waiting('demo', 'l')).toBe(1)
    expect(made.lanes.isBusy('demo', 'l')).toBe(true)
  })

  test('one lane can be counted again, and what is stored meanwhile is not forgotten', async () => {
    const made = offline()
    const waiting = vi.fn(async () => 3)
    Object.assign(made.store, { shared: { release() {}, waiting } })
    const counted = made.lanes.recount('demo', 'l')
    made.add('new')
    expect(await counted).toBe(true)
    expect(made.lanes.waiting('demo', 'l')).toBe(4)
    expect(await made.lanes.recount('demo', 'l')).toBe(false)
    expect(await made.lanes.recount('demo', 'unknown')).toBe(false)
    expect(waiting).toHaveBeenCalledExactlyOnceWith('demo', 'l')
  })
})
