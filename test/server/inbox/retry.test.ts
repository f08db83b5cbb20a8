import { describe, expect, test } from 'vitest'
import { readRetryAfter } from '../../../protocol/http/retry-after.ts'
import { isForSender, isSuspect, type Outcome, outcomeOf, progressOf } from '../../../server/inbox/retry.ts'
import type { Message } from '../../../server/inbox/store.ts'

const NOW = 1_800_000_000_000
const MESSAGE: Message = {
  ...{ id: 'm', runtime: 'demo', lane: 'l', route: 'r', why: 'offline', state: 'waiting', received: NOW, expires: NOW },
  ...{
    bytes: 1,
    parts: 1,
    attempts: 1,
    failures: 0,
    refusals: 0,
    failedSince: 0,
    next: NOW,
    changed: NOW,
    reason: '',
    key: '',
    enc: '',
    caller: '',
  },
}

/** The delays between attempts that all end alike, until the message is dead. */
function waits(outcome: Outcome, most: number): (number | string)[] {
  let message = MESSAGE
  const waited: (number | string)[] = []
  let now = NOW
  while (waited.length < most) {
    const progress = progressOf(message, outcome, now, 0.5)
    message = { ...message, ...progress }
    if (progress.state !== undefined) return [...waited, `${progress.state}: ${progress.reason}`]
    waited.push(progress.next! - now)
    now = progress.next!
  }
  return waited
}

test('a receiver that fails is retried at growing intervals, for as long as the message lives', () => {
  const minute = 60_000
  const expected = [1000, 5000, 30_000, 2 * minute, 5 * minute, 10 * minute, 10 * minute, 10 * minute]
  expect(waits({ kind: 'failed', reason: '500' }, 8)).toEqual(expected)
})

test('a receiver that refuses is tried three times in five minutes', () => {
  expect(waits({ kind: 'refused', reason: '400' }, 8)).toEqual([10_000, 240_000, 'dead: refused: 400'])
  expect(waits({ kind: 'gone', reason: '410' }, 8)).toEqual(['dead: refused: 410'])
})

test('an outage uses up no attempts', () => {
  expect(progressOf(MESSAGE, { kind: 'offline', reason: 'runtime-offline' }, NOW, 0.5)).toEqual({
    attempts: 0,
    next: NOW,
    reason: 'runtime-offline',
  })
})

test.each([
  [0, 1000],
  [1500, 1500],
  [60_000, 2000],
])('Retry-After %d ms counts between one and two times the interval', (retryAfterMs, waited) => {
  const { next } = progressOf(MESSAGE, { kind: 'failed', reason: '503', retryAfterMs }, NOW, 0.5)
  expect(next! - NOW).toBe(waited)
})

test.each([
  [0, 800],
  [1, 1200],
])('intervals vary by a fifth (%d)', (random, waited) => {
  expect(progressOf(MESSAGE, { kind: 'failed', reason: '503' }, NOW, random).next! - NOW).toBe(waited)
})

describe('what an answer means', () => {
  test.each([
    [200, undefined, 'delivered', true],
    [204, undefined, 'delivered', true],
    [301, undefined, 'refused', true],
    [400, undefined, 'refused', true],
    [410, undefined, 'gone', true],
    [413, undefined, 'gone', true],
    [408, undefined, 'failed', false],
    [425, undefined, 'failed', false],
    [429, undefined, 'failed', false],
    [500, undefined, 'failed', false],
    [503, 'runtime-offline', 'offline', false],
    [503, 'overloaded', 'offline', false],
    [502, 'session-lost', 'failed', false],
    [404, undefined, 'refused', true],
    [404, 'no-route', 'gone', true],
    [400, 'bad-request', 'gone', true],
    [401, undefined, 'refused', true],
    [401, 'webhook-signature', 'gone', true],
    [403, 'caller-not-allowed', 'gone', true],
  ] as const)('%d %s: %s, for the sender: %s', (status, code, kind, forSender) => {
    expect(outcomeOf(status, code).kind).toBe(kind)
    expect(isForSender(status)).toBe(forSender)
  })
})

test('ten failures, or half an hour of them, make a message suspect', () => {
  expect(isSuspect({ failures: 9, failedSince: NOW }, NOW)).toBe(false)
  expect(isSuspect({ failures: 10, failedSince: NOW }, NOW)).toBe(true)
  expect(isSuspect({ failures: 1, failedSince: NOW }, NOW + 30 * 60_000)).toBe(true)
  expect(isSuspect({ failures: 0, failedSince: 0 }, NOW)).toBe(false)
})

test.each([
  [undefined, undefined],
  ['30', 30_000],
  ['soon', undefined],
  [new Date(NOW + 5000).toUTCString(), 5000],
  [new Date(NOW - 5000).toUTCString(), 0],
])('Retry-After: %s', (value, ms) => {
  expect(readRetryAfter(value, NOW)).toBe(ms)
})
