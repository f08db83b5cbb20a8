import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { noLogger } from '../../protocol/base/log.ts'
import type { Directory, Grant } from '../../server/directory/directory.ts'
import { MemoryDirectory } from '../../server/directory/memory.ts'
import { type RegisteredSession, Registry } from '../../server/registry.ts'

class Fake implements RegisteredSession {
  readonly id: string
  readonly runtime: string
  readonly instance: string
  rttMs = 0
  exchanges = 0
  overdue = false
  heardAt = 0
  grants: Grant[] = []

  constructor(id: string, instance: string, runtime = 'demo') {
    this.id = id
    this.instance = instance
    this.runtime = runtime
  }

  claims(): boolean {
    return false
  }

  granted(grant: Grant): void {
    this.grants.push(grant)
  }

  get last(): Grant | undefined {
    return this.grants.at(-1)
  }
}

function create(random: () => number = () => 0) {
  return new Registry<Fake>({ directory: new MemoryDirectory(), logger: noLogger, random })
}

async function join(registry: Registry<Fake>, member: Fake, lastEpoch = 0): Promise<Fake> {
  registry.add(member)
  await registry.ready(member, lastEpoch)
  return member
}

/** The directory answers within a microtask or two. */
const settled = () => new Promise(resolve => setImmediate(resolve))

test('a session is granted what the directory already knew, and announces nothing again', async () => {
  const directory = new MemoryDirectory()
  directory.listen = () => {}
  const registry = new Registry<Fake>({ directory, logger: noLogger })
  const member = await join(registry, new Fake('1', 'a'))
  expect(member.grants).toEqual([{ epoch: 1, active: true }])
})

test.each([
  ['here', ['replica'], 'a', ['a', 'a']],
  ['at another replica', ['other'], 'a', [undefined, 'a']],
  ['nowhere', [], 'a', [undefined, undefined]],
  ['here, and is its own', ['replica'], 'b', [undefined, undefined]],
  ['perhaps, as far as we know', [], undefined, [undefined, '']],
])('a session is a standby if another instance is active: %s', (_where, replicas, active, expected) => {
  const directory: Directory = Object.assign(new MemoryDirectory(), { replica: 'replica' })
  const state = { runtime: 'demo', epoch: 2, version: 1, changedMs: 0 }
  directory.find = () =>
    active === undefined ? 'unknown' : { ...state, active, instances: new Map([[active, { epoch: 2, replicas }]]) }
  const registry = new Registry<Fake>({ directory, logger: noLogger })
  const member = new Fake('1', 'b')
  expect([registry.activeBeside(member, false), registry.activeBeside(member, true)]).toEqual(expected)
})

test.each([
  ['nobody is active', undefined, [], [], [false, false]],
  ['the directory must be asked', 'unknown', [], [], [false, 'unknown']],
  ['another instance is active here', 'b', [], ['replica'], [true, true]],
  ['another instance is active elsewhere', 'b', ['replica'], ['other'], [false, true]],
  ['it is active here and elsewhere', 'a', ['replica', 'other'], [], [false, false]],
  ['it is active, but only elsewhere', 'a', ['other'], [], [false, true]],
  ['it was active, and has left', 'a', [], [], [false, false]],
] as const)('what an instance announced may have been overtaken: %s', async (_, active, own, others, expected) => {
  const directory: Directory = Object.assign(new MemoryDirectory(), { replica: 'replica' })
  const instances = new Map([
    ['a', { epoch: 1, replicas: own }],
    ['b', { epoch: 1, replicas: others }],
  ])
  const state = { runtime: 'demo', epoch: 1, version: 1, changedMs: 0, instances }
  directory.find = () => (active === undefined || active === 'unknown' ? active : { ...state, active })
  const registry = new Registry<Fake>({ directory, logger: noLogger })
  const member = new Fake('1', 'a')
  if ((own as readonly string[]).includes('replica')) registry.add(member)
  expect([registry.isOvertaken(member, false), registry.isOvertaken(member, true)]).toEqual(expected)
})

test("whoever waits for the directory's answer is told once, however many wait", async () => {
  const directory: Directory = new MemoryDirectory()
  let refreshed = 0
  directory.find = () => 'unknown'
  directory.refresh = async () => {
    refreshed++
    return 'unknown'
  }
  let told = 0
  const registry: Registry<Fake> = new Registry<Fake>({
    directory,
    logger: noLogger,
    onLive: () => {
      told++
      // Each of ten that wait asks again, for three rounds.
      if (told <= 3) for (let i = 0; i < 10; i++) expect(registry.ask('demo', false)).toBe(true)
    },
  })
  for (let i = 0; i < 10; i++) expect(registry.ask('demo', false)).toBe(true)
  for (let i = 0; i < 10; i++) await settled()
  expect([refreshed, told]).toEqual([4, 4])
})

