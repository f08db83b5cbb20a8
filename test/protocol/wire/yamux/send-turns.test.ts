import fc from 'fast-check'
import { expect, test } from 'vitest'
import { SendTurns } from '../../../../protocol/wire/yamux/send-turns.ts'
import type { YamuxStream } from '../../../../protocol/wire/yamux/yamux-stream.ts'

interface Waiting {
  runtime: string
  network: string
  closed: boolean
}

const made = (runtime: string, network: string) => ({ runtime, network, closed: false, next: undefined })
const asStream = (stream: Waiting) => stream as unknown as YamuxStream

function partOf<Item>(parts: [string, Item[]][], name: string): Item[] {
  const known = parts.find(([other]) => other === name)?.[1]
  if (known !== undefined) return known
  const made: Item[] = []
  parts.push([name, made])
  return made
}

/** Runtimes with networks with streams, in the order of their turns. */
class Model {
  #runtimes: [string, [string, Waiting[]][]][] = []

  push(stream: Waiting): void {
    partOf(partOf(this.#runtimes, stream.runtime), stream.network).push(stream)
  }

  shift(): Waiting | undefined {
    const runtime = this.#runtimes.shift()
    const network = runtime?.[1].shift()
    if (runtime === undefined || network === undefined) return undefined
    const stream = network[1].shift()
    if (network[1].length > 0) runtime[1].push(network)
    if (runtime[1].length > 0) this.#runtimes.push(runtime)
    return stream
  }

  dropClosed(): number {
    const open: [string, [string, Waiting[]][]][] = this.#runtimes.map(([runtime, networks]) => [
      runtime,
      networks.map(([network, streams]) => [network, streams.filter(({ closed }) => !closed)]),
    ])
    for (const runtime of open) runtime[1] = runtime[1].filter(([, streams]) => streams.length > 0)
    this.#runtimes = open.filter(([, networks]) => networks.length > 0)
    return this.#runtimes.flatMap(([, networks]) => networks.flatMap(([, streams]) => streams)).length
  }
}

const name = fc.constantFrom('a', 'b', 'c')
const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant('push' as const), runtime: name, network: name }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('shift' as const) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('close' as const), at: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('drop' as const) }) },
)

test('runtimes take turns, then networks, then streams, whatever ends meanwhile', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), steps => {
      const turns = new SendTurns()
      const model = new Model()
      const all: Waiting[] = []
      for (const next of steps) {
        if (next.do === 'push') {
          const stream = made(next.runtime, next.network)
          all.push(stream)
          turns.push(asStream(stream))
          model.push(stream)
        } else if (next.do === 'shift') expect(turns.shift()).toBe(model.shift())
        else if (next.do === 'drop') expect(turns.dropClosed()).toBe(model.dropClosed())
        else if (all.length > 0) all[next.at % all.length]!.closed = true
      }
      for (let left = model.shift(); left !== undefined; left = model.shift()) {
        expect(turns.isEmpty).toBe(false)
        expect(turns.shift()).toBe(left)
      }
      expect([turns.isEmpty, turns.shift(), turns.dropClosed()]).toEqual([true, undefined, 0])
    }),
    { numRuns: 500 },
  )
})

test('a stream that waits keeps its place when it is paid by another', () => {
  const turns = new SendTurns()
  const [first, second] = [made('a', 'x'), made('b', 'y')]
  turns.push(asStream(first))
  turns.push(asStream(second))
  first.runtime = 'b'
  first.network = 'y'
  expect([turns.shift(), turns.shift(), turns.isEmpty]).toEqual([first, second, true])
})
