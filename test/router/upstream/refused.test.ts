/**
 * A request that an HTTP/2 upstream says it has not begun is sent once more, over another connection, whatever its
 * method.
 */
import { afterEach, beforeEach, expect, it } from 'vitest'
import type { SallyportError } from '../../../protocol/base/errors.ts'
import { BODY_UNKNOWN, type RequestSink } from '../../../protocol/exchange.ts'
import { fillTarget, parseTarget } from '../../../router/target.ts'
import { Upstreams } from '../../../router/upstream/upstreams.ts'
import { DEAF } from '../../support/ends.ts'
import { Http2Upstream, type UpstreamStream } from '../../support/http2-upstream.ts'
import { until } from '../../support/until.ts'

const REFUSED_STREAM = 7

let upstream: Http2Upstream
let upstreams: Upstreams
let ends: string[]
let credit: number
beforeEach(async () => {
  upstream = await Http2Upstream.start()
  upstreams = new Upstreams()
  ends = []
  credit = 0
})
afterEach(async () => {
  upstreams.close()
  await upstream.stop()
})

function post(bodyBytes: number): RequestSink {
  const target = fillTarget(parseTarget(`h2c://127.0.0.1:${upstream.port}`), {}, new Map(), undefined)!
  const request = {
    method: 'POST',
    authority: 'a',
    path: '/',
    headers: [],
    upgrade: false,
    caller: '',
    idempotent: false,
  }
  const options = { connectMs: 60_000, headMs: 60_000, attempts: 0 }
  return upstreams.forward(target, { ...request, bodyBytes }, options, {
    ...DEAF,
    responseEnd: () => void ends.push('whole'),
    responseAbort: (error: SallyportError) => void ends.push(error.reason),
    requestConsumed: bytes => {
      credit += bytes
    },
  })
}

/** The go-away of an upstream that accepted no stream. */
const goAway = ({ connection }: UpstreamStream) => connection.goaway(0, 0)
const reset = (stream: UpstreamStream) => stream.reset(REFUSED_STREAM)

async function stream(index: number): Promise<UpstreamStream> {
  await until(() => upstream.streams.length > index)
  return upstream.streams[index]!
}

it.each([
  ['a reset', reset],
  ['a go-away', goAway],
])('a request without a body, by %s', async (_, refuse) => {
  post(0).requestEnd([])
  refuse(await stream(0))
  ;(await stream(1)).head(204, {}, true)
  await until(() => ends.length > 0)
  expect([ends, upstream.streams.length, upstream.connections.length]).toEqual([['whole'], 2, 2])
})

it.each([
  ['a reset', reset],
  ['a go-away', goAway],
])('a body that is still arriving, by %s', async (_, refuse) => {
  const sink = post(BODY_UNKNOWN)
  sink.requestData(Buffer.alloc(30_000))
  const first = await stream(0)
  await until(() => first.received === 30_000)
  refuse(first)
  const second = await stream(1)
  sink.requestData(Buffer.alloc(20_000))
  sink.requestEnd([])
  await until(() => second.ended)
  second.head(204, {}, true)
  await until(() => ends.length > 0)
  expect([ends, second.received, credit]).toEqual([['whole'], 50_000, 50_000])
})

it('not a body that has outgrown what is kept, nor one that was answered, nor a second time', async () => {
  const large = post(BODY_UNKNOWN)
  for (let sent = 0; sent < 80_000; sent += 10_000) large.requestData(Buffer.alloc(10_000))
  reset(await stream(0))
  await until(() => ends.length === 1)
  post(0).requestEnd([])
  const answered = await stream(1)
  answered.head(200)
  reset(answered)
  await until(() => ends.length === 2)
  post(0).requestEnd([])
  reset(await stream(2))
  reset(await stream(3))
  await until(() => ends.length === 3)
  expect([ends, upstream.streams.length]).toEqual([Array(3).fill('upstream-broken'), 4])
})
