import type { YamuxStream } from './yamux-stream.ts'

/**
 * Streams of a session, oldest first, as a list linked through the streams themselves. A stream is in one list at a time:
 * first that of unacknowledged streams, and once it is over, that of streams whose bytes still wait.
 */
export class StreamChain {
  size = 0
  oldest: YamuxStream | undefined
  #newest: YamuxStream | undefined

  add(stream: YamuxStream): void {
    this.size++
    stream.older = this.#newest
    if (this.#newest === undefined) this.oldest = stream
    else this.#newest.newer = stream
    this.#newest = stream
  }

  /** Does nothing if the stream is in no list. */
  delete(stream: YamuxStream): void {
    const { older, newer } = stream
    if (older === undefined && this.oldest !== stream) return
    this.size--
    if (older === undefined) this.oldest = newer
    else older.newer = newer
    if (newer === undefined) this.#newest = older
    else newer.older = older
    stream.older = undefined
    stream.newer = undefined
  }

  *[Symbol.iterator](): IterableIterator<YamuxStream> {
    for (let stream = this.oldest; stream !== undefined; stream = stream.newer) yield stream
  }
}
