/** Where a server keeps webhooks, and how many. */
import { resolve } from 'node:path'
import { checkAuthoritiesOf } from '../../protocol/base/certificates.ts'
import { type LimitOptions, resolveLimits } from '../../protocol/base/limit.ts'
import { INBOX, type InboxLimits } from '../limits.ts'
import type { MacOptions } from './mac.ts'
import { type PostgresLocation, readPostgresUrl } from './postgres-url.ts'

/** The inbox of a server; `docs/inbox.md` says what it promises. */
export interface InboxOptions extends LimitOptions<typeof INBOX> {
  /**
   * `sqlite:/var/lib/sallyport/inbox.db`: a file in a folder that exists. Only one server can use it at a time.
   * `postgres://USER@HOST:5432/DATABASE`: PostgreSQL 14 or newer, for servers that share one inbox. The connection is encrypted unless
   * the host is this machine; override that with `?sslmode=disable` or `?sslmode=verify-full`. Needs the package `pg`.
   */
  readonly url: string
  /** Password of the PostgreSQL user. The file is read for each connection. */
  readonly password?: { readonly file: string } | undefined
  /** Authority of PostgreSQL's certificate (PEM), for an encrypted connection only. Default: the system's authorities. */
  readonly ca?: string | Buffer | undefined
  /**
   * MAC secrets, one a line, hex or base64 of at least 32 bytes. With this, webhooks and rules in the store are accepted only with a
   * MAC by one of these secrets. The first one makes new MACs. The file is read again when it changes. Keep it apart from the store.
   * `optional` (default false) also delivers webhooks without a MAC, while some are left from before. Rules always need a MAC.
   */
  readonly mac?: { readonly file: string; readonly optional?: boolean | undefined } | undefined
  /**
   * Also store webhooks of clients without a key, unencrypted. Default false: their webhooks are not stored. Protect the store and
   * its backups.
   */
  readonly plaintext?: boolean | undefined
}

export interface ResolvedInbox {
  readonly place:
    | { readonly kind: 'sqlite'; readonly path: string }
    | (PostgresLocation & {
        readonly kind: 'postgres'
        readonly passwordFile: string | undefined
        readonly ca: InboxOptions['ca']
      })
  readonly mac: MacOptions | undefined
  readonly plaintext: boolean
  readonly limits: InboxLimits
}

/** Throws a TypeError that names what is wrong. */
export function checkInboxOptions(options: InboxOptions | undefined): ResolvedInbox | undefined {
  if (options === undefined) return undefined
  const { url, password, ca, mac, plaintext, ...limits } = options
  const place = placeOf(url, password?.file, ca)
  const isEncrypted = place.kind === 'postgres' && place.tls
  checkAuthoritiesOf(isEncrypted, 'inbox.ca', ca, 'PostgreSQL over TLS, such as with ?sslmode=verify-full')
  return {
    ...{ place, mac: mac && { file: mac.file, optional: mac.optional ?? false }, plaintext: plaintext ?? false },
    limits: resolveLimits(INBOX, limits, 'inbox'),
  }
}

function placeOf(url: string, passwordFile: string | undefined, ca: InboxOptions['ca']): ResolvedInbox['place'] {
  if (/^postgres(ql)?:/.test(url)) {
    try {
      return { kind: 'postgres', ...readPostgresUrl(url), passwordFile, ca }
    } catch (error) {
      throw new TypeError(`inbox: ${(error as Error).message}`, { cause: error })
    }
  }
  const [, path = ''] = /^sqlite:(.+)$/.exec(url) ?? []
  if (path === '') throw new TypeError('inbox: unknown kind of URL: write sqlite:PATH or postgres://USER@HOST/DATABASE')
  if (passwordFile !== undefined || ca !== undefined)
    throw new TypeError('inbox: password and ca are for PostgreSQL only')
  // An absolute path, since SQLite treats names such as `:memory:` specially, and keeps nothing there.
  return { kind: 'sqlite', path: resolve(path) }
}
