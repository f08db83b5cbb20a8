import type { WebSocket } from 'ws'

/** How long a server may take to close its side. */
const CLOSE_MS = 2000

/** The WebSockets of a client that are not closed yet. */
export class OpenSockets {
  readonly #open = new Set<WebSocket>()
  #onEmpty: (() => void) | undefined

  add(socket: WebSocket): void {
    this.#open.add(socket)
    socket.once('close', () => {
      this.#open.delete(socket)
      if (this.#open.size === 0) this.#onEmpty?.()
    })
  }

  /** Resolves when all are closed. A server that is gone answers no Close frame; it gets a moment. */
  async closed(): Promise<void> {
    if (this.#open.size === 0) return
    const gone = new Promise<void>(resolve => {
      this.#onEmpty = resolve
    })
    const timer = setTimeout(() => {
      for (const socket of this.#open) socket.terminate()
    }, CLOSE_MS)
    await gone
    clearTimeout(timer)
  }
}
