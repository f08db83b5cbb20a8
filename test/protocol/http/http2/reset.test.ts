/** What is on the wire when an exchange breaks: a reset and nothing that could be taken for an end. */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import { BODY_UNKNOWN, type HttpRequest } from '../../../../protocol/exchange.ts'
import { Http2ClientSession } from '../../../../protocol/http/http2/client-session.ts'
import { listen } from '../../../../protocol/http/listener.ts'
import {
  END_HEADERS,
  END_STREAM,
  field,
  type Frame,
  frame,
  framesOf,
  head,
  PREFACE,
  TYPE,
  uint32,
} from '../../../support/http2-frames.ts'
import { recorder } from '../http1/raw.ts'
import { DEAF } from '../../../support/ends.ts'

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

const INTERNAL_ERROR = 2
const CANCEL = 8

/** The frames of stream 1 that come up to its reset, or to a clean end. */
async function lastFrames(socket: Socket): Promise<Frame[]> {
  let bytes = Buffer.alloc(0)
  for (;;) {
    const [chunk] = (await once(socket, 'data')) as [Buffer]
    bytes = Buffer.concat([bytes, chunk])
    const start = bytes.subarray(0, 3).toString() === 'PRI' ? PREFACE.length : 0
    const frames = framesOf(bytes.subarray(start)).filter(({ stream }) => stream === 1)
    const over = frames.some(({ type, flags }) => type === TYPE.reset || (type === TYPE.data && flags & END_STREAM))
    if (over) return frames
  }
}

function expectCut(frames: readonly Frame[], code: number): void {
  expect(frames.filter(({ flags, type }) => type !== TYPE.reset && flags & END_STREAM)).toEqual([])
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

/** Ours, and that of an upstream which the test writes. */
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
    peer.write(Buffer.concat([frame(TYPE.settings, 0, 0), frame(TYPE.settings, 1, 0)]))
    const session = new Http2ClientSession(socket, { onClose: () => {}, onIdle: () => {} })
    open.push(() => session.destroy())
    const frames = lastFrames(peer)
    const request = { method: 'POST', scheme: 'http', authority: 'a', path: '/', headers: [], bodyBytes }
    const sink = session.send({ ...request, upgrade: undefined } as unknown as HttpRequest, DEAF)
    sink.requestData(Buffer.from('some'))
    setTimeout(() => sink.requestAbort(new SallyportError('cancelled')), 20)
    expectCut(await frames, CANCEL)
  })

  test('whose answer is over, and for whose end its upstream has no room: it is reset, and the session is free', async () => {
    const { socket, peer } = await pairOfSockets()
    const fourBytes = Buffer.concat([Buffer.from([0, 4]), uint32(4)])
    peer.write(Buffer.concat([frame(TYPE.settings, 0, 0, fourBytes), frame(TYPE.settings, 1, 0)]))
    const idle = Promise.withResolvers<void>()
    const settings = Promise.withResolvers<void>()
    const session = new Http2ClientSession(socket, {
      limits: { stalledMs: 200 },
      onSettings: settings.resolve,
      onIdle: () => idle.resolve(),
    })
    open.push(() => session.destroy())
    await settings.promise
    const frames = lastFrames(peer)
    const request = { method: 'POST', authority: 'a', path: '/', headers: [], bodyBytes: 4, upgrade: false }
    const ended = Promise.withResolvers<void>()
    const sink = session.send(request, { ...DEAF, responseEnd: () => ended.resolve() }, { headTimeoutMs: 100 })
    sink.requestData(Buffer.from('some'))
    sink.requestEnd([])
    peer.write(frame(TYPE.headers, END_HEADERS | END_STREAM, 1, field(':status', '200')))
    await ended.promise
    expect(session.streams).toBe(1)
    expectCut(await frames, CANCEL)
    await idle.promise
    expect(session.streams).toBe(0)
  })
})
