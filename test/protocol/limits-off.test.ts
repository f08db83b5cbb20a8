// @module-tag slow
/** A limit of 0 is no limit: what would end under a small one goes on, over both versions of HTTP. */
import { afterEach, describe, expect, test } from 'vitest'
import type { Handler } from '../../protocol/exchange.ts'
import { DEFAULT_HTTP_LIMITS, type HttpLimits } from '../../protocol/http/limits.ts'
import { type Listener, listen } from '../../protocol/http/listener.ts'
import { END_HEADERS, END_STREAM, frame, framesOf, head, PREFACE, TYPE } from '../support/http2-frames.ts'
import { eventually } from '../support/until.ts'
import { call, ok, type RawPeer, recorder, type Seen } from './http/http1/raw.ts'

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

interface Scene {
  readonly peer: RawPeer
  readonly listener: Listener
  readonly seen: Seen[]
}

interface Row {
  readonly limit: keyof HttpLimits
  readonly value?: number
  readonly other?: Partial<HttpLimits>
  readonly say: (peer: RawPeer) => void
  readonly answer?: (seen: Seen) => void
  /** Once the kernel accepts no more of the answer. */
  readonly stuck?: (peer: RawPeer) => void
  /** The limit's effect. */
  readonly fired: (scene: Scene) => boolean
}

const GET = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n'
const post = (more: string) => `POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n${more}\r\n`
const HELLO = [PREFACE, frame(TYPE.settings, 0, 0), frame(TYPE.settings, 1, 0)]
const NO_WINDOW = [PREFACE, frame(TYPE.settings, 0, 0, Buffer.from([0, 4, 0, 0, 0, 0])), frame(TYPE.settings, 1, 0)]
const MOST = Buffer.from([0x7f, 0xff, 0xff, 0xff])
const WIDE = [
  PREFACE,
  frame(TYPE.settings, 0, 0, Buffer.concat([Buffer.from([0, 4]), MOST])),
  frame(TYPE.settings, 1, 0),
  frame(TYPE.window, 0, 0, Buffer.from([0x70, 0, 0, 0])),
]
const http2 =
  (...frames: Buffer[]) =>
  (peer: RawPeer) =>
    peer.send(Buffer.concat([...HELLO, ...frames]))
const get2 = frame(TYPE.headers, END_HEADERS | END_STREAM, 1, head())
const post2 = (...more: [string, string][]) => frame(TYPE.headers, END_HEADERS, 1, head('POST', ...more))
const frames = ({ peer }: Scene) => framesOf(Buffer.from(peer.text, 'latin1'))
const ended = ({ peer }: Scene) => peer.ended || peer.closed
const aborted = ({ seen }: Scene) => seen[0]?.aborted !== undefined
const left = ({ listener, seen }: Scene) => seen.length > 0 && listener.connections === 0
const unread = (peer: RawPeer, said: string | Buffer) => {
  peer.socket.pause()
  peer.send(said)
}
const large = ({ response }: Seen) => ok(response, 'x'.repeat(16_000_000))

