/**
 * Says in one sentence why the client did not get through. The server's answer tells nothing of the cause on purpose;
 * the client explains from what it holds itself: its token, its clock, what the network said. Pure functions.
 */

import { formatDuration } from '../../protocol/base/durations.ts'
import { readOwnClaims } from '../claims.ts'

export type DialPhase = 'connect' | 'proxy' | 'tls' | 'upgrade'

/** What went wrong, as {@link dial} saw it. */
export type DialFailure =
  | { readonly kind: 'network'; readonly phase: DialPhase; readonly code: string | undefined; readonly message: string }
  | { readonly kind: 'timeout'; readonly phase: DialPhase; readonly afterMs: number }
  | { readonly kind: 'proxy'; readonly status: number; readonly scheme: string | undefined }
  | CertificateFailure
  | AnswerFailure
  /** A WebSocket opened, without our subprotocol. */
  | { readonly kind: 'subprotocol'; readonly got: string | undefined }

export interface CertificateFailure {
  readonly kind: 'certificate'
  readonly code: string
  /** Who signed the highest certificate that the server sent. */
  readonly issuer: string
  /** Names in the server's certificate. */
  readonly names: readonly string[]
  readonly validFromMs: number
  readonly validToMs: number
}

/** An HTTP answer instead of a WebSocket. */
export interface AnswerFailure {
  readonly kind: 'answer'
  readonly status: number
  readonly requestId: string | undefined
  /** Header `sallyport-error`. */
  readonly code: string | undefined
  /** The server's `Date`. */
  readonly dateMs: number | undefined
  /** Header `sec-websocket-protocol`, in which a server names the versions that it speaks. */
  readonly versions: string | undefined
  /** Whether a Sallyport server said it: the body is a problem document with a request id. */
  readonly ours: boolean
  /** What answered calls itself so, in `via` or `server`. */
  readonly by?: string | undefined
}

/** What the client itself knows. */
export interface DialContext {
  readonly server: URL
  /** `host:port` that is dialled in its place. */
  readonly connectTo?: string | undefined
  readonly token: string
  readonly audience: string
  readonly nowMs: number
  /** `host:port` of the proxy, and whether it was given credentials. */
  readonly proxy: { readonly address: string; readonly credentials: boolean } | undefined
  readonly clientCertificate: boolean
}

/** Clocks that differ by less than this are not worth a word: servers tolerate it. */
const SKEW_MS = 60_000

export function explain(failure: DialFailure, context: DialContext): string {
  switch (failure.kind) {
    case 'answer':
      return explainAnswer(failure, context)
    case 'certificate':
      return explainCertificate(failure, context)
    case 'proxy':
      return explainProxy(failure.status, failure.scheme, context)
    case 'subprotocol':
      return explainVersion(failure.got, context)
    case 'timeout':
      return `no answer from ${waitedFor(failure.phase, context)} within ${formatDuration(failure.afterMs)}`
    case 'network':
      return explainNetwork(failure.phase, failure.code, failure.message, context)
  }
}

/** Whether the answer says no to this client, so that trying again soon is of no use. */
export function isRefusal(failure: DialFailure): boolean {
  if (failure.kind === 'subprotocol') return true
  if (failure.kind !== 'answer') return false
  return [401, 403, 426].includes(failure.status) || isOtherVersion(failure)
}

/** A control endpoint says 400 to a subprotocol that it does not know. */
function isOtherVersion(answer: AnswerFailure): boolean {
  return answer.status === 400 && answer.ours
}

function explainAnswer(answer: AnswerFailure, context: DialContext): string {
  if (isOtherVersion(answer)) return explainVersion(answer.versions, context)
  if (answer.code !== undefined && PUBLIC_CODES.has(answer.code)) {
    return `${address(context.server)} is the public port of a server, not its control port: dial the address of --control.listen`
  }
  const request = answer.requestId === undefined ? '' : `, request ${answer.requestId}`
  const refused = `refused (${answer.status}${request})`
  if (answer.status === 401) return `${refused}: ${explainToken(answer.dateMs, context)}`
  if (answer.status === 403) return `${refused}: ${explainForbidden(context)}`
  if (answer.status === 429 || answer.status === 503) return `${refused}: the server takes no more connections just now`
  const by = answer.by === undefined ? '' : ` (what answered calls itself "${answer.by}")`
  // A server says 426 only where the request no longer asks for a WebSocket.
  const why = answer.status === 426 ? 'a proxy' : 'it is no control endpoint, or a proxy'
  return `${address(context.server)} answered ${answer.status} instead of opening a WebSocket: ${why} in front of it does not pass WebSocket${by}`
}

