/**
 * One HTTP exchange, as every part of the data path sees it.
 *
 * A *downstream end* (an HTTP listener, a stream that arrived on a session) creates a {@link HttpRequest} and calls a
 * {@link Handler}. The handler leads to an *upstream end* (a stream into a session, a connection to a service). The two
 * ends then call each other through a {@link RequestSink} and a {@link ResponseSink}: plain methods, with no Node streams,
 * promises or event emitters.
 *
 *     downstream end                                          upstream end
 *       handler(request, responseSink)      ───────────────▶   returns requestSink
 *       requestData / requestEnd / requestAbort  ──────────▶   request body
 *       responseConsumed(n)                 ───────────────▶   n response bytes were consumed
 *                                           ◀───────────────   responseInformational / responseHead
 *                                           ◀───────────────   responseData / responseEnd / responseAbort
 *                                           ◀───────────────   requestConsumed(n): n request bytes were consumed
 *
 * Each direction has its own method names, so that one object can sit between both ends (`layer.ts`).
 *
 * Rules for both ends:
 * - From the call on, a chunk belongs to the receiver. The sender never writes into it again. Its `buffer` may belong to others as
 *   well, and must not be transferred.
 * - Back-pressure is credit. The receiver of a chunk calls the `consumed` method of that direction once the bytes have left it
 *   or were discarded; it may do so in parts. A sender stops reading from its own source while more than its limit is
 *   unconsumed. There is no other way to pause.
 * - `requestEnd` or `requestAbort`, and `responseEnd` or `responseAbort`, is the last call in its direction and comes at most
 *   once. The receiver ignores later calls, so that races need no bookkeeping at the sender.
 * - `requestAbort` ends the whole exchange: the caller has gone and holds no more bytes, and the response sink must not be
 *   called any more. A downstream end that still holds bytes of a response that ended before the request calls
 *   `responseConsumed` for them instead of aborting. If the request broke the rules and has no response yet, the downstream end
 *   answers with the error by itself, and says so.
 * - `responseAbort` after `responseEnd` drops the bytes of a response that wait because the caller does not read them.
 *   Otherwise it ends the whole exchange: the downstream end answers with the error if it has sent no head yet. If it has, it
 *   cuts the response, so that it never looks complete.
 * - A response may begin and end before the request has ended. The upstream end then discards the rest of the request, and
 *   calls `requestConsumed` for it.
 * - A handler may answer before it returns. It never throws.
 * - `expect: 100-continue` in the headers means that the caller waits before it sends the body. An upstream end that wants the
 *   body calls `responseInformational(100, [])`. The downstream end sends the 100 by itself after a second, unless a final head
 *   came first. In that case the body may never arrive, and the downstream end aborts the request after the response.
 * - After `responseHead` with status 101 (only if `request.upgrade` is set), both directions carry raw bytes, and `requestEnd`
 *   and `responseEnd` are TCP's half-close. Until then, the downstream end holds back whatever the caller sent after the head.
 *   `requestEnd` may wait until everything before it was consumed, so an upstream end must not wait for it to give credit.
 */
import type { SallyportError } from './base/errors.ts'
import type { Span } from './trace/span.ts'

/**
 * Header fields, flat: `[name, value, name, value, ...]`. Names are lower case; values are latin1 strings as received,
 * without surrounding white space. Order and duplicates are kept. The list never contains `host` or connection-level fields
 * (`connection`, `keep-alive`, `proxy-connection`, `transfer-encoding`, `upgrade`, `http2-settings`, and those named by
 * `Connection`). It may contain `content-length`, which has been checked, and in a request `te`, only with the value `trailers`.
 */
export type HeaderList = string[]

/** The value of `bodyBytes` for a body whose length is known only at its end. */
export const BODY_UNKNOWN = -1

