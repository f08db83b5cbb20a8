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
  bytes: Buffer
  length: number
  headers: HeaderList
}

/** At most 64 sections, 32 KiB; a new one takes the place of another of its length. */
export class SeenSections {
  readonly #places: (Seen | undefined)[] = new Array(PLACES).fill(undefined)

  /** As {@link decodeSection}; the list is the caller's own. */
  decode(bytes: Uint8Array, at: number, end: number): HeaderList {
    const length = end - at
    if (length > MAX_BYTES) return decodeSection(bytes, at, end)
    const seen = this.#places[length % PLACES]
    if (seen?.length === length && seen.bytes.compare(bytes, at, end, 0, length) === 0) return seen.headers.slice()
    const headers = decodeSection(bytes, at, end)
    this.#add(bytes, at, end, headers)
    return headers
  }

  #add(bytes: Uint8Array, at: number, end: number, headers: HeaderList): void {
    const place = (end - at) % PLACES
    this.#places[place] ??= { bytes: Buffer.allocUnsafeSlow(MAX_BYTES), length: 0, headers }
    const seen = this.#places[place]
    seen.bytes.set(bytes.subarray(at, end))
    seen.length = end - at
    seen.headers = headers.slice()
  }
}
