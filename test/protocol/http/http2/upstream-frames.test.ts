/** RFC 9113 at a client, frame by frame, against an upstream that may say anything. */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import type { HeaderList, ResponseHead, ResponseSink } from '../../../../protocol/exchange.ts'
import type { OutgoingRequest } from '../../../../protocol/http/http1/client-exchange.ts'
import { UnprocessedError } from '../../../../protocol/http/http2/client-exchange.ts'
import { Http2ClientSession } from '../../../../protocol/http/http2/client-session.ts'
import { HpackDecoder } from '../../../../protocol/http/http2/hpack/decoder.ts'
import type { HttpLimits } from '../../../../protocol/http/limits.ts'
import {
  ACK,
  BAD_FIELDS,
  bytes,
  continuation,
  data,
  END_HEADERS,
  END_STREAM,
  ERRORS,
  ended,
  type Fields,
  field,
  goaway,
  headers,
  indexed,
  NEWEST,
  PADDED,
  PRIORITY,
  priority,
  push,
  reset,
  setting,
  settings,
  settingsOf,
  TYPE,
  uint32,
  window,
  zeros,
} from '../../../support/http2-frames.ts'
import { Http2Peer } from '../../../support/http2-peer.ts'
import { until } from '../../../support/until.ts'

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

const LARGE_BYTES = 80_000
const WINDOW_BYTES = 65_536

class Response implements ResponseSink {
  /** Statuses, the body, trailers, and how it broke. */
  readonly words: (number | string)[] = []
  body = ''
  over = false
  consume: (bytes: number) => void = () => {}

  responseInformational(status: number): void {
    this.words.push(status)
  }

  responseHead({ status }: ResponseHead): void {
    this.words.push(status)
  }

  responseData(chunk: Uint8Array): void {
    this.body += Buffer.from(chunk).toString('latin1')
    this.consume(chunk.length)
  }

  responseEnd(trailers: HeaderList): void {
    if (this.body !== '') this.words.push(this.body.length > 40 ? `${this.body.length} bytes` : this.body)
    this.words.push(...trailers)
    this.over = true
  }

  responseAbort(error: SallyportError): void {
    this.words.push(error instanceof UnprocessedError ? 'unprocessed' : error.reason)
    this.over = true
  }

  requestConsumed(): void {}
}

const GET: OutgoingRequest = { method: 'GET', authority: 'a', path: '/', headers: [], bodyBytes: 0, upgrade: false }
const HEAD = { ...GET, method: 'HEAD' }
const POST = { ...GET, method: 'POST', bodyBytes: -1 }
const EXPECTING = { ...POST, headers: ['expect', '100-continue'] }
const WEBSOCKET = { ...GET, upgrade: true }
/** Its caller reads nothing. */
const STUCK = { ...GET, path: '/stuck' }

