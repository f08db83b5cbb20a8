/** Tokens that hold no more although they have not ended. Bounded; kept in memory. */
import type { Identity } from './claims.ts'

/** All members that are given must fit. */
export interface Revocation {
  readonly tokenId?: string | undefined
  readonly runtime?: string | undefined
  /** Seconds since 1970: tokens issued before (or without `iat`). */
  readonly issuedBefore?: number | undefined
  /** Seconds since 1970: when the rule may be forgotten. */
  readonly until?: number | undefined
}

const MAX_REVOCATIONS = 10_000

export class Revocations {
  #rules: Revocation[] = []
  readonly #now: () => number

  constructor(now: () => number) {
    this.#now = now
  }

  get list(): readonly Revocation[] {
    return this.#rules
  }

  /** Throws a TypeError for a rule that names nothing, and a RangeError when there are too many. */
  add(rule: Revocation): void {
    if (rule.tokenId === undefined && rule.runtime === undefined && rule.issuedBefore === undefined) {
      throw new TypeError('a revocation names a token, a runtime or a time of issue')
    }
    const nowS = this.#now() / 1000
    this.#rules = this.#rules.filter(one => one.until === undefined || one.until > nowS)
    if (this.#rules.length >= MAX_REVOCATIONS) throw new RangeError('there are too many revocations')
    this.#rules.push(rule)
  }

  covers(identity: Identity): boolean {
    return this.#rules.some(rule => fits(rule, identity))
  }
}

function fits(rule: Revocation, identity: Identity): boolean {
  if (rule.tokenId !== undefined && rule.tokenId !== identity.tokenId) return false
  if (rule.runtime !== undefined && rule.runtime !== identity.runtime) return false
  return rule.issuedBefore === undefined || (identity.issuedAt ?? 0) < rule.issuedBefore
}
