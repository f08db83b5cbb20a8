/** Decides where the next attempt of an exchange goes, after what happened to the earlier ones. */
import type { SallyportError } from '../../protocol/base/errors.ts'
import { isSafe } from '../../protocol/http/methods.ts'
import { type RefusalCode, RefusedError } from '../../protocol/wire/exchange/refusal.ts'
import type { Carrier } from '../registry.ts'
import type { CarrierSource } from './carriers.ts'

/** `instance`: only to the instance that was asked before, which remembers what it has begun. */
type Repeat = 'never' | 'instance' | 'anywhere'

/** How many attempts may follow each other without a wait. */
const MAX_ATTEMPTS = 4
/** Another session would answer alike, or the exchange was begun before. */
const FINAL: ReadonlySet<RefusalCode> = new Set([
  'malformed',
  'unsupported',
  'already-begun',
  'too-late',
  'caller-not-allowed',
])

export class RetryPolicy {
  readonly #picker: Pick<CarrierSource, 'pick'>
  readonly #runtime: string
  readonly #ownHost: string | undefined
  /** The session that was asked last and did not answer. */
  failed: Carrier | undefined
  /** The one instance that may have begun it, and remembers if it has: from then on no other may be asked. */
  #begunBy: string | undefined
  attempts = 0
  /** In vain, streams that could not be opened among them, since the exchange began or waited. */
  #vain = 0

  constructor(picker: Pick<CarrierSource, 'pick'>, runtime: string, ownHost?: string) {
    this.#picker = picker
    this.#runtime = runtime
    this.#ownHost = ownHost
  }

  /** Whether an instance may have begun it without anybody knowing. */
  get unsure(): boolean {
    return this.#begunBy !== undefined
  }

  /** A session for the next attempt; undefined: there is none at the moment. */
  next(): Carrier | undefined {
    const { failed } = this
    const same = failed && this.#pick(this.#begunBy ?? failed.instance)
    return same !== undefined || this.unsure ? same : this.#pick(undefined)
  }

  #pick(instance: string | undefined): Carrier | undefined {
    return this.#picker.pick(this.#runtime, this.failed, instance, this.#ownHost)
  }

  /** The exchange has waited for a session; how long it may do so is bounded. */
  waited(): void {
    this.#vain = 0
  }

  /** `route` did not answer: whether anybody may be asked again. `unsent`: no stream could be opened on it. */
  mayRepeat(route: Carrier, error: SallyportError, method: string, unsent: boolean): boolean {
    if (unsent || (error instanceof RefusedError && error.refusal !== 'not-its-host')) route.refused?.()
    const repeat = repeatOf(error, method, unsent)
    if (repeat === 'instance') this.#begunBy = route.instance
    this.failed = route
    return repeat !== 'never' && ++this.#vain < MAX_ATTEMPTS
  }
}

function repeatOf(error: SallyportError, method: string, unsent: boolean): Repeat {
  if (error instanceof RefusedError) return FINAL.has(error.refusal) ? 'never' : 'anywhere'
  if (unsent) return 'anywhere'
  if (error.reason !== 'session-lost') return 'never'
  return isSafe(method) ? 'anywhere' : 'instance'
}
