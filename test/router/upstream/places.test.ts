import { Socket } from 'node:net'
import { expect, test, vi } from 'vitest'
import { ConnectionBudget, TargetConnections } from '../../../router/upstream/places.ts'

test('one that carries no more gives way first, unless it still has something to send: then last', () => {
  const budget = new ConnectionBudget(10, 3)
  const connections = new TargetConnections(budget)
  const ended: string[] = []
  const add = (name: string) => {
    const place = connections.add('192.0.2.1')
    place.close = () => ended.push(name)
    return place
  }
  const sending = new Socket()
  vi.spyOn(sending, 'writableLength', 'get').mockReturnValue(1)
  add('sending').endWith(sending)
  add('idle').rest(1)
  add('done').endWith(new Socket())
  for (let i = 0; i < 3; i++) add('used')
  expect(ended).toEqual(['done', 'idle', 'sending'])
  expect([budget.used, connections.open, connections.leaving.size]).toEqual([3, 3, 0])
})

test('of those to one target that carry no more, one that still has something to send gives way last', () => {
  const connections = new TargetConnections(new ConnectionBudget(2, 10))
  const ended: string[] = []
  for (const [name, bytes] of [
    ['sending', 1],
    ['done', 0],
  ] as const) {
    const socket = new Socket()
    vi.spyOn(socket, 'writableLength', 'get').mockReturnValue(bytes)
    const place = connections.add('192.0.2.1')
    place.close = () => ended.push(name)
    place.endWith(socket)
  }
  for (let i = 0; i < 2; i++) connections.add('192.0.2.1')
  expect(ended).toEqual(['done', 'sending'])
})
