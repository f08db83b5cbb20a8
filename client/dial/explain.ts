/**
 * Explains in one sentence why the client could not connect. The server deliberately gives no reason, so the client works
 * it out from what it has itself: its token, its clock, and what the network reported. Pure functions.
 */

import { formatDuration } from '../../protocol/base/durations.ts'
import { ERRORS } from '../../protocol/base/errors.ts'
import { addressOf, formatAddress } from '../../protocol/base/host-port.ts'
import { SUBPROTOCOL } from '../../protocol/wire/control.ts'
import { readOwnClaims } from '../claims.ts'

export type DialPhase = 'resolve' | 'connect' | 'proxy' | 'tls' | 'upgrade'

/** What went wrong, as {@link dial} saw it. */
export type DialFailure =
  | { readonly kind: 'network'; readonly phase: DialPhase; readonly code: string | undefined; readonly message: string }
  | { readonly kind: 'timeout'; readonly phase: DialPhase; readonly afterMs: number }
  | { readonly kind: 'proxy'; readonly status: number; readonly scheme: string | undefined }
  | CertificateFailure
  | AnswerFailure
  /** A WebSocket opened, but without our subprotocol. */
  | { readonly kind: 'subprotocol'; readonly got: string | undefined }

export interface CertificateFailure {
  readonly kind: 'certificate'
  /** `proxy`: it is the certificate of an https:// proxy. */
  readonly phase: DialPhase
  readonly code: string
  /** Who signed the highest certificate that the server sent. */
  readonly issuer: string
  /** Names in the server's certificate. */
  readonly names: readonly string[]
  /** The authority whose certificate has these dates. Undefined if the server's own has them. */
  readonly authority: string | undefined
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
  /** Header `sec-websocket-protocol`, in which a server lists the versions that it supports. */
  readonly versions: string | undefined
  /** Whether it came from a control endpoint: the body is a problem document with a request id, and there is no code. */
  readonly ours: boolean
  /** The name that the answering software gives itself, in `via` or `server`. */
  readonly by?: string | undefined
}

/** What the client itself knows. */
export interface DialContext {
  readonly server: URL
  /** `host:port` that is dialled instead. */
  readonly connectTo?: string | undefined
  readonly token: string
  readonly audience: string
  readonly nowMs: number
  /** `host:port` of the proxy, and whether it was given credentials. */
  readonly proxy: { readonly address: string; readonly credentials: boolean } | undefined
  readonly clientCertificate: boolean
}

/** Clock differences below this are not mentioned: servers tolerate them. */
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

/** Whether the server refused this client, so that trying again soon is pointless. */
export function isRefusal(failure: DialFailure): boolean {
  if (failure.kind === 'subprotocol') return true
  if (failure.kind !== 'answer') return false
  return [401, 426].includes(failure.status) || isOtherVersion(failure)
}

/** A control endpoint answers 400 to a subprotocol that it does not know. */
function isOtherVersion(answer: AnswerFailure): boolean {
  return answer.status === 400 && answer.ours
}

function explainAnswer(answer: AnswerFailure, context: DialContext): string {
  if (isOtherVersion(answer)) return explainVersion(answer.versions, context)
  if (answer.code !== undefined && Object.hasOwn(ERRORS, answer.code)) {
    return `${address(context.server)} is for callers, not for clients: dial the name of the server's --control.host, or the address of its --control.listen`
  }
  const request = answer.requestId === undefined ? '' : `, request ${answer.requestId}`
  const refused = `refused (${answer.status}${request})`
  if (answer.status === 401) return `${refused}: ${explainToken(answer, context)}`
  const isClosed = [429, 503].includes(answer.status) || (answer.ours && answer.status === 500)
  if (isClosed && answer.requestId === undefined)
    return `${refused}: the server, or a proxy in front of it, accepts no clients right now${named(answer)}`
  if (isClosed)
    return `${refused}: the server accepts no clients right now; its log gives the reason under this request`
  // A server answers 426 only if the request no longer asked for a WebSocket when it arrived.
  const who = answer.status === 426 ? 'a proxy' : 'it is not a control endpoint, or a proxy'
  return `${address(context.server)} answered ${answer.status} instead of opening a WebSocket: ${who} in front of it does not pass WebSockets${named(answer)}`
}

