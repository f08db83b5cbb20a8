/**
 * Connections of callers that presented a certificate. OpenSSL verifies it only when the connection begins. So a connection is ended
 * when its certificate expires, and all of them when an authority is removed. Exchanges in progress complete, and a caller with a
 * valid certificate can connect again.
 */
import type { X509Certificate } from 'node:crypto'
import type { Socket } from 'node:net'
import { guardWith } from '../base/guard.ts'
import type { ManagedConnection } from './connection-set.ts'

/** One timer for all: a timer for each would not notice that the wall clock was set, or that the machine slept. */
const LOOK_MS = 1000
/** How long to wait for a request that may be on its way. */
const PATIENCE_MS = 2000

const guarded = guardWith(() => {})

interface Certified {
  /** Milliseconds since 1970. */
  readonly endsAt: number
  readonly end: () => void
}

export class CertifiedConnections {
  readonly #all = new Set<Certified>()
  #timer: NodeJS.Timeout | undefined

  add(connection: ManagedConnection, socket: Socket, { validToDate }: X509Certificate): void {
    const guard = guardWith(() => socket.destroy())
    const certified = {
      endsAt: validToDate.getTime(),
      end: guard(() => connection.close(PATIENCE_MS, performance.now() + PATIENCE_MS)),
    }
    const gone = guard(() => this.#forget(certified))
    this.#all.add(certified)
    this.#timer ??= setInterval(this.#look, LOOK_MS).unref()
    socket.once('close', gone)
  }

  /** None of its steps throws. */
  readonly #look = guarded(() => {
    for (const certified of this.#all) {
      if (certified.endsAt > Date.now()) continue
      this.#forget(certified)
      certified.end()
    }
  })

  #forget(certified: Certified): void {
    this.#all.delete(certified)
    if (this.#all.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  end(): void {
    for (const { end } of this.#all) end()
  }
}
