/** Decides where the next attempt of an exchange goes, after what happened to the earlier ones. */
import { elapsedMs } from '../../protocol/base/elapsed.ts'
import type { SallyportError } from '../../protocol/base/errors.ts'
import type { HttpRequest } from '../../protocol/exchange.ts'
import { isRepeatable, isSafe } from '../../protocol/http/methods.ts'
import { type RefusalCode, RefusedError } from '../../protocol/wire/exchange/refusal.ts'
import type { Carrier } from '../registry.ts'
import type { CarrierSource } from './carriers.ts'

/**
 * How long after an attempt its instance surely remembers whether it began the exchange. It does for 60 s, even if it has answered at
 * once and we have not heard the answer. The rest is for an attempt that is long on its way.
 */
const REMEMBERED_MS = 45_000
/** Most failed attempts in a row without a wait. */
const MAX_FAILURES = 4
/**
 * The connections of a client that is killed end one after the other. An exchange that was tried on several of them has failed once,
 * unless it was tried more often than a client has connections.
 */
const MAX_TOGETHER = 16
/** Refusals after which no retry helps: another session would refuse, too, or the exchange has begun already. */
const FINAL: ReadonlySet<RefusalCode> = new Set([
  'malformed',
  'unsupported',
  'already-begun',
  'too-late',
  'caller-not-allowed',
])
/** Refusals that other exchanges of the runtime would get, too. The rest depend on the request or its caller, who could be anybody. */
const OF_CARRIER: ReadonlySet<RefusalCode> = new Set(['not-here', 'draining', 'overloaded'])

type Repeated = Pick<HttpRequest, 'method' | 'path' | 'headers'>

export class RetryPolicy {
  readonly #picker: Pick<CarrierSource, 'pick'>
  readonly #runtime: string
  readonly #ownHost: string | undefined
  /** The carrier that was tried last, and failed. */
  failed: Carrier | undefined
  /** The instance that may have begun the exchange. It remembers whether it has, so no other instance may be tried from then on. */
  #begunBy: string | undefined
  /** When the latest attempt began, and the first of those that the instance may have begun. */
  #triedMs = 0
  #begunMs = Number.POSITIVE_INFINITY
  readonly #now: () => number
  attempts = 0
  /** Failed attempts since the exchange began or waited, including streams that could not be opened. */
  #failures = 0
  /** The instance whose loss was last counted as a failure. */
  #lost: string | undefined

  /** `now` must be monotonic, and go on while this machine is suspended, as that of the instance does. */
  constructor(picker: Pick<CarrierSource, 'pick'>, runtime: string, ownHost?: string, now: () => number = elapsedMs) {
    this.#picker = picker
    this.#runtime = runtime
    this.#ownHost = ownHost
    this.#now = now
  }

  /** An attempt begins. Returns how many there were before. */
  begin(): number {
    this.#triedMs = this.#now()
    return this.attempts++
  }

  /** How much longer the exchange may be sent again. */
  get leftMs(): number {
    return this.#begunMs + REMEMBERED_MS - this.#now()
  }

  /** Whether an instance may have begun the exchange without our knowing. */
  get unsure(): boolean {
    return this.#begunBy !== undefined
  }

  /** The carrier for the next attempt. `undefined` if there is none at the moment. */
  next(): Carrier | undefined {
    if (this.leftMs <= 0) return undefined
    const { failed } = this
    const same = failed && this.#pick(this.#begunBy ?? failed.instance)
    return same !== undefined || this.unsure ? same : this.#pick(undefined)
  }

  #pick(instance: string | undefined): Carrier | undefined {
    return this.#picker.pick(this.#runtime, this.failed, instance, this.#ownHost)
  }

  /** The exchange has waited for a session. Waiting is bounded by time, so failures are counted anew. */
  waited(): void {
    this.#failures = 0
  }

  /** Whether another attempt may follow after `carrier` failed. `unsent`: no stream could be opened on it. */
  mayRetry(carrier: Carrier, error: SallyportError, request: Repeated, unsent: boolean): boolean {
    const refusal = error instanceof RefusedError ? error.refusal : undefined
    if (unsent || (refusal !== undefined && OF_CARRIER.has(refusal))) carrier.refused?.()
    const mayRun = !unsent && refusal === undefined && !isRepeatable(request)
    if (mayRun) {
      this.#begunBy = carrier.instance
      this.#begunMs = Math.min(this.#begunMs, this.#triedMs)
    }
    this.failed = carrier
    if (!this.#isTogether(carrier, error)) this.#failures++
    const mayHelp = refusal === undefined ? unsent || error.reason === 'session-lost' : !FINAL.has(refusal)
    // An instance remembers only exchanges whose method is not safe.
    if (mayRun && isSafe(request.method)) return false
    return mayHelp && this.leftMs > 0 && this.#failures < MAX_FAILURES
  }

  /** Whether the exchange has lost a session of this instance before. A client whose session is still there can only claim that. */
  #isTogether({ hops, usable, instance }: Carrier, error: SallyportError): boolean {
    const isLoss = error instanceof RefusedError ? error.refusal === 'not-here' : error.reason === 'session-lost'
    if (!isLoss || (hops === 0 && usable)) return false
    if (instance === this.#lost) return this.attempts < MAX_TOGETHER
    this.#lost = instance
    return false
  }
}
