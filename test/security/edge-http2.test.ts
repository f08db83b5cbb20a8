/**
 * security.md, "Edge, HTTP/2": floods of raw frames. Each ends its own session while another caller is still served.
 */
import { connect as connectHttp2 } from 'node:http2'
import { afterEach, describe, expect, test } from 'vitest'
import { BODY_UNKNOWN } from '../../protocol/exchange.ts'
import type { HttpLimits } from '../../protocol/http/limits.ts'
import { listen } from '../../protocol/http/listener.ts'
import { call, ok, type RawPeer, recorder, type Seen } from '../protocol/http/http1/raw.ts'
import { unhurried } from '../support/busy.ts'
import {
  bytes,
  END_HEADERS,
  END_STREAM,
  type Fields,
  type Frame,
  field,
  frame,
  framesOf,
  head,
  headers,
  length,
  PADDED,
  PREFACE,
  reset,
  TYPE,
  uint32,
  WEBSOCKET_HEAD,
} from '../support/http2-frames.ts'
import { Http2Peer } from '../support/http2-peer.ts'
import { eventually } from '../support/until.ts'

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

async function startWithPeer(answer: (seen: Seen) => void = () => {}, limits?: Partial<HttpLimits>) {
  const { handler, seen } = recorder(one => {
    if (one.request.path === '/canary') ok(one.response, 'canary')
    else answer(one)
  })
  const listener = await listen({ port: 0, handler, limits })
  const { port } = listener.address
  const peer = await call(port)
  const other = connectHttp2(`http://127.0.0.1:${port}`)
  open.push(
    () => listener.close({ graceMs: 0 }),
    () => other.destroy(),
    () => peer.socket.destroy(),
  )
  const canary = () =>
    new Promise<string>((resolve, reject) => {
      let body = ''
      const stream = other.request({ ':path': '/canary', ':authority': 'a' })
      stream.on('data', chunk => (body += chunk))
      stream.on('end', () => resolve(body))
      stream.on('error', reject)
    })
  expect(await canary()).toBe('canary')
  peer.send(Buffer.concat([PREFACE, frame(TYPE.settings, 0, 0), frame(TYPE.settings, 1, 0)]))
  return { peer, canary, seen }
}

/** Sends until the server ends the session or the bound is reached; returns how often it sent. */
async function flood(peer: RawPeer, most: number, make: (n: number) => Buffer): Promise<number> {
  let n = 0
  for (; n < most && !peer.closed && !peer.ended; n++) {
    if (!peer.socket.write(make(n))) {
      await Promise.race([new Promise(resolve => peer.socket.once('drain', resolve)), peer.close()])
    }
    if (n % 50 === 0) await new Promise(resolve => setImmediate(resolve))
  }
  await peer.end()
  return n
}

const PSEUDO: Fields = [
  [':method', 'GET'],
  [':scheme', 'http'],
  [':authority', 'a'],
]

