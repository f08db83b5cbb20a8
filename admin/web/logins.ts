import { createHash, randomBytes } from 'node:crypto'

const CODE_MS = 10 * 60_000
export const LOGIN_MS = 12 * 3_600_000
const MAX_CODES = 8
const MAX_LOGINS = 16

/**
 * Logins for reading the page without the admin token. A code opens one login, within ten minutes. A login is a cookie that can only
 * read. It ends after twelve hours, with the process, or when the admin token changes. Secrets are kept as digests, so that no
 * comparison reveals them byte by byte.
 */
export class Logins {
  readonly #codes = new Map<string, number>()
  readonly #logins = new Map<string, number>()
  readonly #now: () => number
  /** Digest of the admin token under which they were issued. */
  #token: string | undefined

  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** Ends codes and logins that were made under another admin token than this one. Returns the token. */
  under(token: string): string {
    const key = digest(token)
    if (this.#token !== undefined && this.#token !== key) {
      this.#codes.clear()
      this.#logins.clear()
    }
    this.#token = key
    return token
  }

  /** Issues a code for a link. If there are more than eight, the oldest stops working. */
  issue(): string {
    return keep(this.#codes, MAX_CODES, this.#now() + CODE_MS)
  }

  /** The value for the cookie, if `code` is valid and unused. */
  redeem(code: string): string | undefined {
    const key = digest(code)
    const ends = this.#codes.get(key)
    this.#codes.delete(key)
    if (ends === undefined || ends < this.#now()) return undefined
    return keep(this.#logins, MAX_LOGINS, this.#now() + LOGIN_MS)
  }

  /** Whether this is the value of a valid cookie. */
  holds(value: string): boolean {
    return (this.#logins.get(digest(value)) ?? 0) > this.#now()
  }
}

function keep(secrets: Map<string, number>, most: number, ends: number): string {
  const [oldest] = secrets.keys()
  if (secrets.size >= most && oldest !== undefined) secrets.delete(oldest)
  const secret = randomBytes(16).toString('base64url')
  secrets.set(digest(secret), ends)
  return secret
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('base64')
}
