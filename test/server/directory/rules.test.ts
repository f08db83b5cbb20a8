import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { EPOCHS_END, MAX_INSTANCES, type RuntimeState } from '../../../server/directory/directory.ts'
import {
  applyChange,
  enter,
  leave,
  type Now,
  newRecord,
  type RuntimeRecord,
  stateOf,
} from '../../../server/directory/record.ts'
import { RedisLink } from '../../../server/directory/redis-link.ts'
import { formatRuntimeState, parseRuntimeState } from '../../../server/directory/runtime-state.ts'
import { CHANGE, RENEW } from '../../../server/directory/scripts.ts'
import type { DirectoryChange } from '../../../server/directory/store.ts'
import { MAX_PEER_MESSAGE_BYTES } from '../../../server/peer/transport.ts'
import { needs } from '../../support/needs.ts'
import { Redis } from '../../support/redis.ts'

type Step =
  | { what: 'enter'; instance: string; replica: string; presented: number; seen: number; seenActive: string }
  | { what: 'leave'; instance: string; replica: string; seen: number; seenActive: string }
  /** A replica that is found dead by whoever changes something next. */
  | { what: 'dies'; replica: string }

const instance = fc.constantFrom('a', 'b', 'c', 'd')
const replica = fc.constantFrom('r1', 'r2', 'r3')
const seen = {
  seen: fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, fc.nat(12)),
  seenActive: fc.oneof(fc.constant(''), instance),
}
const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    fc.record({
      what: fc.constant('enter' as const),
      instance,
      replica,
      presented: fc.oneof(fc.constant(0), fc.nat(12)),
      ...seen,
    }),
    fc.record({ what: fc.constant('leave' as const), instance, replica, ...seen }),
    fc.record({ what: fc.constant('dies' as const), replica }),
  ),
  { maxLength: 25 },
)

/** A comparable form: epochs, who is active, who is where. */
function shapeOf({ epoch, active, instances }: RuntimeState) {
  const placed = [...instances].map(([name, one]) => [name, one.epoch, [...one.replicas].sort()])
  return { epoch, active, instances: placed.sort() }
}

const at = (leaseMs: number, young = false): Now => ({ nowMs: 1, leaseMs, young })

function apply(record: RuntimeRecord, step: Step, now: Now): void {
  if (step.what === 'enter') enter(record, step, now)
  else if (step.what === 'leave') leave(record, step.instance, step.replica, now)
  else for (const name of record.instances.keys()) leave(record, name, step.replica, now)
}

function changeOf(step: Step): DirectoryChange {
  const change = { runtime: 'demo', instance: '', presented: 0, seen: 0, seenActive: '' }
  if (step.what === 'dies') return { ...change, operation: 'look' }
  const { what, replica: _, ...rest } = step
  return { ...change, ...rest, operation: what }
}

