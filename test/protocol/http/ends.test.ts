/**
 * Who ended a response that had begun: each end of ours says its own reason, and the response counts as cut; a caller that
 * leaves is `cancelled`, and cuts nothing.
 */
import { once } from 'node:events'
import { createServer, type ServerOptions } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { afterEach, describe, expect, test } from 'vitest'
import { discarding } from '../../../protocol/base/guard.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import { BODY_UNKNOWN, type ExchangeRecord, type Handler } from '../../../protocol/exchange.ts'
import { mount } from '../../../protocol/http/http1/mount.ts'
import type { HttpLimits } from '../../../protocol/http/limits.ts'
import { type Listener, listen } from '../../../protocol/http/listener.ts'
import { record, recordRefused } from '../../../protocol/http/record.ts'
import { compose } from '../../../protocol/layer.ts'
import { END_HEADERS, END_STREAM, frame, head, PREFACE, TYPE, uint32 } from '../../support/http2-frames.ts'
import { makeSecrets } from '../../support/secrets.ts'
import { eventually } from '../../support/until.ts'
import { RawPeer } from './http1/raw.ts'

const secrets = await makeSecrets()
const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

/** More than all buffers on the way to a caller hold. */
const MUCH_BYTES = 32 * 1024 * 1024

/** Begins an endless answer. It fails when it is given a body. */
const answering =
  (bytes: number): Handler =>
  ({ upgrade }, response) => {
    response.responseHead({ status: upgrade ? 101 : 200, headers: [], bodyBytes: upgrade ? 0 : BODY_UNKNOWN })
    response.responseData(Buffer.alloc(bytes, 'x'))
    return {
      requestData() {
        throw new Error('a defect')
      },
      requestEnd() {},
      requestAbort() {},
      responseConsumed() {},
    }
  }

interface Setting {
  readonly limits?: Partial<HttpLimits>
  readonly maxConnections?: number
  /** Bytes of the answer. */
  readonly bytes?: number
  /** Of an embedder's server. */
  readonly server?: ServerOptions
}

interface Exchange {
  readonly peer: RawPeer
  readonly listener: Listener
  /** A request like the first one, on another connection. */
  another(): Promise<RawPeer>
}

type Begin = (peer: RawPeer) => unknown

const HEAD = 'HTTP/1.1\r\nHost: a\r\n'
const OFFER = `Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${'A'.repeat(22)}==\r\n`
const http1 =
  (method: string, fields = ''): Begin =>
  peer =>
    peer.send(`${method} / ${HEAD}${fields}\r\n`)
const http2 =
  (flags: number, ...[method, ...fields]: Parameters<typeof head>): Begin =>
  peer => {
    peer.send(Buffer.concat([PREFACE, frame(TYPE.settings, 0, 0)]))
    peer.send(frame(TYPE.headers, END_HEADERS | flags, 1, head(method, ...fields)))
  }

const GET = http1('GET')
const POST = http1('POST', 'Transfer-Encoding: chunked\r\n')
const WEBSOCKET = http1('GET', OFFER)
const GET_2 = http2(END_STREAM)
const POST_2 = http2(0, 'POST')
const WEBSOCKET_2 = http2(0, 'CONNECT', [':protocol', 'websocket'], ['sec-websocket-version', '13'])

function recorded(bytes: number) {
  const records: ExchangeRecord[] = []
  return { records, handler: compose([record(one => records.push(one))], answering(bytes)) }
}

/** `protocol`: over TLS. */
async function callFrom(port: number, begin: Begin, protocol?: string, localAddress = '127.0.0.1'): Promise<RawPeer> {
  const socket = connect({ port, host: '127.0.0.1', localAddress, allowHalfOpen: true })
  const tls = { socket, ca: secrets.ca, servername: 'localhost', allowHalfOpen: true }
  const peer = new RawPeer(protocol === undefined ? socket : connectTls({ ...tls, ALPNProtocols: [protocol] }))
  open.push(() => peer.socket.destroy())
  await once(peer.socket, protocol === undefined ? 'connect' : 'secureConnect')
  begin(peer)
  return peer
}

/** An exchange whose answer has begun. */
async function startListener(begin: Begin, { limits, maxConnections, bytes = 10 }: Setting, protocol?: string) {
  const { records, handler } = recorded(bytes)
  const listener = await listen({
    port: 0,
    host: '127.0.0.1',
    handler,
    limits,
    maxConnections,
    tls: protocol === undefined ? undefined : secrets.server,
  })
  open.push(() => listener.close({ graceMs: 0 }))
  const another = () => callFrom(listener.address.port, begin, protocol).then(started)
  return { records, listener, another, peer: await another() }
}

async function startAttached(begin: Begin, { limits, bytes = 10, server }: Setting) {
  const { records, handler } = recorded(bytes)
  const port = await attach(handler, limits, server)
  return { records, peer: await started(await callFrom(port, begin)) }
}