test('when too many made-up names were looked up, a known name waits without another query', async () => {
  const directory: Directory = new MemoryDirectory()
  const known = new Set(['demo'])
  const state = { runtime: 'demo', epoch: 1, active: 'a', version: 1, instances: new Map(), changedMs: 0 }
  directory.find = name => (known.has(name) ? state : 'unknown')
  directory.refresh = async () => undefined
  const registry = new Registry<Fake>({ directory, logger: noLogger })
  for (let i = 0; i < 250; i++) {
    registry.ask(`made-up-${i}`, false, '192.0.2.1')
    await settled()
  }
  expect(registry.ask('other', false, '192.0.2.1')).toBe('refused')
  expect(registry.ask('other', false, '192.0.2.2')).toBe(true)
  expect(registry.ask('demo', true, '192.0.2.1')).toBe(false)
  expect(registry.ask('demo', true, '192.0.2.2')).toBe(true)
})

test('a directory that claims an instance here that does not exist is corrected', async () => {
  const directory = new MemoryDirectory()
  const registry = new Registry<Fake>({ directory, logger: noLogger })
  const member = await join(registry, new Fake('1', 'a'))
  // As it was left behind, or as somebody else has written it.
  await directory.ready({ runtime: 'demo', instance: 'left', lastEpoch: 7 })
  expect(directory.find('demo')).toMatchObject({ active: 'a', epoch: 8 })
  expect(directory.find('demo')!.instances.get('left')!.replicas).toEqual([])
  expect(registry.pick('demo')).toBe(member)
})

describe('picking a session', () => {
  test('only ready ones, of the active instance', async () => {
    const registry = create()
    const one = new Fake('1', 'a')
    registry.add(one)
    expect(registry.pick('demo')).toBeUndefined()
    await registry.ready(one, 0)
    expect(registry.pick('demo')).toBe(one)
    expect(registry.pick('other')).toBeUndefined()
    registry.drain(one)
    expect(registry.pick('demo')).toBeUndefined()
  })

  test('a slow session gets none while another is healthy', async () => {
    const registry = create()
    const members = await Promise.all(['1', '2', '3'].map(id => join(registry, new Fake(id, 'a'))))
    members[0]!.overdue = true
    members[1]!.overdue = true
    members[2]!.exchanges = 100
    expect(registry.pick('demo')).toBe(members[2])
    expect(registry.pick('demo', members[2])?.overdue).toBe(true)
    members[1]!.overdue = false
    expect(registry.pick('demo', members[2])).toBe(members[1])
    registry.drain(members[2]!)
    members[1]!.exchanges = 100
    expect(registry.pick('demo')).toBe(members[1])
  })

  test.each([0, 0.3, 0.6, 0.9])(
    'of three that are slow, the one that was heard last, whichever two are compared (%d)',
    async random => {
      const registry = create(() => random)
      const members = await Promise.all(['1', '2', '3'].map(id => join(registry, new Fake(id, 'a'))))
      for (const [i, member] of members.entries()) Object.assign(member, { overdue: true, heardAt: i, exchanges: i })
      expect([undefined, members[0], members[2]].map(not => registry.pick('demo', not))).toEqual([
        members[2],
        members[2],
        members[1],
      ])
    },
  )

  test('the better of two: lower round trip times (open exchanges + 1)', async () => {
    const registry = create()
    const near = await join(registry, new Fake('1', 'a'))
    const far = await join(registry, new Fake('2', 'a'))
    near.rttMs = 10
    far.rttMs = 25
    near.exchanges = 1
    expect(registry.pick('demo')).toBe(near)
    near.exchanges = 2
    expect(registry.pick('demo')).toBe(far)
    expect(registry.pick('demo', far)).toBe(near)
  })

  test('never the one that failed, and only of the requested instance', async () => {
    const registry = create(Math.random)
    const all = await Promise.all(['1', '2', '3'].map(id => join(registry, new Fake(id, 'a'))))
    const other = await join(registry, new Fake('4', 'b'))
    for (let i = 0; i < 50; i++) {
      expect(registry.pick('demo', all[0], 'a')).not.toBe(all[0])
      expect(registry.pick('demo')).toBe(other)
    }
    expect(registry.pick('demo', other)).toBeUndefined()
  })
})

