/** The handle that {@link connect} returns, and its events. */
import type { Inspector } from './inspect/inspected.ts'
import type { ClientOptions } from './options.ts'
import type { SessionState } from './session.ts'

/** Events of a tunnel, by name; see `tunnel.on` and the option `on`. */
export interface TunnelEvents {
  /** A session is in service. */
  connected: { connection: number; session: string; replica: string; runtime: string }
  /** A session that was in service has ended; `reason` in words. */
  disconnected: { connection: number; session: string; reason: string }
  /** The server asked us to leave a session: a new one is opened, then this one is left. */
  draining: { connection: number; session: string; reason: string }
  /** This instance was given the traffic of its runtime, or stands by for the one that has it. */
  standing: { epoch: number; active: boolean }
  /** There is no session on this connection: another attempt comes in `inMs`. */
  reconnecting: { connection: number; inMs: number; reason: string }
  /** The server refused the client. Attempts continue, slowly. `status` is 0 if the server ended a live session. */
  refused: { connection: number; reason: string; status: number; requestId: string | undefined }
}

/** One session of a tunnel with a server. */
export interface SessionStats {
  readonly connection: number
  readonly session: string
  readonly replica: string
  readonly peer: string
  readonly state: SessionState
  /** Ms since 1970. */
  readonly openedMs: number
  readonly rttMs: number
  readonly streams: number
  readonly bufferedBytes: number
  readonly bytesIn: number
  readonly bytesOut: number
}

/** One connection of a tunnel: it keeps one session in service, and dials again when that ends. */
export interface ConnectionStats {
  readonly connection: number
  /** Connection attempts so far. */
  readonly attempts: number
  /** Why the last attempt or session failed, in words, and when (ms since 1970). */
  readonly lastError: string | undefined
  readonly lastErrorMs: number | undefined
}

/** The state of a tunnel, for metrics and status pages. */
export interface TunnelStats {
  /** Name of this running client. */
  readonly instance: string
  /** Of the token, as the server read it; '' before the first session. */
  readonly runtime: string
  /** The epoch that it holds; 0 before the first. */
  readonly epoch: number
  /** Whether this instance gets the traffic; false for a standby. */
  readonly active: boolean
  /** As `Tunnel.ready`. */
  readonly ready: boolean
  readonly sessions: readonly SessionStats[]
  readonly connections: readonly ConnectionStats[]
  /** Sessions that came into service after the first of their connection. */
  readonly reconnects: number
  readonly exchanges: { readonly live: number; readonly total: number }
  /** When the token at hand ends, ms since 1970. */
  readonly tokenExpiresMs: number | undefined
}

/** How a tunnel is closed. */
export interface CloseOptions {
  /** How long open exchanges may continue, at most a day; 0: not at all. Default 30000. */
  readonly graceMs?: number | undefined
}

/** A running client. */
export interface Tunnel extends AsyncDisposable {
  on<Name extends keyof TunnelEvents>(name: Name, listener: (event: TunnelEvents[Name]) => void): void
  off<Name extends keyof TunnelEvents>(name: Name, listener: (event: TunnelEvents[Name]) => void): void
  /** Settles with the first session. Rejects if the tunnel is closed before. */
  connected(): Promise<void>
  /** Where callers reach the runtime, as the server told it; undefined before the first session, or where it does not know. */
  readonly url: string | undefined
  /** Whether an echo has crossed a live session that takes traffic. */
  ready(): boolean
  stats(): TunnelStats
  /** What came down the tunnel of late; undefined unless the option `inspect` asks for it. */
  readonly inspector: Inspector | undefined
  /**
   * Puts this token in force; live sessions send it in band, and a connection that waits tries again at once. A `token`
   * that is a function is asked again when this one is near its end. Throws TypeError for what is no token, and keeps the old
   * one.
   */
  setToken(token: string): void
  /** Asks the token's source now; as {@link Tunnel.setToken} if it gives another one. */
  refreshToken(): Promise<void>
  /**
   * Authorities and client certificate for every dial from now on, in place of those of the options; a connection that
   * waits tries again at once. Throws, and keeps the old ones, if a PEM is not readable.
   */
  setTrust(trust: Pick<ClientOptions, 'ca' | 'tls'>): void
  /** Takes no new exchanges, lets open ones finish, and closes. A later call may shorten the grace. */
  close(options?: CloseOptions): Promise<void>
}
