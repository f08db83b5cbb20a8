/** What requests over HTTP/1.1 hold until somebody takes it: it is counted, and whoever holds the most loses it. */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { connect as connectTls, createServer as createTlsServer } from 'node:tls'
import { afterEach, beforeAll, describe, expect, test } from 'vitest'
import { collectGarbage, liveBytes } from '../../../../load-tests/lib/garbage.ts'
import type { SallyportError } from '../../../../protocol/base/errors.ts'
import { discarding } from '../../../../protocol/base/guard.ts'
import type { Handler, RequestSink, ResponseSink } from '../../../../protocol/exchange.ts'
import { ConnectionSet } from '../../../../protocol/http/connection-set.ts'
import { serveHttp1 } from '../../../../protocol/http/http1/server-connection.ts'
import { SocketReader } from '../../../../protocol/http/http1/socket-reader.ts'
import { Random } from '../../../fuzz/random.ts'
import { makeSecrets, type Secrets } from '../../../support/secrets.ts'
import { firstSeed } from '../../../support/seed.ts'
import { until } from '../../../support/until.ts'
import { ok, RawPeer } from './raw.ts'

let secrets: Secrets
beforeAll(async () => {
  secrets = await makeSecrets()
})
const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

interface Serving {
  readonly connections: ConnectionSet
  /** Another caller, from this address. */
  call(address?: string): Promise<RawPeer>
}

async function serve(handler: Handler, mostBytes = 2 ** 40, isTls = false, boundsBodies = false): Promise<Serving> {
  const connections = new ConnectionSet(1000, mostBytes)
  const reader = new SocketReader()
  const addresses: (string | undefined)[] = []
  let taken = 0
  const take = (socket: Socket) => {
    taken++
    const limits = { headMs: 0, bodyIdleMs: 0 }
    serveHttp1(socket, { handler, connections, limits, reader, boundsBodies, peerAddress: addresses.shift() })
  }
  const options = { allowHalfOpen: true }
  const server = isTls ? createTlsServer({ ...secrets.server, ...options }, take) : createServer(options, take)
  open.push(() => server.close())
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  const call = async (address?: string) => {
    addresses.push(address)
    const before = taken
    const socket = isTls
      ? connectTls({ port, host: '127.0.0.1', ca: secrets.ca })
      : connect({ port, host: '127.0.0.1' })
    open.push(() => socket.destroy())
    await until(() => taken > before)
    return new RawPeer(socket)
  }
  return { connections, call }
}

/** Keeps what it is given, and takes nothing. */
function hoarder(): Handler {
  const kept: unknown[] = []
  return (request, response) => {
    kept.push(request)
    return { ...discarding(response), requestData: chunk => void kept.push(chunk) }
  }
}

const get = (path = '/') => `GET ${path} HTTP/1.1\r\nHost: a\r\n`
const post = 'POST / HTTP/1.1\r\nHost: a\r\n'
const long = `${post}Content-Length: 100000000\r\n\r\n`
const upgrade =
  'Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n'
/** More than is read. */
const MUCH = Buffer.alloc(1024 * 1024, 'x')
const CHUNKS = Buffer.from(`1000\r\n${'x'.repeat(4096)}\r\n`.repeat(100))
const PIPELINE = Buffer.from(`${get()}\r\n`.repeat(10_000))
const FIELDS = Buffer.from(`X-Large: ${'~'.repeat(1500)}\r\n`.repeat(10))

const SHAPES: [string, string, Buffer][] = [
  ['a body', long, MUCH],
  ['a body in chunks', `${post}Transfer-Encoding: chunked\r\n\r\n`, CHUNKS],
  ['a part of a head', get(), FIELDS],
  ['a head', get(), Buffer.concat([FIELDS, Buffer.from('\r\n')])],
  ['a part of trailers', `${post}Transfer-Encoding: chunked\r\n\r\n0\r\n`, FIELDS],
  ['trailers', `${post}Transfer-Encoding: chunked\r\n\r\n0\r\n`, Buffer.concat([FIELDS, Buffer.from('\r\n')])],
  ['requests behind one without an answer', `${get()}\r\n`, PIPELINE],
  ['what follows the handshake of a WebSocket', get() + upgrade, MUCH],
]

