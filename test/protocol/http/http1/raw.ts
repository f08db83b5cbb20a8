/** Raw ends for tests of the HTTP/1.1 codec: a caller, an upstream that records bytes, and a proxy between them. */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import type { Handler, HttpRequest, RequestSink, ResponseSink } from '../../../../protocol/exchange.ts'
import { Http1ClientConnection } from '../../../../protocol/http/http1/client-connection.ts'
import type { HttpLimits } from '../../../../protocol/http/limits.ts'
import { type Listener, listen } from '../../../../protocol/http/listener.ts'

/** Collects what a socket sends; waits for texts and for its end. */
export class RawPeer {
  readonly socket: Socket
  text = ''
  closed = false
  ended = false
  error: string | undefined
  #waiting: (() => void)[] = []

  constructor(socket: Socket) {
    this.socket = socket
    socket.on('data', chunk => {
      this.text += chunk.toString('latin1')
      this.#wake()
    })
    socket.on('end', () => {
      this.ended = true
      this.#wake()
    })
    socket.on('error', error => {
      this.error = (error as NodeJS.ErrnoException).code
    })
    socket.on('close', () => {
      this.closed = true
      this.#wake()
    })
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake()
  }

  send(text: string | Buffer): void {
    this.socket.write(typeof text === 'string' ? Buffer.from(text, 'latin1') : text)
  }

  /** Until `done` says so; throws if the connection closes before. */
  async until(done: (text: string) => boolean): Promise<string> {
    while (!done(this.text)) {
      if (this.closed) throw new Error(`closed (${this.error}) after: ${JSON.stringify(this.text)}`)
      await new Promise<void>(resolve => this.#waiting.push(resolve))
    }
    return this.text
  }

  /** Until the text has arrived this many times; returns everything sent so far. */
  saying(text: string, times = 1): Promise<string> {
    return this.until(all => all.split(text).length > times)
  }

  async end(): Promise<string> {
    while (!this.ended && !this.closed) await new Promise<void>(resolve => this.#waiting.push(resolve))
    return this.text
  }

  async close(): Promise<string> {
    while (!this.closed) await new Promise<void>(resolve => this.#waiting.push(resolve))
    return this.text
  }
}

export async function call(port: number, options: { allowHalfOpen?: boolean } = {}): Promise<RawPeer> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true, ...options })
  const peer = new RawPeer(socket)
  await once(socket, 'connect')
  return peer
}

/** An upstream that does with each connection what the test tells it. */
export class RawUpstream {
  readonly peers: RawPeer[] = []
  readonly #server: Server
  #waiting: ((peer: RawPeer) => void)[] = []

  private constructor(onPeer: (peer: RawPeer) => void) {
    this.#server = createServer({ allowHalfOpen: true, noDelay: true }, socket => {
      const peer = new RawPeer(socket)
      this.peers.push(peer)
      onPeer(peer)
      for (const wake of this.#waiting.splice(0)) wake(peer)
    })
  }

  static async start(onPeer: (peer: RawPeer) => void = () => {}): Promise<RawUpstream> {
    const upstream = new RawUpstream(onPeer)
    upstream.#server.listen(0, '127.0.0.1')
    await once(upstream.#server, 'listening')
    return upstream
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  /** All bytes that arrived, over all connections. */
  get text(): string {
    return this.peers.map(peer => peer.text).join('')
  }

  /** The next connection. */
  next(): Promise<RawPeer> {
    return new Promise(resolve => this.#waiting.push(resolve))
  }

  close(): void {
    this.#server.close()
    for (const peer of this.peers) peer.socket.destroy()
  }
}

/** A listener whose handler forwards to `port` over kept connections. */
export function proxy(port: number, limits?: Partial<HttpLimits>, upstreamLimits = limits): Promise<Listener> {
  const idle: Http1ClientConnection[] = []
  const open = () =>
    new Http1ClientConnection(connect({ port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true }), {
      limits: upstreamLimits,
      onIdle: connection => idle.push(connection),
    })
  return listen({
    port: 0,
    limits,
    handler: (request, response) => {
      let connection = idle.pop()
      while (connection !== undefined && !connection.idle) connection = idle.pop()
      return (connection ?? open()).send(request, response)
    },
  })
}

export interface Seen {
  request: HttpRequest
  response: ResponseSink
  body: string
  trailers: string[] | undefined
  aborted: string | undefined
  /** The error with which it was aborted. */
  why: string | undefined
}

/** A handler that records its events, and calls `answer` when a request has begun. */
export function recorder(answer: (seen: Seen) => void): { handler: Handler; seen: Seen[] } {
  const all: Seen[] = []
  const handler: Handler = (request, response): RequestSink => {
    const seen: Seen = { request, response, body: '', trailers: undefined, aborted: undefined, why: undefined }
    all.push(seen)
    answer(seen)
    return {
      requestData(chunk) {
        seen.body += Buffer.from(chunk).toString('latin1')
        response.requestConsumed(chunk.length)
      },
      requestEnd(trailers) {
        seen.trailers = trailers
      },
      requestAbort(error) {
        seen.aborted = error.reason
        seen.why = error.message
      },
      responseConsumed() {},
    }
  }
  return { handler, seen: all }
}

export function ok(response: ResponseSink, body = 'ok'): void {
  response.responseHead({ status: 200, headers: [], bodyBytes: body.length })
  if (body.length > 0) response.responseData(Buffer.from(body))
  response.responseEnd([])
}
