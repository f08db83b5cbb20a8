/** What is on the wire when an exchange breaks: a reset, and nothing that could be mistaken for an end. */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import { BODY_UNKNOWN, type Handler, type HttpRequest } from '../../../../protocol/exchange.ts'
import { Http2ClientSession } from '../../../../protocol/http/http2/client-session.ts'
import { listen } from '../../../../protocol/http/listener.ts'
import { DEAF, ends } from '../../../support/ends.ts'
import {
  END_HEADERS,
  END_STREAM,
  type Frame,
  frame,
  framesOf,
  head,
  PREFACE,
  TYPE,
  uint32,
  WEBSOCKET_HEAD,
} from '../../../support/http2-frames.ts'
import { recorder } from '../http1/raw.ts'

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

const INTERNAL_ERROR = 2
const CANCEL = 8
/** Settings. */
const WINDOW = 4

/** The frames of stream 1 up to its reset or its clean end. */
async function lastFrames(socket: Socket): Promise<Frame[]> {
  let bytes = Buffer.alloc(0)
  for (;;) {
    const [chunk] = (await once(socket, 'data')) as [Buffer]
    bytes = Buffer.concat([bytes, chunk])
    const start = bytes.subarray(0, 3).toString() === 'PRI' ? PREFACE.length : 0
    const frames = framesOf(bytes.subarray(start)).filter(({ stream }) => stream === 1)
    if (frames.some(each => each.type === TYPE.reset || isEnd(each))) return frames
  }
}

function isEnd({ type, flags }: Frame): boolean {
  return type !== TYPE.reset && (flags & END_STREAM) !== 0
}

function expectCut(frames: readonly Frame[], code: number): void {
  expect(frames.filter(isEnd)).toEqual([])
  expect(frames.at(-1)?.type).toBe(TYPE.reset)
  expect(frames.at(-1)?.payload.readUInt32BE()).toBe(code)
}

const bodies = [
  ['of known length', 100],
  ['of unknown length', BODY_UNKNOWN],
] as const

describe('a response that breaks', () => {
  test.each(bodies)('%s: RST_STREAM, no END_STREAM', async (_, bodyBytes) => {
    const { handler, seen } = recorder(one => {
      one.response.responseHead({ status: 200, headers: [], bodyBytes })
      one.response.responseData(Buffer.from('some'))
    })
    const listener = await listen({ port: 0, handler })
    const socket = connect(listener.address.port, '127.0.0.1')
    open.push(
      () => listener.close({ graceMs: 0 }),
      () => socket.destroy(),
    )
    const block = frame(TYPE.headers, END_HEADERS | END_STREAM, 1, head())
    socket.write(Buffer.concat([PREFACE, frame(TYPE.settings, 0, 0), frame(TYPE.settings, 1, 0), block]))
    const frames = lastFrames(socket)
    while (seen.length === 0) await once(socket, 'data')
    // The data has left: what follows is not gathered with it.
    setTimeout(() => seen[0]?.response.responseAbort(new SallyportError('upstream-broken')), 20)
    expectCut(await frames, INTERNAL_ERROR)
  })
})

/** Settings of a peer that has accepted ours. */
function settings(...values: [id: number, value: number][]): Buffer {
  const payload = values.map(([id, value]) => Buffer.concat([Buffer.from([0, id]), uint32(value)]))
  return Buffer.concat([frame(TYPE.settings, 0, 0, Buffer.concat(payload)), frame(TYPE.settings, 1, 0)])
}

describe('the end of an answer needs no window', () => {
  test.each([
    ['of unknown length', 200, BODY_UNKNOWN, head()],
    ['with trailers', 200, 4, head('GET', ['te', 'trailers'])],
    ['of a WebSocket', 101, 0, WEBSOCKET_HEAD],
  ] as const)('%s', async (_, status, bodyBytes, block) => {
    const handler: Handler = (_request, response) => {
      setImmediate(() => {
        response.responseHead({ status, headers: [], bodyBytes })
        response.responseData(Buffer.from('some'))
      })
      return { ...ends().back, responseConsumed: () => response.responseEnd([]) }
    }
    const listener = await listen({ port: 0, handler })
    const socket = connect(listener.address.port, '127.0.0.1')
    open.push(
      () => listener.close({ graceMs: 0 }),
      () => socket.destroy(),
    )
    const whole = frame(TYPE.headers, END_HEADERS | (status === 101 ? 0 : END_STREAM), 1, block)
    socket.write(Buffer.concat([PREFACE, settings([WINDOW, 4]), whole]))
    if (status === 101) socket.write(frame(TYPE.data, END_STREAM, 1))
    const frames = await lastFrames(socket)
    expect(
      frames
        .filter(({ type }) => type === TYPE.data)
        .map(({ payload }) => String(payload))
        .join(''),
    ).toBe('some')
    expect(frames.filter(isEnd)).toEqual([frames.at(-1)])
  })
})

/** Ours, and those of an upstream that the test writes. */
async function pairOfSockets(): Promise<{ socket: Socket; peer: Socket }> {
  const server = createServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const accepted = once(server, 'connection')
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
  const [peer] = (await accepted) as [Socket]
  open.push(
    () => server.close(),
    () => peer.destroy(),
  )
  return { socket, peer }
}

describe('a request that breaks', () => {
  test.each(bodies)('%s: RST_STREAM, no END_STREAM', async (_, bodyBytes) => {
    const { socket, peer } = await pairOfSockets()
    peer.write(settings())
    const session = new Http2ClientSession(socket, { onClose: () => {}, onIdle: () => {} })
    open.push(() => session.destroy())
    const frames = lastFrames(peer)
    const request = { method: 'POST', scheme: 'http', authority: 'a', path: '/', headers: [], bodyBytes }
    const sink = session.send({ ...request, upgrade: undefined } as unknown as HttpRequest, DEAF)
    sink.requestData(Buffer.from('some'))
    setTimeout(() => sink.requestAbort(new SallyportError('cancelled')), 20)
    expectCut(await frames, CANCEL)
  })

  test('its end needs no window', async () => {
    const { socket, peer } = await pairOfSockets()
    peer.write(settings([WINDOW, 4]))
    const told = Promise.withResolvers<void>()
    const session = new Http2ClientSession(socket, { onSettings: told.resolve })
    open.push(() => session.destroy())
    await told.promise
    const frames = lastFrames(peer)
    const request = { method: 'POST', authority: 'a', path: '/', headers: [], bodyBytes: 4, upgrade: false }
    const sink = session.send(request, { ...DEAF, requestConsumed: () => sink.requestEnd([]) })
    sink.requestData(Buffer.from('some'))
    expect((await frames).filter(isEnd)).toEqual([(await frames).at(-1)])
  })
})
