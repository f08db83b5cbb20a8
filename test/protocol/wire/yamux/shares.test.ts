import { expect, test, vi } from 'vitest'
import { shedStreams } from '../../../../protocol/wire/yamux/shares.ts'
import type { YamuxStream } from '../../../../protocol/wire/yamux/yamux-stream.ts'

type Sizes = readonly [runtime: string, network: string, bytes: number, over?: boolean]

/** A ledger that holds streams of these sizes. Notes which of them are shed. */
function holderOf(sizes: readonly Sizes[]) {
  const holder = { usedBytes: sizes.reduce((sum, [, , bytes]) => sum + bytes, 0) }
  const shed: number[] = []
  const streams = sizes.map(([runtime, network, unreadBytes, closed = false], i) => {
    const shedStream = () => {
      shed.push(i)
      holder.usedBytes -= unreadBytes
    }
    return { runtime, network, closed, unreadBytes, session: { shedStream } }
  })
  return { holder, shed, streams: streams as unknown as YamuxStream[] }
}

/** Streams of some runtimes and networks, whose sizes look random, so that no two sums are equal. */
function sizesOf(runtimes: number, networks: number, each: number): Sizes[] {
  return Array.from({ length: runtimes * networks * each }, (_, i) => {
    const network = `192.0.2.${Math.floor(i / runtimes) % networks}`
    return [`runtime-${i % runtimes}`, network, 1 + ((i * i * i * 7_919) % 1_000_003), i % 7 === 0]
  })
}

const sum = (sizes: readonly Sizes[]) => sizes.reduce((bytes, [, , one]) => bytes + one, 0)

/** What is left of the one that holds most. */
function most(sizes: readonly Sizes[], by: (one: Sizes) => string): Sizes[] {
  const parts = Object.values(Object.groupBy(sizes, by)) as Sizes[][]
  return parts.sort((a, b) => sum(b) - sum(a))[0]!
}

test.each([
  [1, 12],
  [3, 5],
  [12, 2],
])(
  'of %i runtimes and %i networks, whichever holds most loses first, where it holds most, what is over and then the largest',
  (runtimes, networks) => {
    const sizes = sizesOf(runtimes, networks, 8)
    const { holder, shed, streams } = holderOf(sizes)
    shedStreams(holder, streams, holder.usedBytes)
    expect(shed).toHaveLength(sizes.length)
    let left = sizes
    for (const i of shed) {
      const [ofRuntime, ofNetwork] = [most(left, one => one[0]), most(left, one => one[1])]
      const greediest = most(sum(ofNetwork) > sum(ofRuntime) ? ofNetwork : ofRuntime, one => `${one[0]} ${one[1]}`)
      const [next] = greediest.sort((a, b) => Number(b[3]) - Number(a[3]) || b[2] - a[2])
      expect(sizes[i]).toBe(next)
      left = left.filter(one => one !== next)
    }
  },
)

test('if nothing waits, nothing is lost', () => {
  const { holder, shed, streams } = holderOf([['a', 'x', 0]])
  expect(shedStreams(holder, streams, 5)).toBe(0)
  expect(shed).toEqual([])
})

test('however many callers there are, they are looked at once, and not again for each stream', () => {
  const { holder, streams } = holderOf(sizesOf(4, 200, 2))
  const looks = vi.spyOn(Map.prototype, 'values')
  shedStreams(holder, streams, holder.usedBytes)
  // The shares, the runtimes, and the networks.
  expect(looks).toHaveBeenCalledTimes(3)
  looks.mockRestore()
})

test.each<[what: string, held: Sizes[], bytes: number, lost: number[]]>([
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
    'only until a runtime holds more',
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
  const { holder, shed, streams } = holderOf(held)
  shedStreams(holder, streams, bytes)
  expect(shed).toEqual(lost)
})

test('at the ceiling of all runtimes pays: less, if a session ends with the first of its streams that is reset', () => {
  const sizes = [['a', 'x', 30] as const, ['b', 'x', 20] as const, ['c', 'y', 35] as const].flatMap(
    ([runtime, network, count]) => Array.from({ length: count }, (): Sizes => [runtime, network, 10]),
  )
  const { holder, shed, streams } = holderOf(sizes)
  const ofA = streams.slice(0, 30) as unknown as Array<{ unreadBytes: number; session: { shedStream(): void } }>
  for (const stream of ofA) {
    stream.session.shedStream = () => {
      shed.push(0)
      for (const each of ofA) {
        holder.usedBytes -= each.unreadBytes
        each.unreadBytes = 0
      }
    }
  }
  expect(shedStreams(holder, streams, 500)).toBe(500)
  const lost = (runtime: string) => shed.filter(i => sizes[i]![0] === runtime).length
  // Of the last two, each keeps half of the rest.
  expect([lost('a'), lost('b'), lost('c')]).toEqual([1, 2, 18])
})
