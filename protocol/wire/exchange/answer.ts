import { ProtocolError } from '../../base/protocol-error.ts'
import type { HeaderList } from '../../exchange.ts'

/** What the answering direction of a stream begins with, a varint. */
export const ANSWER = {
  /** A response follows. */
  message: 1,
  /** A refusal code follows, then FIN; nothing was forwarded. */
  refused: 2,
} as const

/** How long an end that answered early goes on taking the rest of the request. */
export const EARLY_ANSWER_MS = 5_000

/** Each hop makes these fields of a WebSocket handshake itself, so no upgrade on the wire has them. */
export function checkUpgradeFields(headers: HeaderList): void {
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!
    if (name === 'sec-websocket-key' || name === 'sec-websocket-accept' || name === 'sec-websocket-version') {
      throw new ProtocolError(`field ${name} inside the tunnel`)
    }
  }
}
