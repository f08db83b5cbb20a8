import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import dns from 'node:dns'
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { expect, test, vi } from 'vitest'
import type { SallyportError } from '../../../protocol/base/errors.ts'
import { makeTarget } from '../../../router/target.ts'
import { dialUpstream, SecureContexts } from '../../../router/upstream/dial.ts'
import { LateListener } from '../../support/late-listener.ts'
import { until } from '../../support/until.ts'

test('a socket that is handed over keeps no listener of its dial, and a late error does not end the process', async () => {
  const server = createServer(() => {}).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const open = () =>
    new Promise<Socket>((resolve, reject) => {
      dialUpstream(
        makeTarget('http', '127.0.0.1', port, new Map(), undefined),
        '192.0.2.1',
        1000,
        new SecureContexts(),
        (error, socket) => (socket === undefined ? reject(error) : resolve(socket)),
      )
    })
  const [one, other] = [await open(), await open()]
  try {
    for (const socket of [one, other])
      expect([socket.listenerCount('connect'), socket.listenerCount('secureConnect')]).toEqual([0, 0])
    // A listener created for this dial would hold what the dial held: the first exchange.
    expect(one.listeners('error')).toEqual(other.listeners('error'))
    expect(one.listeners('error')[0]).toBe(other.listeners('error')[0])
    one.emit('error', new Error('late'))
  } finally {
    one.destroy()
    other.destroy()
    server.close()
  }
})

test('an address that answers late is waited for, even if the next one refuses', async () => {
  const late = await LateListener.start()
  const lookup = (_name: string, _options: object, answer: (error: null, all: dns.LookupAddress[]) => void) =>
    answer(null, [
      { address: '127.0.0.1', family: 4 },
      { address: '127.0.0.2', family: 4 },
    ])
  vi.spyOn(dns, 'lookup').mockImplementation(lookup as unknown as typeof dns.lookup)
  let begun = 0
  const onSocket = () => void begun++
  subscribe('net.client.socket', onSocket)
  const outcomes: (SallyportError | Socket | undefined)[] = []
  const target = makeTarget('http', 'late.test', late.port, new Map(), undefined)
  const giveUp = dialUpstream(target, '192.0.2.1', 60_000, new SecureContexts(), (error, socket) =>
    outcomes.push(error ?? socket),
  )
  try {
    await until(() => begun > 1 || outcomes.length > 0)
    late.accept()
    await until(() => outcomes.length > 0)
    expect(outcomes).toMatchObject([{ remoteAddress: '127.0.0.1' }])
  } finally {
    unsubscribe('net.client.socket', onSocket)
    vi.restoreAllMocks()
    giveUp()
    await late.stop()
  }
})
