/**
 * H6 at our upstream end: whatever ends a stream, in every state, ends its exchange once and with the right outcome.
 * The next request is answered, and nothing is left over.
 */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { SallyportError } from '../../protocol/base/errors.ts'
import type { HeaderList, RequestSink, ResponseHead, ResponseSink } from '../../protocol/exchange.ts'
import { fillTarget, parseTarget } from '../../router/target.ts'
import type { UpstreamRequest } from '../../router/upstream/types.ts'
import { Upstreams } from '../../router/upstream/upstreams.ts'
import { frame, TYPE, uint32 } from '../support/http2-frames.ts'
import { Http2Upstream, type UpstreamStream } from '../support/http2-upstream.ts'
import { until } from '../support/until.ts'

/** Receives an answer, and consumes as much of it as it is told to. */
class Answer implements ResponseSink {
  sink: RequestSink | undefined
  head_: ResponseHead | undefined
  body = ''
  informed = 0
  taken = 0
  /** How often the exchange ended, and how. */
  readonly ends: string[] = []
  trailers: HeaderList = []
  takes = true
  #untaken = 0

  responseInformational(): void {
    this.informed++
  }
  responseHead(head: ResponseHead): void {
    this.head_ = head
  }
  responseData(chunk: Uint8Array): void {
    this.body += Buffer.from(chunk).toString('latin1')
    this.#untaken += chunk.length
    if (this.takes) this.take()
  }
  responseEnd(trailers: HeaderList): void {
    this.trailers = trailers
    this.ends.push('whole')
  }
  responseAbort(error: SallyportError): void {
    this.ends.push(error.reason)
  }
  requestConsumed(bytes: number): void {
    this.taken += bytes
  }
  take(): void {
    this.takes = true
    const bytes = this.#untaken
    this.#untaken = 0
    if (bytes > 0) this.sink?.responseConsumed(bytes)
  }
}

const post: UpstreamRequest = {
  method: 'POST',
  authority: 'up.example',
  path: '/',
  headers: [],
  bodyBytes: 0,
  upgrade: false,
  caller: '',
  idempotent: false,
}
/** More than the windows of a stream, so that it pauses. */
const LARGE = 300_000
/** More than a reader holds before it pauses its stream, less than the stream's window. */
const WAITING = 'x'.repeat(65_000)
/** The length of what waits for a slow caller, including what it has consumed. */
const WHOLE_LENGTH = WAITING.length + 500

let upstream: Http2Upstream
let upstreams: Upstreams
beforeEach(async () => {
  upstream = await Http2Upstream.start()
  // What a stream leaves unread uses up none of the connection's window.
  upstream.onConnection = connection => connection.send(frame(TYPE.window, 0, 0, uint32(2 ** 30)))
  upstreams = new Upstreams()
})
afterEach(async () => {
  upstreams.close()
  await upstream.stop()
})

function send(request: Partial<UpstreamRequest> = {}, headMs = 60_000): Answer {
  const target = fillTarget(parseTarget(`h2c://127.0.0.1:${upstream.port}`), {}, new Map(), undefined)!
  const answer = new Answer()
  const options = { connectMs: 10_000, headMs, attempts: 0 }
  answer.sink = upstreams.forward(target, { ...post, ...request }, options, answer)
  return answer
}

async function begin(request: Partial<UpstreamRequest> = {}): Promise<{ answer: Answer; stream: UpstreamStream }> {
  const before = upstream.streams.length
  const answer = send(request)
  await until(() => upstream.streams.length > before, 'a stream')
  return { answer, stream: upstream.streams.at(-1)! }
}

interface State {
  name: string
  request?: Partial<UpstreamRequest>
  /** What the upstream has sent before the event; false: it goes out together with the event, in one piece. */
  say(stream: UpstreamStream): void
  /** Whether the state is reached. */
  reached(answer: Answer, stream: UpstreamStream): boolean
  body?: number
  takes?: boolean
  /** How the exchange ends, unless with END_STREAM. */
  cut: 'whole' | 'upstream-broken'
  /** How it ends with END_STREAM. */
  end?: 'whole' | 'upstream-broken'
  /** The length of a whole body, in bytes. */
  length?: number
}

