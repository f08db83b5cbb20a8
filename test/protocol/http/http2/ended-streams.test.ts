/** Whatever ends streams, again and again: their session goes on, and nothing of them is left in it. */
import { once } from 'node:events'
import { connect, constants, createServer, type ServerHttp2Stream } from 'node:http2'
import { type AddressInfo, connect as connectTcp, createServer as createTcpServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, expect, test } from 'vitest'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import type { RequestSink, ResponseSink } from '../../../../protocol/exchange.ts'
import { ConnectionSet } from '../../../../protocol/http/connection-set.ts'
import { Http2ClientSession } from '../../../../protocol/http/http2/client-session.ts'
import { serveHttp2 } from '../../../../protocol/http/http2/server-session.ts'
import { until } from '../../../support/until.ts'
import { ok, recorder } from '../http1/raw.ts'

/** Fewer than an upstream's session may reset, and together more than the window of a connection. */
const STREAMS = 100
/** More than a stream's window. */
const BYTES = 200_000
const { NGHTTP2_CANCEL, NGHTTP2_INTERNAL_ERROR, NGHTTP2_NO_ERROR } = constants

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

/** More than a window, and most of the last piece that a stream begins to send waits for every other one. */
function pieces(index: number): Buffer[] {
  const bytes = index % 2 === 0 ? 20_000 : 16_383
  return Array.from({ length: Math.floor(BYTES / bytes) }, () => Buffer.alloc(bytes))
}

const WEBSOCKET = { ':method': 'CONNECT', ':protocol': 'websocket', 'sec-websocket-version': '13' }
/** Known to be empty before it ends. */
const EMPTY = { ':method': 'POST', 'content-length': '0', ':path': '/ok' }
/** Without a code, the caller ends its request. */
const LEAVINGS: [string, Record<string, string>, number | undefined][] = [
  ['downloads that their callers cancel', {}, NGHTTP2_CANCEL],
  ['downloads that their callers reset with NO_ERROR', {}, NGHTTP2_NO_ERROR],
  ['downloads that break off', { ':path': '/broken' }, NGHTTP2_CANCEL],
  ['complete answers that their callers reset', { ':path': '/whole' }, NGHTTP2_CANCEL],
  ['complete answers that their callers reset with NO_ERROR', { ':path': '/whole' }, NGHTTP2_NO_ERROR],
  ['WebSockets that their callers leave', WEBSOCKET, NGHTTP2_CANCEL],
  ['empty requests that end after their answers', EMPTY, undefined],
]

test.each(LEAVINGS)('a connection with %s', async (_, fields, code) => {
  const { handler, seen } = recorder(({ request, response }) => {
    if (request.path === '/ok') return ok(response)
    const whole = request.path === '/whole'
    const bodyBytes = request.upgrade ? 0 : whole ? 6 * 16_383 : -1
    response.responseHead({ status: request.upgrade ? 101 : 200, headers: [], bodyBytes })
    for (const piece of pieces(whole ? 1 : seen.length >> 1).slice(0, whole ? 6 : undefined))
      response.responseData(piece)
    if (whole) response.responseEnd([])
    if (request.path === '/broken') setTimeout(() => response.responseAbort(new SallyportError('upstream-broken')), 5)
  })
  const connections = new ConnectionSet(10, 2 ** 30)
  const limits = { http2ResetBurst: STREAMS }
  const server = createTcpServer(socket => void serveHttp2(socket, { handler, connections, limits })).listen(
    0,
    '127.0.0.1',
  )
  open.push(() => server.close())
  await once(server, 'listening')
  const session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`).on('error', () => {})
  open.push(() => session.destroy())
  for (let i = 0; i < STREAMS; i++) {
    const left = session.request({ ':path': '/', ...fields }).on('error', () => {})
    await Promise.race(['response', 'close'].map(event => new Promise(resolve => left.once(event, resolve))))
    await sleep(1)
    if (code === undefined) await once(left.resume().end(), 'close')
    else left.close(code)
    const next = session.request({ ':path': '/ok' })
    await once(next.resume(), 'close')
    expect(next.rstCode).toBe(NGHTTP2_NO_ERROR)
  }
  await until(() => connections.unread.usedBytes === 0)
})

class Outcome implements ResponseSink {
  readonly end = Promise.withResolvers<string>()
  responseInformational(): void {}
  responseHead(): void {}
  responseData(): void {}
  responseEnd(): void {
    this.end.resolve('whole')
  }
  responseAbort(error: SallyportError): void {
    this.end.resolve(error.message)
  }
  requestConsumed(): void {}
}

type Reply = (stream: ServerHttp2Stream) => void
const UPLOADS: [string, Reply][] = [
  ['their callers cancel', () => {}],
  ['are answered early', stream => stream.respond({ ':status': 413 }, { endStream: true })],
  ['are reset', stream => stream.close(NGHTTP2_INTERNAL_ERROR)],
]

test.each(UPLOADS)('a session with uploads that %s', async (_, reply) => {
  const server = createServer({ maxSessionMemory: 1000 }).listen(0, '127.0.0.1')
  open.push(() => server.close())
  server.on('session', session => session.setLocalWindowSize(STREAMS * 65_536))
  server.on('stream', (given, { ':path': path }) => {
    const stream = given as ServerHttp2Stream
    stream.on('error', () => {})
    if (path === '/ok') stream.respond({ ':status': 200 }, { endStream: true })
    else setTimeout(() => stream.destroyed || reply(stream), 2)
  })
  await once(server, 'listening')
  const socket = connectTcp((server.address() as AddressInfo).port, '127.0.0.1')
  await once(socket, 'connect')
  const session = new Http2ClientSession(socket)
  open.push(() => session.destroy())
  const head = { method: 'POST', authority: 'a', headers: [], bodyBytes: BYTES, upgrade: false }
  for (let i = 0; i < STREAMS; i++) {
    const outcome = new Outcome()
    const sink: RequestSink = session.send({ ...head, path: '/' }, outcome)
    for (const piece of pieces(i)) sink.requestData(piece)
    await Promise.race([outcome.end.promise, sleep(6)])
    sink.requestAbort(new SallyportError('cancelled'))
    const next = new Outcome()
    session.send({ ...head, path: '/ok', bodyBytes: 0 }, next)
    expect(await next.end.promise).toBe('whole')
  }
  expect([session.streams, session.available]).toEqual([0, true])
})