describe('H1: resets', () => {
  const cancel = Buffer.from([0, 0, 0, 8])
  test('H1: rapid reset: the session ends soon, a request that arrives with its reset is not begun, others are served', async () => {
    const { peer, canary, seen } = await startWithPeer()
    await flood(peer, 100_000, n => {
      const id = n * 2 + 1
      return Buffer.concat([
        frame(TYPE.headers, END_HEADERS | END_STREAM, id, head()),
        frame(TYPE.reset, 0, id, cancel),
      ])
    })
    // A reset that arrives in a later read than its request.
    const attacks = seen.filter(({ request }) => request.path === '/attack')
    expect(attacks.length).toBeLessThan(100)
    await eventually(() => expect(attacks.every(({ aborted }) => aborted === 'cancelled')).toBe(true))
    expect(await canary()).toBe('canary')
  })

  test('H1: resets of requests that were begun: the session ends, and the requests were aborted', async () => {
    const { peer, canary, seen } = await startWithPeer()
    const attacks = () => seen.filter(({ request }) => request.path === '/attack')
    const over = () => peer.closed || peer.ended
    for (let next = 1; !over(); next += 40) {
      const ids = Array.from({ length: 20 }, (_, n) => next + 2 * n)
      const begun = attacks().length + ids.length
      peer.send(Buffer.concat(ids.map(id => frame(TYPE.headers, END_HEADERS | END_STREAM, id, head()))))
      await eventually(() => expect(over() || attacks().length === begun).toBe(true))
      peer.send(Buffer.concat(ids.map(id => frame(TYPE.reset, 0, id, cancel))))
      await eventually(() => expect(over() || attacks().every(({ aborted }) => aborted === 'cancelled')).toBe(true))
    }
    expect(attacks().length).toBeGreaterThan(100)
    expect(attacks().length).toBeLessThan(1500)
    await eventually(() => expect(attacks().every(({ aborted }) => aborted === 'cancelled')).toBe(true))
    expect(await canary()).toBe('canary')
  })

  test('H1: resets that the peer provokes count, too', async () => {
    const { peer, canary, seen } = await startWithPeer()
    // A window update of zero is a stream error: the server resets, not the peer (CVE-2025-8671).
    await flood(peer, 100_000, n => {
      const id = n * 2 + 1
      return Buffer.concat([
        frame(TYPE.headers, END_HEADERS | END_STREAM, id, head()),
        frame(TYPE.window, 0, id, Buffer.alloc(4)),
      ])
    })
    expect(seen.length).toBeLessThan(3000)
    expect(await canary()).toBe('canary')
  })

  test('H1: resets of one caller do not end the request of another whose proxy sends both on one session', {
    tags: ['slow'],
  }, async () => {
    const { handler, seen } = recorder(() => {})
    const listener = await listen({ port: 0, handler })
    const proxy = connectHttp2(`http://127.0.0.1:${listener.address.port}`)
    open.push(
      () => listener.close({ graceMs: 0 }),
      () => proxy.destroy(),
    )
    const goodbyes: number[][] = []
    proxy.on('goaway', (code, last) => goodbyes.push([code, last]))
    proxy.on('error', () => {})
    const ask = () => proxy.request({ ':path': '/', ':authority': 'a' }).on('error', () => {})
    const slow = ask()
    const status = new Promise(resolve =>
      slow.on('response', headers => resolve(headers[':status'])).on('close', resolve),
    )
    await eventually(() => expect(seen).toHaveLength(1))
    while (goodbyes.length === 0) {
      const begun = seen.length + 20
      const hasty = Array.from({ length: 20 }, ask)
      await eventually(() => expect(goodbyes.length > 0 || seen.length === begun).toBe(true))
      for (const stream of hasty) stream.close(8)
      await eventually(() =>
        expect(goodbyes.length > 0 || seen.slice(1).every(one => one.aborted !== undefined)).toBe(true),
      )
    }
    expect(seen.length).toBeLessThan(1500)
    ok(seen[0]!.response)
    await eventually(() => expect(goodbyes).toHaveLength(2))
    expect(goodbyes).toEqual([
      [0, 2 ** 31 - 1],
      [0, 2 * seen.length - 1],
    ])
    expect(await status).toBe(200)
    await eventually(() => expect(listener.connections).toBe(0))
  })

  const get = (id: number, path: string) => headers(id, [...PSEUDO, [':path', path]])
  const hasty = (from: number, count: number) =>
    Array.from({ length: count }, (_, n) => [get(from + 2 * n, '/attack'), reset(from + 2 * n)]).flat()
  /** A connection of many callers, on which 9 resets are too many. What none of them attacks is answered at once. */
  async function shared() {
    const { handler, seen } = recorder(({ request, response }) => request.path !== '/attack' && ok(response))
    const listener = await listen({ port: 0, handler, limits: { http2ResetBurst: 8, http2ResetRate: 1 } })
    open.push(() => listener.close({ graceMs: 0 }))
    const peer = await Http2Peer.call(listener.address.port)
    open.push(() => peer.socket.destroy())
    return { seen, listener, peer }
  }

  // Not every proxy can send it again: `ReverseProxy` of Go answers 502 to a POST.
  test('H1: resets of one caller do not end a request of another that is on its way, unless there are as many again', async () => {
    const { seen, peer } = await shared()
    // In one piece, so that it comes before the answer to the ping behind the first go-away.
    peer.send(...hasty(1, 9), get(19, '/first'), ...hasty(21, 9), get(39, '/second'))
    await peer.end()
    expect([peer.said(19), peer.said(39)]).toEqual(['200 ok', ''])
    expect(peer.goaways).toEqual([
      { last: 2 ** 31 - 1, code: 0 },
      { last: 37, code: 0 },
    ])
    expect(seen.map(({ request }) => request.path)).toEqual(['/first'])
  })

  test('H1: nor does a stop, while a request may be on its way', async () => {
    const { seen, listener, peer } = await shared()
    // It does not answer the ping behind the first go-away yet.
    peer.socket.pause()
    peer.send(...hasty(1, 9), get(19, '/first'))
    await eventually(() => expect(seen).toHaveLength(1))
    const closed = listener.close({ graceMs: 10_000 })
    peer.send(get(21, '/second'))
    await eventually(() => expect(seen).toHaveLength(2))
    peer.socket.resume()
    await peer.end()
    expect([peer.said(19), peer.said(21)]).toEqual(['200 ok', '200 ok'])
    await closed
  })

  test.each([
    ['NO_ERROR', 0],
    ['CANCEL', 8],
  ])(
    "H1: resets of one caller's streams that have been answered do not end the request of another: %s",
    async (_, code) => {
      const refuse = ({ request, response }: Seen) => {
        if (request.method !== 'POST') return
        response.responseHead({ status: 401, headers: [], bodyBytes: 0 })
        response.responseEnd([])
      }
      const { peer, canary, seen } = await startWithPeer(refuse, { http2ResetBurst: 8, http2ResetRate: 1 })
      peer.send(frame(TYPE.headers, END_HEADERS | END_STREAM, 1, head()))
      const answers = () => framesOf(Buffer.from(peer.text, 'latin1')).filter(({ type }) => type === TYPE.headers)
      for (let id = 3; id < 100; id += 2) {
        // A proxy resets an upload if its answer comes first.
        peer.send(frame(TYPE.headers, END_HEADERS, id, head('POST')))
        await eventually(() => expect(answers().some(({ stream }) => stream === id)).toBe(true))
        peer.send(frame(TYPE.reset, 0, id, uint32(code)))
      }
      expect(await canary()).toBe('canary')
      const slow = seen.find(({ request }) => request.path === '/attack' && request.method === 'GET')!
      ok(slow.response)
      await eventually(() => expect(answers().some(({ stream }) => stream === 1)).toBe(true))
    },
  )

  test('H1, E16: after too many resets, a caller that has gone is noticed, too', async () => {
    const { peer, canary, seen } = await startWithPeer(() => {}, {
      http2ResetBurst: 8,
      http2PingMs: 100,
      stalledMs: 300,
    })
    peer.send(frame(TYPE.headers, END_HEADERS | END_STREAM, 1, head()))
    await eventually(() => expect(seen).toHaveLength(2))
    const ids = Array.from({ length: 12 }, (_, n) => 2 * n + 3)
    peer.send(
      Buffer.concat(
        ids.flatMap(id => [frame(TYPE.headers, END_HEADERS, id, head()), frame(TYPE.reset, 0, id, cancel)]),
      ),
    )
    // It sends no more, not even answers.
    await eventually(() => expect(seen[1]!.aborted).toBe('request-timeout'))
    expect(await canary()).toBe('canary')
  })

  test('H1: requests that are refused and then reset', async () => {
    const { peer, canary, seen } = await startWithPeer()
    await flood(peer, 100_000, n =>
      frame(TYPE.headers, END_HEADERS | END_STREAM, n * 2 + 1, head('GET', ['connection', 'x'])),
    )
    expect(seen.filter(({ request }) => request.path === '/attack').length).toBe(0)
    expect(await canary()).toBe('canary')
  })
})

