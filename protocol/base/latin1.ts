/** Bytes as latin1 strings, one character per byte. Heads are built and parsed as strings, which is faster than in place. */
import { Buffer } from 'node:buffer'

/** The methods behind `toString` and `write` of a Buffer, without their look-up of the encoding. */
interface Latin1 {
  latin1Slice(start: number, end: number): string
  latin1Write(text: string, at: number, length: number): number
}

/** The bytes from `at` to `end`. */
export function latin1(bytes: Uint8Array, at = 0, end = bytes.length): string {
  const buffer = bytes instanceof Buffer ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  return (buffer as unknown as Latin1).latin1Slice(at, end)
}

/**
 * A copy of `text`, which is latin1. V8 keeps all of a text alive as long as any part of it that was cut out, so what outlives its request,
 * such as the key of a quota, would keep the whole head.
 */
export function ownText(text: string): string {
  return latin1(Buffer.from(text, 'latin1'))
}

/** Up to this length, a native call would cost more than a loop. */
const SHORT_CHARS = 8

/** Writes `text` at `at`. There must be room for it. */
export function writeLatin1(target: Buffer, text: string, at: number): void {
  if (text.length > SHORT_CHARS) (target as unknown as Latin1).latin1Write(text, at, text.length)
  else for (let i = 0; i < text.length; i++) target[at + i] = text.charCodeAt(i)
}
