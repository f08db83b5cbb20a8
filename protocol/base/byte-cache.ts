/** What was read of bytes not long ago: most services begin every answer alike, and the same bytes cost one comparison. */
import { Buffer } from 'node:buffer'

const PLACES = 64
/** Longer ones are rarely the same. */
const MAX_BYTES = 512

interface Seen<T> {
  readonly bytes: Buffer
  readonly length: number
  readonly value: T
}

/** What was read of at most 64 byte strings of 512 bytes; a new one takes the place of another of its length. */
export class ByteCache<T> {
  readonly #places: (Seen<T> | undefined)[] = new Array(PLACES).fill(undefined)

  /** What was kept for the same bytes; it is not the caller's own. */
  find(bytes: Uint8Array, at: number, end: number): T | undefined {
    const length = end - at
    const seen = this.#places[length % PLACES]
    if (seen === undefined || seen.length !== length || seen.bytes.compare(bytes, at, end, 0, length) !== 0)
      return undefined
    return seen.value
  }

  keep(bytes: Uint8Array, at: number, end: number, value: T): void {
    const length = end - at
    if (length > MAX_BYTES) return
    const place = length % PLACES
    const copy = this.#places[place]?.bytes ?? Buffer.allocUnsafeSlow(MAX_BYTES)
    copy.set(bytes.subarray(at, end))
    this.#places[place] = { bytes: copy, length, value }
  }
}
