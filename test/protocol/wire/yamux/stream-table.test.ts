import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import { StreamChain } from '../../../../protocol/wire/yamux/stream-chain.ts'
import { StreamTable } from '../../../../protocol/wire/yamux/stream-table.ts'
import type { YamuxStream } from '../../../../protocol/wire/yamux/yamux-stream.ts'

const streamOf = (id: number): YamuxStream => ({ id, older: undefined, newer: undefined }) as unknown as YamuxStream

/** Many more ids than slots, so that some collide. */
const ids = fc.nat(400).map(n => 2 + 2 * n)
const steps = fc.array(fc.tuple(fc.boolean(), ids), { maxLength: 400 })

it('holds what a Map would hold', () => {
  fc.assert(
    fc.property(steps, list => {
      const table = new StreamTable()
      const model = new Map<number, YamuxStream>()
      for (const [adds, id] of list) {
        if (!adds) {
          table.delete(id)
          model.delete(id)
        } else if (!model.has(id)) {
          const stream = streamOf(id)
          table.add(stream)
          model.set(id, stream)
        }
        expect(table.size).toBe(model.size)
        expect(table.get(id)).toBe(model.get(id))
      }
      expect(new Set(table.all())).toEqual(new Set(model.values()))
      for (const id of model.keys()) expect(table.get(id)).toBe(model.get(id))
    }),
  )
})

it.each([1, 2, 3, 8])('a deletion looks at few other streams, however many are open (every id, or one of %i)', step => {
  let looks = 0
  const table = new StreamTable()
  const ids = Array.from({ length: 5000 }, (_, i) => 1 + 2 * step * i)
  for (const id of ids) {
    const get = () => {
      looks++
      return id
    }
    table.add(Object.defineProperty(streamOf(id), 'id', { get }))
  }
  looks = 0
  for (const id of ids) table.delete(id)
  expect(table.size).toBe(0)
  expect(looks).toBeLessThan(10 * ids.length)
})

it('releases streams: none that has gone can be reached from one that is there', () => {
  const list = new StreamChain()
  const [a, b, c] = [streamOf(2), streamOf(4), streamOf(6)]
  for (const stream of [a, b, c]) list.add(stream)
  list.delete(b)
  list.delete(b)
  expect([list.size, list.oldest, a.newer, c.older]).toEqual([2, a, c, a])
  list.delete(a)
  expect([list.size, list.oldest, c.older]).toEqual([1, c, undefined])
  list.delete(c)
  expect([list.size, list.oldest]).toEqual([0, undefined])
  for (const stream of [a, b, c]) expect([stream.older, stream.newer]).toEqual([undefined, undefined])
})