describe('H2: floods that cost the peer little', () => {
  const ping = frame(TYPE.ping, 0, 0, Buffer.alloc(8))
  const settings = frame(TYPE.settings, 0, 0)
  test.each([
    ['PING', () => ping],
    ['SETTINGS', () => settings],
    [
      'empty DATA',
      (n: number) => (n === 0 ? frame(TYPE.headers, END_HEADERS, 1, head('POST')) : frame(TYPE.data, 0, 1)),
    ],
    [
      'CONTINUATION',
      (n: number) =>
        n === 0 ? frame(TYPE.headers, 0, 1, head()) : frame(TYPE.continuation, 0, 1, field('x', 'y'.repeat(100))),
    ],
    [
      'empty CONTINUATION',
      (n: number) => (n === 0 ? frame(TYPE.headers, 0, 1, head()) : frame(TYPE.continuation, 0, 1)),
    ],
    [
      'RST_STREAM of a stream that is over',
      (n: number) =>
        n === 0 ? frame(TYPE.headers, END_HEADERS | END_STREAM, 1, head()) : frame(TYPE.reset, 0, 1, uint32(8)),
    ],
    ['unknown frames', () => frame(0xee, 0, 0, Buffer.alloc(8))],
    ['PRIORITY', (n: number) => frame(TYPE.priority, 0, 1001 + 2 * n, Buffer.from([0, 0, 0, 0, 1]))],
    ['WINDOW_UPDATE', () => frame(TYPE.window, 0, 0, Buffer.from([0, 0, 0, 1]))],
  ])(
    'H2: %s: bounded, and the session closes',
    async (_name, make) => {
      const { peer, canary } = await startWithPeer()
      const sent = await flood(peer, 400_000, n => {
        const first = make(n)
        return n === 0 ? first : Buffer.concat(Array.from({ length: 20 }, (_, i) => make(n * 20 + i)))
      })
      expect(sent).toBeLessThan(400_000)
      expect(await canary()).toBe('canary')
    },
    20_000,
  )
})

