/** Failures of a dial, as plain values that {@link explain} puts into words. */
import type { IncomingMessage } from 'node:http'
import type { DetailedPeerCertificate, PeerCertificate, TLSSocket } from 'node:tls'
import type { AnswerFailure, CertificateFailure, DialFailure, DialPhase } from './explain.ts'

/** A dial that failed. {@link explain} puts `failure` into words. */
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

/** The first failure of an attempt on several addresses stands for all of them. */
function firstOf(error: Error): Error {
  return error instanceof AggregateError && error.errors[0] instanceof Error ? error.errors[0] : error
}

export function certificateFailure(socket: TLSSocket, phase: DialPhase): CertificateFailure {
  const leaf = socket.getPeerCertificate(true)
  const chain = chainOf(leaf)
  // OpenSSL does not say whose dates are wrong.
  const dated = chain.find(one => !isCurrent(one)) ?? leaf
  return {
    kind: 'certificate',
    phase,
    code: String(socket.authorizationError ?? 'unknown'),
    issuer: nameOf(chain.at(-1)!.issuer),
    names: (leaf.subjectaltname ?? '').split(', ').map(name => name.replace(/^(DNS|IP Address):/, '')),
    authority: dated === leaf ? undefined : nameOf(dated.subject),
    validFromMs: Date.parse(dated.valid_from),
    validToMs: Date.parse(dated.valid_to),
  }
}

/** TLS version, issuer and expiry of the certificate. */
export function describeTls(socket: TLSSocket): string {
  const leaf = socket.getPeerCertificate(true)
  return `${socket.getProtocol()}, issued by "${nameOf(chainOf(leaf).at(-1)!.issuer)}", ends ${new Date(leaf.valid_to).toISOString()}`
}

/** A certificate and those of its authorities, as far as they were sent or are known here. */
function chainOf(leaf: DetailedPeerCertificate): DetailedPeerCertificate[] {
  const chain = new Set<DetailedPeerCertificate>()
  // The last one is its own issuer.
  for (let one = leaf; one !== undefined && !chain.has(one); one = one.issuerCertificate) chain.add(one)
  return [...chain]
}

function isCurrent({ valid_from: from, valid_to: to }: PeerCertificate): boolean {
  return Date.parse(from) <= Date.now() && Date.now() <= Date.parse(to)
}

function nameOf(who: PeerCertificate['subject'] | undefined): string {
  const name = who?.CN ?? who?.O ?? who?.OU ?? 'an unnamed CA'
  return Array.isArray(name) ? name.join(', ') : name
}

export function answerFailure(response: IncomingMessage, body: string): AnswerFailure {
  const { headers } = response
  const code = text(headers['sallyport-error']) ?? memberOf(body, 'code')
  return {
    kind: 'answer',
    status: response.statusCode ?? 0,
    requestId: text(headers['x-request-id']) ?? memberOf(body, 'requestId'),
    code,
    dateMs: dateOf(response),
    versions: text(headers['sec-websocket-protocol']),
    ours: code === undefined && memberOf(body, 'requestId') !== undefined,
    by: text(headers.via) ?? text(headers.server),
  }
}

function text(value: string | string[] | undefined): string | undefined {
  return typeof value === 'string' && /^[\x20-\x7e]{1,200}$/.test(value) ? value : undefined
}

/** A string member of a problem+json body. */
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
