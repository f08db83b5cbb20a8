/** What went wrong in a dial, as plain values that {@link explain} can put into words. */
import type { IncomingMessage } from 'node:http'
import type { PeerCertificate, TLSSocket } from 'node:tls'
import type { AnswerFailure, CertificateFailure, DialFailure, DialPhase } from './explain.ts'

/** Why a dial failed; {@link explain} says it in words. */
export class DialError extends Error {
  override readonly name = 'DialError'
  readonly failure: DialFailure

  constructor(failure: DialFailure, options?: { cause?: unknown }) {
    super(`dial failed: ${failure.kind}`, options)
    this.failure = failure
  }
}

export function networkError(error: Error, phase: DialPhase): DialError {
  const cause = firstOf(error)
  const code = 'code' in cause && typeof cause.code === 'string' ? cause.code : undefined
  return new DialError({ kind: 'network', phase, code, message: cause.message }, { cause })
}

/** Of an attempt on several addresses, the first failure speaks for all. */
function firstOf(error: Error): Error {
  return error instanceof AggregateError && error.errors[0] instanceof Error ? error.errors[0] : error
}

export function certificateFailure(socket: TLSSocket): CertificateFailure {
  const leaf = socket.getPeerCertificate(true)
  return {
    kind: 'certificate',
    code: String(socket.authorizationError ?? 'unknown'),
    issuer: issuerOf(leaf),
    names: (leaf.subjectaltname ?? '').split(', ').map(name => name.replace(/^(DNS|IP Address):/, '')),
    validFromMs: Date.parse(leaf.valid_from),
    validToMs: Date.parse(leaf.valid_to),
  }
}

/** Version, who signed, and how long it holds. */
export function describeTls(socket: TLSSocket): string {
  const leaf = socket.getPeerCertificate(true)
  return `${socket.getProtocol()}, issued by "${issuerOf(leaf)}", ends ${new Date(leaf.valid_to).toISOString()}`
}

/** Name of the issuer of the highest certificate that was sent. */
function issuerOf(leaf: PeerCertificate): string {
  let top: { issuer?: PeerCertificate['issuer']; issuerCertificate?: PeerCertificate } = leaf
  const seen = new Set<object>()
  while (top.issuerCertificate !== undefined && !seen.has(top.issuerCertificate)) {
    top = top.issuerCertificate
    seen.add(top)
  }
  const issuer = top.issuer
  const name = issuer?.CN ?? issuer?.O ?? issuer?.OU ?? 'an unnamed CA'
  return Array.isArray(name) ? name.join(', ') : name
}

export function answerFailure(response: IncomingMessage, body: string): AnswerFailure {
  const { headers } = response
  return {
    kind: 'answer',
    status: response.statusCode ?? 0,
    requestId: text(headers['x-request-id']) ?? memberOf(body, 'requestId'),
    code: text(headers['sallyport-error']) ?? memberOf(body, 'code'),
    dateMs: dateOf(response),
    versions: text(headers['sec-websocket-protocol']),
    ours: memberOf(body, 'requestId') !== undefined,
    by: text(headers.via) ?? text(headers.server),
  }
}

function text(value: string | string[] | undefined): string | undefined {
  return typeof value === 'string' && /^[\x20-\x7e]{1,200}$/.test(value) ? value : undefined
}

/** A text member of a problem+json body. */
function memberOf(body: string, name: string): string | undefined {
  try {
    const parsed: unknown = JSON.parse(body)
    const value = typeof parsed === 'object' && parsed !== null ? (parsed as Record<string, unknown>)[name] : undefined
    return typeof value === 'string' ? text(value) : undefined
  } catch {
    return undefined
  }
}

export function dateOf(response: IncomingMessage): number | undefined {
  const dateMs = Date.parse(response.headers.date ?? '')
  return Number.isNaN(dateMs) ? undefined : dateMs
}