/** Codes that only a public listener answers with. */
const PUBLIC_CODES: ReadonlySet<string> = new Set([
  'unknown-host',
  'runtime-offline',
  'no-route',
  'misdirected',
  'caller-not-allowed',
  'upstream-refused',
  'upstream-name',
])

function explainToken(dateMs: number | undefined, context: DialContext): string {
  const claims = readOwnClaims(context.token)
  if (claims === undefined) return 'what you gave as the token is not a JWT'
  const { exp, nbf } = claims
  if (exp === undefined) return 'your token has no end (claim "exp"), which the server requires'
  const thereMs = dateMs ?? context.nowMs
  const skew = explainSkew(thereMs, context.nowMs)
  const leftMs = exp * 1000 - thereMs
  if (leftMs <= 0) {
    if (exp * 1000 > context.nowMs && skew !== undefined)
      return `${skew}, where your token expired ${formatDuration(-leftMs)} ago`
    return `your token expired ${formatDuration(-leftMs)} ago`
  }
  if (nbf !== undefined && nbf * 1000 > thereMs) {
    const early = `your token holds only in ${formatDuration(nbf * 1000 - thereMs)}`
    return skew === undefined ? early : `${skew}, so that there ${early}`
  }
  if (skew !== undefined) return skew
  if (!claims.aud.includes(context.audience)) return explainAudience(claims.aud, context.audience)
  if (claims.sub === undefined) return 'your token names no runtime (claim "sub")'
  return `the server did not accept your token for runtime "${claims.sub}"; its log has the reason under this request`
}

function explainSkew(thereMs: number, nowMs: number): string | undefined {
  const aheadMs = nowMs - thereMs
  if (Math.abs(aheadMs) < SKEW_MS) return undefined
  return `your clock is ${formatDuration(Math.abs(aheadMs))} ${aheadMs > 0 ? 'ahead of' : 'behind'} the server's`
}

function explainAudience(got: readonly string[], wanted: string): string {
  if (got.length === 0) return `your token names no audience; the server wants "${wanted}"`
  return `your token is for the audience ${listed(got.map(name => `"${name}"`))}, not for "${wanted}"`
}

function explainForbidden(context: DialContext): string {
  const runtime = readOwnClaims(context.token)?.sub
  const whose = runtime === undefined ? 'this runtime' : `runtime "${runtime}"`
  const certificate = context.clientCertificate
    ? 'the client certificate'
    : 'the missing client certificate (--tls.cert)'
  return `the server does not let ${whose} in; look at ${certificate} and at its log under this request`
}

function explainVersion(got: string | undefined, context: DialContext): string {
  const theirs = got === undefined ? 'another version of the protocol' : `"${got}"`
  return `${address(context.server)} speaks ${theirs}, and this client "sallyport.v1": update the older of the two`
}

function explainCertificate(failure: CertificateFailure, context: DialContext): string {
  const whose = `the certificate of ${place(context)}`
  switch (failure.code) {
    case 'ERR_TLS_CERT_ALTNAME_INVALID':
      return `${whose} is for ${listed(failure.names)}, not for ${hostOf(context.server)}`
    case 'CERT_HAS_EXPIRED':
      return `${whose} ended ${formatDuration(context.nowMs - failure.validToMs)} ago, or your clock is wrong`
    case 'CERT_NOT_YET_VALID':
      return `${whose} holds only in ${formatDuration(failure.validFromMs - context.nowMs)}, or your clock is wrong`
    case 'CERT_REVOKED':
      return `${whose} has been revoked`
    default:
      return UNKNOWN_CA.has(failure.code)
        ? `${whose} was issued by "${failure.issuer}", which is not trusted here: give that CA's certificate with --ca FILE`
        : `${whose} was not accepted (${failure.code})`
  }
}

