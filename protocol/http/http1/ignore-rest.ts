/** Ends what a connection of `node:http` has to say. */
import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'

/** A socket of `node:http`, or a stream that an embedder has injected. */
export interface NodeSocket extends Duplex {
  readonly parser?: NodeParser | null
  /** An injected stream has no such method. */
  setTimeout?(ms: number): unknown
}

/** What Node's parser calls with the head of each request. */
interface NodeParser {
  onIncoming: (request: IncomingMessage) => number
}

/** Node reads on, so that it notices a caller that leaves, but emits no further request of the connection. */
export function ignoreRest(socket: NodeSocket): void {
  if (socket.parser) socket.parser.onIncoming = ignoreRequest
  else socket.destroy()
}

function ignoreRequest(request: IncomingMessage & { upgrade?: boolean }): number {
  request.upgrade = false
  request.resume()
  return 0
}
