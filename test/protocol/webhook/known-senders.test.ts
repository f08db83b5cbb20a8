import { expect, test } from 'vitest'
import { KnownSenders } from '../../../protocol/webhook/known-senders.ts'

test('the latest networks of the latest runtimes are known, whatever others do', () => {
  const known = new KnownSenders()
  known.add('demo', '192.0.2.1')
  for (let i = 0; i < 10_000; i++) known.add('hostile', `2001:db8:${i.toString(16)}::/64`)
  expect(known.has('demo', '192.0.2.1')).toBe(true)
  expect(known.has('hostile', '192.0.2.1')).toBe(false)
  const networks = Array.from({ length: 10_000 }, (_, i) => `2001:db8:${i.toString(16)}::/64`)
  const count = networks.filter(network => known.has('hostile', network)).length
  expect(networks.slice(-256).every(network => known.has('hostile', network))).toBe(true)
  expect(count).toBeLessThanOrEqual(512)

  for (let i = 0; i < 10_000; i++) {
    known.add(`runtime-${i}`, '192.0.2.1')
    known.add('demo', '192.0.2.1')
  }
  expect(known.has('demo', '192.0.2.1')).toBe(true)
  const runtimes = Array.from({ length: 10_000 }, (_, i) => `runtime-${i}`)
  expect(runtimes.slice(-1000).every(runtime => known.has(runtime, '192.0.2.1'))).toBe(true)
  expect(runtimes.filter(runtime => known.has(runtime, '192.0.2.1')).length).toBeLessThanOrEqual(2048)
})
