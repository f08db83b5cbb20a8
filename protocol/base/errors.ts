/**
 * Every failure that a caller can see: one table of them, and one class that carries them. A test keeps `docs/errors.md`
 * equal to the table.
 */

/** Where the cause lies, as seen from the tunnel: in front of it, inside it, behind it, or in our own code. */
export type ErrorSource = 'downstream' | 'tunnel' | 'upstream' | 'internal'

interface ErrorRow {
  /** HTTP status of the answer. */
  readonly status: number
  readonly source: ErrorSource
  /** Whether the same request may succeed if it is sent again later. Such answers carry `Retry-After`. */
  readonly retryable: boolean
  /** One sentence for a person. It names no target and reveals no internals. */
  readonly title: string
}

/**
 * Every error that a caller can receive, by code: its status, the side that caused it, whether the caller may try again,
 * and the sentence that the caller reads.
 */
export const ERRORS = {
  'unknown-host': { status: 404, source: 'downstream', retryable: false, title: 'No runtime has this host name.' },
  'runtime-offline': { status: 503, source: 'tunnel', retryable: true, title: 'The runtime is not connected.' },
  'no-route': { status: 404, source: 'upstream', retryable: false, title: 'The runtime has no route for this path.' },
  'caller-not-allowed': {
    status: 403,
    source: 'downstream',
    retryable: false,
    title: 'This address may not call the runtime.',
  },
  'upstream-refused': {
    status: 502,
    source: 'upstream',
    retryable: false,
    title: 'The service behind the tunnel refused the connection.',
  },
  'upstream-name': {
    status: 502,
    source: 'upstream',
    retryable: false,
    title: 'The name of the service behind the tunnel was not found.',
  },
  'upstream-tls': {
    status: 502,
    source: 'upstream',
    retryable: false,
    title: 'The certificate of the service behind the tunnel was not accepted.',
  },
  'upstream-broken': {
    status: 502,
    source: 'upstream',
    retryable: false,
    title: 'The service behind the tunnel closed the connection early, or its answer was not valid HTTP.',
  },
  'upstream-timeout': {
    status: 504,
    source: 'upstream',
    retryable: false,
    title: 'The service behind the tunnel did not answer in time.',
  },
  'session-lost': {
    status: 502,
    source: 'tunnel',
    retryable: false,
    title: 'The connection to the runtime was lost before it answered.',
  },
  'shutting-down': {
    status: 503,
    source: 'tunnel',
    retryable: false,
    title: 'The tunnel was stopped before the response was complete.',
  },
  overloaded: {
    status: 503,
    source: 'tunnel',
    retryable: true,
    title: 'A limit of the tunnel has been reached; try again soon.',
  },
  'inbox-full': {
    status: 503,
    source: 'tunnel',
    retryable: true,
    title: 'The webhook could not be stored: the inbox is full.',
  },
  'inbox-away': {
    status: 503,
    source: 'tunnel',
    retryable: true,
    title: 'The webhook could not be stored: the inbox is not available at the moment.',
  },
  'inbox-sealed': {
    status: 503,
    source: 'tunnel',
    retryable: true,
    title: 'The webhook is sealed for a key that the client does not have.',
  },
  internal: { status: 500, source: 'internal', retryable: false, title: 'The tunnel failed.' },
  'bad-request': { status: 400, source: 'downstream', retryable: false, title: 'The request is not valid HTTP.' },
  'uri-too-long': { status: 414, source: 'downstream', retryable: false, title: 'The request target is too long.' },
  'head-too-large': {
    status: 431,
    source: 'downstream',
    retryable: false,
    title: 'The request head is too large or has too many fields.',
  },
  'body-too-large': { status: 413, source: 'downstream', retryable: false, title: 'The request body is too large.' },
  'request-timeout': {
    status: 408,
    source: 'downstream',
    retryable: false,
    title: 'The caller took too long to send its request or to read the response.',
  },
  'webhook-signature': {
    status: 401,
    source: 'downstream',
    retryable: false,
    title: 'The signature of the webhook is missing or wrong.',
  },
  'not-authenticated': {
    status: 401,
    source: 'downstream',
    retryable: false,
    title: 'The caller has not proved that it may call the runtime.',
  },
  'access-unavailable': {
    status: 503,
    source: 'tunnel',
    retryable: true,
    title: 'Whether the caller may call the runtime could not be checked.',
  },
  'too-many-requests': { status: 429, source: 'downstream', retryable: true, title: 'Too many requests.' },
  'method-not-allowed': {
    status: 405,
    source: 'downstream',
    retryable: false,
    title: 'The route does not allow this method.',
  },
  'not-implemented': {
    status: 501,
    source: 'downstream',
    retryable: false,
    title: 'The request uses an unsupported transfer coding.',
  },
  'loop-detected': {
    status: 508,
    source: 'downstream',
    retryable: false,
    title: 'The request has passed through this tunnel too often: a service behind it sends it back.',
  },
  misdirected: {
    status: 421,
    source: 'downstream',
    retryable: false,
    title: 'This connection does not serve that host.',
  },
  cancelled: { status: 499, source: 'downstream', retryable: false, title: 'The caller cancelled the request.' },
} as const satisfies Record<string, ErrorRow>

