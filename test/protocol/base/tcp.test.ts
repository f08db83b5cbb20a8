import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect as connectTls, createServer, type TLSSocket } from 'node:tls'
import { expect, test } from 'vitest'
import { isBroken, isFalseEnd } from '../../../protocol/base/tcp.ts'
import { makeSecrets } from '../../support/secrets.ts'
import { eventually } from '../../support/until.ts'

/** A TLS connection at `place`, of whose two ends ours reads nothing. */
async function connected(place: string | number) {
  const secrets = await makeSecrets()
  const server = createServer(secrets.server)
  server.listen(place)
  await once(server, 'listening')
  const address = server.address() as AddressInfo | string
  const below = typeof address === 'string' ? connect(address) : connect(address.port, '127.0.0.1')
  const caller = connectTls({ socket: below, ca: secrets.ca, servername: 'localhost' })
  caller.on('error', () => {})
  const [accepted] = (await once(server, 'secureConnection')) as [TLSSocket]
  accepted.pause().on('error', () => {})
  const close = () => {
    for (const socket of [caller, accepted]) socket.destroy()
    server.close()
  }
  return { below, accepted, close }
}

test('E16: a TLS connection is broken once its peer has reset it', async () => {
  const { below, accepted, close } = await connected(0)
  expect(isBroken(accepted)).toBe(false)
  below.resetAndDestroy()
  await eventually(() => expect(isBroken(accepted)).toBe(true))
  close()
})

test.each([
  ['a reset', true, (peer: Socket) => peer.resetAndDestroy()],
  ['a FIN', false, (peer: Socket) => peer.end()],
  ['a FIN and a reset', false, (peer: Socket) => peer.end(() => peer.resetAndDestroy())],
  ['a reset behind our own end', false, (peer: Socket, ours: Socket) => ours.end(() => peer.resetAndDestroy())],
])('the end of a socket that is not read is one or not: %s', async (_, isFalse, end) => {
  const server = createTcpServer({ allowHalfOpen: true, pauseOnConnect: true }).listen(0)
  await once(server, 'listening')
  const peer = connect({ port: (server.address() as AddressInfo).port, allowHalfOpen: true })
  const [ours] = (await once(server, 'connection')) as [Socket]
  ours.on('error', () => {})
  end(
    peer.on('error', () => {}),
    ours,
  )
  await new Promise(resolve => setTimeout(resolve, 100))
  // A peer may also vanish behind a true end. Where ends are true, nothing is asked.
  if (process.versions.uv >= '1.52') expect(isFalseEnd(ours)).toBe(false)
  expect(isFalseEnd(ours, true)).toBe(isFalse)
  for (const socket of [peer, ours]) socket.destroy()
  server.close()
})

// As the kernel answers a write after a reset, unanswered probes, a lost route, an end and a reset, or nothing of them.
test.each([
  ['ECONNRESET', true],
  ['ETIMEDOUT', true],
  ['EHOSTUNREACH', true],
  ['EPIPE', false],
  [undefined, false],
])('the end of a broken socket is one, or not, by how a write fails: %s', (code, isFalse) => {
  const error = code === undefined ? null : Object.assign(new Error(code), { code })
  const kind = { _write: (_chunk: Buffer, _encoding: string, done: (error: Error | null) => void) => done(error) }
  const socket = Object.assign(Object.create(kind), { _handle: { getpeername: () => -107 }, writableLength: 0 })
  expect(isFalseEnd(socket, true)).toBe(isFalse)
})

// A write of a TLS socket beside one that waits would abort the process.
test('where it would stand in the way of a write, the end of a socket is not examined', async () => {
  const { below, accepted, close } = await connected(0)
  accepted.write(Buffer.alloc(32 << 20))
  expect(isFalseEnd(accepted, true)).toBe(false)
  below.resetAndDestroy()
  await eventually(() => expect(isBroken(accepted)).toBe(true))
  expect(isFalseEnd(accepted, true)).toBe(false)
  close()
})

test('a TLS connection at a Unix socket, where the system does not tell, does not count as broken', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sallyport-tcp-'))
  const { accepted, close } = await connected(join(folder, 'socket'))
  expect(isBroken(accepted)).toBe(false)
  close()
  await rm(folder, { recursive: true })
})
