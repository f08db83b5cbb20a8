/** What a server tells its embedder, as typed events. */
import type { HandshakeRefusal } from './control/handshake.ts'
import type { SessionInfo } from './stats.ts'

/** Events of a server, by name; see `server.on`. */
export interface ServerEvents {
  /** A client said hello. */
  session: SessionInfo
  /** Its session may now carry traffic. */
  ready: SessionInfo
  sessionEnded: SessionInfo & { readonly reason: string }
  /** A client was not let in. `detail` is for logs: it is never told to the client. */
  refused: HandshakeRefusal
}
