/** Random numbers from a text. They are the same on every machine, so that a run can be repeated from its seed. */
export class Random {
  #a: number
  #b: number
  #c: number
  #d: number

  /** Each `seed` has its own sequence. */
  constructor(seed: string | Uint8Array) {
    const bytes = typeof seed === 'string' ? Buffer.from(seed) : seed
    this.#a = hash(bytes, 0x9e3779b9)
    this.#b = hash(bytes, 0x243f6a88)
    this.#c = hash(bytes, 0xb7e15162)
    this.#d = 1
    for (let i = 0; i < 12; i++) this.#next()
  }

  /** sfc32, by Chris Doty-Humphrey. */
  #next(): number {
    const sum = (this.#a + this.#b + this.#d++) | 0
    this.#a = this.#b ^ (this.#b >>> 9)
    this.#b = (this.#c + (this.#c << 3)) | 0
    this.#c = ((this.#c << 21) | (this.#c >>> 11)) + sum
    return sum >>> 0
  }

  /** A whole number from 0 to `below` - 1. */
  int(below: number): number {
    return Math.floor((this.#next() / 0x1_0000_0000) * below)
  }

  /** A whole number from `least` to `most`. */
  between(least: number, most: number): number {
    return least + this.int(most - least + 1)
  }

  /** True in one of `times`. */
  oneIn(times: number): boolean {
    return this.int(times) === 0
  }

  pick<T>(list: readonly T[]): T {
    return list[this.int(list.length)]!
  }

  /** Mostly small numbers, and now and then one near a power of two. */
  size(most: number): number {
    if (!this.oneIn(4)) return this.int(Math.min(most, 16) + 1)
    const edge = 2 ** this.int(Math.ceil(Math.log2(most + 1)) + 1)
    return Math.max(0, Math.min(most, edge + this.between(-1, 1)))
  }

  bytes(length: number): Buffer {
    const made = Buffer.alloc(length)
    for (let i = 0; i < length; i++) made[i] = this.int(256)
    return made
  }
}

function hash(bytes: Uint8Array, basis: number): number {
  let value = basis
  for (const byte of bytes) value = Math.imul(value ^ byte, 0x01000193)
  value ^= value >>> 15
  value = Math.imul(value, 0x2c1b3c6d)
  return value ^ (value >>> 12)
}
