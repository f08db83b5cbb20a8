/** IP addresses and networks as bytes: canonical text (RFC 5952) and CIDR membership. */
import { Buffer } from 'node:buffer'
import { isIPv4, isIPv6 } from 'node:net'
import { memoizeLast } from './memoize-last.ts'

/** 4 or 16 bytes; an IPv4-mapped IPv6 address is 4. A zone (`%eth0`) is dropped. Undefined if it is not an address. */
function parseAddress(text: string): Uint8Array | undefined {
  if (isIPv4(text)) return parseIPv4(text)
  const zone = text.indexOf('%')
  const plain = zone < 0 ? text : text.slice(0, zone)
  return isIPv6(plain) ? parseIPv6(plain) : undefined
}

function parseIPv4(text: string): Uint8Array {
  return Uint8Array.from(text.split('.'), Number)
}

const COLON = 0x3a
const ZERO = 0x30
const NINE = 0x39
const LETTER_A = 0x61

/** The text is valid. It is not split, since each request of a caller over IPv6 may come here. */
function parseIPv6(text: string): Uint8Array {
  let plain = text
  const dot = plain.indexOf('.')
  if (dot >= 0) {
    const start = plain.lastIndexOf(':', dot) + 1
    const [a, b, c, d] = parseIPv4(plain.slice(start))
    plain = `${plain.slice(0, start)}${((a! << 8) | b!).toString(16)}:${((c! << 8) | d!).toString(16)}`
  }
  const bytes = new Uint8Array(16)
  let at = 0
  let gapAt = -1
  let digits = 0
  let group = 0
  for (let i = 0; i <= plain.length; i++) {
    const code = i < plain.length ? plain.charCodeAt(i) : COLON
    if (code !== COLON) {
      group = group * 16 + (code <= NINE ? code - ZERO : (code | 0x20) - LETTER_A + 10)
      digits++
    } else if (digits > 0) {
      bytes[at++] = group >> 8
      bytes[at++] = group & 0xff
      group = digits = 0
    } else if (i < plain.length) gapAt = at
  }
  if (gapAt >= 0) {
    const end = 16 - (at - gapAt)
    bytes.copyWithin(end, gapAt, at).fill(0, gapAt, end)
  }
  return isMapped(bytes) ? bytes.slice(12) : bytes
}

function isMapped(bytes: Uint8Array): boolean {
  for (let i = 0; i < 10; i++) if (bytes[i] !== 0) return false
  return bytes[10] === 0xff && bytes[11] === 0xff
}

/** Canonical text; an IPv4-mapped IPv6 address is written as IPv4. Empty if it is not an address. */
export function canonicalAddress(text: string): string {
  if (isIPv4(text)) return text
  const bytes = parseAddress(text)
  if (bytes === undefined) return ''
  return bytes.length === 4 ? bytes.join('.') : formatIPv6(bytes)
}

/** RFC 5952: lower case, no leading zeros, the longest run of at least two zero groups (the first of equals) is `::`. */
function formatIPv6(bytes: Uint8Array): string {
  const groups: number[] = []
  for (let i = 0; i < 16; i += 2) groups.push((bytes[i]! << 8) | bytes[i + 1]!)
  let runStart = -1
  let runLength = 1
  for (let i = 0; i < 8; ) {
    let end = i
    while (end < 8 && groups[end] === 0) end++
    if (end - i > runLength) {
      runStart = i
      runLength = end - i
    }
    i = end + 1
  }
  const hex = groups.map(group => group.toString(16))
  if (runStart < 0) return hex.join(':')
  return `${hex.slice(0, runStart).join(':')}::${hex.slice(runStart + runLength).join(':')}`
}

/** The network that one host may have to itself, as a key: an IPv4 address, or the /64 of an IPv6 address. */
export function networkOf(address: string): string {
  return address.includes(':') ? networkOfIPv6(address) : address
}

/** Each part that a request passes asks for the same one. */
const networkOfIPv6 = memoizeLast((address: string) => {
  const bytes = parseAddress(address)
  if (bytes === undefined) return address
  return bytes.length === 4 ? bytes.join('.') : Buffer.from(bytes.subarray(0, 8)).toString('hex')
})

interface Cidr {
  readonly bytes: Uint8Array
  readonly bits: number
}

/** A list of networks; see {@link parseCidrs}. */
export type Cidrs = readonly Cidr[]

/**
 * Parses networks such as `10.0.0.0/8`, `::1` or `2001:db8::/32`; a bare address is a network of one. Mapped addresses are
 * read as IPv4. Throws TypeError at the first entry that is not a network.
 */
export function parseCidrs(list: readonly string[]): Cidrs {
  return list.map(parseCidr)
}

function parseCidr(text: string): Cidr {
  const cidr = cidrOf(text)
  if (cidr === undefined) throw new TypeError(`not a network: ${JSON.stringify(text)}`)
  return cidr
}

/** Whether {@link parseCidrs} takes it. */
export function isNetwork(value: unknown): value is string {
  return typeof value === 'string' && cidrOf(value) !== undefined
}

function cidrOf(text: string): Cidr | undefined {
  const [address = '', prefix, more] = text.trim().split('/')
  const bytes = parseAddress(address)
  if (bytes === undefined || more !== undefined) return undefined
  const widthGiven = address.includes(':') ? 128 : 32
  const full = bytes.length * 8
  const given = prefix === undefined ? widthGiven : /^[0-9]{1,3}$/.test(prefix) ? Number(prefix) : -1
  const bits = given - (widthGiven - full)
  return given < 0 || given > widthGiven || bits < 0 ? undefined : { bytes, bits }
}

/** Whether the address is in one of the networks. False for anything that is not an address. */
export function cidrsContain(cidrs: Cidrs, address: string): boolean {
  if (cidrs.length === 0) return false
  const bytes = parseAddress(address)
  if (bytes === undefined) return false
  for (const cidr of cidrs) if (cidr.bytes.length === bytes.length && samePrefix(cidr, bytes)) return true
  return false
}

function samePrefix(cidr: Cidr, bytes: Uint8Array): boolean {
  const whole = cidr.bits >> 3
  for (let i = 0; i < whole; i++) if (cidr.bytes[i] !== bytes[i]) return false
  const rest = cidr.bits & 7
  if (rest === 0) return true
  const mask = 0xff << (8 - rest)
  return ((cidr.bytes[whole]! ^ bytes[whole]!) & mask & 0xff) === 0
}

const LOOPBACK = parseCidrs(['127.0.0.0/8', '::1'])

/**
 * Whether a host is this machine: 127.0.0.0/8 and ::1 in any notation, and `localhost` with the names under it (RFC 6761).
 * Brackets as in a URL are allowed.
 */
export function isLoopback(host: string): boolean {
  const bare = host.startsWith('[') && host.endsWith(']') ? host.slice(1, -1) : host
  return /^(?:.+\.)?localhost$/i.test(bare) || cidrsContain(LOOPBACK, bare)
}
