import { describe, expect, test } from 'vitest'
import { Delivery, MAX_UNDELIVERED_BYTES, MIN_UNDELIVERED_BYTES } from '../../../../protocol/wire/yamux/delivery.ts'

/**
 * A path with a rate and a round trip, and a writer that always has more: it sends up to the limit in lots of 16 KiB
 * and places a ping after each quarter of the limit. Returns the bytes per millisecond that it reached in the last
 * third.
 */
function drive(delivery: Delivery, rateAt: number | ((now: number) => number), rttMs: number, forMs: number): number {
  const answers: { at: number; run: () => void }[] = []
  let pathFreeAt = 0
  let unmarked = 0
  let late = 0
  for (let now = 0; now < forMs; now += 0.25) {
    while (answers.length > 0 && answers[0]!.at <= now) answers.shift()!.run()
    while (delivery.undeliveredBytes < delivery.limitBytes) {
      delivery.sentBytes += 16_384
      unmarked += 16_384
      pathFreeAt = Math.max(pathFreeAt, now) + 16_384 / (typeof rateAt === 'number' ? rateAt : rateAt(now))
      if (pathFreeAt > (forMs * 2) / 3) late += 16_384
      const limited = delivery.undeliveredBytes >= delivery.limitBytes
      if (unmarked < delivery.limitBytes / 4 && !limited) continue
      unmarked = 0
      const mark = delivery.place(now, limited)
      const at = pathFreeAt + rttMs
      answers.push({ at, run: () => delivery.answered(mark, at) })
    }
  }
  return late / (forMs / 3)
}

describe('delivery', () => {
  test('never holds less than 256 KiB, nor more on a slow path', () => {
    const delivery = new Delivery()
    expect(delivery.limitBytes).toBe(MIN_UNDELIVERED_BYTES)
    drive(delivery, 1_000, 20, 5_000)
    expect(delivery.limitBytes).toBe(MIN_UNDELIVERED_BYTES)
  })

  test('grows on a long fat path until the path is full, and not much further', () => {
    const delivery = new Delivery()
    const product = 12_500 * 100
    const reached = drive(delivery, 12_500, 100, 20_000)
    expect(reached).toBeGreaterThan(0.85 * 12_500)
    expect(delivery.limitBytes).toBeGreaterThan(product)
    expect(delivery.limitBytes).toBeLessThan(1.6 * product)
  })

  test('does not creep up because of its own queue over minutes of bulk', () => {
    const delivery = new Delivery()
    drive(delivery, 12_500, 100, 300_000)
    expect(delivery.limitBytes).toBeLessThan(1.7 * 12_500 * 100)
  })

  test('falls again when the path slows down', () => {
    const delivery = new Delivery()
    let before = 0
    const rateAt = (now: number): number => {
      if (now < 10_000) before = delivery.limitBytes
      return now < 10_000 ? 12_500 : 2_500
    }
    drive(delivery, rateAt, 100, 30_000)
    expect(before).toBeGreaterThan(1_250_000)
    expect(delivery.limitBytes).toBeLessThan(before / 2)
  })

  test('has an upper bound', () => {
    const delivery = new Delivery()
    drive(delivery, 500_000, 200, 10_000)
    expect(delivery.limitBytes).toBeLessThanOrEqual(MAX_UNDELIVERED_BYTES)
  })

  test('an idle session measures round trips, not rates', () => {
    const delivery = new Delivery()
    for (let now = 0; now < 100_000; now += 10_000) {
      delivery.sentBytes += 1_000
      delivery.answered(delivery.place(now, false), now + 30)
    }
    expect(delivery.rttMs).toBeCloseTo(30)
    expect(delivery.leastRttMs).toBeCloseTo(30)
    expect(delivery.limitBytes).toBe(MIN_UNDELIVERED_BYTES)
  })
})
