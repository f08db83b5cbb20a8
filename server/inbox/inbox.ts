/** The inbox of a server: the rules that clients announced, the webhooks it keeps, and their delivery. See `README.md`. */
import { detached, starting } from '../../protocol/base/guard.ts'
import { newRequestId } from '../../protocol/base/ids.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { oneAtATime } from '../../protocol/base/one-at-a-time.ts'
import { withoutQuery } from '../../protocol/base/path.ts'
import type { Handler } from '../../protocol/exchange.ts'
import type { Refuse } from '../../protocol/http/problem.ts'
import type { Layer } from '../../protocol/layer.ts'
import type { Tracing } from '../../protocol/trace/sampling.ts'
import type { InboxLimits } from '../limits.ts'
import { AnnouncedRules, RULES_MS } from './announced-rules.ts'
import { Capture, type CaptureReason } from './capture.ts'
import { ClockDoubt } from './clock-doubt.ts'
import { WebhookIntake } from './intake.ts'
import { Lanes } from './lanes.ts'
import { Ledger } from './ledger.ts'
import type { InboxMac } from './mac.ts'
import { type InboxOperations, StoredWebhooks } from './operations.ts'
import { deliverMessage } from './outgoing.ts'
import { Recount } from './recount.ts'
import { RefusedLetters } from './refused-letters.ts'
import type { Outcome, OutcomeKind } from './retry.ts'
import {
  type Contents,
  type InboxStore,
  type Message,
  type Progress,
  REFUSED,
  type StoreState,
  type StoreStats,
} from './store.ts'

interface InboxParts {
  readonly store: InboxStore
  /** If given, webhooks and rules in the store are trusted only with a valid MAC. */
  readonly mac?: InboxMac | undefined
  readonly limits: InboxLimits
  /** Keep webhooks of clients without a key, unencrypted. */
  readonly plaintext: boolean
  readonly logger: Logger
  /** Ms since 1970. */
  readonly now: () => number
  readonly random?: (() => number) | undefined
  readonly tracing?: Tracing | undefined
  /** Whether the runtime has a session now. */
  isLive(runtime: string): boolean
  /** Whether it has one at this server. */
  isHere(runtime: string): boolean
  /** Whether what the instance announced here may have been overtaken: here, or with `anywhere` at any server. */
  isOvertaken(by: { readonly runtime: string; readonly instance: string }, anywhere: boolean): boolean | 'unknown'
  /** Looks up whether another replica has a session of the runtime. */
  look(runtime: string): void
}

/** Counters and gauges of an inbox. */
export interface InboxStats {
  readonly store: StoreStats
  readonly messages: Readonly<Record<Message['state'], number>>
  readonly bytes: number
  /** Age of the oldest waiting message. 0 if none waits. */
  readonly oldestSeconds: number
  readonly lanes: number
  readonly paused: readonly string[]
  readonly bufferBytes: number
  readonly accepted: Readonly<Record<CaptureReason | 'duplicate', number>>
  readonly attempts: Readonly<Record<OutcomeKind, number>>
  readonly dead: Readonly<Record<string, number>>
  /** Dead letters that were deleted early, because they were refused and others needed the room. */
  readonly evicted: number
  /** Runtimes whose stored rules are ignored, because they have no valid MAC, or one that is too old. */
  readonly unprovenRules: number
  readonly refused: Readonly<Record<string, number>>
}

const SWEEP_MS = 30_000
/** Each sweep scans the delivered webhooks. This many take a tenth of a second. */
const MAX_DELIVERED = 200_000
const NO_DEAD: Readonly<Record<string, number>> = { expired: 0, poison: 0, refused: 0, damaged: 0, 'bad-mac': 0 }

