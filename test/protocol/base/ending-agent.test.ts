/** The memory of a process that asks the same place for months, and the end of connections being opened. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { createSecureServer } from 'node:http2'
import { type AddressInfo, createServer as createNetServer, type Socket } from 'node:net'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { request } from 'undici'
import { expect, test } from 'vitest'
import { endingAgent } from '../../../protocol/base/ending-agent.ts'
import { makeSecrets } from '../../support/secrets.ts'
import { until } from '../../support/until.ts'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

test('nothing holds ended sockets', async () => {
  const server = createServer((_, response) => response.setHeader('connection', 'close').end('ok')).listen(
    0,
    '127.0.0.1',
  )
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const sockets: WeakRef<Socket>[] = []
  const note = (message: unknown) => void sockets.push(new WeakRef((message as { socket: Socket }).socket))
  subscribe('net.client.socket', note)
  const { agent, end } = endingAgent({ connect: { timeout: 10_000 }, connections: 1 })
  for (let asked = 0; asked < 20; asked++) {
    const { body } = await request(url, { dispatcher: agent })
    expect(await body.text()).toBe('ok')
  }
  unsubscribe('net.client.socket', note)
  expect(sockets.length).toBe(20)
  // The agent keeps the last one until it makes another.
  await until(() => {
    collect()
    return sockets.filter(socket => socket.deref() !== undefined).length <= 1
  })
  await end()
  server.close()
})

test('a connection that is still being opened ends with its agent', async () => {
  // A TLS server that says nothing.
  const accepted: Socket[] = []
  const server = createNetServer(socket => void accepted.push(socket.on('error', () => {}).resume())).listen(
    0,
    '127.0.0.1',
  )
  await once(server, 'listening')
  const { agent, end } = endingAgent({ connect: { timeout: 600_000 } })
  const asked = request(`https://127.0.0.1:${(server.address() as AddressInfo).port}`, { dispatcher: agent })
  asked.catch(() => {})
  await until(() => accepted.length === 1)
  const closed = once(accepted[0]!, 'close')
  await end()
  await expect(asked).rejects.toThrow()
  await closed
  server.close()
})

test('speaks HTTP/1.1, where a request that is given up ends its connection, to a server that prefers HTTP/2', async () => {
  const { ca, server: pair } = await makeSecrets()
  const server = createSecureServer({ ...pair, allowHTTP1: true }, ({ httpVersion }, response) =>
    response.end(httpVersion),
  ).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { agent, end } = endingAgent({ connect: { timeout: 10_000, ca } })
  const { body } = await request(`https://127.0.0.1:${(server.address() as AddressInfo).port}`, { dispatcher: agent })
  expect(await body.text()).toBe('1.1')
  await end()
  server.close()
})
