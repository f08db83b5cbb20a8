/** Names of runtimes. They appear in host names, tokens, certificates, directories and logs. */
export const DNS_LABEL = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/

/**
 * Whether `name` can name a runtime: a DNS label in lower case, at most 63 characters.
 *
 * @example
 * ```ts
 * import { isRuntimeName } from 'sallyport/certs'
 *
 * isRuntimeName('prod-eu1') // true
 * isRuntimeName('Prod') // false
 * ```
 */
export function isRuntimeName(name: string): boolean {
  return isDnsLabel(name)
}

const HOST_NAME = /^(?=.{4,253}$)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?$/

/**
 * Whether `name` can be a host of a runtime's own: a lower-case DNS name with a dot, but no trailing one. Addresses and
 * wildcards cannot.
 */
export function isHostName(name: string): boolean {
  return HOST_NAME.test(name)
}

/** Whether `host` is `name` or a name below it. */
export function isBelow(host: string, name: string): boolean {
  return host === name || host.endsWith(`.${name}`)
}

/** Most hosts that one token may claim. */
export const MAX_CLAIMED_HOSTS = 32
/** The claim that names them. */
export const HOSTS_CLAIM = 'sallyport_hosts'

/** Whether `text` is a DNS label as in Kubernetes: lower case, at most 63 characters. */
export function isDnsLabel(text: string): boolean {
  return DNS_LABEL.test(text)
}
