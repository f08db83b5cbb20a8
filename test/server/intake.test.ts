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
