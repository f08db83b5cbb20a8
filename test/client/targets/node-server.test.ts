import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { type Duplex, Readable } from 'node:stream'
import { setImmediate as turn } from 'node:timers/promises'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { WebSocketServer } from 'ws'
import { createTunnel, type Tunnel } from '../../../client/index.ts'
import { nodeServerTarget } from '../../../client/targets/node-server.ts'
import { SallyportError } from '../../../protocol/base/errors.ts'
import { ignore } from '../../../protocol/base/guard.ts'
import type { HeaderList, ResponseHead } from '../../../protocol/exchange.ts'
import { Random } from '../../fuzz/random.ts'
import { DEAF, EXCHANGE } from '../../support/ends.ts'
import { firstSeed } from '../../support/seed.ts'
import { eventually } from '../../support/until.ts'
import { FakeServer, type FakeSession } from '../fake-server.ts'

const KIB = 1024
const ENDS = ['alone', 'with an empty piece', 'piped', 'destroyed', 'later', 'never'] as const
interface Writes {
  readonly pieces: number
  readonly bytes: number
  readonly end: (typeof ENDS)[number]
  readonly close: boolean
}

const withCode = (code: string) => Object.assign(new Error('broken'), { code })
/** How an application breaks off what it has begun. With the last three errors, Node itself refuses requests. */
const BREAKS: readonly [string, (socket: Duplex) => void][] = [
  ['with an error', socket => void socket.destroy(new Error('broken'))],
  ['by a reset', socket => void (socket as Socket).resetAndDestroy()],
  ['since its own upstream cannot be parsed', socket => void socket.destroy(withCode('HPE_INVALID_CHUNK_SIZE'))],
  ['since its own upstream has too long a head', socket => void socket.destroy(withCode('HPE_HEADER_OVERFLOW'))],
  ['since it took too long', socket => void socket.destroy(withCode('ERR_HTTP_REQUEST_TIMEOUT'))],
]

const open: { server: FakeServer; tunnel: Tunnel }[] = []

afterEach(async () => {
  vi.restoreAllMocks()
  vi.useRealTimers()
  for (const { server, tunnel } of open.splice(0)) {
    await tunnel.close({ graceMs: 0 })
    await server.close()
  }
})

async function serve(target: Server): Promise<FakeSession> {
  return (await serveWith(target)).session
}

async function serveWith(target: Server): Promise<{ session: FakeSession; tunnel: Tunnel }> {
  const server = await FakeServer.listen()
  const tunnel = createTunnel({ url: server.url, token: 'a.b.c', target, connections: 1 })
  open.push({ server, tunnel })
  return { session: await server.serve(), tunnel }
}

