/** What a replica that cannot reach the store may still act on, and until when. */
import { beforeEach, expect, test } from 'vitest'
import { Lease } from '../../../server/directory/lease.ts'
import type { ReplicaLease } from '../../../server/directory/runtime-state.ts'
import { NoWitnesses } from '../../../server/directory/witnesses.ts'

const LEASE_MS = 1000
const HOUR_MS = 3_600_000

let nowMs: number
let witnesses: FakeWitnesses
let lease: Lease

/** Other replicas that vouch when a test says so. */
class FakeWitnesses extends NoWitnesses {
  vouchedMs = Number.NEGATIVE_INFINITY
  override vouchedUntilMs(): number {
    return this.vouchedMs + LEASE_MS
  }
}

beforeEach(() => {
  nowMs = 0
  witnesses = new FakeWitnesses('a')
  lease = new Lease({ leaseMs: LEASE_MS, now: () => nowMs, witnesses })
})

/**
 * Each step happens at its time, in milliseconds; returns the directory's state a lease after the last contact, and
 * later.
 */
function after(...steps: [atMs: number, step: 'renewed' | 'closed' | 'absent' | 'unreachable'][]): string {
  for (const [atMs, step] of steps) {
    nowMs = atMs
    if (step === 'renewed') lease.renewed(renewal([]), atMs, true)
    else lease[step](atMs)
  }
  return lease.state
}

function renewal(replicas: readonly ReplicaLease[]) {
  return { ageMs: HOUR_MS, lapsed: false, replicas }
}

test('a store that closed the link and is then offline for all is presumed to have granted nothing', () => {
  expect(after([0, 'renewed'], [500, 'closed'], [501, 'absent'], [1200, 'absent'])).toBe('presumed')
  nowMs = 1200 + LEASE_MS - 1
  expect(lease.state).toBe('presumed')
  nowMs++
  expect(lease.state).toBe('lost')
})

test.each<[string, Parameters<typeof after>]>([
  ['nothing else is known', [[1200, 'absent']]],
  [
    'the link was lost otherwise',
    [
      [0, 'renewed'],
      [400, 'unreachable'],
      [900, 'absent'],
      [1200, 'absent'],
    ],
  ],
  [
    'an attempt between failed otherwise',
    [
      [0, 'renewed'],
      [500, 'closed'],
      [501, 'unreachable'],
      [900, 'absent'],
      [1200, 'absent'],
    ],
  ],
  [
    'the next attempt was long after',
    [
      [0, 'renewed'],
      [500, 'closed'],
      [1501, 'absent'],
      [1600, 'absent'],
    ],
  ],
  [
    'what it closed was held up for longer than a lease',
    [
      [0, 'renewed'],
      [1001, 'closed'],
      [1002, 'absent'],
      [1200, 'absent'],
    ],
  ],
  [
    'it was only closed',
    [
      [0, 'renewed'],
      [500, 'closed'],
      [1200, 'unreachable'],
    ],
  ],
])('it may have granted something if %s', (_name, steps) => {
  expect(after(...steps)).toBe('lost')
})

test('others who vouched while it was offline cover a gap before that, and need not go on', () => {
  expect(after([0, 'renewed'], [400, 'unreachable'], [900, 'absent'])).toBe('connected')
  witnesses.vouchedMs = 899
  expect(after([1300, 'absent'], [2000, 'absent'])).toBe('lost')
  witnesses.vouchedMs = 2001
  expect(after([2100, 'absent'])).toBe('presumed')
  witnesses.vouchedMs = Number.NEGATIVE_INFINITY
  expect(after([3000, 'absent'], [3900, 'absent'])).toBe('presumed')
  // As far as anybody knows, it was online in between.
  expect(after([4000, 'unreachable'], [5200, 'absent'])).toBe('lost')
})

test('without witnesses, a replica that is alone goes on for an hour; one that knows of others, dead or alive, does not', () => {
  const alone = new NoWitnesses('a')
  lease = new Lease({ leaseMs: LEASE_MS, now: () => nowMs, witnesses: alone })
  const own = { name: 'a', leftMs: LEASE_MS, address: '' }
  lease.renewed(renewal([own]), 0, true)
  nowMs = HOUR_MS - 1
  expect(lease.state).toBe('presumed')
  nowMs++
  expect(lease.state).toBe('lost')
  for (const leftMs of [LEASE_MS, -HOUR_MS]) {
    lease.renewed(renewal([own]), nowMs, true)
    lease.renewed(renewal([own, { name: 'b', leftMs, address: '' }]), nowMs, true)
    nowMs += LEASE_MS
    expect(lease.state).toBe('lost')
  }
  // A young store may not remember them yet.
  lease.renewed({ ...renewal([own]), ageMs: 0 }, nowMs, true)
  expect(lease.state).toBe('lost')
})
