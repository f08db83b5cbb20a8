/**
 * Node goes on counting what a stream held as memory of its session when the stream is destroyed, and refuses new streams once there is
 * none left. So whatever ends streams, again and again: the next request is answered, or its session is closing.
 */
import { once } from 'node:events'
import { type ClientHttp2Session, connect, constants, createServer, type ServerHttp2Stream } from 'node:http2'
import { type AddressInfo, connect as connectTcp } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, expect, test } from 'vitest'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import type { RequestSink, ResponseSink } from '../../../../protocol/exchange.ts'
import { Http2ClientSession } from '../../../../protocol/http/http2/client-session.ts'
import { listen } from '../../../../protocol/http/listener.ts'
import { ok, recorder } from '../http1/raw.ts'

const LIMITS = { http2SessionMemoryMb: 1, http2ResetBurst: 10_000 }
/** They take more than that. */
const STREAMS = 200
/** More than a stream's window. */
const BYTES = 200_000
const { NGHTTP2_CANCEL, NGHTTP2_INTERNAL_ERROR, NGHTTP2_NO_ERROR, NGHTTP2_REFUSED_STREAM } = constants

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

/** Node has got all of these, and two wait for window. */
const WHOLE = Array.from({ length: 6 }, () => Buffer.alloc(16_383))

/** Of the last one that a stream begins to send, most waits. */
function pieces(index: number): Buffer[] {
  const bytes = index % 2 === 0 ? 20_000 : 16_383
  return Array.from({ length: Math.floor(BYTES / bytes) }, () => Buffer.alloc(bytes))
}

const WEBSOCKET = { ':method': 'CONNECT', ':protocol': 'websocket', 'sec-websocket-version': '13' }
const LEAVINGS: [string, Record<string, string>, number][] = [
  ['downloads that their callers cancel', {}, NGHTTP2_CANCEL],
  ['downloads that their callers reset with NO_ERROR', {}, NGHTTP2_NO_ERROR],
  ['downloads that break off', { ':path': '/broken' }, NGHTTP2_CANCEL],
  ['complete answers that their callers reset', { ':path': '/whole' }, NGHTTP2_CANCEL],
  ['complete answers that their callers reset with NO_ERROR', { ':path': '/whole' }, NGHTTP2_NO_ERROR],
  ['WebSockets that their callers leave', WEBSOCKET, NGHTTP2_CANCEL],
]

test.each(LEAVINGS)('a connection with %s', async (_, fields, code) => {
  const { handler, seen } = recorder(({ request, response }) => {
    if (request.path === '/ok') return ok(response)
    if (request.path === '/whole') {
      response.responseHead({ status: 200, headers: [], bodyBytes: 6 * 16_383 })
      for (const piece of WHOLE) response.responseData(piece)
      return response.responseEnd([])
    }
    response.responseHead({ status: request.upgrade ? 101 : 200, headers: [], bodyBytes: request.upgrade ? 0 : -1 })
    for (const piece of pieces(seen.length >> 1)) response.responseData(piece)
    if (request.path === '/broken') setTimeout(() => response.responseAbort(new SallyportError('upstream-broken')), 5)
  })
  const listener = await listen({ port: 0, handler, limits: LIMITS })
  open.push(() => listener.close({ graceMs: 0 }))
  const dial = () => {
    const session = connect(`http://127.0.0.1:${listener.address.port}`).on('error', () => {})
    open.push(() => session.destroy())
    return session
  }
  let session = dial()
  const codes = new Set<number>()
  for (let i = 0; i < STREAMS; i++) {
    if (session.closed) session = dial()
    const left = session.request({ ':path': '/', ...fields }).on('error', () => {})
    await Promise.race(['response', 'close'].map(event => new Promise(resolve => left.once(event, resolve))))
    await sleep(3)
    left.close(code)
    codes.add(await endOf(session))
  }
  expect([...codes]).not.toContain(constants.NGHTTP2_ENHANCE_YOUR_CALM)
})

test('what streams took with them leaves room for as many slow streams as before', async () => {
  const { handler } = recorder(({ request, response }) => {
    if (request.path === '/ok') return ok(response)
    response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
    for (const piece of pieces(1)) response.responseData(piece)
  })
  const listener = await listen({ port: 0, handler })
  open.push(() => listener.close({ graceMs: 0 }))
  const session = connect(`http://127.0.0.1:${listener.address.port}`, { maxSessionMemory: 1000 })
  open.push(() => session.destroy())
  await once(session, 'connect')
  session.setLocalWindowSize(2 ** 30)
  const begin = async () => {
    const stream = session.request({ ':path': '/' }).on('error', () => {})
    await Promise.race(['response', 'close'].map(event => once(stream, event)))
    await sleep(3)
    return stream
  }
  for (let i = 0; i < 40; i++) (await begin()).close(NGHTTP2_CANCEL)
  for (let i = 0; i < 98; i++) await begin()
  expect(session.closed).toBe(false)
  expect(await endOf(session)).toBe(NGHTTP2_NO_ERROR)
})

/** With which code a small request ends. */
async function endOf(session: ClientHttp2Session): Promise<number> {
  if (session.closed) return NGHTTP2_REFUSED_STREAM
  const stream = session.request({ ':path': '/ok' }).on('error', () => {})
  await new Promise(resolve => stream.resume().once('close', resolve))
  return stream.rstCode
}

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
  const dial = async () => {
    const socket = connectTcp((server.address() as AddressInfo).port, '127.0.0.1')
    await once(socket, 'connect')
    const session = new Http2ClientSession(socket, { limits: LIMITS })
    open.push(() => session.destroy())
    return session
  }
  const head = { method: 'POST', authority: 'a', headers: [], bodyBytes: BYTES, upgrade: false }
  let session = await dial()
  // With others in progress, a session that takes no more stays.
  session.send({ ...head, path: '/quiet' }, new Outcome())
  const outcomes = new Set<string>()
  for (let i = 0; i < STREAMS; i++) {
    if (!session.available) session = await dial()
    const outcome = new Outcome()
    const sink: RequestSink = session.send({ ...head, path: '/' }, outcome)
    for (const piece of pieces(i)) sink.requestData(piece)
    await Promise.race([outcome.end.promise, sleep(6)])
    sink.requestAbort(new SallyportError('cancelled'))
    if (!session.available) continue
    const next = new Outcome()
    session.send({ ...head, path: '/ok', bodyBytes: 0 }, next)
    outcomes.add(await next.end.promise)
  }
  expect([...outcomes]).toEqual(['whole'])
})
