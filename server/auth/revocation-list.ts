/**
 * Parses and formats a document of revocations, in a file or behind a URL:
 *
 *     { "revocations": [{ "jti": "...", "runtime": "...", "issuedBefore": 1767225600, "until": "2027-01-01T00:00:00Z" }] }
 *
 * Each rule names a token, a runtime or a time of issue, or several of these, which must then all match. Times are seconds since
 * 1970, or text as in RFC 3339 (also a day, which begins at 00:00Z). A file may be empty, unless there were rules in it before.
 */
import { createHash } from 'node:crypto'
import { isRecord } from '../../protocol/base/is-record.ts'
import { isoTimeS } from '../../protocol/base/iso-time.ts'
import { parseUniqueObject } from './json.ts'
import { checkForm, checkRevocation, MAX_REVOCATIONS, type Revocation } from './revocations.ts'

export const MAX_LIST_BYTES = 2 * 1024 * 1024
/** What surrounds the rules, less the comma and the line end that the last one does not have. */
const FRAME_BYTES = 22

const MEMBERS: ReadonlySet<string> = new Set(['jti', 'runtime', 'issuedBefore', 'until'])

/** Throws an Error that says what is wrong. One invalid rule makes the whole list invalid, since skipping it would lose a revocation. */
export function parseRevocations(text: string, check = checkRevocation): Revocation[] {
  if (text.trim() === '') return []
  const value = parseUniqueObject(text)
  if (value === undefined) throw new Error('the list of revocations is not JSON, or not an object with unique members')
  if (!Array.isArray(value.revocations)) throw new Error('there is no list `revocations`')
  if (Object.keys(value).length > 1) throw new Error('there is a member besides `revocations`')
  if (value.revocations.length > MAX_REVOCATIONS) throw new Error(`there are over ${MAX_REVOCATIONS} revocations`)
  return value.revocations.map((rule, i) => readRule(rule, i, check))
}

/** The same for a list that an older version of ours may have written. What it revoked, it revokes. */
export function parseOwnRevocations(text: string): Revocation[] {
  return parseRevocations(text, checkForm)
}

/**
 * Formats the rules without duplicates, and as many of `others` as there is room for. Throws a RangeError if the list would be too long
 * to be read back without them.
 */
export function formatRevocations(rules: readonly Revocation[], others: readonly Revocation[] = []): string {
  const texts = new Set<string>()
  let bytes = 0
  const put = (rule: Revocation) => {
    const text = formatRule(rule)
    if (texts.has(text)) return true
    const length = Buffer.byteLength(text) + 2
    if (texts.size >= MAX_REVOCATIONS || bytes + length > MAX_LIST_BYTES - FRAME_BYTES) return false
    texts.add(text)
    bytes += length
    return true
  }
  if (!rules.every(put)) throw noRoom()
  others.forEach(put)
  return `{ "revocations": [\n${[...texts].join(',\n')}\n] }\n`
}

export function noRoom(): RangeError {
  return new RangeError(`a list can hold ${MAX_REVOCATIONS} revocations and ${MAX_LIST_BYTES} bytes: remove some`)
}

/** The same text for equal rules. */
export function formatRule({ tokenId, runtime, issuedBefore, until }: Revocation): string {
  return JSON.stringify({ jti: tokenId, runtime, issuedBefore, until })
}

/** Parses what {@link formatRule} wrote, in this or an older version. Throws an Error for anything else. */
export function parseRule(text: string): Revocation {
  return readRule(parseUniqueObject(text), 0, checkForm)
}

/** The id of a rule for operators. */
export function idOf(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 12)
}

function readRule(value: unknown, index: number, check: (rule: Revocation) => void): Revocation {
  const where = `revocation ${index + 1}`
  if (!isRecord(value)) throw new Error(`${where} is not an object`)
  for (const name of Object.keys(value)) if (!MEMBERS.has(name)) throw new Error(`${where} has an unknown member`)
  const rule = {
    tokenId: value.jti as string | undefined,
    runtime: value.runtime as string | undefined,
    issuedBefore: readTime(value.issuedBefore, `${where}: issuedBefore`),
    until: readTime(value.until, `${where}: until`),
  }
  try {
    check(rule)
  } catch (error) {
    throw new Error(`${where}: ${(error as Error).message}`)
  }
  return rule
}

function readTime(value: unknown, what: string): number | undefined {
  if (typeof value !== 'string') return value as number | undefined
  const at = isoTimeS(value)
  if (!Number.isNaN(at)) return at
  const given = JSON.stringify(value.slice(0, 64))
  throw new Error(`${what} must be seconds since 1970 or a time such as 2027-01-01T00:00:00Z, and not ${given}`)
}
