import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, connect as connectTcp, createServer } from 'node:net'
import { afterEach, expect, test } from 'vitest'
import { createAuthority, createClientCertificate } from '../../../certs/index.ts'
import { MAX_TIMER_MS } from '../../../protocol/base/durations.ts'
import { CertifiedConnections } from '../../../protocol/http/certified-connections.ts'

const server = createServer(socket => socket.resume())
afterEach(() => void server.close())

/** A connection whose certificate ends in `endsInMs`; `closed` resolves when it is told to end. */
async function connection(certified: CertifiedConnections, endsInMs: number) {
  const authority = await createAuthority()
  const made = await createClientCertificate(authority, { runtime: 'demo', validDays: endsInMs / 86_400_000 })
  if (!server.listening) await once(server.listen(0, '127.0.0.1'), 'listening')
  const socket = connectTcp((server.address() as AddressInfo).port, '127.0.0.1')
  const { promise: closed, resolve } = Promise.withResolvers<number>()
  const managed = { address: '127.0.0.1', idle: true, destroy() {}, close: resolve }
  certified.add(managed, socket, new X509Certificate(made.certificate))
  return { socket, closed }
}

test('each ends with its certificate, and not before', async () => {
  const certified = new CertifiedConnections()
  // Longer than a timer holds.
  const long = await connection(certified, MAX_TIMER_MS * 2)
  const brief = await connection(certified, 2000)
  const first = await Promise.race([brief.closed.then(() => 'brief'), long.closed.then(() => 'long')])
  expect(first).toBe('brief')
  for (const { socket } of [long, brief]) socket.destroy()
})

test('all end when they are told to, but for those that have gone', async () => {
  const certified = new CertifiedConnections()
  const gone = await connection(certified, 86_400_000)
  const there = await connection(certified, 86_400_000)
  gone.socket.destroy()
  await once(gone.socket, 'close')
  certified.end()
  expect(await Promise.race([gone.closed.then(() => 'gone'), there.closed.then(() => 'there')])).toBe('there')
  there.socket.destroy()
})
