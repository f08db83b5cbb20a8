import type { Duplex } from 'node:stream'
import { expect, test } from 'vitest'
import { lookMs, WriteProgress } from '../../../../protocol/http/http1/write-progress.ts'

const STALLED_MS = 1200
const LOOK_MS = lookMs(STALLED_MS)

/** A socket with this much waiting in its kernel. */
const withQueue = (writeQueueSize: number) => ({ _handle: { writeQueueSize } }) as unknown as Duplex

test('a receiver that reads nothing has stopped once its time is up', () => {
  const progress = new WriteProgress()
  const looks = Array.from({ length: 13 }, (_, n) => progress.left(withQueue(9), STALLED_MS, 1 + n * LOOK_MS))
  expect(looks.map(left => left > 0)).toEqual([...Array(12).fill(true), false])
})

test('one that reads a byte starts again', () => {
  const progress = new WriteProgress()
  for (let n = 0; n < 100; n++) expect(progress.left(withQueue(1000 - n), STALLED_MS, 1 + n * 1100)).toBeGreaterThan(0)
})

test('one that was not checked, since the process was frozen, has not stopped', () => {
  const progress = new WriteProgress()
  let now = 1
  for (let n = 0; n < 11; n++) {
    expect(progress.left(withQueue(9), STALLED_MS, now)).toBeGreaterThan(0)
    now += 60_000
  }
  expect(progress.left(withQueue(8), STALLED_MS, now)).toBeGreaterThan(0)
})