describe.each([
  ['TCP', false],
  ['TLS', true],
])('over %s', (_name, isTls) => {
  test.each(SHAPES)(
    'as much is counted as is held of %s',
    { tags: isTls ? ['slow'] : [] },
    async (_what, head, rest) => {
      const { connections, call } = await serve(hoarder(), 2 ** 40, isTls)
      const peers: RawPeer[] = []
      const memory = async () => {
        await collectGarbage()
        return process.memoryUsage().arrayBuffers
      }
      const before = await memory()
      for (let i = 0; i < 30; i++) peers.push(await call())
      for (const peer of peers) {
        peer.send(head)
        peer.send(rest)
      }
      // Until nothing more is read. Of TLS, that is seen only when the connection is looked at.
      for (let seen = -1; connections.unread.usedBytes !== seen; ) {
        seen = connections.unread.usedBytes
        await new Promise(resolve => setTimeout(resolve, isTls ? 2500 : 300))
      }
      const { usedBytes } = connections.unread
      expect(usedBytes).toBeGreaterThan(30 * 14_000)
      expect((await memory()) - before).toBeLessThan(1.45 * usedBytes)
      connections.destroyAll()
      await until(() => connections.size === 0)
      expect(connections.unread.usedBytes).toBe(0)
    },
  )
})

const MOST_BYTES = 256 * 1024
/** What an exchange costs that is over only for its caller. */
const UNENDED_BYTES = 8 * 1024
const [HEAVY, LIGHT] = ['192.0.2.1', '198.51.100.1']
const body = Buffer.alloc(15_000, 'x')

/** Answers small requests, begins the answer to `/begun`, and takes no bodies. */
function refusing() {
  const aborted: string[] = []
  const handler: Handler = ({ path, peerAddress }, response): RequestSink => {
    if (path === '/begun') response.responseHead({ status: 200, headers: [], bodyBytes: 100 })
    if (path === '/raw') response.responseHead({ status: 101, headers: [], bodyBytes: -1 })
    if (path === '/small') ok(response)
    const requestAbort = ({ reason }: SallyportError) => void aborted.push(`${peerAddress} ${reason}`)
    return { ...discarding(response), requestData() {}, requestAbort }
  }
  return { handler, aborted }
}

describe('at the ceiling, who holds the most', () => {
  test.each([
    ['is answered, for a body', long, '502'],
    ['is answered, for a part of a head', `${get()}X-Large: `, '503'],
    ['is answered, for requests behind one without an answer', `${get('/never')}\r\n${get('/never')}X-Large: `, '503'],
    ['is answered, for what follows the handshake of a WebSocket', get() + upgrade, '503'],
    ['is cut, for a body whose answer has begun', long.replace('/', '/begun'), '200'],
    ['is cut, for what a WebSocket sends', get('/raw') + upgrade, '101'],
  ])('%s', async (_what, head, status) => {
    const { handler, aborted } = refusing()
    const { connections, call } = await serve(handler, MOST_BYTES)
    const light = await call(LIGHT)
    light.send(long)
    light.send(body)
    await until(() => connections.unread.usedBytes > 15_000)
    const heavy: RawPeer[] = []
    const isLost = ({ text, closed }: RawPeer) => closed || / 50[23] /.test(text)
    for (let i = 0; !heavy.some(isLost); i++) {
      const peer = await call(HEAVY)
      heavy.push(peer)
      peer.send(head)
      peer.send(body)
      const { usedBytes } = connections.unread
      await until(() => connections.unread.usedBytes !== usedBytes)
      expect(connections.unread.usedBytes).toBeLessThanOrEqual(MOST_BYTES)
      expect(i).toBeLessThan(20)
    }
    expect(heavy.length).toBeGreaterThan(15)
    const lost = heavy.find(isLost)!
    const text = await lost.end()
    const reason = status === '502' ? 'session-lost' : 'overloaded'
    expect(text).toMatch(new RegExp(`^HTTP/1.1 ${status} `))
    expect(text.includes(`sallyport-error: ${reason}`)).toBe(status.startsWith('5'))
    expect(lost.error).toBe(status === '101' ? 'ECONNRESET' : undefined)
    if (!head.includes('X-Large')) expect(new Set(aborted)).toEqual(new Set([`${HEAVY} ${reason}`]))
    // Small requests of both networks go on.
    for (const address of [HEAVY, LIGHT]) {
      const peer = await call(address)
      peer.send(`${get('/small')}\r\n`)
      await peer.saying('ok')
    }
    expect([light.text, light.closed]).toEqual(['', false])
    connections.destroyAll()
    await until(() => connections.size === 0)
    expect(connections.unread.usedBytes).toBe(0)
  })

  test.each([
    ['POST', 'a part', '502'],
    ['POST', 'all', '502'],
    ['GET', 'all', '503'],
  ])('R7 a %s of which %s was passed on is answered with %s', async (method, what, status) => {
    const { handler } = refusing()
    const { connections, call } = await serve(handler)
    const peer = await call()
    peer.send(`${method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n`)
    peer.send(Buffer.alloc(what === 'all' ? 10 : 9))
    await until(() => connections.unread.usedBytes > 40)
    connections.unread.shed(connections.unread.usedBytes)
    expect((await peer.end()).split(' ')[1]).toBe(status)
  })

  test.each(['handler', 'requestData', 'requestEnd', 'responseConsumed'])('may lose it within its %s', async step => {
    const events: string[] = []
    let shed = () => {}
    const handler: Handler = (_request, response) => {
      const on = (name: string) => {
        events.push(name)
        if (name === step) shed()
      }
      on('handler')
      return {
        requestData: () => on('requestData'),
        requestEnd: () => {
          on('requestEnd')
          response.responseHead({ status: 200, headers: [], bodyBytes: 10 })
          response.responseData(Buffer.from('five '))
        },
        responseConsumed: () => on('responseConsumed'),
        requestAbort: ({ reason }) => void events.push(reason),
      }
    }
    const { connections, call } = await serve(handler)
    shed = () => void connections.unread.shed(connections.unread.usedBytes)
    const peer = await call()
    peer.send(`${post}Content-Length: 5`)
    await until(() => connections.unread.usedBytes > 0)
    peer.send('\r\n\r\nab')
    if (step !== 'handler') {
      await until(() => events.includes('requestData'))
      peer.send('cde')
    }
    await peer.close()
    await until(() => connections.size === 0)
    expect(events.slice(events.indexOf(step) + 1)).toEqual(['overloaded'])
    expect(connections.unread.usedBytes).toBe(0)
  })
})

