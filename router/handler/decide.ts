/** Decides what happens to a request: the route's upstream, its fixed answer, or a refusal. Pure: no socket, no clock. */

import { cidrsContain } from '../../protocol/base/address.ts'
import { SallyportError } from '../../protocol/base/errors.ts'
import type { HttpRequest } from '../../protocol/exchange.ts'
import type { CompiledAnswer, CompiledRoute, CompiledTable } from '../compiled.ts'
import { type Captures, capturesOf, matchRequest } from '../match.ts'
import { rewritePath } from '../rewrite.ts'
import { hasSecondPath } from '../second-path.ts'
import { fillTarget, type UpstreamTarget } from '../target.ts'

export type Decision =
  | { readonly kind: 'forward'; readonly route: CompiledRoute; readonly target: UpstreamTarget; readonly path: string }
  | { readonly kind: 'answer'; readonly route: CompiledRoute; readonly answer: CompiledAnswer }
  | {
      readonly kind: 'refuse'
      readonly route: CompiledRoute | undefined
      readonly error: SallyportError
      /** Methods that the path allows, for a 405. */
      readonly allow: string | undefined
    }

/** Without `checkCaller`, `allow.callers` is not checked. That is only for explanations. */
export function decide(table: CompiledTable, request: HttpRequest, checkCaller = true): Decision {
  const match = matchRequest(table, request)
  switch (match.kind) {
    case 'none':
      return refuse(undefined, new SallyportError('no-route'))
    case 'ambiguous':
      return refuse(undefined, new SallyportError('bad-request', match.reason))
    case 'method':
      return refuse(match.route, new SallyportError('method-not-allowed'), match.allow)
    case 'route':
      return onRoute(table, match.route, request, checkCaller)
  }
}

function refuse(route: CompiledRoute | undefined, error: SallyportError, allow?: string): Decision {
  return { kind: 'refuse', route, error, allow }
}

function onRoute(table: CompiledTable, route: CompiledRoute, request: HttpRequest, checkCaller: boolean): Decision {
  if (checkCaller && !mayCall(route, request)) return refuse(route, new SallyportError('caller-not-allowed'))
  const captures = capturesOf(route, request.path)
  if (!areAllowed(route, captures)) return refuse(route, new SallyportError('no-route', NOT_ALLOWED))
  if (route.answer !== undefined) return { kind: 'answer', route, answer: route.answer }
  const target = route.target ?? fillTarget(route.template!, captures, table.resolve, route.tls)
  if (target === undefined) return refuse(route, new SallyportError('no-route', NOT_ALLOWED))
  if (route.bodyBytes >= 0 && request.bodyBytes > route.bodyBytes) {
    return refuse(route, new SallyportError('body-too-large', `more than ${route.bodyBytes} bytes`))
  }
  if (table.guardedInPart.has(route) && hasSecondPath(request, route)) {
    return refuse(route, new SallyportError('bad-request', SECOND_PATH))
  }
  const path = rewritePath(route, request.path)
  if (path === undefined) {
    return refuse(
      route,
      new SallyportError('bad-request', 'the rewritten path could be read as one that begins with two slashes'),
    )
  }
  return { kind: 'forward', route, target, path }
}

const NOT_ALLOWED = 'a captured name is not allowed'
const SECOND_PATH = 'a field, such as `destination`, has a second path, and rules guard a part of the service'

function mayCall(route: CompiledRoute, request: HttpRequest): boolean {
  return route.callers === undefined || cidrsContain(route.callers, request.caller?.address ?? request.peerAddress)
}

/** Routes of any kind take only requests whose captured names are on their lists. */
function areAllowed(route: CompiledRoute, captures: Captures): boolean {
  for (const [name, values] of route.allowed) if (!values.has(captures[name] ?? '')) return false
  return true
}
