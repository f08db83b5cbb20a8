import type { SallyportError } from '../../base/errors.ts'
import type { LimitOptions } from '../../base/limit.ts'
import type { Logger } from '../../base/log.ts'
import type { BufferBudget } from './budget.ts'
import type { Clock } from './clock.ts'
import type { SESSION_LIMITS } from './limits.ts'
import type { BufferPool } from './pool.ts'
import type { RuntimeCeilings } from './runtime-ceilings.ts'
import type { Stream } from './stream.ts'

/**
 * Many streams over one {@link Transport}. Neither the peer's bytes nor a closed transport make it throw: whatever is
 * wrong ends the session, and `onClose` says why. Made by {@link createSession}.
 */
export interface Session {
  /** Streams that are open, of both ends. */
  readonly streams: number
  /** Smoothed round trip; 0 before the first ping was answered. */
  readonly rttMs: number
  /** Streams that are over but whose bytes still wait for their receivers. */
  readonly streamsOver: number
  /** Bytes held for receivers, over all streams, including those that are over. */
  readonly bufferedBytes: number
  /** Bytes received so far. */
  readonly bytesIn: number
  /** Bytes handed to the transport so far. */
  readonly bytesOut: number
  /** True after `close`, `destroy` or the loss of the transport. */
  readonly closed: boolean
  /** Whether `open` would give a stream now. */
  readonly canOpen: boolean
  /** The transport's name for the other end, for logs. */
  readonly peer: string
  /** Whether an answer of the peer is overdue: to a ping, or the acknowledgement of a stream. */
  readonly overdue: boolean

  /** Opens a stream. SYN rides on its first frame. Throws `overloaded` at a limit or if the session is closing. */
  open(): Stream
  /** Sends a control message after the frames that may leave now. */
  control(message: object): void
  /** Measures a round trip. The callback is dropped if the session ends before. */
  ping(callback: (rttMs: number) => void): void
  /** Tells the peer by yamux go-away to open no more streams. Those that it opens are refused. */
  goAway(): void
  /** Asks the handlers of open streams to finish what would go on for ever, such as an upgraded WebSocket. */
  leave(): void
  /** As `leave`, for one stream. */
  leaveStream(id: number): void
  /**
   * What both ends agreed on: the window of streams opened from now on, clamped to 4 to 256 KiB on either side, and how many
   * streams at a time the peer takes, acknowledged or not.
   */
  setPeerLimits(limits: { windowBytes?: number | undefined; streams?: number | undefined }): void
  /** Sends what is queued, then closes. Streams that are still open are lost. `code` is a WebSocket close code. */
  close(reason: string, code?: number): void
  /** Ends at once, without telling the peer. */
  destroy(error: SallyportError): void
}

/** The role of a {@link Session}, its callbacks, and its bounds. */
export interface SessionOptions extends LimitOptions<typeof SESSION_LIMITS> {
  /** The tunnel client is `client` (odd ids), the tunnel server `server` (even ids). */
  readonly role: 'client' | 'server'
  /** A stream that the peer opened; set `stream.handler` before returning. Absent: such streams are refused. */
  readonly onStream?: ((stream: Stream) => void) | undefined
  /** Control messages other than `reset`, which the session handles itself. */
  readonly onControl?: ((text: string) => void) | undefined
  /** Called once, and last. `error` is absent if either end closed the session properly. */
  readonly onClose?: ((error: SallyportError | undefined, reason: string) => void) | undefined
  /** The peer takes no new streams. */
  readonly onGoAway?: (() => void) | undefined
  /** The last open stream has ended in both directions. */
  readonly onIdle?: (() => void) | undefined
  /** The limit on open streams was reached, and now there is room for another. Called in a microtask of its own. */
  readonly onRoom?: (() => void) | undefined
  /** Stream ids are running out: the session should be drained and replaced. Called once. */
  readonly onIdsLow?: (() => void) | undefined
  /**
   * The peer pings as often as we would: its pings keep the session alive, and ours go out only when one is overdue.
   * Default false.
   */
  readonly awaitsPings?: boolean | undefined
  /** Shared by the sessions of a process. Default: one of 256 MiB for this session alone. */
  readonly processBudget?: BufferBudget | undefined
  /** Set for a session that serves many runtimes; shared by all such sessions. */
  readonly runtimeCeilings?: RuntimeCeilings | undefined
  /** Shared by the sessions of a process. Default: one for this session alone. */
  readonly pool?: BufferPool | undefined
  readonly logger?: Logger | undefined
  readonly clock?: Clock | undefined
  /** First stream id of this end; tests of the end of ids set it. */
  readonly firstId?: number | undefined
}
