/** One attempt to open a WebSocket to the control endpoint: TCP, a proxy's CONNECT, TLS, upgrade, under one deadline. */
import { lookup as systemLookup } from 'node:dns'
import type { IncomingMessage } from 'node:http'
import { connect as connectTcp, isIP, type LookupFunction, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { connect as connectTls, type PeerCertificate, type SecureContext, type TLSSocket } from 'node:tls'
import { WebSocket } from 'ws'
import { CONNECT_PATH, SUBPROTOCOL } from '../protocol/control.ts'
import type { AnswerFailure, CertificateFailure, DialFailure, DialPhase } from './explain.ts'
import { askProxy, type OutboundProxy } from './proxy.ts'

const MAX_MESSAGE_BYTES = 128 * 1024
const MAX_FRAGMENTS = 16
const MAX_ANSWER_BYTES = 8 * 1024

export interface DialOptions {
  /** `wss://host[:port][/prefix]`; `ws://` only to loopback (checked by the caller). */
  readonly server: URL
  readonly token: string
  readonly trust: SecureContext
  readonly proxy: OutboundProxy | undefined
  /** For all of it. */
  readonly timeoutMs: number
  /** Of several addresses of the name, begin with this one. */
  readonly turn: number
  readonly lookup: LookupFunction | undefined
  readonly signal: AbortSignal
}

export interface Dialled {
  /** Open. Nothing of it was read yet. */
  readonly socket: WebSocket
  /** The server's `Date`, if it sent one. */
  readonly dateMs: number | undefined
}

/** Why a dial failed; {@link explain} says it in words. */
export class DialError extends Error {
  override readonly name = 'DialError'
  readonly failure: DialFailure

  constructor(failure: DialFailure, options?: { cause?: unknown }) {
    super(`dial failed: ${failure.kind}`, options)
    this.failure = failure
  }
}

/** Rejects with a {@link DialError}, or with the signal's reason. */
export async function dial(options: DialOptions): Promise<Dialled> {
  const attempt = new Attempt(options)
  try {
    const raw = options.proxy === undefined ? await attempt.tcp() : await attempt.proxied(options.proxy)
    const socket = options.server.protocol === 'wss:' ? await attempt.tls(raw) : raw
    return await attempt.upgrade(socket)
  } finally {
    attempt.over()
  }
}

/** The steps of a dial, each a promise that also ends at the deadline and at the caller's signal. */
class Attempt {
  readonly #options: DialOptions
  readonly #host: string
  readonly #port: number
  readonly #timer: NodeJS.Timeout
  readonly #onAbort = () => this.#fail(this.#options.signal.reason)
  #phase: DialPhase = 'connect'
  #reject: ((error: unknown) => void) | undefined
  #open: Duplex | undefined

  constructor(options: DialOptions) {
    this.#options = options
    this.#host = bare(options.server.hostname)
    this.#port = Number(options.server.port || (options.server.protocol === 'wss:' ? 443 : 80))
    this.#timer = setTimeout(() => {
      this.#fail(new DialError({ kind: 'timeout', phase: this.#phase, afterMs: options.timeoutMs }))
    }, options.timeoutMs)
    options.signal.addEventListener('abort', this.#onAbort)
  }

  /** Ends the deadline; what is open belongs to the caller from now on. */
  over(): void {
    clearTimeout(this.#timer)
    this.#options.signal.removeEventListener('abort', this.#onAbort)
  }

  async tcp(host = this.#host, port = this.#port): Promise<Socket> {
    const lookup = rotated(this.#options.lookup ?? (systemLookup as LookupFunction), this.#options.turn)
    return await this.#step('connect', resolve => {
      const socket = connectTcp({ host, port, lookup, noDelay: true, keepAlive: true, keepAliveInitialDelay: 15_000 })
      socket.once('connect', () => resolve(socket))
      return socket
    })
  }

  async proxied(proxy: OutboundProxy): Promise<Duplex> {
    const raw = await this.tcp(proxy.host, proxy.port)
    const socket = proxy.encrypted ? await this.#tlsTo(raw, proxy.host, 'proxy') : raw
    return await this.#step('proxy', resolve => {
      const authority = `${isIP(this.#host) === 6 ? `[${this.#host}]` : this.#host}:${this.#port}`
      askProxy(socket, authority, proxy.authorization, (error, answer) => {
        if (error !== undefined) this.#fail(this.#networkError(error))
        else if (answer.status === 200) resolve(socket)
        else this.#fail(new DialError({ kind: 'proxy', ...answer }))
      })
      return socket
    })
  }

  async tls(raw: Duplex): Promise<TLSSocket> {
    return await this.#tlsTo(raw, this.#host, 'tls')
  }

  async #tlsTo(raw: Duplex, host: string, phase: DialPhase): Promise<TLSSocket> {
    return await this.#step(phase, resolve => {
      const socket = connectTls({
        socket: raw,
        host,
        servername: isIP(host) === 0 ? host : '',
        secureContext: this.#options.trust,
        ALPNProtocols: ['http/1.1'],
        // `authorized` is looked at below, before a byte is sent: a socket that Node rejects no longer shows who signed.
        rejectUnauthorized: false,
      })
      socket.once('secureConnect', () => {
        if (socket.authorized) resolve(socket)
        else this.#fail(new DialError(certificateFailure(socket)))
      })
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
        perMessageDeflate: false,
        maxPayload: MAX_MESSAGE_BYTES,
        maxFragments: MAX_FRAGMENTS,
        followRedirects: false,
      })
      let dateMs: number | undefined
      webSocket.once('upgrade', response => {
        dateMs = dateOf(response)
        const got = response.headers['sec-websocket-protocol']
        if (got !== SUBPROTOCOL) this.#fail(new DialError({ kind: 'subprotocol', got }))
      })
      webSocket.once('open', () => resolve({ socket: webSocket, dateMs }))
      webSocket.once('unexpected-response', (_request, response) => this.#readAnswer(response))
      webSocket.on('error', error => this.#fail(this.#networkError(error)))
      return socket
    })
  }

  #readAnswer(response: IncomingMessage): void {
    const chunks: Buffer[] = []
    let bytes = 0
    const done = () => this.#fail(new DialError(answerFailure(response, Buffer.concat(chunks).toString('utf8'))))
    response.on('data', (chunk: Buffer) => {
      bytes += chunk.length
      chunks.push(chunk)
      if (bytes > MAX_ANSWER_BYTES) done()
    })
    response.once('end', done).once('error', done)
  }

  /** Runs `begin`, which gives the socket that it works on, until it resolves or the attempt fails. */
  #step<Result>(phase: DialPhase, begin: (resolve: (result: Result) => void) => Duplex): Promise<Result> {
    this.#phase = phase
    return new Promise((resolve, reject) => {
      this.#reject = reject
      if (this.#options.signal.aborted) return this.#fail(this.#options.signal.reason)
      const socket = begin(result => {
        this.#reject = undefined
        resolve(result)
      })
      this.#open = socket
      if (socket.destroyed) this.#fail(this.#closed())
      socket.once('error', error => this.#fail(this.#networkError(error)))
      socket.once('close', () => this.#fail(this.#closed()))
    })
  }

  /** Ends the attempt; without effect on a step that has resolved. */
  #fail(error: unknown): void {
    const reject = this.#reject
    if (reject === undefined) return
    this.#reject = undefined
    this.#open?.destroy()
    reject(error)
  }

  #closed(): DialError {
    return new DialError({ kind: 'network', phase: this.#phase, code: 'ECONNRESET', message: 'closed' })
  }

  #networkError(error: Error): DialError {
    const cause = firstOf(error)
    const code = 'code' in cause && typeof cause.code === 'string' ? cause.code : undefined
    return new DialError({ kind: 'network', phase: this.#phase, code, message: cause.message }, { cause })
  }
}

/** Of an attempt on several addresses, the first failure speaks for all. */
function firstOf(error: Error): Error {
  return error instanceof AggregateError && error.errors[0] instanceof Error ? error.errors[0] : error
}

function bare(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, '')
}

/**
 * `lookup`, beginning with another address each turn, so that the connections of one client reach different replicas.
 * Names under `localhost` are loopback (RFC 6761) wherever the system's resolver does not know it.
 */
export function rotated(lookup: LookupFunction, turn: number): LookupFunction {
  return (hostname, options, callback) => {
    if (hostname.endsWith('.localhost')) {
      if (options.all === true) callback(null, [{ address: '127.0.0.1', family: 4 }])
      else callback(null, '127.0.0.1', 4)
      return
    }
    lookup(hostname, options, (error, address, family) => {
      if (error !== null || !Array.isArray(address) || address.length < 2) return callback(error, address, family)
      const first = turn % address.length
      callback(null, [...address.slice(first), ...address.slice(0, first)])
    })
  }
}

function certificateFailure(socket: TLSSocket): CertificateFailure {
  const leaf = socket.getPeerCertificate(true)
  return {
    kind: 'certificate',
    code: String(socket.authorizationError ?? 'unknown'),
    issuer: issuerOf(leaf),
    names: (leaf.subjectaltname ?? '').split(', ').map(name => name.replace(/^(DNS|IP Address):/, '')),
    validFromMs: Date.parse(leaf.valid_from),
    validToMs: Date.parse(leaf.valid_to),
  }
}

/** Name of whoever signed the highest certificate that was sent. */
function issuerOf(leaf: PeerCertificate): string {
  let top: { issuer?: PeerCertificate['issuer']; issuerCertificate?: PeerCertificate } = leaf
  const seen = new Set<object>()
  while (top.issuerCertificate !== undefined && !seen.has(top.issuerCertificate)) {
    top = top.issuerCertificate
    seen.add(top)
  }
  const issuer = top.issuer
  const name = issuer?.CN ?? issuer?.O ?? issuer?.OU ?? 'an unnamed CA'
  return Array.isArray(name) ? name.join(', ') : name
}

function answerFailure(response: IncomingMessage, body: string): AnswerFailure {
  const { headers } = response
  return {
    kind: 'answer',
    status: response.statusCode ?? 0,
    requestId: text(headers['x-request-id']) ?? memberOf(body, 'requestId'),
    code: text(headers['sallyport-error']) ?? memberOf(body, 'code'),
    dateMs: dateOf(response),
    versions: text(headers['sec-websocket-protocol']),
    ours: memberOf(body, 'requestId') !== undefined,
  }
}

function text(value: string | string[] | undefined): string | undefined {
  return typeof value === 'string' && /^[\x20-\x7e]{1,200}$/.test(value) ? value : undefined
}

/** A text member of a problem+json body. */
function memberOf(body: string, name: string): string | undefined {
  try {
    const parsed: unknown = JSON.parse(body)
    const value = typeof parsed === 'object' && parsed !== null ? (parsed as Record<string, unknown>)[name] : undefined
    return typeof value === 'string' ? text(value) : undefined
  } catch {
    return undefined
  }
}

function dateOf(response: IncomingMessage): number | undefined {
  const dateMs = Date.parse(response.headers.date ?? '')
  return Number.isNaN(dateMs) ? undefined : dateMs
}
