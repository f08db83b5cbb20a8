/** Asks another service about each request. No answer in time, or one that we do not understand, means no. */
import { request as ask, type Dispatcher } from 'undici'
import { type EndingAgent, endingAgent } from '../../protocol/base/ending-agent.ts'
import { ignore } from '../../protocol/base/guard.ts'
import { readAtMost } from '../../protocol/base/read-at-most.ts'
import type { HeaderList, HttpRequest, ResponseSink } from '../../protocol/exchange.ts'
import { appendForwarded } from '../../protocol/http/forwarded.ts'
import { dashed, hasTwin, isFieldValue, removeWhere, stripHopByHop } from '../../protocol/http/headers.ts'
import { type CorsPolicy, corsFields } from '../../protocol/http/problem.ts'
import { FORWARD_AUTH_MS, type ForwardAuth } from './options.ts'
import { Turns } from './turns.ts'

/** Most questions at a time, over as many connections; the same for one network; and most requests that wait for their turn. */
const TURNS = { atOnce: 128, perNetwork: 64, waiting: 1024 }
const MAX_BODY_BYTES = 64 * 1024
/** Most bytes of all fields that are copied to a request. */
const MAX_COPIED_BYTES = 8 * 1024
/** Fields of a denying answer that are passed to the caller, such as where and how to log in. */
const TOLD = ['location', 'www-authenticate', 'set-cookie', 'content-type', 'content-encoding', 'cache-control']
/** Fields that identify the caller. They are sent even if the answer replaces them. */
const CREDENTIALS = new Set(['authorization', 'cookie'])
/** Fields about the body, which is not sent, and fields that ask for a partial answer. */
const OF_BODY = new Set(['content-length', 'content-type', 'content-encoding', 'expect', 'te', 'trailer', 'range'])

/** The service's answer, which the caller gets instead of the runtime's. */
export class Denied {
  readonly status: number
  readonly #headers: HeaderList
  readonly #body: Buffer

  constructor(status: number, headers: HeaderList, body: Buffer) {
    this.status = status
    this.#headers = headers
    this.#body = body
  }

