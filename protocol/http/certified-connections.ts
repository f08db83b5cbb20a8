/**
 * Connections of callers who showed a certificate. What OpenSSL said of it as they began holds as long as it does: each is ended with its
 * certificate, and all of them as an authority counts no more. What is under way goes on, and whoever has a good one connects again.
 */
import type { X509Certificate } from 'node:crypto'
import type { Socket } from 'node:net'
import { MAX_TIMER_MS } from '../base/durations.ts'
import { guardWith } from '../base/guard.ts'
import type { ManagedConnection } from './connection-set.ts'

/** A request may be on its way. */
const PATIENCE_MS = 2000

export class CertifiedConnections {
  readonly #all = new Set<ManagedConnection>()

  add(connection: ManagedConnection, socket: Socket, { validToDate }: X509Certificate): void {
    const guard = guardWith(() => socket.destroy())
    const end = guard(() => connection.close(PATIENCE_MS))
    const ms = Math.max(0, validToDate.getTime() - Date.now())
    const timer = setTimeout(end, Math.min(ms, MAX_TIMER_MS)).unref()
    const gone = guard(() => {
      clearTimeout(timer)
      this.#all.delete(connection)
    })
    this.#all.add(connection)
    socket.once('close', gone)
  }

  end(): void {
    for (const connection of this.#all) connection.close(PATIENCE_MS)
  }
}
