/** RFC 9113 at a server, frame by frame. */
import { afterEach, describe, expect, test } from 'vitest'
import type { Handler, HeaderList, HttpRequest, RequestSink, ResponseSink } from '../../../../protocol/exchange.ts'
import { patienceOf } from '../../../../protocol/http/connection-set.ts'
import { HpackDecoder } from '../../../../protocol/http/http2/hpack/decoder.ts'
import type { HttpLimits } from '../../../../protocol/http/limits.ts'
import { listen } from '../../../../protocol/http/listener.ts'
import { work } from '../../../support/busy.ts'
import {
  ACK,
  BAD_FIELDS,
  block,
  bytes,
  continuation,
  data,
  END_HEADERS,
  END_STREAM,
  ended,
  type Fields,
  field,
  goaway,
  headers,
  indexed,
  NEWEST,
  PADDED,
  PREFACE,
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
import { call } from '../http1/raw.ts'

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

const LARGE_BYTES = 80_000
const WINDOW_BYTES = 65_536

/** A request at the handler. Its path says what becomes of it. */
class Seen implements RequestSink {
  readonly request: HttpRequest
  readonly #response: ResponseSink
  body = ''
  answered = false
  aborted = false

  constructor(request: HttpRequest, response: ResponseSink) {
    this.request = request
    this.#response = response
    if (request.upgrade) response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
    if (request.path === '/ended') response.responseEnd([])
    if (request.path === '/early') this.answer('early')
    if (request.path === '/late') this.answer('', [], true)
    if (request.path === '/large') this.answer('x'.repeat(LARGE_BYTES))
    if (request.path === '/fields') this.answer('', ['x-long', 'y'.repeat(20_000)])
  }

  answer(body: string, headers: HeaderList = [], isLate = false): void {
    this.answered = true
    this.#response.responseHead({ status: 200, headers, bodyBytes: -1 })
    if (body !== '') this.#response.responseData(Buffer.from(body, 'latin1'))
    if (isLate) setImmediate(() => this.#response.responseEnd([]))
    else this.#response.responseEnd([])
  }

  requestData(chunk: Uint8Array): void {
    this.body += Buffer.from(chunk).toString('latin1')
    if (this.request.path !== '/stuck') this.#response.requestConsumed(chunk.length)
    if (this.request.path === '/ws') this.#response.responseData(chunk)
  }

  requestEnd(trailers: HeaderList): void {
    if (this.request.path === '/ws') this.#response.responseEnd([])
    if (this.request.path !== '/echo') return
    const { headers } = this.request
    const shown = ['cookie', 'x-kept'].map(name => headers[headers.indexOf(name) + 1 || headers.length])
    const body = this.body.length > 1_000 ? `${this.body.length} bytes` : this.body
    this.answer([body, ...shown, ...trailers].filter(Boolean).join(' '))
  }

  requestAbort(): void {
    this.aborted = true
  }

  responseConsumed(): void {}
}

async function serve(limits: Partial<HttpLimits> = {}, first?: Buffer) {
  const seen: Seen[] = []
  const handler: Handler = (request, response) => {
    const one = new Seen(request, response)
    seen.push(one)
    return one
  }
  const listener = await listen({ port: 0, handler, limits })
  open.push(() => listener.close({ graceMs: 0 }))
  const connect = async (first?: Buffer) => {
    const peer = await Http2Peer.call(listener.address.port, first)
    open.push(() => peer.socket.destroy())
    return peer
  }
  return { listener, seen, connect, peer: await connect(first) }
}

const pseudo = (method: string, path: string): Fields => [
  [':method', method],
  [':scheme', 'http'],
  [':path', path],
  [':authority', 'a'],
]
const get = (id: number, path = '/echo', ...more: Fields) => headers(id, [...pseudo('GET', path), ...more])
const post = (id: number, path = '/echo', ...more: Fields) =>
  headers(id, [...pseudo('POST', path), ...more], END_HEADERS)
const malformed = (id: number) => post(id, '/echo', ['X', '1'])
const webSocket = (id: number, path = '/ws') =>
  headers(id, [...pseudo('CONNECT', path), [':protocol', 'websocket'], ['sec-websocket-version', '13']], END_HEADERS)
const trailers = (id: number, flags = END_HEADERS | END_STREAM) => headers(id, [['x-sum', '1']], flags)
/** The block of a GET. */
const HEAD = block(pseudo('GET', '/echo'))
const KEPT = indexed('x-kept', '1')
/** A request with the field of {@link KEPT}, by its place in the table. */
const again = (id: number) => headers(id, bytes(HEAD, NEWEST))

type Step = Buffer | ((peer: Http2Peer) => Promise<void>)
const answered = (id: number) => (peer: Http2Peer) => peer.settled(id)
const begun = (id: number) => (peer: Http2Peer) => peer.until(() => peer.heads(id).length > 0)

/** A stream behind those of the tests. */
const LAST = 9_001

/**
 * What the server says of streams 1 to 99, or of the connection, once it has read all of `steps` and answered what was held.
 * If the connection stays, its next request is answered; if it ends, that of another is.
 */
async function verdict(steps: readonly Step[], limits?: Partial<HttpLimits>): Promise<string> {
  const { peer, connect, seen } = await serve(limits)
  for (const step of steps) await (Buffer.isBuffer(step) ? peer.send(step) : step(peer))
  await peer.ping()
  for (const one of seen) if (one.request.path === '/held' && !one.aborted) one.answer('held')
  peer.send(get(LAST))
  await peer.settled(LAST)
  await peer.ping()
  const ids = Array.from({ length: 50 }, (_, i) => 2 * i + 1).filter(id => peer.said(id) !== '')
  const said = ids.map(id => `${id}: ${peer.said(id)}`).join(', ')
  if (peer.over || said.includes('reset')) await until(() => seen.every(one => one.answered || one.aborted))
  const next = peer.over ? await connect() : peer
  if (peer.over) next.send(get(LAST))
  await next.settled(LAST)
  expect([next.said(LAST), peer.fault]).toEqual(['200', undefined])
  return peer.over ? peer.farewell : said
}

type Row = readonly [
  name: string,
  steps: readonly Step[],
  want: string | readonly string[] | RegExp,
  limits?: Partial<HttpLimits>,
]

function rows(section: string, all: readonly Row[]): void {
  for (const [name, steps, want, limits] of all) {
    test(`${section}: ${name}`, async () => {
      const said = await verdict(steps, limits)
      if (want instanceof RegExp) expect(said).toMatch(want)
      else expect([want].flat()).toContain(said)
    })
  }
}

const PROTOCOL = 'goaway PROTOCOL_ERROR'
const CLOSED = 'goaway STREAM_CLOSED'
const SIZE = 'goaway FRAME_SIZE_ERROR'
const FLOW = 'goaway FLOW_CONTROL_ERROR'
const HPACK = 'goaway COMPRESSION_ERROR'
const REFUSED = '1: reset PROTOCOL_ERROR'
/** Where the RFC lets a server answer. */
const REFUSED_OR_ANSWERED = /^1: (reset PROTOCOL_ERROR|4\d\d)/

describe('connection', () => {
  const first: [string, Buffer][] = [
    ['PING', zeros(TYPE.ping, 0, 8)],
    ['HEADERS', get(1)],
    ['WINDOW_UPDATE', window(0, 1)],
    ['an unknown frame', zeros(TYPE.unknown, 0, 0)],
  ]
  test.each(first)('3.4 %s before SETTINGS', async (_, first) => {
    const { peer } = await serve({}, first)
    await peer.end()
    expect(peer.farewell).toBe(PROTOCOL)
  })

  test('3.4 a preface that goes wrong is no HTTP/2', async () => {
    const { listener, seen } = await serve()
    for (let right = 1; right < PREFACE.length; right++) {
      const peer = await call(listener.address.port)
      peer.send(bytes(PREFACE.subarray(0, right), '!\r\n\r\n'))
      await peer.close()
      expect(peer.text).toMatch(/^(HTTP\/1\.1 [45]|$)/)
    }
    expect(seen).toEqual([])
  })

  test('6.5.2 the settings of a server', async () => {
    const { peer } = await serve()
    const { enablePush = 0, maxFrameSize = 16_384, ...given } = settingsOf(peer.frames[0]!)
    expect(given).toMatchObject({ maxConcurrentStreams: 100, initialWindowSize: WINDOW_BYTES, enableConnect: 1 })
    expect([enablePush, maxFrameSize]).toEqual([0, 16_384])
  })
})

describe('frames', () => {
  const many = settings(...Array(2_731).fill(setting('enablePush', 0)))
  rows('4', [
    ['4.1 a reserved bit before the id', [headers(0x8000_0001, HEAD)], '1: 200'],
    ['4.1 unknown flags', [headers(1, pseudo('POST', '/echo'), 0xd6), data(1, 'x', 0xf7)], '1: 200 x'],
    ['4.2 DATA of the largest size', [post(1), ended(1, 'x'.repeat(16_384))], '1: 200 16384 bytes'],
    ['4.2 DATA beyond it', [post(1), ended(1, 'x'.repeat(16_385))], [SIZE, '1: reset FRAME_SIZE_ERROR']],
    ['4.2 HEADERS beyond it', [get(1, '/echo', ['x', 'y'.repeat(16_384)])], SIZE],
    ['4.2 SETTINGS beyond it', [many], SIZE],
    ['4.2 an unknown frame beyond it', [zeros(TYPE.unknown, 0, 16_385)], SIZE],
    ['4.3 index 0', [get(1), headers(3, bytes(0x80))], HPACK],
    ['4.3 an index beyond the table', [headers(1, bytes(NEWEST))], HPACK],
    ['4.3 a literal that breaks off', [headers(1, HEAD.subarray(0, -1))], HPACK],
    ['4.3 an integer without end', [headers(1, Buffer.alloc(20, 0xff))], HPACK],
    ['4.3 a table larger than ours', [headers(1, bytes(0x3f, 0xe2, 0x1f, HEAD))], HPACK],
    ['4.3 a change of the table behind a field', [headers(1, bytes(HEAD, 0x20))], HPACK],
    ['4.3 Huffman with wrong padding', [headers(1, bytes(0, 0x81, 0, 1, 'a'))], HPACK],
    ['4.3 Huffman with EOS', [headers(1, bytes(0, 0x84, 0xff, 0xff, 0xff, 0xff, 1, 'a'))], HPACK],
    ['4.3 trailers that break off', [post(1), headers(1, field('x', 'y').subarray(0, -1))], HPACK],
    ['4.3 index 0 on a stream that was reset', [malformed(1), answered(1), headers(1, bytes(0x80))], HPACK],
  ])
  const long = (id: number) => headers(id, bytes(block([...pseudo('GET', '/echo'), ['x', 'y'.repeat(9_000)]]), KEPT))
  const full = { http2Streams: 1 }
  rows('4.3 the table learns from', [
    ['a malformed request', [headers(1, bytes(KEPT, field('X', '1'))), again(3)], `${REFUSED}, 3: 200 1`],
    ['a stream that was reset', [malformed(1), answered(1), headers(1, KEPT), again(3)], `${REFUSED}, 3: 200 1`],
    ['trailers', [post(1), headers(1, KEPT), again(3)], '1: 200 x-kept 1, 3: 200 1'],
    ['a head that is too large', [long(1), again(3)], /, 3: 200 1$/, { headBytes: 4_000 }],
    [
      'a request beyond the most streams',
      [get(1, '/held'), headers(3, bytes(HEAD, KEPT)), reset(1), again(5)],
      '3: reset REFUSED_STREAM, 5: 200 1',
      full,
    ],
  ])

  const request = (id: number) => bytes(post(id), data(id, 'ab'), trailers(id))
  test('4.1 frames in pieces of any size, and many at once', async () => {
    const { peer } = await serve()
    for (let size = 1; size < request(1).length; size++) {
      peer.trickle(request(2 * size - 1), size)
      await peer.settled(2 * size - 1)
      expect(peer.said(2 * size - 1)).toBe('200 ab x-sum 1')
    }
    const ids = Array.from({ length: 100 }, (_, i) => 2 * i + 1_001)
    peer.send(...ids.map(request))
    for (const id of ids) await peer.settled(id)
    expect(ids.map(id => peer.said(id))).toEqual(Array(100).fill('200 ab x-sum 1'))
    expect(peer.fault).toBeUndefined()
  })

  test('6.10 heads and trailers that are split at any byte', async () => {
    const { peer } = await serve()
    const [head, sum] = [block(pseudo('POST', '/echo')), field('x-sum', '1')]
    for (let at = 0; at <= head.length; at++) {
      const id = 2 * at + 1
      peer.send(headers(id, head.subarray(0, at), 0), continuation(id, [], 0), continuation(id, head.subarray(at)))
      peer.send(headers(id, sum.subarray(0, at), END_STREAM), continuation(id, sum.subarray(at)))
      await peer.settled(id)
      expect(peer.said(id)).toBe('200 x-sum 1')
    }
    expect(peer.fault).toBeUndefined()
  })
})

describe('5.1 states of a stream', () => {
  /** How a stream gets there, and what the server says of it by then, or once what was held is answered. */
  const STATES: Record<string, [steps: Step[], base: string]> = {
    idle: [[], ''],
    open: [[post(1)], ''],
    'half-closed (remote)': [[get(1, '/held')], '200 held'],
    'half-closed (local)': [[webSocket(1, '/ended'), answered(1)], '200'],
    'closed by both ends': [[get(1), answered(1)], '200'],
    'closed by our reset': [[malformed(1), answered(1)], 'reset PROTOCOL_ERROR'],
    'closed by its reset': [[post(1), reset(1)], ''],
  }
  /**
   * For each state: `-` the frame changes nothing, `x` the request is gone, `E` it is complete; `P` and `S` are errors of the
   * stream, `P!` and `S!` of the connection.
   */
  const TABLE: [name: string, bytes: Buffer, wants: string][] = [
    ['DATA', data(1), 'P! - S - -S - -S'],
    ['DATA with its end', ended(1), 'P! E S - -S - -S'],
    ['HEADERS with its end', trailers(1), 'P E S P S! - -S!'],
    ['HEADERS', trailers(1, END_HEADERS), 'P P S P S! - -S!'],
    ['PRIORITY', priority(1), '- - - - - - -'],
    ['RST_STREAM', reset(1), 'P! - x - - - -'],
    ['WINDOW_UPDATE', window(1, 1), 'P! - - - -S - -S'],
    ['PUSH_PROMISE', push(1), 'P! P! P! P! P! P! P!'],
    ['CONTINUATION', continuation(1), 'P! P! P! P! P! P! P!'],
    ['an unknown frame', zeros(TYPE.unknown, 1, 9), '- - - - - - -'],
  ]
  function words(want: string, base: string): string[] {
    if (want === 'E') return ['1: 200 x', '1: 200 x-sum 1']
    const same = base === '' || want === 'x' ? '' : `1: ${base}`
    const error = want.includes('P') ? 'PROTOCOL_ERROR' : 'STREAM_CLOSED'
    const broken = want.endsWith('!') ? `goaway ${error}` : `1: ${base === '200' ? '200 ' : ''}reset ${error}`
    return [...(/[-x]/.test(want) ? [same] : []), ...(/[PS]/.test(want) ? [broken] : [])]
  }
  for (const [name, frame, wants] of TABLE) {
    const states = Object.entries(STATES).map(([state, [steps, base]], i): Row => {
      return [state, [...steps, frame], words(wants.split(' ')[i]!, base)]
    })
    rows(name, states)
  }
})

describe('streams', () => {
  const [one, two] = [{ http2Streams: 1 }, { http2Streams: 2 }]
  rows('5.1.1', [
    ['stream 0', [get(0)], PROTOCOL],
    ['an even stream', [get(2)], PROTOCOL],
    ['a stream below the last', [get(5), get(3)], [PROTOCOL, CLOSED]],
    ['the same stream twice', [get(1), answered(1), get(1)], CLOSED],
    ['streams that skip', [get(1), get(7), get(99)], '1: 200, 7: 200, 99: 200'],
  ])
  rows('5.1.2', [
    [
      'beyond the most streams',
      [get(1, '/held'), get(3, '/held'), get(5), reset(3), get(7)],
      '1: 200 held, 5: reset REFUSED_STREAM, 7: 200',
      two,
    ],
    [
      'a body for one that was refused',
      [get(1, '/held'), post(3), answered(3), data(3), ended(3), reset(1)],
      '3: reset REFUSED_STREAM',
      one,
    ],
    [
      'a stream that ends makes room at once',
      [get(1), answered(1), get(3), answered(3), get(5), answered(5)],
      '1: 200, 3: 200, 5: 200',
      one,
    ],
  ])
  rows('5.5', [
    ['an unknown frame', [zeros(TYPE.unknown, 0, 16_384, 0xff)], ''],
    ['within a head', [headers(1, HEAD, END_STREAM), zeros(TYPE.unknown, 1, 0), continuation(1)], PROTOCOL],
    ['unknown settings', [settings(bytes(0xff, 0xff, 'abcd')), get(1)], '1: 200'],
  ])
})

describe('frame types', () => {
  const padded = (length: number, body: string, padding: number) => bytes(length, body, Buffer.alloc(padding))
  const filled = (bytes: Buffer, more: number) => headers(1, bytes, END_HEADERS | END_STREAM | more)
  rows('6.1 DATA', [
    ['stream 0', [data(0)], PROTOCOL],
    ['an even stream', [data(2)], PROTOCOL],
    ['padding', [post(1), data(1, padded(3, 'ab', 3), PADDED | END_STREAM)], '1: 200 ab'],
    ['nothing but padding', [post(1), data(1, padded(255, '', 255), PADDED), ended(1)], '1: 200 x'],
    ['as much padding as the frame', [post(1), data(1, padded(3, 'ab', 0), PADDED)], PROTOCOL],
    ['more padding than the frame', [post(1), data(1, padded(200, 'ab', 1), PADDED)], PROTOCOL],
    ['padding without its length', [post(1), data(1, '', PADDED)], [PROTOCOL, SIZE]],
    ['without bytes, and an end without bytes', [post(1), data(1, ''), data(1), ended(1, '')], '1: 200 x'],
  ])
  rows('6.2 HEADERS', [
    ['padding', [filled(bytes(9, HEAD, Buffer.alloc(9)), PADDED)], '1: 200'],
    ['more padding than the frame', [filled(bytes(255, HEAD), PADDED)], PROTOCOL],
    ['padding without its length', [filled(bytes(), PADDED)], [PROTOCOL, SIZE]],
    ['a priority', [filled(bytes(uint32(0), 9, HEAD), PRIORITY)], '1: 200'],
    ['padding and a priority', [filled(bytes(1, uint32(0), 9, HEAD, 0), PADDED | PRIORITY)], '1: 200'],
    ['a priority that breaks off', [filled(Buffer.alloc(4), PRIORITY)], [PROTOCOL, SIZE]],
    ['padding in place of the priority', [filled(padded(5, '', 5), PADDED | PRIORITY)], [PROTOCOL, SIZE]],
    ['an empty block', [headers(1, [])], REFUSED],
  ])
  rows('6.3 PRIORITY', [
    ['stream 0', [priority(0)], PROTOCOL],
    ['4 bytes', [post(1), zeros(TYPE.priority, 1, 4)], ['1: reset FRAME_SIZE_ERROR', SIZE]],
    ['6 bytes', [post(1), zeros(TYPE.priority, 1, 6)], ['1: reset FRAME_SIZE_ERROR', SIZE]],
    ['on itself', [priority(1, 1), get(1)], ['1: 200', REFUSED, PROTOCOL]],
    ['a stream far above', [priority(77), get(1)], '1: 200'],
  ])
  rows('6.4 RST_STREAM', [
    ['stream 0', [reset(0)], PROTOCOL],
    ['an even stream', [reset(2)], PROTOCOL],
    ['3 bytes', [post(1), zeros(TYPE.reset, 1, 3)], SIZE],
    ['5 bytes', [post(1), zeros(TYPE.reset, 1, 5)], SIZE],
    ['twice', [post(1), reset(1), reset(1)], ''],
    ['7 an unknown code', [get(1, '/held'), reset(1, 0xffff_ffff)], ''],
    ['NO_ERROR', [get(1, '/held'), reset(1, 0)], ''],
  ])
  const wide = (size: number) => settings(setting('initialWindowSize', size))
  const framed = (size: number) => settings(setting('maxFrameSize', size))
  rows('6.5 SETTINGS', [
    ['an ACK with a payload', [zeros(TYPE.settings, 0, 6, ACK)], SIZE],
    ['a stream', [zeros(TYPE.settings, 1, 0)], PROTOCOL],
    ['5 bytes', [zeros(TYPE.settings, 0, 5)], SIZE],
    ['an unasked ACK', [zeros(TYPE.settings, 0, 0, ACK), get(1)], ['1: 200', PROTOCOL]],
    ['6.5.2 ENABLE_PUSH 1', [settings(setting('enablePush', 1)), get(1)], '1: 200'],
    ['6.5.2 ENABLE_PUSH 2', [settings(setting('enablePush', 2))], PROTOCOL],
    ['6.5.2 INITIAL_WINDOW_SIZE 2^31 - 1', [wide(2 ** 31 - 1), get(1)], '1: 200'],
    ['6.5.2 INITIAL_WINDOW_SIZE 2^31', [wide(2 ** 31)], FLOW],
    ['6.5.2 MAX_FRAME_SIZE 2^14 - 1', [framed(2 ** 14 - 1)], PROTOCOL],
    ['6.5.2 MAX_FRAME_SIZE 2^24 - 1', [framed(2 ** 24 - 1), get(1)], '1: 200'],
    ['6.5.2 MAX_FRAME_SIZE 2^24', [framed(2 ** 24)], PROTOCOL],
    ['6.5.2 MAX_CONCURRENT_STREAMS 0', [settings(setting('maxConcurrentStreams', 0)), get(1)], '1: 200'],
    ['6.5.2 HEADER_TABLE_SIZE 2^32 - 1', [settings(setting('headerTableSize', 2 ** 32 - 1)), get(1)], '1: 200'],
  ])
  rows('6.6 PUSH_PROMISE', [['stream 0', [push(0)], PROTOCOL]])
  rows('6.7 PING', [
    ['a stream', [zeros(TYPE.ping, 1, 8)], PROTOCOL],
    ['7 bytes', [zeros(TYPE.ping, 0, 7)], SIZE],
    ['9 bytes', [zeros(TYPE.ping, 0, 9)], SIZE],
    ['an ACK of 7 bytes', [zeros(TYPE.ping, 0, 7, ACK)], SIZE],
    ['an unasked ACK', [zeros(TYPE.ping, 0, 8, ACK), get(1)], ['1: 200', PROTOCOL]],
  ])
  rows('6.8 GOAWAY', [
    ['a stream', [zeros(TYPE.goaway, 1, 8)], PROTOCOL],
    ['7 bytes', [zeros(TYPE.goaway, 0, 7)], SIZE],
  ])
  rows('6.9 WINDOW_UPDATE', [
    ['3 bytes', [zeros(TYPE.window, 0, 3)], SIZE],
    ['5 bytes', [post(1), zeros(TYPE.window, 1, 5)], SIZE],
    ['nothing for a stream', [post(1), window(1, 0)], REFUSED],
    ['nothing for the connection', [window(0, 0)], PROTOCOL],
    ['a reserved bit', [post(1), window(1, 0x8000_0001), ended(1)], '1: 200 x'],
    ['an even stream', [window(2, 1)], PROTOCOL],
    ['6.9.1 a stream beyond 2^31 - 1', [post(1), window(1, 2 ** 31 - 1)], '1: reset FLOW_CONTROL_ERROR'],
    ['6.9.1 a stream of 2^31 - 1', [post(1), window(1, 2 ** 31 - 1 - 65_535), ended(1)], '1: 200 x'],
    ['6.9.1 the connection beyond 2^31 - 1', [window(0, 2 ** 31 - 1)], FLOW],
    ['6.9.2 a stream beyond 2^31 - 1 by SETTINGS', [post(1), window(1, 1), wide(2 ** 31 - 1)], FLOW],
  ])
  const half = headers(1, HEAD, END_STREAM)
  rows('6.10 CONTINUATION', [
    ['stream 0', [half, continuation(0)], PROTOCOL],
    ['another stream', [post(3), headers(5, HEAD, END_STREAM), continuation(3)], PROTOCOL],
    ['behind the end of a head', [get(1, '/held'), continuation(1)], PROTOCOL],
    ['DATA within a head', [headers(1, HEAD, 0), data(1), continuation(1)], PROTOCOL],
    ['PING within a head', [half, zeros(TYPE.ping, 0, 8)], PROTOCOL],
    ['HEADERS within a head', [half, get(3)], PROTOCOL],
    ['SETTINGS within trailers', [post(1), headers(1, [['x', '1']], END_STREAM), settings()], PROTOCOL],
  ])
})

describe('windows', () => {
  /** Waits for so much of an answer. No more may come without more window. */
  async function gets(peer: Http2Peer, id: number, total: number): Promise<void> {
    await peer.until(() => peer.body(id).length >= total)
    await peer.ping()
    expect(peer.body(id).length).toBe(total)
  }
  const small = (size: number) => settings(setting('initialWindowSize', size))
  const large = `200 ${LARGE_BYTES} bytes`

  test('6.9.1 an answer takes what its stream has', async () => {
    const { peer } = await serve({}, small(10))
    peer.send(get(1, '/large'))
    await gets(peer, 1, 10)
    peer.send(window(1, 1))
    await gets(peer, 1, 11)
    peer.send(window(1, 50_000))
    await gets(peer, 1, 50_011)
    peer.send(window(1, 2 ** 30), window(0, 2 ** 30))
    await peer.settled(1)
    expect([peer.said(1), peer.fault]).toEqual([large, undefined])
  })

  test('6.9.1 answers take what the connection has', async () => {
    const { peer } = await serve({}, small(2 ** 30))
    peer.send(get(1, '/large'))
    await gets(peer, 1, 65_535)
    peer.send(get(3, '/large'), window(0, 5))
    await peer.until(() => peer.body(1).length + peer.body(3).length >= 65_540)
    peer.send(reset(1), window(0, 2 ** 30))
    await peer.settled(3)
    expect([peer.said(3), peer.fault]).toEqual([large, undefined])
  })

  test('6.9.2 a window falls below zero', async () => {
    const { peer } = await serve({}, small(100))
    peer.send(get(1, '/large'))
    await gets(peer, 1, 100)
    peer.send(small(40), window(1, 60))
    await gets(peer, 1, 100)
    peer.send(window(1, 7))
    await gets(peer, 1, 107)
    peer.send(small(140))
    await gets(peer, 1, 207)
    expect(peer.fault).toBeUndefined()
  })

  test('6.9.1 an end needs no window', async () => {
    const { peer } = await serve({}, small(0))
    peer.send(get(1), get(3, '/late'), get(5, '/early'))
    await peer.settled(1)
    await peer.settled(3)
    await gets(peer, 5, 0)
    peer.send(small(5))
    await peer.settled(5)
    expect([1, 3, 5].map(id => peer.said(id))).toEqual(['200', '200', '200 early'])
    expect(peer.fault).toBeUndefined()
  })

  test.each([
    [LARGE_BYTES, 0],
    [LARGE_BYTES / 4, 255],
  ])('6.9 windows of uploads of %s bytes come back, with padding of %s', async (size, padding) => {
    const { peer } = await serve({ http2SessionWindowBytes: WINDOW_BYTES })
    peer.send(post(1), post(3))
    await Promise.all([1, 3].map(id => peer.upload(id, size, { padding, piece: 300 })))
    await peer.settled(1)
    await peer.settled(3)
    expect([peer.said(1), peer.said(3)]).toEqual(Array(2).fill(`200 ${size} bytes`))
    expect(peer.fault).toBeUndefined()
  })

  test.each<[string, (id: number) => Buffer, string]>([
    ['we reset', malformed, 'reset PROTOCOL_ERROR'],
    ['its caller reset', id => bytes(post(id, '/held'), reset(id)), 'reset STREAM_CLOSED'],
    ['was answered early', id => post(id, '/early'), '200 early'],
  ])('6.9 the window of the connection comes back from a stream that %s', async (_, frames, said) => {
    const { peer } = await serve({ http2SessionWindowBytes: WINDOW_BYTES })
    for (let id = 1; id < 20; id += 2) {
      peer.send(frames(id))
      if (said !== 'reset STREAM_CLOSED') await peer.settled(id)
      await peer.upload(id, 60_000, { end: false })
    }
    peer.send(post(21))
    await peer.upload(21, LARGE_BYTES)
    await peer.settled(21)
    expect([peer.said(1), peer.said(21), peer.fault]).toEqual([said, large, undefined])
  })

  const filled = (id: number, size = WINDOW_BYTES) =>
    bytes(...Array(size / 16_384).fill(data(id, Buffer.alloc(16_384))))
  const stuck = bytes(post(1, '/stuck'), filled(1))
  rows('6.9.1', [
    ['a body that is not read, up to the window of its stream', [stuck, reset(1)], ''],
    ['an end without bytes behind it', [stuck, ended(1, ''), reset(1)], ''],
    ['beyond the window', [bytes(stuck, filled(1, 2 * WINDOW_BYTES))], ['1: reset FLOW_CONTROL_ERROR', FLOW]],
  ])

  test('4.2, 6.10 a head that is longer than a frame', async () => {
    const { peer } = await serve()
    peer.send(get(1, '/fields'))
    await peer.settled(1)
    expect([peer.heads(1)[0]?.includes('y'.repeat(20_000)), peer.fault]).toEqual([true, undefined])
  })

  test('6.5.2 a caller without a header table gets no references to one', async () => {
    const { peer } = await serve()
    peer.send(get(1, '/early'))
    await peer.settled(1)
    peer.send(settings(setting('headerTableSize', 0)))
    await peer.ping()
    const from = peer.frames.length
    peer.send(get(3, '/early'), get(5, '/early'))
    await peer.settled(5)
    const blocks = peer.frames.slice(from).flatMap(({ type, payload }) => (type === TYPE.headers ? [payload] : []))
    const decoder = new HpackDecoder(0)
    expect(blocks.map(bytes => decoder.decode(bytes, 10_000, 100).fields[1])).toEqual(['200', '200'])
    expect(blocks[0]![0]).toBe(0x20)
  })
})

describe('8 requests', () => {
  const usual = pseudo('POST', '/echo')
  const without = (name: string) => usual.filter(([given]) => given !== name)
  const changed = (name: string, value: string): Fields =>
    usual.map(([given, old]) => [given, given === name ? value : old])
  const heads = (section: string, all: Record<string, Fields>, want: string | RegExp = REFUSED) =>
    rows(
      section,
      Object.entries(all).map(([name, fields]) => [name, [headers(1, fields)], want]),
    )
  const each = Object.entries({ ...BAD_FIELDS, te: ['te', 'gzip'] as const })
  rows(
    '8.2',
    each.map(([name, field]) => [name, [get(1, '/echo', ['x', '1'], field)], REFUSED]),
  )
  rows(
    '8.2 trailers',
    each.map(([name, field]) => [name, [post(1), data(1), headers(1, [['x', '1'], field])], REFUSED]),
  )
  rows('8.2', [
    ['te: trailers', [get(1, '/echo', ['te', 'trailers'])], '1: 200'],
    ['an empty value', [get(1, '/echo', ['x', ''])], '1: 200'],
    ['a value with bytes above 0x7f', [get(1, '/echo', ['x-kept', '\xe9'])], '1: 200 \xe9'],
    ['8.2.3 cookies are one', [get(1, '/echo', ['cookie', 'a=b'], ['cookie', 'c=d'])], '1: 200 a=b; c=d'],
  ])
  heads('8.3', {
    'no :method': without(':method'),
    'no :scheme': without(':scheme'),
    'no :path': without(':path'),
    'an empty :path': changed(':path', ''),
    'a second :method': [...usual, [':method', 'POST']],
    'a second :path': [...usual, [':path', '/other']],
    'a second :authority': [...usual, [':authority', 'a']],
    'an unknown one': [...usual, [':other', '1']],
    'that of a response': [...usual, [':status', '200']],
    'one behind a field': [...without(':path'), ['x', '1'], [':path', '/echo']],
    'LF in :path': changed(':path', '/a\nb'),
    'NUL in :authority': changed(':authority', 'a\0'),
    '8.5 CONNECT with :path': changed(':method', 'CONNECT'),
    'RFC 8441 :protocol without CONNECT': [...usual, [':protocol', 'websocket']],
    'RFC 8441 :protocol without :path': [
      [':method', 'CONNECT'],
      [':protocol', 'websocket'],
      [':authority', 'a'],
    ],
  })
  heads(
    '8.3.1',
    {
      'a space in :method': changed(':method', 'GET /'),
      'a :path without a slash': changed(':path', 'echo'),
      'a :path of another form': changed(':path', 'http://a/echo'),
      'a fragment in :path': changed(':path', '/echo#a'),
      'a space in :path': changed(':path', '/ec ho'),
      'a :path of * with POST': changed(':path', '*'),
      'an empty :authority': changed(':authority', ''),
      'a name before :authority': changed(':authority', 'a@b'),
      'another host': [...usual, ['host', 'b']],
      'two hosts': [...usual, ['host', 'a'], ['host', 'a']],
    },
    REFUSED_OR_ANSWERED,
  )
  rows('8.3.1', [
    ['a host alone', [headers(1, [...without(':authority'), ['host', 'a']])], '1: 200'],
    ['a host that is the same', [get(1, '/echo', ['host', 'a'])], '1: 200'],
    ['pseudo-fields in any order', [headers(1, [...usual].reverse())], '1: 200'],
  ])
  rows('8.1 trailers', [
    ['without an end', [post(1), data(1), trailers(1, END_HEADERS)], REFUSED],
    ['with a pseudo-field', [post(1), data(1), headers(1, [[':method', 'GET']])], REFUSED],
    ['without a field', [post(1), data(1), headers(1, [])], '1: 200 x'],
    ['straight behind the head', [post(1), trailers(1)], '1: 200 x-sum 1'],
  ])
  const sized = (length: string, ...frames: Buffer[]): Step[] => [
    post(1, '/echo', ['content-length', length]),
    ...frames,
  ]
  const odd = ['', '+1', '-1', '1,1', '1 1', '0x1', '1e0', '99999999999999999999']
  rows('8.1.1 content-length', [
    ['the same', sized('2', data(1), ended(1)), '1: 200 xx'],
    ['the same, and trailers', sized('1', data(1), trailers(1)), '1: 200 x x-sum 1'],
    ['0 and an end without bytes', sized('0', ended(1, '')), '1: 200'],
    ['less', sized('3', ended(1)), REFUSED],
    ['less, and trailers', sized('3', data(1), trailers(1)), REFUSED],
    ['more', sized('3', data(1, 'xxxx')), REFUSED],
    ['more in several frames', sized('3', data(1, 'xx'), data(1, 'xx')), REFUSED],
    ['0 and more', sized('0', data(1)), REFUSED],
    ['no body', [headers(1, [...usual, ['content-length', '1']])], REFUSED],
    ...odd.map((length): Row => [`"${length}"`, sized(length, ended(1)), REFUSED]),
    ['twice', [post(1, '/echo', ['content-length', '1'], ['content-length', '2']), ended(1)], REFUSED_OR_ANSWERED],
  ])
  const other = headers(1, [...pseudo('CONNECT', '/ws'), [':protocol', 'other']], END_HEADERS)
  const connect = headers(
    1,
    [
      [':method', 'CONNECT'],
      [':authority', 'a:1'],
    ],
    END_HEADERS,
  )
  rows('8.5', [
    ['CONNECT', [connect], /^1: (reset|[45]\d\d)/],
    ['CONNECT without :authority', [headers(1, [[':method', 'CONNECT']])], /^1: (reset|[45]\d\d)/],
    ['RFC 8441 another protocol', [other], /^1: (reset|[45]\d\d)/],
    ['RFC 8441 a WebSocket', [webSocket(1), begun(1), data(1, 'ab'), ended(1, 'c')], '1: 200 abc'],
    ['RFC 8441 a WebSocket that is reset', [webSocket(1), begun(1), reset(1)], '1: 200 ...'],
    ['HEADERS on a WebSocket', [webSocket(1), begun(1), trailers(1)], '1: 200 reset PROTOCOL_ERROR'],
  ])
})

test('10.5 floods end the connection', async () => {
  /** Sends as fast as the server reads, for longer than it should. */
  const flood = (make: (id: number) => Buffer) => async (peer: Http2Peer) => {
    const endMs = performance.now() + 60_000
    for (let id = 1; !peer.over && performance.now() < endMs; id += 1_000) {
      await peer.send(...Array.from({ length: 500 }, (_, i) => make(id + 2 * i)))
      await new Promise(resolve => setImmediate(resolve))
    }
  }
  const wide = settings(...Array(2_730).fill(setting('enablePush', 0)))
  const floods: Record<string, [make: (id: number) => Buffer, ...before: Step[]]> = {
    'CONTINUATION without bytes': [() => continuation(1, [], 0), headers(1, HEAD, 0)],
    CONTINUATION: [() => continuation(1, [['x', 'y'.repeat(1_000)]], 0), headers(1, HEAD, 0)],
    'DATA without bytes': [() => data(1, ''), post(1)],
    'DATA on a stream that was reset': [() => data(1, ''), post(1), reset(1)],
    PING: [() => zeros(TYPE.ping, 0, 8)],
    SETTINGS: [() => settings()],
    'SETTINGS with as much as fits': [() => wide],
    PRIORITY: [() => priority(1)],
    WINDOW_UPDATE: [() => window(1, 1), post(1)],
    'unknown frames': [() => zeros(TYPE.unknown, 0, 0)],
    'requests that are reset': [id => bytes(get(id, '/held'), reset(id))],
    'requests that we reset': [id => bytes(get(id, '/held'), window(id, 0))],
    'malformed requests': [malformed],
    'HEADERS on a stream that we have reset': [() => get(1), post(1), window(1, 0)],
    'requests beyond the most streams': [id => get(id, '/held')],
  }
  const ends = Object.entries(floods).map(async ([name, [make, ...before]]) => {
    // A flood from a busy machine is one, too.
    const said = await verdict([...before, flood(make)], { http2ControlBytes: 4_096 })
    return /^(goaway (ENHANCE_YOUR_CALM|NO_ERROR)|closed)/.test(said) ? [] : [name]
  })
  expect((await Promise.all(ends)).flat()).toEqual([])
})

describe('6.8 going away', () => {
  test('a caller that goes away gets its answer, and then the connection ends', async () => {
    const { peer, seen } = await serve()
    peer.send(get(1, '/held'), goaway(0, 0, 'debug'))
    await until(() => seen.length === 1)
    await peer.ping()
    seen[0]!.answer('held')
    await peer.end()
    expect([peer.said(1), peer.fault]).toEqual(['200 held', undefined])
  })

  test('a listener that closes answers what it has begun, and names the last of it', async () => {
    const { peer, seen, listener } = await serve()
    peer.send(get(1, '/held'))
    await until(() => seen.length === 1)
    const closed = listener.close({ graceMs: 5_000 })
    await peer.until(() => peer.goaways.length > 0)
    // It was sent before its caller had read that.
    peer.send(post(3), data(3, 'x'), trailers(3), get(5))
    await peer.ping()
    seen[0]!.answer('held')
    await peer.end()
    await closed
    const { last, code } = peer.goaways.at(-1)!
    expect([peer.said(1), code, peer.fault]).toEqual(['200 held', 0, undefined])
    // What is above it was not begun.
    expect([last, seen.length]).toEqual([1, 1])
  })

  const bothAnswered = async (peer: Http2Peer, seen: readonly Seen[], closed: Promise<void>) => {
    for (const one of seen) one.answer('held')
    await peer.end()
    await closed
    expect([peer.said(1), peer.said(3), peer.fault]).toEqual(['200 held', '200 held', undefined])
  }

  test('a listener that closes answers what was on its way', async () => {
    const { peer, seen, listener } = await serve()
    peer.send(get(1, '/held'))
    await until(() => seen.length === 1)
    const closed = listener.close({ graceMs: 5_000 })
    // Its caller has not read the go-away yet.
    peer.send(get(3, '/held'))
    await until(() => seen.length === 2)
    await bothAnswered(peer, seen, closed)
    expect(peer.goaways).toEqual([
      { last: 2 ** 31 - 1, code: 0 },
      { last: 3, code: 0 },
    ])
  })

  test('a listener that closes answers what was on its way on a connection that had just begun', async () => {
    const { peer, seen, listener } = await serve()
    const closed = listener.close({ graceMs: 5_000 })
    // Its caller does not read the go-away yet.
    peer.socket.pause()
    peer.send(get(1, '/held'))
    await until(() => seen.length === 1)
    peer.send(get(3, '/held'))
    await until(() => seen.length === 2)
    peer.socket.resume()
    await bothAnswered(peer, seen, closed)
    expect(peer.goaways.at(-1)).toEqual({ last: 3, code: 0 })
  })

  test('a listener that closes answers what came while it stood still itself', async () => {
    const { peer, seen, listener } = await serve()
    peer.send(get(1, '/held'))
    await until(() => seen.length === 1)
    const closed = listener.close({ graceMs: 4000 })
    // Its caller has not read the go-away yet, and the kernel has its request.
    peer.send(get(3, '/held'))
    work(patienceOf(4000) + 50)
    await until(() => seen.length === 2)
    await bothAnswered(peer, seen, closed)
  })

  test('an answer to another ping does not say that the go-away was read', async () => {
    const { peer, seen, listener } = await serve()
    peer.send(get(1, '/held'))
    await until(() => seen.length === 1)
    peer.socket.pause()
    const closed = listener.close({ graceMs: 5_000 })
    peer.send(zeros(TYPE.ping, 0, 8, ACK), get(3, '/held'))
    await until(() => seen.length === 2)
    peer.socket.resume()
    await bothAnswered(peer, seen, closed)
  })

  test('an error of the connection names the last stream that was begun', async () => {
    const { peer } = await serve()
    peer.send(get(1), get(3))
    await peer.settled(3)
    peer.send(data(0))
    await peer.end()
    expect(peer.goaways).toEqual([{ last: 3, code: 1 }])
  })
})
