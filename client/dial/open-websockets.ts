import type { WebSocket } from 'ws'
import type { Guard } from '../../protocol/base/guard.ts'

/** How long a server may take to close its side. */
const CLOSE_MS = 2000

/** The WebSockets of a client that are not closed yet. */
export class OpenWebSockets {
  readonly #open = new Set<WebSocket>()
  readonly #guard: Guard
  #onEmpty: (() => void) | undefined

  constructor(guard: Guard) {
    this.#guard = guard
  }

  add(socket: WebSocket): void {
    this.#open.add(socket)
    const closed = this.#guard(() => {
      this.#open.delete(socket)
      if (this.#open.size === 0) this.#onEmpty?.()
    })
    socket.once('close', closed)
  }

  /** Resolves when all are closed. A server that is gone never answers the Close frame, so the wait is bounded. */
  async closed(): Promise<void> {
    if (this.#open.size === 0) return
    const gone = new Promise<void>(resolve => {
      this.#onEmpty = resolve
    })
    const late = this.#guard(() => {
      for (const socket of this.#open) socket.terminate()
    })
    const timer = setTimeout(late, CLOSE_MS)
    await gone
    clearTimeout(timer)
  }
}
