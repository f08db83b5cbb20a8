/**
 * What the start of a server has opened so far. Each part is added before anything is awaited. So a start that fails or is
 * aborted leaves nothing behind: its parts are closed, last first, which ends whatever is still being awaited.
 */
import { detached, logGuard } from '../protocol/base/guard.ts'
import type { Logger } from '../protocol/base/log.ts'

interface Part {
  close(): unknown
}

export class Opened {
  readonly #signal: AbortSignal | undefined
  readonly #logger: Logger
  readonly #forget: () => void
  #parts: Part[] = []
  #closing: Promise<unknown> | undefined

  constructor(signal: AbortSignal | undefined, logger: Logger) {
    signal?.throwIfAborted()
    this.#signal = signal
    this.#logger = logger
    const guard = logGuard(logger, NOT_CLOSED)
    const givenUp = guard(() => this.#closeSoon())
    signal?.addEventListener('abort', givenUp)
    this.#forget = () => signal?.removeEventListener('abort', givenUp)
  }

  add<T extends Part>(part: T): T {
    this.#parts.push(part)
    if (this.#closing !== undefined) this.#closeSoon()
    return part
  }

  /** From now on, closing `part` closes everything that was added before. */
  only(part: Part): void {
    this.#parts = []
    this.add(part)
  }

  /** Throws the reason if the start was aborted. */
  check(): void {
    this.#signal?.throwIfAborted()
  }

  /** The start has succeeded. */
  keep(): void {
    this.check()
    this.#forget()
  }

  #closeSoon(): void {
    detached(this.#logger, NOT_CLOSED, this.close())
  }

  /** Resolves when every part is closed, or failed to close. */
  close(): Promise<unknown> {
    this.#forget()
    const parts = this.#parts.splice(0).reverse()
    this.#closing = Promise.allSettled([this.#closing, ...parts.map(async part => part.close())])
    return this.#closing
  }
}

const NOT_CLOSED = 'cleaning up after a failed start failed'