async function start(limits: Partial<HttpLimits> = {}, first = settings(setting('enableConnect', 1))) {
  const server = createServer({ noDelay: true }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const socket = connect({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', noDelay: true })
  const [accepted] = (await once(server, 'connection')) as [Socket]
  const scene = { gone: false, announced: false }
  const session = new Http2ClientSession(socket, {
    limits,
    onClose: () => {
      scene.gone = true
    },
    onSettings: () => {
      scene.announced = true
    },
  })
  const peer = Http2Peer.serve(accepted, first)
  open.push(
    () => server.close(),
    () => accepted.destroy(),
    () => session.destroy(),
  )
  await until(() => scene.announced || scene.gone)
  /** Resolves once the request is there. */
  const send = async (request: OutgoingRequest = GET) => {
    const response = new Response()
    const id = peer.newest === 0 ? 1 : peer.newest + 2
    const sink = session.send(request, response)
    response.consume = bytes => request !== STUCK && sink.responseConsumed(bytes)
    await peer.until(() => peer.heads(id).length > 0)
    const abort = () => {
      response.over = true
      sink.requestAbort(new SallyportError('cancelled'))
    }
    return { response, sink, id, abort }
  }
  return { ...scene, session, peer, send, gone: () => scene.gone }
}

type Scene = Awaited<ReturnType<typeof start>>
type Sent = Awaited<ReturnType<Scene['send']>>
type Step = Buffer | ((scene: Scene & Sent) => unknown)
type Row = readonly [
  name: string,
  request: OutgoingRequest,
  steps: readonly Step[],
  want: string | readonly string[] | RegExp,
]

/**
 * What the caller of stream 1 got, and how the client has reset it or ended the connection, once it has read all of `steps`.
 * If the connection stays, its next request is answered.
 */
async function verdict(request: OutgoingRequest, steps: readonly Step[]): Promise<string> {
  const scene = await start()
  const { peer, session, gone } = scene
  const first = await scene.send(request)
  const { response } = first
  for (const step of steps) await (Buffer.isBuffer(step) ? peer.send(step) : step({ ...scene, ...first }))
  await peer.ping()
  if (peer.over) {
    await until(() => response.over && gone() && !session.available)
    expect(peer.fault).toBeUndefined()
    return [...response.words, peer.farewell].join(' ')
  }
  const next = await scene.send()
  peer.send(whole(next.id))
  await until(() => next.response.over)
  await peer.ping()
  expect([next.response.words, peer.fault]).toEqual([[200], undefined])
  return [...response.words, peer.said(1)].filter(word => word !== '').join(' ')
}

function rows(section: string, all: readonly Row[]): void {
  for (const [name, request, steps, want] of all) {
    test(`${section}: ${name}`, async () => {
      const said = await verdict(request, steps)
      if (want instanceof RegExp) expect(said).toMatch(want)
      else expect([want].flat()).toContain(said)
    })
  }
}

const head = (id: number, status: string | number = 200, flags = 0, ...more: Fields) =>
  headers(id, [[':status', String(status)], ...more], END_HEADERS | flags)
const whole = (id: number, status = 200) => head(id, status, END_STREAM)
const trailers = (id: number, flags = END_STREAM, ...more: Fields) =>
  headers(id, [['x-sum', '1'], ...more], END_HEADERS | flags)
const OK = field(':status', '200')
const tick = ({ peer }: Scene) => peer.ping()

const PROTOCOL = 'upstream-broken goaway PROTOCOL_ERROR'
const SIZE = 'upstream-broken goaway FRAME_SIZE_ERROR'
const FLOW = 'upstream-broken goaway FLOW_CONTROL_ERROR'
const HPACK = 'upstream-broken goaway COMPRESSION_ERROR'
const REFUSED = 'upstream-broken reset PROTOCOL_ERROR'

describe('connection', () => {
  test.each([
    ['PING', zeros(TYPE.ping, 0, 8)],
    ['GOAWAY', goaway(0)],
    ['an unknown frame', zeros(TYPE.unknown, 0, 0)],
    ['HTTP/1.1', Buffer.from('HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n')],
  ])('3.4 %s before SETTINGS', async (_, first) => {
    const { peer, session } = await start({}, first)
    await peer.end()
    expect([session.available, peer.farewell]).toEqual([false, expect.stringMatching(/(PROTOCOL|FRAME_SIZE)_ERROR$/)])
  })

  test('6.5.2 the settings of a client, which allow no pushes', async () => {
    const { peer } = await start()
    expect(settingsOf(peer.frames[0]!)).toMatchObject({ enablePush: 0, initialWindowSize: WINDOW_BYTES })
  })

  test('6.5.2 an upstream that admits no streams is not used, and one that admits some is', async () => {
    const { peer, session } = await start({}, settings(setting('maxConcurrentStreams', 0)))
    expect(session.available).toBe(false)
    peer.send(settings(setting('maxConcurrentStreams', 1)))
    await peer.ping()
    expect(session.available).toBe(true)
  })

  test('8.3.1, 6.10 a request, with a head that is longer than a frame', async () => {
    const { peer, send } = await start()
    const fields = ['x-long', 'y'.repeat(20_000), 'te', 'trailers']
    await send({ ...GET, headers: fields })
    const pseudo = [':method', 'GET', ':scheme', 'http', ':path', '/', ':authority', 'a']
    expect([peer.heads(1)[0], peer.fault]).toEqual([[...pseudo, ...fields], undefined])
  })

  test('6.5.2 an upstream without a header table gets no references to one', async () => {
    const { peer, send } = await start({}, settings(setting('headerTableSize', 0)))
    for (let i = 0; i < 2; i++) await send({ ...GET, headers: ['x', '1'] })
    const decoder = new HpackDecoder(0)
    const heads = peer.frames.filter(({ type }) => type === TYPE.headers)
    const lists = heads.map(({ payload }) => decoder.decode(payload, 10_000, 100).fields.slice(-2))
    expect(lists).toEqual(Array(2).fill(['x', '1']))
  })
})

describe('frames', () => {
  const filled = (more: number, ...parts: (number | Buffer)[]) =>
    headers(1, bytes(...parts), END_HEADERS | END_STREAM | more)
  const answer = bytes(head(1), data(1, 'ok'), trailers(1))
  /** A request on the same connection, whose answer refers to the table. */
  const learnt = async ({ peer, send }: Scene) => {
    const { response, id } = await send()
    peer.send(headers(id, bytes(OK, NEWEST)))
    await until(() => response.over)
    expect(response.words).toEqual([200])
  }
  const flood = async ({ peer }: Scene) => {
    while (!peer.over) await peer.send(...Array(500).fill(continuation(1, [], 0)))
  }
  rows('4', [
    ['4.1 a reserved bit, and unknown flags', GET, [headers(0x8000_0001, OK, 0xd6), data(1, 'ok', 0xf7)], '200 ok'],
    ['4.1 byte by byte', GET, [({ peer }) => peer.trickle(answer)], '200 ok x-sum 1'],
    ['4.2 DATA of the largest size', GET, [head(1), ended(1, 'x'.repeat(16_384))], '200 16384 bytes'],
    ['4.2 a frame beyond it', GET, [head(1), data(1, 'x'.repeat(16_385))], /^200 upstream-broken .* FRAME_SIZE_ERROR$/],
    ['4.3 a block that breaks off', GET, [headers(1, OK.subarray(0, -1))], HPACK],
    ['4.3 an index beyond the table', GET, [headers(1, bytes(NEWEST))], HPACK],
    [
      '4.3 the table learns from a malformed answer',
      GET,
      [filled(0, field('X', '1'), indexed('x', '1')), learnt],
      REFUSED,
    ],
    ['4.3 and from trailers', GET, [head(1), headers(1, indexed('x', '1')), learnt], '200 x 1'],
    ['5.5 unknown frames', GET, [zeros(TYPE.unknown, 0, 9, 0xff), zeros(TYPE.unknown, 1, 9), whole(1)], '200'],
    ['6.1 padding', GET, [head(1), data(1, bytes(2, 'ab', 0, 0), PADDED | END_STREAM)], '200 ab'],
    ['6.1 too much padding', GET, [head(1), data(1, bytes(5, 'ab', 0, 0), PADDED)], `200 ${PROTOCOL}`],
    ['6.2 padding and a priority', GET, [filled(PADDED | PRIORITY, 1, uint32(0), 9, OK, bytes(0))], '200'],
    ['6.3 a priority of 4 bytes', GET, [zeros(TYPE.priority, 1, 4)], ['upstream-broken reset FRAME_SIZE_ERROR', SIZE]],
    ['6.4 a reset of 5 bytes', GET, [zeros(TYPE.reset, 1, 5)], SIZE],
    ['6.5 settings of 5 bytes', GET, [zeros(TYPE.settings, 0, 5)], SIZE],
    ['6.5 settings on a stream', GET, [zeros(TYPE.settings, 1, 0)], PROTOCOL],
    ['6.5 an ACK with a payload', GET, [zeros(TYPE.settings, 0, 6, ACK)], SIZE],
    ['6.5.2 ENABLE_PUSH 1', GET, [settings(setting('enablePush', 1))], PROTOCOL],
    ['6.5.2 ENABLE_PUSH 0', GET, [settings(setting('enablePush', 0)), whole(1)], '200'],
    ['6.5.2 INITIAL_WINDOW_SIZE 2^31', GET, [settings(setting('initialWindowSize', 2 ** 31))], FLOW],
    ['6.5.2 MAX_FRAME_SIZE 0', GET, [settings(setting('maxFrameSize', 0))], PROTOCOL],
    ['RFC 8441 ENABLE_CONNECT 2', GET, [settings(setting('enableConnect', 2))], PROTOCOL],
    ['6.7 a ping of 7 bytes', GET, [zeros(TYPE.ping, 0, 7)], SIZE],
    ['6.7 a ping on a stream', GET, [zeros(TYPE.ping, 1, 8)], PROTOCOL],
    ['6.8 a go-away of 7 bytes', GET, [zeros(TYPE.goaway, 0, 7)], SIZE],
    ['6.8 a go-away on a stream', GET, [zeros(TYPE.goaway, 1, 8)], PROTOCOL],
    ['6.9 an update of 3 bytes', GET, [zeros(TYPE.window, 0, 3)], SIZE],
    ['6.9 an empty update of a stream', POST, [window(1, 0)], REFUSED],
    ['6.9.1 a stream beyond 2^31 - 1', POST, [window(1, 2 ** 31 - 1)], 'upstream-broken reset FLOW_CONTROL_ERROR'],
    ['6.9.1 the connection beyond 2^31 - 1', GET, [window(0, 2 ** 31 - 1)], FLOW],
    ['6.9.2 by SETTINGS', POST, [window(1, 1), settings(setting('initialWindowSize', 2 ** 31 - 1))], FLOW],
    ['6.10 a head in three', GET, [headers(1, [], END_STREAM), continuation(1, [], 0), continuation(1, OK)], '200'],
    ['6.10 a ping within a head', GET, [headers(1, OK, END_STREAM), zeros(TYPE.ping, 0, 8)], PROTOCOL],
    ['6.10 behind a head', GET, [head(1), continuation(1)], `200 ${PROTOCOL}`],
    ['10.5 a head without an end', GET, [headers(1, OK, 0), flood], /^upstream-broken (goaway|closed)/],
  ])
})

describe('5.1 states of a stream', () => {
  const STATES: Record<string, [request: OutgoingRequest, steps: Step[], base: string]> = {
    open: [POST, [head(1)], '200'],
    'half-closed (local)': [GET, [head(1)], '200'],
    'closed by both ends': [GET, [whole(1)], '200'],
    'closed by our reset': [GET, [head(1), tick, ({ abort }) => abort(), tick], '200 reset CANCEL'],
    'closed by its reset': [GET, [reset(1)], 'upstream-broken'],
  }
  /**
   * For each state: `-` the frame changes nothing, `E` the answer is complete, `B` it is broken; `P` and `S` are errors of the
   * stream, `P!` and `S!` of the connection.
   */
  const TABLE: [name: string, bytes: Buffer, wants: string][] = [
    ['DATA', data(1), '- - -S - -S'],
    ['DATA with its end', ended(1), 'E E -S - -S'],
    ['HEADERS with its end', trailers(1), 'E E S! - -S!'],
    ['HEADERS', trailers(1, 0), 'P P S! - -S!'],
    ['PRIORITY', priority(1), '- - - - -'],
    ['RST_STREAM', reset(1), 'B B - - -'],
    ['WINDOW_UPDATE', window(1, 1), '- - -S - -S'],
    ['PUSH_PROMISE', push(1), 'P! P! P! P! P!'],
    ['CONTINUATION', continuation(1), 'P! P! P! P! P!'],
    ['an unknown frame', zeros(TYPE.unknown, 1, 9), '- - - - -'],
  ]
  function words(want: string, state: string, base: string): string | string[] | RegExp {
    const error = want.includes('P') ? 'PROTOCOL_ERROR' : 'STREAM_CLOSED'
    const isOpen = state === 'open' || state.startsWith('half')
    const cut = isOpen ? '200 upstream-broken' : base.replace(' reset CANCEL', '')
    // The rest of a request is not sent once its answer is complete.
    if (want === 'E') return state === 'open' ? /^200 (x|x-sum 1) reset (CANCEL|NO_ERROR)$/ : ['200 x', '200 x-sum 1']
    if (want === 'B') return cut
    const broken = `${cut} ${want.endsWith('!') ? 'goaway' : 'reset'} ${error}`
    return [...(want.startsWith('-') ? [base] : []), ...(/[PS]/.test(want) ? [broken] : [])]
  }
  for (const [name, frame, wants] of TABLE) {
    const states = Object.entries(STATES).map(([state, [request, steps, base]], i): Row => {
      return [state, request, [...steps, frame], words(wants.split(' ')[i]!, state, base)]
    })
    rows(name, states)
  }

  const idle: Record<string, (id: number) => Buffer> = {
    DATA: data,
    HEADERS: whole,
    RST_STREAM: reset,
    CONTINUATION: continuation,
    PUSH_PROMISE: push,
  }
  for (const [name, make] of Object.entries({ ...idle, WINDOW_UPDATE: (id: number) => window(id, id === 0 ? 0 : 1) })) {
    rows(name, [
      ['stream 0', GET, [make(0)], PROTOCOL],
      ['an idle stream', GET, [make(5)], PROTOCOL],
      ['an even stream', GET, [make(2)], PROTOCOL],
    ])
  }
})

describe('6.8, 8.7 what the upstream has not begun', () => {
  const errors = ERRORS.map((name, code): Row => {
    return [name, GET, [reset(1, code)], name === 'REFUSED_STREAM' ? 'unprocessed' : 'upstream-broken']
  })
  const early = bytes(head(1), ended(1), reset(1, 0))
  rows('RST_STREAM', [
    ...errors,
    ['an unknown code', GET, [reset(1, 0xffff_ffff)], 'upstream-broken'],
    ['behind a head', GET, [head(1), data(1), reset(1, 0)], '200 upstream-broken'],
    ['8.1 NO_ERROR behind an answer to an open request', POST, [early], /^200 x( reset (CANCEL|NO_ERROR))?$/],
  ])
  const lost: Step = ({ peer, response }) => {
    peer.socket.end()
    return until(() => response.over)
  }
  rows('8.1', [['a connection that is lost within an answer', GET, [head(1), data(1), lost], /^200 upstream-broken/]])

  test.each<[string, Buffer[], string[]]>([
    ['none', [goaway(0)], ['unprocessed', 'unprocessed']],
    ['the first', [goaway(1), whole(1)], ['200', 'unprocessed']],
    ['both', [goaway(3), whole(3), whole(1)], ['200', '200']],
    ['all, and then the first', [goaway(2 ** 31 - 1), goaway(1), whole(1)], ['200', 'unprocessed']],
    ['the first, with an error', [goaway(1, 2)], ['upstream-broken', 'unprocessed']],
    ['none, with an error', [goaway(0, 11)], ['unprocessed', 'unprocessed']],
    ['both, and the connection is lost', [goaway(3)], ['upstream-broken', 'upstream-broken']],
  ])('6.8 a go-away that names %s of two requests', async (name, frames, wants) => {
    const { peer, session, send, gone } = await start()
    const sent = [await send(), await send(POST)]
    peer.send(...frames)
    if (name.includes('lost')) peer.socket.end()
    await until(() => sent.every(({ response }) => response.over))
    expect(sent.map(({ response }) => response.words.join(' '))).toEqual(wants)
    await until(() => gone() && !session.available)
    expect(peer.fault).toBeUndefined()
  })
})

describe('8 answers', () => {
  const pseudo: typeof BAD_FIELDS = {
    'a pseudo-field of requests': [':path', '/'],
    'an unknown pseudo-field': [':other', '1'],
    'a second :status': [':status', '200'],
  }
  const each = Object.entries({ ...BAD_FIELDS, ...pseudo })
  rows(
    '8.2',
    each.map(([name, field]) => [name, GET, [head(1, 200, END_STREAM, ['x', '1'], field)], REFUSED]),
  )
  rows(
    '8.2 trailers',
    each.map(([name, field]) => [name, GET, [head(1), trailers(1, END_STREAM, field)], `200 ${REFUSED}`]),
  )
  rows(
    '8.2 informational',
    each.map(([name, field]) => [name, GET, [head(1, 103, 0, field)], REFUSED]),
  )
  const odd = ['', '2', '20', '2000', 'abc', '+20', '0200', ' 200', '99', '000']
  rows('8.3.2 :status', [
    ['none', GET, [trailers(1)], REFUSED],
    ['none, and no end', GET, [trailers(1, 0)], REFUSED],
    ...odd.map((status): Row => [`"${status}"`, GET, [head(1, status, END_STREAM)], REFUSED]),
    ['600', GET, [head(1, 600, END_STREAM)], /^upstream-broken/],
  ])
  const goesOn: Step = ({ peer, sink }) => {
    sink.requestData(Buffer.from('x'))
    sink.requestEnd([])
    return peer.settled(1)
  }
  rows('8.1', [
    ['DATA before a head', GET, [data(1)], REFUSED],
    ['DATA before a final head', GET, [head(1, 103), data(1)], `103 ${REFUSED}`],
    ['trailers without an end', GET, [head(1), data(1), trailers(1, 0)], `200 ${REFUSED}`],
    ['a second head', GET, [head(1), whole(1)], `200 ${REFUSED}`],
    ['an informational head behind the final one', GET, [head(1), head(1, 103)], `200 ${REFUSED}`],
    ['trailers and no body', GET, [head(1), trailers(1)], '200 x-sum 1'],
    ['an end without bytes', GET, [head(1), ended(1, '')], '200'],
    ['an informational head that ends', GET, [head(1, 103, END_STREAM)], REFUSED],
    ['8.6 101', GET, [head(1, 101)], REFUSED],
    ['100 that was not asked for', GET, [head(1, 100), whole(1)], '200'],
    ['100 that was asked for', EXPECTING, [head(1, 100), tick, goesOn, whole(1)], '100 200 x'],
    ['102 and 103', GET, [head(1, 102), head(1, 103), whole(1)], '102 103 200'],
    ['too many of them', GET, [bytes(...Array(40).fill(head(1, 103)))], /^(103 ){32}upstream-broken reset/],
  ])
  const sized = (length: string, ...frames: Buffer[]) => [head(1, 200, 0, ['content-length', length]), ...frames]
  const noBody = (status: number) => new RegExp(`^${status}( upstream-broken)? reset PROTOCOL_ERROR$`)
  rows('8.1.1 content-length', [
    ['the same', GET, sized('2', data(1), ended(1)), '200 xx'],
    ['less', GET, sized('2', ended(1)), /^200 upstream-broken( reset PROTOCOL_ERROR)?$/],
    ['less, and trailers', GET, sized('2', data(1), trailers(1)), /^200 upstream-broken( reset PROTOCOL_ERROR)?$/],
    ['more', GET, sized('2', data(1, 'xxx')), `200 ${REFUSED}`],
    ['no body', GET, [head(1, 200, END_STREAM, ['content-length', '1'])], REFUSED],
    ['not a number', GET, sized('+1', ended(1)), REFUSED],
    ['twice', GET, [head(1, 200, 0, ['content-length', '1'], ['content-length', '2'])], REFUSED],
    ['HEAD', HEAD, [head(1, 200, END_STREAM, ['content-length', '9'])], '200'],
    ['HEAD and an end without bytes', HEAD, sized('9', ended(1, '')), '200'],
    ['HEAD and a body', HEAD, sized('1', ended(1)), noBody(200)],
    ['304', GET, [head(1, 304, END_STREAM, ['content-length', '9'])], '304'],
    ['304 and a body', GET, [head(1, 304), ended(1)], noBody(304)],
    ['204 and a body', GET, [head(1, 204), ended(1)], noBody(204)],
  ])
  rows('RFC 8441', [
    ['a WebSocket', WEBSOCKET, [head(1), tick, goesOn, data(1, 'a'), ended(1, 'b')], '101 ab x'],
    ['8.5 HEADERS on a WebSocket', WEBSOCKET, [head(1), trailers(1)], '101 upstream-broken reset PROTOCOL_ERROR'],
    ['an answer without a WebSocket', WEBSOCKET, [whole(1, 403)], /^403/],
  ])
})

describe('windows', () => {
  const small = (size: number) => settings(setting('initialWindowSize', size))
  /** Waits for so much of a request. No more may come without more window. */
  async function gets(peer: Http2Peer, total: number): Promise<void> {
    await peer.until(() => peer.body(1).length >= total)
    await peer.ping()
    expect(peer.body(1).length).toBe(total)
  }
  async function upload(size: number, body: number) {
    const scene = await start({}, small(size))
    const { sink } = await scene.send(POST)
    if (body > 0) sink.requestData(Buffer.alloc(body, 'x'))
    sink.requestEnd([])
    return scene
  }

  test('6.9.1, 6.9.2 a body takes what its stream has, which may be less than nothing', async () => {
    const { peer } = await upload(10, 100)
    await gets(peer, 10)
    peer.send(window(1, 1))
    await gets(peer, 11)
    peer.send(small(0), window(1, 9))
    await gets(peer, 11)
    peer.send(small(2))
    await gets(peer, 12)
    peer.send(window(1, 100))
    await peer.settled(1)
    expect([peer.body(1).length, peer.fault]).toEqual([100, undefined])
  })

  test('6.9.1 a body takes what the connection has', async () => {
    const { peer } = await upload(2 ** 20, LARGE_BYTES)
    await gets(peer, 65_535)
    peer.send(window(0, 2 ** 20))
    await peer.settled(1)
    expect([peer.body(1).length, peer.fault]).toEqual([LARGE_BYTES, undefined])
  })

  test('6.9.1 an end needs no window', async () => {
    const { peer } = await upload(0, 0)
    await peer.settled(1)
    expect([peer.said(1), peer.fault]).toEqual(['', undefined])
  })

  test.each([
    [LARGE_BYTES, 0],
    [LARGE_BYTES / 4, 255],
  ])('6.9 windows of answers of %s bytes come back, with padding of %s', async (size, padding) => {
    const { peer, send } = await start({ http2SessionWindowBytes: WINDOW_BYTES })
    const sent = [await send(), await send()]
    peer.send(head(1), head(3))
    await Promise.all([1, 3].map(id => peer.upload(id, size, { padding, piece: 300 })))
    await until(() => sent.every(({ response }) => response.over))
    expect(sent.map(({ response }) => response.words)).toEqual(Array(2).fill([200, `${size} bytes`]))
    expect(peer.fault).toBeUndefined()
  })

  test('6.9 the window of the connection comes back from streams that we reset', async () => {
    const { peer, send } = await start({ http2SessionWindowBytes: WINDOW_BYTES })
    for (let i = 0; i < 10; i++) {
      const { id, abort } = await send()
      peer.send(head(id))
      await peer.ping()
      abort()
      await peer.settled(id)
      await peer.upload(id, 60_000, { end: false })
    }
    const { response, id } = await send()
    peer.send(head(id))
    await peer.upload(id, LARGE_BYTES)
    await until(() => response.over)
    expect([response.words, peer.fault]).toEqual([[200, `${LARGE_BYTES} bytes`], undefined])
  })

  const filled = (size: number) => bytes(...Array(size / 16_384).fill(data(1, Buffer.alloc(16_384))))
  const broken = /^200 upstream-broken (reset|goaway) FLOW_CONTROL_ERROR$/
  rows('6.9.1', [
    ['up to the window of a stream', STUCK, [head(1), filled(WINDOW_BYTES), ended(1, '')], '200 65536 bytes'],
    ['beyond the window of a stream', STUCK, [head(1), filled(4 * WINDOW_BYTES)], broken],
  ])
})

describe('frames that carry nothing', () => {
  const floods: Record<string, Buffer> = {
    PING: zeros(TYPE.ping, 0, 8),
    SETTINGS: settings(),
    WINDOW_UPDATE: window(1, 1),
    'DATA without bytes': data(1, ''),
    'the end of a stream that we have reset': ended(3, ''),
    'unknown frames': zeros(TYPE.unknown, 0, 0),
  }

  test('an upstream that sends too many loses its session', async () => {
    const ends = Object.entries(floods).map(async ([name, each]) => {
      const { peer, send } = await start({ http2ControlBytes: 4_096 })
      const { response } = await send()
      const cancelled = await send()
      cancelled.sink.requestAbort(new SallyportError('cancelled'))
      peer.send(head(1))
      const flood = bytes(...Array<Buffer>(500).fill(each))
      while (!response.over) {
        await peer.send(flood)
        await new Promise(resolve => setImmediate(resolve))
      }
      await peer.until(() => peer.goaways.length > 0)
      return [name, ...response.words, ERRORS[peer.goaways.at(-1)!.code]]
    })
    const expected = Object.keys(floods).map(name => [name, 200, 'upstream-broken', 'ENHANCE_YOUR_CALM'])
    expect(await Promise.all(ends)).toEqual(expected)
  })

  test('a ping and window updates for each piece of an upload are not too many', async () => {
    const { peer, send } = await start({ http2ControlBytes: 1 })
    const { response, sink } = await send(POST)
    // Long enough for two looks.
    const endMs = performance.now() + 4_500
    for (let pieces = 1; performance.now() < endMs; pieces++) {
      sink.requestData(Buffer.from('.'))
      await peer.until(() => peer.body(1).length === pieces)
      peer.send(window(0, 1), window(1, 1), zeros(TYPE.ping, 0, 8))
    }
    sink.requestEnd([])
    peer.send(headers(1, [[':status', '200']]))
    await until(() => response.over)
    expect([response.words, peer.fault]).toEqual([[200], undefined])
  })
})