const states: State[] = [
  { name: 'before the head', say() {}, reached: () => true, cut: 'upstream-broken', end: 'upstream-broken' },
  {
    name: 'after a 1xx',
    say: stream => stream.head(103, { link: '</a>' }),
    reached: answer => answer.informed === 1,
    cut: 'upstream-broken',
    end: 'upstream-broken',
  },
  {
    name: 'behind the head',
    say: stream => stream.head(200),
    reached: answer => answer.head_ !== undefined,
    cut: 'upstream-broken',
    end: 'whole',
    length: 0,
  },
  {
    name: 'in a body of unknown length',
    say(stream) {
      stream.head(200)
      stream.data('half')
    },
    reached: answer => answer.body === 'half',
    cut: 'upstream-broken',
    end: 'whole',
    length: 4,
  },
  {
    name: 'in a body of known length',
    say(stream) {
      stream.head(200, { 'content-length': '8' })
      stream.data('half')
    },
    reached: answer => answer.body === 'half',
    cut: 'upstream-broken',
    end: 'upstream-broken',
  },
  {
    name: 'behind all bytes of a known length',
    say(stream) {
      stream.head(200, { 'content-length': '4' })
      stream.data('four')
    },
    reached: answer => answer.body === 'four',
    cut: 'upstream-broken',
    end: 'whole',
    length: 4,
  },
  {
    name: 'in a body whose reader is slow',
    say(stream) {
      stream.head(200)
      stream.data(WAITING)
      stream.data('x'.repeat(500))
    },
    reached: answer => answer.body.length >= WAITING.length - 16_384,
    takes: false,
    cut: 'upstream-broken',
    end: 'whole',
    length: WHOLE_LENGTH,
  },
  {
    name: 'in a request body that is not read',
    request: { bodyBytes: LARGE },
    body: LARGE,
    say() {},
    reached: (_, stream) => stream.received >= 65_535,
    cut: 'upstream-broken',
    end: 'upstream-broken',
  },
  {
    name: 'behind a whole answer',
    say(stream) {
      stream.head(200)
      stream.data('all', true)
    },
    reached: answer => answer.ends.length === 1,
    cut: 'whole',
    length: 3,
  },
  {
    name: 'behind trailers',
    say(stream) {
      stream.head(200, { 'content-length': '3' })
      stream.data('all')
      stream.headers({ 'x-tail': 'yes' }, true)
    },
    reached: answer => answer.ends.length === 1,
    cut: 'whole',
    length: 3,
  },
  {
    name: 'behind a whole answer whose reader is slow',
    say(stream) {
      stream.head(200)
      stream.data(WAITING)
      stream.data('x'.repeat(500), true)
    },
    reached: answer => answer.body.length >= WAITING.length - 16_384,
    takes: false,
    cut: 'whole',
    length: WHOLE_LENGTH,
  },
  {
    name: 'behind an early answer',
    request: { bodyBytes: LARGE },
    body: LARGE,
    say(stream) {
      stream.head(413)
      stream.data('no', true)
    },
    reached: answer => answer.ends.length === 1,
    cut: 'whole',
    length: 2,
  },
  {
    name: 'behind an early answer whose reader is slow',
    request: { bodyBytes: -1 },
    body: LARGE,
    say(stream) {
      stream.head(413)
      stream.data(WAITING)
      stream.data('x'.repeat(500), true)
    },
    reached: answer => answer.body.length >= WAITING.length - 16_384,
    takes: false,
    cut: 'whole',
    length: WHOLE_LENGTH,
  },
  {
    name: 'in a WebSocket',
    request: { method: 'GET', upgrade: true },
    say(stream) {
      stream.head(200)
      stream.data('hello')
    },
    reached: answer => answer.body === 'hello',
    cut: 'upstream-broken',
    end: 'whole',
    length: 5,
  },
]

interface End {
  name: string
  /** The session ends with it. */
  session: boolean
  /** A request without any answer was not begun: see `router/upstream/refused.test.ts`. */
  refuses?: boolean
  do(stream: UpstreamStream): void
}

const CODES = 14
const REFUSED_STREAM = 7
const ends: End[] = [
  ...Array.from({ length: CODES }, (_, code) => ({
    name: `RST_STREAM(${code})`,
    session: false,
    refuses: code === REFUSED_STREAM,
    do: (stream: UpstreamStream) => stream.reset(code),
  })),
  ...[0, 2, 13].map(code => ({
    name: `GOAWAY(${code}) that leaves the stream out`,
    session: true,
    refuses: true,
    do: (stream: UpstreamStream) => stream.connection.goaway(code, 0),
  })),
  {
    name: 'GOAWAY(0) and FIN',
    session: true,
    do(stream) {
      stream.connection.goaway(0, stream.id)
      setImmediate(() => stream.connection.socket.end())
    },
  },
  { name: 'FIN', session: true, do: stream => stream.connection.socket.end() },
  { name: 'a TCP reset', session: true, do: stream => stream.connection.socket.resetAndDestroy() },
]

function feed(state: State, answer: Answer): void {
  if (state.body !== undefined) answer.sink!.requestData(Buffer.alloc(state.body))
  if (state.request?.bodyBytes === undefined || state.body === undefined) answer.sink!.requestEnd([])
}

/** Gets an answer to an ordinary request, on whatever connection. */
async function answered(): Promise<void> {
  upstream.onWhole = stream => {
    stream.head(200)
    stream.data('next', true)
  }
  const next = send()
  next.sink!.requestEnd([])
  await until(() => next.ends.length > 0, 'the next answer')
  expect([next.ends, next.body]).toEqual([['whole'], 'next'])
  upstream.onWhole = undefined
}

