import { describe, expect, test, vi } from 'vitest'
import { ReplayBudget } from '../../../protocol/base/replay-budget.ts'
import { randomOf } from '../../support/random.ts'

const TOTAL = 2 ** 32

let bodies = 0

class Body {
  readonly id = ++bodies
  readonly owner: string
  readonly network: string
  bytes = 0
  isKept = true
  readonly #budget: ReplayBudget

  constructor(budget: ReplayBudget, owner: string, network: string) {
    this.#budget = budget
    this.owner = owner
    this.network = network
  }

  add(bytes: number): this {
    this.bytes += bytes
    this.#budget.add(this, bytes)
    return this
  }

  release(): void {
    this.isKept = false
    this.#budget.delete(this)
  }
}

function most(bodies: readonly Body[], nameOf: (body: Body) => string): [bytes: number, name: string] {
  const sums: Record<string, number> = {}
  for (const body of bodies) sums[nameOf(body)] = (sums[nameOf(body)] ?? 0) + body.bytes
  const [name, bytes] = Object.entries(sums).sort(([, a], [, b]) => b - a)[0]!
  return [bytes, name]
}

/** What is left of bodies in the order in which they came, with everything added up anew each time. */
function shed(bodies: readonly Body[]): readonly Body[] {
  const used = bodies.reduce((sum, { bytes }) => sum + bytes, 0)
  if (used <= TOTAL * (15 / 16)) return bodies
  const [ofOwner, owner] = most(bodies, body => body.owner)
  const [ofNetwork, network] = most(bodies, body => body.network)
  const held = bodies.filter(body => (ofNetwork > ofOwner ? body.network === network : body.owner === owner))
  const [, pair] = most(held, body => `${body.owner} ${body.network}`)
  const oldest = bodies.find(body => `${body.owner} ${body.network}` === pair)
  return shed(bodies.filter(body => body !== oldest))
}

describe('when more is kept than may be', () => {
  test.each(Array.from({ length: 40 }, (_, i) => i + 1))(
    'the larger of the greediest owner and the greediest network pays, as a plain sum says: seed %d',
    seed => {
      const random = randomOf(seed)
      const budget = new ReplayBudget(TOTAL, TOTAL)
      const oneOf = (name: string, count: number) => `${name}${Math.floor(count * random() ** 2)}`
      const [owners, networks] = [1 + Math.floor(8 * random()), 1 + Math.floor(8 * random())]
      let kept: readonly Body[] = []
      let sheds = 0
      for (let step = 0; step < 400; step++) {
        const known = kept[Math.floor(kept.length * random())]
        if (known !== undefined && random() < 0.2) {
          kept = kept.filter(body => body !== known)
          known.release()
          continue
        }
        // So many bytes that no two sums are equal.
        const bytes = Math.floor((random() * TOTAL) / 20)
        const isNew = known === undefined || random() < 0.6
        const body = isNew ? new Body(budget, oneOf('o', owners), oneOf('n', networks)) : known
        body.add(bytes)
        const all = isNew ? [...kept, body] : kept
        const used = all.reduce((sum, { bytes }) => sum + bytes, 0)
        kept = used > TOTAL ? shed(all) : all
        sheds += all.length - kept.length
        expect(all.filter(({ isKept }) => isKept).map(({ id }) => id)).toEqual(kept.map(({ id }) => id))
        expect(budget.used).toBe(kept.reduce((sum, { bytes }) => sum + bytes, 0))
      }
      expect(sheds).toBeGreaterThan(10)
      for (const body of kept) body.release()
      expect(budget.used).toBe(0)
    },
  )

  test.each<[who: string, owners: number, networks: number]>([
    ['one network at 100 runtimes', 100, 1],
    ['100 networks at one runtime', 1, 100],
    ['ten networks at ten runtimes', 10, 10],
  ])('%s lose theirs, and 100 beside them keep theirs', (_who, owners, networks) => {
    const budget = new ReplayBudget(64, 6400)
    const honest = Array.from({ length: 100 }, (_, i) => new Body(budget, `busy${i % 5}`, `honest${i}`))
    for (const body of honest) body.add(10)
    for (let i = 0; i < 1000; i++) new Body(budget, `o${i % owners}`, `n${((i / owners) % networks) | 0}`).add(64)
    expect(honest.filter(({ isKept }) => isKept)).toHaveLength(100)
    expect(budget.used).toBeGreaterThan(5900)
    for (const body of honest) body.add(1)
    expect(honest.filter(({ isKept }) => isKept)).toHaveLength(100)
  })

  test('all are looked at when room is made, and not for each piece that comes', () => {
    const budget = new ReplayBudget(64, 64_000)
    for (let i = 0; i < 1000; i++) new Body(budget, `o${i % 10}`, `n${i}`).add(64)
    const looks = vi.spyOn(Map.prototype, 'values')
    const long = new Body(budget, 'o', 'n')
    for (let i = 0; i < 7000; i++) long.add(1)
    const times = looks.mock.calls.length
    looks.mockRestore()
    expect(times).toBeGreaterThan(0)
    // For each of two times: the shares, the owners, and the networks.
    expect(times).toBeLessThanOrEqual(2 * 3)
    expect(long.isKept).toBe(true)
  })
})
