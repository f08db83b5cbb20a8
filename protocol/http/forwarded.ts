/**
 * Determines who the caller is, and tells the upstream.
 *
 * Only fields from trusted proxies are believed, counted from the right. `Forwarded` (RFC 7239) is written but never read: most
 * proxies pass on the caller's own one unchanged, so it proves nothing.
 */
import { type Cidrs, canonicalAddress, cidrsContain } from '../base/address.ts'
import type { SallyportError } from '../base/errors.ts'
import { newRequestId } from '../base/ids.ts'
import { ownText } from '../base/latin1.ts'
import { memoizeLast } from '../base/memoize-last.ts'
import type { Caller, Handler, HeaderList, HttpRequest } from '../exchange.ts'
import { compose, type Layer } from '../layer.ts'
import { dashed, isAuthority, isClaim, isForwardedName, isMountName, removeWhere } from './headers.ts'
import { loopGuard } from './loop-guard.ts'
import { type Refuse, refusing } from './problem.ts'

const REQUEST_ID = /^[A-Za-z0-9][A-Za-z0-9._:+/=@-]{0,127}$/
/** More proxies than anyone has. Entries further left are ignored. */
const MAX_HOPS = 32

/**
 * Sets `caller`, `fromTrustedProxy` and `requestId`, and removes every field that describes the caller (`isForwardedName`, and of peers
 * that are not trusted `isClaim`) or says where the request is mounted (`isMountName`). A request id is kept only from a trusted peer,
 * and otherwise made. It is in the headers afterwards.
 */
export function resolveCaller(request: HttpRequest, trusted: Cidrs): void {
  const fromTrustedProxy = trusted.length > 0 && cidrsContain(trusted, request.peerAddress)
  const scheme = request.encrypted ? 'https' : 'http'
  request.fromTrustedProxy = fromTrustedProxy
  request.caller = fromTrustedProxy
    ? forwardedCaller(request, trusted, scheme)
    : { address: request.peerAddress, scheme, host: request.authority }
  request.requestId = takeRequestId(request.headers, fromTrustedProxy)
  request.headers.push('x-request-id', request.requestId)
}

/** The layer that determines the caller, unless that is known already. */
export function callers(trusted: Cidrs): Layer {
  return next => (request, response) => {
    if (request.caller === undefined) resolveCaller(request, trusted)
    return next(request, response)
  }
}

/**
 * Wraps `handler` in the layers that every listener other than the edge has: they determine the caller and stop loops. `onRefused` is
 * called for each request that they refuse.
 */
export function withListenerLayers(
  handler: Handler,
  trusted: Cidrs,
  onRefused?: (error: SallyportError, request: HttpRequest) => void,
): Handler {
  const answer = refusing(() => undefined)
  const refuse: Refuse = (request, response, error) => {
    onRefused?.(error, request)
    return answer(request, response, error)
  }
  return compose([callers(trusted), loopGuard(refuse)], handler)
}

/** Removes the fields that describe the caller or the mount, and returns the request id to use. */
function takeRequestId(headers: HeaderList, fromTrustedProxy: boolean): string {
  const isCallerField = fromTrustedProxy ? isOurField : isStrangersField
  let requestId = ''
  let found = false
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!
    if (!isCallerField(name)) continue
    found = true
    if (fromTrustedProxy && requestId === '' && name === 'x-request-id' && REQUEST_ID.test(headers[i + 1]!)) {
      requestId = headers[i + 1]!
    }
  }
  if (found) removeWhere(headers, isCallerField)
  return requestId === '' ? newRequestId() : requestId
}

const isOurField = (name: string) => isRequestId(name) || isForwardedName(name) || isMountName(name)
const isStrangersField = (name: string) => isRequestId(name) || isClaim(name) || isMountName(name)

function isRequestId(name: string): boolean {
  return name.length === 12 && dashed(name) === 'x-request-id'
}

function forwardedCaller(request: HttpRequest, trusted: Cidrs, scheme: 'http' | 'https'): Caller {
  const chain = members(request.headers, 'x-forwarded-for')
  let address = request.peerAddress
  let hops = 0
  while (hops < chain.length && hops < MAX_HOPS) {
    const next = canonicalAddress(withoutPort(chain[chain.length - 1 - hops]!))
    if (next === '') break
    address = next
    if (!cidrsContain(trusted, next)) break
    hops++
  }
  const proto = fromRight(members(request.headers, 'x-forwarded-proto'), hops).toLowerCase()
  const host = fromRight(members(request.headers, 'x-forwarded-host'), hops)
  return {
    // What is counted by address is kept.
    address: ownText(address),
    scheme: proto === 'https' || proto === 'wss' ? 'https' : proto === 'http' || proto === 'ws' ? 'http' : scheme,
    host: isAuthority(host) ? host : request.authority,
  }
}

function members(headers: HeaderList, name: string): string[] {
  const list: string[] = []
  for (let i = 0; i < headers.length; i += 2) {
    if (headers[i] !== name) continue
    for (const member of headers[i + 1]!.split(',')) list.push(member.trim())
  }
  return list
}

/** The member that was written by the proxy that also wrote the caller's address. A proxy that replaces the field writes only one. */
function fromRight(list: readonly string[], hops: number): string {
  return list.length === 0 ? '' : list[Math.max(0, list.length - 1 - hops)]!
}

/** Some proxies write `1.2.3.4:567` or `[2001:db8::1]:567`. */
function withoutPort(text: string): string {
  if (text.startsWith('[')) return text.slice(1, Math.max(1, text.indexOf(']')))
  const colon = text.indexOf(':')
  return colon > 0 && colon === text.lastIndexOf(':') ? text.slice(0, colon) : text
}

/** Adds `x-forwarded-for`, `-proto`, `-host` and `forwarded` for the upstream, each with only this caller. */
export function appendForwarded(headers: HeaderList, caller: Caller): void {
  const { scheme, host } = caller
  const address = caller.address === '' ? 'unknown' : caller.address
  headers.push('x-forwarded-for', address, 'x-forwarded-proto', scheme)
  if (host !== '') headers.push('x-forwarded-host', host)
  headers.push('forwarded', forwardedText(address, scheme, host))
}

const forwardedText = memoizeLast((address: string, scheme: string, host: string) => {
  const node = address.includes(':') ? `"[${address}]"` : address
  return host === '' ? `for=${node};proto=${scheme}` : `for=${node};host=${quoted(host)};proto=${scheme}`
})

const PLAIN = /^[A-Za-z0-9.-]+$/

function quoted(text: string): string {
  return PLAIN.test(text) ? text : `"${text.replace(/["\\]/g, '\\$&')}"`
}
