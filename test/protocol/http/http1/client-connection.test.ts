import { createHash } from 'node:crypto'
import { connect } from 'node:net'
import { afterEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { ByteCache } from '../../../../protocol/base/byte-cache.ts'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import type { HeaderList, RequestSink, ResponseHead, ResponseSink } from '../../../../protocol/exchange.ts'
import { Http1ClientConnection } from '../../../../protocol/http/http1/client-connection.ts'
import type { OutgoingRequest } from '../../../../protocol/http/http1/client-exchange.ts'
import { type Head, HeadParser } from '../../../../protocol/http/http1/head-parser.ts'
import type { HttpLimits } from '../../../../protocol/http/limits.ts'
import { unhurried } from '../../../support/busy.ts'
import { until } from '../../../support/until.ts'
import { type RawPeer, RawUpstream } from './raw.ts'

class Response implements ResponseSink {
  heads: ResponseHead[] = []
  informed: [number, HeaderList][] = []
  body = ''
  trailers: HeaderList | undefined
  error: string | undefined
  why: string | undefined
  taken = 0
  onConsume: (bytes: number) => void = () => {}
  #done: (() => void)[] = []
  responseInformational(status: number, headers: HeaderList): void {
    this.informed.push([status, headers])
  }
  responseHead(head: ResponseHead): void {
    this.heads.push(head)
  }
  responseData(chunk: Uint8Array): void {
    this.body += Buffer.from(chunk).toString('latin1')
    this.onConsume(chunk.length)
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

const open: { close(): void }[] = []
afterEach(() => {
  for (const upstream of open.splice(0)) upstream.close()
})

async function startConnection(limits?: Partial<HttpLimits>, heads?: ByteCache<Head>) {
  const upstream = await RawUpstream.start()
  open.push(upstream)
  const next = upstream.next()
  const idle: Http1ClientConnection[] = []
  const connection = new Http1ClientConnection(
    connect({ port: upstream.port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true }),
    { limits, heads, onIdle: free => idle.push(free) },
  )
  const peer = await next
  return { upstream, connection, peer, idle }
}

const request = (over: Partial<OutgoingRequest> = {}): OutgoingRequest => ({
  method: 'GET',
  authority: 'up.example',
  path: '/x?y',
  headers: ['x', '1', 'x', '2'],
  bodyBytes: 0,
  upgrade: false,
  ...over,
})

/** More than a kernel takes for a program that does not read, and less than ours keeps to be sent. */
const LATE_BYTES = 600_000

async function turns(count = 20): Promise<void> {
  for (let turn = 0; turn < count; turn++) await new Promise(resolve => setImmediate(resolve))
}

/** Sends a GET, lets the upstream answer with `text`, and returns the outcome. */
async function answered(text: string, over: Partial<OutgoingRequest> = {}, end = false) {
  const { connection, peer, idle } = await startConnection()
  const response = new Response()
  connection.send(request(over), response).requestEnd([])
  await peer.saying('\r\n\r\n')
  if (end) peer.socket.end(Buffer.from(text, 'latin1'))
  else peer.send(text)
  await response.over()
  await turns()
  return { response, connection, peer, idle }
}

/** Sends a body to an upstream that reads nothing yet. All of it has left for the kernel. */
async function readLate() {
  const { connection, peer } = await startConnection()
  peer.socket.pause()
  const response = new Response()
  const sink = connection.send(request({ bodyBytes: LATE_BYTES }), response)
  sink.requestData(Buffer.alloc(LATE_BYTES, 'b'))
  sink.requestEnd([])
  await until(() => response.taken === LATE_BYTES)
  return { connection, peer, response }
}

describe('requests', () => {
  test('head, chunks and trailers as they arrive', async () => {
    const { connection, peer } = await startConnection()
    const response = new Response()
    const sink = connection.send(request({ method: 'FOO', bodyBytes: -1 }), response)
    expect(await peer.saying('\r\n\r\n')).toBe(
      'FOO /x?y HTTP/1.1\r\nhost: up.example\r\nx: 1\r\nx: 2\r\ntransfer-encoding: chunked\r\n\r\n',
    )
    sink.requestData(Buffer.from('abc'))
    await peer.saying('3\r\nabc\r\n')
    await until(() => response.taken === 3)
    sink.requestEnd(['client-ip', '1', 'script_name', '/x', 't', '1'])
    await peer.saying('0\r\nt: 1\r\n\r\n')
  })

  test('content-length matches the body, and keeps its place', async () => {
    const { connection, peer } = await startConnection()
    const headers = ['a', '1', 'content-length', '9', 'b', '2']
    connection.send(request({ method: 'POST', bodyBytes: 2, headers }), new Response()).requestData(Buffer.from('hi'))
    expect(await peer.saying('hi')).toContain('a: 1\r\ncontent-length: 2\r\nb: 2\r\n\r\nhi')
  })

  test('a POST without a body says so; a GET does not', async () => {
    const { connection, peer } = await startConnection()
    connection.send(request({ method: 'POST', headers: [] }), new Response())
    expect(await peer.saying('\r\n\r\n')).toContain('content-length: 0')
    const other = await startConnection()
    other.connection.send(request({ headers: [] }), new Response())
    expect(await other.peer.saying('\r\n\r\n')).not.toContain('content-length')
  })

  test.each([
    ['method', { method: 'A B' }],
    ['path', { path: '/a b' }],
    ['path with CRLF', { path: '/\r\nx' }],
    ['authority', { authority: 'a\r\nb' }],
    ['name', { headers: ['a\n', 'b'] }],
    ['value', { headers: ['a', 'b\r\nc: d'] }],
  ])('a bad %s is never sent', async (_name, over) => {
    const { connection, peer } = await startConnection()
    const response = new Response()
    connection.send(request(over), response)
    await response.over()
    expect(response.error).toBeDefined()
    expect(await peer.end()).toBe('')
  })

  test.each([
    ['longer', 'four'],
    ['shorter', 'tw'],
  ])('a body that is %s than announced ends the connection', async (how, body) => {
    const { connection, peer } = await startConnection()
    const response = new Response()
    const sink = connection.send(request({ method: 'POST', bodyBytes: 3 }), response)
    sink.requestData(Buffer.from(body))
    sink.requestEnd([])
    expect(response).toMatchObject({ error: 'bad-request', why: `body ${how} than announced` })
    expect([connection.reusable, connection.idle]).toEqual([false, false])
    expect(await peer.end()).not.toContain('four')
  })

  test('trailers that cannot be sent end the connection', async () => {
    const { connection, peer } = await startConnection()
    const response = new Response()
    const sink = connection.send(request({ method: 'POST', bodyBytes: -1 }), response)
    sink.requestEnd(['t', 'a\r\nb: c'])
    expect([response.error, connection.reusable]).toEqual(['upstream-broken', false])
    expect(await peer.end()).not.toContain('b: c')
  })

  test('one at a time: another one is misuse, and does no harm', async () => {
    const { connection, peer } = await startConnection()
    const response = new Response()
    connection.send(request(), response).requestEnd([])
    const busy = new TypeError('the connection has an exchange in progress')
    expect(() => connection.send(request(), new Response())).toThrow(busy)
    await peer.saying('\r\n\r\n')
    peer.send('HTTP/1.1 204 x\r\n\r\n')
    await response.over()
    expect([response.error, peer.text.split('GET ').length]).toEqual([undefined, 2])
  })

  test('an aborted request ends the connection', async () => {
    const { connection, peer } = await startConnection()
    const response = new Response()
    const sink = connection.send(request({ bodyBytes: -1 }), response)
    await peer.saying('\r\n\r\n')
    sink.requestAbort(new SallyportError('cancelled'))
    await peer.end()
    expect([response.error, connection.reusable, connection.idle]).toEqual([undefined, false, false])
  })

  test('back-pressure: what the upstream does not accept is not consumed', async () => {
    const { connection, peer } = await startConnection()
    peer.socket.pause()
    const response = new Response()
    const sink = connection.send(request({ bodyBytes: -1 }), response)
    const chunk = Buffer.alloc(1024 * 1024)
    for (let i = 0; i < 32; i++) sink.requestData(chunk)
    await turns(50)
    expect(response.taken).toBeLessThan(32 * chunk.length)
    peer.socket.resume()
    await until(() => response.taken === 32 * chunk.length)
  })

  test('an upstream that answers, closes and reads late gets the whole body', async () => {
    const { peer, response } = await readLate()
    peer.send('HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n')
    await response.over()
    await turns()
    peer.socket.resume()
    expect((await peer.end()).split('\r\n\r\n')[1]).toBe('b'.repeat(LATE_BYTES))
  })

  test.each([
    ['is cancelled', (next: RequestSink) => next.requestAbort(new SallyportError('cancelled'))],
    ['cannot be sent', undefined],
    [
      'waits while the connection is ended',
      (_: RequestSink, connection: Http1ClientConnection) => connection.destroy(),
    ],
  ])('a body that its upstream has answered and reads late is whole although the next request %s', async (_, end) => {
    const { connection, peer } = await readLate()
    peer.send('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
    await until(() => connection.idle)
    const next = connection.send(request(end === undefined ? { method: 'not one' } : {}), new Response())
    await turns()
    end?.(next, connection)
    await turns()
    peer.socket.resume()
    expect((await peer.end()).split('\r\n\r\n')[1]).toMatch(new RegExp(`^b{${LATE_BYTES}}`))
  })
})

describe('responses', () => {
  const whole =
    'HTTP/1.1 200 Fine\r\nX-A: 1\r\nSet-Cookie: b\r\nTransfer-Encoding: chunked\r\nKeep-Alive: timeout=7, max=2\r\n\r\n3\r\nabc\r\n0\r\nT: 1\r\n\r\n'

  test('the same at every split point; the connection is free afterwards', async () => {
    const { connection, peer, idle } = await startConnection()
    for (let at = 1; at < whole.length; at++) {
      const response = new Response()
      connection.send(request(), response).requestEnd([])
      await peer.saying('GET', at)
      peer.send(whole.slice(0, at))
      await turns(2)
      peer.send(whole.slice(at))
      await response.over()
      expect(response).toMatchObject({ body: 'abc', trailers: ['t', '1'], error: undefined })
      expect(response.heads).toEqual([{ status: 200, headers: ['x-a', '1', 'set-cookie', 'b'], bodyBytes: -1 }])
      await until(() => idle.length === at)
    }
    expect([connection.keepAliveMs, connection.exchanges]).toEqual([7000, whole.length - 1])
  })

  test('informational ones pass; a 100 only where it was requested', async () => {
    const early = 'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n'
    const { response } = await answered(`${early}HTTP/1.1 204 No Content\r\n\r\n`)
    expect(response.informed).toEqual([[103, ['link', '</a>']]])
    expect(response.heads).toMatchObject([{ status: 204, bodyBytes: 0 }])
  })

  test('a repeated head is parsed again, whatever came between and whoever changed the list', async () => {
    const heads = new ByteCache<Head>()
    const pair = [await startConnection({}, heads), await startConnection({}, heads)]
    const head = 'HTTP/1.1 200 OK\r\nX-A: 1\r\nContent-Length: 3\r\n\r\n'
    const hints = 'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n'
    const other = 'HTTP/1.1 200 OK\r\nX-A: 2\r\nContent-Length: 4\r\n\r\n'
    const answers: [string, string][] = [
      [head, 'abc'],
      [head, 'def'],
      [hints + head, 'ghi'],
      [head, 'jkl'],
      [other, 'mnop'],
      [head, 'qrs'],
    ]
    for (const [text, body] of answers.concat(answers)) {
      const { connection, peer } = pair.find(({ connection }) => connection.idle)!
      pair.reverse()
      const response = new Response()
      connection.send(request(), response).requestEnd([])
      await peer.saying('\r\n\r\n')
      peer.send(text + body)
      await response.over()
      const length = String(body.length)
      const headers = ['x-a', text === other ? '2' : '1', 'content-length', length]
      expect(response).toMatchObject({ body, error: undefined })
      expect(response.heads).toEqual([{ status: 200, headers, bodyBytes: body.length }])
      expect(response.informed.length).toBe(text.startsWith(hints) ? 1 : 0)
      response.heads[0]!.headers.push('mine', 'alone')
      await until(() => connection.idle)
    }
  })

  test('a body until close is whole if its end is followed by a reset', async () => {
    const { connection, peer } = await startConnection()
    const response = new Response()
    connection.send(request(), response).requestEnd([])
    await peer.saying('\r\n\r\n')
    peer.socket.end('HTTP/1.1 200 OK\r\n\r\nabc', () => peer.socket.resetAndDestroy())
    await response.over()
    expect(response).toMatchObject({ body: 'abc', trailers: [], error: undefined })
  })

  // Node 22 reports the reset as an end.
  test('a body until close is cut if the upstream resets the connection while nothing is read', async () => {
    const { connection, peer } = await startConnection()
    const response = new Response()
    const sink = connection.send(request(), response)
    sink.requestEnd([])
    await peer.saying('\r\n\r\n')
    peer.send(`HTTP/1.1 200 OK\r\n\r\n${'b'.repeat(8 * 1024 * 1024)}`)
    // Nothing is consumed, so reading stops.
    await until(() => response.body.length > 0)
    await new Promise(resolve => setTimeout(resolve, 200))
    peer.socket.resetAndDestroy()
    await new Promise(resolve => setTimeout(resolve, 200))
    response.onConsume = bytes => sink.responseConsumed(bytes)
    sink.responseConsumed(response.body.length)
    await response.over()
    expect([response.error, response.trailers]).toEqual(['upstream-broken', undefined])
  })

  test('a body until close ends with the connection', async () => {
    const { response, connection } = await answered('HTTP/1.1 200 OK\r\n\r\nabc', {}, true)
    expect(response).toMatchObject({ body: 'abc', trailers: [], error: undefined })
    expect(connection.reusable).toBe(false)
  })

  test.each([
    ['Connection: close', 'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n'],
    ['HTTP/1.0', 'HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n'],
  ])('%s: not used again', async (_name, text) => {
    const { response, connection, idle } = await answered(text)
    expect(response.trailers).toEqual([])
    expect([connection.idle, idle.length]).toEqual([false, 0])
  })

  test.each([
    ['without a length', ''],
    ['with one', 'Content-Length: 3\r\n'],
  ])('an answer to HEAD %s: the connection is not used again', async (_name, field) => {
    const { response, connection } = await answered(`HTTP/1.1 200 OK\r\n${field}\r\n`, { method: 'HEAD' })
    expect(response.trailers).toEqual([])
    expect(connection.idle).toBe(false)
  })

  test.each([
    ['both lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
    ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc'],
    ['a length that is no number', 'HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc'],
    ['another encoding', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n'],
    ['chunked on HTTP/1.0', 'HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
    ['CR in a header', 'HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 0\r\n\r\n'],
    ['NUL in a header', 'HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n'],
    ['a folded header', 'HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n'],
    ['space before the colon', 'HTTP/1.1 200 OK\r\nX : a\r\nContent-Length: 0\r\n\r\n'],
    ['bare LF', 'HTTP/1.1 200 OK\nContent-Length: 0\n\n'],
    ['status 600', 'HTTP/1.1 600 No\r\nContent-Length: 0\r\n\r\n'],
    ['status 99', 'HTTP/1.1 099 No\r\nContent-Length: 0\r\n\r\n'],
    ['another version', 'HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n'],
    ['no HTTP', 'SSH-2.0-x\r\n\r\n'],
    ['33 informational responses', 'HTTP/1.1 102 Processing\r\n\r\n'.repeat(33)],
    ['too many fields', `HTTP/1.1 200 OK\r\n${'a: b\r\n'.repeat(101)}\r\n`],
    ['a head too long', `HTTP/1.1 200 OK\r\na: ${'b'.repeat(17000)}`],
    ['an unasked 101', 'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n'],
  ])('E12: %s: upstream-broken, and not used again', async (_name, text) => {
    const { response, connection, peer } = await answered(text)
    expect(response.error).toBe('upstream-broken')
    expect(response.heads).toEqual([])
    expect([connection.idle, connection.reusable]).toEqual([false, false])
    await peer.end()
  })

  test.each([
    ['a body cut short', 'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc'],
    ['chunks cut short', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n'],
    ['an end without a head', ''],
    ['an end within a head', 'HTTP/1.1 200 OK\r\nContent-'],
  ])('E12: %s is not a clean end', async (_name, text) => {
    const { response } = await answered(text, {}, true)
    expect([response.error, response.trailers]).toEqual(['upstream-broken', undefined])
  })

  test('E12: bytes behind a response, or to no request, end the connection', async () => {
    const behind = await answered('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n')
    expect(behind.response).toMatchObject({ body: 'ok', trailers: [] })
    expect([behind.connection.idle, behind.idle.length]).toEqual([false, 0])
    const later = await answered('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
    expect(later.connection.idle).toBe(true)
    later.peer.send('HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen')
    await later.peer.end()
    expect(later.connection.idle).toBe(false)
  })

  test.each(['HEAD', '204', '304'])('E13: body bytes of %s do not become the next response', async kind => {
    const status = kind === 'HEAD' ? '200' : kind
    const text = `HTTP/1.1 ${status} X\r\nContent-Length: 6\r\n\r\nstolen`
    const { response, connection } = await answered(text, { method: kind === 'HEAD' ? 'HEAD' : 'GET' })
    expect(response).toMatchObject({ body: '', trailers: [], error: undefined })
    expect(connection.idle).toBe(false)
  })

  test('a response before the end of the request: the rest is discarded', async () => {
    const { connection, peer } = await startConnection()
    const response = new Response()
    const sink = connection.send(request({ method: 'POST', bodyBytes: -1 }), response)
    await peer.saying('\r\n\r\n')
    peer.send('HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n')
    await response.over()
    sink.requestData(Buffer.from('rest'))
    sink.requestEnd([])
    expect(response).toMatchObject({ taken: 4, trailers: [] })
    expect(connection.idle).toBe(false)
    expect(await peer.end()).not.toContain('rest')
  })

  test('back-pressure: no more is read than is consumed', async () => {
    const { connection, peer } = await startConnection()
    const response = new Response()
    const sink = connection.send(request(), response)
    let bytes = 0
    response.onConsume = length => {
      bytes += length
    }
    await peer.saying('\r\n\r\n')
    peer.send('HTTP/1.1 200 OK\r\nContent-Length: 33554432\r\n\r\n')
    peer.send(Buffer.alloc(33554432))
    await until(() => bytes > 65536)
    await turns(50)
    expect(bytes).toBeLessThan(300_000)
    response.onConsume = length => sink.responseConsumed(length)
    sink.responseConsumed(bytes)
    await response.over()
    expect(response.body.length).toBe(33554432)
  })
})

describe('E8: expectations', () => {
  const expecting = request({ method: 'POST', bodyBytes: 2, headers: ['expect', '100-continue'] })

  test("the upstream's 100 is passed on", async () => {
    const { connection, peer } = await startConnection()
    const response = new Response()
    const sink = connection.send(expecting, response)
    expect(await peer.saying('\r\n\r\n')).toContain('expect: 100-continue\r\n')
    peer.send('HTTP/1.1 100 Continue\r\n\r\n')
    await until(() => response.informed.length === 1)
    sink.requestData(Buffer.from('hi'))
    sink.requestEnd([])
    await peer.saying('hi')
    peer.send('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
    await response.over()
    expect(connection.idle).toBe(true)
  })

  test('an upstream that does not know it receives the body after a while', async () => {
    const { connection, peer } = await startConnection({ expectMs: 20 })
    const response = new Response()
    connection.send(expecting, response)
    await peer.saying('\r\n\r\n')
    await until(() => response.informed.length === 1)
    expect(response.informed).toEqual([[100, []]])
  })

  test.each([
    ['401 Unauthorized', ''],
    ['307 Temporary Redirect', 'elsewhere'],
    ['200 OK', ''],
  ])('%s instead: nothing of the body goes out', async (status, content) => {
    const { connection, peer } = await startConnection()
    const response = new Response()
    const sink = connection.send(expecting, response)
    await peer.saying('\r\n\r\n')
    peer.send(`HTTP/1.1 ${status}\r\nContent-Length: ${content.length}\r\n\r\n${content}`)
    await response.over()
    sink.requestData(Buffer.from('hi'))
    expect(response).toMatchObject({ informed: [], taken: 2 })
    expect(await peer.end()).not.toContain('hi')
    expect(connection.idle).toBe(false)
  })

  test.each(['', 'Connection: close\r\n'])(
    'an answer that has only begun: no 100, but a body that comes goes out for the rest of it (%j)',
    async close => {
      const { connection, peer } = await startConnection()
      const response = new Response()
      const sink = connection.send(expecting, response)
      await peer.saying('\r\n\r\n')
      peer.send(`HTTP/1.1 200 OK\r\n${close}Transfer-Encoding: chunked\r\n\r\n`)
      await until(() => response.heads.length === 1)
      expect(response.informed).toEqual([])
      sink.requestData(Buffer.from('hi'))
      sink.requestEnd([])
      await peer.saying('hi')
      peer.send('2\r\nhi\r\n0\r\n\r\n')
      await response.over()
      expect(response).toMatchObject({ body: 'hi', error: undefined })
      expect(connection.idle).toBe(close === '')
    },
  )
})

describe('upgrade', () => {
  const webSocket = request({ upgrade: true, headers: ['sec-websocket-protocol', 'p'] })
  const accept = (text: string) => {
    const key = /sec-websocket-key: (.*)\r\n/.exec(text)![1]!
    return createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64')
  }
  async function upgrading(answer: (peer: RawPeer, accept: string) => void) {
    const { connection, peer } = await startConnection()
    const response = new Response()
    const sink = connection.send(webSocket, response)
    answer(peer, accept(await peer.saying('\r\n\r\n')))
    return { connection, peer, response, sink }
  }
  const switching =
    'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Accept: '

  test('raw in both directions after a valid 101, with half-close', async () => {
    const { peer, response, sink } = await upgrading((to, key) =>
      to.send(`${switching}${key}\r\nSec-WebSocket-Protocol: p\r\n\r\nfirst`),
    )
    await until(() => response.body === 'first')
    expect(response.heads).toEqual([{ status: 101, headers: ['sec-websocket-protocol', 'p'], bodyBytes: 0 }])
    sink.requestData(Buffer.from('up'))
    sink.requestEnd([])
    expect(await peer.end()).toMatch(/up$/)
    peer.socket.end('last')
    await response.over()
    expect(response).toMatchObject({ body: 'firstlast', trailers: [], error: undefined })
  })

  test('a program that reads late gets everything that was sent before its caller was lost', async () => {
    const { peer, response, sink } = await upgrading((to, key) => to.send(`${switching}${key}\r\n\r\n`))
    await until(() => response.heads.length === 1)
    peer.socket.pause()
    sink.requestData(Buffer.alloc(LATE_BYTES, 'b'))
    await until(() => response.taken === LATE_BYTES)
    sink.requestAbort(new SallyportError('cancelled'))
    await turns()
    peer.socket.resume()
    expect((await peer.end()).split('\r\n\r\n')[1]).toBe('b'.repeat(LATE_BYTES))
  })

  test.each([
    ['a wrong accept', (key: string) => `${switching}${key.replace(/^./, '!')}\r\n\r\n`],
    ['no accept', () => 'HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n'],
    [
      'another protocol',
      (key: string) => `HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nSec-WebSocket-Accept: ${key}\r\n\r\n`,
    ],
    ['no Connection', (key: string) => `HTTP/1.1 101 X\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ${key}\r\n\r\n`],
  ])('E7: %s: upstream-broken', async (_name, text) => {
    const { response } = await upgrading((to, key) => to.send(text(key)))
    await response.over()
    expect(response.error).toBe('upstream-broken')
  })

  test('an ordinary answer is handled as one', async () => {
    const { response, connection } = await upgrading(to => to.send('HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno'))
    await response.over()
    expect(response).toMatchObject({ body: 'no', trailers: [], heads: [{ status: 403, bodyBytes: 2 }] })
    expect(connection.idle).toBe(false)
  })
})

describe('deadlines', () => {
  test('no head in time: upstream-timeout; a quiet body is waited for', async () => {
    const { connection, peer } = await startConnection()
    const response = new Response()
    connection.send(request(), response, { headTimeoutMs: 20 })
    await response.over()
    expect(response.error).toBe('upstream-timeout')
    await peer.end()
    const other = await startConnection()
    const quiet = new Response()
    const headTimeoutMs = unhurried(200)
    other.connection.send(request(), quiet, { headTimeoutMs })
    await other.peer.saying('\r\n\r\n')
    other.peer.send('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no')
    await until(() => quiet.body === 'o')
    await new Promise(resolve => setTimeout(resolve, 2 * headTimeoutMs))
    other.peer.send('k')
    await quiet.over()
    expect(quiet.error).toBeUndefined()
  })

  test('the time for the head begins when the last byte of the request has left', async () => {
    const { connection, peer } = await startConnection()
    const response = new Response()
    const bodyBytes = 32 * 1024 * 1024
    const headTimeoutMs = 50
    peer.socket.pause()
    const sink = connection.send(request({ bodyBytes }), response, { headTimeoutMs })
    sink.requestData(Buffer.alloc(bodyBytes))
    sink.requestEnd([])
    setTimeout(() => peer.socket.resume(), 4 * headTimeoutMs)
    await response.over()
    expect(response).toMatchObject({ error: 'upstream-timeout', taken: bodyBytes })
  })

  test('an upstream that stops reading: upstream-timeout', async () => {
    const { connection, peer } = await startConnection({ stalledMs: 60 })
    peer.socket.pause()
    const response = new Response()
    connection.send(request({ bodyBytes: -1 }), response).requestData(Buffer.alloc(32 * 1024 * 1024))
    await response.over()
    expect(response.error).toBe('upstream-timeout')
  })
})

test('when heads arrive byte by byte, each line is examined once', async () => {
  const { connection, peer } = await startConnection()
  const looks = vi.spyOn(HeadParser.prototype, 'fields')
  onTestFinished(() => looks.mockRestore())
  const response = new Response()
  connection.send(request(), response)
  const fields = `a: ${'b,'.repeat(100)}\r\nc: d\r\n`
  const heads = `HTTP/1.1 103 Early\r\n${fields}\r\nHTTP/1.1 200 OK\r\n${fields}content-length: 0\r\n\r\n`
  for (const byte of heads) {
    peer.send(byte)
    await new Promise(resolve => setImmediate(resolve))
  }
  await response.over()
  expect(response.heads).toMatchObject([
    { status: 200, headers: ['a', 'b,'.repeat(100), 'c', 'd', 'content-length', '0'] },
  ])
  expect(looks.mock.calls.length).toBeLessThanOrEqual(9)
})
