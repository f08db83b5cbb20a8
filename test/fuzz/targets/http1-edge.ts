import type { SallyportError } from '../../../protocol/base/errors.ts'
import {
  BODY_UNKNOWN,
  type Handler,
  type HeaderList,
  type HttpRequest,
  type RequestSink,
  type ResponseSink,
} from '../../../protocol/exchange.ts'
import { isAuthority, isPath, isToken } from '../../../protocol/http/headers.ts'
import { Http1ClientConnection } from '../../../protocol/http/http1/client-connection.ts'
import { serveHttp1 } from '../../../protocol/http/http1/server-connection.ts'
import { SocketReader } from '../../../protocol/http/http1/socket-reader.ts'
import { DEFAULT_HTTP_LIMITS, type HttpLimits } from '../../../protocol/http/limits.ts'
import { DEAF } from '../../support/ends.ts'
import { FakeSocket, LendingReader, turn } from '../fake-socket.ts'
import { canonicalHeaders, canonicalRequestHeaders, holds, same } from '../holds.ts'
import { anyRequests } from '../http1-grammar.ts'
import { cut } from '../mutate.ts'
import { Random } from '../random.ts'
import type { FuzzTarget } from '../target.ts'

/** One request, as a handler saw it. */
export interface Seen {
  readonly request: HttpRequest
  /** Chunks as they arrived. They belong to their receiver. */
  readonly chunks: Uint8Array[]
  trailers: HeaderList | undefined
  aborted: boolean
}

export interface Connection {
  readonly seen: Seen[]
  /** The answers to the caller, without what differs from run to run. */
  readonly answer: string
  readonly refused: boolean
}

/** When the handler answers. All of these happen on real edges. */
const ANSWERS = ['at the end', 'at once', 'at the first bytes', 'never'] as const
export type Answers = (typeof ANSWERS)[number]

/** Serves `pieces` as one connection. */
export async function serve(
  pieces: readonly Uint8Array[],
  answers: Answers,
  reader = new SocketReader(),
  limits: Partial<HttpLimits> = {},
): Promise<Connection> {
  const socket = new FakeSocket()
  const seen: Seen[] = []
  let refused = false
  const refuse = (error: SallyportError) => {
    holds(error.reason !== 'internal', `refused with a reason of the table: ${error.stack}`)
    refused = true
  }
  const handler = recorder(seen, answers, refuse)
  const connection = serveHttp1(socket.asSocket, { reader, limits, handler, onBadRequest: refuse })
  await socket.bring(pieces)
  await turn()
  connection.destroy('shutting-down')
  await turn()
  const answer = socket.text.replace(/date: [^\r]+/g, 'date: x')
  return { seen, answer, refused }
}

function recorder(all: Seen[], answers: Answers, refuse: (error: SallyportError) => void): Handler {
  return (request, response): RequestSink => {
    const seen: Seen = { request, chunks: [], trailers: undefined, aborted: false }
    all.push(seen)
    let answered = false
    const answer = () => {
      if (!answered) respond(request, response)
      answered = true
    }
    if (request.upgrade && answers !== 'never') setImmediate(answer)
    else if (answers === 'at once') answer()
    return {
      requestData: chunk => {
        holds(chunk.length > 0, 'data is never empty')
        holds(seen.trailers === undefined && !seen.aborted, 'nothing comes behind the end')
        seen.chunks.push(chunk)
        response.requestConsumed(chunk.length)
        if (answers === 'at the first bytes') answer()
      },
      requestEnd: trailers => {
        holds(seen.trailers === undefined && !seen.aborted, 'one end')
        seen.trailers = trailers
        if (answers !== 'never') answer()
      },
      requestAbort: (error, answered) => {
        holds(!seen.aborted, 'one abort')
        seen.aborted = true
        if (answered) refuse(error)
      },
      responseConsumed: () => {},
    }
  }
}

function respond(request: HttpRequest, response: ResponseSink): void {
  if (request.upgrade) {
    response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
    return
  }
  const head = request.method === 'HEAD'
  response.responseHead({ status: 200, headers: ['content-length', '2'], bodyBytes: head ? 0 : 2 })
  if (!head) response.responseData(Buffer.from('ok'))
  response.responseEnd([])
}

