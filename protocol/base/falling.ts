interface Holder {
  readonly bytes: number
}

/** Of those whose bytes only fall, the one with the most. There may be a hundred thousand of them, so it is kept at the top of a heap. */
export class Falling<One extends Holder> {
  readonly #heap: One[]
  /** What each of them held when it was last looked at. */
  readonly #bytes: number[]

  constructor(all: Iterable<One>) {
    this.#heap = [...all]
    this.#bytes = this.#heap.map(({ bytes }) => bytes)
    for (let at = (this.#heap.length >> 1) - 1; at >= 0; at--) this.#sink(at)
  }

  get most(): One | undefined {
    while (this.#heap.length > 0 && this.#heap[0]!.bytes < this.#bytes[0]!) {
      this.#bytes[0] = this.#heap[0]!.bytes
      this.#sink(0)
    }
    return this.#heap[0]
  }

  /** It moves down behind those that hold more. */
  #sink(from: number): void {
    const [heap, held] = [this.#heap, this.#bytes]
    const [one, bytes] = [heap[from]!, held[from]!]
    let at = from
    for (let child = 2 * at + 1; child < heap.length; child = 2 * at + 1) {
      if (child + 1 < heap.length && held[child + 1]! > held[child]!) child++
      if (held[child]! <= bytes) break
      heap[at] = heap[child]!
      held[at] = held[child]!
      at = child
    }
    heap[at] = one
    held[at] = bytes
  }
}
