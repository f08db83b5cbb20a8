import { randomInt } from 'node:crypto'

/** Of each id the first eight bytes are kept, two words: the ids are random, and a million of them meet once in ten million years. */
const WORDS = 2
const LEAST_PLACES_LOG = 6
/** Where more of its places are taken, the table grows. */
const MOST_FULL = 3 / 4

/**
 * A set of ids of 16 random bytes in latin1, in 11 to 21 bytes each: an open hash table of numbers, where a `Set` of texts would
 * keep a hundred. Where an id stands depends on numbers of this process, so that a sender who chooses its ids cannot make them meet.
 */
export class IdSet {
  size = 0
  #log = LEAST_PLACES_LOG
  /** Of a free place the first is 0. */
  #words = new Uint32Array(WORDS << LEAST_PLACES_LOG)

  has(id: string): boolean {
    return this.#words[this.#find(word(id, 0) || 1, word(id, 4))] !== 0
  }

  /** Whether it was not there before. */
  add(id: string): boolean {
    if (this.size >= MOST_FULL * (1 << this.#log)) this.#grow()
    return this.#put(word(id, 0) || 1, word(id, 4))
  }

  #put(one: number, two: number): boolean {
    const at = this.#find(one, two)
    if (this.#words[at] !== 0) return false
    this.#words[at] = one
    this.#words[at + 1] = two
    this.size++
    return true
  }

  /** The place of the two words, or the free one that they would stand in. */
  #find(one: number, two: number): number {
    const words = this.#words
    const hash = Math.imul(one, FACTOR_ONE) + Math.imul(two, FACTOR_TWO)
    let at = ((hash >>> 0) >>> (32 - this.#log)) * WORDS
    while (words[at] !== 0 && (words[at] !== one || words[at + 1] !== two)) {
      at = (at + WORDS) % words.length
    }
    return at
  }

  #grow(): void {
    const words = this.#words
    this.#words = new Uint32Array(words.length * 2)
    this.#log++
    this.size = 0
    for (let at = 0; at < words.length; at += WORDS) {
      if (words[at] !== 0) this.#put(words[at]!, words[at + 1]!)
    }
  }
}

/** Odd. */
const FACTOR_ONE = (randomInt(2 ** 31) << 1) | 1
const FACTOR_TWO = (randomInt(2 ** 31) << 1) | 1

/** Four of its bytes. */
function word(id: string, at: number): number {
  const high = (id.charCodeAt(at + 3) << 24) | (id.charCodeAt(at + 2) << 16)
  return (high | (id.charCodeAt(at + 1) << 8) | id.charCodeAt(at)) >>> 0
}
