/** The option that says where verification keys come from, for tokens of clients as for those of callers. */
import { checkAuthorities } from '../protocol/base/certificates.ts'
import { checkDurations } from '../protocol/base/durations.ts'
import { demand } from '../protocol/base/limit.ts'
import { checkMembers, type Members } from '../protocol/base/members.ts'
import type { KeyOrigin } from './auth/key-source.ts'

const FETCHED: Members<Extract<KeyOrigin, { url: string }>> = { url: 'string', ca: 'content', coolDownMs: 'number' }

/** A key set that is given by value may have further members. Throws a TypeError that names what is wrong. */
export function checkKeyOrigin(group: string, origin: KeyOrigin): void {
  const known = typeof origin === 'object' && ('keys' in origin || 'file' in origin || 'url' in origin)
  demand(known, `${group} must be a key set, { file } or { url }`)
  if ('keys' in origin) return
  if ('url' in origin) {
    checkMembers(group, origin, FETCHED)
    demand(/^https:/i.test(origin.url), `${group}.url must be an https URL`)
    checkAuthorities(`${group}.ca`, origin.ca)
  } else if ('file' in origin) checkMembers(group, origin, { file: 'string' })
  checkDurations(group, origin)
}
