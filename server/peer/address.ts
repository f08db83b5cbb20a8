/** Where a replica is reached by others: `host:port`, `[::1]:port`. */
import { isIPv6 } from 'node:net'
import { canonicalAddress } from '../../protocol/base/address.ts'

export interface PeerAddress {
  readonly host: string
  readonly port: number
}

/** Where one may listen; who dials it dials itself. */
const EVERYWHERE = /^(?:0\.0\.0\.0|::)$/
const HOST = /^[a-z0-9_](?:[a-z0-9._-]{0,251}[a-z0-9_.])?$/i

/** Undefined if nobody can be dialled there: what others say of themselves comes from whoever may write it. */
export function readPeerAddress(text: string): PeerAddress | undefined {
  const match = /^(?:\[([^[\]]{2,60})\]|([^:[\]]{1,253})):(\d{1,5})$/.exec(text)
  if (match === null) return undefined
  const [, six, name, digits] = match
  const port = Number(digits)
  if (port < 1 || port > 65_535) return undefined
  if (EVERYWHERE.test(canonicalAddress(six ?? name!))) return undefined
  if (six !== undefined) return isIPv6(six) ? { host: six, port } : undefined
  return HOST.test(name!) ? { host: name!, port } : undefined
}

export function joinAddress(host: string, port: number): string {
  return `${isIPv6(host) ? `[${host}]` : host}:${port}`
}