/** Who sent the request, as determined by the first of our listeners that trusts its peer. */
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
  /** Host, with port if one was given. Routing, authorisation and logs all use it. */
  authority: string
  /** Path and query in origin form, byte for byte as received; or `*`, only for OPTIONS, which never gets past a listener. */
  path: string
  headers: HeaderList
  /** Length of the body; 0 if there is none and for an upgrade, {@link BODY_UNKNOWN} if only `requestEnd` tells. */
  bodyBytes: number
  /**
   * Whether this is a WebSocket handshake (RFC 6455 section 4, or RFC 8441). `sec-websocket-key`, `-accept` and `-version`
   * belong to each hop and are never in `headers`; `sec-websocket-protocol` and `-extensions` are end to end, and are.
   */
  upgrade: boolean
  /** Address of the socket's peer, whatever headers say. For a request from a session, the caller's address. */
  peerAddress: string
  /** Whether the hop on which it reached us was encrypted. */
  encrypted: boolean
  /** Whether the peer presented a certificate that is valid according to the listener's `ca`. Absent if none was requested. */
  certified?: boolean | undefined
  /** Set by `resolveCaller` at a listener, or from the preamble. Undefined only before that. */
  caller: Caller | undefined
  /** Whether the peer is a trusted proxy. Set together with `caller` at a listener, and by an embedder that names the caller. */
  fromTrustedProxy?: boolean | undefined
  /** Value of `x-request-id`. From our first listener on, it is also in `headers`. */
  requestId: string
  /** Whose traffic it is, once that is known: at the edge from the host, at the client from the session. */
  runtime?: string | undefined
  /** At the edge: whether earlier webhooks that are stored must go first. Asked when a session comes for which it has waited. If so, it fails instead. */
  isBehind?: (() => boolean) | undefined
  /** At the edge: the host of the runtime's own that was requested. Only a session whose token names that host may take it. */
  ownHost?: string | undefined
  /** Id of the session that it arrived on. Absent at the edge. */
  session?: string | undefined
  /** How often the server has tried this exchange before. Set only for an inspector. */
  attempt?: number | undefined
  /** How long it waited for a session at the server, in ms, if it did. Set only for an inspector. */
  heldMs?: number | undefined
  /** Set only on replays of an inspector. */
  replay?: ReplayMark | undefined
  /** Span of this exchange, if its trace is recorded. Later layers add child spans to it. */
  span?: Span | undefined
  /** Notes of later layers for the record of the exchange. Absent if nothing is recorded. */
  notes?: ExchangeNotes | undefined
  /** 16 random bytes as a latin1 string, the same over all attempts. Made by the first end that needs it, normally the edge. */
  exchangeId: string | undefined
}

/** Marks a request that an authorised user has sent to the target again. */
interface ReplayMark {
  /** Id of the original exchange. It is also in `sallyport-replay`. */
  readonly of: string
  /** When the original arrived, ms since 1970. Signed timestamps are checked against this. */
  readonly receivedMs: number
  /** Whether the request differs from what its sender has signed. */
  readonly edited: boolean
}

/** Facts that only layers after the recording one know. */
export interface ExchangeNotes {
  /** Name of the route that was taken. */
  route: string | undefined
  /** The session, or the hop to another replica, that has the exchange. */
  session: string | undefined
  /** Id of the webhook, for a delivery from the inbox. */
  inboxId?: string | undefined
}

/** The head of a final response. */
export interface ResponseHead {
  /** 200 to 599, or 101 for an upgrade. */
  status: number
  headers: HeaderList
  /** Same as in {@link HttpRequest}. 0 for HEAD, 204, 304 and 101, whatever `content-length` says. */
  bodyBytes: number
}

/** The upstream end, as the downstream end sees it. */
export interface RequestSink {
  /** The next bytes of the request body. Never empty. */
  requestData(chunk: Uint8Array): void
  /** The request is complete. `trailers` may be empty. */
  requestEnd(trailers: HeaderList): void
  /** The caller has gone, or is `answered` with the error. See the rules above. */
  requestAbort(error: SallyportError, answered?: boolean): void
  /** The downstream end has consumed this many bytes of the response body. */
  responseConsumed(bytes: number): void
}

/** The downstream end, as the upstream end sees it. */
export interface ResponseSink {
  /** The peer has acknowledged the stream of the exchange. */
  acknowledged?(): void
  /** Only after the response of an upgraded connection has ended: no more of the request is wanted, either. */
  unwanted?(): void
  /** 1xx other than 101; at most 32 per exchange. */
  responseInformational(status: number, headers: HeaderList): void
  responseHead(response: ResponseHead): void
  /** The next bytes of the response body. Never empty. */
  responseData(chunk: Uint8Array): void
  /** The response is complete. `trailers` may be empty. */
  responseEnd(trailers: HeaderList): void
  /** There is no response, or it is broken. See the rules above. */
  responseAbort(error: SallyportError): void
  /** The upstream end has consumed this many bytes of the request body. */
  requestConsumed(bytes: number): void
  /** This many of the consumed request bytes wait for more. They count as held until it is called with 0 or the exchange ends. */
  requestKept?(bytes: number): void
}

/**
 * Takes a request and returns the sink for its body. It must keep the rules at the top of `protocol/exchange.ts`.
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

/** Facts about an exchange that has ended, for access log and metrics. */
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
  /** Status that was sent; 0 if none was. */
  status: number
  /** Error code, if the exchange failed. */
  code: string | undefined
  /** Whether a response that had begun was cut, by us or by the upstream. A caller that leaves cuts nothing. */
  cut: boolean
  durationMs: number
  /** Bytes of the request body and of the response body. */
  bytesIn: number
  bytesOut: number
  upgrade: boolean
  /** Id of the webhook, for a delivery from the inbox of the server; `route` is then its route. */
  inboxId?: string | undefined
  /** Id of the trace in its `traceparent`, 32 hex digits. Only if it is sampled. */
  traceId?: string | undefined
}