describe('H2: DATA that carries nothing, whatever its stream is', () => {
  const [get, post] = [head(), head('POST')]
  /** What comes before, and is answered by a frame of this type. */
  const STREAMS: Record<string, [before: Buffer[], answer: number]> = {
    'of which the answer is to come': [[frame(TYPE.headers, END_HEADERS, 1, post)], TYPE.settings],
    'that has ended': [[frame(TYPE.headers, END_HEADERS | END_STREAM, 1, get)], TYPE.settings],
    'that its caller has reset': [[frame(TYPE.headers, END_HEADERS, 1, post), reset(1)], TYPE.settings],
    'that we have reset': [
      [frame(TYPE.headers, END_HEADERS, 1, post), frame(TYPE.window, 0, 1, uint32(0))],
      TYPE.reset,
    ],
    'that is forgotten': [
      Array.from({ length: 300 }, (_, n) => [
        frame(TYPE.headers, END_HEADERS, 2 * n + 1, post),
        frame(TYPE.window, 0, 2 * n + 1, uint32(0)),
      ]).flat(),
      TYPE.reset,
    ],
  }
  const FLAGS: [string, Buffer][] = [
    ['nothing', frame(TYPE.data, 0, 1)],
    ['END_STREAM', frame(TYPE.data, END_STREAM, 1)],
    ['padding', frame(TYPE.data, PADDED, 1, Buffer.from([3, 0, 0, 0]))],
    ['padding and END_STREAM', frame(TYPE.data, PADDED | END_STREAM, 1, Buffer.from([3, 0, 0, 0]))],
    ['an unknown flag', frame(TYPE.data, 2, 1)],
    ['an unknown flag and END_STREAM', frame(TYPE.data, 2 | END_STREAM, 1)],
  ]
  test.each(Object.keys(STREAMS))(
    'H2: on a stream %s: bounded with every flag, and the session closes',
    async stream => {
      const [before, answer] = STREAMS[stream]!
      const floods = FLAGS.map(async ([flags, one]) => {
        const { peer, canary } = await startWithPeer(() => {}, { http2ResetBurst: 1000 })
        peer.send(Buffer.concat(before))
        await peer.until(text => framesOf(Buffer.from(text, 'latin1')).some(({ type }) => type === answer))
        const many = Buffer.concat(Array<Buffer>(200).fill(one))
        const sent = await flood(peer, 400_000, () => many)
        return [flags, sent < 400_000, await canary()]
      })
      expect(await Promise.all(floods)).toEqual(FLAGS.map(([flags]) => [flags, true, 'canary']))
    },
    20_000,
  )
})

