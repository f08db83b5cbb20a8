import { connect as connectHttp2 } from 'node:http2'
import { afterEach, describe, expect, test } from 'vitest'
import { SallyportError } from '../../protocol/base/errors.ts'
import {
  BODY_UNKNOWN,
  type ExchangeRecord,
  type Handler,
  type HttpRequest,
  type RequestSink,
  type ResponseSink,
} from '../../protocol/exchange.ts'
import { ConnectionSet } from '../../protocol/http/connection-set.ts'
import { type Listener, listen } from '../../protocol/http/listener.ts'
import { call, ok, type RawPeer } from '../protocol/http/http1/raw.ts'
import {
  END_HEADERS,
  END_STREAM,
  field,
  frame,
  framesOf,
  head,
  PREFACE,
  TYPE,
  WEBSOCKET_HEAD,
} from '../support/http2-frames.ts'
import { callHttp2 } from '../support/http2-session.ts'
import { DOMAIN } from '../support/secrets.ts'
import { eventually } from '../support/until.ts'
import { answering, type Edge, HOST, startEdge, stopEdges } from './edge.ts'

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

/** An upstream end that consumes nothing by itself. It records every event, and every event after its last. */
class Upstream implements RequestSink {
  readonly request: HttpRequest
  readonly #response: ResponseSink
  bytes = 0
  ends = 0
  readonly aborts: string[] = []
  readonly late: string[] = []
  /** Bytes of the response that were given, and those that have left or were discarded. */
  given = 0
  taken = 0
  answered = false

  constructor(request: HttpRequest, response: ResponseSink) {
    this.request = request
    this.#response = response
  }

  /** Every direction has ended but for what its socket has, or the caller is known to have gone. */
  get over(): boolean {
    return this.aborts.length > 0 || (this.ends > 0 && this.answered && this.given - this.taken <= IN_SOCKET)
  }

  /** Nothing of the answer is left, unless the caller is known to have gone. */
  get settled(): boolean {
    return this.aborts.length > 0 || this.taken === this.given
  }

  #note(call: string): void {
    if (this.aborts.length > 0) this.late.push(call)
  }

  requestData(chunk: Uint8Array): void {
    this.#note('data')
    this.bytes += chunk.length
  }

  requestEnd(): void {
    this.#note('end')
    this.ends++
  }

  requestAbort(error: SallyportError): void {
    this.#note('abort')
    this.aborts.push(error.reason)
  }

  responseConsumed(bytes: number): void {
    this.#note('consumed')
    this.taken += bytes
  }

  readonly response: ResponseSink = {
    responseInformational: (status, headers) => this.#response.responseInformational(status, headers),
    responseHead: response => this.#response.responseHead(response),
    responseData: chunk => {
      this.given += chunk.length
      this.#response.responseData(chunk)
    },
    responseEnd: trailers => {
      this.answered = true
      this.#response.responseEnd(trailers)
    },
    responseAbort: error => {
      this.answered = true
      this.#response.responseAbort(error)
    },
    requestConsumed: bytes => this.#response.requestConsumed(bytes),
  }
}

interface Scene {
  readonly peer: RawPeer
  readonly listener: Listener
  readonly upstream: Upstream
}

const LARGE = 200_000
/** More than one is given at a time. */
const IN_SOCKET = 192 * 1024
/** SETTINGS_INITIAL_WINDOW_SIZE: no byte of an answer's body may be sent. */
const NO_WINDOW = Buffer.from([0, 4, 0, 0, 0, 0])

async function startListener(onRequest: (one: Upstream) => void) {
  const seen: Upstream[] = []
  const handler: Handler = (request, response) => {
    const one = new Upstream(request, response)
    if (request.path === '/canary') ok(response, 'canary')
    else {
      seen.push(one)
      onRequest(one)
    }
    return one
  }
  const listener = await listen({ port: 0, handler, limits: { bufferBytes: 16_384 } })
  open.push(() => listener.close({ graceMs: 0 }))
  return { listener, seen }
}

/** Another caller is served. */
async function canary(port: number): Promise<string> {
  const other = connectHttp2(`http://127.0.0.1:${port}`)
  try {
    return await new Promise<string>((resolve, reject) => {
      let body = ''
      const stream = other.request({ ':path': '/canary', ':authority': 'a' })
      stream.on('data', chunk => (body += chunk))
      stream.on('end', () => resolve(body))
      stream.on('error', reject)
      other.on('error', reject)
    })
  } finally {
    other.destroy()
  }
}

interface State {
  readonly frames: Buffer[]
  readonly begin?: (one: Upstream) => void
  /** The caller does not read its socket. */
  readonly unread?: true
  /** Whether the exchange has got this far. */
  readonly reached: (scene: Scene) => boolean
  /** What we do at the time of the caller's end. */
  readonly act: (one: Upstream) => void
}

