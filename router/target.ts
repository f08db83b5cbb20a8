/** Targets: parsed from the configuration, and completed with captured names and nothing else (R4). */
import { isIP } from 'node:net'
import { withBrackets, withoutBrackets } from '../protocol/base/host-port.ts'
import { isDnsLabel } from '../protocol/base/names.ts'

type TargetProtocol = 'http' | 'https' | 'h2c'

/** One upstream as the pools know it. */
export interface UpstreamTarget {
  /** Equal for targets that may share connections: same protocol, name, source of the name, address and TLS identity. */
  readonly key: string
  readonly protocol: TargetProtocol
  /** Name or address, without brackets. */
  readonly host: string
  readonly port: number
  /** The value of `Host`. It has the port only if that is not the default of the protocol. */
  readonly authority: string
  /** What is dialled: `host` and `port`, unless `resolve` names another address. */
  readonly dialHost: string
  readonly dialPort: number
  /** Whether a part of `host` came from the caller. */
  readonly captured: boolean
  readonly tls: TlsIdentity | undefined
  /** If HTTP/2 may be negotiated: the same target without it, for WebSockets, which few servers accept over HTTP/2 (RFC 8441). */
  readonly http1: UpstreamTarget | undefined
}

/** What an `https:` target's certificate is checked against. */
export interface TlsIdentity {
  readonly key: string
  /** PEM. Undefined for the authorities that Node trusts. */
  readonly ca: string | undefined
  /** Undefined for the target's host. */
  readonly serverName: string | undefined
  readonly insecure: boolean
  /** Offers HTTP/2 beside HTTP/1.1 (ALPN). */
  readonly http2: boolean
}

/** A target with `{name}` in its host. `parts` alternates text and names: `text, name, text, ...`. */
export interface TargetTemplate {
  readonly text: string
  readonly protocol: TargetProtocol
  readonly port: number
  readonly parts: readonly string[]
}

const SHAPE = /^(https?|h2c):\/\/(\[[0-9A-Fa-f:.]+\]|[^/?#\\@:[\]\s]+)(?::([0-9]{1,5}))?\/?$/
const HOST_NAME = /^(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*\.?$/
const CAPTURE = /\{([A-Za-z][A-Za-z0-9]*)\}/

const DEFAULT_PORTS: Record<TargetProtocol, number> = { http: 80, https: 443, h2c: 80 }

/** Parses `protocol://host:port`. Throws TypeError with what is wrong, without the target itself. */
export function parseTarget(text: string): TargetTemplate {
  const found = SHAPE.exec(text)
  if (found === null) throw new TypeError(describeShape(text))
  const protocol = found[1] as TargetProtocol
  const host = withoutBrackets(found[2]!)
  const port = found[3] === undefined ? DEFAULT_PORTS[protocol] : Number(found[3])
  if (port < 1 || port > 65_535) throw new TypeError('the port must be 1 to 65535')
  const parts = host.split(CAPTURE)
  checkHost(parts)
  return { text, protocol, port, parts }
}

function describeShape(text: string): string {
  if (!/^(?:https?|h2c):\/\//.test(text)) return 'must begin with http://, https:// or h2c://'
  if (text.includes('@')) return 'must not have a user name or password'
  if (/^[a-z0-9]+:\/\/[^/?#]*[/?#]/.test(text)) return 'must be only host and port; a path is set with rewrite'
  return 'must be a URL such as http://service:8080'
}

function checkHost(parts: readonly string[]): void {
  const filledWith = (name: string) => parts.map((part, i) => (i % 2 === 0 ? part.toLowerCase() : name)).join('')
  if (isIP(filledWith('0')) !== 0) {
    if (parts.length > 1) throw new TypeError('a captured name cannot be part of an IP address')
    return
  }
  const filled = filledWith('x')
  if (/[{}]/.test(filled)) throw new TypeError('a capture in the host is written {name}')
  if (!HOST_NAME.test(filled)) throw new TypeError('the host is neither a name nor an IP address')
  if (endsInNumber(filled)) throw new TypeError('the host is not an IP address in its usual form')
}

/** Whether resolvers may read the name as an IPv4 address in an odd notation (URL standard, "ends in a number"). */
function endsInNumber(host: string): boolean {
  const last = host.replace(/\.$/, '').split('.').at(-1)!
  return /^(?:[0-9]+|0x[0-9a-f]*)$/i.test(last)
}

/** The captured names in the host. */
export function captureNames(template: TargetTemplate): string[] {
  return template.parts.filter((_, i) => i % 2 === 1)
}

/** The target with the captured names filled in. Undefined if one is not a DNS label, or the whole is not a name for a service. */
export function fillTarget(
  template: TargetTemplate,
  captures: Readonly<Record<string, string>>,
  resolve: ReadonlyMap<string, string>,
  tls: TlsIdentity | undefined,
): UpstreamTarget | undefined {
  let host = ''
  for (let i = 0; i < template.parts.length; i++) {
    const part = template.parts[i]!
    if (i % 2 === 0) {
      host += part.toLowerCase()
      continue
    }
    const name = captures[part]
    if (name === undefined || !isDnsLabel(name)) return undefined
    host += name
  }
  const captured = template.parts.length > 1
  if (captured && !isServiceName(host)) return undefined
  return makeTarget(template.protocol, host, template.port, resolve, tls, captured)
}

/** Checks a host that was made from captures: its lengths, and that no resolver reads it as an address or as this machine. */
function isServiceName(host: string): boolean {
  if (host.length > 253 || !HOST_NAME.test(host) || endsInNumber(host)) return false
  return host !== 'localhost' && !host.endsWith('.localhost')
}

export function makeTarget(
  protocol: TargetProtocol,
  host: string,
  port: number,
  resolve: ReadonlyMap<string, string>,
  tls: TlsIdentity | undefined,
  captured = false,
): UpstreamTarget {
  const bracketed = withBrackets(host)
  const address = resolve.get(`${bracketed}:${port}`)
  const colon = address?.lastIndexOf(':') ?? -1
  const dialHost = address === undefined ? host : withoutBrackets(address.slice(0, colon))
  const dialPort = address === undefined ? port : Number(address.slice(colon + 1))
  const negotiates = tls?.http2 === true
  return {
    key: `${protocol}|${host}|${port}|${dialHost}|${dialPort}|${tls?.key ?? ''}|${negotiates ? 'h2' : ''}|${captured ? 'captured' : ''}`,
    protocol,
    host,
    port,
    authority: port === DEFAULT_PORTS[protocol] ? bracketed : `${bracketed}:${port}`,
    dialHost,
    dialPort,
    captured,
    tls,
    http1: negotiates ? makeTarget(protocol, host, port, resolve, { ...tls, http2: false }, captured) : undefined,
  }
}

/** Whether requests to it may leave over HTTP/2. */
export function maySpeakHttp2(target: UpstreamTarget): boolean {
  return target.protocol === 'h2c' || target.http1 !== undefined
}

const RESOLVE_ADDRESS = /^(\[[0-9A-Fa-f:.]+\]|[0-9.]+):([0-9]{1,5})$/

/** Whether `text` is an address and port, as the right side of `resolve` must be. */
export function isResolveAddress(text: string): boolean {
  const found = RESOLVE_ADDRESS.exec(text)
  if (found === null || isIP(withoutBrackets(found[1]!)) === 0) return false
  return Number(found[2]) >= 1 && Number(found[2]) <= 65_535
}

/** Whether `text` is a name (or address) and port, as the left side of `resolve` must be. */
export function isResolveName(text: string): boolean {
  return /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+):[0-9]{1,5}$/.test(text)
}