/** The result that must not depend on how the bytes are split. The reason for a refusal may depend on how much had arrived. */
function outcome({ seen, answer, refused }: Connection, isRace: boolean): unknown {
  const requests = seen.map(({ request, chunks, trailers, aborted }) => ({
    line: [request.method, request.authority, request.path, request.bodyBytes, request.upgrade],
    headers: request.headers,
    // How much of a broken body is seen before the fault depends on timing.
    body: trailers === undefined ? '' : textOf(chunks),
    trailers,
    aborted: isRace ? undefined : aborted,
  }))
  if (isRace) return { requests }
  return { requests, refused, statuses: answer.match(/HTTP\/1\.1 \d/g) ?? [] }
}

function textOf(chunks: readonly Uint8Array[]): string {
  return Buffer.concat(chunks).toString('latin1')
}

function check({ request, chunks, trailers }: Seen): void {
  holds(isToken(request.method), 'the method is a token')
  holds(!['CONNECT', 'TRACE'].includes(request.method), 'CONNECT and TRACE are not forwarded')
  const asks = request.path === '*' && request.method === 'OPTIONS'
  holds(asks || isPath(request.path), `the path is in origin form, or that of OPTIONS: ${request.path}`)
  holds(request.authority === '' || isAuthority(request.authority), 'the authority is one')
  holds(request.headers.length <= 2 * DEFAULT_HTTP_LIMITS.headFields + 2, 'no more fields than allowed')
  canonicalRequestHeaders(request.headers)
  const lengths = request.headers.filter((_, i, all) => i % 2 === 1 && all[i - 1] === 'content-length')
  holds(lengths.length <= 1, 'one content-length at most')
  if (lengths.length === 1) holds(Number(lengths[0]) === request.bodyBytes, 'content-length is the length of the body')
  if (trailers === undefined) return
  canonicalHeaders(trailers)
  if (!request.upgrade && request.bodyBytes !== BODY_UNKNOWN) {
    holds(Buffer.concat(chunks).length === request.bodyBytes, 'the body is as long as announced')
  }
}

/** A head that was just within the limits over HTTP/2 is a little longer here, with its colons and line ends. */
const ROOMIER = { headBytes: DEFAULT_HTTP_LIMITS.headBytes + 8 * DEFAULT_HTTP_LIMITS.headFields }

/** Our own edge reads what our upstream connection writes as the same request. */
export async function roundTrip({ request, chunks, trailers }: Seen): Promise<void> {
  const socket = new FakeSocket()
  const connection = new Http1ClientConnection(socket)
  const sink = connection.send(request, DEAF)
  for (const chunk of chunks) sink.requestData(chunk)
  sink.requestEnd(trailers ?? [])
  await turn()
  const bytes = Buffer.concat(socket.sent)
  connection.destroy()
  const { seen, refused } = await serve([bytes], 'never', undefined, ROOMIER)
  holds(!refused && seen.length === 1, `what we forward is one request: ${JSON.stringify(bytes.toString('latin1'))}`)
  const again = seen[0]!
  same(again.request.method, request.method, 'the same method')
  same(again.request.authority, request.authority, 'the same authority')
  same(again.request.path, request.path, 'the same path')
  same(framed(again), framed({ request, chunks, trailers, aborted: false }), 'the same fields, body and trailers')
}

/** Both of our ends may move the length and the expectation, and no HTTP/1.1 upstream gets `te`. */
function framed({ request, chunks, trailers }: Seen): unknown {
  const headers = request.headers.filter((_, i, all) => !['content-length', 'expect', 'te'].includes(all[i - (i % 2)]!))
  return { headers, body: textOf(chunks), trailers: request.bodyBytes === BODY_UNKNOWN ? trailers : [] }
}

/** The first byte selects when the handler answers. */
export const http1Edge: FuzzTarget = {
  name: 'http1-edge',

  generate(random) {
    return Buffer.concat([random.bytes(1), anyRequests(random)])
  },

  async execute(input) {
    const answers = ANSWERS[(input[0] ?? 0) & 3]!
    const bytes = input.subarray(1)
    const whole = await serve([bytes], answers)
    const pieces = await serve(cut(bytes, new Random(input)), answers, new LendingReader())
    // Whether an answer at the first bytes of a body or the fault after them comes first depends on timing.
    const isRace = answers === 'at the first bytes' && (whole.refused || pieces.refused)
    same(outcome(pieces, isRace), outcome(whole, isRace), 'any cut is read alike')
    for (const seen of whole.seen) {
      check(seen)
      const complete = seen.trailers !== undefined && !seen.aborted && !seen.request.upgrade
      // We answer `OPTIONS *` ourselves.
      if (complete && seen.request.authority !== '' && seen.request.path !== '*') await roundTrip(seen)
    }
  },
}
