/**
 * QUIC variable-length integers (RFC 9000 section 16), up to 2^53 - 1: the two high bits of the first byte give the
 * length. We write the shortest form and read any, as Binary HTTP does.
 */

export const MAX_VARINT = Number.MAX_SAFE_INTEGER

const ONE_BYTE = Array.from({ length: 64 }, (_, value) => String.fromCharCode(value))

/**
 * The shortest encoding of `value` as a latin1 string, one character per byte. Heads are built as strings and become bytes in
 * a single call, which is several times as fast as writing each field into a buffer.
 */
export function varintText(value: number): string {
  if (value < 0x40) return ONE_BYTE[value] ?? longText(value)
  if (value < 0x4000) return String.fromCharCode(0x40 | (value >>> 8), value & 0xff)
  if (value < 0x40000000) {
    return String.fromCharCode(0x80 | (value >>> 24), (value >>> 16) & 0xff, (value >>> 8) & 0xff, value & 0xff)
  }
  return longText(value)
}

function longText(value: number): string {
  if (!Number.isSafeInteger(value) || value < 0) throw new TypeError(`varint out of range: ${value}`)
  const high = Math.floor(value / 0x100000000)
  return String.fromCharCode(0xc0 | (high >>> 24), (high >>> 16) & 0xff, (high >>> 8) & 0xff, high & 0xff).concat(
    String.fromCharCode((value >>> 24) & 0xff, (value >>> 16) & 0xff, (value >>> 8) & 0xff, value & 0xff),
  )
}

/** Length of {@link varintText} of `value`. */
export function varintLength(value: number): number {
  return value < 0x40 ? 1 : value < 0x4000 ? 2 : value < 0x40000000 ? 4 : 8
}

/** Length of the varint that begins with `firstByte`: 1, 2, 4 or 8. */
export function varintSize(firstByte: number): number {
  return 1 << (firstByte >>> 6)
}

/**
 * Reads the varint at `at`. All its {@link varintSize} bytes must be there. Values over 2^53 - 1 become `Infinity`, so that
 * every limit refuses them.
 */
export function readVarint(bytes: Uint8Array, at: number): number {
  const first = bytes[at]!
  switch (first >>> 6) {
    case 0:
      return first
    case 1:
      return ((first & 0x3f) << 8) | bytes[at + 1]!
    case 2:
      return readUint32(bytes, at) & 0x3fffffff
    default: {
      const value = (readUint32(bytes, at) & 0x3fffffff) * 0x100000000 + readUint32(bytes, at + 4)
      return value > MAX_VARINT ? Number.POSITIVE_INFINITY : value
    }
  }
}

/** Reads the unsigned 32-bit number at `at`. */
export function readUint32(bytes: Uint8Array, at: number): number {
  return ((bytes[at]! << 24) | (bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!) >>> 0
}
