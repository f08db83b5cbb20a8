/** Bytes that a sender of {@link Transport.pooled} leaves free in front, for the head of a message. */
export const HEADROOM_BYTES = 14

/** What a session needs of its carrier. WebSocket is one; an in-memory pair, for tests and benchmarks, is another. */
export interface Transport {
  /**
   * Sends bytes of the yamux stream, in order. `chunk` must not change until `sent` is called: then the kernel has it and
   * the buffer may be used again. If the transport breaks, `sent` is not called: nobody knows what is still read of it.
   * The transport cuts messages as it likes, each at most 128 KiB.
   */
  bytes(chunk: Uint8Array, sent: () => void): void
  /**
   * As `bytes`, for a buffer of the sender's own which the transport may write into: the bytes from
   * {@link HEADROOM_BYTES} to `end`, at most 128 KiB. Optional; it saves a copy where messages are masked.
   */
  pooled?(buffer: Buffer, end: number, sent: () => void): void
  /** `bytes` copies what it is given, so a sender had better copy into a buffer for `pooled` itself. */
  readonly copies?: boolean
  /** Sends a control message, JSON text of at most 16 KiB, in order with the bytes. */
  control(text: string): void
  /** Closes with a WebSocket close code (RFC 6455 section 7.4) and a reason of at most 123 bytes, after what was sent. */
  close(code: number, reason: string): void
  /** Ends at once. */
  terminate(): void
  /** Address of the peer, for logs. */
  readonly peer: string
  /** Receiver of events; set once, before the first event can arrive. */
  handler: TransportHandler | undefined
}

/** What a {@link Transport} tells its user. */
export interface TransportHandler {
  /** Any cut of the byte stream. The chunk belongs to the receiver. */
  bytes(chunk: Uint8Array): void
  control(text: string): void
  /** Once, last. `error` is absent if the peer closed cleanly (1000 or 1001). */
  closed(code: number, reason: string, error: Error | undefined): void
}
