/** Handles a request: decides, then forwards, answers or refuses. */
import type { Handler, HttpRequest } from '../../protocol/exchange.ts'
import type { Verifier } from '../../protocol/webhook/verify.ts'
import type { CompiledRoute, CompiledTable } from '../compiled.ts'
import { maySpeakHttp2, type UpstreamTarget } from '../target.ts'
import { traced } from '../upstream/traced.ts'
import type { UpstreamRequest } from '../upstream/types.ts'
import type { Upstreams } from '../upstream/upstreams.ts'
import { type Decision, decide } from './decide.ts'
import { type ExchangeHooks, RoutedExchange } from './exchange.ts'
import { hasIdempotencyKey, upstreamHeaders } from './headers.ts'
import { resigning } from './resigned.ts'
import { BodyRooms } from './room.ts'
import { verifying } from './verified.ts'

/** `table` is called once per request, so a reload applies only to later requests. */
export function routeHandler(table: () => CompiledTable, upstreams: Upstreams, hooks: ExchangeHooks): Handler {
  const rooms = new BodyRooms()
  return (request, response) => {
    const decision = decide(table(), request)
    const exchange = new RoutedExchange(hooks, request, response, decision.route)
    try {
      begin(exchange, request, decision, upstreams, rooms)
    } catch (error) {
      exchange.threw(error)
    }
    return exchange
  }
}

function begin(
  exchange: RoutedExchange,
  { span }: HttpRequest,
  decision: Decision,
  upstreams: Upstreams,
  rooms: BodyRooms,
): void {
  if (decision.kind === 'forward') {
    const { route, target, path } = decision
    const call: Handler = (request, response) =>
      upstreams.forward(target, upstreamRequest(request, route, target, path), route, response)
    const forward = span === undefined ? call : traced(span, call, target, path)
    exchange.forward(route.verifier === undefined ? forward : signed(route, route.verifier, target, forward, rooms))
  } else if (decision.kind === 'answer') exchange.answer(decision.answer)
  else exchange.fail(decision.error, decision.allow)
}

/** Puts the checks of signed webhooks in front of the upstream of a route. */
function signed(
  { name, signer }: CompiledRoute,
  verifier: Verifier,
  target: UpstreamTarget,
  forward: Handler,
  rooms: BodyRooms,
): Handler {
  return (request, response) => {
    const room = rooms.of(request, name)
    const next = signer === undefined ? forward : resigning(signer, room, forward)
    // An edited replay has no valid signature. The operator who edited it vouches for it.
    if (request.replay?.edited === true) return next(request, response)
    const remember = () => rooms.remember(request, name)
    return verifying(verifier, signer === undefined && maySpeakHttp2(target), room, next, remember)(request, response)
  }
}

function upstreamRequest(
  request: HttpRequest,
  route: CompiledRoute,
  target: UpstreamTarget,
  path: string,
): UpstreamRequest {
  const headers = upstreamHeaders(request, route.requestRules, maySpeakHttp2(target))
  return {
    method: request.method,
    authority: route.keepHost ? request.authority : target.authority,
    path,
    headers,
    bodyBytes: request.bodyBytes,
    upgrade: request.upgrade,
    caller: request.caller?.address ?? request.peerAddress,
    idempotent: route.idempotencyKey && hasIdempotencyKey(headers),
  }
}
