/**
 * What passes through the router service, on raw sockets: bodies byte for byte, streaming step by step, ends and
 * aborts.
 */
import { createHash, createHmac, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import {
  createServer as createHttp,
  request as httpRequest,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { gzipSync } from 'node:zlib'
import { afterEach, describe, expect, it } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import type { ExchangeRecord } from '../../protocol/exchange.ts'
import { type Route, type RouterService, type RouterServiceOptions, serveRouter } from '../../router/index.ts'
import { unhurried } from '../support/busy.ts'
import { get, RawUpstream, rawCall } from './support.ts'

const stops: (() => Promise<unknown> | unknown)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop()
})

async function upstream(onData?: (socket: Socket, text: string, index: number) => void): Promise<RawUpstream> {
  const started = await RawUpstream.start(onData)
  stops.push(() => started.stop())
  return started
}

async function httpUpstream(handle: (request: IncomingMessage, response: ServerResponse) => void): Promise<string> {
  const server = createHttp(handle).listen(0, '127.0.0.1')
  await once(server, 'listening')
  stops.push(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

async function service(
  target: string,
  more: Partial<Route> = {},
  options: Partial<RouterServiceOptions> = {},
): Promise<{
  port: number
  service: RouterService
  records: ExchangeRecord[]
  recorded: () => Promise<ExchangeRecord>
}> {
  const records: ExchangeRecord[] = []
  const waiting: ((record: ExchangeRecord) => void)[] = []
  const onExchange = (record: ExchangeRecord) => {
    records.push(record)
    waiting.shift()?.(record)
  }
  const routes: Route[] = [{ name: 'all', match: {}, target, ...more }]
  const started = await serveRouter({ port: 0, onExchange, ...options, routes: { routes } })
  stops.push(() => started.close({ graceMs: 0 }))
  const recorded = () => new Promise<ExchangeRecord>(resolve => waiting.push(resolve))
  return { port: started.address.port, service: started, records, recorded }
}

const SECRET = "It's a Secret to Everybody"
const sign = (body: Uint8Array) => `sha256=${createHmac('sha256', SECRET).update(body).digest('hex')}`

/** An event source: 200 `success` if the signature over the raw body is valid, otherwise 400. */
function eventSource(request: IncomingMessage, response: ServerResponse): void {
  const hmac = createHmac('sha256', SECRET)
  const hash = createHash('sha256')
  request.on('data', chunk => {
    hmac.update(chunk)
    hash.update(chunk)
  })
  request.on('end', () => {
    const isRight = request.headers['x-hub-signature-256'] === `sha256=${hmac.digest('hex')}`
    response.writeHead(isRight ? 200 : 400, { 'x-body-hash': hash.digest('hex') })
    response.end(isRight ? 'success' : 'bad signature')
  })
}

/** Sends a body, with a length or chunked, and returns the answer. */
async function send(port: number, body: Buffer, headers: Record<string, string>, chunked = false) {
  const outgoing = httpRequest({
    port,
    host: '127.0.0.1',
    path: '/webhooks/demo/push',
    method: 'POST',
    headers,
    agent: false,
  })
  if (chunked) {
    for (let at = 0; at < body.length; at += 7) outgoing.write(body.subarray(at, at + 7))
    outgoing.end()
  } else {
    outgoing.setHeader('content-length', body.length)
    outgoing.end(body)
  }
  const [response] = (await once(outgoing, 'response')) as [IncomingMessage]
  let text = ''
  for await (const chunk of response) text += chunk
  return { status: response.statusCode, headers: response.headers, text }
}

describe('webhooks arrive byte for byte', () => {
  it("GitHub's published vector", async () => {
    const { port } = await service(await httpUpstream(eventSource))
    const body = Buffer.from('Hello, World!')
    const signature = 'sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17'
    expect(sign(body)).toBe(signature)
    expect(await send(port, body, { 'X-Hub-Signature-256': signature })).toMatchObject({ status: 200, text: 'success' })
    const forged = await send(port, Buffer.from('Hello, World?'), { 'X-Hub-Signature-256': signature })
    expect(forged).toMatchObject({ status: 400, text: 'bad signature' })
  })

  const bodies: [string, Buffer, Record<string, string>][] = [
    ['empty', Buffer.alloc(0), {}],
    ['gzip', gzipSync('{"a": 1}'), { 'content-encoding': 'gzip', 'content-type': 'application/json' }],
    ['invalid UTF-8', Buffer.from([0xff, 0xfe, 0xc3, 0x28, 0x00, 0x0a, 0x0d]), { 'content-type': 'application/json' }],
    ['JSON with odd spaces', Buffer.from('{ "a" :1.0,\r\n"a":\t1e0 }\n'), { 'content-type': 'application/json' }],
    ['25 MiB', randomBytes(25 * 1024 * 1024), {}],
  ]
  it.each(bodies)('%s, with a length and chunked', async (_, body, headers) => {
    const { port } = await service(await httpUpstream(eventSource), { limits: { bodyBytes: 26_214_400 } })
    const signed = { ...headers, 'x-hub-signature-256': sign(body) }
    const sent = createHash('sha256').update(body).digest('hex')
    const chunkedToo = body.length < 1024 ? [false, true] : [false]
    for (const chunked of chunkedToo) {
      const answer = await send(port, body, signed, chunked)
      expect(answer).toMatchObject({ status: 200, text: 'success' })
      expect(answer.headers['x-body-hash']).toBe(sent)
    }
  })

  it('header names in order, values with their case, duplicates and latin1', async () => {
    const up = await upstream()
    const { port } = await service(up.url)
    const fields = ['X-GitHub-Event: Push', 'x-b: \xe9\xff', 'X-Gitlab-Token: a', 'x-b: 2', 'traceparent: 00-ab-cd-01']
    await get(port, '/webhooks/demo/push', ...fields)
    const seen = up.received[0]!.split('\r\n').slice(2, 7)
    expect(seen).toEqual(fields.map(field => field.replace(/^[^:]+/, name => name.toLowerCase())))
  })

  it('a body over the limit gets 413: at once if its length is announced, otherwise when it exceeds the limit', async () => {
    const up = await upstream()
    const { port, recorded } = await service(up.url, { limits: { bodyBytes: 10 } })
    const first = recorded()
    const announced = await rawCall(
      port,
      `POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 11\r\n\r\n`,
    )
    expect(announced).toMatch(/^HTTP\/1\.1 413 [\s\S]*sallyport-error: body-too-large\r\n/)
    expect(await first).toMatchObject({ code: 'body-too-large', bytesIn: 0 })
    expect(up.received).toEqual([])
    const chunks = `POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n6\r\n123456\r\n6\r\n123456\r\n0\r\n\r\n`
    expect(await rawCall(port, chunks)).toMatch(/^HTTP\/1\.1 413 /)
    await up.until(() => up.sockets.every(socket => socket.destroyed))
  })
})

describe('streams', () => {
  it('each chunk goes out as it arrives: the next is sent only when the caller has the last', async () => {
    let next = (_: string) => {}
    const target = await httpUpstream((_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.flushHeaders()
      next = text => response.write(text)
    })
    const { port } = await service(target)
    const outgoing = httpRequest({ port, host: '127.0.0.1', agent: false }).end()
    const [response] = (await once(outgoing, 'response')) as [IncomingMessage]
    for (const text of ['data: 1\n\n', ': keep-alive\n\n', 'data: 2\n\n']) {
      next(text)
      const [chunk] = await once(response, 'data')
      expect(String(chunk)).toBe(text)
    }
    outgoing.destroy()
  })

  it('a request body, too: the caller sends the next only when the upstream has the last', async () => {
    const up = await upstream(socket => socket)
    const { port } = await service(up.url)
    const socket = connect(port, '127.0.0.1')
    socket.write('POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n')
    for (const text of ['one', 'two', 'three']) {
      socket.write(`${text.length}\r\n${text}\r\n`)
      await up.until(() => up.received[0]?.includes(text) === true)
    }
    socket.destroy()
  })

  it('a receiver that stops reading stops the sender, in both directions, and what waits is bounded', async () => {
    /** Writes until nothing more goes out; returns how much the other side received. */
    const fill = async (socket: Socket): Promise<number> => {
      const chunk = Buffer.alloc(64 * 1024)
      let quiet = 0
      let taken = -1
      socket.on('error', () => {})
      while (quiet < 20) {
        while (socket.writableLength < 1024 * 1024) socket.write(chunk)
        await new Promise(resolve => setTimeout(resolve, 5))
        const now = socket.bytesWritten - socket.writableLength
        quiet = now === taken ? quiet + 1 : 0
        taken = now
      }
      return taken
    }
    let down = Promise.resolve(0)
    const up = await upstream((socket, text) => {
      if (text.startsWith('POST')) {
        socket.pause()
      } else if (text.endsWith('\r\n\r\n')) {
        socket.write('HTTP/1.1 200 OK\r\n\r\n')
        down = fill(socket)
      }
    })
    const { port } = await service(up.url)
    const reader = connect(port, '127.0.0.1')
    reader.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n')
    await up.until(() => up.received[0] !== undefined && up.received[0] !== '')
    const sender = connect(port, '127.0.0.1')
    sender.write('POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000000\r\n\r\n')
    const [fromUpstream, fromCaller] = await Promise.all([down, fill(sender)])
    // Most of it is in the kernel's own buffers, on four sockets.
    expect(fromUpstream).toBeLessThan(24 * 1024 * 1024)
    expect(fromCaller).toBeLessThan(24 * 1024 * 1024)
    reader.destroy()
    sender.destroy()
  })

  it('the head may be late while the request is still in progress', async () => {
    const up = await upstream((socket, text) => {
      if (text.endsWith('0\r\n\r\n')) socket.write('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n')
    })
    const headMs = unhurried(300)
    const { port } = await service(up.url, { timeouts: { headMs } })
    const socket = connect(port, '127.0.0.1')
    let answer = ''
    socket.on('data', chunk => {
      answer += chunk
    })
    socket.write('POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n')
    for (let i = 0; i < 4; i++) {
      // Longer than the head's deadline.
      await new Promise(resolve => setTimeout(resolve, headMs / 2))
      socket.write('1\r\nx\r\n')
    }
    socket.write('0\r\n\r\n')
    await once(socket, 'close')
    expect(answer).toMatch(/^HTTP\/1\.1 200 /)
  })

  it('a head that never arrives becomes 504, and one that arrived cuts no body later', async () => {
    const silent = await upstream(() => {})
    const late = await service(silent.url, { timeouts: { headMs: 30 } })
    const answer = await get(late.port, '/')
    expect(answer).toMatch(/^HTTP\/1\.1 504 [\s\S]*sallyport-error: upstream-timeout\r\n/)
    await silent.until(() => silent.sockets[0]?.destroyed === true)

    const headMs = unhurried(300)
    const slow = await upstream(socket => {
      socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na')
      setTimeout(() => socket.write('b'), 2 * headMs)
    })
    const { port } = await service(slow.url, { timeouts: { headMs } })
    expect(await get(port, '/')).toMatch(/\r\n\r\nab$/)
  })

  it('informational responses, trailers, HEAD, 204 and 304 pass', async () => {
    const answers: Record<string, string> = {
      '/hints': 'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n',
      '/trailers': 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-sum: 1\r\n\r\n',
      '/304': 'HTTP/1.1 304 Not Modified\r\netag: "a"\r\ncontent-length: 9\r\n\r\n',
      '/204': 'HTTP/1.1 204 No Content\r\n\r\n',
      '/head': 'HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n',
    }
    const up = await upstream((socket, text) =>
      socket.write(answers[text.trimEnd().split('\r\n\r\n').at(-1)!.split(' ')[1]!]!),
    )
    const { port } = await service(up.url)
    expect(await get(port, '/hints')).toMatch(/^HTTP\/1\.1 103 [^\r]*\r\nlink: <\/a>\r\n\r\nHTTP\/1\.1 200 /)
    expect(await get(port, '/trailers')).toMatch(/1\r\na\r\n0\r\nx-sum: 1\r\n\r\n$/)
    expect(await get(port, '/304')).toMatch(/^HTTP\/1\.1 304 [\s\S]*content-length: 9\r\n[\s\S]*\r\n\r\n$/)
    expect(await get(port, '/204')).toMatch(/^HTTP\/1\.1 204 /)
    const head = await rawCall(port, 'HEAD /head HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n')
    expect(head).toMatch(/^HTTP\/1\.1 200 [\s\S]*content-length: 99\r\n[\s\S]*\r\n\r\n$/)
  })

  it.each([
    ['an event stream', {}],
    ['a body that is made slowly', { 'content-length': 99 }],
  ])(
    'HEAD for %s holds up no other exchange, although Node answers nothing else on its connection',
    async (_name, fields) => {
      const target = await httpUpstream((request, response) => {
        if (request.method === 'HEAD') response.writeHead(200, fields).flushHeaders()
        else response.end('ok')
      })
      const { port } = await service(target)
      expect(await rawCall(port, 'HEAD / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n')).toMatch(/ 200 /)
      expect(await get(port, '/')).toMatch(/ 200 [\s\S]*ok/)
    },
  )
})

describe('ends', () => {
  it('an upstream that breaks midway: the caller sees a cut, never a clean end', async () => {
    const up = await upstream(socket => {
      socket.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n', () =>
        socket.resetAndDestroy(),
      )
    })
    const { port, recorded } = await service(up.url)
    const record = recorded()
    const answer = await get(port, '/')
    expect(answer).toMatch(/^HTTP\/1\.1 200 /)
    expect(answer).not.toMatch(/\r\n0\r\n\r\n$/)
    expect(await record).toMatchObject({ status: 200, code: 'upstream-broken', cut: true, route: 'all' })
  })

  it('a caller that leaves: the upstream request is aborted', async () => {
    const up = await upstream(socket => socket.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n'))
    const { port, recorded, service: router } = await service(up.url)
    const record = recorded()
    const socket = connect(port, '127.0.0.1')
    socket.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n')
    await once(socket, 'data')
    socket.resetAndDestroy()
    await up.until(() => up.sockets[0]?.destroyed === true)
    expect(await record).toMatchObject({ code: 'cancelled', cut: false })
    expect(router.stats()).toMatchObject({ active: 0, upstreams: { connections: 0 } })
  })

  it('a caller that leaves while we are still connecting leaves nothing behind', async () => {
    const silent = await upstream(() => {})
    const { port, recorded, service: router } = await service(silent.url.replace('http:', 'https:'))
    const record = recorded()
    const socket = connect(port, '127.0.0.1')
    socket.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n')
    await silent.until(() => silent.received.length === 1)
    socket.resetAndDestroy()
    expect(await record).toMatchObject({ status: 0, code: 'cancelled' })
    expect(router.stats()).toMatchObject({ active: 0, upstreams: { connections: 0 } })
    await silent.until(() => silent.sockets[0]?.destroyed === true)
  })

  it('a connection that is not established in time becomes 504', async () => {
    const silent = await upstream(() => {})
    const target = silent.url.replace('http:', 'https:')
    const { port } = await service(target, { timeouts: { connectMs: 40 } })
    expect(await get(port, '/')).toMatch(/^HTTP\/1\.1 504 [\s\S]*sallyport-error: upstream-timeout\r\n/)
    await silent.until(() => silent.sockets[0]?.destroyed === true)
  })

  it('an answer before the end of the request reaches the caller, and the rest is discarded', async () => {
    const up = await upstream((socket, text) => {
      if (text.endsWith('first')) socket.write('HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nno')
    })
    const { port } = await service(up.url)
    const socket = connect(port, '127.0.0.1')
    socket.write('POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\nfirst')
    const [answer] = await once(socket, 'data')
    expect(String(answer)).toMatch(/^HTTP\/1\.1 401 [\s\S]*\r\n\r\nno$/)
    socket.destroy()
  })

  it('a request whose head is refused is recorded, too', async () => {
    const { port, records } = await service('http://127.0.0.1:1')
    expect(await get(port, '/', `cookie: ${'x'.repeat(50_000)}`)).toMatch(/^HTTP\/1\.1 431 /)
    expect(records).toMatchObject([{ status: 431, code: 'head-too-large', caller: '127.0.0.1' }])
  })

  it('an invalid upstream response becomes 502, and its connection is not used again', async () => {
    const bad = [
      'HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab',
      'HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n',
      'HTTP/1.1 200 OK\r\nx: a\rb\r\ncontent-length: 0\r\n\r\n',
      'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n',
      'HTTP/1.1 700 What\r\ncontent-length: 0\r\n\r\n',
      'hello\r\n\r\n',
    ]
    let i = 0
    const up = await upstream(socket => socket.write(bad[i++]!))
    const { port } = await service(up.url)
    for (const answer of bad) {
      const seen = await get(port, '/')
      expect(seen, answer).toMatch(/^HTTP\/1\.1 502 [\s\S]*sallyport-error: upstream-broken\r\n/)
    }
    expect(up.received).toHaveLength(bad.length)
  })
})

describe('idle connections', () => {
  it('are used again, but not beyond their Keep-Alive time less a second', async () => {
    const up = await upstream(socket => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n'))
    const { port } = await service(up.url)
    for (let i = 0; i < 3; i++) await get(port, '/')
    expect(up.received).toHaveLength(1)
    const short = await upstream(socket =>
      socket.write('HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\ncontent-length: 0\r\n\r\n'),
    )
    const second = await service(short.url)
    for (let i = 0; i < 3; i++) await get(second.port, '/')
    expect(short.received).toHaveLength(3)
  })

  it('over the ceiling are refused as overloaded', async () => {
    const up = await upstream(() => {})
    const { port } = await service(up.url, {}, { maxConnectionsPerTarget: 1 })
    const socket = connect(port, '127.0.0.1')
    socket.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n')
    await up.until(() => up.received[0] !== undefined && up.received[0] !== '')
    expect(await get(port, '/')).toMatch(/^HTTP\/1\.1 503 [\s\S]*sallyport-error: overloaded\r\n[\s\S]*retry-after: /)
    socket.destroy()
  })
})

describe('WebSocket through the router service', () => {
  it('text, binary, subprotocol, close code; several at once', async () => {
    const server = createHttp().listen(0, '127.0.0.1')
    await once(server, 'listening')
    const sockets = new WebSocketServer({ server, handleProtocols: offered => [...offered].at(-1)! })
    sockets.on('connection', ws => {
      ws.on('message', (data, isBinary) => ws.send(data, { binary: isBinary }))
    })
    stops.push(() => {
      server.closeAllConnections()
      server.close()
    })
    const { port, recorded } = await service(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
    const record = recorded()
    const open = async () => {
      const ws = new WebSocket(`ws://127.0.0.1:${port}/app-proxy/ws`, ['a', 'b'])
      await once(ws, 'open')
      return ws
    }
    const [one, two] = await Promise.all([open(), open()])
    expect(one.protocol).toBe('b')
    const big = randomBytes(1024 * 1024)
    one.send(big)
    two.send('text')
    const [[fromTwo], [fromOne, isBinary]] = await Promise.all([once(two, 'message'), once(one, 'message')])
    expect(String(fromTwo)).toBe('text')
    expect(isBinary).toBe(true)
    expect(big.equals(fromOne as Buffer)).toBe(true)
    one.close(4001, 'bye')
    expect((await once(one, 'close'))[0]).toBe(4001)
    expect(await record).toMatchObject({ status: 101, upgrade: true, cut: false })
    two.terminate()
  })

  it('half-closes: after the upstream has ended, bytes of the caller still reach it, and the other way round', async () => {
    const accept = (text: string) => {
      const key = /sec-websocket-key: (.*)\r/i.exec(text)![1]
      const sum = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64')
      return `HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: ${sum}\r\n\r\n`
    }
    const up = await upstream((socket, text, index) => {
      if (text.endsWith('\r\n\r\n')) socket.write(accept(text))
      if (text.endsWith('\r\n\r\n') && index === 0) socket.end('bye')
    })
    up.server.on('connection', socket => {
      socket.removeAllListeners('end')
      socket.on('end', () => socket.end('late'))
    })
    const { port } = await service(up.url)
    const open = async (): Promise<{ socket: Socket; seen: () => string }> => {
      const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
      let seen = ''
      socket.on('data', chunk => {
        seen += chunk
      })
      const key = Buffer.alloc(16).toString('base64')
      const fields = `connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: ${key}`
      socket.write(`GET / HTTP/1.1\r\nhost: a\r\n${fields}\r\n\r\n`)
      await once(socket, 'data')
      return { socket, seen: () => seen }
    }
    const first = await open()
    if (!first.seen().endsWith('bye')) await once(first.socket, 'data')
    if (!first.socket.readableEnded) await once(first.socket, 'end')
    first.socket.end('still there')
    await up.until(() => up.received[0]!.endsWith('still there'))
    const second = await open()
    second.socket.end('done')
    await once(second.socket, 'end')
    expect(second.seen()).toMatch(/late$/)
    expect(up.received[1]).toMatch(/done$/)
  })

  it('that the upstream refuses gets the upstream\u2019s own answer', async () => {
    const up = await upstream(socket => socket.write('HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno'))
    const { port } = await service(up.url)
    const ws = new WebSocket(`ws://127.0.0.1:${port}/`)
    const [, response] = (await once(ws, 'unexpected-response')) as [unknown, IncomingMessage]
    expect(response.statusCode).toBe(403)
    ws.on('error', () => {})
    ws.terminate()
  })
})