describe('instances', () => {
  test('all sessions of an instance share its epoch, and reconnecting never raises it', async () => {
    const registry = create()
    const one = await join(registry, new Fake('1', 'a'))
    const two = await join(registry, new Fake('2', 'a'))
    expect([one.last, two.last]).toEqual([
      { epoch: 1, active: true },
      { epoch: 1, active: true },
    ])
    registry.remove(one)
    registry.remove(two)
    expect(registry.runtimes).toBe(0)
    const back = await join(registry, new Fake('3', 'a'), 1)
    expect(back.last).toEqual({ epoch: 1, active: true })
  })

  test('a newer one takes over; the older becomes a standby, and returns when the newer drains', async () => {
    const registry = create()
    const old = await join(registry, new Fake('1', 'a'))
    const fresh = await join(registry, new Fake('2', 'b'))
    expect([old.last, fresh.last]).toEqual([
      { epoch: 1, active: false },
      { epoch: 2, active: true },
    ])
    registry.drain(fresh)
    await settled()
    expect(old.last).toEqual({ epoch: 3, active: true })
    expect(registry.pick('demo')).toBe(old)
  })

  test('a superseded one that reconnects stays a standby', async () => {
    const registry = create()
    const old = await join(registry, new Fake('1', 'a'))
    await join(registry, new Fake('2', 'b'))
    registry.remove(old)
    const back = await join(registry, new Fake('3', 'a'), 1)
    expect(back.last).toEqual({ epoch: 1, active: false })
  })

  test('one that is not ready never takes over', async () => {
    const registry = create()
    const one = await join(registry, new Fake('1', 'a'))
    registry.add(new Fake('2', 'b'))
    expect(registry.pick('demo')).toBe(one)
  })

  test('after a restart the presented epoch counts, and the next is above all', async () => {
    const registry = create()
    const back = await join(registry, new Fake('1', 'a'), 7)
    expect(back.last).toEqual({ epoch: 7, active: true })
    const older = await join(registry, new Fake('2', 'b'), 5)
    expect(older.last).toEqual({ epoch: 5, active: false })
    const fresh = await join(registry, new Fake('3', 'c'))
    expect(fresh.last).toEqual({ epoch: 8, active: true })
  })

  test('a session that ends while the directory is queried is not brought back', async () => {
    const registry = create()
    const one = new Fake('1', 'a')
    registry.add(one)
    const ready = registry.ready(one, 0)
    registry.remove(one)
    await ready
    expect([registry.pick('demo'), registry.sessions, registry.runtimes]).toEqual([undefined, 0, 0])
  })

  test('one that drains while the directory is queried does not keep a standby from serving', async () => {
    const directory = new MemoryDirectory()
    const registry = new Registry<Fake>({ directory, logger: noLogger })
    const old = await join(registry, new Fake('1', 'old'))
    // It is told of the drain first.
    const answering = Promise.withResolvers<void>()
    const { ready } = directory
    directory.ready = registration => answering.promise.then(() => ready.call(directory, registration))
    const next = new Fake('2', 'next')
    const joining = join(registry, next)
    registry.drain(next)
    answering.resolve()
    await joining
    await settled()
    expect(registry.pick('demo')).toBe(old)
    registry.remove(next)
    expect(registry.pick('demo')).toBe(old)
  })

  test('whatever comes and goes: one active instance, the latest epoch, and a live session is found', async () => {
    const step = fc.record({
      what: fc.constantFrom('join', 'ready', 'drain', 'remove'),
      instance: fc.constantFrom('a', 'b', 'c'),
      index: fc.nat(5),
    })
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 40 }), async steps => {
        const registry = create(Math.random)
        const members: Fake[] = []
        const live = new Set<Fake>()
        let next = 0
        for (const { what, instance, index } of steps) {
          if (what === 'join') {
            const member = new Fake(String(next++), instance)
            registry.add(member)
            members.push(member)
            continue
          }
          const member = members[index % Math.max(1, members.length)]
          if (member === undefined) continue
          if (what === 'ready') {
            await registry.ready(member, member.last?.epoch ?? 0)
            live.add(member)
          } else {
            live.delete(member)
            if (what === 'drain') registry.drain(member)
            else registry.remove(member)
            members.splice(members.indexOf(member), 1)
          }
          await settled()
          const picked = registry.pick('demo')
          expect(picked !== undefined).toBe(live.size > 0)
          if (picked === undefined) continue
          expect(live.has(picked)).toBe(true)
          const active = new Set([...live].filter(one => one.last?.active).map(one => one.instance))
          expect([...active]).toEqual([picked.instance])
          expect(picked.last?.epoch).toBe(Math.max(...[...live].map(one => one.last!.epoch)))
        }
      }),
      { numRuns: 200 },
    )
  })
})
