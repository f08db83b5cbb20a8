/** One attempt to open a WebSocket to the control endpoint: TCP, a proxy's CONNECT, TLS, upgrade, under one deadline. */
import type { LookupAddress } from 'node:dns'
import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { connect as connectTls, type SecureContext, type TLSSocket } from 'node:tls'
import { WebSocket } from 'ws'
import { guardWith, ignore } from '../../protocol/base/guard.ts'
import { addressOf, formatAddress, type HostPort, tlsName } from '../../protocol/base/host-port.ts'
import { CONNECT_PATH, SUBPROTOCOL } from '../../protocol/wire/control.ts'
import { WEBSOCKET_OPTIONS } from '../../protocol/wire/transport.ts'
import { connectTcp } from './connect-tcp.ts'
import { answerFailure, certificateFailure, DialError, dateOf, describeTls, networkError } from './dial-failure.ts'
import type { DialPhase } from './explain.ts'
import { askProxy, type OutboundProxy } from './proxy.ts'
import type { Resolver } from './resolve.ts'

const MAX_ANSWER_BYTES = 8 * 1024

export interface DialOptions {
  /** `wss://host[:port][/prefix]`; `ws://` only to loopback (checked by the caller). */
  readonly server: URL
  /** Address to dial instead. */
  readonly connectTo?: HostPort | undefined
  readonly token: string
  readonly trust: SecureContext
  readonly proxy: OutboundProxy | undefined
  /** Deadline of the whole dial, or with `eachStep` of each step. */
  readonly timeoutMs: number
  readonly eachStep?: boolean | undefined
  /** Which of several addresses of the name to begin with. */
  readonly turn: number
  readonly resolver: Resolver
  readonly signal: AbortSignal
  /** Called for each step that succeeded, with what was found. */
  readonly onStep?: ((step: DialPhase, found: string) => void) | undefined
}

export interface Dialled {
  /** Open. Nothing has been read from it yet. */
  readonly socket: WebSocket
  /** The server's `Date`, if it sent one. */
  readonly dateMs: number | undefined
  /** The token that the server accepted. A secret. */
  readonly token: string
  /** What everything is sent over. The session cannot outlive its local address. */
  readonly tcp: Socket
}

/** Rejects with a {@link DialError}, or with the signal's reason. */
export async function dialServer(options: DialOptions): Promise<Dialled> {
  const attempt = new Attempt(options)
  try {
    const raw = options.proxy === undefined ? await attempt.tcp() : await attempt.proxied(options.proxy)
    const socket = options.server.protocol === 'wss:' ? await attempt.tls(raw) : raw
    return await attempt.upgrade(socket)
  } catch (error) {
    attempt.giveUp()
    throw error
  } finally {
    attempt.over()
  }
}

/** The steps of a dial. Each is a promise that also settles at the deadline and when the signal aborts. */
class Attempt {
  readonly #options: DialOptions
  readonly #host: string
  readonly #to: HostPort
  readonly #timer: NodeJS.Timeout
  /** An error in an event handler ends the attempt. */
  readonly #guard = guardWith(error => this.#fail(error))
  readonly #onAbort = this.#guard(() => this.#stop(this.#options.signal.reason))
  /** Aborted when the deadline has passed or the signal has aborted. */
  readonly #over = new AbortController()
  #tcp: Socket | undefined
  #phase: DialPhase = 'connect'
  #reject: ((error: unknown) => void) | undefined
  #open: Duplex | undefined

