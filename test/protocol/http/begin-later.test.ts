/** Requests that arrive together on many connections leave others their turns. */
import { once } from 'node:events'
import { connect as connectHttp2 } from 'node:http2'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { afterEach, expect, test } from 'vitest'
import { discarding } from '../../../protocol/base/guard.ts'
import { beginLater } from '../../../protocol/base/socket-turns.ts'
import type { Handler } from '../../../protocol/exchange.ts'
import { ConnectionSet } from '../../../protocol/http/connection-set.ts'
import { serveHttp2 } from '../../../protocol/http/http2/server-session.ts'
import { type Listener, listen } from '../../../protocol/http/listener.ts'
import { work } from '../../support/busy.ts'
import { END_HEADERS, END_STREAM, ERRORS, frame, framesOf, head, PREFACE, TYPE } from '../../support/http2-frames.ts'
import { until } from '../../support/until.ts'
import { call, ok, recorder } from './http1/raw.ts'

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

/** Others that begin requests without end, and take turns long. So many that a session waits for long, even if several have one turn. */
function crowd() {
  const all = { turns: 0, goesOn: true }
  endings.push(() => (all.goesOn = false))
  for (let i = 0; i < 300; i++) {
    const beginMore = () => {
      if (!all.goesOn) return
      all.turns++
      work(3)
      beginLater(other)
    }
    const other = { beginMore, threw: () => {} }
    beginLater(other)
  }
  return all
}

/** Sessions over HTTP/2. */
async function serve(options: Parameters<typeof serveHttp2>[1]) {
  const sockets: Socket[] = []
  const server = createServer(socket => {
    sockets.push(socket)
    serveHttp2(socket, options)
  }).listen(0, '127.0.0.1')
  endings.push(() => server.close())
  await once(server, 'listening')
  return { port: (server.address() as AddressInfo).port, sockets }
}

/** Over HTTP/2. */
async function caller(port: number) {
  const peer = await call(port)
  endings.push(() => peer.socket.destroy())
  peer.send(Buffer.concat([PREFACE, frame(TYPE.settings, 0, 0)]))
  const ask = (from: number, requests: number, fields = 0) => {
    const more = Array.from({ length: fields }, (): [string, string] => ['a', ''])
    const ids = Array.from({ length: requests }, (_, i) => 2 * (from + i) + 1)
    peer.send(Buffer.concat(ids.map(id => frame(TYPE.headers, END_HEADERS | END_STREAM, id, head('GET', ...more)))))
  }
  /** Streams that were reset, with why. */
  const resets = () =>
    framesOf(Buffer.from(peer.text, 'latin1'))
      .filter(({ type }) => type === TYPE.reset)
      .map(({ stream, payload }) => `${stream} ${ERRORS[payload.readUInt32BE()]}`)
  return { ask, resets }
}

test('while requests over HTTP/2 wait for that, their bodies wait with their caller', async () => {
  let bytes = 0
  const handler: Handler = (_request, response) => ({
    ...discarding(response),
    requestData: chunk => {
      bytes += chunk.length
      response.requestConsumed(chunk.length)
    },
    requestEnd: () => ok(response),
  })
  const { port, sockets } = await serve({ handler })
  const session = connectHttp2(`http://127.0.0.1:${port}`)
  endings.push(() => session.destroy())
  await once(session, 'remoteSettings')
  const others = crowd()
  let answers = 0
  for (let n = 0; n < 15; n++) {
    const stream = session.request({ ':method': 'POST', ':path': '/' })
    stream.on('response', () => answers++)
    stream.resume().end(Buffer.alloc(60_000))
  }
  await until(() => others.turns >= 25)
  expect([answers, bytes]).toEqual([0, 0])
  expect(sockets[0]!.bytesRead).toBeGreaterThanOrEqual(64 * 1024)
  expect(sockets[0]!.bytesRead).toBeLessThan(256 * 1024)
  others.goesOn = false
  await until(() => answers === 15)
  expect(bytes).toBe(15 * 60_000)
})

test('what waits for that over HTTP/2 counts, and too much of it is refused so that it may be sent again', async () => {
  const MOST_BYTES = 1024 * 1024
  const FIELDS = 90
  const connections = new ConnectionSet(100, MOST_BYTES)
  const { handler, seen } = recorder(({ response }) => ok(response))
  const { port } = await serve({ handler, connections })
  const [one, ...more] = await Promise.all(Array.from({ length: 5 }, () => caller(port)))
  await until(() => connections.size === 5)
  const others = crowd()
  one!.ask(0, 100, FIELDS)
  const { unread } = connections
  // Nothing of it is begun: each takes as much as an exchange, and 16 bytes for each field.
  await until(() => unread.usedBytes > 100 * (4096 + 16 * FIELDS))
  expect(unread.usedBytes).toBeLessThan(MOST_BYTES)
  for (const { ask } of more) ask(0, 100, FIELDS)
  const refused = () =>
    [one!, ...more].flatMap(({ resets }) => resets()).filter(reset => reset.endsWith(' REFUSED_STREAM'))
  await until(() => refused().length > 0)
  const { turns } = others
  await until(() => others.turns > turns + 10)
  expect(unread.usedBytes).toBeLessThanOrEqual(MOST_BYTES)
  others.goesOn = false
  await until(() => seen.length + refused().length === 500 && connections.unread.usedBytes === 0)
  expect(seen.length).toBeGreaterThan(100)
})

test.each([
  ['the last of those that wait, if they hold more', 2, 10, '23 REFUSED_STREAM'],
  ['one that has begun, if those hold more', 10, 2, '1 INTERNAL_ERROR'],
])('when a session over HTTP/2 gives way, it loses %s', async (_, begun, waiting, lost) => {
  const connections = new ConnectionSet(100, 1024 * 1024)
  const { handler, seen } = recorder(() => {})
  const { port } = await serve({ handler, connections })
  const { ask, resets } = await caller(port)
  ask(0, begun)
  await until(() => seen.length === begun)
  const others = crowd()
  ask(begun, waiting)
  await until(() => connections.unread.usedBytes > 12 * 4096)
  connections.unread.shed(1)
  await until(() => resets().length > 0)
  expect(resets()).toEqual([lost])
  others.goesOn = false
  await until(() => seen.length + Number(lost.startsWith('23')) === 12)
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