const UNKNOWN_CA: ReadonlySet<string> = new Set([
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'CERT_SIGNATURE_FAILURE',
])

function explainProxy(status: number, scheme: string | undefined, context: DialContext): string {
  const proxy = `the proxy ${context.proxy?.address}`
  if (status !== 407) return `${proxy} did not connect to ${place(context)} (it answered ${status})`
  if (scheme !== undefined && scheme.toLowerCase() !== 'basic') {
    return `${proxy} wants ${scheme} authentication (407), and this client knows only Basic`
  }
  return context.proxy?.credentials
    ? `${proxy} did not accept the credentials (407)`
    : `${proxy} wants credentials (407): write http://user:password@${context.proxy?.address}`
}

function explainNetwork(phase: DialPhase, code: string | undefined, message: string, context: DialContext): string {
  const proxied = phase === 'proxy' || (phase === 'connect' && context.proxy !== undefined)
  const where = proxied ? `the proxy ${context.proxy?.address}` : place(context)
  const name = proxied ? hostPart(context.proxy?.address ?? '') : hostPart(dialled(context))
  switch (code) {
    case 'ENOTFOUND':
      return `the name ${name} does not resolve`
    case 'EAI_AGAIN':
      return `the name ${name} does not resolve just now (the resolver does not answer)`
    case 'ECONNREFUSED':
      return `nothing listens at ${where} (connection refused)`
    case 'ETIMEDOUT':
      return `no answer from ${where}`
    case 'ENETUNREACH':
    case 'EHOSTUNREACH':
      return `there is no way to ${where} from here (${code})`
    case 'ECONNRESET':
    case 'EPIPE':
      return `${where} closed the connection ${AT[phase]}`
    case 'ERR_SSL_WRONG_VERSION_NUMBER':
    case 'ERR_SSL_PACKET_LENGTH_TOO_LONG':
    case 'ERR_SSL_HTTP_REQUEST':
      return `${where} does not speak TLS: it may be a plain public port; dial the control port of the server`
    case 'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION':
    case 'ERR_SSL_UNSUPPORTED_PROTOCOL':
      return `${where} does not speak TLS 1.3`
    case 'ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED':
      return `${where} wants a client certificate: give --tls.cert and --tls.key`
    case 'ERR_SSL_TLSV1_ALERT_UNKNOWN_CA':
    case 'ERR_SSL_SSLV3_ALERT_BAD_CERTIFICATE':
    case 'ERR_SSL_SSL/TLS_ALERT_BAD_CERTIFICATE':
      return `${where} did not accept the client certificate (--tls.cert)`
    default:
      return `${where}: ${code === undefined || message.includes(code) ? message : `${message} (${code})`}`
  }
}

const AT: Readonly<Record<DialPhase, string>> = {
  connect: 'at once',
  proxy: 'before it answered',
  tls: 'during the TLS handshake',
  upgrade: 'without an answer',
}

function waitedFor(phase: DialPhase, context: DialContext): string {
  if (context.proxy !== undefined && (phase === 'proxy' || phase === 'connect')) {
    return `the proxy ${context.proxy.address}`
  }
  return phase === 'tls' ? `${place(context)} to the TLS handshake` : place(context)
}

/** Where the network led. */
function place({ server, connectTo }: DialContext): string {
  return connectTo === undefined ? address(server) : `${connectTo} (--connect-to, for ${address(server)})`
}

function dialled({ server, connectTo }: DialContext): string {
  return connectTo ?? address(server)
}

function address(server: URL): string {
  if (server.port !== '') return server.host
  return `${server.host}:${server.protocol === 'wss:' ? 443 : 80}`
}

function hostOf(server: URL): string {
  return server.hostname.replace(/^\[|\]$/g, '')
}

function hostPart(authority: string): string {
  return authority.slice(0, authority.lastIndexOf(':'))
}

function listed(names: readonly string[]): string {
  if (names.length <= 1) return names[0] ?? 'no name'
  if (names.length > 5) return `${names.slice(0, 4).join(', ')} and ${names.length - 4} others`
  return `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`
}
