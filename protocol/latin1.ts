/** The bytes from `at` to `end`, one character a byte. */
export function latin1(bytes: Uint8Array, at = 0, end = bytes.length): string {
  const buffer = bytes instanceof Buffer ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  return buffer.toString('latin1', at, end)
}
