/**
 * Field sections of responses that were read not long ago. Most services say the same with every answer, but for its body, and
 * a section of the same bytes costs one comparison.
 */
import { Buffer } from 'node:buffer'
import type { HeaderList } from '../exchange.ts'
import { decodeSection } from './fields.ts'

/** Longer ones are rarely the same. */
const MAX_BYTES = 512
const PLACES = 64

interface Seen {
  readonly bytes: Buffer
  readonly length: number
  readonly headers: HeaderList
}

/** At most 64 sections, 32 KiB; a new one takes the place of another of its length. */
export class SeenSections {
  readonly #places: (Seen | undefined)[] = new Array(PLACES).fill(undefined)

  /** As {@link decodeSection}; the list is the caller's own. */
  decode(bytes: Uint8Array, at: number, end: number): HeaderList {
    const length = end - at
    if (length > MAX_BYTES) return decodeSection(bytes, at, end)
    const place = length % PLACES
    const seen = this.#places[place]
    if (seen?.length === length && seen.bytes.compare(bytes, at, end, 0, length) === 0) return seen.headers.slice()
    const headers = decodeSection(bytes, at, end)
    const copy = seen?.bytes ?? Buffer.allocUnsafeSlow(MAX_BYTES)
    copy.set(bytes.subarray(at, end))
    this.#places[place] = { bytes: copy, length, headers: headers.slice() }
    return headers
  }
}
