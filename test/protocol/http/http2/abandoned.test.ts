/** Requests are abandoned at every moment, also before their head has left. */
import { once } from 'node:events'
import { connect } from 'node:net'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import type { RequestSink, ResponseSink } from '../../../../protocol/exchange.ts'
import { Http2ClientSession } from '../../../../protocol/http/http2/client-session.ts'
import { frame, setting, TYPE } from '../../../support/http2-frames.ts'
import { Http2Upstream, type UpstreamStream } from '../../../support/http2-upstream.ts'
import { until } from '../../../support/until.ts'

const ONE_STREAM = frame(TYPE.settings, 0, 0, setting('maxConcurrentStreams', 1))
const ONE_BYTE = frame(TYPE.settings, 0, 0, setting('initialWindowSize', 1))
const POST = { method: 'POST', authority: 'a', path: '/', headers: [], bodyBytes: -1, upgrade: false }

let upstream: Http2Upstream
let session: Http2ClientSession
beforeEach(async () => {
  upstream = await Http2Upstream.start()
  const socket = connect(upstream.port, '127.0.0.1')
  const ready = new Promise<void>(resolve => {
    session = new Http2ClientSession(socket, { onSettings: resolve })
  })
  await ready
})
afterEach(async () => {
  session.destroy()
  await upstream.stop()
})

function receiving(onInformational = () => {}): ResponseSink {
  const none = () => {}
  return {
    responseInformational: onInformational,
    responseHead: none,
    responseData: none,
    responseEnd: none,
    responseAbort: none,
    requestConsumed: none,
  }
}

function post(bodyBytes: number | undefined): RequestSink {
  const sink = session.send(POST, receiving())
  if (bodyBytes !== undefined) {
    if (bodyBytes > 0) sink.requestData(Buffer.alloc(bodyBytes))
    sink.requestEnd([])
  }
  return sink
}

/** A request that stays open, and its stream at the upstream. `steps` run one by one, each as a frame of the upstream is being read. */
async function whileReading(steps: readonly (() => void)[]): Promise<UpstreamStream> {
  const left = [...steps]
  session.send(
    { ...POST, method: 'GET', bodyBytes: 0 },
    receiving(() => left.shift()?.()),
  )
  await until(() => upstream.streams.length === 1)
  return upstream.streams[0]!
}

const BODIES = { none: 0, small: 3, large: 100_000, unended: undefined }
const LIMITS = { 'no limit': undefined, 'one stream': ONE_STREAM, 'one byte': ONE_BYTE }
const CASES = Object.keys(BODIES).flatMap(body => Object.keys(LIMITS).map(limit => [body, limit] as const))

it.each(CASES)(
  'a request with a body (%s) is abandoned while a frame is read (%s), and its session goes on',
  async (body, limit) => {
    const sinks: RequestSink[] = []
    const begin = () => void sinks.push(post(BODIES[body as 'none']), post(BODIES[body as 'none']), post(100_000))
    const abandon = () => sinks.shift()?.requestAbort(new SallyportError('cancelled'))
    const open = await whileReading([begin, abandon, abandon, () => setImmediate(abandon)])
    const said = LIMITS[limit as 'no limit']
    if (said !== undefined) {
      open.connection.send(said)
      await once(open.connection.socket, 'data')
    }
    open.connection.atOnce(() => {
      for (let i = 0; i < 4; i++) open.head(103)
    })
    await until(() => sinks.length === 0 && session.streams > 0)
    open.head(200, {}, true)
    await until(() => session.streams === 0)
    expect(upstream.streams.filter(({ ended }) => ended)).toEqual([open])
    if (said !== ONE_STREAM) expect(session.available).toBe(true)
  },
)