function named({ by }: AnswerFailure): string {
  return by === undefined ? '' : ` (whatever answered calls itself "${by}")`
}

function explainToken(answer: AnswerFailure, context: DialContext): string {
  const claims = readOwnClaims(context.token)
  if (claims === undefined) return 'the token that you gave is not a JWT'
  const { exp, nbf } = claims
  if (exp === undefined) return 'your token has no expiry (claim "exp"), which the server requires'
  const thereMs = answer.dateMs ?? context.nowMs
  const skew = explainSkew(thereMs, context.nowMs)
  const leftMs = exp * 1000 - thereMs
  if (leftMs <= 0) {
    if (exp * 1000 > context.nowMs && skew !== undefined)
      return `${skew}, and by that clock your token expired ${formatDuration(-leftMs)} ago`
    return `your token expired ${formatDuration(-leftMs)} ago`
  }
  if (nbf !== undefined && nbf * 1000 > thereMs) {
    const early = `your token is not valid for another ${formatDuration(nbf * 1000 - thereMs)}`
    return skew === undefined ? early : `${skew}, and by that clock ${early}`
  }
  if (skew !== undefined) return skew
  if (!claims.aud.includes(context.audience)) return explainAudience(claims.aud, context.audience)
  if (claims.sub === undefined) return 'your token names no runtime (claim "sub")'
  const certificate = context.clientCertificate ? ' with your client certificate' : ''
  const token = `your token for runtime "${claims.sub}"${certificate}`
  return answer.requestId === undefined
    ? `the server, or a proxy in front of it, did not accept ${token}${named(answer)}`
    : `the server did not accept ${token}; its log gives the reason under this request`
}

function explainSkew(thereMs: number, nowMs: number): string | undefined {
  const aheadMs = nowMs - thereMs
  if (Math.abs(aheadMs) < SKEW_MS) return undefined
  return `your clock is ${formatDuration(Math.abs(aheadMs))} ${aheadMs > 0 ? 'ahead of' : 'behind'} the server's`
}

function explainAudience(got: readonly string[], wanted: string): string {
  if (got.length === 0) return `your token names no audience; the server expects "${wanted}"`
  return `your token is for the audience ${listed(got.map(name => `"${name}"`))}, not for "${wanted}"`
}

function explainVersion(got: string | undefined, context: DialContext): string {
  if (got?.split(/[ ,]+/).includes(SUBPROTOCOL))
    return `${address(context.server)} speaks "${SUBPROTOCOL}", as this client does, but was not asked for it: a proxy in front of it does not pass Sec-WebSocket-Protocol`
  const theirs = got === undefined ? 'another version of the protocol' : `"${got}"`
  return `${address(context.server)} speaks ${theirs}, and this client "${SUBPROTOCOL}": update the older of the two`
}

function explainCertificate(failure: CertificateFailure, context: DialContext): string {
  const proxy = failure.phase === 'proxy' ? context.proxy : undefined
  const [where, host] =
    proxy === undefined
      ? [place(context), addressOf(context.server).host]
      : [`the proxy ${proxy.address}`, hostPart(proxy.address)]
  const whose = `the certificate of ${where}`
  const dated =
    failure.authority === undefined ? whose : `the certificate of "${failure.authority}", an authority of ${where},`
  switch (failure.code) {
    case 'ERR_TLS_CERT_ALTNAME_INVALID':
      return `${whose} is for ${listed(failure.names)}, not for ${host}`
    case 'CERT_HAS_EXPIRED':
      return `${dated} expired ${formatDuration(context.nowMs - failure.validToMs)} ago, or your clock is wrong`
    case 'CERT_NOT_YET_VALID':
      return `${dated} is not valid for another ${formatDuration(failure.validFromMs - context.nowMs)}, or your clock is wrong`
    case 'CERT_REVOKED':
      return `${whose} has been revoked`
    default:
      return UNKNOWN_CA.has(failure.code)
        ? `${whose} was issued by "${failure.issuer}", which is not trusted here: give that CA's certificate with --ca FILE`
        : `${whose} was not accepted (${failure.code})`
  }
}

