/**
 * Listeners of this process that no request may be forwarded to: what answers there trusts whoever is on this machine. They and the
 * upstreams know nothing of each other, so this is the one list of the process.
 */
import { canonicalAddress, isLoopback } from './address.ts'

interface Reserved {
  readonly host: string
  readonly port: number
}

const reserved = new Set<Reserved>()

/** From now on nothing of this process is forwarded there, until the function that it returns is called. */
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

/** Whether it leads to such a listener, by whatever name or address it was dialled. */
export function isReserved({ remoteAddress = '', remotePort, localAddress = '' }: Connection): boolean {
  if (reserved.size === 0) return false
  const remote = canonicalAddress(remoteAddress)
  const isHere = isLoopback(remote) || remote === canonicalAddress(localAddress)
  for (const { host, port } of reserved) {
    if (port === remotePort && (host === remote || (isHere && (host === '0.0.0.0' || host === '::')))) return true
  }
  return false
}
