/** Errors as answers: `application/problem+json` (RFC 9457) or a page, and the CORS fields that let a browser read them. */
import { Buffer } from 'node:buffer'
import { randomUUID } from 'node:crypto'
import { ERRORS, type ErrorCode, type ErrorSource, type SallyportError } from '../base/errors.ts'
import { discarding } from '../base/guard.ts'
import type { HeaderList, HttpRequest, RequestSink, ResponseHead, ResponseSink } from '../exchange.ts'
import { getHeader } from './headers.ts'
import { ALLOWED_METHODS } from './methods.ts'
import { PAGE_HEADERS, prefersPage, problemPage } from './problem-page.ts'

/** Which web pages may read our own answers. It does not affect an upstream's answers. */
export interface CorsPolicy {
  /** Exact origins (`https://ui.example.com`), or `*`, which never allows credentials. */
  origins: readonly string[]
  methods?: readonly string[] | undefined
  headers?: readonly string[] | undefined
  credentials?: boolean | undefined
  exposeHeaders?: readonly string[] | undefined
  /** How many seconds a browser may cache a preflight. Default 600. */
  maxAge?: number | undefined
}

/** Whether `path`, with or without a query, is `prefix` or lies under it by whole segments. */
export function isUnder(prefix: string, path: string): boolean {
  if (!path.startsWith(prefix)) return false
  const next = path[prefix.length]
  return prefix.endsWith('/') || next === undefined || next === '/' || next === '?'
}

/** The parts of a request that determine an answer of our own. */
interface AnsweredRequest {
  readonly method: string
  readonly requestId: string
  readonly headers: HeaderList
}

const RETRY_AFTER_S = '5'
const OUR_HEADERS = ['sallyport-error', 'retry-after', 'x-request-id']

/**
 * Head and body of the answer that reports `error`: a page if `accept` asks for one, else JSON. It discloses nothing but the row
 * of the error table and the request id.
 */
export function problem(
  error: SallyportError,
  requestId: string,
  extra: HeaderList = [],
  accept?: string,
): { head: ResponseHead; body: Uint8Array } {
  const row: { status: number; source: ErrorSource; retryable: boolean; title: string } = ERRORS[error.reason]
  const isPage = prefersPage(accept)
  const text = isPage ? problemPage(error.reason, row, requestId) : problemJson(error.reason, row, requestId)
  const body = Buffer.from(text)
  const headers: HeaderList = isPage ? [...PAGE_HEADERS] : ['content-type', 'application/problem+json']
  headers.push('content-length', String(body.length), 'cache-control', 'no-store')
  headers.push('sallyport-error', error.reason, 'x-request-id', requestId)
  if (row.retryable) headers.push('retry-after', RETRY_AFTER_S)
  if (error.reason === 'method-not-allowed' && getHeader(extra, 'allow') === undefined) {
    headers.push('allow', ALLOWED_METHODS)
  }
  for (const text of extra) headers.push(text)
  return { head: { status: row.status, headers, bodyBytes: body.length }, body }
}

function problemJson(code: ErrorCode, { title, status }: { title: string; status: number }, requestId: string): string {
  return JSON.stringify({ type: `urn:sallyport:error:${code}`, title, status, code, requestId })
}

/**
 * Answers an exchange whose head has not been sent yet. HEAD gets no body. `extra` are additional fields, such as `allow`.
 */
export function answerProblem(
  response: ResponseSink,
  request: AnsweredRequest,
  error: SallyportError,
  cors?: CorsPolicy | undefined,
  extra?: HeaderList,
): void {
  const fields = [...(extra ?? []), ...corsFields(request, cors)]
  // An exchange that broke before its caller was determined has no id yet.
  const id = request.requestId === '' ? randomUUID() : request.requestId
  const { head, body } = problem(error, id, fields, getHeader(request.headers, 'accept'))
  if (request.method === 'HEAD') {
    response.responseHead({ ...head, bodyBytes: 0 })
  } else {
    response.responseHead(head)
    response.responseData(body)
  }
  response.responseEnd([])
}

/**
 * The error code that an answer reports. It is one of ours, since the field is removed from an upstream's answer when that
 * arrives.
 */
export function reportedError(headers: HeaderList): ErrorCode | undefined {
  const code = getHeader(headers, 'sallyport-error')
  return code !== undefined && Object.hasOwn(ERRORS, code) ? (code as ErrorCode) : undefined
}

/** Answers an exchange in our own name and discards its request. */
export type Refuse = (request: HttpRequest, response: ResponseSink, error: SallyportError) => RequestSink

/** Answers according to the table of errors, with the CORS fields of the policy that `corsOf` finds. */
export function refusing(corsOf: (request: HttpRequest) => CorsPolicy | undefined): Refuse {
  return (request, response, error) => {
    answerProblem(response, request, error, corsOf(request))
    return discarding(response)
  }
}

function originOf(request: AnsweredRequest): string | undefined {
  return getHeader(request.headers, 'origin')
}

/** Whether the policy lets pages of this origin read the answer. */
function corsAllows(cors: CorsPolicy, origin: string | undefined): origin is string {
  return origin !== undefined && (cors.origins.includes(origin) || cors.origins.includes('*'))
}

/** CORS fields of an answer that is not an upstream's. They always include `vary`, since the answer depends on the origin. */
export function corsFields(request: AnsweredRequest, cors: CorsPolicy | undefined): HeaderList {
  if (cors === undefined) return []
  const origin = originOf(request)
  const headers: HeaderList = ['vary', 'origin']
  if (!corsAllows(cors, origin)) return headers
  headers.push('access-control-allow-origin', origin)
  if (cors.credentials === true && cors.origins.includes(origin)) {
    headers.push('access-control-allow-credentials', 'true')
  }
  headers.push('access-control-expose-headers', [...OUR_HEADERS, ...(cors.exposeHeaders ?? [])].join(', '))
  return headers
}

/**
 * Answers 204 to a preflight (Fetch standard, section 3.2) from an origin that the policy allows, and returns true. Otherwise it
 * sends nothing and returns false.
 */
export function answerPreflight(response: ResponseSink, request: AnsweredRequest, cors: CorsPolicy): boolean {
  if (request.method !== 'OPTIONS') return false
  const method = getHeader(request.headers, 'access-control-request-method')
  if (method === undefined || !corsAllows(cors, originOf(request))) return false
  const headers = corsFields(request, cors)
  headers.push('access-control-allow-methods', (cors.methods ?? ['GET', 'HEAD', 'POST']).join(','))
  if (cors.headers !== undefined && cors.headers.length > 0) {
    headers.push('access-control-allow-headers', cors.headers.join(','))
  }
  headers.push('access-control-max-age', String(cors.maxAge ?? 600), 'x-request-id', request.requestId)
  response.responseHead({ status: 204, headers, bodyBytes: 0 })
  response.responseEnd([])
  return true
}
