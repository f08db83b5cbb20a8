/**
 * Reads the URL of a PostgreSQL database:
 *
 *     postgres://USER@HOST:5432/DATABASE    postgres://USER@/DATABASE?host=/run/postgresql
 */
export interface PostgresLocation {
  /** A host name or address, or the path of a socket's folder. */
  readonly host: string
  readonly port: number
  readonly database: string
  readonly user: string
  /** Encrypt, and verify that the certificate is for `host`. */
  readonly tls: boolean
}

/** Throws a TypeError that says what was expected. It never quotes the URL, which may contain a password. */
export function readPostgresUrl(text: string): PostgresLocation {
  // `postgres:///DATABASE` parses without a host, as long as there is no user before it.
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
  if (url.password !== '') throw new TypeError('the URL has a password: put it into a file (--inbox.password.file)')
  const [unknown] = Object.keys(more)
  if (unknown !== undefined)
    throw new TypeError(`the URL has an unknown parameter ${unknown}: only host, user and sslmode are allowed`)
  if (sslmode !== undefined && sslmode !== 'disable' && sslmode !== 'verify-full') {
    throw new TypeError('sslmode must be verify-full or disable')
  }
  const isHere = host.startsWith('/') || host === 'localhost' || host === '::1' || /^127\./.test(host)
  return {
    ...{ host, port: Number(url.port || 5432), database, user: decodeURIComponent(user) },
    tls: sslmode === undefined ? !isHere : sslmode === 'verify-full',
  }
}
