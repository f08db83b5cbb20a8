/** Bytes that the caller of {@link Transport.pooled} leaves free at the start, for the head of a message. */
export const HEADROOM_BYTES = 14

/** The largest message of yamux bytes. */
export const MAX_MESSAGE_BYTES = 128 * 1024
/** Options of the WebSocket at both ends. An incomplete message waits in as many chunks as it was read in. */
export const WEBSOCKET_OPTIONS = {
  perMessageDeflate: false,
  maxPayload: MAX_MESSAGE_BYTES,
  maxFragments: 16,
  maxBufferedChunks: 1024,
} as const

/** Close codes of WebSocket (RFC 6455 section 7.4), and ours from 4000 on. */
export const CLOSE = {
  normal: 1000,
  goingAway: 1001,
  protocolError: 1002,
  /** Never sent. It means that no Close frame arrived. */
  abnormal: 1006,
  tryLater: 1013,
  /** The token has expired or was revoked. */
  refused: 4401,
} as const

/** What a session needs to run on: a WebSocket or, for tests and benchmarks, an in-memory pair. */
export interface Transport {
  /**
   * Sends yamux bytes, in order. `chunk` must not change until `sent` is called. Then the kernel has it, and the buffer may be
   * reused. If the transport breaks, `sent` is not called, since the kernel may still read the buffer. The transport may split
   * the bytes into messages as it likes, each at most {@link MAX_MESSAGE_BYTES}.
   */
  bytes(chunk: Uint8Array, sent: () => void): void
  /**
   * Like `bytes`, for a buffer that the transport may write into. Sends the bytes from {@link HEADROOM_BYTES} to `end`, at most
   * {@link MAX_MESSAGE_BYTES}. Optional. It saves a copy if messages are masked.
   */
  pooled?(buffer: Buffer, end: number, sent: () => void): void
  /** Whether `bytes` copies its chunk. If so, a sender should copy into a buffer for `pooled` instead. */
  readonly copies?: boolean
  /** Sends a control message, JSON text of at most 16 KiB, in order with the bytes. */
  control(text: string): void
  /** Closes with a WebSocket close code (RFC 6455 section 7.4) and a reason of at most 123 bytes, after what was sent. */
  close(code: number, reason: string): void
  /** Closes at once, without a Close frame. */
  terminate(): void
  /** Address of the peer, for logs. */
  readonly peer: string
  /** Receiver of events; set once, before the first event can arrive. */
  handler: TransportHandler | undefined
}

/** Receives the events of a {@link Transport}. */
export interface TransportHandler {
  /** The next yamux bytes, split anywhere. The chunk belongs to the receiver. */
  bytes(chunk: Uint8Array): void
  control(text: string): void
  /** Called once, as the last event. `error` is undefined if the peer closed cleanly (1000 or 1001). */
  closed(code: number, reason: string, error: Error | undefined): void
}
