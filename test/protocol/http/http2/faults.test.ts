/**
 * An upstream that breaks the rules in a message or in its connection, as one session's exchanges see it.
 * malformed.test.ts has what a malformed message costs at the server's end.
 */
import { once } from 'node:events'
import { connect } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import type { SallyportError } from '../../../../protocol/base/errors.ts'
import type { RequestSink, ResponseSink } from '../../../../protocol/exchange.ts'
import { Http2ClientSession } from '../../../../protocol/http/http2/client-session.ts'
import type { HttpLimits } from '../../../../protocol/http/limits.ts'
import { DEAF } from '../../../support/ends.ts'
import { END_HEADERS, END_STREAM, field, frame, TYPE, uint32 } from '../../../support/http2-frames.ts'
import { Http2Upstream, type UpstreamStream } from '../../../support/http2-upstream.ts'
import { until } from '../../../support/until.ts'

const PROTOCOL_ERROR = 1
const PING = frame(TYPE.ping, 0, 0, Buffer.alloc(8))
const ACK = 1
const MIB = 2 ** 20
/** How many resets a session is used for. */
const MOST_RESETS = 200

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

async function start(limits: Partial<HttpLimits> = {}) {
  const upstream = await Http2Upstream.start()
  const socket = connect({ port: upstream.port, host: '127.0.0.1', noDelay: true })
  await once(socket, 'connect')
  let closed = 0
  const session = new Http2ClientSession(socket, { limits, onClose: () => closed++ })
  open.push(
    () => upstream.stop(),
    () => session.destroy(),
  )
  return { upstream, session, closed: () => closed }
}

interface Sent {
  readonly stream: UpstreamStream
  readonly sink: RequestSink
  /** What its caller was told, in order. */
  readonly told: string[]
}

/** Sends a request, and waits until the upstream has it. */
async function send(
  { upstream, session }: { upstream: Http2Upstream; session: Http2ClientSession },
  method = 'GET',
  bodyBytes = 0,
): Promise<Sent> {
  const told: string[] = []
  const response: ResponseSink = {
    ...DEAF,
    responseHead: ({ status }) => void told.push(String(status)),
    responseData: chunk => void told.push(Buffer.from(chunk).toString()),
    responseEnd: () => void told.push('end'),
    responseAbort: (error: SallyportError) => void told.push(`${error.reason}: ${error.message}`),
  }
  const number = upstream.streams.length
  const request = { method, authority: 'a', path: '/', headers: [], bodyBytes, upgrade: false }
  const sink = session.send(request, response)
  await until(() => upstream.streams.length > number)
  return { stream: upstream.streams[number]!, sink, told }
}

/** A neighbour in the middle of its answer. */
async function neighbour(place: Parameters<typeof send>[0]): Promise<Sent> {
  const sent = await send(place)
  sent.stream.head(200)
  sent.stream.data('ab')
  await until(() => sent.told.length === 2)
  return sent
}

const over = ({ told }: Sent) => /end|upstream/.test(told.at(-1) ?? '')
const REFUSED = expect.stringMatching(/^upstream-broken: malformed message: /)
const BROKEN = expect.stringMatching(/^upstream-broken: HTTP\/2: /)

const messages: [what: string, method: string, status: number | undefined, fields: Record<string, string>][] = [
  ['a body before its head', 'GET', undefined, {}],
  ['DATA beyond its content-length', 'GET', 200, { 'content-length': '1' }],
  ['a body to HEAD', 'HEAD', 200, { 'content-length': '2' }],
  ['a body to a 204', 'GET', 204, {}],
  ['a body to a 304', 'GET', 304, {}],
]

describe.each(messages)('%s ends its stream only', (_what, method, status, fields) => {
  const say = (stream: UpstreamStream) => {
    if (status !== undefined) stream.head(status, fields)
    stream.data('xy', true)
  }

  test.each(['in one piece', 'frame by frame'])('%s', async how => {
    const place = await start()
    const next = await neighbour(place)
    const bad = await send(place, method)
    const { connection } = bad.stream
    if (how === 'in one piece') connection.atOnce(() => say(bad.stream))
    else say(bad.stream)
    await until(() => over(bad) && bad.stream.resetCode !== undefined)
    expect([bad.told.at(-1), bad.stream.resetCode, place.session.available]).toEqual([REFUSED, PROTOCOL_ERROR, true])
    next.stream.data('cd', true)
    const later = await send(place)
    later.stream.head(204, {}, true)
    await until(() => over(next) && over(later))
    expect([next.told, later.told]).toEqual([
      ['200', 'ab', 'cd', 'end'],
      ['204', 'end'],
    ])
    expect([place.upstream.connections.length, place.session.streams]).toEqual([1, 0])
  })

  test('with a go-away after it: what is in progress ends normally, and then the session', async () => {
    const place = await start()
    const next = await neighbour(place)
    const bad = await send(place, method)
    bad.stream.connection.atOnce(() => {
      say(bad.stream)
      bad.stream.connection.goaway(0, bad.stream.id)
    })
    await until(() => over(bad) && !place.session.available)
    next.stream.data('cd', true)
    await until(() => over(next) && place.closed() === 1)
    expect([bad.told.at(-1), next.told]).toEqual([REFUSED, ['200', 'ab', 'cd', 'end']])
  })
})

