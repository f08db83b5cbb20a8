/** A malformed message (RFC 9113, section 8.1.1) resets its stream, and nothing malformed reaches a handler. */
import { afterEach, describe, expect, test } from 'vitest'
import type { HttpLimits } from '../../../../protocol/http/limits.ts'
import { listen } from '../../../../protocol/http/listener.ts'
import { END_HEADERS, END_STREAM, frame, framesOf, head, PREFACE, TYPE } from '../../../support/http2-frames.ts'
import { outcomeOf } from '../../../support/http2-outcome.ts'
import { eventually } from '../../../support/until.ts'
import { call, ok, type RawPeer, recorder } from '../http1/raw.ts'

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

const PROTOCOL_ERROR = 1
const HELLO = Buffer.concat([PREFACE, frame(TYPE.settings, 0, 0), frame(TYPE.settings, 1, 0)])

const goaway = ({ text }: RawPeer) =>
  framesOf(Buffer.from(text, 'latin1'))
    .find(({ type }) => type === TYPE.goaway)
    ?.payload.readUInt32BE(4)

async function serve(limits: Partial<HttpLimits> = {}) {
  const { handler, seen } = recorder(() => {})
  const listener = await listen({ port: 0, handler, limits })
  const peer = await call(listener.address.port)
  open.push(
    () => listener.close({ graceMs: 0 }),
    () => peer.socket.destroy(),
  )
  return { peer, seen }
}

/** An HPACK literal of these bytes, whatever they are. */
function literal(name: string, value: string): Buffer {
  const bytes = [name, value].map(text => Buffer.from(text, 'latin1'))
  return Buffer.concat([Buffer.from([0]), ...bytes.flatMap(one => [Buffer.from([one.length]), one])])
}

const BYTES = { space: ' ', colon: ':', CR: '\r', LF: '\n', NUL: '\0', DEL: '\x7f', 'an e with an accent': '\xe9' }
const malformed: [string, string, string][] = [
  ...Object.entries(BYTES).map(([name, byte]): [string, string, string] => [`${name} in a name`, `x${byte}y`, '1']),
  ['an empty name', '', '1'],
  ['a parenthesis in a name', 'x(y', '1'],
  ['CR in a value', 'x', 'a\rb'],
  ['LF in a value', 'x', 'a\nb'],
  ['a line of its own in a value', 'x', 'a\r\nx-evil: 1'],
  ['NUL in a value', 'x', 'a\0b'],
  ['a control byte in a value', 'x', 'a\x01b'],
  ['DEL in a value', 'x', 'a\x7fb'],
  ['a space before a value', 'x', ' a'],
  ['a tab behind a value', 'x', 'a\t'],
  ['LF in a cookie', 'cookie', 'a\nb'],
  ['LF in authorization', 'authorization', 'Bearer\na'],
  ['upper case in a name', 'Xy', '1'],
  ['connection', 'connection', 'close'],
  ['transfer-encoding', 'transfer-encoding', 'chunked'],
  ['te with more than trailers', 'te', 'gzip'],
  ['an unknown pseudo field', ':foo', '1'],
  ['a pseudo field behind others', ':path', '/other'],
  ['LF in a content-length', 'content-length', '1\n'],
]
const notANumber: [string, string, string] = ['a content-length that is no number', 'content-length', '+1']

const inHead = (name: string, value: string) =>
  frame(
    TYPE.headers,
    END_HEADERS | END_STREAM,
    1,
    Buffer.concat([head(), literal('x-before', '1'), literal(name, value)]),
  )
const inTrailers = (name: string, value: string) =>
  Buffer.concat([
    frame(TYPE.headers, END_HEADERS, 1, head('POST')),
    frame(TYPE.data, 0, 1, Buffer.from('x')),
    frame(TYPE.headers, END_HEADERS | END_STREAM, 1, Buffer.concat([literal('x-before', '1'), literal(name, value)])),
  ])

describe.each([
  ['a head', inHead, [...malformed, notANumber], []],
  ['trailers', inTrailers, malformed, [[undefined, 'bad-request']]],
])('H4: %s', (_where, make, fields, begun) => {
  test.each(fields)('%s: the stream is refused, and the connection stays open', async (_name, name, value) => {
    const { peer, seen } = await serve()
    peer.send(Buffer.concat([HELLO, make(name, value)]))
    expect(await outcomeOf(peer, 1)).toEqual({ body: '', reset: PROTOCOL_ERROR })
    expect(seen.map(({ trailers, aborted }) => [trailers, aborted])).toEqual(begun)
    peer.send(frame(TYPE.headers, END_HEADERS | END_STREAM, 3, head()))
    await eventually(() => expect(seen.at(-1)?.trailers).toBeDefined())
    ok(seen.at(-1)!.response)
    expect(await outcomeOf(peer, 3)).toMatchObject({ status: 200 })
  })
})

describe('H4: a body whose length differs from its content-length', () => {
  const get = frame(TYPE.headers, END_HEADERS | END_STREAM, 1, head())
  const post = (bytes: number, id = 3) =>
    Buffer.concat([
      frame(TYPE.headers, END_HEADERS, id, head('POST', ['content-length', '2'])),
      frame(TYPE.data, END_STREAM, id, Buffer.alloc(bytes)),
    ])

  test('shorter: its stream is refused, and the connection stays open', async () => {
    const { peer, seen } = await serve()
    peer.send(Buffer.concat([HELLO, get, post(1)]))
    expect(await outcomeOf(peer, 3)).toMatchObject({ reset: PROTOCOL_ERROR })
    ok(seen[0]!.response)
    expect(await outcomeOf(peer, 1)).toMatchObject({ status: 200 })
  })

  test('longer: its stream is refused, and the connection stays open', async () => {
    const { peer, seen } = await serve()
    peer.send(Buffer.concat([HELLO, get]))
    await eventually(() => expect(seen).toHaveLength(1))
    peer.send(post(3))
    expect(await outcomeOf(peer, 3)).toMatchObject({ reset: PROTOCOL_ERROR })
    ok(seen[0]!.response)
    expect(await outcomeOf(peer, 1)).toMatchObject({ status: 200 })
    expect([seen[1]!.trailers, seen[1]!.aborted]).toEqual([undefined, 'bad-request'])
  })

  test('longer again and again: the connection accepts no more, and finishes what it has', async () => {
    const { peer, seen } = await serve({ http2ResetBurst: 4, http2ResetRate: 1 })
    peer.send(Buffer.concat([HELLO, get]))
    await eventually(() => expect(seen).toHaveLength(1))
    // However slow this process is.
    for (let id = 3; goaway(peer) !== 0; id += 2) {
      peer.send(post(3, id))
      expect(await outcomeOf(peer, id)).toMatchObject({ reset: PROTOCOL_ERROR })
    }
    ok(seen[0]!.response)
    expect(await outcomeOf(peer, 1)).toMatchObject({ status: 200 })
    await peer.end()
  })
})

describe('H4: ids of streams', () => {
  const get = (id: number) => frame(TYPE.headers, END_HEADERS | END_STREAM, id, head())

  test.each([
    ['an even id', get(2)],
    ['id 0', get(0)],
    ['an id that fell', Buffer.concat([get(5), get(3)])],
    ['a reset of a stream that was never open', frame(TYPE.reset, 0, 9, Buffer.alloc(4))],
  ])('%s is an error of the connection', async (_name, bytes) => {
    const { peer, seen } = await serve()
    peer.send(Buffer.concat([HELLO, bytes]))
    await peer.end()
    expect([goaway(peer), seen.length]).toEqual([PROTOCOL_ERROR, 0])
  })
})
