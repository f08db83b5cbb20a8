import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type WebSocket, WebSocketServer } from 'ws'
import type { SallyportError } from '../../protocol/base/errors.ts'
import { newExchangeId } from '../../protocol/base/ids.ts'
import type { HeaderList, HttpRequest, RequestSink, ResponseHead, ResponseSink } from '../../protocol/exchange.ts'
import { type ControlMessage, type Hello, parseControl } from '../../protocol/wire/control.ts'
import { openExchange } from '../../protocol/wire/exchange/open.ts'
import { webSocketTransport } from '../../protocol/wire/transport-websocket.ts'
import type { Session } from '../../protocol/wire/yamux/session.ts'
import { createSession } from '../../protocol/wire/yamux/yamux-session.ts'
import { arrival } from '../support/until.ts'

type Typed<Type> = Extract<ControlMessage, { type: Type }>

/** A control endpoint on loopback that does what the test says, and nothing by itself. */
export class FakeServer {
  readonly url: string
  readonly sessions: FakeSession[] = []
  /** Tokens that were presented, in turn. */
  readonly tokens: string[] = []
  /** Answers the next upgrades in place of a WebSocket, for as long as it is set. */
  refusal: string | undefined
  readonly #server: Server
  readonly #arrivals: ((session: FakeSession) => void)[] = []
  #taken = 0

  static async listen(port = 0): Promise<FakeServer> {
    const server = createServer()
    server.listen(port, '127.0.0.1')
    await once(server, 'listening')
    return new FakeServer(server)
  }

