// @module-tag slow
/** security.md, E15 over HTTP/2: a connection whose caller reads no answers holds a bounded amount. */
import { afterEach, describe, expect, test } from 'vitest'
import { liveBytes } from '../../load-tests/lib/garbage.ts'
import type { RawPeer } from '../protocol/http/http1/raw.ts'
import { END_HEADERS, END_STREAM, field, frame, framesOf, PREFACE, TYPE } from '../support/http2-frames.ts'
import { DOMAIN } from '../support/secrets.ts'
import { eventually } from '../support/until.ts'
import { answering, answeringWith, type Edge, HOST, startEdge, stopEdges } from './edge.ts'

afterEach(stopEdges)

const CALLERS = 12
const HELD_BYTES = 256 * 1024
const REFUSED_STREAM = 7

const NO_WINDOW = Buffer.from([0, 4, 0, 0, 0, 0])
const WIDE_WINDOW = Buffer.from([0, 4, 0x7f, 0xff, 0xff, 0xff])

type Fields = [string, string][]

/** Requests that cost us next to nothing to answer. */
const CHEAP: Record<string, (n: number) => Fields> = {
  'an unknown host': n => get(`nobody${n}.example`),
  'a runtime that is offline': n => get(`away${n}.${DOMAIN}`),
  'a preflight': n => [...preflight(`away${n}.${DOMAIN}`)],
  'a health check': () => get(HOST, '/health'),
  'a head that is refused': () => [...get(HOST), ['host', 'other.example']],
  'a head that is too large': n => [...get(HOST), ['x-large', `${n}`.padEnd(20_000, 'y')]],
  'an unknown host, with a large head': n => [...get('nobody.example'), ['x-large', `${n}`.padEnd(15_000, 'y')]],
}

function get(host: string, path = '/'): Fields {
  return [
    [':method', 'GET'],
    [':scheme', 'http'],
    [':path', path],
    [':authority', host],
  ]
}

function preflight(host: string): Fields {
  const fields = get(host).map(([name, value]): [string, string] => [name, name === ':method' ? 'OPTIONS' : value])
  return [...fields, ['origin', 'https://ui.example'], ['access-control-request-method', 'POST']]
}

/** HEADERS, and CONTINUATION for what does not fit into one frame. */
function request(id: number, fields: Fields, flags: number): Buffer {
  const block = Buffer.concat(fields.map(([name, value]) => field(name, value)))
  const frames: Buffer[] = []
  for (let at = 0; at < block.length; at += 16_384) {
    const last = at + 16_384 >= block.length ? END_HEADERS : 0
    const part = block.subarray(at, at + 16_384)
    frames.push(at === 0 ? frame(TYPE.headers, flags | last, id, part) : frame(TYPE.continuation, last, id, part))
  }
  return Buffer.concat(frames)
}

const WAYS: Record<string, { settings: Buffer; flags: number; unread: boolean }> = {
  'no window': { settings: NO_WINDOW, flags: END_STREAM, unread: false },
  'no window, and no end of the request': { settings: NO_WINDOW, flags: 0, unread: false },
  'a socket that nobody reads': { settings: WIDE_WINDOW, flags: END_STREAM, unread: true },
}

async function callAll(edge: Edge, settings: Buffer, callers = CALLERS): Promise<RawPeer[]> {
  const peers = await Promise.all(Array.from({ length: callers }, () => edge.call()))
  for (const peer of peers) {
    peer.send(Buffer.concat([PREFACE, frame(TYPE.settings, 0, 0, settings), frame(TYPE.settings, 1, 0)]))
    await peer.until(() => framesOf(Buffer.from(peer.text, 'latin1')).length > 1)
  }
  return peers
}

/** The server has read everything that was sent, or has closed the connection. */
async function heard(peers: readonly RawPeer[]): Promise<void> {
  const sent = (peer: RawPeer) => peer.closed || peer.ended || peer.socket.writableLength === 0
  await eventually(() => expect(peers.every(sent)).toBe(true))
}

describe.each(Object.entries(CHEAP))('E15: %s', (_name, fields) => {
  test.each(Object.entries(WAYS))(
    '%s',
    async (_way, { settings, flags, unread }) => {
      const edge = await startEdge(answering, {
        healthPath: '/health',
        cors: { origins: ['https://ui.example'] },
        hold: { holdMs: 0 },
      })
      const flood = async (peers: readonly RawPeer[]) => {
        for (const peer of peers) {
          if (unread) peer.socket.pause()
          for (let n = 0; n < 100; n++) peer.send(request(2 * n + 1, fields(n), flags))
        }
        await heard(peers)
        await edge.othersUnhurt()
      }
      // What is created only once, by the first of its kind.
      const first = await callAll(edge, settings, 2)
      await flood(first)
      for (const { socket } of first) socket.destroy()
      const peers = await callAll(edge, settings)
      const before = await liveBytes()
      await flood(peers)
      await eventually(async () => expect((await liveBytes()) - before).toBeLessThan(CALLERS * HELD_BYTES), 100)
    },
    60_000,
  )
})

test('E15: requests that were not begun are refused so that they may be sent again, and answers that have left make room', async () => {
  const edge = await startEdge(answering, { hold: { holdMs: 0 } })
  const [peer] = (await callAll(edge, NO_WINDOW)) as [RawPeer]
  for (let n = 0; n < 100; n++) peer.send(request(2 * n + 1, get(`nobody${n}.example`), END_STREAM))
  const frames = () => framesOf(Buffer.from(peer.text, 'latin1'))
  const resets = () => frames().filter(({ type }) => type === TYPE.reset)
  const heads = () => frames().filter(({ type }) => type === TYPE.headers)
  await eventually(() => expect(resets().length + heads().length).toBe(100))
  expect(heads().length).toBeLessThan(60)
  expect(resets().every(({ payload }) => payload.readUInt32BE() === REFUSED_STREAM)).toBe(true)
  // The windows open: all answers leave, and more requests are begun.
  peer.send(frame(TYPE.settings, 0, 0, WIDE_WINDOW))
  const ends = () => frames().filter(({ type, flags }) => type === TYPE.data && flags & END_STREAM).length
  await eventually(() => expect(ends()).toBe(heads().length))
  const answered = heads().length
  peer.send(request(201, get('nobody.example'), END_STREAM))
  await eventually(() => expect(heads().length).toBe(answered + 1))
})

test("E15: errors of an upstream's that one caller behind a proxy does not take keep no other request out", async () => {
  const body = 'x'.repeat(60_000)
  const edge = await startEdge(answeringWith(`HTTP/1.1 404 Not Found\r\nContent-Length: ${body.length}\r\n\r\n${body}`))
  const [proxy] = (await callAll(edge, NO_WINDOW, 1)) as [RawPeer]
  const heads = () => framesOf(Buffer.from(proxy.text, 'latin1')).filter(({ type }) => type === TYPE.headers)
  for (let n = 0; n < 8; n++) proxy.send(request(2 * n + 1, get(HOST, `/${n}`), END_STREAM))
  await eventually(() => expect(heads()).toHaveLength(8))
  // Meanwhile, the answers become complete.
  for (let n = 8; n < 28; n++) {
    proxy.send(request(2 * n + 1, get(HOST, '/canary'), END_STREAM))
    await eventually(() => expect(heads()).toHaveLength(n + 1))
  }
})
