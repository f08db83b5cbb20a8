/** However a connection to a target ends, its place is taken until its socket is gone. None that is over keeps a new one out. */
import { once } from 'node:events'
import { type AddressInfo, createServer, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { TLSSocket } from 'node:tls'
import { afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { fillTarget, parseTarget } from '../../../router/target.ts'
import type { UpstreamRequest } from '../../../router/upstream/types.ts'
import { Upstreams } from '../../../router/upstream/upstreams.ts'
import { DEAF, UPSTREAM_REQUEST } from '../../support/ends.ts'
import {
  data,
  END_HEADERS,
  END_STREAM,
  framesOf,
  goaway,
  headers,
  PREFACE,
  settings,
  TYPE,
  uint32,
} from '../../support/http2-frames.ts'
import { makeSecrets, type Secrets } from '../../support/secrets.ts'

const BOUND = 4
const TOGETHER = 40
const ONE_BY_ONE = 3 * BOUND

let secrets: Secrets
beforeAll(async () => {
  secrets = await makeSecrets()
})

let protocol: string
let alpn: string[]
/** What the target does with a connection. It never ends one by itself. */
let serve: (wire: Duplex) => void
let accepted: Socket[]
let upstreams: Upstreams
/** Of ours, those that are open, and the most at a time. */
let open: Set<Socket>
let most: number
let target: ReturnType<typeof createServer>
beforeEach(async () => {
  accepted = []
  open = new Set()
  most = 0
  target = createServer({ allowHalfOpen: true }, socket => {
    accepted.push(socket)
    socket.on('error', () => {})
    const tls = { isServer: true, ...secrets.server, ALPNProtocols: alpn, allowHalfOpen: true }
    const wire = alpn.length > 0 ? new TLSSocket(socket, tls) : socket
    wire.on('error', () => {})
    if (wire === socket) serve(wire)
    else wire.once('secure', () => serve(wire))
  })
  await once(target.listen(0, '0.0.0.0'), 'listening')
  const connect = Socket.prototype.connect
  vi.spyOn(Socket.prototype, 'connect').mockImplementation(function (this: Socket, ...args: unknown[]) {
    for (const socket of open) if (socket.destroyed) open.delete(socket)
    most = Math.max(most, open.add(this).size)
    return Reflect.apply(connect, this, args) as Socket
  })
})
afterEach(() => {
  vi.restoreAllMocks()
  upstreams.close()
  for (const socket of accepted) socket.destroy()
  target.close()
})

interface Way {
  serve: (wire: Duplex) => void
  request?: Partial<UpstreamRequest>
  /** When the caller leaves. */
  leavesMs?: number
  connectMs?: number
  idleMs?: number
}

const answering = (answer: string) => (wire: Duplex) => wire.on('data', () => wire.write(answer))
const silent = (wire: Duplex) => void wire.resume()
const POST = { method: 'POST', bodyBytes: 1 }
/** More than the kernel takes. */
const LONG = { method: 'POST', bodyBytes: 16 * 1024 * 1024 }
const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n'

const HTTP1: Record<string, Way> = {
  'its target says that it ends it, and does not': {
    serve: answering(`${OK}connection: close\r\n\r\nok`),
    request: POST,
  },
  'it cannot be used again': { serve: answering(`${OK}connection: close\r\n\r\nok`) },
  'it has been idle for too long': { serve: answering(`${OK}\r\nok`), idleMs: 0 },
  'its target ends it behind the answer': { serve: wire => wire.once('data', () => wire.end(`${OK}\r\nok`)) },
  'its target ends it without an answer': { serve: wire => wire.once('data', () => wire.end()) },
  'its target resets it': { serve: wire => wire.once('data', () => wire.destroy()) },
  'the answer breaks the rules': { serve: answering('HTTP/1.1 2000 OK\r\n\r\n') },
  'bytes follow the answer': { serve: answering(`${OK}\r\nokok`) },
  'the answer comes before the rest of the request': { serve: wire => wire.write(`${OK}\r\nok`), request: LONG },
  'its caller leaves': { serve: silent, leavesMs: 5 },
  'its caller leaves while it uploads': { serve: () => {}, request: LONG, leavesMs: 5 },
}

/** Answers each stream with `answer`. */
function http2(first: Buffer | undefined, answer: (id: number) => Buffer = () => Buffer.alloc(0)) {
  return (wire: Duplex): void => {
    if (first !== undefined) wire.write(first)
    let bytes = Buffer.alloc(0)
    let taken = PREFACE.length
    wire.on('data', (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk])
      for (const { type, stream, payload } of framesOf(bytes.subarray(taken))) {
        taken += 9 + payload.length
        if (type === TYPE.headers) wire.write(answer(stream))
      }
    })
  }
}

