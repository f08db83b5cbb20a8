import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { HoldRoom, type Occupant } from '../../../server/edge/hold-room.ts'

const NETWORKS = ['192.0.2.1', '192.0.2.2', '192.0.2.3', '2001:db8::1']
const BODY = 10

const waits = (address: string, bytes: number) => ({ address, bytes, refuse: () => {} })
const count = () => 1
const bytesOf = ({ bytes }: Occupant) => bytes

describe('room for those that wait', () => {
  type Of = (occupant: Occupant) => number
  const sum = (waiting: readonly Occupant[], of: Of) => waiting.reduce((all, each) => all + of(each), 0)
  const from = (address: string, waiting: readonly Occupant[]) => waiting.filter(each => each.address === address)
  const shares = (waiting: readonly Occupant[], of: Of) =>
    NETWORKS.map(address => sum(from(address, waiting), of)).sort((a, b) => a - b)

  /** Who stays, said in the plainest way. Undefined: there is no room for the newcomer. */
  function staying(waiting: readonly Occupant[], newcomer: Occupant, of: Of, most: number): Occupant[] | undefined {
    const stay = [...waiting]
    while (sum(stay, of) + of(newcomer) > most) {
      const uses = (address: string) => sum(from(address, stay), of)
      const [greediest] = NETWORKS.toSorted((a, b) => uses(b) - uses(a))
      if (uses(greediest!) <= uses(newcomer.address) + of(newcomer)) return undefined
      stay.splice(stay.lastIndexOf(from(greediest!, stay).findLast(each => of(each) > 0)!), 1)
    }
    return stay
  }

  const arrival = fc.record({
    address: fc.constantFrom(...NETWORKS),
    bytes: fc.constantFrom(0, BODY),
    leaves: fc.nat(9),
  })
  test.each([
    ['places', count, 5, new HoldRoom(5, 1000)],
    ['bytes', bytesOf, 4 * BODY, new HoldRoom(1000, 4 * BODY)],
  ])('the network with the most %s gives way, its newest first', (_what, of, most, room) => {
    const run = (arrivals: readonly (typeof arrival extends fc.Arbitrary<infer One> ? One : never)[]) => {
      let waiting: Occupant[] = []
      for (const { address, bytes, leaves } of arrivals) {
        const newcomer = waits(address, bytes)
        const leaving = new Set<Occupant>()
        const stay = staying(waiting, newcomer, of, most)
        expect(room.admits(address, 1, bytes, leaving)).toBe(stay !== undefined)
        if (stay !== undefined) {
          for (const each of leaving) room.delete(each)
          waiting = waiting.filter(each => !leaving.has(each))
          expect(shares(waiting, of)).toEqual(shares(stay, of))
          room.add(newcomer)
          waiting.push(newcomer)
        }
        for (const gone of waiting.splice(leaves, 1)) room.delete(gone)
        expect([room.requests, room.bytes]).toEqual([waiting.length, sum(waiting, bytesOf)])
      }
      for (const each of waiting) room.delete(each)
      expect([room.requests, room.bytes]).toEqual([0, 0])
    }
    fc.assert(fc.property(fc.array(arrival, { maxLength: 60 }), run))
  })

  test('one that is refused costs a look at the networks, and not at all that wait', () => {
    let looks = 0
    const room = new HoldRoom(1000, 1000)
    const one = (address: string) => ({
      ...{ address, refuse: () => {} },
      get bytes() {
        looks++
        return 1
      },
    })
    for (let i = 0; i < 1000; i++) room.add(one(NETWORKS[i % 2]!))
    looks = 0
    for (const requests of [0, 1]) expect(room.admits(NETWORKS[0]!, requests, 1, new Set())).toBe(false)
    expect(looks).toBe(0)
  })
})
