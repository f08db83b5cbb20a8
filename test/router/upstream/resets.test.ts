/** Upstreams end a connection that resets too many streams, with everything open on it (CVE-2023-44487). */
import { once } from 'node:events'
import { createServer, type Http2Server, type IncomingHttpHeaders, type ServerHttp2Stream } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { SallyportError } from '../../../protocol/base/errors.ts'
import type { RequestSink, ResponseSink } from '../../../protocol/exchange.ts'
import { fillTarget, parseTarget } from '../../../router/target.ts'
import { Upstreams } from '../../../router/upstream/upstreams.ts'
import { DEAF } from '../../support/ends.ts'

const WAVES = 12
const TOGETHER = 50

let server: Http2Server
let upstreams: Upstreams
let arrived: (stream: ServerHttp2Stream) => void
beforeEach(async () => {
  arrived = () => {}
  server = createServer({ streamResetBurst: 310, streamResetRate: 1 })
  server.on('sessionError', () => {})
  server.on('stream', (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
    stream.on('error', () => {})
    if (headers[':path'] === '/hold') stream.respond({ ':status': 200 })
    else arrived(stream)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  upstreams = new Upstreams()
})
afterEach(() => {
  upstreams.close()
  server.close()
})

function send(overrides: Partial<ResponseSink>, path: string): RequestSink {
  const { port } = server.address() as AddressInfo
  const target = fillTarget(parseTarget(`h2c://127.0.0.1:${port}`), {}, new Map(), undefined)!
  const request = {
    method: 'GET',
    authority: 'a',
    path,
    headers: [],
    bodyBytes: 0,
    upgrade: false,
    caller: '',
    idempotent: false,
  }
  const options = { connectMs: 10_000, headMs: 60_000, attempts: 0 }
  return upstreams.forward(target, request, options, { ...DEAF, ...overrides })
}

/** This many requests at once, whose callers leave. */
async function wave(): Promise<void> {
  const all = Promise.withResolvers<void>()
  let count = 0
  arrived = () => {
    if (++count === TOGETHER) all.resolve()
  }
  const sinks = Array.from({ length: TOGETHER }, () => send({}, '/'))
  await all.promise
  for (const sink of sinks) sink.requestAbort(new SallyportError('cancelled'))
}

it('callers who leave do not end the exchanges of others on the session', async () => {
  const began = Promise.withResolvers<void>()
  let lost: SallyportError | undefined
  const abort = (error: SallyportError) => {
    lost = error
  }
  const held = send({ responseHead: () => began.resolve(), responseAbort: abort }, '/hold')
  await began.promise
  for (let i = 0; i < WAVES; i++) await wave()
  expect(lost).toBeUndefined()
  held.requestAbort(new SallyportError('cancelled'))
})
