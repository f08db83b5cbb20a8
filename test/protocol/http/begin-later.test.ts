/** Requests that arrive together on many connections leave others their turns. */
import { once } from 'node:events'
import { connect as connectHttp2 } from 'node:http2'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { afterEach, expect, test } from 'vitest'
import { discarding } from '../../../protocol/base/guard.ts'
import { beginLater } from '../../../protocol/base/socket-turns.ts'
import type { Handler } from '../../../protocol/exchange.ts'
import { serveHttp2 } from '../../../protocol/http/http2/server-session.ts'
import { type Listener, listen } from '../../../protocol/http/listener.ts'
import { work } from '../../support/busy.ts'
import { until } from '../../support/until.ts'
import { ok, recorder } from './http1/raw.ts'

const CONNECTIONS = 40
const REQUESTS = 50
/** As many began in each turn when 16 of each connection did. */
const EARLIER = CONNECTIONS * 16

const endings: (() => unknown)[] = []
afterEach(async () => {
  for (const end of endings.splice(0).reverse()) await end()
})

async function dial({ address: { port } }: Listener): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1' })
  socket.on('error', () => {})
  endings.push(() => socket.destroy())
  await once(socket, 'connect')
  return socket.resume()
}

/** Returns what sends all requests of a connection. */
const PROTOCOLS: Record<string, (listener: Listener) => Promise<() => void>> = {
  'HTTP/1.1': async listener => {
    const socket = await dial(listener)
    return () => socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(REQUESTS))
  },
  'HTTP/2': async listener => {
    const socket = await dial(listener)
    const session = connectHttp2('http://a', { createConnection: () => socket })
    session.on('error', () => {})
    endings.push(() => session.destroy())
    await once(session, 'remoteSettings')
    return () => {
      for (let n = 0; n < REQUESTS; n++)
        session
          .request({ ':path': '/' })
          .on('error', () => {})
          .resume()
    }
  },
}

test('while requests over HTTP/2 wait for that, their bodies wait with their caller', async () => {
  let turns = 0
  let goesOn = true
  endings.push(() => (goesOn = false))
  // So many that the session waits for long, even if several have their turn in one, since its reads took long.
  const others = Array.from({ length: 300 }, () => {
    const beginMore = () => {
      if (!goesOn) return
      turns++
      work(3)
      beginLater(other)
    }
    const other = { beginMore, threw: () => {} }
    return other
  })
  let bytes = 0
  const handler: Handler = (_request, response) => ({
    ...discarding(response),
    requestData: chunk => {
      bytes += chunk.length
      response.requestConsumed(chunk.length)
    },
    requestEnd: () => ok(response),
  })
  const sockets: Socket[] = []
  const server = createServer(socket => {
    sockets.push(socket)
    serveHttp2(socket, { handler })
  }).listen(0, '127.0.0.1')
  endings.push(() => server.close())
  await once(server, 'listening')
  const session = connectHttp2(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  endings.push(() => session.destroy())
  await once(session, 'remoteSettings')
  for (const other of others) beginLater(other)
  let answers = 0
  for (let n = 0; n < 15; n++) {
    const stream = session.request({ ':method': 'POST', ':path': '/' })
    stream.on('response', () => answers++)
    stream.resume().end(Buffer.alloc(60_000))
  }
  await until(() => turns >= 25)
  expect([answers, bytes]).toEqual([0, 0])
  expect(sockets[0]!.bytesRead).toBeGreaterThan(64 * 1024)
  expect(sockets[0]!.bytesRead).toBeLessThan(256 * 1024)
  goesOn = false
  await until(() => answers === 15)
  expect(bytes).toBe(15 * 60_000)
})

test.each(Object.keys(PROTOCOLS))('over %s', async protocol => {
  let begun = 0
  const perTurn: number[] = []
  const endTurn = () => {
    perTurn.push(begun)
    begun = 0
  }
  const { handler, seen } = recorder(({ response }) => {
    work(0.5)
    if (begun++ === 0) setImmediate(endTurn)
    ok(response)
  })
  const listener = await listen({ port: 0, handler })
  endings.push(() => listener.close({ graceMs: 0 }))
  const sends = await Promise.all(Array.from({ length: CONNECTIONS }, () => PROTOCOLS[protocol]!(listener)))
  for (const send of sends) send()
  await until(() => seen.length === CONNECTIONS * REQUESTS)
  expect(Math.max(...perTurn)).toBeLessThan(EARLIER / 2)
})