test.each([
  ['is complete', 80_000],
  ['is not', 100_000],
])(
  'a body that is consumed after its answer, when the request %s, does not count for less than nothing',
  async (_what, length) => {
    let consume = () => {}
    const { connections, call } = await serve((_request, response) => {
      let held = 0
      const requestData = (chunk: Uint8Array) => {
        held += chunk.length
        if (held < 80_000) return
        consume = () => response.requestConsumed(held)
        response.responseHead({ status: 200, headers: [], bodyBytes: 2 })
        response.responseData(Buffer.from('ok'))
        // The end of a complete answer may come later, or never.
        if (length > held) response.responseEnd([])
      }
      return { ...discarding(response), requestData }
    })
    const peer = await call()
    peer.send(`${post}Content-Length: ${length}\r\n\r\n${'x'.repeat(80_000)}`)
    await peer.saying('ok')
    consume()
    await until(() => connections.unread.usedBytes < 100)
    expect(connections.unread.usedBytes).toBeGreaterThanOrEqual(0)
  },
)

test('whatever callers and handlers do, nothing is counted at rest', async () => {
  const random = new Random(String(firstSeed()))
  const late: (() => void)[] = []
  const handler: Handler = ({ upgrade }, response: ResponseSink) => {
    const takes = random.oneIn(2)
    let held = 0
    const answer = () => {
      if (upgrade) response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
      if (!upgrade) ok(response)
      else if (random.oneIn(2)) response.responseEnd([])
    }
    late.push(() => {
      response.requestConsumed(held)
      held = 0
      if (random.oneIn(2)) answer()
    })
    if (random.oneIn(4)) answer()
    return {
      ...discarding(response),
      requestData: ({ length }) => {
        if (takes) response.requestConsumed(length)
        else held += length
      },
      requestEnd: () => void (random.oneIn(2) && answer()),
    }
  }
  const { connections, call } = await serve(handler, MOST_BYTES, false, random.oneIn(2))
  for (let i = 0; i < 150; i++) {
    const peer = await call(random.pick([HEAVY, LIGHT]))
    for (let k = random.int(4); k >= 0; k--) {
      const [, head, rest] = random.pick(SHAPES)
      peer.send(random.oneIn(3) ? `${post}Content-Length: 5\r\n\r\nhello` : head)
      if (random.oneIn(2)) peer.send(rest.subarray(0, random.size(100_000)))
    }
    for (let k = random.int(3); k > 0 && late.length > 0; k--) random.pick(late)()
    const end = random.pick(['destroy', 'end', undefined] as const)
    if (end !== undefined) peer.socket[end]()
    expect(connections.unread.usedBytes).toBeLessThanOrEqual(MOST_BYTES)
    expect(connections.unread.usedBytes).toBeGreaterThanOrEqual(0)
  }
  connections.destroyAll()
  await until(() => connections.size === 0)
  for (const step of late) step()
  await until(() => connections.unread.usedBytes === 0)
})

