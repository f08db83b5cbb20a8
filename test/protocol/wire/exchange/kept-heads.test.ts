/** B1: an incomplete head counts, though its credit has been returned. That of a request, and trailers, count until the exchange is over. */
import { describe, expect, test } from 'vitest'
import { type BufferBudget, createBufferBudget } from '../../../../protocol/base/budget.ts'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import type { HttpRequest, RequestSink, ResponseSink } from '../../../../protocol/exchange.ts'
import {
  messageEndText,
  RESPONSE_START,
  requestHeadText,
  responseHeadText,
} from '../../../../protocol/wire/bhttp/encode.ts'
import { acceptExchange } from '../../../../protocol/wire/exchange/accept.ts'
import { openExchange } from '../../../../protocol/wire/exchange/open.ts'
import { preambleText } from '../../../../protocol/wire/preamble.ts'
import { STREAM_KIND } from '../../../../protocol/wire/stream-kinds.ts'
import type { Session } from '../../../../protocol/wire/yamux/session.ts'
import type { Stream } from '../../../../protocol/wire/yamux/stream.ts'
import { until } from '../../../support/until.ts'
import { sessionPair } from '../yamux/support.ts'

const LONG = Array.from({ length: 4 }, (_, i) => [`x-${i}`, 'v'.repeat(7_000)]).flat()
const CALLER = { address: '192.0.2.1', scheme: 'http', host: 'demo.example.com' } as const
const REQUEST: HttpRequest = {
  method: 'GET',
  authority: CALLER.host,
  path: '/',
  headers: [],
  bodyBytes: 0,
  upgrade: false,
  peerAddress: CALLER.address,
  encrypted: false,
  caller: CALLER,
  requestId: 'r',
  exchangeId: 'x'.repeat(16),
}
const PREAMBLE = preambleText({
  ...{ kind: STREAM_KIND.exchange, exchangeId: 'x'.repeat(16), attempt: 0, runtime: 'demo', epoch: 1, timeLeftMs: 0 },
  ...{ callerAddress: CALLER.address, callerScheme: 'http', hops: 0, bodyBytes: 0 },
})

const noResponse = { responseInformational() {}, responseData() {}, responseEnd() {}, requestConsumed() {} }
const noRequest = { requestData() {}, requestEnd() {}, responseConsumed() {} }

interface Playing {
  /** At the end that reads the head. */
  readonly session: Session
  readonly budget: BufferBudget
  /** The end that sends it. */
  readonly stream: Stream
  readonly head: string
  readonly outcomes: string[]
}

async function response(): Promise<Playing> {
  const budget = createBufferBudget()
  const outcomes: string[] = []
  const streams: Stream[] = []
  const { server, client } = sessionPair({ processBudget: budget }, { onStream: stream => void streams.push(stream) })
  for (const session of [server, client]) session.setPeerLimits({ windowBytes: 4_096 })
  const sink: ResponseSink = {
    ...noResponse,
    responseHead: () => void outcomes.push('head'),
    responseAbort: ({ reason }) => void outcomes.push(reason),
  }
  openExchange(server.open(), REQUEST, { runtime: 'demo', epoch: 1, attempt: 0, hops: 0, timeLeftMs: 0 }, sink)
  await until(() => streams.length > 0)
  const head = `\x01${RESPONSE_START}${responseHeadText(200, LONG)}`
  return { session: server, budget, stream: streams[0]!, head, outcomes }
}

async function request(): Promise<Playing> {
  const budget = createBufferBudget()
  const outcomes: string[] = []
  const taken: RequestSink = { ...noRequest, requestAbort: ({ reason }) => void outcomes.push(reason) }
  const { server, client } = sessionPair(
    {},
    {
      processBudget: budget,
      onStream: stream =>
        acceptExchange(stream, () => {
          outcomes.push('head')
          return taken
        }),
    },
  )
  for (const session of [server, client]) session.setPeerLimits({ windowBytes: 4_096 })
  const head = PREAMBLE + requestHeadText('GET', 'http', CALLER.host, '/', LONG)
  return { session: client, budget, stream: server.open(), head, outcomes }
}