  constructor(options: DialOptions) {
    this.#options = options
    const address = addressOf(options.server)
    this.#host = address.host
    this.#to = options.connectTo ?? address
    const late = this.#guard(() => {
      this.#stop(new DialError({ kind: 'timeout', phase: this.#phase, afterMs: options.timeoutMs }))
    })
    this.#timer = setTimeout(late, options.timeoutMs)
    options.signal.addEventListener('abort', this.#onAbort)
    if (options.signal.aborted) this.#onAbort()
  }

  #stop(reason: unknown): void {
    this.#over.abort(reason)
    this.#fail(reason)
  }

  /** Clears the deadline. From now on, whatever is open belongs to the caller. */
  over(): void {
    clearTimeout(this.#timer)
    this.#options.signal.removeEventListener('abort', this.#onAbort)
  }

  /** Closes what is open after a failure, since nobody else would, or would handle its errors. */
  giveUp(): void {
    this.#open?.destroy()
  }

  #enter(phase: DialPhase): void {
    this.#phase = phase
    if (this.#options.eachStep) this.#timer.refresh()
  }

  async tcp({ host, port } = this.#to): Promise<Socket> {
    this.#enter('resolve')
    try {
      const addresses = await this.#unlessOver(this.#options.resolver.resolve(host, this.#options.turn))
      this.#options.onStep?.('resolve', addresses.map(({ address }) => address).join(', '))
      this.#enter('connect')
      const socket = await connectTcp(host, port, addresses, this.#over.signal)
      this.#options.onStep?.('connect', `from ${socket.localAddress} to ${socket.remoteAddress} port ${port}`)
      this.#tcp = socket
      this.#open = socket
      return socket
    } catch (error) {
      throw this.#over.signal.aborted ? this.#over.signal.reason : networkError(error as Error, 'connect')
    }
  }

  /** Adds the deadline of the attempt, since a resolver has none. */
  #unlessOver(addresses: Promise<readonly LookupAddress[]>): Promise<readonly LookupAddress[]> {
    const { signal } = this.#over
    return new Promise((resolve, reject) => {
      if (signal.aborted) reject(signal.reason)
      const onAbort = this.#guard(() => reject(signal.reason))
      signal.addEventListener('abort', onAbort, { once: true })
      addresses.then(resolve, reject)
    })
  }

  async proxied(proxy: OutboundProxy): Promise<Duplex> {
    const raw = await this.tcp(proxy)
    const socket = proxy.encrypted ? await this.#tlsTo(raw, proxy.host, 'proxy') : raw
    return await this.#step('proxy', resolve => {
      askProxy(socket, formatAddress(this.#to), proxy.authorization, (error, answer) => {
        if (error !== undefined) this.#fail(networkError(error, this.#phase))
        else if (answer.status === 200) {
          this.#options.onStep?.('proxy', `${formatAddress(proxy)} connects`)
          resolve(socket)
        } else this.#fail(new DialError({ kind: 'proxy', ...answer }))
      })
      return socket
    })
  }

  async tls(raw: Duplex): Promise<TLSSocket> {
    const socket = await this.#tlsTo(raw, this.#host, 'tls')
    this.#options.onStep?.('tls', describeTls(socket))
    return socket
  }

  async #tlsTo(raw: Duplex, host: string, phase: DialPhase): Promise<TLSSocket> {
    return await this.#step(phase, resolve => {
      const socket = connectTls({
        socket: raw,
        host,
        servername: tlsName(host),
        secureContext: this.#options.trust,
        ALPNProtocols: ['http/1.1'],
        // `authorized` is checked below, before a byte is sent. If Node rejected the socket, we could not see who signed.
        rejectUnauthorized: false,
      })
      // The listeners of the steps hear one error, and TLS may report another even after the socket is destroyed.
      socket.on('error', ignore)
      const secured = this.#guard(() => {
        if (socket.authorized) resolve(socket)
        else this.#fail(new DialError(certificateFailure(socket, phase)))
      })
      socket.once('secureConnect', secured)
      return socket
    })
  }

  async upgrade(socket: Duplex): Promise<Dialled> {
    const { server, token } = this.#options
    return await this.#step('upgrade', resolve => {
      const prefix = server.pathname.replace(/\/$/, '')
      const webSocket = new WebSocket(new URL(`${server.origin}${prefix}${CONNECT_PATH}`), [SUBPROTOCOL], {
        createConnection: () => socket as Socket,
        headers: { authorization: `Bearer ${token}` },
        ...WEBSOCKET_OPTIONS,
        followRedirects: false,
      })
      let dateMs: number | undefined
      const guard = this.#guard
      const upgraded = guard((response: IncomingMessage) => {
        dateMs = dateOf(response)
        const got = response.headers['sec-websocket-protocol']
        if (got !== SUBPROTOCOL) this.#fail(new DialError({ kind: 'subprotocol', got }))
      })
      const opened = guard(() => {
        this.#options.onStep?.('upgrade', SUBPROTOCOL)
        resolve({ socket: webSocket, dateMs, token, tcp: this.#tcp! })
      })
      const refused = guard((_request: unknown, response: IncomingMessage) => this.#readAnswer(response))
      const failed = guard((error: Error) => this.#fail(networkError(error, this.#phase)))
      webSocket.once('upgrade', upgraded)
      webSocket.once('open', opened)
      webSocket.once('unexpected-response', refused)
      webSocket.on('error', failed)
      return socket
    })
  }

  #readAnswer(response: IncomingMessage): void {
    const chunks: Buffer[] = []
    let bytes = 0
    const done = this.#guard(() => {
      this.#fail(new DialError(answerFailure(response, Buffer.concat(chunks).toString('utf8'))))
    })
    const more = this.#guard((chunk: Buffer) => {
      bytes += chunk.length
      chunks.push(chunk)
      if (bytes > MAX_ANSWER_BYTES) done()
    })
    response.on('data', more)
    response.once('end', done).once('error', done)
  }

  /** Runs `begin`, which returns the socket that it works on, until it resolves or the attempt fails. */
  #step<Result>(phase: DialPhase, begin: (resolve: (result: Result) => void) => Duplex): Promise<Result> {
    this.#enter(phase)
    return new Promise((resolve, reject) => {
      this.#reject = reject
      if (this.#over.signal.aborted) return this.#fail(this.#over.signal.reason)
      const socket = begin(result => {
        this.#reject = undefined
        resolve(result)
      })
      this.#open = socket
      if (socket.destroyed) this.#fail(this.#closed())
      const broken = this.#guard((error: Error) => this.#fail(networkError(error, this.#phase)))
      const closed = this.#guard(() => this.#fail(this.#closed()))
      socket.once('error', broken)
      socket.once('close', closed)
    })
  }

  /** Ends the attempt. Has no effect on a step that has resolved. */
  #fail(error: unknown): void {
    const reject = this.#reject
    if (reject === undefined) return
    this.#reject = undefined
    this.giveUp()
    reject(error)
  }

  #closed(): DialError {
    return new DialError({ kind: 'network', phase: this.#phase, code: 'ECONNRESET', message: 'closed' })
  }
}