/** Answers `/whole` at once, and everything else with a body that goes on as long as it is taken. */
function answering() {
  const aborted: string[] = []
  let sent = 0
  const handler: Handler = ({ path, peerAddress }, response): RequestSink => {
    const give = () => {
      sent += PIECE
      response.responseData(Buffer.alloc(PIECE))
    }
    const requestEnd = () => {
      response.responseHead({ status: 200, headers: [], bodyBytes: path === '/whole' ? PIECE : -1 })
      give()
      if (path === '/whole') response.responseEnd([])
    }
    const responseConsumed = path === '/whole' ? () => {} : give
    const requestAbort = ({ reason }: SallyportError) => void aborted.push(`${peerAddress} ${reason}`)
    return { requestData() {}, requestEnd, responseConsumed, requestAbort }
  }
  /** Until nothing more is taken. */
  const stalled = async () => {
    for (let seen = -1; sent !== seen; ) {
      seen = sent
      await new Promise(resolve => setTimeout(resolve, 300))
    }
  }
  return { handler, aborted, stalled }
}
const PIECE = 60_000

describe('answers that callers do not take', () => {
  test.each([
    ['count', false, 'download', 1, PIECE],
    ['count for their handler if it pays for them', true, 'download', 1, 0],
    ['count once they are complete, whoever pays', true, 'whole', 400, PIECE],
  ])('%s', async (_what, boundsBodies, path, times, least) => {
    const { handler, stalled } = answering()
    const { connections, call } = await serve(handler, 2 ** 40, false, boundsBodies)
    const peer = await call()
    peer.socket.pause()
    peer.send(`${get(`/${path}`)}\r\n`.repeat(times))
    await stalled()
    const requests = connections.unread.usedBytes - least
    expect(requests).toBeGreaterThanOrEqual(0)
    expect(requests).toBeLessThan(2 * PIECE)
    if (least === 0) expect(requests).toBeLessThan(1000)
    peer.socket.resume()
    if (path === 'whole') await until(() => connections.unread.usedBytes === 0)
    peer.socket.destroy()
    await until(() => connections.size === 0)
    expect(connections.unread.usedBytes).toBe(0)
  })

  test('are lost at the ceiling by whoever holds the most', async () => {
    const { handler, aborted, stalled } = answering()
    const { connections, call } = await serve(handler, MOST_BYTES)
    for (const address of [LIGHT, HEAVY, HEAVY, HEAVY, HEAVY]) {
      const peer = await call(address)
      peer.socket.pause()
      peer.send(`${get('/download')}\r\n`)
      await stalled()
      expect(connections.unread.usedBytes).toBeLessThanOrEqual(MOST_BYTES)
    }
    expect(aborted).toEqual([`${HEAVY} overloaded`])
    connections.destroyAll()
  })
})

test('what is taken of a body no longer counts', async () => {
  const responses: ResponseSink[] = []
  let given = 0
  const { connections, call } = await serve((_request, response) => {
    responses.push(response)
    const requestData = ({ length }: Uint8Array) => {
      given += length
    }
    return { ...discarding(response), requestData }
  })
  const peer = await call()
  peer.send(long)
  peer.send(body)
  await until(() => given === body.length)
  expect(connections.unread.usedBytes).toBe(long.length + body.length)
  responses[0]!.requestConsumed(10_000)
  expect(connections.unread.usedBytes).toBe(long.length + body.length - 10_000)
})

test('bodies that nobody takes count behind their answers, too, until their upstream ends are over', async () => {
  const responses: ResponseSink[] = []
  const aborted: string[] = []
  const { connections, call } = await serve((_request, response) => {
    responses.push(response)
    const answer = () => {
      response.responseHead({ status: 200, headers: [], bodyBytes: 2 })
      response.responseData(Buffer.from('ok'))
    }
    const requestAbort = ({ reason }: SallyportError) => void aborted.push(reason)
    return { ...discarding(response), requestData() {}, requestEnd: answer, requestAbort }
  })
  const peer = await call()
  const upload = `${post}Content-Length: ${body.length}\r\n\r\n`
  const bytes = upload.length + body.length
  for (const count of [1, 2, 3]) {
    peer.send(upload)
    peer.send(body)
    await peer.saying('ok', count)
    await until(() => connections.unread.usedBytes === count * bytes + (count - 1) * UNENDED_BYTES)
  }
  const held = connections.unread.usedBytes
  responses[0]!.requestConsumed(5000)
  expect(connections.unread.usedBytes).toBe(held - 5000)
  responses[1]!.responseEnd([])
  expect(connections.unread.usedBytes).toBe(held - 5000 - bytes - UNENDED_BYTES)
  expect(aborted).toEqual([])
  // They go first, since their callers have their answers. The connection goes on.
  connections.unread.shed(1)
  expect(aborted).toEqual(['overloaded'])
  expect(connections.unread.usedBytes).toBe(bytes)
  peer.send(upload)
  peer.send(body)
  await peer.saying('ok', 4)
  peer.socket.destroy()
  await until(() => connections.unread.usedBytes === 0)
})

