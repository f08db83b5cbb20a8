import type { SallyportError } from '../../../../protocol/base/errors.ts'
import type { Logger } from '../../../../protocol/base/log.ts'
import {
  BODY_UNKNOWN,
  type HeaderList,
  type HttpRequest,
  type RequestSink,
  type ResponseHead,
  type ResponseSink,
} from '../../../../protocol/exchange.ts'
import { acceptExchange, type ExchangeHandler } from '../../../../protocol/wire/exchange/accept.ts'
import { type OpenOptions, openExchange } from '../../../../protocol/wire/exchange/open.ts'
import { memoryPair } from '../../../../protocol/wire/transport-memory.ts'
import type { Session, SessionOptions } from '../../../../protocol/wire/yamux/session.ts'
import type { Stream } from '../../../../protocol/wire/yamux/stream.ts'
import { createSession } from '../../../../protocol/wire/yamux/yamux-session.ts'

/** Two sessions over memory; exchanges that the server's end opens go to `onExchange`. */
export function tunnel(onExchange: ExchangeHandler, options: Partial<SessionOptions> = {}, logger?: Logger) {
  const [left, right] = memoryPair()
  const accepted: Stream[] = []
  const server = createSession(left, { ...options, role: 'server' })
  const client = createSession(right, {
    ...options,
    role: 'client',
    onStream: stream => {
      accepted.push(stream)
      acceptExchange(stream, onExchange, logger)
    },
  })
  return { server, client, accepted }
}

export const openOptions: OpenOptions = { runtime: 'rt', epoch: 1, attempt: 0, hops: 0, timeLeftMs: 60_000 }

export function request(given: Partial<HttpRequest> = {}): HttpRequest {
  return {
    method: 'GET',
    authority: 'rt.example.com',
    path: '/a?b',
    headers: ['accept', '*/*', 'x-request-id', 'r-1'],
    bodyBytes: 0,
    upgrade: false,
    peerAddress: '192.0.2.1',
    encrypted: true,
    caller: { address: '192.0.2.1', scheme: 'https', host: 'rt.example.com' },
    requestId: 'r-1',
    exchangeId: undefined,
    ...given,
  }
}

export const post = (bodyBytes = BODY_UNKNOWN, given: Partial<HttpRequest> = {}) =>
  request({ method: 'POST', bodyBytes, ...given })

/** One end of an exchange that records its events, and lets a test wait for them. */
class Recorder {
  readonly events: string[] = []
  bytes = 0
  text = ''
  trailers: HeaderList | undefined
  error: SallyportError | undefined
  credit = 0
  /** What is done with each chunk; by default it is consumed at once. */
  take: (chunk: Uint8Array) => void
  #waiting: { is: () => boolean; done: () => void }[] = []

  constructor(take: (chunk: Uint8Array) => void) {
    this.take = take
  }

  protected chunk(chunk: Uint8Array): void {
    this.bytes += chunk.length
    if (this.text.length < 10_000) this.text += Buffer.from(chunk).toString('latin1')
    if (this.events.at(-1) !== 'data') this.events.push('data')
    this.take(chunk)
    this.changed()
  }

  protected ended(trailers: HeaderList): void {
    this.trailers = trailers
    this.say('end')
  }

  protected aborted(error: SallyportError): void {
    this.error = error
    this.say(`abort ${error.reason}`)
  }

  protected consumed(bytes: number): void {
    this.credit += bytes
    this.changed()
  }

  say(event: string): void {
    this.events.push(event)
    this.changed()
  }

  changed(): void {
    const waiting = this.#waiting
    this.#waiting = waiting.filter(entry => !entry.is())
    for (const entry of waiting) if (entry.is()) entry.done()
  }

  /** Resolves when `is` holds; checked after each event. */
  until(is: (self: this) => boolean): Promise<void> {
    if (is(this)) return Promise.resolve()
    return new Promise(done => this.#waiting.push({ is: () => is(this), done }))
  }

  /** Resolves at `end` or `abort`. */
  over(): Promise<void> {
    return this.until(self => self.trailers !== undefined || self.error !== undefined)
  }
}

/** The upstream end: keeps the response sink and records the request. */
export class Upstream extends Recorder implements RequestSink {
  readonly request: HttpRequest
  readonly response: ResponseSink

  constructor(received: HttpRequest, response: ResponseSink) {
    super(chunk => response.requestConsumed(chunk.length))
    this.request = received
    this.response = response
  }

  requestData(chunk: Uint8Array): void {
    this.chunk(chunk)
  }

  requestEnd(trailers: HeaderList): void {
    this.ended(trailers)
  }

  requestAbort(error: SallyportError): void {
    this.aborted(error)
  }

  responseConsumed(bytes: number): void {
    this.consumed(bytes)
  }
}

/** The downstream end: sends a request, records the response. */
export class Downstream extends Recorder implements ResponseSink {
  head_: ResponseHead | undefined
  informationals: [number, HeaderList][] = []
  sink!: RequestSink

  constructor() {
    super(chunk => this.sink.responseConsumed(chunk.length))
  }

  responseInformational(status: number, headers: HeaderList): void {
    this.informationals.push([status, headers])
    this.say(`informational ${status}`)
  }

  responseHead(response: ResponseHead): void {
    this.head_ = response
    this.say(`head ${response.status}`)
  }

  get status(): number | undefined {
    return this.head_?.status
  }

  responseData(chunk: Uint8Array): void {
    this.chunk(chunk)
  }

  responseEnd(trailers: HeaderList): void {
    this.ended(trailers)
  }

  responseAbort(error: SallyportError): void {
    this.aborted(error)
  }

  requestConsumed(bytes: number): void {
    this.consumed(bytes)
  }
}

export function send(session: Session, given = request(), options = openOptions): Downstream & { stream: Stream } {
  const downstream = new Downstream() as Downstream & { stream: Stream }
  downstream.stream = session.open()
  downstream.sink = openExchange(downstream.stream, given, options, downstream)
  return downstream
}

/** An exchange handler that records, and lets a test wait for the next exchange. `take` is what it does with chunks. */
export function upstreams(take?: (chunk: Uint8Array) => void) {
  const arrived: Upstream[] = []
  const waiting: ((upstream: Upstream) => void)[] = []
  const handler: ExchangeHandler = (_preamble, received, response) => {
    const upstream = new Upstream(received, response)
    if (take) upstream.take = take
    const waiter = waiting.shift()
    if (waiter) waiter(upstream)
    else arrived.push(upstream)
    return upstream
  }
  const next = (): Promise<Upstream> => {
    const upstream = arrived.shift()
    return upstream ? Promise.resolve(upstream) : new Promise(done => waiting.push(done))
  }
  return { handler, next }
}