/** A code of {@link ERRORS}; callers see it in the header `sallyport-error`. */
export type ErrorCode = keyof typeof ERRORS

/** Whether an exchange that ended with `code` failed. A caller that leaves is no failure: most event streams end like that. */
export function isFailure(code: string | undefined): code is string {
  return code !== undefined && code !== 'cancelled'
}

const CODES = Object.fromEntries(
  Object.keys(ERRORS).map(reason => [reason, `ERR_SALLYPORT_${reason.toUpperCase().replaceAll('-', '_')}`]),
) as Readonly<Record<ErrorCode, string>>

/**
 * A failure of one exchange, session or call.
 *
 * `reason` is the key of its row in {@link ERRORS}, such as `upstream-refused`; `code` is the same in the form
 * `ERR_SALLYPORT_UPSTREAM_REFUSED`. `message` is for our own log and may name targets. What a caller sees comes from the
 * row alone. Only `internal` has a stack trace.
 */
export class SallyportError extends Error {
  override readonly name = 'SallyportError'
  readonly code: string
  readonly reason: ErrorCode
  readonly source: ErrorSource
  readonly retryable: boolean
  readonly status: number

  constructor(reason: ErrorCode, message?: string, options?: { cause?: unknown }) {
    const row = ERRORS[reason]
    const { stackTraceLimit } = Error
    // Capturing a stack costs eight times as much as everything else, and nobody reads those of errors that a peer can cause.
    if (reason !== 'internal') Error.stackTraceLimit = 0
    super(message ?? row.title, options)
    Error.stackTraceLimit = stackTraceLimit
    this.reason = reason
    this.code = CODES[reason]
    this.source = row.source
    this.retryable = row.retryable
    this.status = row.status
  }
}

/**
 * `error` itself if it is a {@link SallyportError}, else an `internal` one with `error` as its cause.
 *
 * @example
 * ```ts
 * import { toSallyportError } from 'sallyport/protocol'
 *
 * const { status, retryable } = toSallyportError(new Error('out of memory')) // 500, false
 * ```
 */
export function toSallyportError(error: unknown): SallyportError {
  const known = errorOf(error)
  return known instanceof SallyportError ? known : new SallyportError('internal', known.message, { cause: error })
}

/** `error` itself if it is an `Error`, else an `Error` that describes the value. */
export function errorOf(error: unknown): Error {
  try {
    if (error instanceof Error && typeof error.message === 'string') return error
    return new Error(String(error))
  } catch {
    // `Object.create(null)` cannot become a string, and an embedder may throw an object whose getters throw.
    return new Error('something that cannot be read was thrown')
  }
}

/** The message of an error, or of another value that was thrown. */
export function messageOf(error: unknown): string {
  return errorOf(error).message
}
