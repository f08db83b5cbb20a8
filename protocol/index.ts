/**
 * The wire protocol, for writing a client or server of your own: sessions and streams over a transport, exchanges on
 * streams, control messages, preambles. SPEC.md specifies the bytes.
 *
 * @example
 * ```ts
 * import { acceptExchange, createSession, type ExchangeHandler, parseControl, type Transport } from 'sallyport/protocol'
 *
 * function serve(transport: Transport, answer: ExchangeHandler) {
 *   return createSession(transport, {
 *     role: 'client',
 *     onControl: text => console.log(parseControl(text)?.type),
 *     onStream: stream => acceptExchange(stream, answer),
 *   })
 * }
 * ```
 */

export { type BufferBudget, createBufferBudget } from './base/budget.ts'
export { ERRORS, type ErrorCode, type ErrorSource, SallyportError, toSallyportError } from './base/errors.ts'
export { discarding } from './base/guard.ts'
export { type Logger, noLogger } from './base/log.ts'
export { ProtocolError } from './base/protocol-error.ts'
export {
  BODY_UNKNOWN,
  type Caller,
  type ExchangeNotes,
  type ExchangeRecord,
  type Handler,
  type HeaderList,
  type HttpRequest,
  type RequestSink,
  type ResponseHead,
  type ResponseSink,
} from './exchange.ts'
export { compose, type Layer, PassThrough } from './layer.ts'
export {
  type Bye,
  CONNECT_PATH,
  type ControlMessage,
  type CorsRule,
  commonFeatures,
  type Drain,
  type Drained,
  type Hello,
  type InboxRule,
  MAX_CONTROL_BYTES,
  MINOR_VERSION,
  type Notice,
  type PeerLimits,
  parseControl,
  type Ready,
  type Reauth,
  type ReauthOk,
  type ReauthRefused,
  type Reset,
  SUBPROTOCOL,
  type UnknownCount,
  type Welcome,
} from './wire/control.ts'
export { acceptExchange, type ExchangeHandler } from './wire/exchange/accept.ts'
export { type OpenOptions, openExchange } from './wire/exchange/open.ts'
export { REFUSALS, type RefusalCode, RefusedError } from './wire/exchange/refusal.ts'
export type { Preamble } from './wire/preamble.ts'
export { STREAM_KIND, type StreamKind } from './wire/stream-kinds.ts'
export { MAX_MESSAGE_BYTES, type Transport, type TransportHandler } from './wire/transport.ts'
export { memoryPair } from './wire/transport-memory.ts'
export { type OpenWebSocket, webSocketTransport } from './wire/transport-websocket.ts'
export type { Session, SessionOptions } from './wire/yamux/session.ts'
export { RESET_CODES, type ResetCode, type Stream, type StreamHandler } from './wire/yamux/stream.ts'
export { createSession } from './wire/yamux/yamux-session.ts'
