import { expect, test } from 'vitest'
import { Changes } from '../../../cli/service/changes.ts'

test('what strangers repeat is counted, but pushes nothing else out of the latest changes', () => {
  let now = 0
  const changes = new Changes(() => now)
  changes.note('session ended', { session: 's1', runtime: 'demo', reason: 'the token has expired' })
  for (now = 1000; now <= 50_000; now += 1000) {
    changes.note('handshake refused', { reason: 'another path' })
    changes.note('handshake refused', { reason: 'no bearer token' })
  }
  expect(changes.counts['handshake refused']).toBe(100)
  expect(changes.recent.map(({ at, reason }) => [at, reason])).toEqual([
    ['1970-01-01T00:00:50.000Z', 'no bearer token'],
    ['1970-01-01T00:00:50.000Z', 'another path'],
    ['1970-01-01T00:00:00.000Z', 'the token has expired'],
  ])
})

test('neither many reasons nor many sessions push more than half out of the latest changes', () => {
  const changes = new Changes()
  const sessions = () => changes.recent.filter(({ session }) => session !== undefined).length
  for (let i = 0; i < 12; i++) changes.note('session ended', { session: `s${i}` })
  for (let i = 0; i < 12; i++) changes.note('handshake refused', { reason: `reason ${i}` })
  expect([changes.recent.length, sessions()]).toEqual([10, 5])
  for (let i = 0; i < 12; i++) changes.note('session ended', { session: `t${i}` })
  expect([changes.recent.length, sessions()]).toEqual([10, 5])
  expect(changes.recent[0]).toMatchObject({ session: 't11' })
})

test('sessions are listed one by one', () => {
  const changes = new Changes()
  for (let i = 0; i < 12; i++) changes.note('session ended', { session: `s${i}`, runtime: 'demo', reason: 'the same' })
  expect(changes.recent.map(({ session }) => session)).toEqual(Array.from({ length: 10 }, (_, i) => `s${11 - i}`))
})