test.each([
  ['taken', 'whole'],
  ['taken twice', 'whole'],
  ['shed', 'overloaded'],
  ['shed before its caller has gone', 'overloaded'],
])('a WebSocket that is over for its caller counts until what it has sent is %s', async (way, end) => {
  const ends: string[] = []
  let untaken = 0
  let response!: ResponseSink
  const { connections, call } = await serve((_request, sink) => {
    response = sink
    response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
    const requestData = ({ length }: Uint8Array) => {
      untaken += length
    }
    const requestEnd = () => void ends.push('whole')
    const requestAbort = ({ reason }: SallyportError) => void ends.push(reason)
    return { ...discarding(response), requestData, requestEnd, requestAbort }
  })
  const peer = await call()
  peer.send(get() + upgrade)
  await peer.saying('101')
  peer.send(body)
  peer.socket.end()
  await until(() => untaken === body.length)
  if (way === 'shed before its caller has gone') {
    peer.socket.pause()
    for (let i = 0; i < 16; i++) response.responseData(MUCH)
    // Until the caller's end has been read.
    await new Promise(resolve => setTimeout(resolve, 100))
  }
  response.responseEnd([])
  if (way !== 'shed before its caller has gone') await until(() => connections.size === 0)
  expect(connections.unread.usedBytes).toBeGreaterThan(body.length)
  expect(ends).toEqual([])
  if (end === 'overloaded') connections.unread.shed(1)
  else response.requestConsumed(way === 'taken' ? untaken : 2 * untaken)
  await until(() => ends.length > 0)
  expect(ends).toEqual([end])
  await until(() => connections.size === 0)
  expect(connections.unread.usedBytes).toBe(0)
  // The upstream end lets go of it after the end, too.
  if (end === 'overloaded') response.requestConsumed(untaken)
  expect(connections.unread.usedBytes).toBe(0)
})

test.each([
  // The last read is of a body. Its memory is far larger than what is left of it.
  ['a body', `${post}Content-Length: 220000\r\n\r\n${'x'.repeat(220_000)}`, 'GET'],
  ['a body with nothing behind it', `${post}Content-Length: 180000\r\n\r\n${'x'.repeat(180_000)}`, ''],
  // They are begun in many turns, and take their memory with them.
  ['many requests', `${get()}\r\n`.repeat(1500), 'GET'],
])('a connection without a request holds only the begin of the next one, behind %s', async (_what, all, begin) => {
  const { connections, call } = await serve((_request, response) => {
    const requestData = ({ length }: Uint8Array) => response.requestConsumed(length)
    return { ...discarding(response), requestData, requestEnd: () => ok(response) }
  })
  await collectGarbage()
  const before = process.memoryUsage().arrayBuffers
  for (let i = 0; i < 50; i++) {
    const peer = await call()
    peer.send(all + begin)
    await peer.saying('ok')
  }
  await until(() => connections.unread.usedBytes === 50 * begin.length)
  await collectGarbage()
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(50 * 16 * 1024)
  connections.destroyAll()
})

test.each([
  ['head', get()],
  ['trailers', `${post}Transfer-Encoding: chunked\r\n\r\n0\r\n`],
])('a connection keeps nothing that it has parsed of its last %s', async (_what, head) => {
  const { call } = await serve((_request, response) => ({ ...discarding(response), requestEnd: () => ok(response) }))
  const peers: RawPeer[] = []
  for (let i = 0; i < 100; i++) peers.push(await call())
  const answered = async (fields: (i: number) => string, count: number) => {
    for (const [i, peer] of peers.entries()) {
      peer.send(`${head + fields(i)}\r\n`)
      await peer.saying('ok', count)
    }
    return liveBytes()
  }
  await answered(() => '', 1)
  const before = await answered(() => '', 2)
  const after = await answered(i => `X-Large: ${i}${'~'.repeat(14_000)}\r\n`, 3)
  expect(after - before).toBeLessThan(100 * 4 * 1024)
})
