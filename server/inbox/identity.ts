/** What identifies duplicates: the sender's id, the target, and the body. */
import { createHash } from 'node:crypto'
import type { HeaderList, HttpRequest } from '../../protocol/exchange.ts'
import { getHeader } from '../../protocol/http/headers.ts'

/** Senders that retry by themselves do so within this time. */
const REPEATED_MS = 10 * 60_000

/**
 * Fields in which senders identify a delivery, and sign its body. Retries have the same values. Once the secret was changed, they are signed
 * differently, and the earlier one may be refused for its signature.
 */
const ID_FIELDS: readonly (readonly [name: string, dedupeMs: number, signature?: string])[] = [
  // GitHub never retries by itself. A second one comes from a person who wants it delivered.
  ['x-github-delivery', 0, 'x-hub-signature-256'],
  ['x-forgejo-delivery', 0, 'x-forgejo-signature'],
  ['x-gitea-delivery', 0, 'x-gitea-signature'],
  // Signatures of these cover the time, so each retry has another one.
  ['webhook-id', REPEATED_MS],
  ['svix-id', REPEATED_MS],
  ['idempotency-key', REPEATED_MS, 'x-gitlab-token'],
  ['x-request-uuid', REPEATED_MS, 'x-hub-signature'],
]

/** Nothing that tells one delivery from another, maybe as a structured string. */
const EMPTY = /^[\s"]*$/

/** The sender's id, and how long after the delivery duplicates are still recognised. `undefined` if there is no id. */
export function senderId(headers: HeaderList): { readonly id: string; readonly dedupeMs: number } | undefined {
  for (const [name, dedupeMs, signature = ''] of ID_FIELDS) {
    const value = getHeader(headers, name)
    if (value !== undefined && !EMPTY.test(value))
      return { id: `${name}:${value} ${getHeader(headers, signature) ?? ''}`, dedupeMs }
  }
  return undefined
}

type Target = Pick<HttpRequest, 'method' | 'authority' | 'path'>

/** Senders use one id for all endpoints that a message goes to, so the digest includes the target. */
export function dedupeDigest(id: string, { method, authority, path }: Target, bodyDigest: Uint8Array): string {
  const target = JSON.stringify([id, method, authority.toLowerCase(), path])
  return createHash('sha256').update(target).update('\0').update(bodyDigest).digest('base64url')
}

/** Stands in for the path in the store and in lists. */
export function laneDigest(runtime: string, lane: string): string {
  return createHash('sha256').update(runtime).update('\0').update(lane).digest('hex').slice(0, 32)
}
