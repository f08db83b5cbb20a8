/**
 * The yamux frame, according to https://github.com/hashicorp/yamux/blob/master/spec.md. All numbers are big endian.
 *
 *      0        1        2                 4                          8                         12
 *     +--------+--------+-----------------+--------------------------+-------------------------+
 *     | version|  type  |      flags      |        stream id         |         length          |
 *     |   0    | 0 to 3 | SYN ACK FIN RST |  0: the session itself   |                         |
 *     +--------+--------+-----------------+--------------------------+-------------------------+
 *
 * `length` is, by type: data, the bytes of payload that follow; window update, the credit given; ping, an opaque value
 * that the answer repeats; go-away, a reason.
 */
export const HEADER_BYTES = 12
export const VERSION = 0

export const FrameType = { data: 0, windowUpdate: 1, ping: 2, goAway: 3 } as const
export type FrameType = (typeof FrameType)[keyof typeof FrameType]

export const Flag = { syn: 1, ack: 2, fin: 4, rst: 8 } as const
export const ALL_FLAGS = 15

export const GoAwayCode = { normal: 0, protocolError: 1, internalError: 2 } as const
export type GoAwayCode = (typeof GoAwayCode)[keyof typeof GoAwayCode]

/** The window that every stream begins with, unless both ends agreed on another. */
export const SPEC_WINDOW_BYTES = 256 * 1024

/** Writes one header at `offset`; the caller has made room for {@link HEADER_BYTES}. */
export function writeHeader(
  buffer: Uint8Array,
  offset: number,
  type: FrameType,
  flags: number,
  id: number,
  length: number,
): void {
  buffer[offset] = VERSION
  buffer[offset + 1] = type
  buffer[offset + 2] = flags >>> 8
  buffer[offset + 3] = flags
  buffer[offset + 4] = id >>> 24
  buffer[offset + 5] = id >>> 16
  buffer[offset + 6] = id >>> 8
  buffer[offset + 7] = id
  buffer[offset + 8] = length >>> 24
  buffer[offset + 9] = length >>> 16
  buffer[offset + 10] = length >>> 8
  buffer[offset + 11] = length
}
