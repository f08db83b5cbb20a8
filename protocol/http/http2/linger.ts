/** The time between our end of a connection and that of its peer. */
import type { Socket } from 'node:net'
import { due } from '../../base/deadline-watch.ts'
import { resetSocket } from '../../base/reset-socket.ts'
import { queuedInHandle } from '../http1/write-progress.ts'
import type { HttpLimits } from '../limits.ts'

/**
 * Closes a socket that has nothing more to say once its peer has taken what was sent, which may never happen. A peer that still reads
 * sends window updates. If the socket were closed, they would be answered with a reset, and the peer would lose what is on its way.
 */
export class Linger {
  readonly #socket: Socket
  readonly #limits: Pick<HttpLimits, 'drainMs' | 'lingerMs'>
  readonly #beganAt: number
  /** When the peer last took or sent something, as `#moved` shows. */
  #movedAt = 0
  #moved: number | undefined

  constructor(socket: Socket, limits: Pick<HttpLimits, 'drainMs' | 'lingerMs'>, now: number) {
    this.#socket = socket
    this.#limits = limits
    this.#beganAt = now
  }

  /** Returns the time until the next deadline. */
  check(now: number): number {
    const { drainMs, lingerMs } = this.#limits
    const moved = this.#socket.bytesRead - queuedInHandle(this.#socket)
    if (moved !== this.#moved) this.#movedAt = now
    this.#moved = moved
    return Math.min(due(this.#movedAt, drainMs, now, this.#close), due(this.#beganAt, lingerMs, now, this.#close))
  }

  /** What the kernel has taken may still be on its way to a peer that reads slowly. */
  readonly #close = (): void => {
    if (queuedInHandle(this.#socket) > 0) resetSocket(this.#socket)
    else this.#socket.destroy()
  }
}
