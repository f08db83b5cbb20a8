/** What makes a webhook the same as another one: its sender's id, where it goes, and its body. */
import { createHash } from 'node:crypto'
import type { HeaderList, HttpRequest } from '../../protocol/exchange.ts'
import { getHeader } from '../../protocol/http/headers.ts'

/** Senders that try again by themselves do it within this time. */
const REPEATED_MS = 10 * 60_000

/** Fields in which senders say which delivery it is, the same when they try again. */
const ID_FIELDS: readonly (readonly [name: string, dedupeMs: number])[] = [
  // GitHub never tries again by itself: a second one is a person's, who wants it delivered.
  ['x-github-delivery', 0],
  ['x-forgejo-delivery', 0],
  ['x-gitea-delivery', 0],
  ['webhook-id', REPEATED_MS],
  ['svix-id', REPEATED_MS],
  ['idempotency-key', REPEATED_MS],
  ['x-request-uuid', REPEATED_MS],
]

/** The sender's id, and how long after the delivery it is still looked for; undefined: the sender says none. */
export function senderId(headers: HeaderList): { readonly id: string; readonly dedupeMs: number } | undefined {
  for (const [name, dedupeMs] of ID_FIELDS) {
    const value = getHeader(headers, name)
    if (value !== undefined && value !== '') return { id: `${name}:${value}`, dedupeMs }
  }
  return undefined
}

type Target = Pick<HttpRequest, 'method' | 'authority' | 'path'>

/** Senders use one id for all endpoints that a message goes to: each is another webhook. */
export function dedupeDigest(id: string, { method, authority, path }: Target, bodyDigest: Uint8Array): string {
  const target = JSON.stringify([id, method, authority.toLowerCase(), path])
  return createHash('sha256').update(target).update('\0').update(bodyDigest).digest('base64url')
}

/** What lists show in place of a path. */
export function laneDigest(runtime: string, lane: string): string {
  return createHash('sha256').update(runtime).update('\0').update(lane).digest('hex').slice(0, 32)
}
