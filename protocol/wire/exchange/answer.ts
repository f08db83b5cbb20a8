import { ProtocolError } from '../../base/protocol-error.ts'
import type { HeaderList } from '../../exchange.ts'

/** First value of the answering direction of a stream, a varint. */
export const ANSWER = {
  /** A response follows. */
  message: 1,
  /** A refusal code follows, then FIN; nothing was forwarded. */
  refused: 2,
} as const

/** How long an end that answered early continues to read the rest of the request. */
export const EARLY_ANSWER_MS = 5_000

/** Refuses fields of a WebSocket handshake that each hop makes itself, so that no upgrade on the wire may have them. */
export function checkUpgradeFields(headers: HeaderList): void {
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!
    if (name === 'sec-websocket-key' || name === 'sec-websocket-accept' || name === 'sec-websocket-version') {
      throw new ProtocolError(`field ${name} inside the tunnel`)
    }
  }
}