describe('a node:http server that never listens', () => {
  it('serves exchanges over connections that it may keep', async () => {
    const sockets = new Set<unknown>()
    const target = createServer((request, response) => {
      sockets.add(request.socket)
      response.setHeader('x-peer', request.socket.remoteAddress ?? '')
      response.end(`${request.method} ${request.url} ${request.headers.host} ${request.headers['x-forwarded-for']}`)
    })
    const session = await serve(target)
    for (let i = 0; i < 3; i++) {
      const { status, headers, text } = await session.exchange({ path: `/${i}` }).answer()
      expect(status).toBe(200)
      expect(text).toBe(`GET /${i} prod.tunnels.test 192.0.2.1`)
      expect(headers[headers.indexOf('x-peer') + 1]).toBe('127.0.0.1')
    }
    expect(sockets.size).toBe(1)
    expect(target.listening).toBe(false)
  })

  it('may answer with a head as large as one from a URL', async () => {
    const fields = Array.from({ length: 120 }, (_, n) => [`x-${n}`, 'x'.repeat(200)] as const)
    const target = createServer((_request, response) => response.setHeaders(new Map(fields)).end())
    const session = await serve(target)
    const { status, headers } = await session.exchange({ path: '/' }).answer()
    expect(status).toBe(200)
    expect(headers.filter(text => text === 'x'.repeat(200))).toHaveLength(120)
  })

  it.each([
    ['as its answers say', () => {}],
    ['if its answers do not say', (response: ServerResponse) => void response.setHeader('connection', 'keep-alive')],
  ])('receives nothing on a connection that it is about to close, %s', async (_, prepare) => {
    const sockets = new Set<unknown>()
    const target = createServer({ keepAliveTimeout: 1_000 }, (request, response) => {
      sockets.add(request.socket)
      prepare(response)
      response.end()
    })
    const session = await serve(target)
    for (let i = 0; i < 3; i++) expect((await session.exchange({ path: '/' }).answer()).status).toBe(200)
    expect(sockets.size).toBe(3)
  })

  it('cannot send our own error codes', async () => {
    const target = createServer((_, response) => {
      response.writeHead(503, { 'sallyport-error': 'runtime-offline', 'x-kept': '1' }).end()
    })
    const { status, headers } = await (await serve(target)).exchange().answer()
    expect(status).toBe(503)
    expect(headers).toContain('x-kept')
    expect(headers).not.toContain('sallyport-error')
  })

  it('nor in early hints', async () => {
    const target = createServer((_, response) => {
      response.writeEarlyHints({ link: '</a>; rel=preload', 'sallyport-error': 'runtime-offline' })
      response.end()
    })
    const hinted = Promise.withResolvers<HeaderList>()
    const responseInformational = (_: number, headers: HeaderList) => hinted.resolve(headers)
    nodeServerTarget(target)
      .handler(EXCHANGE, { ...DEAF, responseInformational })
      .requestEnd([])
    expect(await hinted.promise).toEqual(['link', '</a>; rel=preload'])
  })

  it('serves several at once, and streams in both directions', async () => {
    const target = createServer((request, response) => void request.pipe(response))
    const session = await serve(target)
    const exchanges = Array.from({ length: 8 }, (_, i) => {
      const exchange = session.exchange({ method: 'POST', bodyBytes: -1 })
      for (let chunk = 0; chunk < 20; chunk++) exchange.request.requestData(Buffer.alloc(4096, i + 48))
      exchange.request.requestEnd([])
      return exchange
    })
    const answers = await Promise.all(exchanges.map(exchange => exchange.answer()))
    answers.forEach(({ text }, i) => {
      expect(text).toBe(String(i).repeat(20 * 4096))
    })
  })

  it('upgrades', async () => {
    const target = createServer()
    const webSockets = new WebSocketServer({ server: target })
    webSockets.on('connection', socket => socket.on('message', data => socket.send(`echo ${String(data)}`)))
    const session = await serve(target)
    const exchange = session.exchange({ upgrade: true })
    expect((await exchange.head$.promise).status).toBe(101)
    // "hi", masked with zeros.
    exchange.request.requestData(Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69]))
    expect((await exchange.bytes(9)).toString('latin1')).toBe('\x81\x07echo hi')
  })

  it('may use and transfer the memory of what it has written', async () => {
    const pieces = ['a', 'b', 'c']
    const target = createServer(async (_request, response) => {
      for (const piece of pieces) {
        const made = Buffer.alloc(8 * KIB, piece)
        await new Promise(resolve => response.write(made, resolve))
        made.fill('-')
        structuredClone(made.buffer, { transfer: [made.buffer] })
      }
      response.end()
    })
    const { text } = await (await serve(target)).exchange().answer()
    expect(text).toBe(pieces.map(piece => piece.repeat(8 * KIB)).join(''))
  })

  it('has a large piece copied no faster than its caller reads', async () => {
    const length = 4 * 1024 * KIB
    let written = false
    const target = createServer((_request, response) => {
      response.write(Buffer.alloc(length, 'x'), () => {
        written = true
        response.end()
      })
    })
    const exchange = (await serve(target)).exchange()
    exchange.takes = false
    await exchange.bytes(32 * KIB)
    await new Promise(resolve => setTimeout(resolve, 20))
    expect(written).toBe(false)
    exchange.takes = true
    exchange.request.responseConsumed(exchange.received)
    expect((await exchange.answer()).text).toBe('x'.repeat(length))
    expect(written).toBe(true)
  })

  it('may transfer the memory of what it reads from an upgraded connection, which no other chunk shares', async () => {
    const target = createServer()
    const read = Promise.withResolvers<ArrayBuffer>()
    const webSockets = new WebSocketServer({ server: target })
    webSockets.on('connection', (_, { socket }) => {
      socket.on('data', (chunk: Buffer<ArrayBuffer>) => read.resolve(chunk.buffer))
    })
    const upgraded = Promise.withResolvers<void>()
    const sink = nodeServerTarget(target).handler(
      { ...EXCHANGE, upgrade: true },
      { ...DEAF, responseHead: () => upgraded.resolve() },
    )
    await upgraded.promise
    const slab = Buffer.alloc(64 * KIB)
    // One message, masked with zeros.
    slab.set([0x82, 0xfe, 0x7f, 0xf8])
    sink.requestData(slab.subarray(0, 32 * KIB))
    const buffer = await read.promise
    expect(structuredClone(buffer, { transfer: [buffer] }).byteLength).toBe(32 * KIB)
    expect(slab.length).toBe(64 * KIB)
  })

  it('sees the request aborted when the caller leaves', async () => {
    const closed = Promise.withResolvers<void>()
    const began = Promise.withResolvers<void>()
    const target = createServer((_request, response) => {
      response.write('x')
      began.resolve()
      response.once('close', closed.resolve)
    })
    const session = await serve(target)
    const exchange = session.exchange()
    await exchange.bytes(1)
    exchange.request.requestAbort(new SallyportError('cancelled'))
    await closed.promise
  })

  it.each<[string, (response: ServerResponse) => unknown]>([
    [
      'a caller leaves a response whose pieces wait',
      response => {
        for (let i = 0; i < 500; i++) response.write(Buffer.alloc(10_000))
      },
    ],
    [
      'an empty piece follows the last response of a connection',
      response => response.writeHead(200, { connection: 'close', 'content-length': 0 }).end(Buffer.alloc(0)),
    ],
  ])('P1 throws nothing when %s', async (_, answer) => {
    const closed = Promise.withResolvers<void>()
    const thrown = vi.fn()
    process.prependListener('uncaughtException', thrown)
    const target = createServer((_request, response) => {
      response.once('close', closed.resolve)
      answer(response)
    })
    const session = await serve(target)
    const exchange = session.exchange()
    await Promise.race([exchange.bytes(1), closed.promise])
    exchange.request.requestAbort(new SallyportError('cancelled'))
    await closed.promise
    await turn()
    process.off('uncaughtException', thrown)
    expect(thrown).not.toHaveBeenCalled()
  })

  it('P1 throws nothing, whatever it writes and whenever callers leave', async () => {
    const thrown = vi.fn()
    process.prependListener('uncaughtException', thrown)
    const responses = new Set<ServerResponse>()
    const target = createServer((request, response) => {
      responses.add(response)
      response.once('close', () => responses.delete(response)).on('error', () => {})
      request.on('error', () => {}).resume()
      const { pieces, bytes, end, close } = JSON.parse(decodeURIComponent(request.url!.slice(1))) as Writes
      if (close) response.setHeader('connection', 'close')
      const chunks = Array.from({ length: pieces }, () => Buffer.alloc(bytes))
      if (end === 'piped') Readable.from(chunks).pipe(response)
      else for (const chunk of chunks) response.write(chunk)
      if (end === 'with an empty piece') response.end(Buffer.alloc(0))
      else if (end === 'alone') response.end()
      else if (end === 'destroyed') response.destroy()
      else if (end === 'later') setImmediate(() => response.end(Buffer.alloc(bytes)))
    })
    const session = await serve(target)
    const random = new Random(String(firstSeed()))
    for (let round = 0; round < 30; round++) {
      await Promise.all(
        Array.from({ length: 10 }, async () => {
          const writes: Writes = {
            pieces: random.pick([0, 1, 2, 20, 300]),
            bytes: random.pick([0, 1, 1000, 10_000]),
            end: random.pick(ENDS),
            close: random.oneIn(3),
          }
          const turns = random.int(12)
          const exchange = session.exchange({ path: `/${encodeURIComponent(JSON.stringify(writes))}` })
          exchange.head$.promise.catch(() => {})
          exchange.body$.promise.catch(() => {})
          exchange.takes = random.oneIn(2)
          for (let i = 0; i < turns; i++) await turn()
          exchange.request.requestAbort(new SallyportError('cancelled'))
        }),
      )
    }
    await eventually(() => expect(responses.size).toBe(0))
    process.off('uncaughtException', thrown)
    expect(thrown).not.toHaveBeenCalled()
  })

  it('sees a response as finished after which its connection ends', async () => {
    const seen: string[] = []
    const target = createServer((request, response) => {
      for (const name of ['finish', 'close']) response.once(name, () => seen.push(name))
      request.once('aborted', () => seen.push('aborted'))
      response.setHeader('connection', 'close').end('bye')
    })
    const session = await serve(target)
    expect(await session.exchange().answer()).toMatchObject({ status: 200, text: 'bye' })
    await eventually(() => expect(seen).toEqual(['finish', 'close']))
  })

  it('may close a connection as soon as it is idle, however slowly its last answer is read', async () => {
    const length = 160 * KIB
    const closed = Promise.withResolvers<void>()
    const target = createServer(({ socket }, response) => {
      socket.once('close', closed.resolve)
      response.once('finish', () => socket.destroy()).end('x'.repeat(length))
    })
    const exchange = (await serve(target)).exchange()
    exchange.takes = false
    await closed.promise
    await turn()
    exchange.takes = true
    exchange.request.responseConsumed(exchange.received)
    expect(await exchange.answer()).toMatchObject({ status: 200, text: 'x'.repeat(length) })
  })

  it('that breaks off midway is cut', async () => {
    const target = createServer((_request, response) => {
      response.write('half')
      setImmediate(() => response.destroy())
    })
    const session = await serve(target)
    await expect(session.exchange().answer()).rejects.toMatchObject({ reason: 'upstream-broken' })
  })

  it.each([
    ['a method that it does not know', 400, { method: 'FOO' }],
    ['a head over its limit', 431, { headers: ['x-long', 'x'.repeat(20 * KIB)] }],
  ])('answers by itself to %s', async (_, expected, request) => {
    const session = await serve(createServer((_request, response) => response.end()))
    expect(await session.exchange(request).answer()).toMatchObject({ status: expected, text: '' })
  })

  it('that destroys the connection behind an answer without a length has answered', async () => {
    const target = createServer().on('upgrade', (_, socket) => {
      socket.write('HTTP/1.1 401 Unauthorized\r\n\r\nno')
      socket.destroy()
    })
    const answer = await (await serve(target)).exchange({ upgrade: true }).answer()
    expect(answer).toMatchObject({ status: 401, text: 'no' })
  })

  it.each<[string, (socket: Duplex) => void]>([
    ['of which nobody could read the end', socket => void socket.write('x'.repeat(200 * KIB), ignore)],
    ...BREAKS,
    [
      'since its listener threw',
      () => {
        throw new Error('thrown')
      },
    ],
  ])('that destroys the connection behind an answer without a length, %s, is cut', async (_, end) => {
    const target = createServer().on('upgrade', (_request, socket) => {
      socket.write('HTTP/1.1 401 Unauthorized\r\n\r\nno')
      end(socket)
      socket.destroy()
    })
    const session = await serve(target)
    await expect(session.exchange({ upgrade: true }).answer()).rejects.toMatchObject({ reason: 'upstream-broken' })
  })

  it.each(BREAKS)('and so is the answer of a response that it breaks off %s', async (_, end) => {
    const target = createServer((request, response) => {
      response.useChunkedEncodingByDefault = false
      response.setHeader('connection', 'close')
      response.write('half')
      setImmediate(() => end(request.socket))
    })
    const session = await serve(target)
    await expect(session.exchange().answer()).rejects.toMatchObject({ reason: 'upstream-broken' })
  })

  it('that hangs up before an answer becomes a 502', async () => {
    const target = createServer(request => void request.socket.destroy())
    const session = await serve(target)
    expect((await session.exchange().answer()).status).toBe(502)
  })

  it.each<[string, number, (request: IncomingMessage, response: ServerResponse) => unknown]>([
    ['hangs up', 502, request => request.socket.destroy()],
    ['closes after its answer', 413, (_, response) => response.writeHead(413, { connection: 'close' }).end()],
  ])('B1: that %s before it has read the request holds nothing of it', async (_, expected, answer) => {
    const { session, tunnel } = await serveWith(createServer(answer))
    for (const bytes of [1_000, 20_000, 60_000]) {
      const exchange = session.exchange({ method: 'POST', bodyBytes: bytes })
      exchange.request.requestData(Buffer.alloc(bytes))
      exchange.request.requestEnd([])
      expect((await exchange.answer()).status).toBe(expected)
    }
    await eventually(() => expect(tunnel.stats().sessions[0]!.bufferedBytes).toBe(0))
  })

  it.each<[string, (request: IncomingMessage, response: ServerResponse) => unknown]>([
    ['socket.setTimeout(0)', ({ socket }) => socket.setTimeout(0)],
    ['socket.setTimeout', ({ socket }) => socket.setTimeout(60_000, () => {})],
    ['socket.setNoDelay', ({ socket }) => socket.setNoDelay(true)],
    ['socket.setKeepAlive', ({ socket }) => socket.setKeepAlive(true, 1000)],
    ['socket.ref and unref', ({ socket }) => socket.unref().ref()],
    ['socket.address', ({ socket }) => socket.address()],
    ['request.setTimeout', request => request.setTimeout(60_000, () => {})],
    ['response.setTimeout', (_, response) => response.setTimeout(60_000, () => {})],
    ['socket.destroySoon', ({ socket }, response) => response.once('finish', () => socket.destroySoon())],
  ])('may call %s, as event streams do', async (_, call) => {
    const session = await serve(
      createServer((request, response) => {
        call(request, response)
        response.end('well')
      }),
    )
    for (let i = 0; i < 2; i++) expect(await session.exchange().answer()).toMatchObject({ status: 200, text: 'well' })
  })

  it('may take as long as it likes before it reads a request and answers', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const asked = Promise.withResolvers<() => void>()
    const { handler } = nodeServerTarget(
      createServer((request, response) => asked.resolve(() => void request.pipe(response))),
    )
    const answered = Promise.withResolvers<ResponseHead>()
    const response = { ...DEAF, responseHead: answered.resolve, responseAbort: answered.reject }
    const sink = handler({ ...EXCHANGE, method: 'POST', bodyBytes: 1_000_000 }, response)
    for (let i = 0; i < 10; i++) sink.requestData(Buffer.alloc(100_000))
    sink.requestEnd([])
    const answer = await asked.promise
    const now = vi.spyOn(performance, 'now')
    for (let begun = performance.now(), ms = 0; ms < 300_000; ms += 5_000) {
      now.mockReturnValue(begun + ms)
      vi.advanceTimersByTime(5_000)
      await turn()
    }
    answer()
    expect(await answered.promise).toMatchObject({ status: 200 })
  })

  it('gets its timeout event when nothing moves', async () => {
    const session = await serve(
      createServer((_request, response) => void response.setTimeout(50, () => response.end('too late'))),
    )
    expect(await session.exchange().answer()).toMatchObject({ status: 200, text: 'too late' })
  })

  it('hangs up after its own timeout', async () => {
    const target = createServer(() => {})
    target.setTimeout(50)
    const session = await serve(target)
    expect((await session.exchange().answer()).status).toBe(502)
  })
})
