import { BODY_UNKNOWN, type HeaderList, type ResponseHead, type ResponseSink } from '../../../protocol/exchange.ts'
import { Http1ClientConnection } from '../../../protocol/http/http1/client-connection.ts'
import { serveHttp1 } from '../../../protocol/http/http1/server-connection.ts'
import { SocketReader } from '../../../protocol/http/http1/socket-reader.ts'
import { DEFAULT_HTTP_LIMITS } from '../../../protocol/http/limits.ts'
import { FakeSocket, LendingReader, nextTick, turn } from '../fake-socket.ts'
import { canonicalHeaders, holds, same } from '../holds.ts'
import { anyResponse } from '../http1-grammar.ts'
import { cut } from '../mutate.ts'
import { Random } from '../random.ts'
import type { FuzzTarget } from '../target.ts'

interface Heard {
  informational: [number, HeaderList][]
  head: ResponseHead | undefined
  /** Chunks as they arrived. They belong to their receiver. */
  chunks: Uint8Array[]
  trailers: HeaderList | undefined
  aborted: boolean
}

const ASKED = [
  { method: 'GET', bodyBytes: 0, upgrade: false, headers: [] },
  { method: 'HEAD', bodyBytes: 0, upgrade: false, headers: [] },
  { method: 'POST', bodyBytes: 5, upgrade: false, headers: ['expect', '100-continue'] },
  { method: 'GET', bodyBytes: 0, upgrade: true, headers: [] },
] as const

/** Sends a request, and receives `pieces` as the answer. */
async function ask(
  pieces: readonly Uint8Array[],
  asked: (typeof ASKED)[number],
  reader = new SocketReader(),
): Promise<Heard> {
  const socket = new FakeSocket()
  const heard: Heard = { informational: [], head: undefined, chunks: [], trailers: undefined, aborted: false }
  const connection = new Http1ClientConnection(socket, { reader })
  const over = () => heard.trailers !== undefined || heard.aborted
  const response: ResponseSink = {
    responseInformational: (status, headers) => {
      holds(heard.head === undefined && !over(), 'informational responses come first')
      heard.informational.push([status, headers])
    },
    responseHead: head => {
      holds(heard.head === undefined && !over(), 'one head')
      heard.head = head
    },
    responseData: chunk => {
      holds(heard.head !== undefined && !over() && chunk.length > 0, 'data comes between head and end')
      heard.chunks.push(chunk)
      sink.responseConsumed(chunk.length)
    },
    responseEnd: trailers => {
      holds(heard.head !== undefined && !over(), 'one end')
      heard.trailers = trailers
    },
    responseAbort: error => {
      holds(!over(), 'one abort')
      holds(error.reason === 'upstream-broken', `the upstream is at fault: ${error.stack}`)
      heard.aborted = true
    },
    requestConsumed: () => {},
  }
  const sink = connection.send({ ...asked, headers: [...asked.headers], authority: 'demo.test', path: '/' }, response)
  if (asked.bodyBytes > 0) sink.requestData(Buffer.from('hello'))
  if (!asked.upgrade) sink.requestEnd([])
  await nextTick()
  await socket.bring(pieces)
  connection.destroy()
  return heard
}

/** How much of a broken body is seen before the fault depends on timing. */
function outcome({ chunks, ...heard }: Heard): unknown {
  return { ...heard, body: heard.aborted ? '' : textOf(chunks) }
}

function textOf(chunks: readonly Uint8Array[]): string {
  return Buffer.concat(chunks).toString('latin1')
}

function check(heard: Heard, method: string): void {
  holds(heard.informational.length <= DEFAULT_HTTP_LIMITS.informational, 'informational responses are bounded')
  for (const [status, headers] of heard.informational) {
    holds(status >= 100 && status < 200 && status !== 101, 'an informational status')
    canonicalHeaders(headers)
  }
  const { head } = heard
  if (head === undefined) return
  holds((head.status >= 200 && head.status <= 599) || head.status === 101, 'a final status')
  canonicalHeaders(head.headers)
  const empty = method === 'HEAD' || head.status === 204 || head.status === 304
  if (empty) holds(head.bodyBytes === 0 && heard.chunks.length === 0, 'no body where there is none')
  if (heard.trailers === undefined || head.status === 101) return
  canonicalHeaders(heard.trailers)
  if (head.bodyBytes !== BODY_UNKNOWN)
    holds(textOf(heard.chunks).length === head.bodyBytes, 'the body is as long as announced')
}

/** Our own upstream connection reads what our edge writes of the answer as the same answer. */
async function roundTrip(heard: Heard, method: string): Promise<void> {
  const socket = new FakeSocket()
  const connection = serveHttp1(socket.asSocket, {
    handler: (_request, response) => {
      setImmediate(() => {
        response.responseHead(heard.head!)
        for (const chunk of heard.chunks) response.responseData(chunk)
        response.responseEnd(heard.trailers!)
      })
      return { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
    },
  })
  await socket.bring([Buffer.from(`${method} / HTTP/1.1\r\nhost: demo.test\r\n\r\n`)])
  await turn()
  connection.destroy('shutting-down')
  const again = await ask([Buffer.concat(socket.sent)], method === 'HEAD' ? ASKED[1] : ASKED[0])
  same(framed(again), framed(heard), 'what we pass on is the same answer')
}

function framed({ head, chunks, trailers }: Heard): unknown {
  const headers = head?.headers.filter((_, i, all) => !['content-length', 'date'].includes(all[i - (i % 2)]!))
  return { status: head?.status, headers, body: textOf(chunks), trailers }
}

/** The first byte selects the request. */
export const http1Upstream: FuzzTarget = {
  name: 'http1-upstream',

  generate(random) {
    return Buffer.concat([random.bytes(1), anyResponse(random)])
  },

  async execute(input) {
    const asked = ASKED[(input[0] ?? 0) & 3]!
    const bytes = input.subarray(1)
    const whole = await ask([bytes], asked)
    const pieces = await ask(cut(bytes, new Random(input)), asked, new LendingReader())
    same(outcome(pieces), outcome(whole), 'any cut is read alike')
    check(whole, asked.method)
    const complete = whole.trailers !== undefined && whole.head !== undefined && whole.head.status !== 101
    if (complete) await roundTrip(whole, asked.method === 'HEAD' ? 'HEAD' : 'GET')
  },
}
