/** Floods of the control endpoint: silent connections, invalid tokens, unknown keys. */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { createKeys, createToken } from '../../../certs/index.ts'
import { CONNECT_PATH, SUBPROTOCOL } from '../../../protocol/wire/control.ts'
import { clientHello } from '../../support/client-hello.ts'
import { type Attack, each, scaled } from '../attack.ts'
import type { World } from '../world.ts'

/** How many addresses the attacker has. The queue is shared fairly among them. */
const ADDRESSES = 40

/** Nothing at all, half a ClientHello, or a whole one and then nothing. */
const halfOpen: Attack = {
  name: 'half-open handshakes',
  async round(world, share) {
    const hello = await clientHello('localhost')
    const beginnings = [undefined, hello.subarray(0, hello.length / 2), hello]
    const sockets = new Set<Socket>()
    await each(scaled(10_000, share), 200, async n => {
      const localAddress = `127.0.1.${1 + (n % ADDRESSES)}`
      const socket = connect({ host: '127.0.0.1', port: world.controlPort, localAddress })
      sockets.add(socket)
      socket.on('error', () => {}).on('close', () => sockets.delete(socket))
      await Promise.race([once(socket, 'connect'), once(socket, 'close')]).catch(() => {})
      const beginning = beginnings[n % beginnings.length]
      if (beginning !== undefined) socket.write(beginning)
    })
    // Meanwhile, a legitimate client connects from another address and is admitted.
    const tunnel = await world.connect('newcomer', () => new Response('here'))
    await tunnel.close({ graceMs: 0 })
    for (const socket of sockets) socket.destroy()
  },
}

/** One attempt to connect. Resolves when the server has refused it, or hung up. */
async function attempt(world: World, token: string, localAddress: string): Promise<void> {
  const socket = connectTls({
    ...{ host: '127.0.0.1', port: world.controlPort, localAddress },
    ...{ ca: world.secrets.ca, servername: 'localhost' },
  })
  socket.on('error', () => {})
  socket.on('secureConnect', () => {
    socket.write(
      `GET ${CONNECT_PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
        `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${randomBytes(16).toString('base64')}\r\n` +
        `Sec-WebSocket-Protocol: ${SUBPROTOCOL}\r\nAuthorization: Bearer ${token}\r\n\r\n`,
    )
  })
  socket.resume()
  await new Promise<void>(resolve => socket.on('end', resolve).on('close', resolve))
  socket.destroy()
}

let badTokens: string[] = []

const badLogins: Attack = {
  name: 'login flood, bad tokens',
  async prepare(world) {
    const good = await world.secrets.token('good')
    const [header, payload, signature] = good.split('.')
    badTokens = [
      ...['x', 'a.b.c', `${header}.${payload}.`, `${header}.${payload}.${signature?.split('').reverse().join('')}`],
      `${header}.${Buffer.from('{"sub":"good","aud":"sallyport","exp":9999999999}').toString('base64url')}.${signature}`,
      'y'.repeat(10_000),
    ]
    return async () => {}
  },
  round: (world, share) =>
    each(scaled(1_000, share), 32, n =>
      attempt(world, badTokens[n % badTokens.length]!, `127.0.2.${1 + (n % ADDRESSES)}`),
    ),
}

let strangers: string[] = []
let fetchesBefore = 0

const unknownKeys: Attack = {
  name: 'unknown-kid flood',
  async prepare(world) {
    strangers = []
    for (let i = 0; i < 16; i++) {
      const { privateJwk } = await createKeys()
      strangers.push((await createToken({ key: privateJwk, runtime: 'good' })).token)
    }
    fetchesBefore = world.keyFetches
    return async () => {
      const fetches = world.keyFetches - fetchesBefore
      // One fetch per cool-down of 30 s, and the run is shorter than three of them.
      if (fetches > 3) throw new Error(`the key set was fetched ${fetches} times`)
    }
  },
  round: (world, share) =>
    each(scaled(1_000, share), 32, n =>
      attempt(world, strangers[n % strangers.length]!, `127.0.3.${1 + (n % ADDRESSES)}`),
    ),
}

export const HANDSHAKE_ATTACKS: readonly Attack[] = [halfOpen, badLogins, unknownKeys]
