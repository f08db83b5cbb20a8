/**
 * Reads the URL of Redis. It has one address, or several of which one is the right one: nodes of a cluster, a primary and its
 * standbys, or Sentinels that know the primary.
 *
 *     redis://host:6379/0    redis://a:6379,b:6379,c:6379    redis+sentinel://a:26379,b:26379/NAME
 */
export interface RedisLocation {
  /** Encrypt connections, also those to Sentinels. */
  readonly tls: boolean
  /** `host:port`, to be tried in turn. */
  readonly hosts: readonly string[]
  /** The Sentinels' name for the primary. */
  readonly sentinel: string | undefined
  /** Number of the database. */
  readonly database: number
  /** `user:password`, exactly as in the URL. */
  readonly credentials: string | undefined
}

const URL_FORM = /^redis(s?)(\+sentinel)?:\/\/(?:([^@/]*)@)?([^@/?#\s]+)((?:\/[^/?#\s]*)*)$/
const ADDRESS_FORM = /^(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+):\d{1,5}$/i
const MAX_HOSTS = 32

/** Whether it is `host:port`. */
export function isAddress(text: string): boolean {
  return ADDRESS_FORM.test(text) && URL.canParse(`redis://${text}`)
}

export const CHANNELS = ['changes', 'operators', 'revocations'] as const

/**
 * The name of a channel. Redis has one set of channels for all databases, so that of any but the first has its number, at the end:
 * before it, `sallyport:1` in the first database would have the channels of `sallyport` in the second.
 */
export function channelOf(url: string, prefix: string, name: (typeof CHANNELS)[number]): string {
  const { database } = readPlace(url)
  return `${prefix}:${name}${database > 0 ? `:${database}` : ''}`
}

/** Throws a TypeError that says what was expected. */
export function readPlace(url: string): RedisLocation {
  const [, s, isSentinel, credentials, hosts = '', path = ''] = URL_FORM.exec(url) ?? []
  const port = isSentinel ? 26_379 : 6379
  const list = hosts.split(',').map(host => (/:\d{1,5}$/.test(host) ? host : `${host}:${port}`))
  if (!list.every(isAddress) || list.length > MAX_HOSTS) {
    throw new TypeError('must begin with redis:// or rediss://, and have HOST:PORT or several with commas')
  }
  const [name = '', database = ''] = isSentinel ? path.split('/').slice(1) : ['', path.slice(1)]
  if (isSentinel && name === '')
    throw new TypeError('must end with the name that the Sentinels give: redis+sentinel://a,b/NAME')
  if (!/^\d{0,4}$/.test(database)) throw new TypeError('must end with the number of a database, or nothing')
  return {
    tls: s === 's',
    hosts: list,
    sentinel: isSentinel ? name : undefined,
    database: Number(database),
    credentials,
  }
}
