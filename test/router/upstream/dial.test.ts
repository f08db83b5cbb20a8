import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { expect, test } from 'vitest'
import { makeTarget } from '../../../router/target.ts'
import { dialUpstream, SecureContexts } from '../../../router/upstream/dial.ts'

test('a socket that is handed over keeps nothing of its dial, and a late error ends no process', async () => {
  const server = createServer(() => {}).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const open = () =>
    new Promise<Socket>((resolve, reject) => {
      dialUpstream(
        makeTarget('http', '127.0.0.1', port, new Map(), undefined),
        '192.0.2.1',
        1000,
        new SecureContexts(),
        (error, socket) => (socket === undefined ? reject(error) : resolve(socket)),
      )
    })
  const [one, other] = [await open(), await open()]
  try {
    for (const socket of [one, other])
      expect([socket.listenerCount('connect'), socket.listenerCount('secureConnect')]).toEqual([0, 0])
    // A listener that was made for this dial would hold what the dial held: the first exchange.
    expect(one.listeners('error')).toEqual(other.listeners('error'))
    expect(one.listeners('error')[0]).toBe(other.listeners('error')[0])
    one.emit('error', new Error('late'))
  } finally {
    one.destroy()
    other.destroy()
    server.close()
  }
})
