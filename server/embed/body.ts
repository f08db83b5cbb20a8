/** Feeds an embedder's body into an exchange, never more than `AHEAD_BYTES` ahead of what was consumed. */

import { errorOf, SallyportError } from '../../protocol/base/errors.ts'
import { detached } from '../../protocol/base/guard.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { BODY_UNKNOWN, type RequestSink } from '../../protocol/exchange.ts'

const AHEAD_BYTES = 64 * 1024

export type BodySource = AsyncIterable<Uint8Array | string> | Iterable<Uint8Array | string>

/** If the body fails, aborts the exchange and tells the owner, since nobody else does. */
export class BodyPump {
  readonly #onBroken: (error: Error) => void
  #waiting: (() => void) | undefined
  #ahead = 0
  #stopped = false

  constructor(onBroken: (error: Error) => void) {
    this.#onBroken = onBroken
  }

  /** `bodyBytes`: the announced length, or BODY_UNKNOWN. */
  run(source: BodySource, bodyBytes: number, sink: RequestSink): void {
    detached(noLogger, 'aborting a body failed', this.#feed(source, bodyBytes, sink))
  }

  async #feed(source: BodySource, bodyBytes: number, sink: RequestSink): Promise<void> {
    let bytes = 0
    try {
      for await (const piece of source) {
        if (this.#stopped) return
        const chunk = typeof piece === 'string' ? Buffer.from(piece) : piece
        if (!(chunk instanceof Uint8Array)) throw new TypeError('a body must consist of bytes or text')
        if (chunk.length === 0) continue
        bytes += chunk.length
        if (bodyBytes !== BODY_UNKNOWN && bytes > bodyBytes) throw otherLength()
        this.#ahead += chunk.length
        // A copy, since the source may reuse the chunk's memory.
        sink.requestData(Uint8Array.prototype.slice.call(chunk))
        while (this.#ahead > AHEAD_BYTES && !this.#stopped) await this.#room()
      }
      if (this.#stopped) return
      if (bytes < bodyBytes) throw otherLength()
      sink.requestEnd([])
    } catch (error) {
      if (this.#stopped) return
      this.#stopped = true
      try {
        sink.requestAbort(new SallyportError('cancelled', 'the body broke off', { cause: error }))
      } finally {
        this.#onBroken(errorOf(error))
      }
    }
  }

  #room(): Promise<void> {
    return new Promise(resolve => {
      this.#waiting = resolve
    })
  }

  /** The other end has consumed this many bytes. */
  consumed(bytes: number): void {
    this.#ahead -= bytes
    if (this.#ahead <= AHEAD_BYTES) this.#wake()
  }

  /** Nobody wants the rest. */
  stop(): void {
    this.#stopped = true
    this.#wake()
  }

  #wake(): void {
    const waiting = this.#waiting
    this.#waiting = undefined
    waiting?.()
  }
}

function otherLength(): TypeError {
  return new TypeError('the body does not have the length that content-length announces')
}
