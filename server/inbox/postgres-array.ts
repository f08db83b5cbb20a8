/** Arrays in PostgreSQL's binary format. In the text format, bytes would be hex digits, twice as long. */
import { Buffer } from 'node:buffer'

/** Type codes. They never change. */
const TYPES = { bytea: 17, text: 25 } as const
/** Words of the header: dimensions, whether there are nulls, the type, the length, and the lower bound. */
const HEAD = 5
const WORD_BYTES = 4

export function binaryArray(type: keyof typeof TYPES, items: readonly Uint8Array[]): Buffer {
  const bytes = items.reduce((sum, { length }) => sum + WORD_BYTES + length, HEAD * WORD_BYTES)
  const array = Buffer.allocUnsafe(bytes)
  let at = 0
  const word = (value: number) => {
    at = array.writeInt32BE(value, at)
  }
  for (const value of [1, 0, TYPES[type], items.length, 1]) word(value)
  for (const item of items) {
    word(item.length)
    array.set(item, at)
    at += item.length
  }
  return array
}
