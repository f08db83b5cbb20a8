import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { type ClientHttp2Session, connect as connectHttp2, type IncomingHttpHeaders } from 'node:http2'
import { type RequestOptions, request as requestHttps } from 'node:https'
import type { LookupFunction } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { WebSocket } from 'ws'

/** A host that a caller would use, with the address where it really listens. */
export interface EntryPoint {
  readonly name: string
  readonly host: string
  readonly port: number
  readonly ca: string
  /** Whether callers from loopback are treated as a trusted proxy, so that their forwarding fields count. */
  readonly trustsCaller?: boolean
  /** Controls the client of this entry point, if its server stores webhooks while the client is offline. */
  readonly keeper?: Keeper
}

/** The client of an entry point whose server has an inbox, and the deliveries that reach the event source. */
export interface Keeper {
  stopClient(): Promise<void>
  startClient(): Promise<void>
  /** SHA-256 of the bodies of these deliveries, with their ids, in the order in which they reached the event bus. */
  recorded(ids: readonly string[]): Promise<{ readonly id: string; readonly sha256: string }[]>
}

export interface HttpAnswer {
  readonly status: number
  readonly headers: Record<string, string | string[] | undefined>
  readonly body: Buffer
}

interface Ask {
  readonly method?: string
  readonly headers?: Record<string, string>
  readonly body?: string | Buffer | Iterable<Buffer>
  readonly signal?: AbortSignal
}

/** Always loopback, since neither glibc nor Node resolves `*.localhost`. */
const lookup: LookupFunction = (_, options, callback) => {
  if (options.all) callback(null, [{ address: '127.0.0.1', family: 4 }])
  else callback(null, '127.0.0.1', 4)
}

export function authority(entry: EntryPoint): string {
  return `${entry.host}:${entry.port}`
}

/** Sends a request over HTTP/1.1 on a separate connection. Resolves when the head of the answer has arrived. */
export async function open(entry: EntryPoint, path: string, ask: Ask = {}): Promise<IncomingMessage> {
  const options: RequestOptions = {
    host: entry.host,
    port: entry.port,
    path,
    method: ask.method ?? 'GET',
    headers: { host: authority(entry), ...ask.headers },
    ca: entry.ca,
    servername: entry.host,
    lookup,
    agent: false,
    ...(ask.signal === undefined ? {} : { signal: ask.signal }),
  }
  const request = requestHttps(options)
  const answered = once(request, 'response') as Promise<[IncomingMessage]>
  send(request, ask.body, answered).catch(error => request.destroy(error))
  const [response] = await answered
  return response
}

/** Like {@link open}, with the whole body of the answer. */
export async function ask(entry: EntryPoint, path: string, question: Ask = {}): Promise<HttpAnswer> {
  const response = await open(entry, path, question)
  const chunks: Buffer[] = []
  for await (const chunk of response) chunks.push(chunk)
  return { status: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(chunks) }
}

async function send(request: NodeJS.WritableStream, body: Ask['body'], answered: Promise<unknown>): Promise<void> {
  if (typeof body === 'string' || Buffer.isBuffer(body)) {
    request.end(body)
    return
  }
  for (const chunk of body ?? []) {
    if (!request.write(chunk)) await Promise.race([once(request, 'drain'), answered])
  }
  request.end()
}

/** One request over HTTP/2, by ALPN. */
export async function askHttp2(entry: EntryPoint, path: string): Promise<HttpAnswer> {
  const session: ClientHttp2Session = connectHttp2(`https://${authority(entry)}`, {
    createConnection: () =>
      connectTls({ host: '127.0.0.1', port: entry.port, servername: entry.host, ca: entry.ca, ALPNProtocols: ['h2'] }),
  })
  const broken = new Promise<never>((_, reject) => session.once('error', reject))
  try {
    const stream = session.request({ ':path': path })
    const [head] = (await Promise.race([once(stream, 'response'), broken])) as [IncomingHttpHeaders]
    const chunks: Buffer[] = []
    for await (const chunk of stream) chunks.push(chunk)
    return { status: Number(head[':status']), headers: head, body: Buffer.concat(chunks) }
  } finally {
    session.destroy()
  }
}

/** An open WebSocket. */
export async function dialWebSocket(entry: EntryPoint, path: string, signal: AbortSignal): Promise<WebSocket> {
  const options = { ca: entry.ca, servername: entry.host, lookup, perMessageDeflate: false }
  const ws = new WebSocket(`wss://${authority(entry)}${path}`, options)
  signal.addEventListener('abort', () => ws.terminate(), { once: true })
  await once(ws, 'open')
  return ws
}
