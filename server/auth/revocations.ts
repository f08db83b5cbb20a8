/** Rules that make tokens invalid before they expire. Bounded, and quick to check however many there are. */
import { maskSecrets } from '../../protocol/base/held-text.ts'
import { isRuntimeName } from '../../protocol/base/names.ts'
import { type Identity, MAX_TOLERANCE_S } from './claims.ts'

/** A rule that revokes tokens. It covers tokens that match all given members. */
export interface Revocation {
  readonly tokenId?: string | undefined
  readonly runtime?: string | undefined
  /** Covers tokens issued before this time (seconds since 1970), and those without `iat`. */
  readonly issuedBefore?: number | undefined
  /** When the tokens that it covers have expired (seconds since 1970): a minute later the rule ends. Default: never. */
  readonly until?: number | undefined
}

/** Most rules that we write. Longer lists, which others may have written to the directory, are read as far as memory allows. */
export const MAX_REVOCATIONS = 10_000
/** In the year 5138. Times in ms are later. */
const LATEST_S = 1e11
/** How long a rule is kept after it has ended, since a wrong clock may have set its end. */
export const KEEP_OVER_S = 86_400

export class Revocations {
  readonly #now: () => number
  /** Rules by what they name, so that only a few need to be checked for an identity. */
  #byToken = new Map<string, Revocation[]>()
  #byRuntime = new Map<string, Revocation[]>()
  #others: Revocation[] = []
  #count = 0

  constructor(now: () => number) {
    this.#now = now
  }

  /** The rules in force now. */
  get list(): readonly Revocation[] {
    const all = [...[...this.#byToken.values()].flat(), ...[...this.#byRuntime.values()].flat(), ...this.#others]
    return all.filter(rule => this.#holds(rule))
  }

  /** Throws a TypeError for a rule that names nothing, and a RangeError when there are too many. Ignores a rule that it has. */
  add(rule: Revocation): void {
    checkRevocation(rule)
    if (this.#rulesLike(rule)?.some(other => isSame(other, rule))) return
    if (this.#count >= MAX_REVOCATIONS) this.replace(this.list)
    if (this.#count >= MAX_REVOCATIONS) throw new RangeError(`there are ${MAX_REVOCATIONS} revocations: remove some`)
    this.#put(rule)
  }

  #put(rule: Revocation): void {
    this.#count++
    if (rule.tokenId !== undefined) append(this.#byToken, rule.tokenId, rule)
    else if (rule.runtime !== undefined) append(this.#byRuntime, rule.runtime, rule)
    else this.#others.push(rule)
  }

  /** The rules that name the same token; without a token, the same runtime; or neither. */
  #rulesLike({ tokenId, runtime }: Revocation): readonly Revocation[] | undefined {
    if (tokenId !== undefined) return this.#byToken.get(tokenId)
    return runtime === undefined ? this.#others : this.#byRuntime.get(runtime)
  }

  /** Replaces all rules. */
  replace(rules: readonly Revocation[]): void {
    this.#byToken = new Map()
    this.#byRuntime = new Map()
    this.#others = []
    this.#count = 0
    for (const rule of rules) this.#put(rule)
  }

  covers(identity: Identity): boolean {
    if (this.#count === 0) return false
    const { tokenId, runtime } = identity
    const named = tokenId === undefined ? undefined : this.#byToken.get(tokenId)
    return (
      this.#any(named, identity) ||
      this.#any(this.#byRuntime.get(runtime), identity) ||
      this.#any(this.#others, identity)
    )
  }

  #any(rules: readonly Revocation[] | undefined, identity: Identity): boolean {
    return rules?.some(rule => this.#holds(rule) && fits(rule, identity)) ?? false
  }

  #holds(rule: Revocation): boolean {
    return !isOver(rule, this.#now() / 1000)
  }
}

/** Tokens may be accepted for a while after they expire. Written so that without a time, the rule stays in force. */
function isOver({ until }: Revocation, nowS: number): boolean {
  return until !== undefined && until + MAX_TOLERANCE_S <= nowS
}

/** Throws a TypeError for a rule that names nothing, that is malformed, or whose runtime no token could have. */
export function checkRevocation(rule: Revocation): void {
  checkForm(rule)
  if (rule.runtime === undefined || isRuntimeName(rule.runtime)) return
  const name = JSON.stringify(maskSecrets(rule.runtime).slice(0, 64))
  throw new TypeError(
    `a revocation would have no effect: no token can be for the runtime ${name}, which is not a DNS label`,
  )
}

/** The same, but for the name of the runtime, which older versions did not check. */
export function checkForm(rule: Revocation): void {
  const { tokenId, runtime, issuedBefore, until } = rule
  if (tokenId === undefined && runtime === undefined && issuedBefore === undefined) {
    throw new TypeError('a revocation must name a token, a runtime or a time of issue')
  }
  for (const name of [tokenId, runtime]) {
    if (name !== undefined && (typeof name !== 'string' || name === '' || name.length > 256)) {
      throw new TypeError('the token and the runtime of a revocation must be strings of 1 to 256 characters')
    }
  }
  for (const time of [issuedBefore, until]) {
    if (time !== undefined && (typeof time !== 'number' || !Number.isFinite(time) || time < 0)) {
      throw new TypeError('the times of a revocation must be seconds since 1970')
    }
  }
}

/** Throws a TypeError for a new rule that is over, or whose time of issue is in ms. A list may have rules that are over. */
export function checkTimes(rule: Revocation, nowS: number): void {
  const { issuedBefore = 0, until } = rule
  if (issuedBefore > LATEST_S) throw new TypeError('issuedBefore must be seconds since 1970, not milliseconds')
  if (!isOver(rule, nowS)) return
  throw new TypeError(`a revocation would have no effect: it ended at ${until}, and it is ${Math.floor(nowS)} now`)
}

function append(map: Map<string, Revocation[]>, key: string, rule: Revocation): void {
  const rules = map.get(key)
  if (rules === undefined) map.set(key, [rule])
  else rules.push(rule)
}

function isSame(a: Revocation, b: Revocation): boolean {
  return a.tokenId === b.tokenId && a.runtime === b.runtime && a.issuedBefore === b.issuedBefore && a.until === b.until
}

function fits(rule: Revocation, identity: Identity): boolean {
  if (rule.tokenId !== undefined && rule.tokenId !== identity.tokenId) return false
  if (rule.runtime !== undefined && rule.runtime !== identity.runtime) return false
  return rule.issuedBefore === undefined || (identity.issuedAt ?? 0) < rule.issuedBefore
}