const ROWS: Record<string, Row> = {
  'HTTP/1.1, headMs, nothing said': { limit: 'headMs', say: () => {}, fired: ended },
  'HTTP/1.1, headMs, half a head': { limit: 'headMs', say: peer => peer.send(GET.slice(0, 20)), fired: ended },
  'HTTP/1.1, bodyIdleMs': { limit: 'bodyIdleMs', say: peer => peer.send(`${post('')}x`), fired: aborted },
  'HTTP/1.1, stalledMs': { limit: 'stalledMs', say: peer => unread(peer, GET), answer: large, fired: left },
  'HTTP/1.1, keepAliveMs': {
    limit: 'keepAliveMs',
    say: peer => peer.send(GET),
    answer: one => ok(one.response),
    fired: ended,
  },
  'HTTP/1.1, drainMs': {
    limit: 'drainMs',
    say: peer => peer.send('GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n'),
    answer: one => ok(one.response),
    fired: left,
  },
  'HTTP/1.1, expectMs': {
    limit: 'expectMs',
    say: peer => peer.send(post('Expect: 100-continue\r\n')),
    fired: ({ peer }) => peer.text.startsWith('HTTP/1.1 100 '),
  },
  'HTTP/1.1, lingerMs': {
    limit: 'lingerMs',
    other: { drainMs: 0 },
    say: peer => peer.send('GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n'),
    answer: one => ok(one.response),
    fired: left,
  },
  'HTTP/1.1, halfCloseMs': {
    limit: 'halfCloseMs',
    say: peer => peer.socket.end(GET),
    answer: ({ response }) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: 5 })
      response.responseData(Buffer.from('x'))
    },
    fired: aborted,
  },
  'HTTP/2, headMs, nothing said': { limit: 'headMs', say: () => {}, fired: ended },
  'HTTP/2, headMs, half a preface': { limit: 'headMs', say: peer => peer.send(PREFACE.subarray(0, 9)), fired: ended },
  'HTTP/2, bodyIdleMs': { limit: 'bodyIdleMs', say: http2(post2()), fired: aborted },
  'HTTP/2, stalledMs': {
    limit: 'stalledMs',
    say: peer => peer.send(Buffer.concat([...NO_WINDOW, get2])),
    answer: one => ok(one.response),
    fired: scene => frames(scene).some(({ type }) => type === TYPE.reset),
  },
  'HTTP/2, keepAliveMs, nothing said': { limit: 'keepAliveMs', say: http2(), fired: ended },
  'HTTP/2, keepAliveMs, behind a request': {
    limit: 'keepAliveMs',
    say: http2(get2),
    answer: one => ok(one.response),
    fired: ended,
  },
  'HTTP/2, keepAliveMs, half a head': {
    limit: 'keepAliveMs',
    say: http2(frame(TYPE.headers, END_STREAM, 1, head())),
    fired: ended,
  },
  'HTTP/2, drainMs, a caller that leaves and reads nothing': {
    limit: 'drainMs',
    say: peer => unread(peer, Buffer.concat([...WIDE, get2])),
    answer: large,
    stuck: peer => peer.send(frame(TYPE.goaway, 0, 0, Buffer.from([0, 0, 0, 0, 0, 0, 0, 11]))),
    fired: left,
  },
  'HTTP/2, expectMs': {
    limit: 'expectMs',
    say: http2(post2(['expect', '100-continue'])),
    fired: scene => frames(scene).some(({ type }) => type === TYPE.headers),
  },
  'HTTP/2, http2PingMs': {
    limit: 'http2PingMs',
    say: http2(get2),
    fired: scene => frames(scene).some(({ type, flags }) => type === TYPE.ping && flags === 0),
  },
  'HTTP/2, http2ControlBytes': {
    limit: 'http2ControlBytes',
    value: 1,
    say: http2(...Array.from({ length: 4000 }, () => frame(TYPE.priority, 0, 3, Buffer.from([0, 0, 0, 0, 1])))),
    fired: ended,
  },
}

async function play(row: Row, value: number): Promise<Scene> {
  let taken = 0
  const { handler, seen } = recorder(one => row.answer?.(one))
  const counting: Handler = (request, response) => ({
    ...handler(request, response),
    responseConsumed: bytes => {
      taken += bytes
    },
  })
  const listener = await listen({ port: 0, handler: counting, limits: { ...row.other, [row.limit]: value } })
  const peer = await call(listener.address.port, { allowHalfOpen: true })
  open.push(
    () => listener.close({ graceMs: 0 }),
    () => peer.socket.destroy(),
  )
  row.say(peer)
  if (row.stuck !== undefined) {
    for (let before = -1; before !== taken || taken === 0; await new Promise(resolve => setTimeout(resolve, 100))) {
      before = taken
    }
    row.stuck(peer)
  }
  return { peer, listener, seen }
}

describe.each(Object.entries(ROWS))('%s', (_name, row) => {
  test('0: off', async () => {
    const off = await play(row, 0)
    const on = await play(row, row.value ?? 50)
    await eventually(() => expect(row.fired(on)).toBe(true))
    expect(row.fired(off)).toBe(false)
  })
})

test('each duration, and everything else that may be 0, has its rows', () => {
  const limits = Object.keys(DEFAULT_HTTP_LIMITS).filter(name => name.endsWith('Ms') || name === 'http2ControlBytes')
  expect([...new Set(Object.values(ROWS).map(({ limit }) => limit))].toSorted()).toEqual(limits.toSorted())
})
