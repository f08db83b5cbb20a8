/** The URL at which callers reach a runtime, as far as the server can know it. */
import { maskSecrets } from '../protocol/base/held-text.ts'

interface PublicPlace {
  readonly port?: number
  readonly fd?: number | undefined
  readonly url?: string | undefined
  readonly plaintext?: boolean | undefined
  readonly tls?: object | undefined
}

/** `https://*.tunnels.example.com` */
export const PUBLIC_URL = /^https?:\/\/\*\.[a-z0-9._-]+(?::\d{1,5})?$/i

/** The longest URL that `welcome` can carry. */
const MAX_URL = 256

/**
 * `options.url` with the runtime's name in place of `*`. Without it, built from the first domain and the port of the public
 * listener, or with no port if a proxy is in front. `undefined` if it cannot be known. `listening` is the port, once there is one.
 */
export function publicUrl(
  options: PublicPlace | undefined,
  domains: readonly string[],
  listening: number | undefined,
  runtime: string,
): string | undefined {
  const given = options?.url
  const url = given === undefined ? derived(options, domains[0], listening, runtime) : given.replace('*', () => runtime)
  return url === undefined || url.length > MAX_URL ? undefined : url
}

function derived(
  options: PublicPlace | undefined,
  domain: string | undefined,
  listening: number | undefined,
  runtime: string,
): string | undefined {
  if (options === undefined || domain === undefined) return undefined
  // A proxy in front terminates TLS.
  if (options.plaintext === true) return `https://${runtime}.${domain}`
  // Clients may connect before callers can. A socket that was given has a port of its own, and 0 becomes one.
  const port = listening ?? (options.fd === undefined ? options.port : 0)
  if (port === undefined || port === 0) return undefined
  const [scheme, usual] = options.tls === undefined ? ['http', 80] : ['https', 443]
  return `${scheme}://${runtime}.${domain}${port === usual ? '' : `:${port}`}`
}

/** Throws a TypeError unless `url` matches {@link PUBLIC_URL}. */
export function checkPublicUrl(url: string | undefined): void {
  if (url === undefined || PUBLIC_URL.test(url)) return
  throw new TypeError(`public.url: "${maskSecrets(url)}" must have the form https://*.tunnels.example.com`)
}
