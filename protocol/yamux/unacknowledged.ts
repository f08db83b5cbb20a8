import type { Stream } from './stream.ts'

/** Streams that we opened and the peer has not acknowledged, oldest first: a list linked through the streams themselves. */
export class Unacknowledged {
  size = 0
  oldest: Stream | undefined
  #newest: Stream | undefined

  add(stream: Stream): void {
    this.size++
    stream.older = this.#newest
    if (this.#newest === undefined) this.oldest = stream
    else this.#newest.newer = stream
    this.#newest = stream
  }

  delete(stream: Stream): void {
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
}
