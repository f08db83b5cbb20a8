/** Caches what was parsed from bytes. Most services begin every answer alike, and then parsing costs only one comparison. */
import { Buffer } from 'node:buffer'

const PLACES = 64
/** Longer ones rarely repeat. */
const MAX_BYTES = 512

interface Seen<T> {
  readonly bytes: Buffer
  readonly length: number
  readonly value: T
}

/** Caches values for at most 64 byte strings of up to 512 bytes. A new one replaces another of the same length. */
export class ByteCache<T> {
  readonly #places: (Seen<T> | undefined)[] = new Array(PLACES).fill(undefined)

  /** The cached value for these bytes. It is shared, so the caller must not change it. */
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
