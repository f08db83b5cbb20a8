import { randomInt } from 'node:crypto'

/**
 * Two 32-bit words, the first eight bytes of an id, are kept per id. Ids are random, so with a million of them a collision is
 * expected once in ten million years.
 */
const WORDS = 2
const INITIAL_SLOTS_LOG = 6
/** The table grows when more of its slots are taken. */
const MAX_LOAD = 3 / 4

/**
 * A set of ids of 16 random bytes, given as latin1 strings. This open-addressing hash table of numbers takes 11 to 21 bytes per
 * id, where a `Set` of strings would take a hundred. Hashing uses random factors of this process, so that a sender who chooses
 * its ids cannot provoke collisions.
 */
export class IdSet {
  size = 0
  #log = INITIAL_SLOTS_LOG
  /** The first word of a free slot is 0. */
  #words = new Uint32Array(WORDS << INITIAL_SLOTS_LOG)

  has(id: string): boolean {
    return this.#words[this.#find(word(id, 0) || 1, word(id, 4))] !== 0
  }

  /** Returns whether the id was new. */
  add(id: string): boolean {
    if (this.size >= MAX_LOAD * (1 << this.#log)) this.#grow()
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

  /** Index of the slot that holds the two words, or of the free slot where they would go. */
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

/** Random factors of the hash. They must be odd. */
const FACTOR_ONE = (randomInt(2 ** 31) << 1) | 1
const FACTOR_TWO = (randomInt(2 ** 31) << 1) | 1

/** Four bytes of the id, as a number. */
function word(id: string, at: number): number {
  const high = (id.charCodeAt(at + 3) << 24) | (id.charCodeAt(at + 2) << 16)
  return (high | (id.charCodeAt(at + 1) << 8) | id.charCodeAt(at)) >>> 0
}