const data = (bytes: number, flags = 0) => {
  const frames: Buffer[] = []
  for (let left = bytes; left > 0; left -= 16_384) {
    const last = left <= 16_384
    frames.push(frame(TYPE.data, last ? flags : 0, 1, Buffer.alloc(Math.min(left, 16_384))))
  }
  return Buffer.concat(frames)
}
const headers = (method: string, flags = 0, ...more: [string, string][]) =>
  frame(TYPE.headers, END_HEADERS | flags, 1, head(method, ...more))
const connectHead = frame(TYPE.headers, END_HEADERS, 1, WEBSOCKET_HEAD)
const answer = ({ response }: Upstream) => ok(response)
const begun = ({ upstream }: Scene) => upstream !== undefined
const answered = ({ peer }: Scene) =>
  framesOf(Buffer.from(peer.text, 'latin1')).some(({ type }) => type === TYPE.headers)
const half = (bodyBytes: number) => (one: Upstream) => {
  one.response.responseHead({ status: 200, headers: [], bodyBytes })
  one.response.responseData(Buffer.alloc(LARGE / 2))
}
const rest = (one: Upstream) => {
  one.response.responseData(Buffer.alloc(LARGE / 2))
  one.response.responseEnd(['x-sum', '1'])
}
const fails = (one: Upstream) => one.response.responseAbort(new SallyportError('upstream-broken'))

const STATES: Record<string, State> = {
  'held, no body': { frames: [headers('GET', END_STREAM)], reached: begun, act: answer },
  'held, its body to come': { frames: [headers('POST')], reached: begun, act: answer },
  'held, its body paused': {
    // As much as the stream's window admits.
    frames: [headers('POST'), data(65_535)],
    reached: ({ upstream }) => (upstream?.bytes ?? 0) > 0,
    act: answer,
  },
  'held, its body whole and paused': {
    frames: [headers('POST'), data(65_535, END_STREAM)],
    reached: ({ upstream }) => (upstream?.bytes ?? 0) > 0,
    act: answer,
  },
  'held, it fails': { frames: [headers('POST'), data(65_535)], reached: begun, act: fails },
  HEAD: { frames: [headers('HEAD'), data(65_535)], reached: begun, act: answer },
  'behind a 103': {
    frames: [headers('POST'), data(65_535)],
    begin: ({ response }) => response.responseInformational(103, ['link', '</a>']),
    reached: answered,
    act: one => {
      one.response.responseInformational(103, ['link', '</b>'])
      answer(one)
    },
  },
  'before the 100': {
    frames: [headers('POST', 0, ['expect', '100-continue'])],
    reached: begun,
    act: one => {
      one.response.responseInformational(100, [])
      answer(one)
    },
  },
  'answered early, the answer unread': {
    frames: [headers('POST'), data(30_000)],
    begin: one => ok(one.response, 'x'.repeat(LARGE)),
    reached: answered,
    act: ({ response }) => response.requestConsumed(1),
  },
  'answered early, the body paused': {
    frames: [headers('POST'), data(65_535)],
    begin: ({ response }) => response.responseHead({ status: 200, headers: [], bodyBytes: 5 }),
    reached: answered,
    act: ({ response }) => {
      response.responseData(Buffer.from('early'))
      response.responseEnd([])
    },
  },
  'answered, unread': {
    frames: [headers('GET', END_STREAM)],
    begin: one => ok(one.response, 'x'.repeat(LARGE)),
    reached: answered,
    act: ({ response }) => response.responseAbort(new SallyportError('upstream-broken')),
  },
  'in the midst of an answer of known length': {
    frames: [headers('GET', END_STREAM)],
    begin: half(LARGE),
    reached: answered,
    act: rest,
  },
  'in the midst of an answer of unknown length': {
    frames: [headers('POST'), data(65_535)],
    begin: half(BODY_UNKNOWN),
    reached: answered,
    act: rest,
  },
  'in the midst of an answer, which breaks': {
    frames: [headers('POST'), data(65_535)],
    begin: half(BODY_UNKNOWN),
    reached: answered,
    act: fails,
  },
  'in the midst of an answer that the socket does not take': {
    frames: [
      frame(TYPE.settings, 0, 0, Buffer.from([0, 4, 0x7f, 0xff, 0xff, 0xff])),
      frame(TYPE.window, 0, 0, Buffer.from([0x70, 0, 0, 0])),
      headers('GET', END_STREAM),
    ],
    unread: true,
    begin: ({ response }) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
      response.responseData(Buffer.alloc(32_000_000))
    },
    reached: begun,
    act: rest,
  },
  'before the trailers of an answer': {
    frames: [headers('GET', END_STREAM)],
    begin: one => {
      one.response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
      one.response.responseData(Buffer.from('some'))
    },
    reached: answered,
    act: ({ response }) => response.responseEnd(['x-sum', '1']),
  },
  'behind the trailers of a request': {
    frames: [headers('POST'), data(30_000), frame(TYPE.headers, END_HEADERS | END_STREAM, 1, field('x-sum', '1'))],
    reached: begun,
    act: answer,
  },
  'a WebSocket before its 101': {
    frames: [connectHead, data(30_000)],
    reached: begun,
    act: ({ response }) => response.responseHead({ status: 101, headers: [], bodyBytes: 0 }),
  },
  'a WebSocket': {
    frames: [connectHead, data(30_000)],
    begin: ({ response }) => response.responseHead({ status: 101, headers: [], bodyBytes: 0 }),
    reached: answered,
    act: ({ response }) => response.responseData(Buffer.alloc(LARGE)),
  },
  'a WebSocket that we half-closed': {
    frames: [connectHead],
    begin: ({ response }) => {
      response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
      setImmediate(() => response.responseEnd([]))
    },
    reached: answered,
    act: ({ response }) => response.responseEnd([]),
  },
}

