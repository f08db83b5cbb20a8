/** Requests that the server is made to hold, and their cost, for the amplification test. */
import { once } from 'node:events'
import type { Socket } from 'node:net'
import { Flag, FrameType } from '../../protocol/wire/yamux/frame.ts'
import { frame as yamuxFrame } from '../protocol/wire/yamux/support.ts'
import { dial } from '../support/caller-http1.ts'
import { END_HEADERS, END_STREAM, frame, length, PREFACE, TYPE } from '../support/http2-frames.ts'
import { RawClient } from './raw-client.ts'
import type { World } from './world.ts'

/** One kind of request in two sizes. The difference is the cost of its bytes without the fixed cost of a request. */
export interface Kind {
  readonly name: string
  readonly protocol: 'http/1.1' | 'h2'
  /** Bodies stay at the server if the client gives no credit. Heads are accepted, and their exchanges stay open. */
  readonly runtime: 'silent' | 'stalled'
  /** The bytes of request `n` on a connection, small and large. */
  small(authority: string, n: number): Buffer
  large(authority: string, n: number): Buffer
}

const http1 = (head: string, body = '') => Buffer.from(`${head}\r\n\r\n${body}`, 'latin1')
const get = (authority: string) => `GET / HTTP/1.1\r\nHost: ${authority}`
const post = (authority: string) => `POST / HTTP/1.1\r\nHost: ${authority}\r\nTransfer-Encoding: chunked`

/** `:method`, `:scheme` and `:path` from the static table. The authority is added to the dynamic one. */
function firstFields(authority: string, method: 'GET' | 'POST'): Buffer {
  const known = Buffer.from([method === 'GET' ? 0x82 : 0x83, 0x87, 0x84, 0x41])
  return Buffer.concat([known, length(authority), Buffer.from(authority)])
}

function headers(n: number, block: Buffer, more = 0): Buffer {
  return frame(TYPE.headers, END_HEADERS | more, n * 2 + 1, block)
}

/** A field of 153 bytes, added to the dynamic table once. After that, one byte refers to it. */
const BIG_FIELD = Buffer.concat([
  Buffer.from([0x40, 3]),
  Buffer.from('x-a'),
  length('y'.repeat(150)),
  Buffer.alloc(150, 0x79),
])

function references(authority: string, n: number, count: number): Buffer {
  const first =
    n === 0 ? Buffer.concat([firstFields(authority, 'GET'), BIG_FIELD]) : Buffer.from([0x82, 0x87, 0x84, 0xbf])
  return headers(n, Buffer.concat([first, Buffer.alloc(count, 0xbe)]), END_STREAM)
}

/** Less than what we hold of one body before we stop reading. */
const PIECES = 8_000

export const KINDS: readonly Kind[] = [
  {
    name: 'many small fields',
    protocol: 'http/1.1',
    runtime: 'silent',
    small: authority => http1(get(authority)),
    large: authority => http1(get(authority) + '\r\nx:y'.repeat(90)),
  },
  {
    name: 'one large field',
    protocol: 'http/1.1',
    runtime: 'silent',
    small: authority => http1(get(authority)),
    large: authority => http1(`${get(authority)}\r\nx: ${'y'.repeat(15_000)}`),
  },
  {
    name: 'a head that never ends',
    protocol: 'http/1.1',
    runtime: 'silent',
    small: authority => Buffer.from(get(authority)),
    large: authority => Buffer.from(get(authority) + '\r\nx:y'.repeat(90)),
  },
  {
    name: 'chunk extensions',
    protocol: 'http/1.1',
    runtime: 'stalled',
    small: authority => http1(post(authority), '1\r\nx\r\n'),
    large: authority => http1(post(authority), `1;${'e'.repeat(4_000)}\r\nx\r\n`),
  },
  {
    name: 'chunks of one byte',
    protocol: 'http/1.1',
    runtime: 'stalled',
    small: authority => http1(post(authority), '1\r\nx\r\n'),
    large: authority => http1(post(authority), '1\r\nx\r\n'.repeat(PIECES)),
  },
  {
    name: 'trailers that never end',
    protocol: 'http/1.1',
    runtime: 'silent',
    small: authority => http1(post(authority), '0\r\n'),
    large: authority => http1(post(authority), `0\r\n${'x:y\r\n'.repeat(90)}`),
  },
  {
    name: 'DATA of one byte',
    protocol: 'h2',
    runtime: 'stalled',
    small: (authority, n) => headers(n, firstFields(authority, 'POST')),
    large: (authority, n) => {
      const piece = frame(TYPE.data, 0, n * 2 + 1, Buffer.alloc(1))
      return Buffer.concat([headers(n, firstFields(authority, 'POST')), ...new Array<Buffer>(800).fill(piece)])
    },
  },
  {
    name: 'HPACK references',
    protocol: 'h2',
    runtime: 'silent',
    small: (authority, n) => references(authority, n, 0),
    large: (authority, n) => references(authority, n, 85),
  },
]

