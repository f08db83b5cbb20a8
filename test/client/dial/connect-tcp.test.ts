import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { connectTcp } from '../../../client/dial/connect-tcp.ts'
import { LateListener } from '../../support/late-listener.ts'
import { until } from '../../support/until.ts'

const LATE = { address: '127.0.0.1', family: 4 }
/** Nothing listens there. */
const REFUSES = { address: '127.0.0.2', family: 4 }

const attempts: Socket[] = []
const onSocket = (message: unknown) => void attempts.push((message as { socket: Socket }).socket)
beforeEach(() => {
  attempts.length = 0
  subscribe('net.client.socket', onSocket)
})
afterEach(() => void unsubscribe('net.client.socket', onSocket))

/** None of the attempts fills its queue. */
async function startLate(): Promise<LateListener> {
  const late = await LateListener.start()
  attempts.length = 0
  return late
}

it.each([
  ['the next one', [LATE, REFUSES]],
  ['the one before', [REFUSES, LATE]],
])('waits for an address that answers late, although %s refuses', async (_which, addresses) => {
  const late = await startLate()
  let failed: unknown
  const connected = connectTcp('late.test', late.port, addresses, AbortSignal.timeout(60_000))
  connected.catch(error => {
    failed = error
  })
  try {
    await until(() => attempts.length > 1 || failed !== undefined)
    late.accept()
    const socket = await connected
    expect(socket.remoteAddress).toBe('127.0.0.1')
    socket.destroy()
    await until(() => attempts.every(({ destroyed }) => destroyed))
  } finally {
    await late.stop()
  }
})

it('accepts an address that refused at first, while the other one stays silent', async () => {
  const late = await startLate()
  const back = createServer()
  try {
    const connecting = connectTcp('a.test', late.port, [LATE, REFUSES], AbortSignal.timeout(60_000))
    await until(() => attempts.length > 1)
    back.listen(late.port, REFUSES.address)
    const socket = await connecting
    expect(socket.remoteAddress).toBe(REFUSES.address)
    socket.destroy()
  } finally {
    back.close()
    await late.stop()
  }
})

it('starts nothing more once it has ended', async () => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  try {
    const { port } = server.address() as AddressInfo
    const connecting = connectTcp('a.test', port, [LATE, REFUSES], AbortSignal.timeout(60_000))
    const failed = attempts[0]!.listeners('error')[0] as (error: Error) => void
    const socket = await connecting
    // An attempt that ended in the same turn as another connected is reported after that.
    failed(new AggregateError([Object.assign(new Error('late'), { code: 'ETIMEDOUT', address: '127.0.0.1' })]))
    expect(attempts).toHaveLength(1)
    socket.destroy()
  } finally {
    server.close()
  }
})

it('rejects with the error of addresses that all refuse', async () => {
  const other = { address: '127.0.0.3', family: 4 }
  await expect(connectTcp('no.test', 1, [REFUSES, other], AbortSignal.timeout(60_000))).rejects.toMatchObject({
    code: 'ECONNREFUSED',
    errors: [{ address: '127.0.0.2' }, { address: '127.0.0.3' }],
  })
})
