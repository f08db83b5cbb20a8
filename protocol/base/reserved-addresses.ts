/**
 * Listeners of this process that no request may be forwarded to, because they trust everyone on this machine. Listeners and
 * upstreams do not know each other, so this list belongs to the process.
 */
import { canonicalAddress, isLoopback } from './address.ts'

interface Reserved {
  readonly host: string
  readonly port: number
}

const reserved = new Set<Reserved>()

/** Stops this process from forwarding requests to the address, until the returned function is called. */
export function reserveAddress({ host, port }: Reserved): () => void {
  const entry = { host: canonicalAddress(host), port }
  reserved.add(entry)
  return () => {
    reserved.delete(entry)
  }
}

/** The ends of a connection. */
interface Connection {
  readonly remoteAddress?: string | undefined
  readonly remotePort?: number | undefined
  readonly localAddress?: string | undefined
}

/** Whether a connection leads to such a listener, whatever name or address was dialled. */
export function isReserved({ remoteAddress = '', remotePort, localAddress = '' }: Connection): boolean {
  if (reserved.size === 0) return false
  const remote = canonicalAddress(remoteAddress)
  const isHere = isLoopback(remote) || remote === canonicalAddress(localAddress)
  for (const { host, port } of reserved) {
    if (port === remotePort && (host === remote || (isHere && (host === '0.0.0.0' || host === '::')))) return true
  }
  return false
}
