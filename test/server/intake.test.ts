import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { noLogger } from '../../protocol/base/log.ts'
import { AcceptQueue } from '../../server/control/accept-queue.ts'
import { DEFAULT_SERVER_LIMITS } from '../../server/limits.ts'
import { work } from '../support/busy.ts'

const OPTIONS = { limits: DEFAULT_SERVER_LIMITS, proxies: [], logger: noLogger, onAdmitted() {}, onFull() {} }

function intakeOf(onFull: () => void = () => {}): AcceptQueue {
  return new AcceptQueue({ ...OPTIONS, onFull })
}

test("an upgrade on an embedder's server ends with the intake, which would have been its deadline", async () => {
  const embedder = createServer().listen(0, '127.0.0.1')
  await once(embedder, 'listening')
  const caller = connect((embedder.address() as AddressInfo).port, '127.0.0.1')
  const [socket] = (await once(embedder, 'connection')) as [Socket]
  let full = 0
  const onFull = () => void full++
  const intake = intakeOf(onFull)
  intake.pendingOf(socket)
  const ended = once(caller.resume(), 'close')
  intake.close()
  expect(socket.destroyed).toBe(true)
  await ended
  expect(full).toBe(0)
  embedder.close()
})

test('a handshake goes on if the rest of it came in time, and this process stood still', async () => {
  const embedder = createServer().listen(0, '127.0.0.1')
  await once(embedder, 'listening')
  const caller = connect((embedder.address() as AddressInfo).port, '127.0.0.1')
  const [socket] = (await once(embedder, 'connection')) as [Socket]
  const intake = new AcceptQueue({ ...OPTIONS, limits: { ...DEFAULT_SERVER_LIMITS, handshakeMs: 100 } })
  const pending = intake.pendingOf(socket)
  const heard = once(socket, 'data').then(() => pending.settle())
  caller.write('hello')
  work(150)
  await Promise.race([heard, once(socket, 'close')])
  await new Promise(resolve => setTimeout(resolve, 50))
  expect(socket.destroyed).toBe(false)
  caller.destroy()
  embedder.close()
})

test('connections from one port to two addresses of ours have a deadline each', async () => {
  const server = createServer().listen(0, '0.0.0.0')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const [localAddress, localPort] = ['127.0.0.1', 0]
  const caller = connect({ host: '127.0.0.1', port, localAddress, localPort })
  const [first] = (await once(server, 'connection')) as [Socket]
  const twin = connect({ host: '127.0.0.2', port, localAddress, localPort: caller.localPort! })
  const [second] = (await once(server, 'connection')) as [Socket]
  const intake = intakeOf()
  expect(intake.pendingOf(second)).not.toBe(intake.pendingOf(first))
  intake.close()
  expect([first.destroyed, second.destroyed]).toEqual([true, true])
  caller.destroy()
  twin.destroy()
  server.close()
})

test('connections at a Unix socket have a deadline each', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sallyport-intake-'))
  const path = join(folder, 'socket')
  const server = createServer().listen(path)
  await once(server, 'listening')
  const callers: Socket[] = []
  const sockets: Socket[] = []
  for (let i = 0; i < 2; i++) {
    callers.push(connect(path))
    sockets.push(...((await once(server, 'connection')) as [Socket]))
  }
  const intake = intakeOf()
  const [first, second] = sockets.map(socket => intake.pendingOf(socket))
  expect(second).not.toBe(first)
  for (const pending of [first, second]) pending!.end()
  expect(sockets.map(({ destroyed }) => destroyed)).toEqual([true, true])
  for (const caller of callers) caller.destroy()
  server.close()
  await rm(folder, { recursive: true })
})
