/** A server and small clients for tests of the server: built from the protocol alone, with keys made at run time. */
import { request as httpRequest, type IncomingHttpHeaders } from 'node:http'
import { request as httpsRequest, type RequestOptions } from 'node:https'
import { type ClientOptions, WebSocket } from 'ws'
import {
  type CertificateAndKey,
  createAuthority,
  createClientCertificate,
  createKeys,
  createServerCertificate,
  createToken,
  type TokenKeys,
} from '../../certs/index.ts'
import { discarding } from '../../protocol/base/guard.ts'
import type { HttpRequest, RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import {
  CONNECT_PATH,
  type ControlMessage,
  type Hello,
  parseControl,
  SUBPROTOCOL,
} from '../../protocol/wire/control.ts'
import { acceptExchange, type ExchangeHandler } from '../../protocol/wire/exchange/accept.ts'
import { webSocketTransport } from '../../protocol/wire/transport-websocket.ts'
import type { Session } from '../../protocol/wire/yamux/session.ts'
import type { Stream } from '../../protocol/wire/yamux/stream.ts'
import { createSession } from '../../protocol/wire/yamux/yamux-session.ts'
import { createServer } from '../../server/index.ts'
import type { ServerOptions } from '../../server/options.ts'
import type { Server } from '../../server/server.ts'

export const DOMAIN = 'tunnels.example.com'
/** Where callers reach the runtime `demo`. */
export const HOST = `demo.${DOMAIN}`
export const CONTROL_NAME = 'connect.example.com'

export interface World {
  readonly authority: CertificateAndKey
  readonly server: CertificateAndKey
  readonly keys: TokenKeys
}

let world: Promise<World> | undefined

/** One authority, one server certificate and one key for a test file. */
export function makeWorld(): Promise<World> {
  world ??= (async () => {
    const authority = await createAuthority()
    const hosts = [`*.${DOMAIN}`, CONTROL_NAME, 'localhost', '127.0.0.1']
    return { authority, server: await createServerCertificate(authority, { hosts }), keys: await createKeys() }
  })()
  return world
}

export function clientCertificate(runtime: string): Promise<CertificateAndKey> {
  return makeWorld().then(made => createClientCertificate(made.authority, { runtime }))
}

export async function token(
  runtime: string,
  options: Partial<Parameters<typeof createToken>[0]> = {},
): Promise<string> {
  const { keys } = await makeWorld()
  return (await createToken({ key: keys.privateJwk, runtime, ...options })).token
}

/** Plain HTTP at the edge, TLS at the control endpoint, on free ports. */
export async function startServer(overrides: Partial<ServerOptions> = {}): Promise<Server> {
  const made = await makeWorld()
  return createServer({
    public: { port: 0 },
    control: { port: 0, tls: { cert: made.server.certificate, key: made.server.key } },
    domains: [DOMAIN],
    auth: { jwks: made.keys.jwks },
    drainSpreadMs: 0,
    hold: { holdMs: 0 },
    ...overrides,
  })
}

export interface DialOptions {
  readonly token?: string
  readonly runtime?: string
  readonly hello?: Partial<Hello>
  /** If absent, answers 200 with the method, path and body. */
  readonly handler?: ExchangeHandler
  /** In place of `handler`. */
  readonly onStream?: (stream: Stream) => void
  readonly headers?: Record<string, string>
  readonly path?: string
  readonly protocols?: string[]
  readonly servername?: string
  readonly certificate?: CertificateAndKey | undefined
  readonly maxVersion?: 'TLSv1.2' | 'TLSv1.3'
  /** Receives the fields of the 101. */
  readonly onUpgrade?: (headers: IncomingHttpHeaders) => void
  /** Do not send ready. */
  readonly notReady?: boolean
  /** Do not send hello. */
  readonly silent?: boolean
}

export interface TestClient {
  readonly session: Session
  readonly ws: WebSocket
  readonly messages: ControlMessage[]
  /** Resolves to the next message of this type that nobody has waited for, or to one that has already arrived. */
  message<Type extends ControlMessage['type']>(type: Type): Promise<Extract<ControlMessage, { type: Type }>>
  readonly closed: Promise<{ code: number; reason: string }>
}

/** Opens only the WebSocket; rejects with `{ status, body, headers }` when it is refused. */
export async function openWebSocket(server: Server, options: DialOptions = {}): Promise<WebSocket> {
  const { authority } = await makeWorld()
  const { host, port } = server.controlAddress!
  const bearer = options.token ?? (await token(options.runtime ?? 'demo'))
  const headers = { authorization: `Bearer ${bearer}`, ...options.headers }
  const settings: ClientOptions & { servername: string } = {
    ca: authority.certificate,
    servername: options.servername ?? CONTROL_NAME,
    headers,
    perMessageDeflate: false,
    ...(options.certificate === undefined
      ? {}
      : { cert: options.certificate.certificate, key: options.certificate.key }),
    ...(options.maxVersion === undefined ? {} : { maxVersion: options.maxVersion }),
  }
  const ws = new WebSocket(
    `wss://${host}:${port}${options.path ?? CONNECT_PATH}`,
    options.protocols ?? [SUBPROTOCOL],
    settings,
  )
  ws.once('upgrade', response => options.onUpgrade?.(response.headers))
  return new Promise((resolve, reject) => {
    ws.once('open', () => resolve(ws))
    ws.once('error', reject)
    ws.once('unexpected-response', (_request, response) => {
      let body = ''
      response.on('data', chunk => {
        body += chunk
      })
      response.on('end', () => reject({ status: response.statusCode, body, headers: response.headers }))
    })
  })
}

/** A client that has said hello and, unless told otherwise, is ready. */
export async function dial(server: Server, options: DialOptions = {}): Promise<TestClient> {
  const ws = await openWebSocket(server, options)
  const messages: ControlMessage[] = []
  const waiting: Array<() => void> = []
  const seen = new Map<string, number>()
  const { promise: closed, resolve } = Promise.withResolvers<{ code: number; reason: string }>()
  ws.once('close', (code, reason) => resolve({ code, reason: reason.toString() }))
  const session = createSession(webSocketTransport(ws), {
    role: 'client',
    onStream: options.onStream ?? (stream => acceptExchange(stream, options.handler ?? echo)),
    onControl: text => {
      const message = parseControl(text)
      if (message !== undefined) messages.push(message)
      for (const wake of waiting.splice(0)) wake()
    },
  })
  const client: TestClient = {
    session,
    ws,
    messages,
    closed,
    async message(type) {
      for (;;) {
        const from = seen.get(type) ?? 0
        const index = messages.findIndex((one, i) => i >= from && one.type === type)
        if (index >= 0) {
          seen.set(type, index + 1)
          return messages[index] as never
        }
        await new Promise<void>(resolve => waiting.push(resolve))
      }
    },
  }
  if (options.silent) return client
  session.control({
    type: 'hello',
    minor: 0,
    software: 'test/1',
    instance: 'instance-1',
    startedMs: Date.now(),
    lastEpoch: 0,
    connection: 0,
    ...options.hello,
  })
  await client.message('welcome')
  if (options.notReady) return client
  session.control({ type: 'ready' })
  await client.message('ready')
  return client
}

/** Answers every exchange with its own request. */
export function echo(_preamble: unknown, request: HttpRequest, response: ResponseSink): RequestSink {
  return reading(response, body => answer(response, 200, `${request.method} ${request.path} ${body}`))
}

/** Sends a request body back, chunk by chunk, as the rest of an answer that has begun. */
export function sendingBack(response: ResponseSink): RequestSink {
  return {
    ...discarding(response),
    requestData(chunk) {
      const { length } = chunk
      response.responseData(chunk)
      response.requestConsumed(length)
    },
    requestEnd: () => response.responseEnd([]),
  }
}

export function answer(response: ResponseSink, status: number, text: string): void {
  const body = Buffer.from(text)
  response.responseHead({
    status,
    headers: ['content-type', 'text/plain', 'content-length', String(body.length)],
    bodyBytes: body.length,
  })
  if (body.length > 0) response.responseData(body)
  response.responseEnd([])
}

/** A handler that answers with `text` at once. */
export function always(text: string, status = 200): ExchangeHandler {
  return (_preamble, _request, response) => {
    answer(response, status, text)
    return discarding(response)
  }
}

/** Reads a request body, and calls `onEnd` with all of it. */
export function reading(response: ResponseSink, onEnd: (body: Buffer) => void): RequestSink {
  const chunks: Uint8Array[] = []
  return {
    requestData(chunk) {
      chunks.push(chunk)
      response.requestConsumed(chunk.length)
    },
    requestEnd: () => onEnd(Buffer.concat(chunks)),
    requestAbort() {},
    responseConsumed() {},
  }
}

export interface Answer {
  readonly status: number
  readonly headers: Record<string, string | string[] | undefined>
  readonly text: string
}

export interface CallOptions extends RequestOptions {
  readonly body?: string | Buffer
  /** The head of the answer has arrived. */
  readonly onResponse?: () => void
}

/** A caller's request at the public edge. */
export function call(server: Server, host: string, path = '/', options: CallOptions = {}): Promise<Answer> {
  const { body, headers, onResponse, ...rest } = options
  const { host: address, port } = server.publicAddress!
  const send = options.ca === undefined ? httpRequest : httpsRequest
  return new Promise((resolve, reject) => {
    const request = send(
      { host: address, port, path, agent: false, headers: { host, ...headers }, ...rest },
      response => {
        onResponse?.()
        const chunks: Buffer[] = []
        response.on('data', chunk => chunks.push(chunk))
        response.on('error', reject)
        response.on('end', () => {
          resolve({
            status: response.statusCode!,
            headers: response.headers,
            text: Buffer.concat(chunks).toString(),
          })
        })
      },
    )
    request.once('error', reject)
    request.end(body)
  })
}

/** Resolves when the server emits the event and `test` is true for it. */
export function event<Name extends 'session' | 'ready' | 'sessionEnded' | 'refused'>(
  server: Server,
  name: Name,
): Promise<Parameters<Parameters<typeof server.on<Name>>[1]>[0]> {
  return new Promise(resolve => {
    const listener = (value: Parameters<Parameters<typeof server.on<Name>>[1]>[0]) => {
      server.off(name, listener)
      resolve(value)
    }
    server.on(name, listener)
  })
}

/** Cuts a client's connection, and waits until the server has seen that. */
export async function leave(server: Server, client: TestClient): Promise<void> {
  const ended = event(server, 'sessionEnded')
  client.ws.terminate()
  await ended
}

/** A handler that lets exchanges begin and answers none; `begun` resolves with the first. */
export function hanging(): { handler: ExchangeHandler; begun: Promise<ResponseSink>; count: () => number } {
  let count = 0
  const { promise: begun, resolve } = Promise.withResolvers<ResponseSink>()
  const handler: ExchangeHandler = (_preamble, _request, response) => {
    count++
    resolve(response)
    return discarding(response)
  }
  return { handler, begun, count: () => count }
}