/** Requests per connection, and connections. Over HTTP/1.1, a connection has one request in progress. */
const HOLDERS = { 'http/1.1': { streams: 1, connections: 40 }, h2: { streams: 40, connections: 8 } }

/** A client that accepts requests, answers none, and gives no credit for their bodies. */
export async function connectHolder(world: World, runtime: Kind['runtime']): Promise<void> {
  const client = await RawClient.connect(world, runtime, runtime === 'stalled' ? { windowBytes: 4096 } : {})
  client.onFrame = ({ flags, id }) => {
    if (flags & Flag.syn) client.send(yamuxFrame(FrameType.windowUpdate, Flag.ack, id, 0))
  }
}

export interface Cost {
  /** The cost of a small request, in live bytes of the server. */
  readonly priceBytes: number
  /** The cost of each additional byte of a large request, in live bytes. */
  readonly perByte: number
}

export async function costOf(world: World, kind: Kind): Promise<Cost> {
  const idle = await live(world, kind, () => Buffer.alloc(0))
  const small = await live(world, kind, kind.small)
  const large = await live(world, kind, kind.large)
  const { streams, connections } = HOLDERS[kind.protocol]
  const requests = streams * connections
  return {
    priceBytes: (small.bytes - idle.bytes) / requests,
    perByte: (large.bytes - small.bytes) / (large.sentBytes - small.sentBytes),
  }
}

/** Live bytes of the server while it holds the requests of `make`. */
async function live(world: World, kind: Kind, make: Kind['small']): Promise<{ bytes: number; sentBytes: number }> {
  const place = world.place(kind.runtime)
  const sockets: Socket[] = []
  let sentBytes = 0
  const { streams, connections } = HOLDERS[kind.protocol]
  for (let i = 0; i < connections; i++) {
    const socket = await dial(place, [kind.protocol])
    sockets.push(socket.resume())
    const first = kind.protocol === 'h2' ? Buffer.concat([PREFACE, frame(TYPE.settings, 0, 0)]) : Buffer.alloc(0)
    const bytes = Buffer.concat([first, ...Array.from({ length: streams }, (_, n) => make(place.authority, n))])
    sentBytes += bytes.length
    if (bytes.length > 0) await new Promise(resolve => socket.write(bytes, resolve))
  }
  const bytes = await steady(world)
  for (const socket of sockets) socket.destroy()
  await Promise.all(sockets.map(socket => (socket.closed ? undefined : once(socket, 'close'))))
  await steady(world)
  return { bytes, sentBytes }
}

/** Live bytes once they are stable: as much as possible of what was sent has been read. */
async function steady(world: World): Promise<number> {
  let last = 0
  for (let tries = 0; tries < 50; tries++) {
    const { liveBytes } = await world.state()
    if (Math.abs(liveBytes - last) < 64 * 1024) return liveBytes
    last = liveBytes
  }
  return last
}