  private constructor(server: Server) {
    this.#server = server
    this.url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`
    const sockets = new WebSocketServer({ noServer: true })
    server.on('upgrade', (request, socket, head) => {
      this.tokens.push(request.headers.authorization?.slice(7) ?? '')
      if (this.refusal !== undefined) socket.end(this.refusal)
      else sockets.handleUpgrade(request, socket, head, webSocket => this.#arrived(webSocket))
    })
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  #arrived(webSocket: WebSocket): void {
    const session = new FakeSession(webSocket)
    this.sessions.push(session)
    this.#arrivals.shift()?.(session)
  }

  /** The next session that nobody has taken yet. */
  async next(): Promise<FakeSession> {
    const known = this.sessions[this.#taken++]
    if (known !== undefined) return known
    const coming = new Promise<FakeSession>(resolve => this.#arrivals.push(resolve))
    return await arrival(coming, `session ${this.#taken} at the fake server`)
  }

  /** The next session, after welcome and ready. */
  async serve(epoch = 1, replica = 'fake', features: string[] = []): Promise<FakeSession> {
    const session = await this.next()
    await session.welcome(replica, 'prod', features)
    session.epoch = epoch
    await session.receive('ready')
    session.send({ type: 'ready', epoch, active: true })
    return session
  }

  async close(): Promise<void> {
    for (const session of this.sessions) session.webSocket.terminate()
    this.#server.close()
    this.#server.closeAllConnections()
    await once(this.#server, 'close')
  }
}

let count = 0

export class FakeSession {
  readonly webSocket: WebSocket
  readonly yamux: Session
  readonly id = `session-${++count}`
  hello: Hello | undefined
  /** Of exchanges. */
  epoch = 1
  /** Close code, once it is closed. */
  readonly closed: Promise<number>
  readonly #inbox: ControlMessage[] = []
  readonly #waiting: { type: string; resolve: (message: ControlMessage) => void }[] = []

  constructor(webSocket: WebSocket) {
    this.webSocket = webSocket
    this.closed = new Promise(resolve => webSocket.once('close', resolve))
    this.yamux = createSession(webSocketTransport(webSocket), {
      role: 'server',
      onControl: text => this.#received(parseControl(text)!),
    })
  }

  #received(message: ControlMessage): void {
    const index = this.#waiting.findIndex(({ type }) => type === message.type)
    if (index < 0) this.#inbox.push(message)
    else this.#waiting.splice(index, 1)[0]!.resolve(message)
  }

  /** The next control message of this type; others stay for whoever asks for them. */
  async receive<Type extends ControlMessage['type']>(type: Type): Promise<Typed<Type>> {
    const index = this.#inbox.findIndex(message => message.type === type)
    if (index >= 0) return this.#inbox.splice(index, 1)[0] as Typed<Type>
    const coming = new Promise<Typed<Type>>(resolve => {
      this.#waiting.push({ type, resolve: message => resolve(message as Typed<Type>) })
    })
    return await arrival(coming, `a message "${type}" of ${this.id}`)
  }

  /** Whether such a message has arrived and was not taken. */
  has(type: ControlMessage['type']): boolean {
    return this.#inbox.some(message => message.type === type)
  }

  send(message: ControlMessage): void {
    this.yamux.control(message)
  }

  async welcome(replica = 'fake', runtime = 'prod', features: string[] = []): Promise<void> {
    this.hello = await this.receive('hello')
    this.yamux.setPeerLimits(this.hello.limits ?? {})
    this.send({
      type: 'welcome',
      minor: 0,
      software: 'fake/1',
      session: this.id,
      replica,
      runtime,
      epoch: 0,
      limits: { windowBytes: 65_536 },
      features,
    })
  }

  /** Sends a request through the session. */
  exchange(
    request: Partial<HttpRequest> = {},
    options: { attempt?: number; runtime?: string; epoch?: number; traced?: boolean } = {},
  ): FakeExchange {
    const whole: HttpRequest = {
      method: 'GET',
      authority: 'prod.tunnels.test',
      path: '/',
      headers: ['x-request-id', 'r1'],
      bodyBytes: 0,
      upgrade: false,
      peerAddress: '192.0.2.1',
      encrypted: true,
      caller: { address: '192.0.2.1', scheme: 'https', host: 'prod.tunnels.test' },
      requestId: 'r1',
      exchangeId: newExchangeId(),
      ...request,
    }
    const { attempt = 0, runtime = 'prod', epoch = this.epoch, traced } = options
    const stream = this.yamux.open()
    const exchange = new FakeExchange(stream.id)
    const open = { runtime, epoch, attempt, hops: 0, timeLeftMs: 30_000, traced }
    exchange.request = openExchange(stream, whole, open, exchange)
    if (whole.bodyBytes === 0 && !whole.upgrade) exchange.request.requestEnd([])
    return exchange
  }
}

/** The caller's side of one exchange; consumes response bytes as they arrive, or only when told. */
export class FakeExchange implements ResponseSink {
  readonly streamId: number
  request!: RequestSink
  readonly head$ = Promise.withResolvers<ResponseHead>()
  /** The whole body; rejects if the exchange breaks off. */
  readonly body$ = Promise.withResolvers<Buffer>()
  /** Credit is given at once unless this is false. */
  takes = true
  received = 0
  consumedRequestBytes = 0
  readonly #chunks: Uint8Array[] = []
  #onData: (() => void) | undefined

  constructor(streamId: number) {
    this.streamId = streamId
    this.head$.promise.catch(() => {})
    this.body$.promise.catch(() => {})
  }

  responseInformational(_status: number, _headers: HeaderList): void {}

  responseHead(response: ResponseHead): void {
    this.head$.resolve(response)
  }

  responseData(chunk: Uint8Array): void {
    this.#chunks.push(chunk)
    this.received += chunk.length
    if (this.takes) this.request.responseConsumed(chunk.length)
    this.#onData?.()
  }

  responseEnd(_trailers: HeaderList): void {
    this.body$.resolve(Buffer.concat(this.#chunks))
  }

  responseAbort(error: SallyportError): void {
    this.head$.reject(error)
    this.body$.reject(error)
  }

  requestConsumed(bytes: number): void {
    this.consumedRequestBytes += bytes
  }

  /** Settles when this many bytes of the response have arrived. */
  async bytes(count: number): Promise<Buffer> {
    while (this.received < count) {
      await new Promise<void>(resolve => {
        this.#onData = resolve
      })
    }
    return Buffer.concat(this.#chunks)
  }

  async answer(): Promise<{ status: number; headers: HeaderList; text: string }> {
    const { status, headers } = await this.head$.promise
    return { status, headers, text: (await this.body$.promise).toString('utf8') }
  }
}
