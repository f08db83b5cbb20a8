/**
 * One HTTP exchange, as every part of the data path sees it.
 *
 * A *downstream end* (an HTTP listener, a stream that came out of a session) makes a {@link HttpRequest} and calls a
 * {@link Handler}. The handler leads to an *upstream end* (a stream into a session, a connection to a service). The two
 * ends then call each other through a {@link RequestSink} and a {@link ResponseSink}: plain methods, no Node stream, no
 * promise, no event emitter.
 *
 *     downstream end                                          upstream end
 *       handler(request, responseSink)      ───────────────▶   returns requestSink
 *       requestData / requestEnd / requestAbort  ──────────▶   request body
 *       responseConsumed(n)                 ───────────────▶   n response bytes were taken
 *                                           ◀───────────────   responseInformational / responseHead
 *                                           ◀───────────────   responseData / responseEnd / responseAbort
 *                                           ◀───────────────   requestConsumed(n): n request bytes were taken
 *
 * Each direction has words of its own, so that one object can stand between both ends (`layer.ts`).
 *
 * Rules that all ends keep:
 * - A chunk belongs to the receiver from the call on; the sender never writes into it again.
 * - Back-pressure is credit: whoever receives a chunk says so to the other end by the `consumed` of its direction (in parts,
 *   if it likes) once the bytes have left it, or once it has discarded them. A sender stops reading from its own source
 *   while more than its limit is unconsumed. There is no other pause.
 * - `requestEnd` and `requestAbort`, `responseEnd` and `responseAbort`, are last in their direction and come at most once. A
 *   call that comes after is ignored by the receiver, so that races need no bookkeeping at the sender.
 * - `requestAbort` ends the whole exchange: the caller has gone and holds nothing, and nothing more is said to the
 *   response sink. A caller's end that still holds some of a response that came first says `responseConsumed` for it, and
 *   no abort.
 * - `responseAbort` behind `responseEnd` drops what waits of a response that its caller does not take. Otherwise it ends the
 *   whole exchange: the downstream end answers with the error if no head went out, else it cuts the response (never a clean
 *   end).
 * - A response may begin and end before the request has ended; the upstream end then discards what still comes of the
 *   request (and calls `requestConsumed` for it).
 * - A handler may answer before it returns. It never throws.
 * - `expect: 100-continue` in the headers means that the caller waits before it sends the body. An upstream end that
 *   wants the body says `responseInformational(100, [])`; the downstream end says so to the caller by itself after a second,
 *   unless a head came first. Then the body may never come, and the downstream end aborts the request after the response.
 * - After `responseHead` with status 101 (only when `request.upgrade` is set) both directions carry raw bytes, and `requestEnd`
 *   and `responseEnd` are TCP's half-close. Before it, the downstream end holds back what the caller sent behind the head.
 */
import type { SallyportError } from './base/errors.ts'
import type { Span } from './trace/span.ts'

/**
 * Header fields, flat: `[name, value, name, value, ...]`. Names are lower case; values are latin1 strings as received,
 * trimmed of outer white space. Order and duplicates are kept. Connection-level fields (`connection`, `keep-alive`,
 * `proxy-connection`, `transfer-encoding`, `upgrade`, `http2-settings`, those that `Connection` names) and `host` never
 * stand in it. `content-length` does, checked. `te` only as `trailers`, and only from HTTP/2.
 */
export type HeaderList = string[]

/** The value of `bodyBytes` for a body whose length is known only at its end. */
export const BODY_UNKNOWN = -1

/** Who sent the request, as the first end of ours that trusts its peer determined it. */
export interface Caller {
  /** IP address in canonical form; an IPv4-mapped IPv6 address is written as IPv4. */
  readonly address: string
  /** Scheme that the caller used at the outermost trusted hop. */
  readonly scheme: 'http' | 'https'
  /** Host (and port, if any) that the caller asked for at the outermost trusted hop. */
  readonly host: string
}

