/**
 * Where PostgreSQL is, as a URL says it:
 *
 *     postgres://USER@HOST:5432/DATABASE    postgres://USER@/DATABASE?host=/run/postgresql
 */
export interface PostgresLocation {
  /** A path: the folder of a socket. */
  readonly host: string
  readonly port: number
  readonly database: string
  readonly user: string
  /** Encrypted, with a certificate for `host`. */
  readonly tls: boolean
}

/** Throws a TypeError that says what was expected, and nothing of the URL, which may hold a password. */
export function readPostgresUrl(text: string): PostgresLocation {
  // A URL of this kind may be without a host, if it has no user.
  const url = URL.canParse(text) ? new URL(text) : new URL('none:')
  const asked = Object.fromEntries(url.searchParams)
  const {
    host = decodeURIComponent(url.hostname).replace(/^\[(.*)\]$/, '$1'),
    user = url.username,
    sslmode,
    ...more
  } = asked
  const database = decodeURIComponent(url.pathname.slice(1))
  if (!/^postgres(ql)?:$/.test(url.protocol) || host === '' || user === '' || !/^[^/]+$/.test(database)) {
    throw new TypeError(
      'expected postgres://USER@HOST:PORT/DATABASE, or postgres:///DATABASE?user=USER&host=FOLDER for a socket',
    )
  }
  if (url.password !== '') throw new TypeError('has a password in its URL: put it into a file (--inbox.password.file)')
  const [unknown] = Object.keys(more)
  if (unknown !== undefined) throw new TypeError(`has ${unknown} in its URL: it takes host, user and sslmode`)
  if (sslmode !== undefined && sslmode !== 'disable' && sslmode !== 'verify-full') {
    throw new TypeError('takes sslmode=verify-full, or sslmode=disable')
  }
  const isHere = host.startsWith('/') || host === 'localhost' || host === '::1' || /^127\./.test(host)
  return {
    ...{ host, port: Number(url.port || 5432), database, user: decodeURIComponent(user) },
    tls: sslmode === undefined ? !isHere : sslmode === 'verify-full',
  }
}
