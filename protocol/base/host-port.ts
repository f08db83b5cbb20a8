/** `host:port` or `[::1]:port`: an address to listen on or to dial. */
import { isIP, isIPv6 } from 'node:net'
import { canonicalAddress } from './address.ts'

export interface HostPort {
  /** A name or an address, without brackets. */
  readonly host: string
  readonly port: number
}

/** Wildcard addresses to listen on. Dialling one would reach the dialling machine itself. */
export const EVERYWHERE = /^(?:0\.0\.0\.0|::)$/
const HOST = /^[a-z0-9_](?:[a-z0-9._-]{0,251}[a-z0-9_.])?$/i

/** Undefined if the address cannot be dialled. Use it for addresses that others advertise, since anyone may have written them. */
export function readDialled(text: string): HostPort | undefined {
  const match = /^(?:\[([^[\]]{2,60})\]|([^:[\]]{1,253})):(\d{1,5})$/.exec(text)
  if (match === null) return undefined
  const [, six, name, digits] = match
  const port = Number(digits)
  if (port < 1 || port > 65_535) return undefined
  if (EVERYWHERE.test(canonicalAddress(six ?? name!))) return undefined
  if (six !== undefined) return isIPv6(six) ? { host: six, port } : undefined
  return HOST.test(name!) ? { host: name!, port } : undefined
}

/** Where a URL leads: its host, and its port or the default one of its scheme. */
export function addressOf({ protocol, hostname, port }: URL): HostPort {
  const fallback = protocol === 'https:' || protocol === 'wss:' ? 443 : 80
  return { host: withoutBrackets(hostname), port: port === '' ? fallback : Number(port) }
}

/** `::1` becomes `[::1]`. */
export function withBrackets(host: string): string {
  return host.includes(':') ? `[${host}]` : host
}

/** `[::1]` becomes `::1`. */
export function withoutBrackets(host: string): string {
  return host.replace(/^\[|\]$/g, '')
}

/** `127.0.0.1:8080`, `[::1]:8080`. */
export function formatAddress({ host, port }: HostPort): string {
  return `${withBrackets(host)}:${port}`
}

/** The name for TLS: without the final dot, which RFC 6066 section 3 forbids there. Empty for an address, which is not sent. */
export function tlsName(host: string): string {
  const name = host.replace(/\.$/, '')
  return isIP(name) === 0 ? name : ''
}