/** Codes of Node for a certificate whose authority is not trusted. */
export const UNKNOWN_CA: ReadonlySet<string> = new Set([
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
    return `${proxy} wants ${scheme} authentication (407), but this client supports only Basic`
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
      return `the name ${name} cannot be resolved right now (the resolver fails, or does not answer)`
    case 'ECONNREFUSED':
      return `nothing is listening at ${where} (connection refused)`
    case 'ETIMEDOUT':
      return `no answer from ${where}`
    case 'ENETUNREACH':
    case 'EHOSTUNREACH':
      return `there is no route to ${where} from here (${code})`
    case 'ECONNRESET':
    case 'EPIPE': {
      // With TLS 1.3, the client counts the handshake as done before the server has looked at its certificate.
      const isDoubted = context.clientCertificate && (phase === 'tls' || phase === 'upgrade')
      const doubt = isDoubted ? ': it may not accept the client certificate (--tls.cert)' : ''
      return `${where} closed the connection ${CLOSED_WHEN[phase]}${doubt}`
    }
    case 'ERR_SSL_WRONG_VERSION_NUMBER':
    case 'ERR_SSL_PACKET_LENGTH_TOO_LONG':
    case 'ERR_SSL_HTTP_REQUEST':
      return proxied
        ? `${where} does not speak TLS: write http:// in front of it instead of https://`
        : `${where} does not speak TLS: it may be a public port without TLS; dial the control port of the server`
    case 'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION':
    case 'ERR_SSL_UNSUPPORTED_PROTOCOL':
      return `${where} does not speak TLS 1.3: if something in front of the server is older, --tls.min 1.2 allows it`
    case 'ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED':
      return `${where} wants a client certificate: give --tls.cert and --tls.key`
    default:
      if (CERTIFICATE_ALERT.test(code ?? '')) return `${where} did not accept the client certificate (--tls.cert)`
      // What OpenSSL says begins with the number of a thread.
      if (code?.startsWith('ERR_SSL_')) return `${where}: the TLS handshake failed (${code})`
      return `${where}: ${code === undefined || message.includes(code) ? message : `${message} (${code})`}`
  }
}

/** What a server may say of our certificate (RFC 8446, 6.2). */
const CERTIFICATE_ALERT =
  /_ALERT_(?:UNKNOWN_CA|BAD_CERTIFICATE|UNSUPPORTED_CERTIFICATE|CERTIFICATE_(?:EXPIRED|REVOKED|UNKNOWN))$/

const CLOSED_WHEN: Readonly<Record<DialPhase, string>> = {
  resolve: 'at once',
  connect: 'at once',
  proxy: 'before it answered',
  tls: 'during the TLS handshake',
  upgrade: 'without an answer',
}

function waitedFor(phase: DialPhase, context: DialContext): string {
  if (phase === 'resolve') return `the resolver to the name ${hostPart(context.proxy?.address ?? dialled(context))}`
  if (context.proxy !== undefined && (phase === 'proxy' || phase === 'connect')) {
    return `the proxy ${context.proxy.address}`
  }
  return phase === 'tls' ? `${place(context)} to the TLS handshake` : place(context)
}

/** The address that was dialled, in words. */
function place({ server, connectTo }: DialContext): string {
  return connectTo === undefined ? address(server) : `${connectTo} (--connect-to, for ${address(server)})`
}

function dialled({ server, connectTo }: DialContext): string {
  return connectTo ?? address(server)
}

function address(server: URL): string {
  return formatAddress(addressOf(server))
}

function hostPart(authority: string): string {
  return authority.slice(0, authority.lastIndexOf(':'))
}

function listed(names: readonly string[]): string {
  if (names.length <= 1) return names[0] ?? 'no name'
  if (names.length > 5) return `${names.slice(0, 4).join(', ')} and ${names.length - 4} others`
  return `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`
}
