/** The events of a server, for its embedder. */
import type { HandshakeRefusal } from './control/handshake.ts'
import type { SessionInfo } from './stats.ts'

/** Events of a server, by name; see `server.on`. */
export interface ServerEvents {
  /** A client has authenticated and sent `hello`. */
  session: SessionInfo
  /** The session may carry traffic from now on. */
  ready: SessionInfo
  sessionEnded: SessionInfo & { readonly reason: string }
  /** A client was refused. `detail` is for logs; the client never sees it. */
  refused: HandshakeRefusal
}
