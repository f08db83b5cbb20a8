/** One upstream behind our edge: records what the edge forwards, and what the upstream says about it. */
import { parseCidrs } from '../../protocol/base/address.ts'
import type { Handler, HttpRequest, RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import { resolveCaller } from '../../protocol/http/forwarded.ts'
import { getHeader } from '../../protocol/http/headers.ts'
import { serveHttp1 } from '../../protocol/http/http1/server-connection.ts'
import { createForwarder, type Forwarder } from '../../router/index.ts'
import { FakeSocket, turn } from '../fuzz/fake-socket.ts'
import { DEAF } from '../support/ends.ts'
import type { Upstream } from './programs.ts'
import { CONNECTION_FIELD, md5, REPORT_FIELD, type Report, readReport } from './reports.ts'

const DEADLINE_MS = 10_000
const NOBODY = parseCidrs([])

/** One request that the edge has accepted. */
export interface Passed {
  readonly request: Pick<HttpRequest, 'method' | 'authority' | 'path' | 'upgrade'>
  readonly body: Buffer
  /** The request arrived whole. */
  readonly whole: boolean
  /** 0 if the answer broke off before its head. */
  readonly status: number
  /** Undefined if the upstream refused it. */
  readonly report: Report | undefined
  /** Which of the upstream's connections it went over. */
  readonly connection: string | undefined
}

export class Lane {
  readonly upstream: Upstream
  readonly #forwarder: Forwarder

  constructor(upstream: Upstream) {
    this.upstream = upstream
    this.#forwarder = createForwarder(`http://127.0.0.1:${upstream.port}`)
  }

  /** The requests that the edge finds in `pieces`, as one connection of a caller brings them. */
  async connection(pieces: readonly Uint8Array[]): Promise<Passed[]> {
    const passing: Passing[] = []
    const socket = new FakeSocket()
    const connection = serveHttp1(socket.asSocket, {
      handler: (request, response) => this.#begin(passing, request, response),
    })
    for (const piece of pieces) {
      if (socket.destroyed) break
      socket.push(piece)
      await turn()
    }
    for (let seen = -1; seen !== passing.length; ) {
      seen = passing.length
      const last = passing.at(-1)
      if (last?.whole === true) await last.over
      await turn()
      await turn()
    }
    connection.destroy('shutting-down')
    return passing.map(one => one.result)
  }

  /** One request that was parsed already. */
  async exchange(request: HttpRequest, body: Buffer): Promise<Passed> {
    const passing: Passing[] = []
    const sink = this.#begin(passing, request, {
      ...DEAF,
      responseData: chunk => sink.responseConsumed(chunk.length),
    })
    if (body.length > 0) sink.requestData(body)
    sink.requestEnd([])
    await passing[0]!.over
    return passing[0]!.result
  }

  readonly #begin = (passing: Passing[], request: HttpRequest, response: ResponseSink): RequestSink => {
    resolveCaller(request, NOBODY)
    const one = new Passing(request, response, this.#forwarder.handler)
    passing.push(one)
    return one.sink
  }

  close(): void {
    this.#forwarder.close()
  }
}

/** A request on its way to the upstream, and its answer. */
class Passing {
  readonly #request: HttpRequest
  readonly sink: RequestSink
  readonly over: Promise<void>
  whole = false
  #status = 0
  #report: Report | undefined
  #connection: string | undefined
  readonly #body: Buffer[] = []

  constructor(request: HttpRequest, response: ResponseSink, handler: Handler) {
    this.#request = { ...request }
    let over = () => {}
    let late = (_error: Error) => {}
    this.over = new Promise((resolve, reject) => {
      over = resolve
      late = reject
    })
    this.over.catch(() => {})
    const timer = setTimeout(() => late(new Error('the upstream did not answer a whole request')), DEADLINE_MS)
    const finish = () => {
      clearTimeout(timer)
      over()
    }
    const sink = handler(request, this.#listening(response, finish))
    this.sink = {
      requestData: chunk => {
        this.#body.push(Buffer.from(chunk))
        sink.requestData(chunk)
      },
      requestEnd: trailers => {
        this.whole = true
        sink.requestEnd(trailers)
      },
      requestAbort: error => {
        sink.requestAbort(error)
        finish()
      },
      responseConsumed: bytes => sink.responseConsumed(bytes),
    }
  }

  #listening(response: ResponseSink, finish: () => void): ResponseSink {
    return {
      responseInformational: (status, headers) => response.responseInformational(status, headers),
      responseHead: head => {
        this.#status = head.status
        const report = getHeader(head.headers, REPORT_FIELD)
        if (report !== undefined) this.#report = readReport(report)
        this.#connection = getHeader(head.headers, CONNECTION_FIELD)
        response.responseHead(head)
      },
      responseData: chunk => response.responseData(chunk),
      responseEnd: trailers => {
        response.responseEnd(trailers)
        finish()
      },
      responseAbort: error => {
        response.responseAbort(error)
        finish()
      },
      requestConsumed: bytes => response.requestConsumed(bytes),
    }
  }

  get result(): Passed {
    const { method, authority, path, upgrade } = this.#request
    return {
      request: { method, authority, path, upgrade },
      body: Buffer.concat(this.#body),
      whole: this.whole,
      status: this.#status,
      report: this.#report,
      connection: this.#connection,
    }
  }
}

/** What the edge says of a request, in the words of an upstream. */
export function asReport({ request, body }: Passed, reads: (target: string) => string = same): Report {
  const { method, path, authority } = request
  return { method, target: reads(path), host: authority, bodyBytes: body.length, bodyMd5: md5(body) }
}

function same(target: string): string {
  return target
}