/** The head of a request, as every part of the data path sees it. */
export interface HttpRequest {
  /** Any token, as received; `GET` for an upgrade. */
  method: string
  /** Host, with port if one was given; the same for routing, authorisation and log. */
  authority: string
  /** Origin form, path and query byte for byte as received; or `*`, of OPTIONS alone, which goes no further than a listener. */
  path: string
  headers: HeaderList
  /** 0: no body; n: exactly n bytes; {@link BODY_UNKNOWN}: until `end`. 0 for an upgrade. */
  bodyBytes: number
  /**
   * A WebSocket handshake (RFC 6455 section 4, or RFC 8441). `sec-websocket-key`, `-accept` and `-version` belong to each
   * hop and never stand in `headers`; `sec-websocket-protocol` and `-extensions` do, end to end.
   */
  upgrade: boolean
  /** The socket's peer, before any header is believed. For a request out of a session: the caller's address. */
  peerAddress: string
  /** Whether the hop by which it reached us was encrypted. */
  encrypted: boolean
  /** Whether its peer showed a certificate that is valid by the listener's `ca`; absent where none is asked for. */
  certified?: boolean | undefined
  /** Set by `resolveCaller` at a listener, or from the preamble; absent only before that step. */
  caller: Caller | undefined
  /** Whether its peer is a proxy whose word is believed; set with `caller` at a listener. */
  believed?: boolean | undefined
  /** Value of `x-request-id`, which also stands in `headers` from the first end of ours on. */
  requestId: string
  /** Whose traffic it is, from where that is known: at the edge by its host, at the client by its session. */
  runtime?: string | undefined
  /** At the edge: the host of the runtime's own that it asked for. Only a session whose token names the host takes it. */
  ownHost?: string | undefined
  /** Id of the session that it came by; absent at the edge. */
  session?: string | undefined
  /** How often the server has tried it before; set only where an inspector watches. */
  attempt?: number | undefined
  /** Set on what an inspector repeats, and by nobody else. */
  replay?: ReplayMark | undefined
  /** What is told of it to those who follow its trace; only where that is recorded. Those behind make children of it. */
  span?: Span | undefined
  /** What those on the way note for its record; absent where there is none. */
  notes?: ExchangeNotes | undefined
  /** 16 random bytes as latin1 text, made at the edge, the same over all attempts; made by the first end that needs one. */
  exchangeId: string | undefined
}

/** A request that somebody who may do so has sent to the target once more. */
interface ReplayMark {
  /** Id of the first exchange; it stands in `sallyport-replay`, too. */
  readonly of: string
  /** When the first one came, ms since 1970: signed timestamps are held against that. */
  readonly receivedMs: number
  /** It is not what its sender has signed. */
  readonly edited: boolean
}

/** What is only known behind the layer that records the exchange. */
export interface ExchangeNotes {
  /** Name of the route that was taken. */
  route: string | undefined
  /** The session, or the hop to another replica, that has the exchange. */
  session: string | undefined
}

/** The head of a final response. */
export interface ResponseHead {
  /** 200 to 599, or 101 for an upgrade. */
  status: number
  headers: HeaderList
  /** As in {@link HttpRequest}; 0 for HEAD, 204, 304 and 101, whatever `content-length` says. */
  bodyBytes: number
}

/** The upstream end, as the downstream end sees it. */
export interface RequestSink {
  /** The next bytes of the request body. Never empty. */
  requestData(chunk: Uint8Array): void
  /** The request is whole; `trailers` may be empty. */
  requestEnd(trailers: HeaderList): void
  /** The caller has gone; see the rules above. */
  requestAbort(error: SallyportError): void
  /** The downstream end has taken this many bytes of the response body. */
  responseConsumed(bytes: number): void
}

/** The downstream end, as the upstream end sees it. */
export interface ResponseSink {
  /** The peer has the stream of the exchange. */
  acknowledged?(): void
  /** Of an upgraded connection whose response has ended: nothing more of the request is taken, either. */
  unwanted?(): void
  /** 1xx other than 101; at most 32 per exchange. */
  responseInformational(status: number, headers: HeaderList): void
  responseHead(response: ResponseHead): void
  /** The next bytes of the response body. Never empty. */
  responseData(chunk: Uint8Array): void
  /** The response is whole; `trailers` may be empty. */
  responseEnd(trailers: HeaderList): void
  /** No response, or a broken one; see the rules above. */
  responseAbort(error: SallyportError): void
  /** The upstream end has taken this many bytes of the request body. */
  requestConsumed(bytes: number): void
  /** Of the request's bytes that it has taken, so many wait for others, and count as held until it says 0 or the exchange is over. */
  requestKept?(bytes: number): void
}

/**
 * Takes a request, and returns where its body goes; the rules at the head of this file hold.
 *
 * @example
 * ```ts
 * import type { Handler } from 'sallyport/protocol'
 * import { discarding } from 'sallyport/protocol'
 *
 * const hello: Handler = (_request, response) => {
 *   response.responseHead({ status: 200, headers: ['content-length', '5'], bodyBytes: 5 })
 *   response.responseData(Buffer.from('hello'))
 *   response.responseEnd([])
 *   return discarding(response)
 * }
 * ```
 */
export type Handler = (request: HttpRequest, response: ResponseSink) => RequestSink

/** What is known of an exchange once it is over: the access log and the metrics are made from it. */
export interface ExchangeRecord {
  requestId: string
  runtime: string | undefined
  route: string | undefined
  session: string | undefined
  method: string
  host: string
  /** Without the query. */
  path: string
  caller: string
  /** Status that went out; 0 if none did. */
  status: number
  /** Row of the error table, if the exchange failed. */
  code: string | undefined
  /** Whether a response that had begun was cut. */
  cut: boolean
  durationMs: number
  /** Bytes of the request body and of the response body. */
  bytesIn: number
  bytesOut: number
  upgrade: boolean
  /** Of the trace that its `traceparent` names, 32 hex digits; only if it is sampled. */
  traceId?: string | undefined
}