describe('the rules of epochs', () => {
  test.each([0, 1e9])('after every step (news that arrives late is waited for %i ms)', leaseMs => {
    fc.assert(
      fc.property(steps, list => {
        const record = newRecord()
        let before = 0
        const granted = new Map<number, string>()
        for (const step of list) {
          const old = new Map([...record.instances].map(([name, { epoch }]) => [name, epoch]))
          apply(record, step, at(leaseMs))
          // The latest epoch never falls, and no instance is set back.
          expect(record.epoch).toBeGreaterThanOrEqual(before)
          before = record.epoch
          for (const [name, { epoch }] of record.instances) {
            expect(epoch).toBeLessThanOrEqual(record.epoch)
            expect(epoch).toBeGreaterThanOrEqual(old.get(name) ?? 0)
            // A new epoch belongs to one instance only; a presented one is the presenter's claim.
            const isNew = epoch !== old.get(name) && !(step.what === 'enter' && epoch === step.presented)
            if (isNew) expect(granted.get(epoch) ?? name).toBe(name)
            if (isNew) granted.set(epoch, name)
          }
          // Some live instance is active, unless lost records are waited for.
          const live = [...record.instances.values()].some(({ replicas }) => replicas.size > 0)
          if (live && leaseMs === 0) expect(record.instances.get(record.active)?.replicas.size).toBeGreaterThan(0)
        }
      }),
      { numRuns: 500 },
    )
  })

  test('reconnecting never raises an epoch, for the last active instance', () => {
    const record = newRecord()
    const come = (name: string) =>
      enter(record, { instance: name, replica: 'r1', presented: 0, seen: 0, seenActive: '' }, at(0))
    for (let i = 0; i < 3; i++) {
      come('a')
      leave(record, 'a', 'r1', at(0))
    }
    expect(record.epoch).toBe(1)
    come('b')
    leave(record, 'b', 'r1', at(0))
    come('b')
    expect([record.epoch, record.active]).toEqual([2, 'b'])
  })

  test('instances that left are forgotten, those with the lowest epochs first', () => {
    const record = newRecord()
    for (let i = 0; i < MAX_INSTANCES + 5; i++) {
      const entrance = { instance: `i${i}`, replica: 'r1', presented: 0, seen: 0, seenActive: '' }
      enter(record, entrance, at(0))
      leave(record, `i${i}`, 'r1', at(0))
    }
    expect(record.instances.size).toBe(MAX_INSTANCES)
    expect(record.instances.has('i0')).toBe(false)
  })

  test('an inconsistent state is refused', () => {
    const listOf = (change: Partial<Record<number, unknown>>) =>
      JSON.stringify(Object.values({ ...['demo', '1', 'a', '2', '3', 'a', '1 r1'], ...change }))
    expect(parseRuntimeState(listOf({}), 0)).toMatchObject({ runtime: 'demo', epoch: 1, active: 'a', version: 2 })
    const reasons: [change: Partial<Record<number, unknown>>, reason: string][] = [
      [{ 1: String(EPOCHS_END) }, `there is no epoch ${EPOCHS_END}`],
      [{ 6: `${EPOCHS_END} r1` }, `there is no epoch ${EPOCHS_END}`],
      [{ 1: '-1' }, 'expected a number, not -1'],
      [{ 3: '1.5' }, 'expected a number, not 1.5'],
      [{ 4: '9'.repeat(17) }, `expected a number, not ${'9'.repeat(17)}`],
      [{ 1: 1 }, 'expected a list of texts'],
    ]
    for (const [change, reason] of reasons) {
      expect(() => parseRuntimeState(listOf(change), 0)).toThrow(new TypeError(reason))
    }
    expect(() => parseRuntimeState('{}', 0)).toThrow(new TypeError('expected a list of texts'))
  })

  test.each([
    ['is active', ['demo', '1', '"', '2', '3', 'a', '1 r1']],
    ['is an instance', ['demo', '1', 'a', '2', '3', 'a', '1 r1', '"', '1 r1']],
    ['is a replica', ['demo', '1', 'a', '2', '3', 'a', '1 r1 "']],
    ['is an instance that takes more bytes', ['demo', '1', 'a', '2', '3', 'a', '1 r1', '\u20ac', '1 r1']],
  ])("the directory's contents can be sent to others, even with a foreign text that %s", (_what, list) => {
    const planted = list.map(text => text.replace(/["\u20ac]/, found => found.repeat(600_000)))
    const state = parseRuntimeState(JSON.stringify(planted), 0)
    expect(state.instances).toEqual(new Map([['a', { epoch: 1, replicas: ['r1'] }]]))
    const message = JSON.stringify({ type: 'standing', standing: formatRuntimeState(state, 0) })
    expect(Buffer.byteLength(message)).toBeLessThan(MAX_PEER_MESSAGE_BYTES)
  })

  test('a state survives being sent', () => {
    const record = newRecord()
    for (const name of ['a', 'b']) {
      const entrance = { instance: name, replica: 'r%201~x', presented: 0, seen: 0, seenActive: '' }
      enter(record, entrance, at(0))
    }
    const state = { ...stateOf('demo', record, 90), version: 1_795_243_908_861_234 }
    expect(parseRuntimeState(formatRuntimeState(state, 100), 100)).toEqual(state)
  })

  test.each([
    [22, 64],
    [1000, 64],
    [1000, 500],
  ])('a state of 16 instances at %i replicas with names of %i characters fits into a message', (count, chars) => {
    const replicas = Array.from({ length: count }, (_, i) => String(i).padStart(chars, 'r'))
    const instances = new Map(
      Array.from({ length: 16 }, (_, i) => [String(i).padStart(64, 'i'), { epoch: 16 - i, replicas }] as const),
    )
    const state = { runtime: 'demo', epoch: 16, active: '0'.padStart(64, 'i'), version: 1, instances, changedMs: 90 }
    const text = formatRuntimeState(state, 100)
    expect(JSON.stringify({ type: 'standing', standing: text }).length).toBeLessThan(MAX_PEER_MESSAGE_BYTES)
    const told = [...parseRuntimeState(text, 100).instances]
    expect(told).toEqual([...instances].slice(0, told.length))
    expect(told).toHaveLength(chars === 64 ? 16 : 2)
  })

  test.each(['{}', '[1]', '["demo","x","a","1","0"]', '["demo","1","a","1","-5"]', 'no JSON'])(
    '%s is not a state',
    text => {
      expect(() => parseRuntimeState(text, 0)).toThrow()
    },
  )
})

describe.runIf(needs('redis'))('the same rules in Redis', () => {
  let redis: Redis
  let link: RedisLink
  beforeAll(async () => {
    redis = await Redis.start()
    link = await RedisLink.open({ url: redis.url }, { channel: 'sallyport:changes', key: 'x' }, 5000, {
      message() {},
      closed() {},
    })
  })
  afterAll(async () => {
    link.close()
    await redis.stop()
  })

  let runs = 0
  test.each([
    ['nothing is waited for', 0, '0', false],
    ['what comes to light late is waited for', 1e12, '0', false],
    ['the directory is young', 1e12, undefined, true],
  ] as const)('give the same, step by step: %s', async (_name, leaseMs, born, young) => {
    await fc.assert(
      fc.asyncProperty(steps, async list => {
        const record = newRecord()
        const [key, replicas] = [`sallyport:record:${runs}`, `sallyport:replicas:${runs++}`]
        const renew = (name: string, forMs: number) => link.run(RENEW, replicas, [name, '', String(forMs), '0'])
        if (born !== undefined) await redis.command('HSET', replicas, '@born', born)
        const dead = new Set<string>()
        for (const step of list) {
          // A death is noticed when somebody looks.
          await renew(step.replica, step.what === 'dies' ? 0 : 1e6)
          if (step.what === 'dies') dead.add(step.replica)
          else dead.delete(step.replica)
          const change = changeOf(step)
          const { operation, instance, presented, seen, seenActive } = change
          const by = step.what === 'dies' ? '' : step.replica
          const numbers = [String(presented), String(seen), seenActive, String(leaseMs)]
          const kept = ['1000000', '1000000', String(MAX_INSTANCES)]
          const told = [operation, 'demo', instance, by, ...numbers, ...kept, 'none']
          const answer = await link.run(CHANGE, [key, replicas], told)
          if (answer === null || answer === '') continue
          applyChange(record, change, by, name => !dead.has(name), at(leaseMs, young))
          expect(shapeOf(parseRuntimeState(answer, 0))).toEqual(shapeOf(stateOf('demo', record, 0)))
        }
      }),
      { numRuns: 100 },
    )
  })

  test('the version grows with every change and only then, and no number loses digits', async () => {
    const run = (operation: string, ...who: string[]) =>
      link.run(
        CHANGE,
        ['sallyport:versions', 'sallyport:all'],
        [...[operation, 'demo', ...who, '0', '0', '', '0', '1000000', '1000000', '32', 'none']],
      )
    for (const name of ['r1', 'r2']) await link.run(RENEW, 'sallyport:all', [name, '', '1000000', '0'])
    const versions: number[] = []
    for (const replica of ['r1', 'r1', 'r2', 'r2'])
      versions.push(parseRuntimeState((await run('enter', 'a', replica))!, 0).version)
    expect(versions[0]).toBe(versions[1])
    expect(versions[2]).toBe(versions[3])
    expect(versions[2]! > versions[1]!).toBe(true)
    expect(versions[0]! > 1e15 && Number.isSafeInteger(versions[0])).toBe(true)
  })
})
