import { beforeEach, expect, test } from 'vitest'
import { ConnectionSlots, type SlotHolder } from '../../../protocol/base/connection-slots.ts'

let left: string[]
beforeEach(() => {
  left = []
})

function come(places: ConnectionSlots, name: string, address: string, idle = true): SlotHolder | undefined {
  if (!places.makeRoom(address)) {
    left.push(name)
    return undefined
  }
  const guest = { address, idle, destroy: () => left.push(name) }
  places.add(guest)
  return guest
}

test('the greediest network loses its oldest idle guest to another', () => {
  const places = new ConnectionSlots(4)
  for (const name of ['a0', 'a1', 'a2']) come(places, name, '192.0.2.1')
  come(places, 'b0', '192.0.2.2')
  come(places, 'b1', '192.0.2.2')
  come(places, 'c0', '192.0.2.3')
  expect(left).toEqual(['a0', 'a1'])
  expect(places.size).toBe(4)
})

test('a network that has the most gives way to its own newcomers, and others do not give way to it', () => {
  const places = new ConnectionSlots(4)
  for (const name of ['b0', 'a0', 'a1', 'a2']) come(places, name, name.startsWith('a') ? '192.0.2.1' : '192.0.2.2')
  for (const name of ['a3', 'a4', 'a5']) come(places, name, '192.0.2.1')
  expect(left).toEqual(['a0', 'a1', 'a2'])
})

test("if all are busy, the newest of the greediest goes, as long as that network has more than the newcomer's", () => {
  const places = new ConnectionSlots(4)
  for (const name of ['a0', 'a1', 'a2', 'a3']) come(places, name, '192.0.2.1', false)
  for (const name of ['b0', 'b1', 'b2', 'a4']) come(places, name, '192.0.2.2', false)
  expect(left).toEqual(['a3', 'a2', 'b2', 'a4'])
})

test('of several networks that have the most, one with an idle guest gives way', () => {
  const places = new ConnectionSlots(4)
  for (const [i, name] of ['busy', 'idle', 'busy too', 'idle too', 'new', 'newer', 'newest'].entries()) {
    come(places, name, `192.0.2.${i}`, name.startsWith('idle'))
  }
  expect(left).toEqual(['idle', 'idle too', 'newest'])
})

test('a network takes no slot from another that has as many', () => {
  const places = new ConnectionSlots(2)
  come(places, 'a0', '192.0.2.1', false)
  for (const name of ['b0', 'a1']) come(places, name, name === 'b0' ? '192.0.2.2' : '192.0.2.1')
  expect(left).toEqual(['a1'])
})

test('a network that can take no slot from others gives way itself', () => {
  const places = new ConnectionSlots(3)
  for (const name of ['a0', 'a1']) come(places, name, '192.0.2.1', false)
  for (const name of ['b0', 'b1']) come(places, name, '192.0.2.2')
  expect(left).toEqual(['b0'])
})

test('a /64 is one network, a mapped address is its IPv4 address', () => {
  const places = new ConnectionSlots(8, 2)
  const addresses = ['2001:db8::1', '2001:db8::2', '2001:db8:0:0:ffff::3', '2001:db8:0:1::1']
  for (const [i, address] of addresses.entries()) come(places, `v6-${i}`, address, false)
  expect(left).toEqual(['v6-2'])
  for (const address of ['192.0.2.1', '::ffff:192.0.2.1', '::ffff:c000:201']) come(places, address, address, false)
  expect(left).toEqual(['v6-2', '::ffff:c000:201'])
})

test('one that leaves makes room, and leaving twice changes nothing', () => {
  const places = new ConnectionSlots(1)
  const first = come(places, 'a0', '192.0.2.1', false)!
  places.delete(first)
  places.delete(first)
  expect(places.size).toBe(0)
  come(places, 'b0', '192.0.2.2', false)
  expect([...places]).toHaveLength(1)
  expect(left).toEqual([])
})

test('whoever waits until no slot is taken is told when the last one is free', async () => {
  const places = new ConnectionSlots(4)
  await places.emptied()
  const guests = ['a0', 'b0'].map(name => come(places, name, '192.0.2.1')!)
  const both = Promise.all([places.emptied(), places.emptied()])
  for (const guest of guests) places.delete(guest)
  await both
})