describe('H2: trailers, whatever their stream is', () => {
  const socket = headers(1, WEBSOCKET_HEAD, END_HEADERS)
  const post = (...more: [string, string][]) => frame(TYPE.headers, END_HEADERS, 1, head('POST', ...more))
  const isType = (wanted: number) => (one: Frame) => one.type === wanted
  const isEnd = ({ type, flags }: Frame) => type <= TYPE.headers && (flags & END_STREAM) !== 0
  const raw = ({ response }: Seen) => response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
  const endedSocket = (seen: Seen) => {
    raw(seen)
    seen.response.responseEnd([])
  }
  const longAnswer = (seen: Seen) => ok(seen.response, 'x'.repeat(100_000))
  /** What comes before, what we do, and what the caller gets then. */
  const STREAMS: Record<string, [before: Buffer, act: (seen: Seen) => void, answer: (one: Frame) => boolean]> = {
    'of which the answer is to come': [post(), () => {}, isType(TYPE.settings)],
    'whose answer came first': [post(), ({ response }) => ok(response), isEnd],
    'whose answer came first, and waits for its caller': [post(), longAnswer, isType(TYPE.data)],
    'that is answered, and announced no body': [post(['content-length', '0']), ({ response }) => ok(response), isEnd],
    'that is a WebSocket before its 101': [socket, () => {}, isType(TYPE.settings)],
    'that is a WebSocket': [socket, raw, isType(TYPE.headers)],
    'that is a WebSocket, of which we have ended our half': [socket, endedSocket, isEnd],
    'that has ended': [frame(TYPE.headers, END_HEADERS | END_STREAM, 1, head()), () => {}, isType(TYPE.settings)],
    'that its caller has reset': [bytes(post(), reset(1)), () => {}, isType(TYPE.settings)],
    'that we have reset': [bytes(post(), frame(TYPE.window, 0, 1, uint32(0))), () => {}, isType(TYPE.reset)],
  }
  const large: Fields = [['x', 'y'.repeat(3900)]]
  const TRAILERS: [string, (flags: number) => Buffer][] = [
    ['whole', flags => headers(1, [['x', 'y']], flags)],
    ['too large', flags => headers(1, large, flags)],
  ]

  test.each(Object.keys(STREAMS))('H2: on a stream %s: bounded with every flag, and the session closes', async name => {
    const [before, act, answer] = STREAMS[name]!
    const floods = TRAILERS.flatMap(([what, make]) =>
      [END_HEADERS, END_HEADERS | END_STREAM].map(async flags => {
        const limits = { http2ResetBurst: 1000, headBytes: 1000 }
        const { peer, canary } = await startWithPeer(seen => setImmediate(act, seen), limits)
        peer.send(before)
        await peer.until(text => framesOf(Buffer.from(text, 'latin1')).some(answer))
        const many = Buffer.concat(Array<Buffer>(100).fill(make(flags)))
        const sent = await flood(peer, 20_000, () => many)
        expect([what, flags, sent < 20_000]).toEqual([what, flags, true])
        expect(await canary()).toBe('canary')
      }),
    )
    await Promise.all(floods)
  })
})

/** Waits for one more frame of a type; throws if the session ends instead. */
function frameCounter(peer: RawPeer): (type: number) => Promise<void> {
  const came = new Map<number, number>()
  let taken = 0
  return async type => {
    await peer.until(text => {
      const fresh = Buffer.from(text.slice(taken), 'latin1')
      for (const { type, payload } of framesOf(fresh)) {
        came.set(type, (came.get(type) ?? 0) + 1)
        taken += 9 + payload.length
      }
      return peer.ended || (came.get(type) ?? 0) > 0
    })
    const left = (came.get(type) ?? 0) - 1
    if (left < 0) throw new Error('the session has ended')
    came.set(type, left)
  }
}