async function attach(handler: Handler, limits: Setting['limits'], options: ServerOptions = {}): Promise<number> {
  const server = createServer(options)
  mount(server, { handler, serves: () => true, limits, logger: noLogger })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  open.push(
    () => server.closeAllConnections(),
    () => server.close(),
  )
  return (server.address() as AddressInfo).port
}

async function started(peer: RawPeer): Promise<RawPeer> {
  await peer.saying('xxxxx')
  return peer
}

const cut = (code: string) => ({ code, cut: true })
const LEFT = { code: 'cancelled', cut: false }

const stop = ({ listener }: Exchange) => listener.close({ graceMs: 10 })
const pause = ({ peer }: Pick<Exchange, 'peer'>) => peer.socket.pause()
const say =
  (bytes: string | Buffer) =>
  ({ peer }: Exchange) =>
    peer.send(bytes)
/** Two connections of one address, and one of another that needs a slot. */
const crowd = async ({ listener, another }: Exchange) => {
  await another()
  const newcomer = connect({ port: listener.address.port, host: '127.0.0.1', localAddress: '127.0.0.2' })
  open.push(() => newcomer.on('error', () => {}).destroy())
}
const flood = (bytes: Buffer) => say(Buffer.concat(Array(5000).fill(bytes)))
const UNREAD: Setting = { bytes: MUCH_BYTES, limits: { stalledMs: 100 } }
const UNANSWERED: Setting = { limits: { http2PingMs: 50, stalledMs: 50 } }
const FULL: Setting = { maxConnections: 2 }

type End = (exchange: Exchange) => unknown
type Row = readonly [what: string, begin: Begin, end: End, code: string, setting: Setting]
const row = (what: string, begin: Begin, end: End, code: string, setting: Setting = {}): Row => [
  what,
  begin,
  end,
  code,
  setting,
]
const left = (what: string, begin: Begin, end: End, setting?: Setting) => row(what, begin, end, 'cancelled', setting)

const OURS = [
  row('the listener stops', GET, stop, 'shutting-down'),
  row('the listener needs the slot', GET, crowd, 'overloaded', FULL),
  row('the caller takes nothing', GET, pause, 'request-timeout', UNREAD),
  row("the request's body is malformed", POST, say('zz\r\n'), 'bad-request'),
  row('our own code fails', POST, say('1\r\na\r\n'), 'internal'),
  row('the listener stops, of a WebSocket', WEBSOCKET, stop, 'shutting-down'),
  row('the caller takes nothing, of a WebSocket', WEBSOCKET, pause, 'request-timeout', UNREAD),
  row('HTTP/2: the listener stops', GET_2, stop, 'shutting-down'),
  row('HTTP/2: the listener needs the slot', GET_2, crowd, 'overloaded', FULL),
  row('HTTP/2: the caller opens no window', GET_2, () => {}, 'request-timeout', UNREAD),
  row('HTTP/2: the caller answers no ping', GET_2, () => {}, 'request-timeout', UNANSWERED),
  row('HTTP/2: too many pings', GET_2, flood(frame(TYPE.ping, 0, 0, Buffer.alloc(8))), 'too-many-requests'),
  row('HTTP/2: frames that carry nothing', GET_2, flood(frame(TYPE.window, 0, 0, uint32(1))), 'too-many-requests', {
    limits: { http2ControlBytes: 100 },
  }),
  row('HTTP/2: a connection error', GET_2, say(frame(TYPE.data, 0, 0, Buffer.alloc(2))), 'bad-request'),
  row('HTTP/2: our own code fails', POST_2, say(frame(TYPE.data, 0, 1, Buffer.alloc(2))), 'internal'),
  row('HTTP/2: the listener stops, of a WebSocket', WEBSOCKET_2, stop, 'shutting-down'),
  row('HTTP/2: the caller opens no window, of a WebSocket', WEBSOCKET_2, () => {}, 'request-timeout', UNREAD),
]

const fin = ({ peer }: Exchange) => peer.socket.end()
const reset = ({ peer }: Pick<Exchange, 'peer'>) => peer.socket.resetAndDestroy()
const resetStream = (code: number) => say(frame(TYPE.reset, 0, 1, uint32(code)))
const goAway = (code: number) => (exchange: Exchange) => {
  exchange.peer.send(frame(TYPE.goaway, 0, 0, Buffer.concat([uint32(0), uint32(code)])))
  if (code === 0) fin(exchange)
}
const QUIET: Setting = { limits: { halfCloseMs: 50 } }

