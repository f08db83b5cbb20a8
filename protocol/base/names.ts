/** What a runtime may be called. The name stands in host names, tokens, certificates, directories and logs. */
const DNS_LABEL = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/

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

/** A DNS label as Kubernetes has it: lower case, at most 63 characters. */
export function isDnsLabel(text: string): boolean {
  return DNS_LABEL.test(text)
}