export class Inbox {
  readonly rules: AnnouncedRules
  readonly operations: InboxOperations
  /** Called by each sweep, to announce again what other rules have replaced. */
  announceAgain: (() => void) | undefined
  readonly #parts: InboxParts
  readonly #store: InboxStore
  readonly #doubt: ClockDoubt
  readonly #ledger: Ledger
  readonly #lanes: Lanes
  readonly #intake: WebhookIntake
  readonly #refusedLetters: RefusedLetters
  readonly #sweepTimer: NodeJS.Timeout
  readonly #attempts: Record<OutcomeKind, number> = {
    delivered: 0,
    refused: 0,
    gone: 0,
    failed: 0,
    offline: 0,
    damaged: 0,
  }
  readonly #dead: Record<string, number> = { ...NO_DEAD }
  #deliver: Handler | undefined

  constructor(parts: InboxParts) {
    const { store, limits, logger, now, random = Math.random, tracing, mac } = parts
    const isLive = (runtime: string) => parts.isLive(runtime)
    const isHere = (runtime: string) => parts.isHere(runtime)
    this.#parts = parts
    this.#store = store
    this.#doubt = new ClockDoubt(now, logger)
    this.#ledger = new Ledger(limits)
    this.#lanes = new Lanes({
      ...{ store, logger, now, random, lanesPerRuntime: limits.lanesPerRuntime, lanes: limits.lanes, isLive },
      deliver: message =>
        deliverMessage(message, {
          handler: this.#deliver!,
          ...{ store, mac, logger, now, attemptMs: limits.attemptMs, tracing },
        }),
      onProgress: (message, outcome, progress) => this.#recordProgress(message, outcome, progress),
      onGivenUp: (message, reason) => this.#recordDeath(message, reason),
    })
    const shared = { store, mac, logger, now, ledger: this.#ledger, lanes: this.#lanes }
    const recount = store.shared === undefined ? undefined : new Recount(logger, () => this.#count())
    this.#intake = new WebhookIntake({ ...shared, limits, recount })
    this.#refusedLetters = new RefusedLetters({ ...shared, limits })
    this.operations = new StoredWebhooks(shared)
    this.rules = new AnnouncedRules({
      ...{ store, mac, logger, now, isLive, isHere, maxAgeMs: limits.maxAgeMs, plaintext: parts.plaintext },
      isOvertaken: announced => parts.isOvertaken(announced, this.operations.shared),
      look: runtime => parts.look(runtime),
      since: () => this.#doubt.before(RULES_MS),
    })
    if (mac !== undefined) mac.onChange = () => this.rules.retryUnproven()
    // A sweep may take longer than the time between two.
    const alone = oneAtATime(() => this.#sweep())
    const sweep = starting(logger, 'sweeping the inbox failed', alone)
    this.#sweepTimer = setInterval(sweep, SWEEP_MS).unref()
  }

  /** Starts delivering. `deliver` handles an exchange from inside the edge; `refuse` sends an error response. */
  start(deliver: Handler, refuse: Refuse): void {
    this.#deliver = deliver
    this.#intake.answer = refuse
    this.#store.onState = state => this.#storeChanged(state)
    const { shared } = this.#store
    if (shared === undefined) return
    shared.onLane = (runtime, lane, what) => this.#lanes.laneChanged(runtime, lane, what)
    shared.onRules = contents => this.#adopt(contents)
  }

  #storeChanged(state: StoreState): void {
    if (!state.open) return
    const { counts, lanes } = state.contents
    this.#ledger.load(counts)
    if (state.setAside === undefined) {
      this.rules.keepLost(state.contents.rules)
      this.#adopt(state.contents)
    } else this.#rewrite()
    this.rules.saveMissing()
    this.#intake.forgetOrphans()
    this.#lanes.reset(lanes)
  }

  /** A new, empty file has neither the rules nor the pauses of the one that it replaces. */
  #rewrite(): void {
    this.rules.forgetSaved()
    for (const runtime of this.#lanes.paused) {
      const written = this.#store.apply({ op: 'pause', runtime, paused: true })
      detached(this.#parts.logger, 'a pause of a runtime could not be written to the inbox', written)
    }
  }

  #adopt({ rules, paused }: Pick<Contents, 'rules' | 'paused'>): void {
    for (const runtime of this.#lanes.paused) if (!paused.includes(runtime)) this.#lanes.pause(runtime, false)
    for (const runtime of paused) this.#lanes.pause(runtime, true)
    this.rules.adopt(rules)
  }

  /** In front of the sessions: requests for which there is no rule pass untouched. */
  readonly layer: Layer = next => (request, response) => {
    const found = this.rules.find(request)
    if (found === undefined) return next(request, response)
    const { rule, sealer } = found
    const id = newRequestId()
    const laneName =
      rule.lane === 'path' ? withoutQuery(request.path) : rule.lane === 'route' ? `route ${rule.route}` : id
    return new Capture(this.#intake, { id, rule, laneName, sealer }, request, response).start(next)
  }

  /** A session of the runtime may have become ready; `undefined` means any runtime. */
  wake(runtime: string | undefined): void {
    this.#lanes.wake(runtime)
  }

  #recordProgress(message: Message, { kind, reason }: Outcome, progress: Progress): void {
    const { id, runtime, attempts, route } = message
    const fields = { runtime, inboxId: id, route, attempt: attempts, reason: progress.reason ?? reason }
    this.#attempts[kind]++
    if (progress.state === 'delivered') {
      this.#ledger.add(runtime, -1, -message.bytes)
      this.#ledger.move('waiting', 'delivered')
      this.#parts.logger.info(fields, 'webhook delivered')
    } else if (progress.state === 'dead') this.#recordDeath(message, fields.reason)
    else this.#parts.logger.info(fields, 'webhook not delivered yet')
  }

  #recordDeath(message: Message, reason: string): void {
    const { id, runtime, attempts, route } = message
    const [kind = ''] = reason.split(':')
    this.#dead[kind] = (this.#dead[kind] ?? 0) + 1
    this.#ledger.move('waiting', 'dead')
    this.#parts.logger.error({ runtime, inboxId: id, route, attempt: attempts, reason }, 'webhook is a dead letter')
    if (reason.startsWith(REFUSED)) this.#refusedLetters.add(message)
  }

  async #sweep(): Promise<void> {
    const { deadMs, deliveredMs } = this.#parts.limits
    if (!this.#store.stats().open) return
    for (let more = true; more; ) {
      const at = this.#parts.now()
      const aheadMs = this.#doubt.aheadMs(at)
      const ages = { deadMs: deadMs + aheadMs, deliveredMs: deliveredMs + aheadMs, rulesMs: RULES_MS + aheadMs }
      const swept = await this.#store.sweep(at, { ...ages, maxDelivered: MAX_DELIVERED })
      more = swept.more
      for (const message of swept.expired) {
        this.#recordDeath(message, 'expired')
        this.#lanes.remove(message.runtime, message.lane, 1)
      }
    }
    await this.#count()
    if (this.#lanes.isUnsure) {
      const reconcile = this.#lanes.reconciling()
      reconcile(await this.#store.lanes())
    }
    for (const runtime of this.#lanes.runtimes) {
      if (this.#parts.isLive(runtime)) this.#lanes.resume(runtime)
      else this.#parts.look(runtime)
    }
    this.announceAgain?.()
    this.rules.refresh()
    await this.#refusedLetters.trimAll()
  }

  async #count(): Promise<void> {
    // A store of this server alone answers in order.
    if (this.#store.shared === undefined) this.#ledger.load(await this.#store.counts())
    else await this.#ledger.reload(() => this.#store.counts())
  }

  stats(): InboxStats {
    // The counts may be those of the last sweep. Since then, all may have been delivered.
    const mayWait = this.#ledger.messages.waiting > 0
    const oldest = this.#ledger.counts.flatMap(({ state, oldest }) => (mayWait && state === 'waiting' ? [oldest] : []))
    return {
      store: this.#store.stats(),
      messages: { ...this.#ledger.messages },
      bytes: this.#ledger.bytes,
      oldestSeconds: oldest.length === 0 ? 0 : Math.max(0, this.#parts.now() - Math.min(...oldest)) / 1000,
      lanes: this.#lanes.size,
      paused: this.#lanes.paused,
      bufferBytes: this.#intake.bufferBytes,
      accepted: { ...this.#intake.accepted },
      attempts: { ...this.#attempts },
      dead: { ...this.#dead },
      evicted: this.#refusedLetters.deleted,
      unprovenRules: this.rules.unproven,
      refused: { ...this.#intake.refused },
    }
  }

  /** Begins no more attempts, and waits for those under way. */
  async finish(): Promise<void> {
    await this.#lanes.close()
  }

  /** Outcomes of attempts that are still under way are lost. Stored webhooks stay stored. */
  async close(): Promise<void> {
    clearInterval(this.#sweepTimer)
    detached(this.#parts.logger, 'closing the lanes of the inbox failed', this.#lanes.close())
    this.#parts.mac?.close()
    await this.#store.close()
  }
}
