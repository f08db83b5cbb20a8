/** What the inspector shows of an exchange, as plain JSON values without secrets. */
import type { ErrorCode } from '../../protocol/base/errors.ts'

/** How an exchange spent its time, in ms. A member is absent if the time is not known, or not known yet. */
export interface InspectedTimings {
  /** Wait at the server before this: in its inbox, or for a session. */
  readonly hold?: number | undefined
  /** Until the request was complete, or was given up. Absent if the response began before that, as on a WebSocket. */
  readonly send?: number | undefined
  /** From then on, or from the beginning, until the head of the response, or until the end if there is none. */
  readonly wait?: number | undefined
  /** From the head of the response until its end. */
  readonly receive?: number | undefined
  readonly total?: number | undefined
}

/** One exchange in a list. */
export interface InspectedExchange {
  /** For `get` and `replay`. It means nothing after a restart. */
  readonly id: string
  /** ISO 8601. */
  readonly started: string
  readonly state: 'open' | 'done'
  readonly method: string
  readonly scheme: 'http' | 'https'
  /** Host that the caller asked for. */
  readonly host: string
  /** With the query, redacted. */
  readonly path: string
  readonly caller: string
  readonly requestId: string
  readonly runtime: string | undefined
  readonly session: string | undefined
  /** Name of the route, if a router took the request. */
  readonly route: string | undefined
  /** How often the server has tried this exchange before; 0 for the first time. */
  readonly attempt: number
  /** Id of the webhook, if the server's inbox delivered it. */
  readonly inboxId: string | undefined
  /** The exchange that this one repeats. */
  readonly replayOf: string | undefined
  readonly upgrade: boolean
  /** 0 until the response has begun. */
  readonly status: number
  /** Error code, if the answer did not come from the target. */
  readonly code: ErrorCode | undefined
  /** The response began and was cut off, by us or by the target. A caller that leaves cuts nothing. */
  readonly cut: boolean
  /** Bytes of the bodies, or of an upgraded connection: in from the caller, out to it. */
  readonly bytesIn: number
  readonly bytesOut: number
  readonly timings: InspectedTimings
  /** Whether {@link Inspector.replay} can repeat it. */
  readonly replayable: boolean
}

/** A body, or the beginning of a long one. In the mode `heads`, bodies are only counted. */
export interface InspectedBody {
  /** Size as transferred. */
  readonly bytes: number
  /** Size without content encoding. Absent if that is not known. */
  readonly decodedBytes?: number | undefined
  /** Whether only a part is shown. */
  readonly truncated: boolean
  /** The body, decoded and redacted: text, or base64 if it is not UTF-8. */
  readonly text?: string | undefined
  readonly base64?: string | undefined
  /** Why there is neither. */
  readonly omitted?: string | undefined
}

/** A message of a WebSocket, or an event of an event stream. */
export interface InspectedMessage {
  /** `in` is from the caller. */
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

/** Names and values in their original order. */
export type InspectedFields = readonly (readonly [name: string, value: string])[]

/** One exchange in full. */
export interface InspectedDetail extends InspectedExchange {
  readonly request: { readonly headers: InspectedFields; readonly body: InspectedBody | undefined }
  /** Absent before the head of the response, and if the target did not answer. */
  readonly response:
    | { readonly status: number; readonly headers: InspectedFields; readonly body: InspectedBody | undefined }
    | undefined
  /** The first 50 messages. */
  readonly messages: readonly InspectedMessage[]
  /** Whether some were dropped: there were more, or they were too large. */
  readonly messagesDropped: boolean
}

/** What the inspector keeps, and what it has dropped. */
export interface InspectorStats {
  readonly mode: 'heads' | 'bodies'
  readonly exchanges: number
  readonly bytes: number
  /** Replays in progress. */
  readonly replays: number
  /** Counters: exchanges that made room for newer ones, and bytes of bodies that were not kept. */
  readonly droppedExchanges: number
  readonly droppedBytes: number
}

/** What a replay changes in the request. */
export interface ReplayEdits {
  readonly method?: string | undefined
  /** Path and query. */
  readonly path?: string | undefined
  /** Fields to set by name; null removes a field. */
  readonly headers?: Readonly<Record<string, string | null>> | undefined
  /** Replaces the body. */
  readonly body?: string | undefined
}

/** Options of a replay. */
export interface ReplayOptions {
  readonly edits?: ReplayEdits | undefined
  /** Must be set for a method that is not safe (RFC 9110 section 9.2.1): the target may act on the request twice. Default false. */
  readonly unsafe?: boolean | undefined
}

/** The latest requests that came through the tunnel. */
export interface Inspector {
  /** All exchanges that are kept, newest last. */
  list(): InspectedExchange[]
  /** Undefined if there is no such exchange, or no longer. */
  get(id: string): InspectedDetail | undefined
  /** Calls `listener` when an exchange begins and when it ends. Returns a function that unsubscribes. */
  subscribe(listener: (exchange: InspectedExchange) => void): () => void
  /**
   * Sends the request to the target again, through the same layers and the same route, and resolves when that exchange has
   * ended, after at most a minute. The request carries `sallyport-replay` with the id of the original exchange. At most 4
   * replays run at a time, and one per second in the long run.
   *
   * Rejects with TypeError if there is no such exchange, its request was not kept in full, an edit is not valid, or `unsafe` is
   * needed; with SallyportError `overloaded` if there are too many replays.
   */
  replay(id: string, options?: ReplayOptions): Promise<InspectedDetail>
  stats(): InspectorStats
}