async function restsWith(connections: number): Promise<void> {
  await until(() => upstreams.stats().idle === connections, 'all connections idle')
  expect(upstreams.stats()).toMatchObject({ connections, idle: connections })
  upstreams.close()
  const open = () => upstream.connections.filter(({ socket }) => !socket.destroyed).length
  for (const { socket } of upstream.connections) socket.end()
  await until(() => open() === 0, 'all connections gone')
}

async function play(state: State, end: End, atOnce: boolean): Promise<void> {
  const { answer, stream } = await begin(state.request)
  answer.takes = state.takes ?? true
  feed(state, answer)
  if (state.body !== undefined) await until(() => stream.received >= 65_535, 'a body that waits')
  const { connection } = stream
  if (atOnce) {
    connection.atOnce(() => {
      state.say(stream)
      if (end.name !== 'FIN' && end.name !== 'a TCP reset') end.do(stream)
    })
    if (end.name === 'FIN') end.do(stream)
  } else {
    state.say(stream)
    await until(() => state.reached(answer, stream), state.name)
    end.do(stream)
  }
  if (state.takes === false) {
    await until(() => answer.head_ !== undefined || answer.ends.length > 0, 'a head')
    setTimeout(() => answer.take(), 5)
  }
  await until(() => answer.ends.length > 0, 'an end')
  expect(answer.ends).toEqual([state.cut])
  if (state.cut === 'whole') expect(answer.body).toHaveLength(state.length!)
  if (state.body !== undefined) await until(() => answer.taken === state.body, 'credit for all of the request')
  // What is sent before we hear of it goes to the old session.
  if (end.session) await until(() => upstreams.stats().connections === 0, 'the session gone')
  await answered()
  expect(answer.ends).toHaveLength(1)
  if (!end.session) expect(upstream.connections).toHaveLength(1)
  await restsWith(1)
}

describe.each(states)('H6 upstream, $name', state => {
  const those = ends.filter(({ refuses = false }) => !(refuses && state.name === 'before the head'))
  it.each(those)('$name', end => play(state, end, false))

  it.each(those.filter(({ name }) => name !== 'a TCP reset'))('$name, in one piece with it', end =>
    play(state, end, true),
  )

  if (state.end !== undefined) {
    it('END_STREAM', async () => {
      const { answer, stream } = await begin(state.request)
      answer.takes = state.takes ?? true
      feed(state, answer)
      state.say(stream)
      await until(() => state.reached(answer, stream), state.name)
      stream.data('', true)
      answer.take()
      await until(() => answer.ends.length > 0, 'an end')
      expect(answer.ends).toEqual([state.end])
      if (state.end === 'whole') expect(answer.body).toHaveLength(state.length!)
      answer.sink!.requestEnd([])
      await until(() => stream.ended || stream.resetCode !== undefined, 'our end')
      await answered()
      await restsWith(1)
    })
  }
})

describe('H6 upstream, a connection that is reset', () => {
  it.each([
    ['as it opens', (stop: () => void) => stop()],
    ['a turn later', (stop: () => void) => setImmediate(stop)],
    ['when the request is there', undefined],
  ])('%s', async (_, when) => {
    for (let round = 0; round < 20; round++) {
      if (when === undefined) upstream.onWhole = stream => stream.connection.socket.resetAndDestroy()
      else upstream.onConnection = ({ socket }) => when(() => socket.resetAndDestroy())
      const answer = send()
      answer.sink!.requestEnd([])
      await until(() => answer.ends.length > 0, 'an end')
      // The system reports a reset during connect as a refusal.
      expect([['upstream-broken'], ['upstream-refused']]).toContainEqual(answer.ends)
      upstream.onConnection = undefined
      await until(() => upstreams.stats().connections === 0, 'the session gone')
      await answered()
      upstream.connections.at(-1)!.socket.resetAndDestroy()
      await until(() => upstreams.stats().connections === 0, 'the session gone')
    }
  })
})

describe('H6 upstream, a silent session', () => {
  it('after it has announced that it goes away', async () => {
    upstream.onEnd = () => {}
    const { answer, stream } = await begin()
    answer.sink!.requestEnd([])
    stream.connection.goaway(0, stream.id)
    stream.head(200, {}, true)
    await until(() => upstreams.stats().connections === 0, 'the session gone')
    expect(answer.ends).toEqual(['whole'])
  })

  it('is abandoned after one request got no answer', async () => {
    await answered()
    upstream.connections[0]!.silent = true
    const first = send({}, 50)
    first.sink!.requestEnd([])
    const other = send({}, 600_000)
    other.sink!.requestEnd([])
    await until(() => first.ends.length > 0, 'a timeout')
    expect(first.ends).toEqual(['upstream-timeout'])
    await answered()
    expect(upstream.connections).toHaveLength(2)
    expect(other.ends).toEqual([])
    // The abandoned session closes with its last exchange.
    other.sink!.requestAbort(new SallyportError('cancelled'))
    await until(() => upstreams.stats().connections === 1, 'the silent session gone')
    await restsWith(1)
  })
})
