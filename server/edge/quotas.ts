/**
 * What one runtime, or one caller's address, may use: exchanges at a time, requests per second, bytes per second. Whoever sends
 * too many bytes is slowed down, and refused beyond a certain debt. Others do not notice.
 */
import { performance } from 'node:perf_hooks'
import { networkOf } from '../../protocol/base/address.ts'
import { TokenBucket } from '../../protocol/base/token-bucket.ts'
import { AgedMap } from '../aged-map.ts'
import type { ResolvedLimits } from '../limits.ts'

/** 0 means no limit. */
interface QuotaLimits {
  /** Exchanges at a time. */
  readonly exchanges: number
  /** Requests per second, and the size of a burst. */
  readonly requestRate: number
  /** Body bytes per second, both directions together. */
  readonly byteRate: number
}

/** The burst of bytes that is not slowed down, as time at the allowed rate. */
const BURST_MS = 250
/** The debt from which requests are refused, as time at the allowed rate. */
const DEBT_MS = 1000
/** A quota that was unused for this long is back at its full burst. */
const FRESH_MS = 2000
/** Most runtimes, and most addresses, that are counted at a time. Those with exchanges under way may exceed it. */
const MAX_QUOTAS = 65_536
/** How many of the oldest are checked for removal with each new one, once the maximum is reached. */
const EVICTION_CHECKS = 8

class Quota {
  readonly #limits: QuotaLimits
  readonly #requests: TokenBucket | undefined
  exchanges = 0
  /** When all bytes so far would have passed at the allowed rate. */
  #paidAt = 0
  #usedAt = 0

  constructor(limits: QuotaLimits) {
    this.#limits = limits
    if (limits.requestRate > 0) this.#requests = new TokenBucket(Math.max(1, limits.requestRate), limits.requestRate)
  }

  /** Counts one more exchange. False if that exceeds a limit. */
  enter(now: number): boolean {
    this.#usedAt = now
    const { exchanges } = this.#limits
    if (exchanges > 0 && this.exchanges >= exchanges) return false
    if (this.#paidAt - now > DEBT_MS || this.#requests?.take(now) === false) return false
    this.exchanges++
    return true
  }

  spend(bytes: number, now: number): void {
    const { byteRate } = this.#limits
    if (byteRate > 0) this.#paidAt = Math.max(this.#paidAt, now) + (bytes * 1000) / byteRate
  }

  /** How long the sender must wait before it may send more. */
  delayMs(now: number): number {
    return Math.max(0, this.#paidAt - now - BURST_MS)
  }

  fresh(now: number): boolean {
    return this.exchanges === 0 && now - Math.max(this.#usedAt, this.#paidAt) > FRESH_MS
  }
}

/** The quotas of one kind, by runtime or by address. */
class Quotas {
  readonly #limits: QuotaLimits
  readonly #all = new AgedMap<Quota>()
  #sweptAt = Number.NEGATIVE_INFINITY

  constructor(limits: QuotaLimits) {
    this.#limits = limits
  }

  get exchanges(): number {
    let exchanges = 0
    for (const [, quota] of this.#all) exchanges += quota.exchanges
    return exchanges
  }

  of(key: string, now: number): Quota {
    const known = this.#all.get(key)
    if (known !== undefined) return known
    if (this.#all.size >= MAX_QUOTAS) this.#makeRoom(now)
    const quota = new Quota(this.#limits)
    this.#all.put(key, quota)
    return quota
  }

  #makeRoom(now: number): void {
    if (now - this.#sweptAt > FRESH_MS) {
      this.#sweptAt = now
      for (const [key, quota] of this.#all) if (quota.fresh(now)) this.#all.delete(key)
    }
    for (let i = 0; i < EVICTION_CHECKS && this.#all.size >= MAX_QUOTAS; i++) this.#forgetOldest()
  }

  /** A quota in use moves to the end of the list instead, since forgetting it would let its owner start over. */
  #forgetOldest(): void {
    const { key, value: quota } = this.#all.oldest!
    if (quota.exchanges > 0) this.#all.put(key, quota)
    else this.#all.delete(key)
  }
}

/** One exchange, counted in the quotas that it is under. */
export class Usage {
  readonly #runtime: Quota | undefined
  #address: Quota | undefined
  readonly #now: () => number
  /** Whether its bytes count against a rate. */
  readonly paced: boolean

  constructor(runtime: Quota | undefined, address: Quota | undefined, paced: boolean, now: () => number) {
    this.#runtime = runtime
    this.#address = address
    this.paced = paced
    this.#now = now
  }

  spend(bytes: number): void {
    const now = this.#now()
    this.#runtime?.spend(bytes, now)
    this.#address?.spend(bytes, now)
  }

  get delayMs(): number {
    const now = this.#now()
    return Math.max(this.#runtime?.delayMs(now) ?? 0, this.#address?.delayMs(now) ?? 0)
  }

  /** It no longer counts for its caller. */
  leaveAddress(): void {
    if (this.#address !== undefined) this.#address.exchanges--
    this.#address = undefined
  }

  /** The exchange is over. Call it once. */
  leave(): void {
    this.leaveAddress()
    if (this.#runtime !== undefined) this.#runtime.exchanges--
  }
}

export class QuotaBook {
  readonly #runtimes: Quotas | undefined
  readonly #addresses: Quotas | undefined
  readonly #paced: boolean
  readonly #now: () => number

  /** `now` must be monotonic. */
  constructor(limits: ResolvedLimits, now: () => number = () => performance.now()) {
    const perRuntime = {
      exchanges: limits.exchangesPerRuntime,
      requestRate: limits.requestRatePerRuntime,
      byteRate: limits.byteRatePerRuntime,
    }
    const perAddress = {
      exchanges: limits.exchangesPerAddress,
      requestRate: limits.requestRatePerAddress,
      byteRate: limits.byteRatePerAddress,
    }
    if (limitsAnything(perRuntime)) this.#runtimes = new Quotas(perRuntime)
    if (limitsAnything(perAddress)) this.#addresses = new Quotas(perAddress)
    this.#paced = perRuntime.byteRate > 0 || perAddress.byteRate > 0
    this.#now = now
  }

  /** Exchanges that are counted. Those under two quotas count twice. */
  get exchanges(): number {
    return (this.#runtimes?.exchanges ?? 0) + (this.#addresses?.exchanges ?? 0)
  }

  /** `address` is absent for an embedder. Returns `undefined` if nothing is limited, and false if a limit is exceeded. */
  enter(runtime: string, address: string | undefined): Usage | undefined | false {
    const now = this.#now()
    const ofAddress = address === undefined ? undefined : this.#addresses?.of(networkOf(address), now)
    const ofRuntime = this.#runtimes?.of(runtime, now)
    if (ofAddress === undefined && ofRuntime === undefined) return undefined
    if (ofAddress?.enter(now) === false) return false
    const usage = new Usage(ofRuntime, ofAddress, this.#paced, this.#now)
    if (ofRuntime?.enter(now) !== false) return usage
    usage.leaveAddress()
    return false
  }
}

function limitsAnything({ exchanges, requestRate, byteRate }: QuotaLimits): boolean {
  return exchanges > 0 || requestRate > 0 || byteRate > 0
}