const GREETING = settings()
const ok = (id: number) => headers(id, [[':status', '200']])
const HTTP2: Record<string, Way> = {
  'its target takes no streams': { serve: http2(settings(Buffer.concat([Buffer.from([0, 3]), uint32(0)]))) },
  'its target sends no settings': { serve: http2(undefined), connectMs: 50 },
  'its target speaks HTTP/1.1': { serve: wire => void wire.write('HTTP/1.1 400 Bad Request\r\n\r\n') },
  'its target goes away behind the answer': {
    serve: http2(GREETING, id => Buffer.concat([goaway(id), ok(id)])),
  },
  'its target goes away with an error': { serve: http2(GREETING, id => goaway(id, 1)) },
  'its target breaks a rule': { serve: http2(GREETING, () => data(0)) },
  'it has been idle for too long': { serve: http2(GREETING, ok), idleMs: 0 },
  'its target ends its half': { serve: wire => void wire.end(GREETING) },
}

async function ends({ request, leavesMs, connectMs = 60_000 }: Way, i: number, host = '127.0.0.1'): Promise<string> {
  const { port } = target.address() as AddressInfo
  const tls = { key: '', ca: secrets.ca, serverName: undefined, insecure: false, http2: alpn.includes('h2') }
  const url = parseTarget(`${protocol}://${host}:${port}`)
  const to = fillTarget(url, {}, new Map(), alpn.length > 0 ? tls : undefined)!
  const caller = `198.51.100.${i}`
  return await new Promise(resolve => {
    const sink = upstreams.forward(
      to,
      { ...UPSTREAM_REQUEST, ...request, caller },
      { connectMs, headMs: 60_000, attempts: 0 },
      {
        ...DEAF,
        responseEnd: () => resolve('answered'),
        responseAbort: error => resolve(error.reason),
      },
    )
    const bytes = request?.bodyBytes ?? 0
    if (bytes > 0) sink.requestData(Buffer.alloc(bytes))
    if (bytes !== LONG.bodyBytes) sink.requestEnd([])
    if (leavesMs === undefined) return
    setTimeout(() => {
      sink.requestAbort(new Error('left') as never)
      resolve('left')
    }, leavesMs)
  })
}

const OVER: [string, string, string[], Record<string, Way>][] = [
  ['HTTP/1.1', 'http', [], HTTP1],
  ['HTTP/1.1 with TLS', 'https', ['http/1.1'], HTTP1],
  ['HTTP/2', 'h2c', [], HTTP2],
  ['HTTP/2 with TLS', 'https', ['h2'], HTTP2],
]
describe.each(OVER)('a connection over %s counts until its socket is gone if', (_, scheme, protocols, ways) => {
  it.each(Object.entries(ways))('%s', async (_, way) => {
    protocol = scheme
    alpn = protocols
    serve = way.serve
    upstreams = new Upstreams({
      idleMs: way.idleMs ?? 60_000,
      maxConnectionsPerTarget: BOUND,
      maxUpstreamConnections: BOUND,
    })
    await Promise.all(Array.from({ length: TOGETHER }, (_, i) => ends(way, i)))
    const outcomes: string[] = []
    for (let i = 0; i < ONE_BY_ONE; i++) outcomes.push(await ends(way, i))
    expect(most).toBeLessThanOrEqual(BOUND)
    expect(outcomes).not.toContain('overloaded')
    expect(accepted.length).toBeGreaterThanOrEqual(BOUND)
  })
})

it.each([
  ['http', answering(`${OK}\r\nok`)],
  ['h2c', http2(GREETING, id => headers(id, [[':status', '200']], END_HEADERS | END_STREAM))],
])('%s: an idle connection that ends for one to another target is gone before that', async (scheme, target) => {
  protocol = scheme
  alpn = []
  serve = target
  upstreams = new Upstreams({ idleMs: 60_000, maxConnectionsPerTarget: BOUND, maxUpstreamConnections: BOUND })
  for (let round = 0; round < ONE_BY_ONE; round++) {
    const hosts = Array.from({ length: BOUND - 1 }, (_, i) => `127.0.${round}.${i + 1}`)
    const outcomes = await Promise.all(hosts.map((host, i) => ends({ serve }, i, host)))
    expect(outcomes).toEqual(hosts.map(() => 'answered'))
  }
  expect(most).toBe(BOUND)
  expect(accepted.length).toBe(ONE_BY_ONE * (BOUND - 1))
})