  /** `cors`: which pages may read it. */
  answer(request: HttpRequest, response: ResponseSink, cors: CorsPolicy | undefined): void {
    const headers = [...this.#headers, 'content-length', String(this.#body.length), 'x-request-id', request.requestId]
    headers.push(...corsFields(request, cors))
    const isBare = request.method === 'HEAD'
    response.responseHead({ status: this.status, headers, bodyBytes: isBare ? 0 : this.#body.length })
    if (!isBare && this.#body.length > 0) response.responseData(this.#body)
    response.responseEnd([])
  }
}

export class ForwardAuthCheck {
  readonly #url: string
  readonly #names: readonly string[]
  readonly #isCopied: (name: string) => boolean
  readonly #timeoutMs: number
  readonly #ending: EndingAgent
  readonly #turns = new Turns(TURNS)

  constructor({ url, ca, headers = [], timeoutMs = FORWARD_AUTH_MS }: ForwardAuth) {
    this.#url = url
    this.#names = headers.map(name => name.toLowerCase())
    const names = new Set(this.#names.map(dashed))
    this.#isCopied = name => hasTwin(names, name)
    this.#timeoutMs = timeoutMs
    const connect = { timeout: timeoutMs, ...(ca === undefined ? {} : { ca: String(ca) }) }
    this.#ending = endingAgent({ connect, connections: TURNS.atOnce })
  }

  /** Removes the fields that the service sets, so that callers cannot forge them. Also in trailers, which some services merge. */
  strip(fields: HeaderList): void {
    if (this.#names.length > 0) removeWhere(fields, this.#isCopied)
  }

  /**
   * `sent` is the original head. Resolves to `undefined` if the request may pass, and has then added the answer's fields. A question goes
   * on without its caller: to give it up would end its connection, whose local port the kernel then keeps for a minute. Its turn lasts as
   * long as the answer's body, which may hold the connection until the deadline.
   */
  check(request: HttpRequest, sent: HeaderList, gone: AbortSignal): Promise<Denied | undefined> {
    const late = AbortSignal.timeout(this.#timeoutMs)
    const { promise, resolve, reject } = Promise.withResolvers<Denied | undefined>()
    const ask = async () => {
      const answer = await this.#ask(request, sent, late)
      const denied = this.#judge(request, answer)
      // Whoever left gets none.
      resolve(denied.finally(() => gone.throwIfAborted()))
      await denied.catch(ignore)
      // Destroying it would cost the connection, and with one for each request we would run out of ports.
      await answer.body.dump({ limit: MAX_BODY_BYTES }).catch(ignore)
    }
    this.#turns.run(request.caller!.address, AbortSignal.any([gone, late]), ask).catch(reject)
    return promise
  }

  async #ask(request: HttpRequest, sent: HeaderList, signal: AbortSignal): Promise<Dispatcher.ResponseData> {
    const options = { dispatcher: this.#ending.agent, headers: this.#headOf(request, sent), signal }
    const answer = await ask(this.#url, options).catch(error => {
      // The service may close an idle connection just as it gets the next question.
      if (!isClosed(error)) throw error
      return ask(this.#url, options)
    })
    // A destroyed body emits an error, and nobody else listens for it.
    answer.body.on('error', ignore)
    return answer
  }

  async #judge(request: HttpRequest, answer: Dispatcher.ResponseData): Promise<Denied | undefined> {
    const { statusCode, headers, body } = answer
    if (isNo(statusCode)) return new Denied(statusCode, toldBy(headers), await readBody(body))
    if (statusCode < 200 || statusCode >= 300) {
      throw new Error(`the service that says who may call answered ${statusCode}`)
    }
    this.#copy(headers, request.headers)
    return undefined
  }

  #headOf(request: HttpRequest, sent: HeaderList): string[] {
    const headers = [...sent]
    stripHopByHop(headers)
    removeWhere(headers, name => isNotAsked(name) || (this.#isCopied(name) && !CREDENTIALS.has(name)))
    // The host that the request is routed by. Many proxies pass on a caller's `X-Forwarded-Host`.
    appendForwarded(headers, { ...request.caller!, host: request.authority })
    headers.push('x-forwarded-method', request.method, 'x-forwarded-uri', request.path)
    return headers
  }

  #copy(from: Answered, to: HeaderList): void {
    let bytes = 0
    for (const name of this.#names) {
      for (const value of valuesOf(from, name)) {
        bytes += name.length + value.length
        if (bytes > MAX_COPIED_BYTES)
          throw new Error('the service that says who may call answered with too large a head')
        to.push(name, value)
      }
    }
  }

  close(): void {
    void this.#ending.end().catch(() => {})
  }
}

type Answered = Readonly<Record<string, string | string[] | undefined>>

function isClosed({ code }: { readonly code?: string }): boolean {
  return code === 'UND_ERR_SOCKET' || code === 'ECONNRESET' || code === 'EPIPE'
}

function isNo(status: number): boolean {
  return status === 401 || status === 403 || [301, 302, 303, 307, 308].includes(status)
}

function isNotAsked(name: string): boolean {
  const isConditional = name.startsWith('if-')
  return OF_BODY.has(name) || isConditional || name === 'host' || name.startsWith('sec-websocket-')
}

function toldBy(headers: Answered): HeaderList {
  return TOLD.flatMap(name => valuesOf(headers, name).flatMap(value => [name, value]))
}

function valuesOf(headers: Answered, name: string): string[] {
  const values = [headers[name] ?? []].flat().filter(isFieldValue)
  return values.map(value => value.replace(/^[\t ]+|[\t ]+$/g, ''))
}

async function readBody(body: AsyncIterable<Buffer>): Promise<Buffer> {
  const bytes = await readAtMost(body, MAX_BODY_BYTES)
  if (bytes === undefined) throw new Error('the service that says who may call answered with too large a body')
  return bytes
}