/** As grpc-go measures its bandwidth: a window update and then a ping for each piece, if no ping is under way. */
describe('H2: what a caller sends for each piece of an answer is no flood', () => {
  const ping = frame(TYPE.ping, 0, 0, Buffer.alloc(8))
  const window = (stream: number) => frame(TYPE.window, 0, stream, uint32(1))
  const PIECES = 1000
  const echoes: [string, Buffer][] = [
    ['a ping', ping],
    ['window updates and a ping', Buffer.concat([window(0), window(1), ping])],
  ]

  /** Sends an answer's pieces, each after `echo` for the previous one has arrived. */
  async function answerEchoed(echo: Buffer, more: (piece: number) => boolean, limits?: Partial<HttpLimits>) {
    const { peer, canary, seen } = await startWithPeer(({ response }) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
    }, limits)
    const next = frameCounter(peer)
    peer.send(frame(TYPE.headers, END_HEADERS | END_STREAM, 1, head()))
    await next(TYPE.headers)
    const { response } = seen.find(({ request }) => request.path === '/attack')!
    for (let piece = 0; more(piece); piece++) {
      response.responseData(Buffer.from('.'))
      await next(TYPE.data)
      peer.send(echo)
      await next(TYPE.ping)
    }
    return { peer, canary, response, next }
  }

  test.each(echoes)('H2: %s: the session stays open', async (_name, echo) => {
    const { response, next } = await answerEchoed(echo, piece => piece < PIECES)
    response.responseData(Buffer.from('.'))
    await next(TYPE.data)
  })

  test('H2: nor is it a flood where nothing else may be sent', async () => {
    // Long enough for two checks of the session's control bytes.
    const end = performance.now() + 5000
    const [, echo] = echoes[1]!
    await answerEchoed(echo, () => performance.now() < end, { http2ControlBytes: 1 })
  })

  test('H2: a flood of pings after the answer is a flood', async () => {
    const { peer, canary } = await answerEchoed(ping, piece => piece < PIECES)
    const sent = await flood(peer, 100_000, () => ping)
    expect(sent).toBeLessThan(100_000)
    expect(await canary()).toBe('canary')
  })
})

describe('H3: header bytes', () => {
  test('H3: a small block that grows is cut by its decoded size', async () => {
    const { peer, canary, seen } = await startWithPeer()
    // One field of 3,800 bytes goes into the table, then a thousand references to it.
    const big = Buffer.concat([
      Buffer.from([0x40]),
      length('x'),
      Buffer.from('x'),
      length('y'.repeat(3800)),
      Buffer.from('y'.repeat(3800)),
    ])
    const block = Buffer.concat([head(), big, Buffer.alloc(1000, 0x80 | 62)])
    peer.send(frame(TYPE.headers, END_HEADERS | END_STREAM, 1, block))
    await peer.until(text => text.length > 60)
    expect(seen.filter(({ request }) => request.path === '/attack').length).toBe(0)
    expect(await canary()).toBe('canary')
  })

  test('H3: a peer that stalls in the middle of a head is reaped', async () => {
    const { peer, canary } = await startWithPeer(() => {}, { keepAliveMs: 50 })
    peer.send(frame(TYPE.headers, 0, 1, head()))
    await peer.end()
    void canary
  })

  test('H3: a peer that does not answer pings is reaped, with its streams', async () => {
    const { peer, seen } = await startWithPeer(() => {}, { http2PingMs: unhurried(300), stalledMs: 60 })
    peer.send(frame(TYPE.headers, END_HEADERS | END_STREAM, 1, head()))
    await peer.end()
    await eventually(() => expect(seen.some(({ aborted }) => aborted === 'request-timeout')).toBe(true))
  })
})
