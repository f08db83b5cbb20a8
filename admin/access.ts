import { createHash, timingSafeEqual } from 'node:crypto'
import { isIP } from 'node:net'

/**
 * Whether to answer a request without a token: only if its Host is `localhost` or an IP address. That defeats DNS rebinding, since a
 * page that rebinds its own DNS name to this address still sends that name.
 */
export function isHostAllowed(host: string | undefined): boolean {
  if (host === undefined) return false
  const match = /^(?:\[([^\]]+)\]|([^:]+))(?::\d{1,5})?$/.exec(host)
  const name = (match?.[1] ?? match?.[2] ?? '').toLowerCase()
  return name === 'localhost' || isIP(name) !== 0
}

/** Whether a field can carry `token`: other characters do not arrive, or not as they were sent. */
export function isSendableToken(token: string): boolean {
  return /^[!-~]{1,8192}$/.test(token)
}

/** Whether an `Authorization` field carries `token`. Takes constant time. */
export function bearsToken(authorization: string | undefined, token: string): boolean {
  const given = /^Bearer +(\S+)$/i.exec(authorization ?? '')?.[1]
  return (
    given !== undefined &&
    isSendableToken(given) &&
    isSendableToken(token) &&
    timingSafeEqual(digest(given), digest(token))
  )
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
