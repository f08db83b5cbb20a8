import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { guardWith } from '../../protocol/base/guard.ts'
import { Admission, type Candidate } from '../../server/control/admission.ts'

/** Records what is thrown. */
const guard = guardWith(error => {
  throw error
})

let now = 0
let admitted: string[]
let refused: string[]
let ended: string[]
beforeEach(() => {
  now = 0
  admitted = []
  refused = []
  ended = []
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
})
afterEach(() => {
  vi.useRealTimers()
})

const create = (options: { maxWaiting?: number; maxPerAddress?: number } = {}) =>
  new Admission({ share: 0.25, maxWaiting: 100, maxPerAddress: 50, now: () => now, guard, ...options })

interface TestCandidate extends Candidate {
  idle: boolean
}

function candidate(admission: Admission, name: string, address = name[0]!): TestCandidate {
  const one: TestCandidate = {
    address,
    idle: true,
    admit: () => admitted.push(name),
    end: () => {
      admission.remove(one)
      ended.push(name)
    },
    destroy: () => {
      admission.remove(one)
      refused.push(name)
    },
  }
  return one
}

/** Connects and says nothing. */
function come(admission: Admission, name: string): TestCandidate | undefined {
  const one = candidate(admission, name)
  if (admission.add(one)) return one
  one.destroy()
  return undefined
}

/** Connects and speaks at once. */
function enter(admission: Admission, name: string): void {
  const one = come(admission, name)
  if (one === undefined) return
  one.idle = false
  admission.ready(one)
}

function pass(ms: number): void {
  now += ms
  vi.advanceTimersByTime(ms)
}

/** Eight may be in progress at once while their cost is unknown. */
function fill(admission: Admission): void {
  for (let i = 0; i < 8; i++) enter(admission, `z${i}`)
  admitted = []
}

describe('the budget', () => {
  test('lets a few begin at once, and others once their cost is known', () => {
    const admission = create()
    for (let i = 0; i < 10; i++) enter(admission, `a${i}`)
    expect(admitted).toHaveLength(8)
    admission.charge(1, true)
    expect(admitted).toHaveLength(9)
    expect(admission.waiting).toBe(1)
  })

  test('refills with the clock, at its share, once it is used up', () => {
    const admission = create()
    fill(admission)
    enter(admission, 'a1')
    admission.charge(75, true)
    expect(admitted).toEqual([])
    pass(99)
    expect(admitted).toEqual([])
    pass(5)
    expect(admitted).toEqual(['a1'])
  })

  test('over a long time, handshakes take their share and no more', () => {
    const admission = create({ maxWaiting: 10_000, maxPerAddress: 10_000 })
    for (let i = 0; i < 2000; i++) {
      enter(admission, 'a')
    }
    const before = admission.waiting
    let charged = 0
    for (let i = 0; i < 1000; i++) {
      admission.charge(2, true)
      charged += 2
      while (before - admission.waiting < charged / 2 && charged > 50 + now * 0.25) pass(1)
    }
    expect(charged).toBeLessThanOrEqual(50 + now * 0.25 + 20)
  })
})

describe('silent connections', () => {
  test('keep nobody waiting, however many there are', () => {
    const admission = create()
    for (let i = 0; i < 40; i++) come(admission, `a${i}`)
    enter(admission, 'b0')
    expect(admitted).toEqual(['b0'])
    expect(admission.waiting).toBe(40)
  })

  test('count towards the bounds, and the oldest of them gives way first', () => {
    const admission = create({ maxWaiting: 4 })
    fill(admission)
    come(admission, 'a0')
    for (const name of ['a1', 'a2']) enter(admission, name)
    come(admission, 'a3')
    enter(admission, 'b0')
    expect(refused).toEqual(['a0'])
    enter(admission, 'c0')
    expect(refused).toEqual(['a0', 'a3'])
  })
})

describe('the queue', () => {
  test('is shared: one address cannot keep another waiting', () => {
    const admission = create()
    fill(admission)
    for (let i = 0; i < 40; i++) enter(admission, `a${i}`)
    enter(admission, 'b0')
    admission.charge(0, true)
    admission.charge(0, true)
    admission.charge(0, true)
    expect(admitted).toEqual(['a0', 'b0', 'a1'])
  })

  test('is bounded per address', () => {
    const admission = create({ maxPerAddress: 2 })
    fill(admission)
    for (const name of ['a0', 'a1', 'a2', 'b0']) enter(admission, name)
    expect(refused).toEqual(['a2'])
    come(admission, 'c0')
    for (const name of ['c1', 'c2']) enter(admission, name)
    // A silent connection gives way to others from its own address.
    expect(refused).toEqual(['a2', 'c0'])
  })

  test('is bounded in total: the greediest gives way to a newcomer', () => {
    const admission = create({ maxWaiting: 4 })
    fill(admission)
    for (const name of ['a0', 'a1', 'a2', 'a3', 'b0', 'b1', 'c0', 'a4']) enter(admission, name)
    expect(refused).toEqual(['a3', 'a2', 'b1', 'a4'])
    expect(admission.waiting).toBe(4)
  })

  test('one that leaves makes room, and closing ends all and refuses none', () => {
    const admission = create({ maxPerAddress: 1 })
    fill(admission)
    admission.remove(come(admission, 'a0')!)
    enter(admission, 'a1')
    expect(refused).toEqual([])
    admission.close()
    expect([ended, refused]).toEqual([['a1'], []])
    expect(admission.waiting).toBe(0)
  })
})
