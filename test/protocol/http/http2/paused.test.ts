/** What arrives for a stream that is paused costs about its own bytes, however small its frames are, and none of it is lost. */
import { afterEach, describe, expect, test } from 'vitest'
import type { HeaderList, RequestSink, ResponseSink } from '../../../../protocol/exchange.ts'
import { DEFAULT_HTTP_LIMITS } from '../../../../protocol/http/limits.ts'
import { listen } from '../../../../protocol/http/listener.ts'
import { fillTarget, parseTarget } from '../../../../router/target.ts'
import { Upstreams } from '../../../../router/upstream/upstreams.ts'
import { DEAF, UPSTREAM_REQUEST } from '../../../support/ends.ts'
import {
  END_HEADERS,
  END_STREAM,
  field,
  frame,
  framesOf,
  head,
  PREFACE,
  TYPE,
  uint32,
} from '../../../support/http2-frames.ts'
import { Http2Upstream } from '../../../support/http2-upstream.ts'
import { eventually } from '../../../support/until.ts'
import { call } from '../http1/raw.ts'

const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

/** More than a reader holds before it pauses. */
const FIRST = Buffer.alloc(DEFAULT_HTTP_LIMITS.bufferBytes + 1, 'f')

const BODY = Buffer.from(Array.from({ length: 40_000 }, (_, at) => 97 + (at % 26)))
const UNKNOWN_TYPE = 0xfa
const FRAME_BYTES = 16_384
const FIRST_CHUNKS = Math.ceil(FIRST.length / FRAME_BYTES)
const SIZES = [1, 7, 1023, 1024, 5000]

function framesFor(stream: number, size: number): Buffer {
  const frames: Buffer[] = []
  for (let at = 0; at < BODY.length; at += size) {
    frames.push(frame(TYPE.data, 0, stream, BODY.subarray(at, at + size)))
    // A frame of an unknown type is ignored, but was read into the same memory.
    if (size > 1000) frames.push(frame(UNKNOWN_TYPE, 0, 0, Buffer.alloc(FRAME_BYTES)))
  }
  return Buffer.concat(frames)
}

/** One end's view of a body that nobody takes at first. */
class Body {
  readonly chunks: Uint8Array[] = []
  ended: HeaderList | undefined
  aborted: string | undefined
  #untaken = 0
  #taking = false
  consume: (bytes: number) => void = () => {}

