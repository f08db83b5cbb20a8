import { once } from 'node:events'
import { readdirSync, readlinkSync } from 'node:fs'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { resetSocket } from '../../../protocol/base/reset-socket.ts'
import { eventually } from '../../support/until.ts'

const server = createServer({ allowHalfOpen: true, pauseOnConnect: true })
beforeAll(async () => {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
})
afterAll(() => server.close())

const WAYS: Record<string, (socket: Socket) => void> = {
  'in use': () => {},
  'just ended': socket => socket.end(),
  'ended behind a write': socket => socket.end('last words'),
  'ended behind more than the peer takes': socket => socket.end(Buffer.alloc(8 * 1024 * 1024)),
  'destroyed before': socket => socket.destroy(),
}

function sockets(): number {
  return readdirSync('/proc/self/fd').filter(name => {
    try {
      return readlinkSync(`/proc/self/fd/${name}`).startsWith('socket:')
    } catch {
      return false
    }
  }).length
}

describe.runIf(process.platform === 'linux')('an abandoned connection', () => {
  it.each(Object.keys(WAYS))('that was %s gives its descriptor back', async way => {
    const before = sockets()
    const { port } = server.address() as AddressInfo
    for (let i = 0; i < 8; i++) {
      const arriving = once(server, 'connection')
      const caller = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
      caller.on('error', () => {})
      const [socket] = (await arriving) as [Socket]
      socket.on('error', () => {})
      WAYS[way]!(socket)
      resetSocket(socket)
      caller.destroy()
    }
    await eventually(() => expect(sockets()).toBe(before))
  })
})
