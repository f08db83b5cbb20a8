/** What the inspector shows of an exchange: plain values for JSON, without secrets. */
import type { ErrorCode } from '../../protocol/base/errors.ts'

/** How an exchange spent its time, in ms; absent if that is not known, or not yet. */
export interface InspectedTimings {
  /** Kept by the server's inbox before this delivery. */
  readonly hold?: number | undefined
  /** Until the request was whole. */
  readonly send?: number | undefined
  /** From then on until the head of the response. */
  readonly wait?: number | undefined
  /** From the head of the response until its end. */
  readonly receive?: number | undefined
  readonly total?: number | undefined
}

/** One exchange in a list. */
export interface InspectedExchange {
  /** For `get` and `replay`; means nothing after a restart. */
  readonly id: string
  /** ISO 8601. */
  readonly started: string
  readonly state: 'open' | 'done'
  readonly method: string
  readonly scheme: 'http' | 'https'
  /** As the caller asked for it. */
  readonly host: string
  /** With the query, redacted. */
  readonly path: string
  readonly caller: string
  readonly requestId: string
  readonly runtime: string | undefined
  readonly session: string | undefined
  /** Of the router's table, if there is one. */
  readonly route: string | undefined
  /** How often the server has tried this exchange before; 0 for the first time. */
  readonly attempt: number
  /** Of the webhook, if the server's inbox delivered it. */
  readonly inboxId: string | undefined
  /** The exchange that this one repeats. */
  readonly replayOf: string | undefined
  readonly upgrade: boolean
  /** 0: none yet. */
  readonly status: number
  /** Why it failed, if that was not the target's own answer. */
  readonly code: ErrorCode | undefined
  /** The response had begun and did not come whole. */
  readonly cut: boolean
  /** Of the bodies, or of an upgraded connection: in from the caller, out to it. */
  readonly bytesIn: number
  readonly bytesOut: number
  readonly timings: InspectedTimings
  /** Whether {@link Inspector.replay} can repeat it. */
  readonly replayable: boolean
}

/** A body, or of a long one its beginning. With `heads` it is only counted. */
export interface InspectedBody {
  /** As transferred. */
  readonly bytes: number
  /** Without its content encoding; absent if that is not known. */
  readonly decodedBytes?: number | undefined
  /** What is shown is not all of it. */
  readonly truncated: boolean
  /** Decoded, redacted: either text or, for what is no UTF-8, base64. */
  readonly text?: string | undefined
  readonly base64?: string | undefined
  /** Why neither is there. */
  readonly omitted?: string | undefined
}

/** A message of a WebSocket, or an event of an event stream. */
export interface InspectedMessage {
  /** In: from the caller. */
  readonly direction: 'in' | 'out'
  /** Ms after the exchange began. */
  readonly at: number
  readonly kind: 'text' | 'binary' | 'close' | 'event'
  readonly bytes: number
  readonly truncated: boolean
  readonly text?: string | undefined
  readonly base64?: string | undefined
  readonly omitted?: string | undefined
}

/** Names and values in the order in which they came. */
export type InspectedFields = readonly (readonly [name: string, value: string])[]

/** One exchange in full. */
export interface InspectedDetail extends InspectedExchange {
  readonly request: { readonly headers: InspectedFields; readonly body: InspectedBody | undefined }
  /** Absent before its head, and where the target did not answer. */
  readonly response:
    | { readonly status: number; readonly headers: InspectedFields; readonly body: InspectedBody | undefined }
    | undefined
  /** The first 50. */
  readonly messages: readonly InspectedMessage[]
  /** There were more, or they took too much room. */
  readonly messagesDropped: boolean
}

/** What the inspector holds, and what it dropped. */
export interface InspectorStats {
  readonly mode: 'heads' | 'bodies'
  readonly exchanges: number
  readonly bytes: number
  /** Replays under way. */
  readonly replays: number
  /** Only grow: exchanges that made room for newer ones, and bytes of bodies that were not kept. */
  readonly droppedExchanges: number
  readonly droppedBytes: number
}

/** What a replay changes. */
export interface ReplayEdits {
  readonly method?: string | undefined
  /** Path and query. */
  readonly path?: string | undefined
  /** By name; null removes the field. */
  readonly headers?: Readonly<Record<string, string | null>> | undefined
  /** In place of the body. */
  readonly body?: string | undefined
}

/** How an exchange is replayed. */
export interface ReplayOptions {
  readonly edits?: ReplayEdits | undefined
  /** Must be set for a method that is not safe (RFC 9110 section 9.2.1): the target may do something twice. Default false. */
  readonly unsafe?: boolean | undefined
}

/** The latest requests that came through the tunnel. */
export interface Inspector {
  /** The newest last. */
  list(): InspectedExchange[]
  /** Undefined if it is not there, or not any more. */
  get(id: string): InspectedDetail | undefined
  /** Calls `listener` when an exchange begins and when it is over. Returns a function that ends this. */
  subscribe(listener: (exchange: InspectedExchange) => void): () => void
  /**
   * Sends the request to the target once more, through the same layers and the same route, and resolves when that exchange is over,
   * after at most a minute. The request carries `sallyport-replay` with the id of the first one. At most 4 at a time, and one per
   * second in the long run.
   *
   * Rejects with TypeError if there is no such exchange, its request was not kept whole, an edit makes no sense or `unsafe` is needed;
   * with SallyportError `overloaded` if there are too many.
   */
  replay(id: string, options?: ReplayOptions): Promise<InspectedDetail>
  stats(): InspectorStats
}
