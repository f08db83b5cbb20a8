/**
 * Streams that wait to send, in the order of their turns. Runtimes take turns, then the networks of their callers, then their streams. So
 * nobody gets more of what a session can send by having more streams.
 */
import type { YamuxStream } from './yamux-stream.ts'

interface Waiting {
  readonly isEmpty: boolean
  push(stream: YamuxStream): void
  shift(): YamuxStream | undefined
  /** Removes streams that are over. Returns how many are left. */
  dropClosed(): number
}

/** First in, first out. Linked through its items, so that it takes no memory. */
class List<Item extends { next: Item | undefined }> {
  #first: Item | undefined
  #last: Item | undefined

  get isEmpty(): boolean {
    return this.#first === undefined
  }

  push(item: Item): void {
    if (this.#last === undefined) this.#first = item
    else this.#last.next = item
    this.#last = item
  }

  shift(): Item | undefined {
    const item = this.#first
    if (item === undefined) return undefined
    this.#first = item.next
    if (item.next === undefined) this.#last = undefined
    item.next = undefined
    return item
  }
}

class StreamList extends List<YamuxStream> implements Waiting {
  dropClosed(): number {
    const open: YamuxStream[] = []
    for (let stream = this.shift(); stream !== undefined; stream = this.shift()) if (!stream.closed) open.push(stream)
    for (const stream of open) this.push(stream)
    return open.length
  }
}

interface Part<Streams extends Waiting> {
  key: string
  readonly streams: Streams
  next: Part<Streams> | undefined
}

/** Its parts take turns. It knows only those that wait. */
class Round<Streams extends Waiting> implements Waiting {
  readonly #keyOf: (stream: YamuxStream) => string
  readonly #make: () => Streams
  readonly #parts = new Map<string, Part<Streams>>()
  readonly #turns = new List<Part<Streams>>()
  /** The last one that became empty: most often, one stream waits at a time. */
  #spare: Part<Streams> | undefined

  constructor(keyOf: (stream: YamuxStream) => string, make: () => Streams) {
    this.#keyOf = keyOf
    this.#make = make
  }

  get isEmpty(): boolean {
    return this.#turns.isEmpty
  }

  push(stream: YamuxStream): void {
    const key = this.#keyOf(stream)
    let part = this.#parts.get(key)
    if (part === undefined) {
      part = this.#spare ?? { key, streams: this.#make(), next: undefined }
      part.key = key
      this.#spare = undefined
      this.#parts.set(key, part)
      this.#turns.push(part)
    }
    part.streams.push(stream)
  }

  shift(): YamuxStream | undefined {
    const part = this.#turns.shift()
    if (part === undefined) return undefined
    const stream = part.streams.shift()
    this.#hadTurn(part)
    return stream
  }

  #hadTurn(part: Part<Streams>): void {
    if (!part.streams.isEmpty) this.#turns.push(part)
    else {
      this.#parts.delete(part.key)
      this.#spare = part
    }
  }

  dropClosed(): number {
    let left = 0
    for (let parts = this.#parts.size; parts > 0; parts--) {
      const part = this.#turns.shift()!
      left += part.streams.dropClosed()
      this.#hadTurn(part)
    }
    return left
  }
}

export class SendTurns extends Round<Round<StreamList>> {
  constructor() {
    super(
      ({ runtime }) => runtime,
      () => new Round(ofNetwork, () => new StreamList()),
    )
  }
}

function ofNetwork({ network }: YamuxStream): string {
  return network
}
