/** Request bodies as frames on the wire, and what the handler is told of them. */
import { connect as connectHttp2 } from 'node:http2'
import { afterEach, describe, expect, test } from 'vitest'
import { listen } from '../../../../protocol/http/listener.ts'
import { END_HEADERS, END_STREAM, field, frame, framesOf, head, PREFACE, TYPE } from '../../../support/http2-frames.ts'
import { outcomeOf } from '../../../support/http2-outcome.ts'
import { eventually } from '../../../support/until.ts'
import { call, ok, type RawPeer, recorder, type Seen } from '../http1/raw.ts'

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

async function serve(answer: (seen: Seen) => void = () => {}) {
  const { handler, seen } = recorder(answer)
  const listener = await listen({ port: 0, handler })
  open.push(() => listener.close({ graceMs: 0 }))
  return { seen, port: listener.address.port }
}

/** The pings that the server answered: it has read what came before them. */
function pongs(peer: RawPeer): number {
  return framesOf(Buffer.from(peer.text, 'latin1')).filter(({ type }) => type === TYPE.ping).length
}

const HELLO = Buffer.concat([PREFACE, frame(TYPE.settings, 0, 0), frame(TYPE.settings, 1, 0)])
const post = (...more: [string, string][]) => frame(TYPE.headers, END_HEADERS, 1, head('POST', ...more))
const data = (text: string, flags = 0) => frame(TYPE.data, flags, 1, Buffer.from(text))
const trailers = frame(TYPE.headers, END_HEADERS | END_STREAM, 1, field('x-sum', '9'))

const CASES: Record<string, { frames: Buffer[]; body: string; trailers: string[] }> = {
  'HEADERS, empty DATA': { frames: [post(), data('', END_STREAM)], body: '', trailers: [] },
  'HEADERS, two of empty DATA': { frames: [post(), data(''), data('', END_STREAM)], body: '', trailers: [] },
  'HEADERS, trailers': { frames: [post(), trailers], body: '', trailers: ['x-sum', '9'] },
  'HEADERS, empty DATA, trailers': { frames: [post(), data(''), trailers], body: '', trailers: ['x-sum', '9'] },
  'a content-length of 0, empty DATA': {
    frames: [post(['content-length', '0']), data('', END_STREAM)],
    body: '',
    trailers: [],
  },
  'an expectation, empty DATA': {
    frames: [post(['expect', '100-continue']), data('', END_STREAM)],
    body: '',
    trailers: [],
  },
  'HEADERS, DATA': { frames: [post(), data('abc', END_STREAM)], body: 'abc', trailers: [] },
  'HEADERS, DATA, empty DATA': { frames: [post(), data('abc'), data('', END_STREAM)], body: 'abc', trailers: [] },
  'HEADERS, DATA, trailers': { frames: [post(), data('abc'), trailers], body: 'abc', trailers: ['x-sum', '9'] },
  'a content-length, DATA, trailers': {
    frames: [post(['content-length', '3']), data('abc'), trailers],
    body: 'abc',
    trailers: ['x-sum', '9'],
  },
}

describe.each(Object.entries(CASES))('%s', (_name, { frames, body, trailers }) => {
  test.each(['in one read', 'frame by frame'])('%s: the request is complete', async way => {
    const { seen, port } = await serve()
    const peer = await call(port)
    open.push(() => peer.socket.destroy())
    if (way === 'in one read') peer.send(Buffer.concat([HELLO, ...frames]))
    else {
      peer.send(HELLO)
      for (const [n, one] of frames.entries()) {
        peer.send(Buffer.concat([one, frame(TYPE.ping, 0, 0, Buffer.alloc(8))]))
        await peer.until(() => pongs(peer) > n)
      }
    }
    await eventually(() => expect(seen[0]?.trailers).toEqual(trailers))
    expect([seen[0]?.body, seen[0]?.aborted]).toEqual([body, undefined])
    ok(seen[0]!.response)
    expect(await outcomeOf(peer, 1)).toEqual({ status: 200, body: 'ok' })
  })
})

test.each(['within', 'after'])(
  'a WebSocket that says at once that it has nothing to say, accepted %s the handler',
  async when => {
    const accept = ({ response }: Seen) => response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
    const { seen, port } = await serve(when === 'within' ? accept : undefined)
    const peer = await call(port)
    open.push(() => peer.socket.destroy())
    const fields = [':method', 'CONNECT', ':protocol', 'websocket', ':scheme', 'http', ':path', '/', ':authority', 'a']
    const block = [...fields, 'sec-websocket-version', '13']
    const pairs = block.flatMap((name, i) => (i % 2 === 0 ? [field(name, block[i + 1]!)] : []))
    peer.send(Buffer.concat([HELLO, frame(TYPE.headers, END_HEADERS, 1, Buffer.concat(pairs)), data('', END_STREAM)]))
    await eventually(() => expect(seen.length).toBe(1))
    if (when === 'after') accept(seen[0]!)
    await eventually(() => expect(seen[0]?.trailers).toEqual([]))
  },
)

test('20 empty bodies of node:http2', async () => {
  const { seen, port } = await serve()
  const session = connectHttp2(`http://127.0.0.1:${port}`)
  open.push(() => session.destroy())
  for (let i = 0; i < 20; i++) session.request({ ':method': 'POST', ':path': '/', ':authority': 'a' }).end()
  await eventually(() => expect(seen.filter(one => one.trailers !== undefined).length).toBe(20))
})
