/** A chunk without bytes means nothing: where a length of 0 ends a body, it is not written. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, expect, it } from 'vitest'
import { BODY_UNKNOWN, type Handler, type HttpRequest } from '../../../protocol/exchange.ts'
import { listen } from '../../../protocol/http/listener.ts'
import { createRouter } from '../../../router/index.ts'
import { askWhole } from '../../support/caller.ts'
import { Http1Caller } from '../../support/caller-http1.ts'
import { DEAF } from '../../support/ends.ts'
import { startPair } from '../../support/pair.ts'

const stops: (() => unknown)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop()
})

const PIECES = ['a', '', 'b', '', '', 'c'].map(text => Buffer.from(text))

/** As in an embedder's handler, in the embedder's own code. */
const inPieces: Handler = (_request, response) => {
  response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
  for (const piece of PIECES) response.responseData(piece)
  response.responseEnd([])
  return { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
}

it('in an answer over HTTP/1.1', async () => {
  const listener = await listen({ host: '127.0.0.1', port: 0, handler: inPieces })
  stops.push(() => listener.close({ graceMs: 0 }))
  const answer = await fetch(`http://127.0.0.1:${listener.address.port}`)
  expect(await answer.text()).toBe('abc')
})

it('in an answer through a tunnel', async () => {
  const pair = await startPair({ target: { handler: inPieces } })
  stops.push(() => pair.stop())
  const caller = await Http1Caller.connect(pair.place)
  stops.push(() => caller.close())
  const { status, content } = await askWhole(caller, { path: '/' })
  expect({ status, text: content.toString() }).toEqual({ status: 200, text: 'abc' })
})

it('in a request to an upstream', async () => {
  const upstream = createServer((request, response) => void request.pipe(response)).listen(0, '127.0.0.1')
  await once(upstream, 'listening')
  stops.push(() => upstream.close())
  const target = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`
  const router = createRouter({ routes: { routes: [{ name: 'all', match: {}, target }] } })
  stops.push(() => router.close())
  const request: HttpRequest = {
    method: 'POST',
    authority: 'a',
    path: '/',
    headers: [],
    bodyBytes: BODY_UNKNOWN,
    upgrade: false,
    peerAddress: '192.0.2.1',
    encrypted: false,
    caller: undefined,
    requestId: 'r1',
    exchangeId: undefined,
  }
  const text = await new Promise<string>((resolve, abort) => {
    let body = ''
    const data = (chunk: Uint8Array) => (body += Buffer.from(chunk))
    const sink = router.handler(request, {
      ...DEAF,
      responseData: data,
      responseEnd: () => resolve(body),
      responseAbort: abort,
    })
    for (const piece of PIECES) sink.requestData(piece)
    sink.requestEnd([])
  })
  expect(text).toBe('abc')
})