  data(chunk: Uint8Array): void {
    this.chunks.push(chunk)
    this.#untaken += chunk.length
    if (this.#taking) this.take()
  }

  take(): void {
    this.#taking = true
    const bytes = this.#untaken
    this.#untaken = 0
    this.consume(bytes)
  }

  end(trailers: HeaderList): void {
    this.ended = trailers
  }

  abort(reason: string): void {
    this.aborted = reason
  }

  get text(): string {
    return Buffer.concat(this.chunks).toString()
  }
}

interface Sender {
  readonly body: Body
  /** Sends frames for the stream of the body, and waits until they have been read. */
  send(bytes: Buffer): Promise<void>
  readonly stream: number
}

/** A caller's request body, at our edge. `accept` answers a WebSocket with 101. */
async function request(block = head('POST')): Promise<Sender & { accept: () => void }> {
  const body = new Body()
  const sink: RequestSink = {
    requestData: chunk => body.data(chunk),
    requestEnd: trailers => body.end(trailers),
    requestAbort: error => body.abort(error.reason),
    responseConsumed() {},
  }
  let accept = () => {}
  const listener = await listen({
    port: 0,
    // That limit would stop frames that arrive as fast as here.
    limits: { http2ControlBytes: 0 },
    handler: (_request, response) => {
      body.consume = bytes => response.requestConsumed(bytes)
      accept = () => response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
      return sink
    },
  })
  open.push(() => listener.close({ graceMs: 0 }))
  const peer = await call(listener.address.port)
  open.push(() => peer.socket.destroy())
  let pings = 0
  const send = async (bytes: Buffer) => {
    pings++
    peer.send(Buffer.concat([bytes, frame(TYPE.ping, 0, 0, Buffer.alloc(8))]))
    await peer.until(
      text => framesOf(Buffer.from(text, 'latin1')).filter(({ type }) => type === TYPE.ping).length >= pings,
    )
  }
  await send(
    Buffer.concat([
      PREFACE,
      frame(TYPE.settings, 0, 0),
      frame(TYPE.settings, 1, 0),
      frame(TYPE.headers, END_HEADERS, 1, block),
    ]),
  )
  return { body, send, stream: 1, accept: () => accept() }
}

/** An upstream's response body, at our end towards it. */
async function response(): Promise<Sender> {
  const body = new Body()
  const upstream = await Http2Upstream.start()
  const upstreams = new Upstreams()
  open.push(
    () => upstream.stop(),
    () => upstreams.close(),
  )
  const target = fillTarget(parseTarget(`h2c://127.0.0.1:${upstream.port}`), {}, new Map(), undefined)!
  const sink: ResponseSink = {
    ...DEAF,
    responseData: chunk => body.data(chunk),
    responseEnd: trailers => body.end(trailers),
    responseAbort: error => body.abort(error.reason),
  }
  const sent = upstreams.forward(target, UPSTREAM_REQUEST, { connectMs: 10_000, headMs: 60_000, attempts: 0 }, sink)
  body.consume = bytes => sent.responseConsumed(bytes)
  await eventually(() => expect(upstream.streams).toHaveLength(1))
  const [stream] = upstream.streams
  stream!.head(200)
  const { connection } = stream!
  let pongs = 0
  connection.onPong = () => void pongs++
  let pings = 0
  const send = async (bytes: Buffer) => {
    pings++
    connection.send(Buffer.concat([bytes, frame(TYPE.ping, 0, 0, Buffer.alloc(8))]))
    await eventually(() => expect(pongs).toBe(pings))
  }
  return { body, send, stream: stream!.id }
}

const SENDERS = { 'a request': () => request(), 'a response': response }

async function paused(start: () => Promise<Sender>): Promise<Sender> {
  const sender = await start()
  for (let at = 0; at < FIRST.length; at += FRAME_BYTES) {
    await sender.send(frame(TYPE.data, 0, sender.stream, FIRST.subarray(at, at + FRAME_BYTES)))
  }
  await eventually(() => expect(sender.body.text).toBe(FIRST.toString()))
  return sender
}

describe.each(Object.entries(SENDERS))('the body of %s, in frames of', (_name, start) => {
  const trailers = (id: number) => frame(TYPE.headers, END_HEADERS | END_STREAM, id, field('x-sum', '9'))
  const ending = (id: number) => frame(TYPE.data, END_STREAM, id)

  test.each(SIZES)('%i bytes: nothing is lost, and no chunk keeps more memory than it needs', async size => {
    const { body, send, stream } = await paused(start)
    await send(framesFor(stream, size))
    expect(body.chunks).toHaveLength(FIRST_CHUNKS)
    body.take()
    await eventually(() => expect(body.text).toBe(FIRST.toString() + BODY.toString()))
    // The smallest room of a gathered chunk doubles until it has its full size.
    expect(body.chunks.length).toBeLessThan(FIRST_CHUNKS + BODY.length / Math.max(size, 1024) + 10)
    for (const chunk of body.chunks.slice(FIRST_CHUNKS))
      expect(chunk.buffer.byteLength).toBeLessThanOrEqual(Math.max(4 * chunk.length, 4096))
    await send(ending(stream))
    await eventually(() => expect(body.ended).toEqual([]))
  })

  test.each(SIZES)('%i bytes, ended while they wait', async size => {
    const { body, send, stream } = await paused(start)
    await send(Buffer.concat([framesFor(stream, size), ending(stream)]))
    expect([body.chunks.length, body.ended]).toEqual([FIRST_CHUNKS, undefined])
    body.take()
    await eventually(() => expect(body.ended).toEqual([]))
    expect(body.text).toBe(FIRST.toString() + BODY.toString())
  })

  test.each(SIZES)('%i bytes, with trailers while they wait', async size => {
    const { body, send, stream } = await paused(start)
    await send(Buffer.concat([framesFor(stream, size), trailers(stream)]))
    expect([body.chunks.length, body.ended]).toEqual([FIRST_CHUNKS, undefined])
    body.take()
    await eventually(() => expect(body.ended).toEqual(['x-sum', '9']))
    expect(body.text).toBe(FIRST.toString() + BODY.toString())
  })

  test.each(SIZES)('%i bytes, reset while they wait: it breaks off once, and no byte is given twice', async size => {
    const { body, send, stream } = await paused(start)
    await send(Buffer.concat([framesFor(stream, size), frame(TYPE.reset, 0, stream, uint32(8))]))
    await eventually(() => expect(body.aborted).toBeDefined())
    body.take()
    expect(body.ended).toBeUndefined()
    expect(FIRST.toString() + BODY.toString()).toContain(body.text)
  })

  test.each(SIZES)('%i bytes, paused again and again', async size => {
    const { body, send, stream } = await paused(start)
    const given = framesFor(stream, size)
    await send(given)
    for (let turn = 0; turn < 10; turn++) {
      body.consume(body.chunks.reduce((all, { length }) => all + length, 0))
      body.chunks.length = 0
      await send(frame(TYPE.data, 0, stream, Buffer.alloc(100, 'n')))
    }
    body.take()
    await send(ending(stream))
    await eventually(() => expect(body.ended).toEqual([]))
    expect(body.text.endsWith('n'.repeat(100))).toBe(true)
  })
})

describe('a WebSocket that is not accepted yet, in frames of', () => {
  const fields: [string, string][] = [
    [':protocol', 'websocket'],
    [':scheme', 'http'],
    [':path', '/'],
    [':authority', 'a'],
    ['sec-websocket-version', '13'],
  ]
  const block = Buffer.concat([field(':method', 'CONNECT'), ...fields.map(([name, value]) => field(name, value))])

  test.each(SIZES.flatMap(size => [[size, ''] as const, [size, ', and its end'] as const]))(
    '%i bytes%s',
    async (size, end) => {
      const { body, send, stream, accept } = await request(block)
      const bytes = framesFor(stream, size)
      const ending = frame(TYPE.data, END_STREAM, stream)
      await send(end === '' ? bytes : Buffer.concat([bytes, ending]))
      expect(body.chunks).toEqual([])
      accept()
      body.take()
      await eventually(() => expect(body.text).toBe(BODY.toString()))
      expect(body.chunks.length).toBeLessThan(BODY.length / Math.max(size, 1024) + 10)
      for (const chunk of body.chunks)
        expect(chunk.buffer.byteLength).toBeLessThanOrEqual(Math.max(4 * chunk.length, 4096))
      if (end === '') await send(ending)
      await eventually(() => expect(body.ended).toEqual([]))
    },
  )
})
