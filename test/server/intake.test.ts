import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { expect, test } from 'vitest'
import { noLogger } from '../../protocol/base/log.ts'
import { AcceptQueue } from '../../server/control/accept-queue.ts'
import { DEFAULT_SERVER_LIMITS } from '../../server/limits.ts'

test("an upgrade on an embedder's server ends with the intake, which would have been its deadline", async () => {
  const embedder = createServer().listen(0, '127.0.0.1')
  await once(embedder, 'listening')
  const caller = connect((embedder.address() as AddressInfo).port, '127.0.0.1')
  const [socket] = (await once(embedder, 'connection')) as [Socket]
  let full = 0
  const onFull = () => void full++
  const intake = new AcceptQueue({
    limits: DEFAULT_SERVER_LIMITS,
    proxies: [],
    logger: noLogger,
    onAdmitted() {},
    onFull,
  })
  intake.pendingOf(socket)
  const ended = once(caller.resume(), 'close')
  intake.close()
  expect(socket.destroyed).toBe(true)
  await ended
  expect(full).toBe(0)
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
  const intake = new AcceptQueue({
    limits: DEFAULT_SERVER_LIMITS,
    proxies: [],
    logger: noLogger,
    onAdmitted() {},
    onFull() {},
  })
  expect(intake.pendingOf(second)).not.toBe(intake.pendingOf(first))
  intake.close()
  expect([first.destroyed, second.destroyed]).toEqual([true, true])
  caller.destroy()
  twin.destroy()
  server.close()
})
