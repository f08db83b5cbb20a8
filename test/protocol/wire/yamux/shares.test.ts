import { expect, test, vi } from 'vitest'
import { Shares, shedNetworks } from '../../../../protocol/wire/yamux/shares.ts'
import type { YamuxStream } from '../../../../protocol/wire/yamux/yamux-stream.ts'

/** Streams of some runtimes and callers, whose sizes look random, so that no two sums are equal. */
function streamsOf(runtimes: number, callers: number, each: number): YamuxStream[] {
  const count = runtimes * callers * each
  return Array.from({ length: count }, (_, i) => {
    const runtime = `runtime-${i % runtimes}`
    const caller = `192.0.2.${Math.floor(i / runtimes) % callers}`
    return { runtime, caller, network: caller, closed: i % 7 === 0, unreadBytes: 1 + ((i * i * i * 7_919) % 1_000_003) }
  }) as unknown as YamuxStream[]
}

function added(streams: readonly YamuxStream[]): Shares {
  const shares = new Shares()
  for (const stream of streams) shares.add(stream)
  return shares
}

const sum = (streams: Iterable<YamuxStream>) => [...streams].reduce((bytes, { unreadBytes }) => bytes + unreadBytes, 0)

/** What is left of one runtime, or one caller. */
function most(streams: readonly YamuxStream[], by: 'runtime' | 'caller'): YamuxStream[] {
  const parts = Object.values(Object.groupBy(streams, stream => stream[by])) as YamuxStream[][]
  return parts.sort((a, b) => sum(b) - sum(a))[0]!
}

test('the runtime with the most bytes loses first, there the caller with the most, and of that one what is over, then the largest', () => {
  let left = streamsOf(3, 5, 8)
  const shares = added(left)
  while (left.length > 0) {
    const of = most(most(left, 'runtime'), 'caller')
    const [next] = of.sort((a, b) => Number(b.closed) - Number(a.closed) || b.unreadBytes - a.unreadBytes)
    expect(shares.take()).toBe(next)
    left = left.filter(stream => stream !== next)
  }
  expect(shares.take()).toBe(undefined)
})

test('however many callers there are, they are looked at once, and not again for each stream', () => {
  const streams = streamsOf(4, 200, 2)
  const shares = added(streams)
  const looks = vi.spyOn(Map.prototype, 'values')
  for (const _ of streams) shares.take()
  // The runtimes, and the callers of each.
  expect(looks).toHaveBeenCalledTimes(1 + 4)
  looks.mockRestore()
})

test.each<
  [
    what: string,
    held: [runtime: string, caller: string, bytes: number, over?: boolean][],
    bytes: number,
    lost: number[],
  ]
>([
  [
    'a network at several runtimes, where it holds most',
    [
      ['a', 'x', 5],
      ['b', 'x', 4],
      ['c', 'x', 6],
      ['d', 'y', 7],
    ],
    7,
    [2, 0],
  ],
  [
    'only as far as the runtime that holds most',
    [
      ['a', 'x', 5],
      ['b', 'x', 4],
      ['d', 'y', 7],
    ],
    7,
    [0, 2],
  ],
  [
    'not many networks at one runtime',
    [
      ['a', 'x', 5],
      ['b', 'x', 4],
      ['d', 'y', 5],
      ['d', 'z', 6],
    ],
    1,
    [3],
  ],
  [
    'the one network of a proxy, where it holds most',
    [
      ['a', 'x', 5],
      ['b', 'x', 4],
      ['b', 'x', 3],
    ],
    1,
    [1],
  ],
  [
    'first what is over',
    [
      ['a', 'x', 5],
      ['a', 'x', 2, true],
      ['b', 'x', 6],
      ['c', 'y', 8],
    ],
    5,
    [1, 2],
  ],
  [
    'one network after the other',
    [
      ['a', 'x', 6],
      ['b', 'x', 5],
      ['a', 'y', 2],
      ['b', 'y', 8],
      ['c', 'z', 1],
    ],
    1,
    [3],
  ],
])('at the ceiling of all runtimes pays: %s', (_what, held, bytes, lost) => {
  const shed: number[] = []
  const holder = { usedBytes: held.reduce((sum, [, , bytes]) => sum + bytes, 0) }
  const streams = held.map(([runtime, caller, unreadBytes, closed = false], i) => {
    const shedStream = () => {
      shed.push(i)
      holder.usedBytes -= unreadBytes
    }
    return { runtime, network: caller, closed, unreadBytes, session: { shedStream } }
  })
  const all = streams as unknown as YamuxStream[]
  const freed = shedNetworks(holder, all, bytes)
  added(all.filter((_, i) => !shed.includes(i))).shed(holder, bytes - freed)
  expect(shed).toEqual(lost)
})

test('at the ceiling of all runtimes pays: others, if a session ends with the first of its streams that is reset', () => {
  const holder = { usedBytes: 0 }
  const shed: string[] = []
  const made = (runtime: string, caller: string, count: number, dies: boolean) => {
    const mine = Array.from({ length: count }, () => ({
      ...{ runtime, network: caller, closed: false, unreadBytes: 10, session: {} },
    }))
    const end = (stream: (typeof mine)[number]) => {
      holder.usedBytes -= stream.unreadBytes
      stream.unreadBytes = 0
    }
    for (const stream of mine) {
      const shedStream = () => {
        shed.push(runtime)
        for (const each of dies ? mine : [stream]) end(each)
      }
      stream.session = { shedStream }
      holder.usedBytes += stream.unreadBytes
    }
    return mine
  }
  const streams = [made('a', 'x', 30, true), made('b', 'x', 20, false), made('c', 'y', 35, false)].flat()
  const all = streams as unknown as YamuxStream[]
  expect(shedNetworks(holder, all, 500)).toBeGreaterThanOrEqual(300)
  expect(shed.filter(runtime => runtime === 'a')).not.toHaveLength(0)
  expect(shed).not.toContain('c')
})
