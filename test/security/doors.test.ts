/**
 * security.md, W10: strangers from one network cannot shut others out. Every listener that strangers can reach is here.
 */

import { once } from 'node:events'
import { type AddressInfo, connect as connectTcp, createServer, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { afterEach, describe, expect, test } from 'vitest'
import { listenAdmin, listenHealth } from '../../admin/index.ts'
import { createReplicaCertificate } from '../../certs/index.ts'
import { SallyportError } from '../../protocol/base/errors.ts'
import { discarding } from '../../protocol/base/guard.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { type Listener, listen } from '../../protocol/http/listener.ts'
import { answerProblem } from '../../protocol/http/problem.ts'
import { PeerListener } from '../../server/peer/listener.ts'
import { PEER_NAME, peerTlsOptions } from '../../server/peer/tls.ts'
import type { Server } from '../../server/server.ts'
import { SniFront } from '../../server/sni-front.ts'
import { CONTROL_NAME, DOMAIN, makeWorld, startServer } from '../server/fixture.ts'
import { clientHello } from '../support/client-hello.ts'
import { eventually } from '../support/until.ts'

interface Door {
  readonly port: number
  /** How many strangers fill it. */
  readonly places: number
  /** What each stranger sends; nothing if absent. */
  readonly greeting?: Buffer | string
  /** An honest client from this address: resolves once it is served. */
  readonly enter: (from: string) => Promise<void>
}

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

const STRANGER = '127.0.0.1'
const OTHER = '127.0.0.2'
const GET = `GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n`
const LOGIN = `POST /ui/login HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 22\r\n\r\n`
const FEW = 24

function knock(port: number, from: string): Socket {
  const socket = connectTcp({ host: '127.0.0.1', port, localAddress: from })
  socket.on('error', () => {})
  open.push(() => socket.destroy())
  return socket
}

async function secure(port: number, from: string, servername: string, more: object = {}): Promise<Socket> {
  const { authority } = await makeWorld()
  const socket = connectTls({ socket: knock(port, from), ca: authority.certificate, servername, ...more })
  await new Promise<void>((resolve, reject) => {
    socket
      .once('secureConnect', resolve)
      .once('error', reject)
      .once('close', () => reject(new Error('closed')))
  })
  return socket
}

/** Asks on an open connection and waits for an HTTP answer. */
async function ask(socket: Socket, text = GET): Promise<void> {
  const answer = new Promise<Buffer>((resolve, reject) => {
    socket.once('data', resolve).once('close', () => reject(new Error('closed')))
  })
  socket.write(text)
  expect((await answer).toString()).toMatch(/^HTTP\/1\.1 \d{3} /)
}

const plainly = (port: number) => async (from: string) => ask(knock(port, from))
const tlsFiles = async () => {
  const { server } = await makeWorld()
  return { cert: server.certificate, key: server.key }
}

async function publicDoor(secured: boolean): Promise<Listener> {
  const listener = await listen({
    port: 0,
    maxConnections: FEW,
    tls: secured ? await tlsFiles() : undefined,
    handler: (request, response) => {
      answerProblem(response, request, new SallyportError('unknown-host'))
      return discarding(response)
    },
  })
  open.push(() => listener.close({ graceMs: 0 }))
  return listener
}

async function startOpenServer(options: Parameters<typeof startServer>[0]): Promise<Server> {
  const server = await startServer(options)
  open.push(() => server.close({ graceMs: 0 }))
  return server
}

const source = {
  ready: () => true,
  status: () => ({}),
  metrics: async () => ({ contentType: 'text/plain', text: '' }),
}

const control = async (limits: object, greeting?: Buffer): Promise<Door> => {
  const server = await startOpenServer({ limits: { handshakeMs: 60_000, ...limits } })
  const { port } = server.controlAddress!
  const enter = async (from: string) => ask(await secure(port, from, CONTROL_NAME))
  return { port, places: FEW, enter, ...(greeting === undefined ? {} : { greeting }) }
}

/** As the server creates it, but with fewer places. */
const front = async (name: string): Promise<Door> => {
  const listener = await publicDoor(true)
  const serve = (socket: Socket) => listener.accept(socket)
  const made = new SniFront({
    controlName: CONTROL_NAME,
    control: serve,
    edge: serve,
    maxPending: FEW / 2,
    logger: noLogger,
  })
  const options = { pauseOnConnect: true, allowHalfOpen: true }
  const server = createServer(options, socket => made.accept(socket)).listen(0, '127.0.0.1')
  await once(server, 'listening')
  open.push(() => server.close())
  const { port } = server.address() as AddressInfo
  return { port, places: FEW / 2, enter: async from => ask(await secure(port, from, name)) }
}

const DOORS: Record<string, () => Promise<Door>> = {
  'the public listener, without TLS': async () => {
    const { port } = (await publicDoor(false)).address
    return { port, places: FEW, enter: plainly(port) }
  },
  'the public listener, connections kept alive': async () => {
    const { port } = (await publicDoor(false)).address
    return { port, places: FEW, enter: plainly(port), greeting: GET }
  },
  'the public listener, before TLS': async () => {
    const { port } = (await publicDoor(true)).address
    return { port, places: FEW, enter: async from => ask(await secure(port, from, 'localhost')) }
  },
  'the public listener, amid TLS': async () => {
    const { port } = (await publicDoor(true)).address
    const greeting = await clientHello('localhost')
    return { port, places: FEW, greeting, enter: async from => ask(await secure(port, from, 'localhost')) }
  },
  'the front, on the way to the edge': () => front(`demo.${DOMAIN}`),
  'the front, on the way to the control endpoint': () => front(CONTROL_NAME),
  'the control endpoint, in silence': () => control({ handshakesWaiting: FEW, handshakesWaitingPerAddress: FEW }),
  'the control endpoint, in silence, at the bound of one address': () => control({ handshakesWaitingPerAddress: FEW }),
  'the control endpoint, amid TLS': async () => control({ handshakesUnderWay: FEW }, await clientHello(CONTROL_NAME)),
  'the control endpoint, before the header of a proxy': async () => {
    const proxied = { port: 0, tls: await tlsFiles(), proxyProtocol: ['127.0.0.0/8'] }
    const limits = { handshakeMs: 60_000, handshakesWaiting: FEW }
    const { port } = (await startOpenServer({ control: proxied, limits })).controlAddress!
    const enter = async (from: string) => {
      const raw = knock(port, from)
      raw.write(proxyHeader('2001:db8::1'))
      const { authority } = await makeWorld()
      const socket = connectTls({ socket: raw, ca: authority.certificate, servername: CONTROL_NAME })
      await ask(socket)
    }
    return { port, places: FEW, enter }
  },
  'the health listener': async () => {
    const listener = await listenHealth({ host: '127.0.0.1', port: 0, source })
    open.push(() => listener.close())
    return { port: listener.address.port, places: 64, enter: plainly(listener.address.port) }
  },
  'the health listener, connections kept alive': async () => {
    const listener = await listenHealth({ host: '127.0.0.1', port: 0, source })
    open.push(() => listener.close())
    return { port: listener.address.port, places: 64, enter: plainly(listener.address.port), greeting: GET }
  },
  'the admin listener': async () => {
    const at = { host: '127.0.0.1', port: 0, source }
    const listener = await listenAdmin({ ...at, token: () => 'token-of-this-test', logger: noLogger })
    open.push(() => listener.close())
    return { port: listener.address.port, places: 64, enter: plainly(listener.address.port) }
  },
  'the health listener, in the queue for metrics': async () => {
    const busy = { ...source, metrics: () => new Promise<never>(() => {}) }
    const listener = await listenHealth({ host: '127.0.0.1', port: 0, source: busy })
    open.push(() => listener.close())
    const { port } = listener.address
    return { port, places: 64, enter: plainly(port), greeting: GET.replace('/livez', '/metrics') }
  },
  'the admin listener, amid a login': async () => {
    const at = { host: '127.0.0.1', port: 0, source }
    const listener = await listenAdmin({ ...at, token: () => 'token-of-this-test', logger: noLogger })
    open.push(() => listener.close())
    const { port } = listener.address
    return { port, places: 64, enter: plainly(port), greeting: LOGIN }
  },
  'the listener of a replica': async () => {
    const { authority } = await makeWorld()
    const made = await createReplicaCertificate(authority)
    const tls = { cert: made.certificate, key: made.key, ca: authority.certificate }
    const listener = new PeerListener({
      replica: 'r1',
      tls,
      session: {},
      logger: noLogger,
      pick: () => undefined,
      states: () => [],
      stateOf: () => undefined,
      onReplica: () => {},
    })
    open.push(() => listener.close())
    const { port } = await listener.listen({ port: 0 })
    const enter = async (from: string) => {
      const socket = await secure(port, from, PEER_NAME, peerTlsOptions(tls))
      // The server speaks first.
      await once(socket, 'data')
    }
    return { port, places: 1000, enter }
  },
}

/** The header with which a load balancer passes on an IPv6 caller's connection. */
function proxyHeader(address: string): Buffer {
  const [head = '', tail = ''] = address.split('::').map(part =>
    part
      .split(':')
      .map(group => group.padStart(4, '0'))
      .join(''),
  )
  const source = Buffer.from(head + '0'.repeat(32 - head.length - tail.length) + tail, 'hex')
  const head6 = Buffer.from('0d0a0d0a000d0a515549540a21210024', 'hex')
  return Buffer.concat([head6, source, Buffer.alloc(16), Buffer.from('100001bb', 'hex')])
}

describe('W10: strangers at a listener', () => {
  test.each(Object.keys(DOORS))(
    "W10: %s stays open to other networks and to others at the strangers' address",
    async name => {
      const { port, places, greeting, enter } = await DOORS[name]!()
      let gone = 0
      for (let come = 0; come < places + 8; come++) {
        const stranger = knock(port, STRANGER)
        stranger.once('close', () => gone++).resume()
        if (greeting !== undefined) stranger.write(greeting)
        // The kernel's own backlog holds no more than this.
        if (come % 200 === 199) await once(stranger, 'connect')
      }
      // The bound is reached, and holds.
      await eventually(() => expect(gone).toBeGreaterThanOrEqual(8))
      await enter(OTHER)
      await enter(STRANGER)
    },
    60_000,
  )

  test('W10: an IPv6 /64 counts as one at the control endpoint', async () => {
    const proxied = { port: 0, tls: await tlsFiles(), proxyProtocol: [STRANGER] }
    const limits = { handshakeMs: 60_000, handshakesWaitingPerAddress: 10 }
    const server = await startOpenServer({ control: proxied, limits })
    const { port } = server.controlAddress!
    let gone = 0
    const come = (address: string) => {
      const socket = knock(port, STRANGER)
      socket.once('close', () => gone++).resume()
      socket.write(proxyHeader(address))
    }
    for (let i = 1; i <= 30; i++) come(`2001:db8::${i.toString(16)}`)
    await eventually(() => expect(gone).toBe(20))
    for (let i = 1; i <= 10; i++) come(`2001:db8:0:${i}::1`)
    await eventually(() => expect(server.stats().handshakesWaiting).toBe(20))
  })
})
