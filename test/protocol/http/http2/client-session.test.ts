import { once } from 'node:events'
import { createServer, type Http2Server, type ServerHttp2Stream } from 'node:http2'
import { type AddressInfo, connect, createServer as createTcp, type Socket } from 'node:net'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import type { HeaderList, ResponseHead, ResponseSink } from '../../../../protocol/exchange.ts'
import type { OutgoingRequest } from '../../../../protocol/http/http1/client-exchange.ts'
import { Http2ClientSession } from '../../../../protocol/http/http2/client-session.ts'
import { Http2Connection } from '../../../../protocol/http/http2/connection.ts'
import type { HttpLimits } from '../../../../protocol/http/limits.ts'
import { END_STREAM, frame, setting, TYPE, uint32 } from '../../../support/http2-frames.ts'
import { Http2Upstream, type UpstreamStream } from '../../../support/http2-upstream.ts'
import { until } from '../../../support/until.ts'

class Response implements ResponseSink {
  heads: ResponseHead[] = []
  informed: [number, HeaderList][] = []
  body = ''
  trailers: HeaderList | undefined
  error: string | undefined
  why: string | undefined
  taken = 0
  #done: (() => void)[] = []
  responseInformational(status: number, headers: HeaderList): void {
    this.informed.push([status, headers])
  }
  responseHead(head: ResponseHead): void {
    this.heads.push(head)
  }
  responseData(chunk: Uint8Array): void {
    this.body += Buffer.from(chunk).toString('latin1')
  }
  responseEnd(trailers: HeaderList): void {
    this.trailers = trailers
    for (const done of this.#done.splice(0)) done()
  }
  responseAbort(error: SallyportError): void {
    this.error = error.reason
    this.why = error.message
    for (const done of this.#done.splice(0)) done()
  }
  requestConsumed(bytes: number): void {
    this.taken += bytes
  }
  over(): Promise<void> {
    if (this.trailers !== undefined || this.error !== undefined) return Promise.resolve()
    return new Promise(resolve => this.#done.push(resolve))
  }
}

type OnStream = (stream: ServerHttp2Stream, headers: Record<string, unknown>) => void

const open: (() => void)[] = []
afterEach(() => {
  for (const close of open.splice(0).reverse()) close()
})

async function startSession(onStream: OnStream, limits?: Partial<HttpLimits>) {
  const server: Http2Server = createServer({ settings: { enableConnectProtocol: true } })
  server.on('stream', (stream, headers) => {
    stream.on('error', () => {})
    onStream(stream as ServerHttp2Stream, headers)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
  await once(socket, 'connect')
  let closed = 0
  let idle = 0
  const { promise: heardSettings, resolve: onSettings } = Promise.withResolvers<void>()
  const session = new Http2ClientSession(socket, {
    limits,
    onSettings,
    onClose: () => closed++,
    onIdle: () => idle++,
  })
  open.push(
    () => server.close(),
    () => session.destroy(),
  )
  await heardSettings
  return { session, counts: () => ({ closed, idle }) }
}

/** Both end with the test. */
async function sessionTo(upstream: Http2Upstream, limits?: Partial<HttpLimits>): Promise<Http2ClientSession> {
  const socket = connect(upstream.port, '127.0.0.1')
  await once(socket, 'connect')
  const { promise: heardSettings, resolve: onSettings } = Promise.withResolvers<void>()
  const session = new Http2ClientSession(socket, { limits, onSettings })
  open.push(
    () => void upstream.stop(),
    () => session.destroy(),
  )
  await heardSettings
  return session
}

const request = (over: Partial<OutgoingRequest> = {}): OutgoingRequest => ({
  method: 'POST',
  authority: 'up.example',
  path: '/pkg.Service/Method',
  headers: ['content-type', 'application/grpc', 'te', 'trailers', 'x', '1', 'x', '2'],
  bodyBytes: -1,
  upgrade: false,
  ...over,
})

function answerEmpty(stream: ServerHttp2Stream): void {
  stream.respond({ ':status': 200 }, { endStream: true })
}

/** Longer than it takes us to look whether an upstream has closed its half, too. */
const PAUSE_MS = 1500

test('a WebSocket whose upstream ends first, goes away and reads nothing for a while gets all that its caller sends', async () => {
  const upstream = await Http2Upstream.start()
  upstream.settings = Buffer.concat([setting('initialWindowSize', 2 ** 20), setting('enableConnect', 1)])
  upstream.onConnection = connection => connection.send(frame(TYPE.window, 0, 0, uint32(2 ** 20)))
  const session = await sessionTo(upstream)
  const response = new Response()
  const sink = session.send(request({ method: 'GET', bodyBytes: 0, upgrade: true }), response)
  await until(() => upstream.streams.length === 1)
  const stream = upstream.streams[0]!
  stream.head(200)
  stream.data('bye', true)
  stream.connection.goaway(0, 1)
  stream.connection.socket.pause()
  await response.over()
  sink.requestData(Buffer.alloc(500_000))
  sink.requestEnd([])
  await new Promise(resolve => setTimeout(resolve, PAUSE_MS))
  stream.connection.socket.resume()
  await until(() => stream.ended || stream.connection.socket.destroyed)
  expect(stream).toMatchObject({ received: 500_000, ended: true })
})

describe('h2c upstream', () => {
  test('a bidirectional call with trailers in both directions', async () => {
    let trailers: unknown
    const { session, counts } = await startSession((stream, headers) => {
      expect(headers).toMatchObject({ ':method': 'POST', ':authority': 'up.example', te: 'trailers', x: '1, 2' })
      stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true })
      stream.on('wantTrailers', () => stream.sendTrailers({ 'client-ip': '1', 'x-real-ip': '2', 'grpc-status': '0' }))
      stream.on('trailers', received => {
        trailers = received
      })
      stream.on('data', chunk => stream.write(chunk))
      stream.on('end', () => stream.end())
    })
    const response = new Response()
    const sink = session.send(request(), response)
    await until(() => response.heads.length === 1)
    expect(response.heads[0]).toMatchObject({ status: 200, bodyBytes: -1 })
    for (const word of ['one', 'two']) {
      sink.requestData(Buffer.from(word))
      await until(() => response.body.endsWith(word))
    }
    sink.requestEnd(['client-ip', '1', 'script_name', '/x', 'x-sum', '9'])
    await response.over()
    expect(response).toMatchObject({ trailers: ['client-ip', '1', 'grpc-status', '0'], taken: 6, error: undefined })
    expect(Object.entries(trailers as object)).toEqual([['x-sum', '9']])
    await until(() => counts().idle === 1)
    expect([session.streams, session.available]).toEqual([0, true])
  })

  test.each(['HEAD', 'POST'])(
    '%s: an answer in place of the 100 that the caller waits for leaves no stream',
    async method => {
      const { session, counts } = await startSession(answerEmpty)
      const response = new Response()
      session.send(request({ method, headers: ['expect', '100-continue'] }), response)
      await response.over()
      expect(response).toMatchObject({ heads: [{ status: 200 }], error: undefined })
      await until(() => counts().idle === 1)
      expect(session.streams).toBe(0)
    },
  )

  test('trailers only: a head that ends the stream', async () => {
    const { session } = await startSession(stream =>
      stream.respond({ ':status': 200, 'grpc-status': '5' }, { endStream: true }),
    )
    const response = new Response()
    session.send(request(), response)
    await response.over()
    expect(response).toMatchObject({ trailers: [], heads: [{ status: 200, bodyBytes: 0 }] })
  })

  test('informational responses, a known length, HEAD', async () => {
    const { session } = await startSession((stream, headers) => {
      stream.additionalHeaders({ ':status': 103, link: '</a>' })
      stream.respond({ ':status': 200, 'content-length': '2' }, { endStream: headers[':method'] === 'HEAD' })
      if (headers[':method'] !== 'HEAD') stream.end('ok')
    })
    const response = new Response()
    session.send(request({ method: 'GET', bodyBytes: 0, headers: [] }), response)
    await response.over()
    expect(response).toMatchObject({ informed: [[103, ['link', '</a>']]], body: 'ok', heads: [{ bodyBytes: 2 }] })
    const head = new Response()
    session.send(request({ method: 'HEAD', bodyBytes: 0, headers: [] }), head)
    await head.over()
    expect(head.heads[0]!.headers.slice(0, 2)).toEqual(['content-length', '2'])
    expect(head).toMatchObject({ heads: [{ bodyBytes: 0 }], trailers: [] })
  })

  test('Expect: the 100 is passed on', async () => {
    const { session } = await startSession(stream => {
      stream.additionalHeaders({ ':status': 100 })
      stream.on('data', () => {})
      stream.on('end', () => stream.respond({ ':status': 204 }, { endStream: true }))
    })
    const response = new Response()
    const sink = session.send(request({ headers: ['expect', '100-continue'] }), response)
    await until(() => response.informed.length === 1)
    sink.requestData(Buffer.from('x'))
    sink.requestEnd([])
    await response.over()
    expect(response).toMatchObject({ informed: [[100, []]], heads: [{ status: 204 }] })
  })

  test('Expect: if the answer begins instead of the 100, a body that comes is sent for the rest of it', async () => {
    const { session } = await startSession(stream => {
      stream.respond({ ':status': 200 })
      stream.pipe(stream)
    })
    const response = new Response()
    const sink = session.send(request({ headers: ['expect', '100-continue'] }), response)
    await until(() => response.heads.length === 1)
    expect(response.informed).toEqual([])
    sink.requestData(Buffer.from('x'))
    sink.requestEnd([])
    await response.over()
    expect(response).toMatchObject({ body: 'x', error: undefined })
  })

  test('Expect: a refusal instead of the 100, and nothing of the body is sent', async () => {
    let received = 0
    const { session } = await startSession(stream => {
      stream.on('data', ({ length }: Buffer) => {
        received += length
      })
      stream.respond({ ':status': 413 })
      stream.end('no')
    })
    const response = new Response()
    const sink = session.send(request({ headers: ['expect', '100-continue'] }), response)
    await response.over()
    sink.requestData(Buffer.from('x'))
    expect([response.informed, response.taken, received]).toEqual([[], 1, 0])
  })

  test('a reset, before the head or midway, is upstream-broken', async () => {
    const { session } = await startSession((stream, headers) => {
      if (headers[':path'] === '/mid') stream.respond({ ':status': 200 })
      stream.close(2)
    })
    for (const path of ['/', '/mid']) {
      const response = new Response()
      session.send(request({ path }), response)
      await response.over()
      expect([response.error, response.trailers]).toEqual(['upstream-broken', undefined])
    }
    expect(session.available).toBe(true)
  })

  test('a lost connection breaks what is in progress', async () => {
    const { session, counts } = await startSession(stream => stream.session?.destroy())
    const response = new Response()
    session.send(request(), response)
    await response.over()
    expect(response.error).toBe('upstream-broken')
    await until(() => counts().closed === 1)
    expect(session.available).toBe(false)
  })

  test('an answer that has arrived is whole, although its upstream has reset the connection and our next write fails', async () => {
    const upstream = await Http2Upstream.start()
    const session = await sessionTo(upstream)
    const response = new Response()
    session.send(request({ bodyBytes: 0 }), response)
    await until(() => upstream.streams.length === 1)
    const stream = upstream.streams[0]!
    const { connection } = stream
    connection.socket.setNoDelay()
    const take = response.responseData.bind(response)
    response.responseData = chunk => {
      if (response.body === '') {
        stream.data('second', true)
        connection.socket.resetAndDestroy()
      }
      take(chunk)
    }
    connection.atOnce(() => {
      stream.head(200)
      stream.data('first ')
      // Our answer to it is the write that fails.
      connection.send(frame(TYPE.ping, 0, 0, Buffer.alloc(8)))
    })
    await response.over()
    expect([response.body, response.error]).toEqual(['first second', undefined])
    expect(session.available).toBe(false)
  })

  test('an aborted request resets its stream', async () => {
    let rst = -1
    const { session } = await startSession(stream => stream.on('close', () => (rst = stream.rstCode)))
    const response = new Response()
    const sink = session.send(request(), response)
    sink.requestData(Buffer.from('x'))
    await until(() => response.taken === 1)
    sink.requestAbort(new SallyportError('cancelled'))
    await until(() => rst === 8)
    expect(response.error).toBeUndefined()
  })

  test('no head in time: upstream-timeout', async () => {
    const { session } = await startSession(() => {})
    const response = new Response()
    session.send(request({ bodyBytes: 0 }), response, { headTimeoutMs: 20 })
    await response.over()
    expect(response.error).toBe('upstream-timeout')
  })

  test('the time for the head begins when the last byte of the request has left', async () => {
    const headTimeoutMs = 50
    let read = 0
    const { session } = await startSession(stream => {
      setTimeout(() => stream.on('data', chunk => (read += chunk.length)), 4 * headTimeoutMs)
    })
    const response = new Response()
    const bodyBytes = 300_000
    const sink = session.send(request({ bodyBytes }), response, { headTimeoutMs })
    sink.requestData(Buffer.alloc(bodyBytes))
    sink.requestEnd([])
    await response.over()
    expect({ error: response.error, read }).toEqual({ error: 'upstream-timeout', read: bodyBytes })
  })

  test('a request that the upstream stops reading: upstream-timeout, and later ones get another session', async () => {
    const { session } = await startSession(() => {}, { stalledMs: 50 })
    const response = new Response()
    const bodyBytes = 300_000
    const since = performance.now()
    const sink = session.send(request({ bodyBytes }), response)
    sink.requestData(Buffer.alloc(bodyBytes))
    sink.requestEnd([])
    await response.over()
    expect(response).toMatchObject({ error: 'upstream-timeout', why: 'the upstream stopped reading' })
    expect(session.available).toBe(false)
    // Other deadlines are later.
    expect(performance.now() - since).toBeLessThan(15_000)
  })

  test('the end of a request needs no window, and its session stays', async () => {
    const upstream = await Http2Upstream.start()
    // SETTINGS_INITIAL_WINDOW_SIZE of 1 MiB for streams. The session has 65,535 bytes.
    upstream.settings = setting('initialWindowSize', 2 ** 20)
    const session = await sessionTo(upstream)
    const quiet = new Response()
    session.send(request(), quiet).requestData(Buffer.alloc(65_535))
    await until(() => upstream.streams[0]?.received === 65_535)
    const answered = new Response()
    session.send(request(), answered).requestEnd([])
    await until(() => upstream.streams[1]?.ended === true)
    upstream.streams[1]!.head(200, {}, true)
    await answered.over()
    expect([answered.error, quiet.error, session.available]).toEqual([undefined, undefined, true])
  })

  test('trailers of a request whose length is known', async () => {
    let trailers: unknown
    const { session } = await startSession(stream => {
      stream.on('trailers', received => {
        trailers = received
      })
      stream.resume().on('end', () => answerEmpty(stream))
    })
    const response = new Response()
    const sink = session.send(request({ bodyBytes: 3 }), response)
    sink.requestData(Buffer.from('abc'))
    sink.requestEnd(['x-sum', '9'])
    await response.over()
    expect(trailers).toMatchObject({ 'x-sum': '9' })
  })

  test('a WebSocket as extended CONNECT', async () => {
    const { session } = await startSession((stream, headers) => {
      expect(headers).toMatchObject({ ':method': 'CONNECT', ':protocol': 'websocket', 'sec-websocket-version': '13' })
      stream.respond({ ':status': 200 })
      stream.on('data', chunk => stream.write(chunk))
      stream.on('end', () => stream.end())
    })
    const first = new Response()
    session.send(request({ method: 'GET', bodyBytes: 0, upgrade: true, headers: [] }), first)
    await until(() => first.heads.length === 1 || first.error !== undefined)
    expect(first).toMatchObject({ error: undefined, heads: [{ status: 101, bodyBytes: 0 }] })
  })

  test.each([
    ['says nothing of them', Buffer.alloc(0)],
    ['does not offer them', setting('enableConnect', 0)],
  ])('an upstream that %s gets no WebSocket', async (_, settings) => {
    const upstream = await Http2Upstream.start()
    upstream.settings = settings
    const session = await sessionTo(upstream)
    const [socket, other] = [new Response(), new Response()]
    session.send(request({ method: 'GET', bodyBytes: 0, upgrade: true }), socket)
    session.send(request({ bodyBytes: 0 }), other)
    await until(() => upstream.streams.length > 0)
    upstream.streams[0]!.head(204, {}, true)
    await other.over()
    expect(upstream.streams.length).toBe(1)
    expect(socket.error).toBe('upstream-broken')
    expect(other).toMatchObject({ error: undefined, heads: [{ status: 204 }] })
  })

  test.each([
    ['read', (stream: ServerHttp2Stream) => stream.resume().on('end', () => answerEmpty(stream))],
    ['not wanted', answerEmpty],
  ])('a request body that is %s counts as consumed in the end', async (_, onStream) => {
    const { session } = await startSession(onStream)
    for (const bytes of [10, 1000, 300_000]) {
      const response = new Response()
      const sink = session.send(request({ bodyBytes: bytes }), response)
      sink.requestData(Buffer.alloc(bytes))
      sink.requestEnd([])
      await response.over()
      await until(() => response.taken === bytes)
    }
  })

  test('back-pressure in both directions', async () => {
    const { session } = await startSession(stream => {
      stream.respond({ ':status': 200 })
      stream.write(Buffer.alloc(8 * 1024 * 1024))
    })
    const response = new Response()
    const sink = session.send(request(), response)
    for (let i = 0; i < 128; i++) sink.requestData(Buffer.alloc(65536))
    await until(() => response.body.length > 60_000)
    for (let turn = 0; turn < 100; turn++) await new Promise(resolve => setImmediate(resolve))
    expect(response.body.length).toBeLessThan(400_000)
    expect(response.taken).toBeLessThan(8 * 1024 * 1024)
    sink.requestAbort(new SallyportError('cancelled'))
  })
})

describe('an answer that breaks the rules', () => {
  const hints = (stream: UpstreamStream, count: number) => {
    for (let i = 0; i < count; i++) stream.headers({ ':status': '103', link: '</a>' })
  }
  test.each<[name: string, limits: Partial<HttpLimits>, say: (stream: UpstreamStream) => void, why: string]>([
    ['one hint too many', { informational: 2 }, stream => hints(stream, 3), 'too many informational'],
    ['a long head', { headBytes: 100 }, stream => stream.head(200, { x: 'y'.repeat(100) }), 'head too large'],
    ['status 600', {}, stream => stream.head(600), 'status "600"'],
    ['status 999', {}, stream => stream.head(999), 'status "999"'],
    ['a length without a body', {}, stream => stream.head(200, { 'content-length': '5' }, true), 'without a body'],
  ])('%s', async (_name, limits, say, why) => {
    const upstream = await Http2Upstream.start()
    const session = await sessionTo(upstream, limits)
    const response = new Response()
    session.send(request(), response)
    await until(() => upstream.streams.length === 1)
    say(upstream.streams[0]!)
    await response.over()
    expect(response.error).toBe('upstream-broken')
    expect(response.why).toContain(why)
  })
})

test.each([
  ['a method', { method: 'G T' }],
  ['a path', { path: 'x' }],
  ['an authority', { authority: 'a b' }],
])('%s that cannot be sent is refused before anything is sent', async (_what, over) => {
  let streams = 0
  const { session } = await startSession(() => streams++)
  const response = new Response()
  session.send(request(over), response)
  await response.over()
  expect(response).toMatchObject({ error: 'bad-request', why: 'request line cannot be sent' })
  expect(streams).toBe(0)
})

describe('pings to an upstream with open streams', () => {
  async function quiet(limits: Partial<HttpLimits>) {
    const upstream = await Http2Upstream.start()
    const session = await sessionTo(upstream, limits)
    const response = new Response()
    session.send(request(), response)
    await until(() => upstream.streams.length === 1)
    upstream.streams[0]!.head(200)
    await until(() => response.heads.length === 1)
    return { session, response, connection: upstream.connections[0]! }
  }

  test('answered: a quiet stream stays', async () => {
    const { session, response, connection } = await quiet({ http2PingMs: 50, stalledMs: 10_000 })
    await until(() => connection.pings > 3)
    expect([response.error, session.available]).toEqual([undefined, true])
  })

  test('unanswered: the end after a long enough silence', async () => {
    const { session, response, connection } = await quiet({ http2PingMs: 50, stalledMs: 200 })
    connection.silent = true
    await response.over()
    expect([response.error, session.available]).toEqual(['upstream-timeout', false])
    await until(() => session.streams === 0)
  })

  test('after a go-away they go on', async () => {
    const { response, connection } = await quiet({ http2PingMs: 50, stalledMs: 10_000 })
    connection.goaway(0, 1)
    await until(() => connection.pings > 3)
    expect(response.error).toBeUndefined()
  })

  test('an upstream that breaks the rules after a go-away does not keep its streams', async () => {
    const { session, response, connection } = await quiet({ http2PingMs: 50, stalledMs: 10_000 })
    connection.goaway(0, 1)
    connection.send(Buffer.concat([frame(TYPE.headers, END_STREAM, 1), frame(TYPE.ping, 0, 0, Buffer.alloc(8))]))
    await response.over()
    expect(response).toMatchObject({ error: 'upstream-broken', why: 'HTTP/2: a frame in a header block' })
    await until(() => session.streams === 0)
  })
})

describe('P1 a response sink that throws', () => {
  test.each(['responseInformational', 'responseHead', 'responseData', 'responseEnd', 'responseAbort'] as const)(
    'in %s: only its exchange ends',
    async step => {
      const { session } = await startSession((stream, headers) => {
        stream.additionalHeaders({ ':status': 103, link: '</a>' })
        stream.respond({ ':status': 200 })
        stream.write('x')
        if (headers[':path'] === '/bad' && step === 'responseAbort')
          setImmediate(() => stream.destroy(new Error('broken')))
        else stream.end('y')
      })
      const bad = new Response()
      let thrown = 0
      bad[step] = () => {
        thrown++
        throw new Error('planned')
      }
      const good = new Response()
      session.send(request({ path: '/bad', bodyBytes: 0 }), bad)
      session.send(request({ path: '/good', bodyBytes: 0 }), good)
      await good.over()
      expect(good).toMatchObject({ body: 'xy', error: undefined })
      await until(() => session.streams === 0)
      expect([thrown, session.available]).toEqual([1, true])
    },
  )
})

test('a session accepts no more exchanges than there are stream ids, and ends with the last of them', async () => {
  const { session } = await startSession(stream => stream.respond({ ':status': 204 }, { endStream: true }))
  const usedUp = vi.spyOn(Http2Connection.prototype, 'isUsedUp', 'get').mockReturnValue(false)
  open.push(() => usedUp.mockRestore())
  const answers = [new Response(), new Response(), new Response()]
  session.send(request({ bodyBytes: 0 }), answers[0]!)
  session.send(request({ bodyBytes: 0 }), answers[1]!)
  expect(session.available).toBe(true)
  usedUp.mockReturnValue(true)
  session.send(request({ bodyBytes: 0 }), answers[2]!)
  expect(session.available).toBe(false)
  for (const answer of answers) {
    await answer.over()
    expect(answer.error).toBe(undefined)
  }
  await until(() => session.streams === 0)
})

test('a session that cannot send a reset accepts no more exchanges, and ends with the last that anybody waits for', async () => {
  const peers: Socket[] = []
  const server = createTcp({ pauseOnConnect: true }, socket => {
    peers.push(socket.on('error', () => {}))
    socket.write(frame(TYPE.settings, 0, 0, setting('initialWindowSize', 2 ** 31 - 1)))
    socket.write(frame(TYPE.window, 0, 0, uint32(2 ** 30)))
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
  await once(socket, 'connect')
  let announced = false
  let closed = 0
  const session = new Http2ClientSession(socket, {
    // Otherwise it ends in the end because nobody answers its pings.
    limits: { http2PingMs: 0, stalledMs: 0 },
    onSettings: () => (announced = true),
    onClose: () => closed++,
  })
  open.push(
    () => server.close(),
    () => peers.forEach(peer => void peer.destroy()),
    () => session.destroy(),
  )
  await until(() => announced)
  const response = new Response()
  const large = session.send(request(), response)
  const small = session.send(request(), new Response())
  // More than the kernel takes for a peer that reads nothing.
  for (let i = 0; i < 32; i++) large.requestData(Buffer.alloc(1024 * 1024))
  for (let taken = -1; taken !== response.taken; ) {
    taken = response.taken
    await new Promise(resolve => setTimeout(resolve, 200))
  }
  // This one waits behind it, and so does its reset.
  small.requestData(Buffer.alloc(10))
  small.requestEnd([])
  expect([session.available, session.streams]).toEqual([true, 2])
  small.requestAbort(new SallyportError('cancelled'))
  await until(() => !session.available)
  expect([session.streams > 0, closed]).toEqual([true, 0])
  large.requestAbort(new SallyportError('cancelled'))
  await until(() => closed === 1)
  expect(session.streams).toBe(0)
})
