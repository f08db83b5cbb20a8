/** What identifies duplicates: the sender's id, how it is signed, the target, and the body. */
import { createHash } from 'node:crypto'
import type { HeaderList, HttpRequest } from '../../protocol/exchange.ts'
import { getHeader } from '../../protocol/http/headers.ts'
import { schemeFields } from '../../protocol/webhook/scheme.ts'
import type { Rule } from './rules.ts'

/** Senders that retry by themselves do so within this time. */
const REPEATED_MS = 10 * 60_000

/** Fields in which senders identify a delivery. Retries have the same values. */
const ID_FIELDS: readonly (readonly [name: string, dedupeMs: number])[] = [
  // GitHub never retries by itself. A second one comes from a person who wants it delivered.
  ['x-github-delivery', 0],
  ['x-forgejo-delivery', 0],
  ['x-gitea-delivery', 0],
  ['webhook-id', REPEATED_MS],
  ['svix-id', REPEATED_MS],
  ['idempotency-key', REPEATED_MS],
  ['x-request-uuid', REPEATED_MS],
]

/** Nothing that tells one delivery from another, maybe as a structured string. */
const EMPTY = /^[\s"]*$/

/** Retries of one sender have the same values. */
const SIGNED: ReadonlySet<string> = new Set(schemeFields(false))
/** These cover the time, so each retry has other ones. `svix-signature` is in no scheme, but receivers check it. */
const TIMESTAMPED: ReadonlySet<string> = new Set([...schemeFields(true), 'svix-signature'])

/** The sender's id, and how long after the delivery duplicates are still recognised. `undefined` if there is no id. */
export function senderId(headers: HeaderList): { readonly id: string; readonly dedupeMs: number } | undefined {
  for (const [name, dedupeMs] of ID_FIELDS) {
    const value = getHeader(headers, name)
    if (value !== undefined && !EMPTY.test(value)) return { id: `${name}:${value}`, dedupeMs }
  }
  return undefined
}

/**
 * The fields that prove who has sent a webhook. If another one with the same id has others, one of the two may be forged, and is refused once
 * it is delivered. A signature that covers the time tells a retry from a forgery only once it is verified, so until then it counts as well.
 * After that, a mark takes its place, which no field is equal to: a forgery may have none of these fields.
 */
export function proofsOf(headers: HeaderList, { signature }: Pick<Rule, 'signature'>, isVerified: boolean): string[] {
  const proofs: string[] = []
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!
    const isTimed = TIMESTAMPED.has(name)
    const isProof = name === signature || SIGNED.has(name) || (!isVerified && isTimed)
    if (isProof) proofs.push(`${name}:${headers[i + 1]!}`)
    else if (isTimed) proofs.push('verified')
  }
  return proofs.sort()
}

type Target = Pick<HttpRequest, 'method' | 'authority' | 'path'>

/** Senders use one id for all endpoints that a message goes to, so the digest includes the target. */
export function dedupeDigest(
  id: string,
  proofs: readonly string[],
  { method, authority, path }: Target,
  bodyDigest: Uint8Array,
): string {
  const target = JSON.stringify([id, proofs, method, authority.toLowerCase(), path])
  return createHash('sha256').update(target).update('\0').update(bodyDigest).digest('base64url')
}

/** Stands in for the path in the store and in lists. */
export function laneDigest(runtime: string, lane: string): string {
  return createHash('sha256').update(runtime).update('\0').update(lane).digest('hex').slice(0, 32)
}
