import type { Transport, TransportHandler } from '../../../../protocol/wire/transport.ts'
import type { FakeClock } from './support.ts'

export interface LinkOptions {
  readonly clock: FakeClock
  readonly bytesPerMs: number
  readonly rttMs: number
  /** What the kernel accepts before it pushes back. Default 4 MiB. */
  readonly kernelBytes?: number
}

/**
 * One direction of a path with a rate, a delay, and a kernel in front that accepts a lot. In the time of a fake clock.
 */
class LinkEnd implements Transport {
  readonly peer = 'link'
  handler: TransportHandler | undefined
  readonly #options: LinkOptions
  #other: LinkEnd | undefined
  #freeAt = 0
  #inKernelBytes = 0
  readonly #waiting: { bytes: number; sent: () => void }[] = []

  constructor(options: LinkOptions) {
    this.#options = options
  }

  join(other: LinkEnd): void {
    this.#other = other
  }

  bytes(chunk: Uint8Array, sent: () => void): void {
    const copy = new Uint8Array(chunk)
    this.#inKernelBytes += copy.length
    this.#waiting.push({ bytes: copy.length, sent })
    this.#send(copy.length, () => {
      this.#inKernelBytes -= copy.length
      this.#settle()
      this.#later(this.#options.rttMs / 2, () => this.#other!.handler?.bytes(copy))
    })
    this.#settle()
  }

  control(text: string): void {
    this.#send(text.length, () => this.#later(this.#options.rttMs / 2, () => this.#other!.handler?.control(text)))
  }

  close(): void {}

  terminate(): void {}

  /** Occupies the path for as long as `bytes` take. */
  #send(bytes: number, done: () => void): void {
    const { clock, bytesPerMs } = this.#options
    this.#freeAt = Math.max(this.#freeAt, clock.now()) + bytes / bytesPerMs
    this.#later(this.#freeAt - clock.now(), done)
  }

  #later(ms: number, done: () => void): void {
    this.#options.clock.setTimeout(done, ms)
  }

  /** Tells the sender what fits into the kernel. */
  #settle(): void {
    const { kernelBytes = 4 * 1024 * 1024 } = this.#options
    let waitingBytes = this.#waiting.reduce((sum, { bytes }) => sum + bytes, 0)
    while (this.#waiting.length > 0 && this.#inKernelBytes - waitingBytes + this.#waiting[0]!.bytes <= kernelBytes) {
      const { bytes, sent } = this.#waiting.shift()!
      waitingBytes -= bytes
      setImmediate(sent)
    }
  }
}

export function linkPair(options: LinkOptions): [Transport, Transport] {
  const left = new LinkEnd(options)
  const right = new LinkEnd(options)
  left.join(right)
  right.join(left)
  return [left, right]
}
