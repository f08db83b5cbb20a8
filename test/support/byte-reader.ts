import type { Readable } from 'node:stream'

/** Bytes that no HTTP/1.1 sender may send; a body that is merely cut is none. */
export class WireFault extends Error {
  override readonly name = 'WireFault'
}

/** Reads a socket as the test asks for it: a line, so many bytes, or what is there. Rejects when the socket breaks. */
export class ByteReader {
  readonly #iterator: AsyncIterator<Buffer>
  #held: Buffer = Buffer.alloc(0)
  #ended = false

  constructor(socket: Readable) {
    // Destroying the socket is the test's business: a body that is not read to its end must not close it.
    this.#iterator = socket.iterator({ destroyOnReturn: false }) as AsyncIterator<Buffer>
  }

  /** A line without its CRLF; undefined at the end of the stream. Throws on a bare LF: nothing of ours may send one. */
  async line(): Promise<string | undefined> {
    for (;;) {
      const end = this.#held.indexOf(10)
      if (end >= 0) {
        if (this.#held[end - 1] !== 13) throw new WireFault('a line ends with a bare LF')
        return this.#take(end + 1).toString('latin1', 0, end - 1)
      }
      if (!(await this.#fill())) {
        if (this.#held.length > 0) throw new Error('the stream ended within a line')
        return undefined
      }
    }
  }

  /** At least one byte and at most `most`; undefined at the end of the stream. */
  async some(most = Number.POSITIVE_INFINITY): Promise<Buffer | undefined> {
    if (this.#held.length === 0 && !(await this.#fill())) return undefined
    return this.#take(Math.min(most, this.#held.length))
  }

  async exactly(bytes: number): Promise<Buffer> {
    while (this.#held.length < bytes) {
      if (!(await this.#fill())) throw new Error(`the stream ended ${bytes - this.#held.length} bytes early`)
    }
    return this.#take(bytes)
  }

  #take(bytes: number): Buffer {
    const taken = this.#held.subarray(0, bytes)
    this.#held = this.#held.subarray(bytes)
    return taken
  }

  async #fill(): Promise<boolean> {
    if (this.#ended) return false
    const next = await this.#iterator.next()
    this.#ended = next.done === true
    if (next.done) return false
    this.#held = this.#held.length === 0 ? next.value : Buffer.concat([this.#held, next.value])
    return true
  }
}
