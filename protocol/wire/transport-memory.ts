import { endFor, guardWith } from '../base/guard.ts'
import { noLogger } from '../base/log.ts'
import type { Transport, TransportHandler } from './transport.ts'

/**
 * One end of an in-memory pair. What is sent arrives in a later turn of the event loop. `pause` simulates a peer that does not
 * read.
 */
export class MemoryTransport implements Transport {
  readonly peer = 'memory'
  handler: TransportHandler | undefined
  #other: MemoryTransport | undefined
  #paused = false
  #scheduled = false
  #closed = false
  #arriving: (() => void)[] = []
  readonly #guard = guardWith(error => this.#threw(error))

  /** @internal Made by {@link memoryPair}. */
  join(other: MemoryTransport): void {
    this.#other = other
  }

  bytes(chunk: Uint8Array, sent: () => void): void {
    const other = this.#other!
    other.#arrive(() => {
      const copy = new Uint8Array(chunk)
      sent()
      other.handler?.bytes(copy)
    })
  }

  control(text: string): void {
    const other = this.#other!
    other.#arrive(() => other.handler?.control(text))
  }

  close(code: number, reason: string): void {
    this.#other!.#arrive(() => {
      const clean = code === 1000 || code === 1001
      this.#other!.#end(code, reason, clean ? undefined : new Error(`closed with ${code}: ${reason}`))
      this.#end(code, reason, undefined)
    })
  }

  terminate(): void {
    const error = new Error('the transport was cut')
    this.#end(1006, '', error)
    const lost = this.#other!.#guard(() => this.#other!.#end(1006, '', error))
    setImmediate(lost)
  }

  /** Holds back what arrives, like a peer that has stopped reading. */
  pause(): void {
    this.#paused = true
  }

  resume(): void {
    this.#paused = false
    this.#schedule()
  }

  #arrive(event: () => void): void {
    if (this.#closed) return
    this.#arriving.push(event)
    this.#schedule()
  }

  #schedule(): void {
    if (this.#scheduled || this.#paused || this.#closed || this.#arriving.length === 0) return
    this.#scheduled = true
    setImmediate(this.#deliver)
  }

  readonly #deliver = this.#guard(() => {
    this.#scheduled = false
    const events = this.#arriving
    this.#arriving = []
    for (let i = 0; i < events.length; i++) {
      if (this.#paused) {
        this.#arriving = events.slice(i).concat(this.#arriving)
        return
      }
      if (this.#closed) return
      events[i]!()
    }
  })

  /** An error while something is delivered ends both ends. */
  #threw(error: unknown): void {
    endFor(error, noLogger, '', () => this.terminate())
  }

  #end(code: number, reason: string, error: Error | undefined): void {
    if (this.#closed) return
    this.#closed = true
    this.#arriving = []
    this.handler?.closed(code, reason, error)
  }
}

/**
 * Two connected transports, for tests, benchmarks, and sessions within one process.
 *
 * @example
 * ```ts
 * import { createSession, memoryPair } from 'sallyport/protocol'
 *
 * const [a, b] = memoryPair()
 * const server = createSession(a, { role: 'server' })
 * const client = createSession(b, { role: 'client' })
 * ```
 */
export function memoryPair(): [MemoryTransport, MemoryTransport] {
  const left = new MemoryTransport()
  const right = new MemoryTransport()
  left.join(right)
  right.join(left)
  return [left, right]
}
