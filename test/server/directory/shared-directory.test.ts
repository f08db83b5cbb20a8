// @module-tag slow
/**
 * The directory's algorithm against everything that a store may do to it: the same for a store in memory and a real
 * Redis.
 */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { elapsedMs } from '../../../protocol/base/elapsed.ts'
import type { Logger } from '../../../protocol/base/log.ts'
import type { DirectoryState, RuntimeState } from '../../../server/directory/directory.ts'
import type { Script } from '../../../server/directory/scripts.ts'
import { NoWitnesses, type WitnessListener } from '../../../server/directory/witnesses.ts'
import { needs } from '../../support/needs.ts'
import { skewed } from '../../support/redis-clock.ts'
import { type Ground, inMemory, inRedis, Replica } from './ground.ts'

vi.mock('../../../server/directory/scripts.ts', async original => skewed(await original<Record<string, Script>>()))

const HOUR_S = 3600

describe.each([['in memory', inMemory], ...(needs('redis') ? [['in Redis', inRedis] as const] : [])] as const)(
  'a directory over a store %s',
  (_name, makeGround) => {
    let ground: Ground
    let a: Replica
    let b: Replica
    beforeEach(async () => {
      ground = await makeGround()
      await ground.age()
      a = new Replica(ground, 'a')
      b = new Replica(ground, 'b')
      await Promise.all([a, b].map(({ directory }) => directory.open()))
      await until(() => [a, b].every(each => each.directory.stats().replicas === 2))
    })
    afterEach(async () => {
      for (const { path } of [a, b]) path.cut()
      await Promise.all([a, b].map(({ directory }) => directory.close()))
      await ground.stop()
    })

    async function until(holds: () => boolean): Promise<void> {
      while (!holds()) await ground.pass()
    }

    /** Resolves with it, while time passes. */
    async function done<Result>(promise: Promise<Result>): Promise<Result> {
      let isDone = false
      const settled = promise.finally(() => {
        isDone = true
      })
      settled.catch(() => {})
      await until(() => isDone)
      return settled
    }

    /** One is active at `a`; two is a standby at `b`, or took over there. */
    async function joinBoth(): Promise<void> {
      await done(b.join('one'))
      await done(a.join('two'))
      await until(() => [a, b].every(each => each.active === 'two 2'))
    }

    test('a lost answer grants nothing twice', async () => {
      a.path.losesAnswers = true
      const presumed = await done(a.join('one'))
      expect([presumed.epoch, presumed.active]).toEqual([0, ''])
      a.path.losesAnswers = false
      await until(() => a.active === 'one 1')
      await until(() => b.active === 'one 1')
      expect(Math.max(...[a, b].flatMap(each => each.changes.map(({ epoch }) => epoch)))).toBe(1)
    })

    test('a lost answer leaves behind no instance that has left', async () => {
      await joinBoth()
      a.path.losesAnswers = true
      a.leave('two')
      await until(() => a.directory.stats().failures > 0)
      a.path.losesAnswers = false
      await until(() => [a, b].every(each => each.active === 'one 3' && each.replicasOf('two') === ''))
    })

    test('that nobody had a runtime does not count if somebody came while the answer was on its way', async () => {
      b.path.delayMs = 0.1 * ground.leaseMs
      const looked = b.directory.refresh('demo')
      await done(a.join('one'))
      await until(() => b.changes.length > 0)
      await done(looked)
      expect(b.active).toBe('one 1')
    })

    test('notices that arrive twice or in another order set nobody back', async () => {
      b.path.repeats = true
      b.path.reorders = true
      await done(b.directory.refresh('demo'))
      for (const instance of ['one', 'two', 'three', 'two', 'four']) {
        if (a.has(instance)) a.leave(instance)
        else void a.join(instance)
      }
      await until(() => a.active === 'four 4' && a.replicasOf('two') === '')
      await until(() => b.active === 'four 4' && b.replicasOf('two') === '')
      const epochs = b.changes.map(({ epoch }) => epoch)
      expect(epochs).toEqual(epochs.toSorted((x, y) => x - y))
    })

    test('cut off, a replica stops before a standby elsewhere takes over, and goes on once it is back', async () => {
      await joinBoth()
      a.path.silent = true
      await until(() => b.active === 'one 3')
      expect([a.directory.state, a.directory.find('demo')]).toEqual(['lost', 'unknown'])
      a.path.silent = false
      await until(() => a.active === 'one 3')
      await until(() => [a, b].every(each => each.replicasOf('two') === 'a'))
    })

    test('departures while a replica was cut off are announced when it is back', async () => {
      await done(a.join('one'))
      await done(b.directory.refresh('demo'))
      a.path.silent = true
      a.leave('one')
      await until(() => a.directory.state === 'lost')
      a.path.silent = false
      await until(() => [a, b].every(each => each.active === 'one 1' && each.replicasOf('one') === ''))
    })

    test('a link that breaks and comes back at once loses nothing of what is known', async () => {
      await joinBoth()
      const before = a.directory.stats().failures
      a.path.cut()
      expect(a.directory.stats().failures).toBe(before + 1)
      expect(a.active).toBe('two 2')
      await done(b.join('three'))
      await until(() => a.active === 'three 3')
    })

    test('that answers but refuses writes loses nothing of what is known for the rest of the lease', async () => {
      await joinBoth()
      a.path.full = true
      a.path.cut()
      await until(() => {
        if (a.directory.state === 'connected') expect(a.active).toBe('two 2')
        return a.directory.state === 'lost'
      })
      a.path.full = false
      await until(() => [a, b].every(each => each.directory.state === 'connected' && each.active === b.active))
    })

    test('offline for all: the last known state is presumed, and nothing is granted', async () => {
      await joinBoth()
      for (const { path } of [a, b]) {
        path.absent = true
        path.cut()
      }
      await until(() => [a, b].every(each => each.directory.state === 'presumed'))
      expect([a.active, b.active]).toEqual(['two 2', 'two 2'])
      expect(await done(b.join('three'))).toMatchObject({ epoch: 2, active: 'two' })
      for (const { path } of [a, b]) path.absent = false
      await until(() => [a, b].every(each => each.active === 'three 3'))
    })

    test('offline for all, after a replica was cut off: that one has missed an epoch, and presumes nothing', async () => {
      await joinBoth()
      a.path.silent = true
      await until(() => b.active === 'one 3')
      for (const { path } of [a, b]) {
        path.absent = true
        path.cut()
      }
      a.path.silent = false
      await until(() => b.directory.state === 'presumed')
      const before = a.directory.stats().failures
      await until(() => {
        expect([a.directory.state, a.directory.find('demo'), b.active]).toEqual(['lost', 'unknown', 'one 3'])
        return a.directory.stats().failures > before + 4
      })
    })

    test('offline for all, within the lease of a replica that was cut off: its link ended before it had heard everything', async () => {
      await joinBoth()
      a.path.silent = true
      expect(await done(b.join('three'))).toMatchObject({ epoch: 3, active: 'three' })
      for (const { path } of [a, b]) {
        path.absent = true
        path.cut()
      }
      a.path.silent = false
      await until(() => a.directory.state !== 'connected')
      const before = a.directory.stats().failures
      await until(() => a.directory.stats().failures > before + 12)
      expect([a.directory.state, a.directory.find('demo'), b.active]).toEqual(['lost', 'unknown', 'three 3'])
    })

    test('cut off, a replica does not believe that one is gone that was cut off before', async () => {
      await joinBoth()
      a.path.silent = true
      await until(() => b.directory.stats().replicas === 1)
      b.path.silent = true
      a.path.silent = false
      await until(() => b.directory.state !== 'connected')
      const before = b.directory.stats().failures
      await until(() => b.directory.stats().failures > before + 4)
      expect([b.directory.state, b.directory.find('demo')]).toEqual(['lost', 'unknown'])
    })

    test('that forgot everything is told again, and grants nothing before that', async () => {
      await joinBoth()
      await ground.forget()
      const early = await done(a.join('three'))
      expect([early.epoch, early.active]).toEqual([2, 'two'])
      await until(() => [a, b].every(each => each.active === 'three 3'))
      await until(() => [a, b].every(each => each.replicasOf('one') === 'b' && each.replicasOf('two') === 'a'))
    })

    test('that forgot everything is told of every session before it is a lease old', async () => {
      const names = Array.from({ length: 12 }, (_, i) => `i${i}`)
      for (const name of names) await done(a.join(name))
      await ground.forget()
      await until(() => a.directory.young)
      await until(() => [a, b].every(({ directory }) => !directory.young && directory.state === 'connected'))
      const found = await done(b.directory.refresh('demo'))
      const { instances } = found as RuntimeState
      expect(names.filter(name => instances.get(name)?.replicas.join() !== 'a')).toEqual([])
    })

    test('that forgot everything is told of every session, of whichever runtime, before it is a lease old', async () => {
      const runtimes = Array.from({ length: 12 }, (_, i) => `r${i}`)
      for (const runtime of runtimes) await done(a.join('one', 0, runtime))
      await ground.forget()
      await until(() => a.directory.young)
      await until(() => [a, b].every(({ directory }) => !directory.young && directory.state === 'connected'))
      const found = await done(Promise.all(runtimes.map(runtime => b.directory.refresh(runtime))))
      const epochs = found.map(state => (typeof state === 'object' ? `${state.epoch} ${state.active}` : state))
      expect(epochs).toEqual(runtimes.map(() => '1 one'))
    })

    test('that forgot everything grants nothing before it has been told everything, however long that takes', async () => {
      // Batches of 128, one after the other, take more than a lease. No answer may take more than 2 s.
      const delayMs = Math.min(1000, 0.15 * ground.leaseMs)
      const batches = Math.ceil((1.2 * ground.leaseMs) / delayMs)
      const runtimes = Array.from({ length: batches * 128 }, (_, i) => `r${i}`)
      await done(Promise.all(runtimes.map(runtime => a.join('one', 0, runtime))))
      a.path.delayMs = delayMs
      await ground.forget()
      await until(() => b.directory.young)
      await until(() => !b.directory.young && b.directory.state === 'connected')
      const found = await done(Promise.all(runtimes.map(runtime => b.directory.refresh(runtime))))
      const epochs = found.map(state => (typeof state === 'object' ? `${state.epoch} ${state.active}` : state))
      expect(epochs).toEqual(runtimes.map(() => '1 one'))
      a.path.delayMs = 0
      expect(await done(b.join('two', 0, 'r0'))).toMatchObject({ epoch: 2, active: 'two' })
    })

    /** It comes back as it was, without what it has been told since; those who are cut off find it later. */
    async function comesBackAs(kept: () => Promise<void>): Promise<void> {
      for (const { path } of [a, b]) {
        path.silent = true
        path.cut()
      }
      await kept()
      b.path.silent = false
      const before = b.directory.stats().operations
      await until(() => b.directory.stats().operations > before)
    }

    test('that lost its last changes grants no epoch a second time', async () => {
      await done(a.join('one', 0, 'other'))
      const kept = await ground.keep()
      await done(a.join('one'))
      await ground.pass()
      await comesBackAs(kept)
      const early = await done(b.join('two'))
      expect([early.epoch, early.active]).toEqual([0, ''])
      a.path.silent = false
      await until(() => [a, b].every(each => each.active === 'two 2' && each.replicasOf('one') === 'a'))
    })

    test('that comes back with everything it was told goes on as before', async () => {
      await done(a.join('one'))
      // Nobody tells it anything between the copy and its loss.
      await comesBackAs(async () => (await ground.keep())())
      await until(() => b.directory.state === 'connected')
      void b.join('two')
      await until(() => {
        expect(b.directory.young).toBe(false)
        return b.active === 'two 2'
      })
    })

    test('that forgot everything while nobody was connected is told the latest epoch', async () => {
      await joinBoth()
      b.leave('one')
      await until(() => a.replicasOf('one') === '')
      a.leave('two')
      await until(() => [a, b].every(each => each.replicasOf('one') + each.replicasOf('two') === ''))
      await ground.forget()
      await until(() => [a, b].every(each => each.directory.young))
      await until(() => [a, b].every(each => !each.directory.young && each.directory.state === 'connected'))
      for (const { directory } of [a, b]) expect(await done(directory.refresh('demo'))).toBeUndefined()
      expect(await done(b.join('three'))).toMatchObject({ epoch: 3, active: 'three' })
      await until(() => a.active === 'three 3')
    })

    test('that is reachable only for moments loses nothing of what is known, as long as all others vouch', async () => {
      const { leaseMs } = ground
      let vouch = true
      let isWatched = false
      const confirmed: (number | undefined)[] = []
      const c = new Replica(ground, 'c', {
        witnesses: {
          listen: () => {},
          tell: () => {},
          canAsk: false,
          askAbout: async () => {},
          confirmed: sentMs => void confirmed.push(sentMs),
          watch: on => {
            isWatched = on
          },
          vouchedUntilMs: () => (vouch && isWatched ? elapsedMs() + leaseMs : Number.NEGATIVE_INFINITY),
        },
      })
      await done(c.directory.open())
      for (const [instance, runtime] of [['one'], ['one', 'other']] as const) await done(c.join(instance, 0, runtime))
      expect(c.active).toBe('one 1')
      expect(isWatched).toBe(false)
      confirmed.length = 0
      c.path.flaps = true
      c.path.cut()
      const overMs = performance.now() + 3 * leaseMs
      const actives = new Set<string>()
      await until(() => {
        actives.add(c.active)
        return performance.now() > overMs
      })
      expect([...actives]).toEqual(['one 1'])
      // The questions to the others begin before the first of these moments.
      expect(confirmed.length).toBeGreaterThan(2)
      expect(confirmed.every(sentMs => sentMs === undefined)).toBe(true)
      vouch = false
      await until(() => c.state === undefined)
      c.path.flaps = false
      await until(() => c.active === 'one 1' && !isWatched)
      c.path.cut()
      await done(c.directory.close())
    })

    test('that is new or forgot everything is never said to be unreachable', async () => {
      const lines: string[] = []
      const note = (level: string) => (_fields: object, text: string) => void lines.push(`${level} ${text}`)
      const logger: Logger = { debug: note('debug'), info: note('info'), warn: note('warn'), error: note('error') }
      const witnesses = new NoWitnesses('c')
      let listener: WitnessListener | undefined
      let vouch = false
      await ground.forget()
      const c = new Replica(ground, 'c', {
        logger,
        witnesses: Object.assign(witnesses, {
          listen: (one: WitnessListener) => {
            listener = one
          },
          vouchedUntilMs: () => (vouch ? elapsedMs() + ground.leaseMs : Number.NEGATIVE_INFINITY),
        }),
      })
      /** The other replicas come and go all the time. */
      const isIn = (state: DirectoryState) => () => {
        listener!.changed()
        return c.directory.state === state
      }
      await done(c.directory.open())
      await until(isIn('connected'))
      vouch = true
      await ground.forget()
      await until(isIn('presumed'))
      await until(isIn('connected'))
      expect(lines).toEqual([
        'info the directory is new, was emptied or lost writes; nothing is routed until it is as old as a lease',
        'info the directory is reachable',
        'warn the directory was emptied or lost writes; what was last known stays in force, and no new instance becomes active until it is as old as a lease',
        'info the directory is reachable',
      ])
      c.path.cut()
      await done(c.directory.close())
    })

    test('another replica that presumes something outdated is told the later epoch', async () => {
      await joinBoth()
      const told: RuntimeState[] = []
      const witnesses = new NoWitnesses('c')
      let listener: WitnessListener | undefined
      const c = new Replica(ground, 'c', {
        witnesses: Object.assign(witnesses, {
          listen: (one: WitnessListener) => {
            listener = one
          },
          tell: (state: RuntimeState) => void told.push(state),
        }),
      })
      await done(c.directory.open())
      const state = await done(c.directory.refresh('demo'))
      for (const cutOff of [false, true]) {
        c.path.silent = cutOff
        told.length = 0
        listener!.heard({ ...(state as RuntimeState), epoch: 1, active: 'one' }, 'd', false)
        expect(told.map(({ epoch, active }) => `${active} ${epoch}`)).toContain('two 2')
        if (!cutOff) c.path.cut()
      }
      c.path.cut()
      await c.directory.close()
    })

    test.each([
      ['an hour back', -HOUR_S],
      ['an hour on', HOUR_S],
    ])("the store's clock steps %s: no lease ends, and nothing is granted", async (_name, seconds) => {
      await joinBoth()
      await ground.setClock(seconds)
      const before = [a, b].map(each => each.directory.stats().operations)
      await until(() => {
        expect([a, b].map(each => [each.directory.state, each.directory.stats().replicas])).toEqual([
          ['connected', 2],
          ['connected', 2],
        ])
        return [a, b].every((each, i) => each.directory.stats().operations > before[i]! + 5)
      })
      expect([a.active, b.active]).toEqual(['two 2', 'two 2'])
      // And an instance that dies then is missed after a lease.
      a.path.silent = true
      await until(() => b.active === 'one 3')
    })
  },
)
