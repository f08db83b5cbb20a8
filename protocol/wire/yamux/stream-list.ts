import type { YamuxStream } from './yamux-stream.ts'

/** A first-in, first-out list of streams, linked through the streams themselves. */
export class StreamList {
  first: YamuxStream | undefined
  #last: YamuxStream | undefined

  push(stream: YamuxStream): void {
    stream.next = undefined
    if (this.#last === undefined) this.first = stream
    else this.#last.next = stream
    this.#last = stream
  }

  shift(): YamuxStream | undefined {
    const stream = this.first
    if (stream === undefined) return undefined
    this.first = stream.next
    if (this.first === undefined) this.#last = undefined
    stream.next = undefined
    return stream
  }

  /** Removes streams that are over. Returns how many are left. */
  dropClosed(): number {
    let left = 0
    let stream = this.first
    this.first = undefined
    this.#last = undefined
    while (stream !== undefined) {
      const { next } = stream
      stream.next = undefined
      if (!stream.closed) {
        this.push(stream)
        left++
      }
      stream = next
    }
    return left
  }
}