const codes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0xffff_ffff]
const number = (value: number) => {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return bytes
}
const goaway = (code: number) => frame(TYPE.goaway, 0, 0, Buffer.concat([number(0), number(code)]))

const EVENTS: Record<string, (peer: RawPeer) => void> = {
  ...Object.fromEntries(
    codes.map(code => [`RST_STREAM ${code}`, (peer: RawPeer) => peer.send(frame(TYPE.reset, 0, 1, number(code)))]),
  ),
  'GOAWAY and FIN': ({ socket }) => socket.end(goaway(0)),
  'GOAWAY with an error': peer => peer.send(goaway(11)),
  FIN: ({ socket }) => socket.end(),
  'RST of TCP': ({ socket }) => socket.resetAndDestroy(),
  'a connection error': peer => peer.send(frame(TYPE.data, 0, 0, Buffer.alloc(1))),
}

const ORDERS = ['the caller first', 'we first', 'in one turn'] as const

describe.each(Object.keys(STATES))('H6, E16: %s', name => {
  const state = STATES[name]!
  test.each(Object.keys(EVENTS))('%s', async event => {
    for (const order of ORDERS) {
      const { listener, seen } = await startListener(one => state.begin?.(one))
      const { port } = listener.address
      const peer = await call(port)
      const hello = [PREFACE, frame(TYPE.settings, 0, 0, NO_WINDOW), frame(TYPE.settings, 1, 0)]
      if (state.unread) peer.socket.pause()
      peer.send(Buffer.concat([...hello, ...state.frames]))
      const scene = () => ({ peer, listener, upstream: seen[0]! })
      await eventually(() => expect(state.reached(scene())).toBe(true))
      const { upstream } = scene()
      if (order === 'the caller first') {
        EVENTS[event]!(peer)
        // The exchange ends without any action of ours.
        await over(upstream)
        state.act(upstream)
      } else if (order === 'we first') {
        state.act(upstream)
        await new Promise(resolve => setImmediate(resolve))
        EVENTS[event]!(peer)
      } else {
        EVENTS[event]!(peer)
        state.act(upstream)
      }
      await over(upstream)
      peer.socket.destroy()
      await eventually(() => expect([listener.connections, upstream.settled]).toEqual([0, true]))
      expect([upstream.aborts.length <= 1, upstream.ends <= 1, upstream.late]).toEqual([true, true, []])
      expect(await canary(port)).toBe('canary')
      await listener.close({ graceMs: 0 })
    }
  })
})

async function over(one: Upstream): Promise<void> {
  await eventually(() => expect(one.over).toBe(true))
}

const HALVES = ['open', 'ended', 'reset'] as const
const UNWANTED = [true, false].flatMap(raw =>
  [true, false].flatMap(ours =>
    [true, false].flatMap(rest =>
      HALVES.map(theirs => [raw ? 'a WebSocket' : 'a request', ours, rest, theirs] as const),
    ),
  ),
)

/** A request or a WebSocket whose upstream end takes nothing at first. */
async function startUntaken(isRaw: boolean) {
  const connections = new ConnectionSet(10)
  const told: string[] = []
  const one = { bytes: 0, takes: false, response: undefined as unknown as ResponseSink }
  const handler: Handler = (_request, response) => {
    one.response = response
    setImmediate(() =>
      response.responseHead({ status: isRaw ? 101 : 200, headers: [], bodyBytes: isRaw ? 0 : BODY_UNKNOWN }),
    )
    return {
      requestData: ({ length }) => {
        one.bytes += length
        if (one.takes) response.requestConsumed(length)
      },
      requestEnd: () => void told.push('ended'),
      requestAbort: () => void told.push('aborted'),
      responseConsumed: () => {},
    }
  }
  const limits = { bufferBytes: 16_384, drainMs: 500 }
  const peer = await callHttp2({ handler, connections, limits }, open)
  const pings = (flags: number) =>
    framesOf(Buffer.from(peer.text, 'latin1')).filter(frame => frame.type === TYPE.ping && frame.flags === flags)
  /** Until everything that was sent has been handled. */
  const handled = async () => {
    const before = pings(1).length
    peer.send(frame(TYPE.ping, 0, 0, Buffer.alloc(8)))
    await peer.until(() => pings(1).length > before)
  }
  peer.send(Buffer.concat([PREFACE, frame(TYPE.settings, 0, 0), frame(TYPE.settings, 1, 0)]))
  return { peer, one, told, handled, unread: connections.unread }
}