const LEAVES = [
  left('FIN', GET, fin, QUIET),
  left('RST', GET, reset),
  left('FIN in the body', POST, fin),
  left('RST in the body', POST, reset),
  left('RST of a WebSocket', WEBSOCKET, reset),
  left('HTTP/2: FIN', GET_2, fin),
  left('HTTP/2: RST', GET_2, reset),
  left('HTTP/2: RST_STREAM, CANCEL', GET_2, resetStream(8)),
  left('HTTP/2: RST_STREAM, NO_ERROR', GET_2, resetStream(0)),
  left('HTTP/2: RST_STREAM in the body', POST_2, resetStream(8)),
  left('HTTP/2: GOAWAY and FIN', GET_2, goAway(0)),
  left('HTTP/2: GOAWAY, INTERNAL_ERROR', GET_2, goAway(2)),
  left('HTTP/2: RST_STREAM of a WebSocket', WEBSOCKET_2, resetStream(8)),
]

describe('a listener', () => {
  test.each(OURS)('cuts: %s', async (_what, begin, end, code, setting) => {
    const exchange = await startListener(begin, setting)
    await end(exchange)
    await eventually(() => expect(exchange.records).toMatchObject([cut(code)]))
  })

  test.each(OURS)('cuts over TLS: %s', async (what, begin, end, code, setting) => {
    const exchange = await startListener(begin, setting, what.startsWith('HTTP/2') ? 'h2' : 'http/1.1')
    await end(exchange)
    await eventually(() => expect(exchange.records).toMatchObject([cut(code)]))
  })

  test.each(LEAVES)('is left: %s', async (_what, begin, end, _code, setting) => {
    const exchange = await startListener(begin, setting)
    await end(exchange)
    await eventually(() => expect(exchange.records).toMatchObject([LEFT]))
  })
})

describe("an embedder's server", () => {
  const send = (text: string) => (exchange: Pick<Exchange, 'peer'>) => exchange.peer.send(text)
  const half = ({ peer }: Pick<Exchange, 'peer'>) => peer.socket.end()
  const hasty = { requestTimeout: 100, headersTimeout: 100, connectionsCheckingInterval: 20 }
  const close = ({ peer }: Pick<Exchange, 'peer'>) => peer.socket.destroy()
  test.each([
    ['the caller takes nothing', GET, pause, 'request-timeout', UNREAD],
    ['our own code fails', POST, send('1\r\na\r\n'), 'internal', {}],
    ["the request's body is malformed", POST, send('zz\r\n'), 'bad-request', {}],
    ['the request takes Node too long', POST, () => {}, 'request-timeout', { server: hasty }],
    ['the caller takes nothing, of a WebSocket', WEBSOCKET, pause, 'request-timeout', UNREAD],
  ] as const)('cuts: %s', async (_what, begin, end, code, setting) => {
    const exchange = await startAttached(begin, setting)
    end(exchange)
    await eventually(() => expect(exchange.records).toMatchObject([cut(code)]))
  })

  test.each([
    ['FIN', GET, close],
    ['RST', GET, reset],
    ['FIN in the body', POST, half],
    ['RST in the body', POST, reset],
    ['RST of a WebSocket', WEBSOCKET, reset],
  ] as const)('is left: %s', async (_what, begin, leave) => {
    const exchange = await startAttached(begin, {})
    leave(exchange)
    await eventually(() => expect(exchange.records).toMatchObject([LEFT]))
  })
})

describe('a request that breaks the rules before it is answered is recorded once, with its answer', () => {
  const silent: Handler = (_request, response) => discarding(response)
  const limits = { bodyIdleMs: 50 }
  const start = {
    async listener(records: ExchangeRecord[]) {
      const handler = record(one => records.push(one))(silent)
      const onBadRequest = recordRefused(one => records.push(one))
      const listener = await listen({ port: 0, host: '127.0.0.1', handler, limits, onBadRequest })
      open.push(() => listener.close({ graceMs: 0 }))
      return listener.address.port
    },
    attached: (records: ExchangeRecord[]) => attach(record(one => records.push(one))(silent), limits),
  }

  test.each([
    ['listener', 'a malformed body', POST, 'zz\r\n', 400, 'bad-request'],
    ['listener', 'a body that stops', POST, '', 408, 'request-timeout'],
    ['listener', 'HTTP/2: a body that stops', POST_2, '', 408, 'request-timeout'],
    ['attached', 'a body that stops', POST, '', 408, 'request-timeout'],
  ] as const)('%s: %s', async (where, _what, begin, more, status, code) => {
    const records: ExchangeRecord[] = []
    const peer = await callFrom(await start[where](records), begin)
    peer.send(more)
    await peer.saying(code)
    expect(records).toMatchObject([{ method: 'POST', status, code, cut: false }])
  })

  test.each([
    ['HTTP/1.1', http1('GET', 'bad field\r\n')],
    ['HTTP/2', http2(END_STREAM, 'GET', ['host', 'b'])],
  ])('%s: a malformed head, by the id that its caller reads', async (_name, begin) => {
    const records: ExchangeRecord[] = []
    const peer = await callFrom(await start.listener(records), begin)
    const text = await peer.saying('requestId')
    const [, id] = /"requestId":"([^"]+)"/.exec(text)!
    expect(records).toMatchObject([{ status: 400, code: 'bad-request', requestId: id, caller: '127.0.0.1' }])
  })
})
