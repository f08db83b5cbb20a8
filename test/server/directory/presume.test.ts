import { describe, expect, test } from 'vitest'
import { type InstanceState, MAX_INSTANCES, type RuntimeState } from '../../../server/directory/directory.ts'
import { KnownRuntimes } from '../../../server/directory/known-runtimes.ts'
import { absent, isSame, merge, present } from '../../../server/directory/presume.ts'

function state(epoch: number, active: string, instances: Record<string, InstanceState>, version = 1): RuntimeState {
  return { runtime: 'demo', epoch, active, instances: new Map(Object.entries(instances)), version, changedMs: 0 }
}

const two = state(2, 'b', { a: { epoch: 1, replicas: ['r1'] }, b: { epoch: 2, replicas: ['r2'] } })

describe('without the directory', () => {
  test('the instance with the latest epoch is active again, wherever it reconnects', () => {
    const back = present(absent(two, 'b', 'r2'), 'demo', 'b', 'r1', 2)
    expect([back.epoch, back.active, back.instances.get('b')]).toEqual([2, 'b', { epoch: 2, replicas: ['r1'] }])
  })

  test('an older instance becomes a standby, and so does one that never had an epoch', () => {
    expect(present(two, 'demo', 'a', 'r2', 1)).toMatchObject({ epoch: 2, active: 'b' })
    const fresh = present(two, 'demo', 'c', 'r2', 0)
    expect([fresh.active, fresh.instances.get('c')]).toEqual(['b', { epoch: 0, replicas: ['r2'] }])
  })

  test('the highest epoch that is presented wins, even if nothing is known', () => {
    const first = present(undefined, 'demo', 'a', 'r1', 3)
    expect([first.epoch, first.active]).toEqual([3, 'a'])
    const later = present(first, 'demo', 'b', 'r1', 5)
    expect([later.epoch, later.active]).toEqual([5, 'b'])
  })

  test('nobody takes the place of an instance that leaves', () => {
    expect(absent(two, 'b', 'r2')).toMatchObject({ epoch: 2, active: 'b' })
  })

  test("another replica's report counts for its own sessions, and its epochs count if they are later", () => {
    const told = state(3, 'c', { b: { epoch: 2, replicas: ['r2', 'r3'] }, c: { epoch: 3, replicas: ['r3'] } })
    const merged = merge(two, told, 'r3')
    expect([merged.epoch, merged.active]).toEqual([3, 'c'])
    expect(merged.instances.get('a')!.replicas).toEqual(['r1'])
    expect([...merged.instances.get('b')!.replicas].sort()).toEqual(['r2', 'r3'])
    // It does not mention what `r2` has.
    const gone = merge(merged, state(3, 'c', {}), 'r3')
    expect(gone.instances.get('b')!.replicas).toEqual(['r2'])
    expect([isSame(merged, gone), isSame(merged, merge(merged, told, 'r3'))]).toEqual([false, true])
  })

  test('instances that come and go are forgotten, here and at the others, except the active one and live ones', () => {
    let [near, far] = [two, two]
    for (let i = 0; i < 5 * MAX_INSTANCES; i++) {
      const instance = `new${i}`
      for (const change of [() => present(near, 'demo', instance, 'r1', 0), () => absent(near, instance, 'r1')]) {
        near = change()
        far = merge(far, near, 'r1')
      }
    }
    for (const { instances, active } of [near, far]) {
      expect(instances.size).toBe(MAX_INSTANCES)
      expect([active, instances.has('a'), instances.has('b')]).toEqual(['b', true, true])
    }
    for (let i = 0; i < 2 * MAX_INSTANCES; i++) near = present(near, 'demo', `live${i}`, 'r1', 0)
    expect([...near.instances.keys()].filter(name => name.startsWith('live'))).toHaveLength(2 * MAX_INSTANCES)
  })
})

describe('what is known', () => {
  const unvouched = (now = () => 0) => new KnownRuntimes(now, () => false)

  test('from an earlier connection counts for a while, and then only if nothing can have changed', () => {
    let now = 0
    const known = unvouched(() => now)
    expect(known.find('demo', true)).toBe('unknown')
    known.learn(two)
    known.renew(100)
    expect(known.find('demo', false)).toBe(two)
    now = 100
    expect([known.find('demo', false), known.find('demo', true)]).toEqual(['unknown', two])
    known.learn({ ...two, version: 1 })
    expect(known.find('demo', false)).toMatchObject({ epoch: 2 })
  })

  test('from an earlier connection no longer counts once all changes of a later one were heard, since those in between were missed', () => {
    const known = unvouched()
    known.learn(two)
    known.confirmed()
    known.renew(0)
    expect(known.find('demo', true)).toBe(two)
    known.confirmed()
    expect(known.find('demo', true)).toBe('unknown')
    // A returning instance with the same epoch reveals nothing about a later one; the directory does.
    known.add({ ...two, version: 2 })
    expect(known.find('demo', true)).toBe('unknown')
    known.add({ ...two, epoch: 3 })
    expect(known.find('demo', true)).toMatchObject({ epoch: 3 })
    known.renew(0)
    known.confirmed()
    known.learn({ ...two, epoch: 3 }, true)
    expect(known.find('demo', true)).toMatchObject({ epoch: 3 })
  })

  test('never goes back: an older epoch or version is not learned', () => {
    const known = unvouched()
    known.learn({ ...two, version: 5 })
    expect(known.learn({ ...two, version: 4 })).toBe(false)
    expect(known.learn(state(1, 'a', {}, 9))).toBe(false)
    expect(known.outdated(state(1, 'a', {}, 9))).toBe(true)
    expect(known.last('demo')!.version).toBe(5)
  })

  test('about a runtime that nobody has: that it does not exist', () => {
    const known = unvouched()
    known.expect('demo')
    expect([known.wants('demo'), known.wants('other'), known.find('demo', true)]).toEqual([true, false, 'unknown'])
    known.missing('demo')
    expect(known.find('demo', false)).toBeUndefined()
    known.learn(two)
    known.missing('demo')
    expect([known.find('demo', false), known.last('demo')]).toEqual([undefined, two])
  })
})
