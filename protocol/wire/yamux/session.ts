import type { BufferBudget } from '../../base/budget.ts'
import type { SallyportError } from '../../base/errors.ts'
import type { LimitOptions } from '../../base/limit.ts'
import type { Logger } from '../../base/log.ts'
import type { Clock } from './clock.ts'
import type { SESSION_LIMITS } from './limits.ts'
import type { BufferPool } from './pool.ts'
import type { RuntimeCeilings } from './runtime-ceilings.ts'
import type { Stream } from './stream.ts'

/**
 * Many streams over one {@link Transport}, made by {@link createSession}. Neither the peer's bytes nor a closed transport make it
 * throw. Any error ends the session, and `onClose` gives the reason.
 */
export interface Session {
  /** Open streams of both ends. */
  readonly streams: number
  /** Smoothed round trip; 0 before the first ping is answered. */
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
  /** Whether `open` would succeed now. */
  readonly canOpen: boolean
  /** The transport's name for the other end, for logs. */
  readonly peer: string
  /** Whether the peer is late with the answer to a ping or the acknowledgement of a stream. */
  readonly overdue: boolean
  /** When anything last arrived, by the clock of the session. */
  readonly heardAt: number

  /** Opens a stream. SYN goes with its first frame. Throws `overloaded` at a limit, or if the session is closing. */
  open(): Stream
  /** Sends a control message after the frames that may leave now. */
  control(message: object): void
  /** Measures a round trip. The callback is dropped if the session ends first. */
  ping(callback: (rttMs: number) => void): void
  /** Tells the peer of all streams that were opened, even if nothing else of them can be sent yet. */
  announce(): void
  /** Tells the peer by yamux go-away to open no more streams. Any that it still opens are refused. */
  goAway(): void
  /** Asks the handlers of open streams to finish what could go on forever, such as an upgraded WebSocket. */
  leave(): void
  /** Like `leave`, for one stream. */
  leaveStream(id: number): void
  /**
   * Sets what both ends have agreed on: the window of streams that are opened from now on, clamped to 4 to 256 KiB on either
   * side, and how many streams the peer accepts at a time, acknowledged or not.
   */
  setPeerLimits(limits: { windowBytes?: number | undefined; streams?: number | undefined }): void
  /**
   * Sends what is queued, except on streams that had no room to begin, then closes. Streams that are still open are lost. `code` is
   * a WebSocket close code.
   */
  close(reason: string, code?: number): void
  /** Ends at once, without telling the peer. */
  destroy(error: SallyportError): void
}

/** The role of a {@link Session}, its callbacks, and its limits. */
export interface SessionOptions extends LimitOptions<typeof SESSION_LIMITS> {
  /** The tunnel client is `client` (odd ids), the tunnel server `server` (even ids). */
  readonly role: 'client' | 'server'
  /** The peer opened a stream. Set `stream.handler` before returning. If absent, such streams are refused. */
  readonly onStream?: ((stream: Stream) => void) | undefined
  /** Control messages other than `reset`, which the session handles itself. */
  readonly onControl?: ((text: string) => void) | undefined
  /** Called once, as the last callback. `error` is undefined if either end closed the session properly. */
  readonly onClose?: ((error: SallyportError | undefined, reason: string) => void) | undefined
  /** The peer accepts no new streams. */
  readonly onGoAway?: (() => void) | undefined
  /** The last open stream has ended in both directions. */
  readonly onIdle?: (() => void) | undefined
  /** The limit on open streams was reached, and now there is room for another one. Called in a separate microtask. */
  readonly onRoom?: (() => void) | undefined
  /** Stream ids are running out, so the session should be drained and replaced. Called once. */
  readonly onIdsLow?: (() => void) | undefined
  /**
   * Whether the peer pings as often as we would. Its pings then keep the session alive, and ours are sent only when one is
   * overdue. Default false.
   */
  readonly awaitsPings?: boolean | undefined
  /** Shared by the sessions of a process. Default: one of 256 MiB, only for this session. */
  readonly processBudget?: BufferBudget | undefined
  /** For sessions that serve many runtimes; shared by all of them. */
  readonly runtimeCeilings?: RuntimeCeilings | undefined
  /** Shared by the sessions of a process. Default: one only for this session. */
  readonly pool?: BufferPool | undefined
  readonly logger?: Logger | undefined
  readonly clock?: Clock | undefined
  /** First stream id of this end, for tests of running out of ids. */
  readonly firstId?: number | undefined
}
