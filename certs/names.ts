import { isIP } from 'node:net'
import { domainToASCII } from 'node:url'
import { maskSecrets } from '../protocol/base/held-text.ts'
import { isRuntimeName } from '../protocol/base/names.ts'

const HOST_LABEL = /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/
/** What `domainToASCII` leaves out without notice, or decodes. Some languages need joiners (U+200C and U+200D). */
const IGNORED = /(?![\u200c\u200d])[\p{Cc}\p{Cf}%]/u
const RUNTIME_URI = 'urn:sallyport:runtime:'

/**
 * Returns `name`, or throws a `TypeError` that says what a runtime name must look like.
 *
 * @example
 * ```ts
 * import { checkRuntimeName } from 'sallyport/certs'
 *
 * const runtime = checkRuntimeName(process.argv[2] ?? '')
 * ```
 */
export function checkRuntimeName(name: string): string {
  if (isRuntimeName(name)) return name
  throw new TypeError(
    `runtime name ${JSON.stringify(maskSecrets(name))} is not a DNS label (a-z, 0-9, and "-" inside; at most 63 characters)`,
  )
}

/**
 * The subject alternative name (URI) with which a client certificate names its runtime.
 *
 * @example
 * ```ts
 * import { runtimeToUri } from 'sallyport/certs'
 *
 * runtimeToUri('prod') // 'urn:sallyport:runtime:prod'
 * ```
 */
export function runtimeToUri(runtime: string): string {
  return RUNTIME_URI + checkRuntimeName(runtime)
}

/**
 * The runtime that a URI of {@link runtimeToUri} names, or `undefined` for any other URI.
 *
 * @example
 * ```ts
 * import { runtimeFromUri } from 'sallyport/certs'
 *
 * runtimeFromUri('urn:sallyport:runtime:prod') // 'prod'
 * ```
 */
export function runtimeFromUri(uri: string): string | undefined {
  if (!uri.startsWith(RUNTIME_URI)) return undefined
  const runtime = uri.slice(RUNTIME_URI.length)
  return isRuntimeName(runtime) ? runtime : undefined
}

/** A host name or address in a certificate. */
export interface HostName {
  readonly type: 'dns' | 'ip'
  readonly value: string
}

/**
 * Parses a host for a server certificate: a DNS name, `*.` and a DNS name of two or more labels, or an IP address (IPv6 with or
 * without brackets). Throws a `TypeError` for anything else.
 *
 * @example
 * ```ts
 * import { parseHostName } from 'sallyport/certs'
 *
 * parseHostName('[::1]') // { type: 'ip', value: '::1' }
 * ```
 */
export function parseHostName(text: string): HostName {
  const bare = text.startsWith('[') && text.endsWith(']') ? text.slice(1, -1) : text
  if (isIP(bare) !== 0 && !bare.includes('%')) return { type: 'ip', value: bare }
  const wildcard = text.startsWith('*.')
  const name = IGNORED.test(text) ? '' : domainToASCII(wildcard ? text.slice(2) : text)
  const labels = name.split('.')
  if (name.length > 253 || !labels.every(label => HOST_LABEL.test(label)) || /^\d+$/.test(labels.at(-1)!)) {
    throw new TypeError(
      `${JSON.stringify(text)} is not a host name: give a DNS name, "*." and a DNS name, or an IP address`,
    )
  }
  if (wildcard && labels.length < 2) {
    throw new TypeError(
      `${text}: TLS clients refuse a wildcard directly under a top-level domain; use *.something.${name}`,
    )
  }
  return { type: 'dns', value: wildcard ? `*.${name}` : name }
}
