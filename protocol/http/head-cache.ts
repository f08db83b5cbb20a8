/** Heads of responses that were written not long ago: a list of the same strings costs one look at each instead of a text. */
import type { HeaderList } from '../exchange.ts'

const PLACES = 64
/** Longer ones are rarely the same. */
const MAX_CHARS = 1024

interface Seen {
  readonly headers: HeaderList
  readonly about: number
  readonly bodyBytes: number
  readonly date: string
  readonly text: string
}

/** At most 64 heads of 1,024 characters; a new one may take the place of another. */
export class HeadCache {
  readonly #places: (Seen | undefined)[] = new Array(PLACES).fill(undefined)

  /** What was kept for a list of the same strings, if all else that the text depends on is the same. */
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
