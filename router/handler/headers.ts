/** Header fields of a route. Only we identify the caller, and the route's rules are applied last (R1, R2). */
import type { ErrorCode } from '../../protocol/base/errors.ts'
import type { HeaderList, HttpRequest } from '../../protocol/exchange.ts'
import { appendForwarded } from '../../protocol/http/forwarded.ts'
import { dashed, isForwardedName, removeWhere } from '../../protocol/http/headers.ts'
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
    if (isForwardedName(name) ? !isInboxField(request, name) : name === 'te' && !takesTe) continue
    if (rules?.remove.has(dashed(name)) === true) continue
    headers.push(name, from[i + 1]!)
  }
  const caller = request.caller
  if (caller !== undefined) appendForwarded(headers, caller)
  if (rules !== undefined) for (const text of rules.set) headers.push(text)
  return headers
}

/** Trailers without those that the rules remove, since whoever merges them into the head would read them there. */
export function ruledTrailers(trailers: HeaderList, rules: CompiledHeaders | undefined): HeaderList {
  if (trailers.length === 0 || rules === undefined) return trailers
  const kept = [...trailers]
  removeWhere(kept, name => rules.remove.has(dashed(name)))
  return kept
}

/**
 * Changes the fields of the upstream's response in place. Its `sallyport-error` is removed, since it would look like ours.
 * `error` is set in its place.
 */
export function answerHeaders(headers: HeaderList, rules: CompiledHeaders | undefined, error?: ErrorCode): void {
  stripAnswer(headers, rules)
  if (error !== undefined) headers.push(OURS, error)
}

function stripAnswer(headers: HeaderList, rules: CompiledHeaders | undefined): void {
  if (rules !== undefined) {
    removeWhere(headers, name => name === OURS || rules.remove.has(dashed(name)))
    for (const text of rules.set) headers.push(text)
    return
  }
  for (let i = 0; i < headers.length; i += 2) {
    if (headers[i] !== OURS) continue
    removeWhere(headers, isOurs)
    return
  }
}

const OURS = 'sallyport-error'

function isOurs(name: string): boolean {
  return name === OURS
}
