/** Caches encoded response heads. For a list of the same strings, a comparison of each replaces the encoding. */
import type { HeaderList } from '../exchange.ts'

const PLACES = 64
/** Longer ones rarely repeat. */
const MAX_CHARS = 1024

interface Seen {
  readonly headers: HeaderList
  readonly about: number
  readonly bodyBytes: number
  readonly date: string
  readonly text: string
}

/** Caches at most 64 heads of up to 1,024 characters. A new one may replace another. */
export class HeadCache {
  readonly #places: (Seen | undefined)[] = new Array(PLACES).fill(undefined)

  /** The cached text for a list of the same strings, if everything else that it depends on is the same. */
  find(headers: HeaderList, about: number, bodyBytes = 0, date = ''): string | undefined {
    const seen = this.#places[placeOf(headers, about)]
    if (seen === undefined || seen.about !== about || seen.bodyBytes !== bodyBytes || seen.date !== date)
      return undefined
    const length = headers.length
    if (seen.headers.length !== length) return undefined
    for (let i = 0; i < length; i++) if (seen.headers[i] !== headers[i]) return undefined
    return seen.text
  }

  /** Returns `text`. */
  keep(text: string, headers: HeaderList, about: number, bodyBytes = 0, date = ''): string {
    if (text.length <= MAX_CHARS)
      this.#places[placeOf(headers, about)] = { headers: headers.slice(), about, bodyBytes, date, text }
    return text
  }
}

function placeOf(headers: HeaderList, about: number): number {
  return ((headers.length >> 1) + about) & (PLACES - 1)
}
