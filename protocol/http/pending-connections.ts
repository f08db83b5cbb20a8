/**
 * Connections that do not speak HTTP yet. While a listener closes, they have as long as the others to deliver a request that may
 * be on its way.
 */
import type { Socket } from 'node:net'
import { canonicalAddress } from '../base/address.ts'
import { type Failing, guardWith, stepOf } from '../base/guard.ts'
import { heardFirst } from '../base/socket-turns.ts'
import type { ConnectionSet, ManagedConnection } from './connection-set.ts'

export class PendingConnections {
  readonly #connections: ConnectionSet
  readonly #all = new Map<string, PendingConnection>()

  constructor(connections: ConnectionSet) {
    this.#connections = connections
  }

  add(socket: Socket): void {
    const key = connectionKey(socket)
    const connection = new PendingConnection(socket)
    this.#all.set(key, connection)
    this.#connections.add(connection)
    socket.once(
      'close',
      connection.guard(() => this.#settle(key, connection)),
    )
  }

  /** It speaks HTTP now, or a TLS socket has taken its place. */
  settle(socket: Socket): void {
    const key = connectionKey(socket)
    const connection = this.#all.get(key)
    if (connection !== undefined) this.#settle(key, connection)
  }

  /** The certificates of these connections were checked against authorities that no longer count. */
  outdate(): void {
    for (const connection of this.#all.values()) connection.isOutdated = true
  }

  isOutdated(socket: Socket): boolean {
    return this.#all.get(connectionKey(socket))?.isOutdated === true
  }

  #settle(key: string, connection: PendingConnection): void {
    if (this.#all.get(key) === connection) this.#all.delete(key)
    connection.stop()
    this.#connections.delete(connection)
  }
}

class PendingConnection implements ManagedConnection, Failing {
  static readonly #silent = heardFirst(stepOf<PendingConnection>(connection => connection.#endSilent()))
  readonly address: string
  /** An error ends the connection. */
  readonly guard = guardWith(() => this.threw())
  /** As far as we know. */
  readonly idle = true
  isOutdated = false
  readonly #socket: Socket
  #timer: NodeJS.Timeout | undefined
  #settled = false

  constructor(socket: Socket) {
    this.address = canonicalAddress(socket.remoteAddress ?? '')
    this.#socket = socket
  }

  close(patienceMs: number): void {
    this.#timer ??= setTimeout(PendingConnection.#silent, patienceMs, this)
  }

  /** A caller that has said something is in the middle of its handshake, which has a deadline of its own. */
  #endSilent(): void {
    if (!this.#settled && this.#socket.bytesRead === 0) this.destroy()
  }

  threw(): void {
    this.#socket.destroy()
  }

  /**
   * Not in an event of the handshake itself: Node ends with a segmentation fault if this socket, and then the TLS socket on top of it, is
   * destroyed there.
   */
  destroy(): void {
    this.#socket.destroy()
  }

  stop(): void {
    this.#settled = true
    clearTimeout(this.#timer)
  }
}

/**
 * A TLS connection has the same addresses as the TCP connection below it. Ours count, too: a peer may connect to several of them
 * from one port.
 */
export function connectionKey({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`
}
