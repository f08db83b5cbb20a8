import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, connect as connectTcp, createServer } from 'node:net'
import { afterEach, expect, test, vi } from 'vitest'
import { createAuthority, createClientCertificate } from '../../../certs/index.ts'
import { CertifiedConnections } from '../../../protocol/http/certified-connections.ts'

const DAY_MS = 86_400_000

const server = createServer(socket => socket.resume())
afterEach(() => {
  vi.restoreAllMocks()
  server.close()
})

/** A connection whose certificate expires in `endsInMs`; `closed` resolves when it is told to end. */
async function connection(certified: CertifiedConnections, endsInMs: number) {
  const authority = await createAuthority()
  const made = await createClientCertificate(authority, { runtime: 'demo', validDays: endsInMs / DAY_MS })
  if (!server.listening) await once(server.listen(0, '127.0.0.1'), 'listening')
  const socket = connectTcp((server.address() as AddressInfo).port, '127.0.0.1')
  const { promise: closed, resolve } = Promise.withResolvers<number>()
  const managed = { address: '127.0.0.1', idle: true, destroy() {}, close: resolve }
  certified.add(managed, socket, new X509Certificate(made.certificate))
  return { socket, closed }
}

test('each ends with its certificate, not before', async () => {
  const certified = new CertifiedConnections()
  const long = await connection(certified, 50 * DAY_MS)
  const brief = await connection(certified, 2000)
  const first = await Promise.race([brief.closed.then(() => 'brief'), long.closed.then(() => 'long')])
  expect(first).toBe('brief')
  for (const { socket } of [long, brief]) socket.destroy()
})

test('each ends with its certificate even if the wall clock was set or the machine slept', async () => {
  const certified = new CertifiedConnections()
  const long = await connection(certified, 3 * DAY_MS)
  const brief = await connection(certified, DAY_MS)
  const now = Date.now
  vi.spyOn(Date, 'now').mockImplementation(() => now() + 2 * DAY_MS)
  expect(await Promise.race([brief.closed.then(() => 'brief'), long.closed.then(() => 'long')])).toBe('brief')
  for (const { socket } of [long, brief]) socket.destroy()
})

test('all end when told to, except those that have gone', async () => {
  const certified = new CertifiedConnections()
  const gone = await connection(certified, DAY_MS)
  const there = await connection(certified, DAY_MS)
  gone.socket.destroy()
  await once(gone.socket, 'close')
  certified.end()
  expect(await Promise.race([gone.closed.then(() => 'gone'), there.closed.then(() => 'there')])).toBe('there')
  there.socket.destroy()
})