describe('H6: once nobody takes the rest, nothing is left', () => {
  test.each(UNWANTED)(
    '%s, our half ended: %s, bytes wait: %s, its caller has it %s',
    async (kind, ours, rest, theirs) => {
      for (const way of ['unwanted', 'closed']) {
        const { peer, one, told, handled, unread } = await startUntaken(kind === 'a WebSocket')
        peer.send(kind === 'a WebSocket' ? connectHead : headers('POST'))
        await peer.until(() => answered({ peer } as Scene))
        if (rest) {
          peer.send(data(30_000))
          await eventually(() => expect(one.bytes).toBeGreaterThan(0))
        }
        if (ours) one.response.responseEnd([])
        await handled()
        if (theirs === 'ended') peer.send(frame(TYPE.data, END_STREAM, 1))
        if (theirs === 'reset') peer.send(frame(TYPE.reset, 0, 1, number(8)))
        await handled()
        if (way === 'unwanted') {
          one.response.unwanted?.()
          // Before our half has ended, what it sends is still wanted.
          if (ours) await eventually(() => expect(unread.usedBytes).toBe(0))
        }
        peer.socket.destroy()
        await peer.close()
        // What a caller had sent completely is still passed on.
        one.takes = true
        one.response.requestConsumed(one.bytes)
        await eventually(() => expect([way, unread.usedBytes, told.length > 0]).toEqual([way, 0, true]))
        expect(told.filter(what => what === 'aborted').length).toBeLessThan(2)
        expect(told.filter(what => what === 'ended').length).toBeLessThan(2)
      }
    },
  )
})

describe('H6, E16: through a tunnel', () => {
  afterEach(async () => {
    over.length = 0
    await stopEdges()
  })

  const post = (host: string) => {
    const pseudo = [':method', 'POST', ':scheme', 'http', ':path', '/attack', ':authority', host]
    const fields = pseudo.flatMap((name, i) => (i % 2 === 0 ? [field(name, pseudo[i + 1]!)] : []))
    return frame(TYPE.headers, END_HEADERS, 1, Buffer.concat(fields))
  }

  /** As much of a body as pauses its reading. */
  async function pausedPost(edge: Edge, host: string): Promise<RawPeer> {
    const peer = await edge.call()
    const hello = [PREFACE, frame(TYPE.settings, 0, 0), frame(TYPE.settings, 1, 0)]
    peer.send(Buffer.concat([...hello, post(host), data(65_535)]))
    const widened = () =>
      framesOf(Buffer.from(peer.text, 'latin1')).some(one => one.type === TYPE.window && one.stream === 1)
    await peer.until(widened)
    peer.send(data(60_000))
    return peer
  }

  const reset = frame(TYPE.reset, 0, 1, number(0))
  const over: ExchangeRecord[] = []
  const onExchange = (one: ExchangeRecord) => {
    if (one.path === '/attack') over.push(one)
  }
  const ended = () => eventually(() => expect(over.map(({ code }) => code)).toEqual(['cancelled']))

  test('a request that waits for its runtime gives up its place at once', async () => {
    const edge = await startEdge(answering, { onExchange, hold: { holdMs: 60_000, startupMs: 60_000 } })
    const peer = await pausedPost(edge, `away.${DOMAIN}`)
    await eventually(() => expect(edge.server.stats().heldBytes).toBeGreaterThan(65_535))
    peer.send(reset)
    await ended()
    expect(edge.server.stats()).toMatchObject({ held: 0, heldBytes: 0, heldOutcomes: { left: 1 } })
    await edge.othersUnhurt()
  })

  test('a request that its upstream already has ends there, and the session goes on', async () => {
    const edge = await startEdge(() => {}, { onExchange })
    const peer = await pausedPost(edge, HOST)
    await eventually(() => expect(edge.upstream.text).toContain('POST /attack'))
    peer.send(reset)
    await ended()
    await edge.upstream.peers[0]!.end()
    await eventually(() =>
      expect(edge.server.stats()).toMatchObject({ sessions: 2, exchanges: 0, streams: 0, bufferedBytes: 0 }),
    )
    await edge.othersUnhurt()
  })
})