describe.each([
  ['a response', response, false],
  ['a request', request, true],
])('B1 the head of %s', (_, begin, keeps) => {
  const sent = async (): Promise<Playing> => {
    const playing = await begin()
    playing.stream.write(playing.head.slice(0, -1))
    await until(() => playing.session.bufferedBytes >= playing.head.length - 1_000)
    expect(playing.budget.usedBytes).toBe(playing.session.bufferedBytes)
    return playing
  }
  const isAtRest = ({ session, budget }: Playing) => session.bufferedBytes === 0 && budget.usedBytes === 0

  test.each<[string, (playing: Playing) => void]>([
    ['', () => {}],
    ['with its trailers ', ({ stream }) => stream.write(messageEndText(LONG))],
  ])('%scounts, if it is kept, until the exchange is over', async (_what, more) => {
    const playing = await sent()
    playing.stream.write(playing.head.slice(-1))
    more(playing)
    await until(() => playing.outcomes.length > 0)
    await until(() => playing.stream.queuedBytes === 0)
    const kept = [keeps ? playing.head.length - PREAMBLE.length : 0, more.length > 0 ? messageEndText(LONG).length : 0]
    await until(() => Math.abs(playing.session.bufferedBytes - kept[0]! - kept[1]!) < 100, 'what is kept')
    expect(playing.budget.usedBytes).toBe(playing.session.bufferedBytes)
    playing.stream.reset('cancelled')
    await until(() => isAtRest(playing))
    expect(playing.outcomes[0]).toBe('head')
  })

  test.each<[string, (playing: Playing) => void]>([
    ['reset', ({ stream }) => stream.reset('cancelled')],
    ['ended', ({ stream }) => stream.end()],
    ['broken', ({ stream, head }) => stream.write('v'.repeat(head.length))],
    ['lost with its session', ({ session }) => session.destroy(new SallyportError('session-lost'))],
  ])('counts, while it is incomplete, until it is %s', async (_how, end) => {
    const playing = await sent()
    end(playing)
    await until(() => isAtRest(playing))
  })
})

test("B1 a response's head is dropped when a ceiling is reached", async () => {
  const budget = createBufferBudget(256 * 1024)
  const outcomes: string[] = []
  const head = `\x01${RESPONSE_START}${responseHeadText(200, LONG)}`
  const { server } = sessionPair({ processBudget: budget }, { onStream: stream => stream.write(head.slice(0, -1)) })
  const sink: ResponseSink = {
    ...noResponse,
    responseHead() {},
    responseAbort: ({ reason }) => void outcomes.push(reason),
  }
  for (let i = 0; i < 20; i++) {
    openExchange(server.open(), REQUEST, { runtime: 'demo', epoch: 1, attempt: 0, hops: 0, timeLeftMs: 0 }, sink)
  }
  await until(() => outcomes.length > 5)
  expect(new Set(outcomes)).toEqual(new Set(['overloaded']))
  expect(budget.usedBytes).toBeLessThanOrEqual(256 * 1024)
})

test.each([
  ['while its head is incomplete is refused', 1, 'refused'],
  ['after its head may have begun', 0, 'limit'],
])('R7 a request that is dropped at a ceiling %s', async (_when, missing, code) => {
  let begun = 0
  const onStream = (stream: Stream) =>
    acceptExchange(stream, () => {
      begun++
      return { ...noRequest, requestAbort() {} }
    })
  const { server } = sessionPair({}, { processBudget: createBufferBudget(256 * 1024), onStream })
  const head = PREAMBLE + requestHeadText('GET', 'http', CALLER.host, '/', LONG)
  const codes: string[] = []
  for (let i = 0; i < 20; i++) {
    const stream = server.open()
    const reset = (why: string) => void codes.push(why)
    stream.handler = { data() {}, end() {}, consumed() {}, reset }
    stream.write(head.slice(0, head.length - missing))
    if (missing === 0) await until(() => begun > i || codes.length > 0)
  }
  await until(() => codes.length > 5)
  expect(new Set(codes)).toEqual(new Set([code]))
})
