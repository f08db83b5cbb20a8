import type { YamuxStream } from './yamux-stream.ts'

const LEAST_SLOTS = 16
/** A table larger than this is dropped when it is empty. */
const KEPT_SLOTS = 256
/** 2^32 divided by the golden ratio (Knuth, The Art of Computer Programming, section 6.4). */
const GOLDEN = 0x9e3779b1

/**
 * The open streams of a session by id, in a hash table with open addressing. A `Map` replaces its table whenever that fills up.
 * With thousands of streams per second, the old tables would keep their streams, and everything those refer to, alive until the
 * next full collection.
 */
export class StreamTable {
  size = 0
  #slots: (YamuxStream | undefined)[] = emptySlots(LEAST_SLOTS)

  get(id: number): YamuxStream | undefined {
    return this.#slots[this.#find(id)]
  }

  /** The stream's id must not be in the table. */
  add(stream: YamuxStream): void {
    this.size++
    if (this.size * 2 > this.#slots.length) this.#resize(this.#slots.length * 2)
    this.#slots[this.#find(stream.id)] = stream
  }

  delete(id: number): void {
    const slots = this.#slots
    const last = slots.length - 1
    let hole = this.#find(id)
    if (slots[hole] === undefined) return
    this.size--
    if (this.size === 0 && slots.length > KEPT_SLOTS) {
      this.#slots = emptySlots(LEAST_SLOTS)
      return
    }
    // Later entries that would not be found across the hole move up.
    for (let at = (hole + 1) & last; ; at = (at + 1) & last) {
      const stream = slots[at]
      if (stream === undefined) break
      const detour = (at - home(stream.id, last)) & last
      if (detour < ((at - hole) & last)) continue
      slots[hole] = stream
      hole = at
    }
    slots[hole] = undefined
  }

  /** A copy, since streams may come and go during the iteration. */
  all(): YamuxStream[] {
    return this.#slots.filter(stream => stream !== undefined)
  }

  /** The slot of the stream, or the free one where it would go. */
  #find(id: number): number {
    const slots = this.#slots
    const last = slots.length - 1
    let at = home(id, last)
    for (let stream = slots[at]; stream !== undefined && stream.id !== id; stream = slots[at]) at = (at + 1) & last
    return at
  }

  #resize(slots: number): void {
    const streams = this.all()
    this.#slots = emptySlots(slots)
    for (const stream of streams) this.#slots[this.#find(stream.id)] = stream
  }
}

/**
 * The first slot to try for an id. Ids that follow each other are spread over the table. Side by side, all open streams would be
 * one run, and a deletion would look at everything behind it.
 */
function home(id: number, last: number): number {
  return Math.imul(id >>> 1, GOLDEN) >>> Math.clz32(last)
}

function emptySlots(count: number): (YamuxStream | undefined)[] {
  return new Array(count).fill(undefined)
}
