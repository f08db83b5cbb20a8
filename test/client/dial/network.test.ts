import type { NetworkInterfaceInfo } from 'node:os'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { NetworkWatch } from '../../../client/dial/network.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

/** A machine whose addresses and clock a test sets. */
function machine(...addresses: string[]) {
  const state = { addresses, skewMs: 0, broken: false }
  const changes: { reason: string; lost: string[] }[] = []
  const back: number[] = []
  const watch = new NetworkWatch({
    guard: step => step,
    onChange: (reason, lost) => changes.push({ reason, lost: [...lost] }),
    onSetBack: byMs => back.push(byMs),
    interfaces: () => {
      if (state.broken) throw new Error('EAFNOSUPPORT')
      return { eth0: state.addresses.map(address => ({ address }) as NetworkInterfaceInfo) }
    },
    wallClock: () => Date.now() + state.skewMs,
  })
  const seconds = (count: number) => vi.advanceTimersByTime(count * 1000)
  return { state, changes, back, watch, seconds }
}

it('reports addresses that appear and disappear, once each', () => {
  const { state, changes, seconds } = machine('127.0.0.1', '10.0.0.1')
  seconds(5)
  expect(changes).toEqual([])
  state.addresses = ['127.0.0.1', '10.0.0.2']
  seconds(5)
  expect(changes).toEqual([{ reason: 'the network has changed', lost: ['10.0.0.1'] }])
  state.addresses = ['127.0.0.1', '10.0.0.2', '2001:db8::1']
  seconds(5)
  expect(changes[1]).toEqual({ reason: 'the network has changed', lost: [] })
  expect(changes).toHaveLength(2)
})

it('ignores link-local addresses: containers add and remove them', () => {
  const { state, changes, seconds } = machine('10.0.0.1')
  state.addresses = ['10.0.0.1', 'fe80::1', '169.254.7.7']
  seconds(2)
  expect(changes).toEqual([])
})

it('reports sleep: only the wall clock went on', () => {
  const { state, changes, seconds } = machine('10.0.0.1')
  state.skewMs = 3000
  seconds(1)
  expect(changes).toEqual([])
  state.skewMs += 60_000
  seconds(1)
  expect(changes).toEqual([{ reason: 'this machine has slept', lost: [] }])
})

it('notices a clock that is set back, which does not count as a change of the network', () => {
  const { state, changes, back, seconds } = machine('10.0.0.1')
  state.skewMs = -3000
  seconds(1)
  expect(back).toEqual([])
  state.skewMs -= 60_000
  seconds(5)
  expect(back).toEqual([60_000])
  expect(changes).toEqual([])
})

it('what cannot be read is not gone: in a sandbox, or without a file descriptor left', () => {
  const { state, changes, watch, seconds } = machine('10.0.0.1')
  state.broken = true
  seconds(5)
  state.broken = false
  seconds(5)
  expect(changes).toEqual([])
  state.addresses = ['10.0.0.2']
  seconds(5)
  expect(changes).toEqual([{ reason: 'the network has changed', lost: ['10.0.0.1'] }])
  watch.close()
  expect(vi.getTimerCount()).toBe(0)
})
