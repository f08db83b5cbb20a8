import type { webcrypto } from 'node:crypto'
import type * as X509 from '@peculiar/x509'
import { demand } from '../protocol/base/limit.ts'

type Reflection = typeof Reflect & Record<string, unknown>

/**
 * Loads `@peculiar/x509` when the first certificate is made.
 *
 * Its dependency `tsyringe` refuses to load without a metadata polyfill, although the certificate code declares nothing that needs
 * it. So we install empty stand-ins while it loads, and leave nothing behind in the globals of an embedder.
 */
export async function loadX509(): Promise<typeof X509> {
  const reflection = Reflect as Reflection
  if (typeof reflection.getMetadata === 'function') return import('@peculiar/x509')
  const standIns = { getMetadata: () => undefined, getOwnMetadata: () => undefined, defineMetadata: () => undefined }
  Object.assign(reflection, standIns)
  try {
    return await import('@peculiar/x509')
  } finally {
    for (const [name, standIn] of Object.entries(standIns)) if (reflection[name] === standIn) delete reflection[name]
  }
}

/** The key algorithm of all certificates made here. */
export const EC_P256 = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const

/** A fresh P-256 key pair. */
export function generateEcKeys(): Promise<webcrypto.CryptoKeyPair> {
  return crypto.subtle.generateKey(EC_P256, true, ['sign', 'verify'])
}

/** Private key as PKCS#8 PEM. */
export async function privateKeyToPem(key: CryptoKey): Promise<string> {
  const body = Buffer.from(await crypto.subtle.exportKey('pkcs8', key)).toString('base64')
  return `-----BEGIN PRIVATE KEY-----\n${body.replace(/(.{64})(?=.)/g, '$1\n')}\n-----END PRIVATE KEY-----\n`
}

/** Rounds `03:16:00.123` down to `03:16:00`, since certificates have no fractions of seconds. */
export function wholeSeconds(timeMs: number): Date {
  return new Date(Math.floor(timeMs / 1000) * 1000)
}

export const DAY_MS = 86_400_000
/** Certificates begin this long in the past, for machines whose clock is behind. */
export const BACKDATE_MS = 300_000

const MAX_VALID_DAYS = 36_500
/** A year has four digits there. */
const LAST_MS = Date.UTC(9999, 11, 31, 23, 59, 59)

/** The end of a time of so many days. Throws a TypeError unless that is a time that a certificate can hold. */
export function endOf(validDays: number, now: number): number {
  demand(validDays > 0 && validDays <= MAX_VALID_DAYS, `validDays must be over 0, and at most ${MAX_VALID_DAYS}`)
  const end = checkTime(now) + validDays * DAY_MS
  demand(end <= LAST_MS, 'now must be early enough: a certificate ends in the year 9999 at the latest')
  return end
}

/** Returns `now`. Throws a TypeError if it is no time. */
export function checkTime(now: number): number {
  demand(Number.isFinite(now) && now >= 0, 'now must be in ms since 1970')
  return now
}
