/** Frames of HTTP/2 and its error codes (RFC 9113 sections 4.1, 6 and 7). */

export const FRAME = {
  data: 0,
  headers: 1,
  priority: 2,
  rstStream: 3,
  settings: 4,
  pushPromise: 5,
  ping: 6,
  goaway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const

export const FLAG = { endStream: 1, ack: 1, endHeaders: 4, padded: 8, priority: 32 } as const

export const CODE = {
  noError: 0,
  protocol: 1,
  internal: 2,
  flowControl: 3,
  streamClosed: 5,
  frameSize: 6,
  refusedStream: 7,
  cancel: 8,
  compression: 9,
  enhanceYourCalm: 11,
} as const

export const FRAME_HEADER_BYTES = 9
/** The largest payload of a frame that every peer accepts. We neither send nor accept larger ones. */
export const MAX_FRAME_BYTES = 16_384
/** Windows of a new connection and its streams (section 6.9.2), and the largest ones (6.9.1). */
export const DEFAULT_WINDOW_BYTES = 65_535
export const LARGEST_WINDOW_BYTES = 2 ** 31 - 1
export const LAST_STREAM_ID = 2 ** 31 - 1

export const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'

/** The peer broke a rule of the whole connection, which ends with `code` (section 5.4.1). */
export class ConnectionError extends Error {
  readonly code: number

  constructor(code: number, message: string) {
    super(message)
    this.code = code
  }
}

/** A frame that may not come, or not now. */
export function unexpected(what: string): ConnectionError {
  return new ConnectionError(CODE.protocol, what)
}

/** The header of a frame, as latin1 text: what is sent is text until it is written to the socket. */
export function frameHeader(bytes: number, type: number, flags: number, id: number): string {
  return String.fromCharCode((bytes >>> 16) & 255, (bytes >>> 8) & 255, bytes & 255, type, flags) + uint32(id)
}

export function uint32(value: number): string {
  return String.fromCharCode(value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255)
}

export function uint32At(bytes: Uint8Array, at: number): number {
  return ((bytes[at]! << 24) | (bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!) >>> 0
}
