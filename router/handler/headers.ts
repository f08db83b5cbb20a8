/**
 * Header fields of a route. Only we identify the caller, nobody else says where a request is mounted, and the route's rules are applied
 * last (R1, R2).
 */
import type { ErrorCode } from '../../protocol/base/errors.ts'
import type { HeaderList, HttpRequest } from '../../protocol/exchange.ts'
import { appendForwarded } from '../../protocol/http/forwarded.ts'
import {
  dashed,
  hasTwin,
  isForwardedName,
  isMountName,
  removeHeader,
  removeWhere,
} from '../../protocol/http/headers.ts'
import type { CompiledHeaders } from '../compiled.ts'
import { isInboxField } from './inbox-fields.ts'

/** Fields for the upstream. The request's own list is not touched. */
export function upstreamHeaders(
  request: HttpRequest,
  rules: CompiledHeaders | undefined,
  takesTe: boolean,
): HeaderList {
  const headers: HeaderList = []
  const from = request.headers
  for (let i = 0; i < from.length; i += 2) {
    const name = from[i]!
    if (isForwardedName(name) ? !isInboxField(request, name) : isMountName(name) || (name === 'te' && !takesTe))
      continue
    headers.push(name, from[i + 1]!)
  }
  const caller = request.caller
  if (caller !== undefined) appendForwarded(headers, caller)
  if (rules !== undefined) applyRules(headers, rules)
  return headers
}

/** A key as senders make them, maybe as a structured string. Services take an empty one for none, and those in PHP or Perl also `0`. */
const KEY = /^("?)(?!0\1$)[!#-+\--:<-~]+\1$/

/** Whether these fields for the upstream have one `Idempotency-Key` that every service takes for a key, and for the same one. */
export function hasIdempotencyKey(headers: HeaderList): boolean {
  let key: string | undefined
  for (let i = 0; i < headers.length; i += 2) {
    if (dashed(headers[i]!) !== 'idempotency-key') continue
    if (key !== undefined || headers[i] !== 'idempotency-key') return false
    key = headers[i + 1]!
  }
  return key !== undefined && KEY.test(key)
}

/** Trailers without those that the rules remove, since whoever merges them into the head would read them there. */
export function ruledTrailers(trailers: HeaderList, rules: CompiledHeaders | undefined): HeaderList {
  if (trailers.length === 0 || rules === undefined) return trailers
  const kept = [...trailers]
  removeRuled(kept, rules)
  return kept
}

/**
 * Changes the fields of the upstream's response in place. Its `sallyport-error` is removed, since it would look like ours.
 * `error` is set in its place.
 */
export function answerHeaders(headers: HeaderList, rules: CompiledHeaders | undefined, error?: ErrorCode): void {
  hintHeaders(headers, rules)
  if (rules !== undefined) for (const text of rules.set) headers.push(text)
  if (error !== undefined) headers.push(OURS, error)
}

/** The same for an informational response, to which the rules add nothing. */
export function hintHeaders(headers: HeaderList, rules: CompiledHeaders | undefined): void {
  removeHeader(headers, OURS)
  if (rules !== undefined) removeRuled(headers, rules)
}

const OURS = 'sallyport-error'

function applyRules(headers: HeaderList, rules: CompiledHeaders): void {
  removeRuled(headers, rules)
  for (const text of rules.set) headers.push(text)
}

function removeRuled(headers: HeaderList, { remove }: CompiledHeaders): void {
  removeWhere(headers, name => hasTwin(remove, name))
}