test('a malformed answer to a request that is still being sent ends only its stream', async () => {
  const place = await start()
  const next = await neighbour(place)
  const bad = await send(place, 'POST', 500_000)
  bad.sink.requestData(Buffer.alloc(300_000))
  await until(() => bad.stream.received > 60_000)
  bad.stream.head(204)
  bad.stream.data('x')
  await until(() => over(bad) && bad.stream.resetCode !== undefined && place.session.streams === 1)
  next.stream.data('cd', true)
  await until(() => over(next))
  expect([bad.told.at(-1), next.told]).toEqual([REFUSED, ['200', 'ab', 'cd', 'end']])
})

const settings = (id: number, value: number) =>
  frame(TYPE.settings, 0, 0, Buffer.concat([Buffer.from([0, id]), uint32(value)]))
const connections: Record<string, (id: number) => Buffer> = {
  'DATA on stream 0': () => frame(TYPE.data, 0, 0, Buffer.from('x')),
  'DATA on a stream that is idle': () => frame(TYPE.data, 0, 101, Buffer.from('x')),
  'SETTINGS of five bytes': () => frame(TYPE.settings, 0, 0, Buffer.alloc(5)),
  'SETTINGS with a bad value': () => settings(2, 9),
  'a field block that is not HPACK': id => frame(TYPE.headers, END_HEADERS, id, Buffer.alloc(5, 0xff)),
  'CONTINUATION of nothing': id => frame(9, END_HEADERS, id, field('a', 'b')),
  'a window update of 0': () => frame(TYPE.window, 0, 0, uint32(0)),
  'RST_STREAM on stream 0': () => frame(TYPE.reset, 0, 0, uint32(0)),
  'HEADERS on a stream of its own': () => frame(TYPE.headers, END_HEADERS | END_STREAM, 2, field(':status', '200')),
  'a frame above the largest': id => frame(TYPE.data, 0, id, Buffer.alloc(16_385)),
}

describe.each(Object.entries(connections))('a fault of the connection ends the session at once: %s', (_what, fault) => {
  const beyond = ({ stream }: Sent) => {
    stream.head(200, { 'content-length': '2' })
    stream.data('abc')
  }
  const before: [where: string, say: (bad: Sent) => void][] = [
    ['alone', () => {}],
    ['behind a reset that names the same error', ({ stream }) => stream.reset(PROTOCOL_ERROR)],
    ['behind a malformed message', beyond],
    ['behind a PING', ({ stream }) => stream.connection.send(PING)],
  ]

  test.each(before)('%s', async (_where, say) => {
    const place = await start()
    const next = await neighbour(place)
    const bad = await send(place)
    const third = await send(place)
    bad.stream.connection.atOnce(() => {
      say(bad)
      bad.stream.connection.send(fault(third.stream.id))
    })
    await until(() => over(bad) && over(next) && over(third) && place.closed() === 1)
    expect([next.told.at(-1), third.told.at(-1), place.session.available]).toEqual([BROKEN, BROKEN, false])
  })
})

test('again and again: each malformed message costs its own stream, and the session accepts no more', async () => {
  const place = await start()
  const next = await neighbour(place)
  let refused = 0
  for (; place.session.available; refused++) {
    const bad = await send(place, 'HEAD')
    bad.stream.head(200)
    bad.stream.data('x', true)
    await until(() => over(bad))
  }
  expect(refused).toBeGreaterThan(MOST_RESETS)
  expect(next.told).toEqual(['200', 'ab'])
  next.stream.data('cd', true)
  await until(() => over(next) && place.closed() === 1)
  expect(next.told).toEqual(['200', 'ab', 'cd', 'end'])
})

test('an acknowledgement that nothing asked for does no harm', async () => {
  const place = await start()
  const next = await neighbour(place)
  next.stream.connection.send(Buffer.concat([frame(TYPE.settings, ACK, 0), frame(TYPE.ping, ACK, 0, Buffer.alloc(8))]))
  next.stream.data('cd', true)
  await until(() => over(next))
  expect([next.told, place.session.available]).toEqual([['200', 'ab', 'cd', 'end'], true])
})

describe('while the upstream does not read', () => {
  /** An upload that fills the connection. */
  async function full(place: Awaited<ReturnType<typeof start>>): Promise<Sent> {
    const upload = await send(place, 'POST', -1)
    const { connection } = upload.stream
    connection.send(Buffer.concat([settings(4, 2 ** 30), frame(TYPE.window, 0, 0, uint32(2 ** 30))]))
    // Both have arrived before this does.
    await send(place)
    connection.socket.pause()
    for (let i = 0; i < 16; i++) upload.sink.requestData(Buffer.alloc(MIB))
    return upload
  }

  test('a malformed message ends only its stream', async () => {
    const place = await start()
    const next = await neighbour(place)
    const bad = await send(place)
    const upload = await full(place)
    bad.stream.head(204)
    bad.stream.data('x', true)
    await until(() => over(bad))
    next.stream.data('cd', true)
    await until(() => over(next))
    upload.stream.connection.socket.resume()
    expect([bad.told.at(-1), next.told]).toEqual([REFUSED, ['200', 'ab', 'cd', 'end']])
    upload.sink.requestEnd([])
    await until(() => upload.stream.ended)
    upload.stream.head(204, {}, true)
    await until(() => over(upload))
    expect([upload.told, upload.stream.received]).toEqual([['204', 'end'], 16 * MIB])
  })

  test('a fault of the connection ends the session, at the latest by its pings', async () => {
    const place = await start({ http2PingMs: 100, stalledMs: 300 })
    const next = await neighbour(place)
    const upload = await full(place)
    upload.stream.connection.send(Buffer.concat([PING, frame(TYPE.reset, 0, 0, uint32(0))]))
    await until(() => over(next) && place.closed() === 1)
    expect(next.told.at(-1)).toMatch(/^upstream-(timeout|broken): /)
  })
})
