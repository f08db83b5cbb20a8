/** The handle that {@link connect} returns, and its events. */
import type { Inspector } from './inspect/inspected.ts'
import type { ClientOptions } from './options.ts'
import type { SessionState } from './session.ts'

/** Events of a tunnel, by name; see `tunnel.on` and the option `on`. */
export interface TunnelEvents {
  /** A session is in service. */
  connected: { connection: number; session: string; replica: string; runtime: string }
  /** A session that was in service has ended. `reason` says why, in words. */
  disconnected: { connection: number; session: string; reason: string }
  /** The server asked us to leave a session. A new one is opened, and then this one is left. */
  draining: { connection: number; session: string; reason: string }
  /** This instance became active, which means that it gets the traffic of its runtime, or became a standby. */
  standing: { epoch: number; active: boolean }
  /** There is no session on this connection. The next attempt follows in `inMs`. */
  reconnecting: { connection: number; inMs: number; reason: string }
  /** The server refused the client. Attempts continue at a slow rate. `status` is 0 if the server ended a live session. */
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
  /** Runtime of the token, as the server read it; `''` before the first session. */
  readonly runtime: string
  /** Epoch of this instance; 0 before the first. */
  readonly epoch: number
  /** Whether this instance gets the traffic; false for a standby, and without a session. */
  readonly active: boolean
  /** Same as `Tunnel.ready()`. */
  readonly ready: boolean
  readonly sessions: readonly SessionStats[]
  readonly connections: readonly ConnectionStats[]
  /** Sessions that came into service after their connection had lost one, not those that the client left another one for. */
  readonly reconnects: number
  readonly exchanges: { readonly live: number; readonly total: number }
  /** Bytes of the bodies of requests and responses since the start, also of open ones. Counted only with `onExchange`. */
  readonly bodyBytesIn: number
  readonly bodyBytesOut: number
  /** When the token in force expires, ms since 1970: the one that was accepted last, if the latest is refused. */
  readonly tokenExpiresMs: number | undefined
}

/** Options of `Tunnel.close`. */
export interface CloseOptions {
  /** How long open exchanges may continue, at most a day. 0: not at all. Default 30000. */
  readonly graceMs?: number | undefined
}

/** A running client. */
export interface Tunnel extends AsyncDisposable {
  on<Name extends keyof TunnelEvents>(name: Name, listener: (event: TunnelEvents[Name]) => void): void
  off<Name extends keyof TunnelEvents>(name: Name, listener: (event: TunnelEvents[Name]) => void): void
  /** Resolves with the first session. Rejects if the tunnel is closed before that. */
  connected(): Promise<void>
  /** URL at which callers reach the runtime, from the server. Undefined before the first session, or if the server does not know it. */
  readonly url: string | undefined
  /**
   * Whether this instance takes traffic, or is a standby: a live session has answered a ping, and its server knows the instance. While the
   * directory of several servers is away, a new instance is not ready.
   */
  ready(): boolean
  stats(): TunnelStats
  /** The latest exchanges of the tunnel. Undefined unless the option `inspect` is set. */
  readonly inspector: Inspector | undefined
  /**
   * Replaces the token. Live sessions send the new one in band, and a connection that waits tries again at once. If the
   * option `token` is a function, it is called again when this token is near its expiry. Throws TypeError if `token` cannot be
   * a token, and keeps the old one.
   */
  setToken(token: string): void
  /** Asks the source of the token now. A different token takes effect as with {@link Tunnel.setToken}. */
  refreshToken(): Promise<void>
  /**
   * Replaces authorities and client certificate for every dial from now on. A connection that waits tries again at once.
   * Throws if a PEM cannot be read, and keeps the old ones.
   */
  setTrust(trust: Pick<ClientOptions, 'ca' | 'tls'>): void
  /**
   * Call it after rules of the target have changed, such as after `reload` of a router. If the inbox rules differ from what the server
   * knows, each session is replaced by a new one, and open exchanges have a minute to end. While some of them are still open, the next
   * change waits up to 20 s (`backoff.moveMs`), or longer if the server could not be reached. CORS rules cut nobody: the server, which
   * uses them only for its own error responses, learns them with the next session.
   */
  republish(): void
  /** Stops taking new exchanges, lets open ones finish, and closes. A later call may shorten the grace. */
  close(options?: CloseOptions): Promise<void>
}
