/** Reads an input as a script: one operation after another, each with its numbers. Past its end, all numbers are 0. */
export class FuzzScript {
  readonly #bytes: Buffer
  #at = 0

  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }

  get over(): boolean {
    return this.#at >= this.#bytes.length
  }

  next(): number {
    return this.#bytes[this.#at++] ?? 0
  }

  pick<T>(list: readonly T[]): T {
    return list[this.next() % list.length]!
  }

  take(length: number): Buffer {
    const taken = this.#bytes.subarray(this.#at, this.#at + length)
    this.#at += length
    return taken
  }
}
