import { once } from 'node:events'
import { readdirSync, readlinkSync } from 'node:fs'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { setImmediate as turn } from 'node:timers/promises'
import { connect as connectTls, createServer as createTlsServer } from 'node:tls'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { resetSocket } from '../../../protocol/base/reset-socket.ts'
import { makeSecrets } from '../../support/secrets.ts'
import { eventually } from '../../support/until.ts'

const options = { allowHalfOpen: true, pauseOnConnect: true }
const secrets = await makeSecrets()
const DOORS = {
  TCP: { server: createServer(options), event: 'connection', dial: connect },
  TLS: {
    server: createTlsServer({ ...secrets.server, ...options }) as Server,
    event: 'secureConnection',
    dial: (to: { port: number; host: string }): Socket => connectTls({ ...to, ca: secrets.ca }),
  },
}
beforeAll(async () => {
  for (const { server } of Object.values(DOORS)) {
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
  }
})
afterAll(() => {
  for (const { server } of Object.values(DOORS)) server.close()
})

const WAYS: Record<string, (socket: Socket) => void> = {
  'in use': () => {},
  'just ended': socket => socket.end(),
  'ended behind a write': socket => socket.end('last words'),
  'ended behind more than the peer takes': socket => socket.end(Buffer.alloc(8 * 1024 * 1024)),
  'destroyed before': socket => socket.destroy(),
}
const MOMENTS: Record<string, () => Promise<unknown>> = { 'at once': async () => {}, 'a turn later': () => turn() }

function sockets(): number {
  return readdirSync('/proc/self/fd').filter(name => {
    try {
      return readlinkSync(`/proc/self/fd/${name}`).startsWith('socket:')
    } catch {
      return false
    }
  }).length
}

const CASES = Object.keys(DOORS).flatMap(door =>
  Object.keys(WAYS).flatMap(way => Object.keys(MOMENTS).map(moment => [door, way, moment] as const)),
)

describe.runIf(process.platform === 'linux')('an abandoned connection', () => {
  it.each(CASES)('over %s that was %s and is reset %s gives its descriptor back', async (door, way, moment) => {
    const before = sockets()
    const { server, event, dial } = DOORS[door as keyof typeof DOORS]
    const { port } = server.address() as AddressInfo
    for (let i = 0; i < 8; i++) {
      const arriving = once(server, event)
      const caller = dial({ port, host: '127.0.0.1', ...options })
      caller.on('error', () => {})
      const [socket] = (await arriving) as [Socket]
      socket.on('error', () => {})
      // Node uses the connection until the turn of its handshake is over.
      await turn()
      WAYS[way]!(socket)
      await MOMENTS[moment]!()
      resetSocket(socket)
      caller.destroy()
    }
    await eventually(() => expect(sockets()).toBe(before))
  })
})
