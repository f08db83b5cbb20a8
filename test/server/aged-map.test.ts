import { expect, test } from 'vitest'
import { AgedMap } from '../../server/aged-map.ts'

/** Numbers that look random, the same each time. */
function* numbers(seed: number): Generator<number, never> {
  for (let state = seed; ; ) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
    yield state >>> 8
  }
}

test('an AgedMap has the entries of a Map, in insertion order', () => {
  const random = numbers(7)
  const next = (below: number) => random.next().value % below
  const aged = new AgedMap<number>()
  const model = new Map<string, number>()
  for (let i = 0; i < 20_000; i++) {
    const key = String(next(20))
    switch (next(5)) {
      case 0:
        aged.delete(key)
        model.delete(key)
        break
      case 1: {
        aged.putWithin(10, key, i)
        model.delete(key)
        model.set(key, i)
        const [first] = model.keys()
        if (model.size > 10) model.delete(first!)
        break
      }
      case 2:
        if (next(500) > 0) break
        aged.clear()
        model.clear()
        break
      default:
        aged.put(key, i)
        model.delete(key)
        model.set(key, i)
    }
    expect([...aged]).toEqual([...model])
    expect([aged.size, aged.oldest?.key, aged.get(key), aged.has(key)]).toEqual([
      model.size,
      model.keys().next().value,
      model.get(key),
      model.has(key),
    ])
  }
})

test('the current entry may be deleted while iterating over an AgedMap', () => {
  const aged = new AgedMap<number>()
  for (const [i, key] of ['a', 'b', 'c', 'd'].entries()) aged.put(key, i)
  const seen: string[] = []
  for (const [key] of aged) {
    seen.push(key)
    if (key !== 'c') aged.delete(key)
  }
  expect([seen, [...aged]]).toEqual([['a', 'b', 'c', 'd'], [['c', 2]]])
})
