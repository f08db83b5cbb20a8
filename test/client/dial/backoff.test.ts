import { describe, expect, it } from 'vitest'
import { Backoff } from '../../../client/dial/backoff.ts'

const most = () => 0.999_999
const least = () => 0

describe('Backoff', () => {
  it('doubles up to its cap, over the whole range from 0', () => {
    const high = new Backoff({}, most)
    const waits = Array.from({ length: 8 }, () => Math.round(high.failed()))
    expect(waits).toEqual([1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000])
    const low = new Backoff({}, least)
    expect([low.failed(), low.failed(), low.failed()]).toEqual([0, 0, 0])
  })

  const thrown = () => {
    throw new Error('a defect of the embedder')
  }
  it.each([thrown, () => Number.NaN, () => -1, () => 2, () => Number.POSITIVE_INFINITY])(
    'waits within its range even if its random source is bad: %s',
    source => {
      const backoff = new Backoff({}, source)
      const waits = Array.from({ length: 20 }, () => backoff.failed())
      expect(waits.every(ms => ms >= 0 && ms <= 30_000)).toBe(true)
      expect(new Set(waits).size).toBeGreaterThan(1)
      for (const ms of [
        backoff.refused(),
        backoff.silent(),
        backoff.lost(0),
        backoff.left(0),
        backoff.gone(0),
        backoff.move(true),
      ])
        expect(ms).toBeGreaterThanOrEqual(0)
    },
  )

  it('retries within a second after losing a session, whatever failed before', () => {
    const backoff = new Backoff({}, most)
    for (let i = 0; i < 6; i++) backoff.failed()
    expect(backoff.lost(10_000)).toBeLessThanOrEqual(1000)
  })

  it('continues from where it was unless the session lasted 60 s', () => {
    const backoff = new Backoff({}, most)
    for (let i = 0; i < 3; i++) backoff.failed()
    backoff.lost(59_999)
    expect(Math.round(backoff.failed())).toBe(8000)
    backoff.lost(60_000)
    expect(Math.round(backoff.failed())).toBe(1000)
  })

  it('starts over with a server that asked us to leave, unless that happens at once', () => {
    const backoff = new Backoff({}, most)
    for (let i = 0; i < 5; i++) backoff.failed()
    expect(Math.round(backoff.left(500))).toBe(1000)
    expect(Math.round(backoff.failed())).toBe(30_000)
    expect(Math.round(backoff.gone(500))).toBe(1000)
    expect(Math.round(backoff.failed())).toBe(30_000)
    expect(Math.round(backoff.gone(5000))).toBe(1000)
    expect([backoff.failed(), backoff.failed()].map(Math.round)).toEqual([1000, 2000])
  })

  it('is immediate for a server that asks us to leave, unless it does so repeatedly', () => {
    const backoff = new Backoff({}, most)
    expect(backoff.left(1000)).toBe(0)
    expect([10, 10, 10, 10, 10].map(lived => Math.round(backoff.left(lived)))).toEqual([1000, 2000, 4000, 5000, 5000])
    expect(backoff.left(1000)).toBe(0)
    expect(Math.round(backoff.left(10))).toBe(1000)
  })

  it('slows down to 5 s if session after session dies at once', () => {
    const backoff = new Backoff({}, most)
    expect([10, 10, 10, 10, 10].map(lived => Math.round(backoff.lost(lived)))).toEqual([1000, 2000, 4000, 5000, 5000])
    expect(Math.round(backoff.lost(1000))).toBe(1000)
    expect(Math.round(backoff.lost(10))).toBe(1000)
  })

  it('is slow after a refusal, and never immediate', () => {
    const low = new Backoff({}, least)
    expect([low.refused(), low.refused(), low.refused()]).toEqual([5000, 10_000, 15_000])
    low.failed()
    expect(low.refused()).toBe(5000)
  })

  it('never overflows', () => {
    const backoff = new Backoff({ capMs: 10 }, most)
    for (let i = 0; i < 5000; i++) expect(backoff.failed()).toBeLessThanOrEqual(10)
  })
})

it('attempts at another replica become ever rarer until there is a new session', () => {
  const backoff = new Backoff({ moveMs: 1000 }, () => 1)
  expect([backoff.move(false), backoff.move(true), backoff.move(true)]).toEqual([1000, 2000, 4000])
  for (let i = 0; i < 50; i++) backoff.move(true)
  expect(backoff.move(true)).toBe(600_000)
  expect(backoff.move(false)).toBe(1000)
})
