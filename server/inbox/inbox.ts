/** The inbox of a server: the rules that clients announced, the webhooks it keeps, and their delivery. See `README.md`. */
import { Buffer } from 'node:buffer'
import { isDeepStrictEqual } from 'node:util'
import { networkOf } from '../../protocol/base/address.ts'
import { SallyportError } from '../../protocol/base/errors.ts'
import { detached, logGuard } from '../../protocol/base/guard.ts'
import { newRequestId } from '../../protocol/base/ids.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { TokenBucket } from '../../protocol/base/token-bucket.ts'
import type { Handler, HeaderList, HttpRequest, ResponseSink } from '../../protocol/exchange.ts'
import type { Refuse } from '../../protocol/http/problem.ts'
import type { Layer } from '../../protocol/layer.ts'
import type { Tracing } from '../../protocol/trace/sampling.ts'
import type { InboxRule } from '../../protocol/wire/control.ts'
import { AgedMap } from '../aged-map.ts'
import type { InboxLimits } from '../limits.ts'
import { CAPTURE_REASONS, Capture, type CaptureReason } from './capture.ts'
import { encodeHead } from './head.ts'
import { dedupeDigest, senderId } from './identity.ts'
import { BodyBudget } from './kept-body.ts'
import { Lanes } from './lanes.ts'
import { Ledger } from './ledger.ts'
import type { InboxMac } from './mac.ts'
import { deliverMessage } from './outgoing.ts'
import type { Outcome, OutcomeKind } from './retry.ts'
import { pathOf, Rules } from './rules.ts'
import { ClientSealer, SEAL_BYTES } from './sealing.ts'
import { encodeCaller } from './spans.ts'
import {
  type ChangeResult,
  type Contents,
  type Filter,
  type InboxStore,
  type Message,
  type NewMessage,
  type Progress,
  StoreError,
  type StoreState,
  type StoreStats,
} from './store.ts'

/** What operators can do with the webhooks that a server keeps. */
export interface InboxOperations {
  /** Whether several servers share the inbox. Each of them then reports all webhooks. */
  readonly shared: boolean
  /** The newest first. */
  list(filter: Filter): Promise<readonly Message[]>
  read(id: string): Promise<{ readonly head: Uint8Array; readonly body: Uint8Array } | undefined>
  /** Part `n` as it is stored: 0 is the head, the others are the body. `undefined` if there is no such part (any more). */
  readPart(id: string, n: number): Promise<Uint8Array | undefined>
  replay(filter: Filter): Promise<string[]>
  drop(filter: Filter): Promise<string[]>
  pause(runtime: string, paused: boolean): Promise<void>
}

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
  /** Looks up whether another replica has a session of the runtime. */
  look(runtime: string): void
}

/** A captured webhook, as it goes to the store. */
interface Captured {
  readonly why: CaptureReason
  readonly rest: Uint8Array
  readonly digest: Uint8Array
  /** Number of parts of the body. */
  readonly parts: number
  readonly bodyBytes: number
  readonly trailers: HeaderList
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
  /** Runtimes whose stored rules are ignored, because they have no valid MAC. */
  readonly unprovenRules: number
  readonly refused: Readonly<Record<string, number>>
}

const SWEEP_MS = 30_000
/** How long the rules of a runtime that does not come back are kept. */
const RULES_MS = 30 * 86_400_000
/** Unchanged rules are written again only after this time. */
const RULES_FRESH_MS = 86_400_000
const MAX_RUNTIMES = 10_000
/** Each sweep scans the delivered webhooks. This many take a tenth of a second. */
const MAX_DELIVERED = 200_000
/** Networks whose unverified webhooks are rate-limited. */
const MAX_ADDRESSES = 10_000
const MAX_ORPHANS = 10_000
const NO_DEAD: Readonly<Record<string, number>> = { expired: 0, poison: 0, refused: 0, damaged: 0, 'bad-mac': 0 }

/** A runtime's rules, as JSON in the store. */
interface StoredRules {
  readonly key?: string
  readonly shared?: boolean
  readonly rules: InboxRule[]
  /** The runtime's own hosts, as its token names them. */
  readonly hosts?: readonly string[]
}

interface RuntimeRules {
  readonly rules: Rules
  readonly hosts: readonly string[]
  /** `undefined` if webhooks are stored unencrypted. */
  readonly sealer: ClientSealer | undefined
  /** The rules as stored. `undefined` if the client withdrew them, and the store must still delete them. */
  readonly text: string | undefined
  /** When they were written. 0 until then. */
  savedAt: number
}

export class Inbox implements InboxOperations {
  readonly logger: Logger
  readonly now: () => number
  readonly budget: BodyBudget
  readonly #options: InboxParts
  readonly #store: InboxStore
  readonly #lanes: Lanes
  readonly #ledger: Ledger
  readonly #rules = new AgedMap<RuntimeRules>()
  /** Runtimes whose stored rules have no valid MAC. */
  #unproven: ReadonlySet<string> = new Set()
  readonly #unverified = new AgedMap<TokenBucket>()
  /** Ids of webhooks that were not stored, but whose parts may still be in the store. */
  readonly #orphans = new Set<string>()
  readonly #sweepTimer: NodeJS.Timeout
  readonly #accepted = { ...zeros(CAPTURE_REASONS), duplicate: 0 }
  readonly #attempts: Record<OutcomeKind, number> = {
    delivered: 0,
    refused: 0,
    gone: 0,
    failed: 0,
    offline: 0,
    damaged: 0,
  }
  readonly #dead: Record<string, number> = { ...NO_DEAD }
  readonly #refused: Record<'inbox-full' | 'inbox-away', number> = { 'inbox-full': 0, 'inbox-away': 0 }
  #deliver: Handler | undefined
  #answer: Refuse | undefined

  constructor(options: InboxParts) {
    const { store, limits, logger, now, random = Math.random, tracing } = options
    this.#options = options
    this.#store = store
    this.logger = logger
    this.now = now
    this.budget = new BodyBudget(limits.bufferBytes)
    this.#ledger = new Ledger(limits)
    this.#lanes = new Lanes({
      ...{ store, logger, now, random, lanesPerRuntime: limits.lanesPerRuntime, lanes: limits.lanes },
      isLive: runtime => options.isLive(runtime),
      deliver: message =>
        deliverMessage(message, {
          handler: this.#deliver!,
          ...{ store, mac: options.mac, logger, now, attemptMs: limits.attemptMs, tracing },
        }),
      onProgress: (message, outcome, progress) => this.#recordProgress(message, outcome, progress),
    })
    const guard = logGuard(logger, SWEEP_FAILED)
    const sweep = guard(() => detached(logger, SWEEP_FAILED, this.#sweep()))
    this.#sweepTimer = setInterval(sweep, SWEEP_MS).unref()
  }

  /** Starts delivering. `deliver` handles an exchange from inside the edge; `refuse` sends an error response. */
  start(deliver: Handler, refuse: Refuse): void {
    this.#deliver = deliver
    this.#answer = refuse
    this.#store.onState = state => this.#storeChanged(state)
    const { shared } = this.#store
    if (shared === undefined) return
    shared.onLane = (runtime, lane, what) => this.#lanes.laneChanged(runtime, lane, what)
    shared.onRules = contents => this.#rulesChanged(contents)
  }

  #storeChanged(state: StoreState): void {
    if (!state.open) return
    const { counts, lanes } = state.contents
    this.#ledger.load(counts)
    if (state.setAside === undefined) this.#rulesChanged(state.contents)
    else this.#rewriteRules()
    for (const [runtime, { text, savedAt }] of this.#rules) if (savedAt === 0) this.#saveRules(runtime, text)
    for (const id of this.#orphans) detached(this.logger, FORGET_FAILED, this.#forgetParts(id))
    this.#lanes.reset(lanes)
  }

  /** A new, empty file has neither the rules nor the pauses of the one that it replaces. */
  #rewriteRules(): void {
    for (const [, known] of this.#rules) known.savedAt = 0
    for (const runtime of this.#lanes.paused) {
      const written = this.#store.apply({ op: 'pause', runtime, paused: true })
      detached(this.logger, 'a pause of a runtime could not be written to the inbox', written)
    }
  }

  /** Adopts the rules in the store, except where our own are still being written. */
  #rulesChanged({ rules, paused }: Pick<Contents, 'rules' | 'paused'>): void {
    for (const runtime of this.#lanes.paused) if (!paused.includes(runtime)) this.#lanes.pause(runtime, false)
    for (const runtime of paused) this.#lanes.pause(runtime, true)
    const texts = this.#trustedRules(rules)
    for (const [runtime, { savedAt }] of this.#rules)
      if (savedAt > 0 && !texts.has(runtime)) this.#rules.delete(runtime)
    for (const [runtime, text] of texts) {
      const known = this.#rules.get(runtime)
      if (known === undefined || (known.savedAt > 0 && known.text !== text)) this.#load(runtime, text, this.now())
    }
  }

  /** The stored rules, by runtime. Rules without a valid MAC are ignored, so nothing is kept for that runtime. */
  #trustedRules(stored: Contents['rules']): Map<string, string> {
    const texts = new Map<string, string>()
    const unproven = new Set<string>()
    for (const { runtime, rules } of stored) {
      const { mac } = this.#options
      const text = mac === undefined ? rules : mac.verifiedRules(runtime, rules, this.now() - RULES_MS)
      if (text !== undefined) texts.set(runtime, text)
      else unproven.add(runtime)
    }
    for (const runtime of unproven) if (!this.#unproven.has(runtime)) this.logger.error({ runtime }, UNPROVEN_RULES)
    this.#unproven = unproven
    return texts
  }

  get shared(): boolean {
    return this.#store.shared !== undefined
  }

  // The layer.

  /** In front of the sessions: requests for which there is no rule pass untouched. */
  readonly layer: Layer = next => (request, response) => {
    const known = this.#rules.get(request.runtime!)
    const rule = known?.rules.find(request)
    // Webhooks for a host of its own are kept only if the runtime's token names the host, whatever the directory says.
    const isOwnHost = request.ownHost === undefined || known?.hosts.includes(request.ownHost) === true
    if (known === undefined || rule === undefined || !isOwnHost) return next(request, response)
    const id = newRequestId()
    const laneName = rule.lane === 'path' ? pathOf(request) : rule.lane === 'route' ? `route ${rule.route}` : id
    const options = { id, rule, laneName, sealer: known.sealer }
    return new Capture(this, options, request, response).start(next)
  }

  /**
   * Sets the rules that the client of a runtime announces. An empty list withdraws earlier ones. `shared` is as in
   * {@link ClientSealer}. `hosts` are the runtime's own, as its token names them.
   */
  publish(
    runtime: string,
    announced: readonly InboxRule[],
    key: string | undefined,
    shared = false,
    hosts: readonly string[] = [],
  ): void {
    const { sealer, problem } = this.#sealerOf(key, shared)
    if (problem !== undefined && announced.length > 0) {
      this.logger.error({ runtime, reason: problem }, 'webhooks of a runtime are not kept')
    }
    const rules = problem === undefined ? announced : []
    const known = this.#rules.get(runtime)
    // While the store is not open, it may hold earlier rules that must be deleted.
    if (rules.length === 0 && known === undefined && this.#store.stats().open) return
    const stored = { key, shared, rules: rules.map(withoutSecrets), ...(hosts.length > 0 && { hosts }) }
    const text = rules.length === 0 ? undefined : JSON.stringify(stored)
    const made = this.#rulesOf(runtime, rules)
    const now = this.now()
    const isFresh = known !== undefined && known.text === text && now - known.savedAt < RULES_FRESH_MS
    this.#rules.putWithin(MAX_RUNTIMES, runtime, {
      ...{ rules: made, hosts, sealer, text },
      savedAt: isFresh ? known.savedAt : 0,
    })
    if (!isFresh) this.#saveRules(runtime, text)
  }

  /** The runtime's client has a fresh token, which names these hosts. */
  renewed(runtime: string, hosts: readonly string[]): void {
    const known = this.#rules.get(runtime)
    if (known?.text === undefined || isDeepStrictEqual(known.hosts, hosts)) return
    const text = JSON.stringify({ ...(JSON.parse(known.text) as StoredRules), hosts })
    this.#rules.putWithin(MAX_RUNTIMES, runtime, { ...known, hosts, text, savedAt: 0 })
    this.#saveRules(runtime, text)
  }

  /** Without a key, webhooks are kept only if the operator allows unencrypted ones. */
  #sealerOf(
    key: string | undefined,
    shared: boolean,
  ): { readonly sealer?: ClientSealer | undefined; readonly problem?: string } {
    if (key === undefined && !this.#options.plaintext) {
      return {
        problem: 'its client has no key to seal them for (--inbox.key.file), and --inbox.plaintext is not given',
      }
    }
    try {
      return { sealer: sealerOf(key, shared) }
    } catch {
      return { problem: 'the key of its client is invalid' }
    }
  }

  /** A rule whose secrets are unusable is switched off, so that nothing is stored unchecked. */
  #rulesOf(runtime: string, rules: readonly InboxRule[]): Rules {
    const { maxAgeMs } = this.#options.limits
    const wrong = (rule: InboxRule, error: unknown): InboxRule => {
      const err = { message: (error as Error).message }
      this.logger.error({ runtime, route: rule.route, err }, 'a route has no inbox: its signatures cannot be checked')
      return { ...withoutSecrets(rule), mode: 'off' }
    }
    const usable = rules.map(rule => {
      try {
        return new Rules([rule], maxAgeMs) && rule
      } catch (error) {
        return wrong(rule, error)
      }
    })
    return new Rules(usable, maxAgeMs)
  }

  /** Unreadable rules are skipped: the runtime's next session announces them again. */
  #load(runtime: string, text: string, savedAt: number): void {
    try {
      const { key, shared = false, rules: announced, hosts = [] } = JSON.parse(text) as StoredRules
      if (key === undefined && !this.#options.plaintext) return
      const rules = new Rules(announced, this.#options.limits.maxAgeMs)
      this.#rules.putWithin(MAX_RUNTIMES, runtime, { rules, hosts, sealer: sealerOf(key, shared), text, savedAt })
    } catch (error) {
      const err = { message: (error as Error).message }
      this.logger.error({ runtime, err }, 'the stored rules of a runtime cannot be read')
    }
  }

  #saveRules(runtime: string, rules: string | undefined): void {
    detached(this.logger, RULES_NOT_WRITTEN, this.#writeRules(runtime, rules))
  }

  /** If this fails, a restart loses the rules until the client announces them again. */
  async #writeRules(runtime: string, rules: string | undefined): Promise<void> {
    const at = this.now()
    try {
      const proven = rules && (this.#options.mac?.addRulesMac(runtime, rules, at) ?? rules)
      await this.#store.apply({ op: 'rules', runtime, rules: proven, at })
      const known = this.#rules.get(runtime)
      if (known === undefined || known.text !== rules) return
      if (rules === undefined) this.#rules.delete(runtime)
      else known.savedAt = at
    } catch (error) {
      const err = { message: (error as Error).message }
      this.logger.warn({ runtime, err }, RULES_NOT_WRITTEN)
    }
  }

  // Called by captures.

  get attemptMs(): number {
    return this.#options.limits.attemptMs
  }

  isBusy(capture: Capture): boolean {
    const runtime = capture.request.runtime!
    if (this.#lanes.isPaused(runtime)) return true
    // Usually nothing waits for the runtime, and computing the lane's digest can be skipped.
    return this.#lanes.has(runtime) && this.#lanes.isBusy(runtime, capture.lane)
  }

  expect({ request, lane }: Capture): void {
    this.#lanes.expect(request.runtime!, lane)
  }

  leave({ request, lane }: Capture): void {
    this.#lanes.arrived(request.runtime!, lane, undefined)
  }

  async part(capture: Capture, n: number, bytes: Uint8Array): Promise<void> {
    const { id, sealing, request } = capture
    const part = sealing?.part(n, bytes) ?? bytes
    const mac = this.#options.mac?.partMac({ runtime: request.runtime!, id }, n, part)
    if (mac !== undefined) {
      capture.macs ??= []
      capture.macs[n] = mac
    }
    this.#reserve(capture, part.length)
    await this.#store.apply({ op: 'part', id, n, bytes: part })
  }

  /** Deletes the parts of a webhook that is not stored after all. */
  forget(capture: Capture): void {
    detached(this.logger, FORGET_FAILED, this.#forget(capture))
  }

  async #forget(capture: Capture): Promise<void> {
    await this.#forgetParts(capture.id)
    this.#release(capture)
  }

  /** Parts that cannot be deleted now are deleted when the store opens again. */
  async #forgetParts(id: string): Promise<void> {
    try {
      await this.#store.apply({ op: 'forget', id })
      this.#orphans.delete(id)
    } catch {
      if (this.#orphans.size < MAX_ORPHANS) this.#orphans.add(id)
    }
  }

  /** Resolves once the webhook is durable. {@link refusal} turns a rejection into the sender's answer. */
  async store(capture: Capture, captured: Captured, underWay: Promise<Outcome> | undefined): Promise<ChangeResult> {
    const { request, lane } = capture
    const runtime = request.runtime!
    let arrived: Message | undefined
    try {
      const { head, rest } = sealedParts(capture, captured)
      const bytes = head.length + captured.bodyBytes + (capture.sealing === undefined ? 0 : SEAL_BYTES * captured.parts)
      this.#reserve(capture, bytes - capture.reservedBytes)
      const made = this.#messageOf(capture, captured, bytes, underWay !== undefined)
      const message = this.#options.mac?.addMacs(made, capture.macs ?? [], head, rest) ?? made
      const applied = await this.#store.apply({ op: 'append', message, head, rest })
      if (applied.status === 'absent') throw new StoreError('away', 'the store lost the beginning of the body')
      if (applied.status === 'stored') {
        this.#ledger.add(runtime, 1, bytes)
        this.#ledger.move(undefined, 'waiting')
        arrived = { ...message, state: 'waiting', changed: message.received }
        this.#accepted[captured.why]++
        const { id, route, why } = message
        this.logger.info({ runtime, inboxId: id, route, reason: why, requestId: request.requestId }, 'webhook stored')
      } else this.#accepted.duplicate++
      this.#release(capture)
      return applied
    } catch (error) {
      if (captured.parts > (captured.rest.length > 0 ? 1 : 0)) this.forget(capture)
      else this.#release(capture)
      throw error
    } finally {
      this.#lanes.arrived(runtime, lane, arrived, underWay)
    }
  }

  /** Reserves room for more bytes of a webhook, and the first time also for the webhook itself. */
  #reserve(capture: Capture, bytes: number): void {
    const isNew = capture.reservedBytes === 0
    this.#admit(capture, isNew, bytes)
    if (!this.#ledger.reserve(capture.request.runtime!, isNew ? 1 : 0, bytes)) {
      throw new StoreError('full', 'a quota is used up')
    }
    capture.reservedBytes += bytes
  }

  #release(capture: Capture): void {
    if (capture.reservedBytes > 0) this.#ledger.release(capture.request.runtime!, 1, capture.reservedBytes)
    capture.reservedBytes = 0
  }

  #admit({ request, lane, rule }: Capture, isNew: boolean, bytes: number): void {
    const runtime = request.runtime!
    const { messagesPerLane, messagesPerRuntime, bytesPerRuntime } = this.#options.limits
    if (isNew && this.#lanes.waiting(runtime, lane) > messagesPerLane) throw new StoreError('full', 'the lane is full')
    if (rule.verifier !== undefined || !this.#ledger.isScarce(runtime)) return
    // A long webhook counts as several, by its share of the byte quota.
    const webhooks = Math.max(isNew ? 1 : 0, (bytes / bytesPerRuntime) * messagesPerRuntime)
    if (!this.#isWithinRate(request.caller!.address, webhooks)) {
      throw new StoreError(
        'full',
        'the address sends more unverified webhooks than are allowed while the quota is scarce',
      )
    }
  }

  #isWithinRate(address: string, webhooks: number): boolean {
    const network = networkOf(address)
    const { unverifiedPerMinute } = this.#options.limits
    if (unverifiedPerMinute === 0) return true
    const bucket = this.#unverified.get(network) ?? new TokenBucket(unverifiedPerMinute, unverifiedPerMinute / 60)
    this.#unverified.putWithin(MAX_ADDRESSES, network, bucket)
    return bucket.take(undefined, webhooks)
  }

  #messageOf(capture: Capture, captured: Captured, bytes: number, attempted: boolean): NewMessage {
    const { id, request, rule, lane, received } = capture
    const { head } = capture
    const sender = senderId(head.headers)
    return {
      ...{ key: capture.sealing?.key ?? '', enc: capture.sealing?.enc ?? '' },
      caller: encodeCaller(request.caller!, capture.span),
      ...{ id, runtime: request.runtime!, lane, route: rule.route, why: captured.why, received, bytes },
      ...{ expires: received + rule.maxAgeMs, parts: captured.parts + 1, attempts: attempted ? 1 : 0 },
      ...{ failures: 0, refusals: 0, failedSince: 0, next: received, reason: '' },
      dedupe: sender === undefined ? '' : dedupeDigest(sender.id, head, captured.digest),
      dedupeMs: sender?.dedupeMs ?? 0,
    }
  }

  /** The error that the sender gets if its webhook was not stored. */
  refusal(error: unknown): SallyportError {
    // No error means that the memory for bodies is used up.
    const isFull = error === undefined || (error instanceof StoreError && error.kind === 'full')
    const code = isFull ? 'inbox-full' : 'inbox-away'
    this.#refused[code]++
    const detail = error === undefined ? 'no memory for bodies' : (error as Error).message
    this.logger.warn({ code, err: { message: detail } }, 'a webhook was not stored')
    return new SallyportError(code, detail)
  }

  refuse(request: HttpRequest, response: ResponseSink, error: SallyportError): void {
    this.#answer!(request, response, error)
  }

  // Delivery.

  /** A session of the runtime may have become ready; `undefined` means any runtime. */
  wake(runtime: string | undefined): void {
    this.#lanes.wake(runtime)
  }

  #recordProgress(message: Message, { kind, reason }: Outcome, progress: Progress): void {
    const { id, runtime, attempts, route } = message
    const fields = { runtime, inboxId: id, route, attempt: attempts, reason: progress.reason ?? reason }
    if (reason !== 'poison') this.#attempts[kind]++
    if (progress.state === 'delivered') {
      this.#ledger.add(runtime, -1, -message.bytes)
      this.#ledger.move('waiting', 'delivered')
      this.logger.info(fields, 'webhook delivered')
    } else if (progress.state === 'dead') this.#recordDeath(message, fields.reason)
    else this.logger.info(fields, 'webhook not delivered yet')
  }

  #recordDeath({ id, runtime, attempts, route }: Message, reason: string): void {
    const [kind = ''] = reason.split(':')
    this.#dead[kind] = (this.#dead[kind] ?? 0) + 1
    this.#ledger.move('waiting', 'dead')
    this.logger.error({ runtime, inboxId: id, route, attempt: attempts, reason }, 'webhook is a dead letter')
  }

  async #sweep(): Promise<void> {
    const { deadMs, deliveredMs } = this.#options.limits
    if (!this.#store.stats().open) return
    const keep = { deadMs, deliveredMs, maxDelivered: MAX_DELIVERED, rulesMs: RULES_MS }
    for (let more = true; more; ) {
      const swept = await this.#store.sweep(this.now(), keep)
      more = swept.more
      for (const message of swept.expired) {
        this.#recordDeath(message, 'expired')
        this.#lanes.remove(message.runtime, message.lane, 1)
      }
    }
    const reconcile = this.#lanes.reconciling()
    const { counts, lanes } = await this.#store.counts()
    this.#ledger.load(counts)
    reconcile(lanes)
    for (const runtime of this.#lanes.runtimes) if (!this.#options.isLive(runtime)) this.#options.look(runtime)
    for (const [runtime, { text, savedAt }] of this.#rules) {
      const isOld = this.#options.isLive(runtime) && this.now() - savedAt >= RULES_FRESH_MS
      if (savedAt === 0 || isOld) this.#saveRules(runtime, text)
    }
  }

  // Operations.

  async list(filter: Filter): Promise<readonly Message[]> {
    return await this.#store.list(filter)
  }

  /** The head of a message as JSON, and its body. */
  async read(id: string): Promise<{ readonly head: Uint8Array; readonly body: Uint8Array } | undefined> {
    const [message] = await this.#store.list({ id, limit: 1 })
    const head = message === undefined ? undefined : await this.readPart(message.id, 0)
    if (head === undefined) return undefined
    const body: Uint8Array[] = []
    for (let n = 1; n < message!.parts; n++) body.push((await this.readPart(message!.id, n)) ?? new Uint8Array())
    return { head, body: Buffer.concat(body) }
  }

  async readPart(id: string, n: number): Promise<Uint8Array | undefined> {
    const { mac } = this.#options
    const bytes = await this.#store.part(id, n)
    if (mac === undefined || bytes === undefined) return bytes
    const [message] = await this.#store.list({ id, limit: 1 })
    return message !== undefined && mac.verifies(message, n, bytes) ? bytes : undefined
  }

  /** Makes dead letters wait again, with their full age ahead of them. Messages that wait are tried at once. */
  async replay(filter: Filter): Promise<string[]> {
    const done: string[] = []
    await inGroups(await this.#store.list(filter), async message => {
      if (message.state === 'delivered') return
      const age = message.expires - message.received
      const fresh = { failures: 0, refusals: 0, failedSince: 0, next: this.now(), expires: this.now() + age }
      const set: Progress = { ...fresh, state: 'waiting', reason: 'replayed' }
      const { status } = await this.#store.apply({ op: 'update', id: message.id, set, at: this.now() })
      // It was delivered or dropped after it was listed.
      if (status === 'absent') return
      if (message.state === 'dead') {
        this.#ledger.move('dead', 'waiting')
        this.#lanes.add(message.runtime, message.lane, 1)
      } else this.#lanes.retryNow(message.runtime, message.lane)
      this.logger.info({ runtime: message.runtime, inboxId: message.id }, 'webhook replayed by an operator')
      done.push(message.id)
    })
    return done
  }

  async drop(filter: Filter): Promise<string[]> {
    const done: string[] = []
    await inGroups(await this.#store.list(filter), async message => {
      const { id, runtime, lane, bytes, state } = message
      const { status } = await this.#store.apply({ op: 'drop', id })
      if (status === 'absent') return
      if (state === 'waiting') this.#lanes.remove(runtime, lane, 1)
      if (state !== 'delivered') this.#ledger.add(runtime, -1, -bytes)
      this.#ledger.move(state, undefined)
      this.logger.warn({ runtime, inboxId: id, reason: state }, 'webhook dropped by an operator')
      done.push(id)
    })
    return done
  }

  /** While a runtime is paused, its webhooks are stored and not delivered. */
  async pause(runtime: string, paused: boolean): Promise<void> {
    await this.#store.apply({ op: 'pause', runtime, paused })
    this.#lanes.pause(runtime, paused)
  }

  stats(): InboxStats {
    const oldest = this.#ledger.counts.flatMap(count => (count.state === 'waiting' ? [count.oldest] : []))
    return {
      store: this.#store.stats(),
      messages: { ...this.#ledger.messages },
      bytes: this.#ledger.bytes,
      oldestSeconds: oldest.length === 0 ? 0 : Math.max(0, this.now() - Math.min(...oldest)) / 1000,
      lanes: this.#lanes.size,
      paused: this.#lanes.paused,
      bufferBytes: this.budget.used,
      accepted: { ...this.#accepted },
      attempts: { ...this.#attempts },
      dead: { ...this.#dead },
      unprovenRules: this.#unproven.size,
      refused: { ...this.#refused },
    }
  }

  /** Attempts under way may finish. Stored webhooks stay stored. */
  async close(): Promise<void> {
    clearInterval(this.#sweepTimer)
    this.#lanes.close()
    this.#options.mac?.close()
    await this.#store.close()
  }
}

/** The head and the last part of the body, as they are stored. */
function sealedParts({ head, sealing }: Capture, { rest, trailers, parts, bodyBytes }: Captured) {
  const clear = encodeHead(head, { trailers, parts, bodyBytes })
  if (sealing === undefined) return { head: clear, rest }
  return { head: sealing.part(0, clear), rest: rest.length === 0 ? rest : sealing.part(parts, rest) }
}

/** Throws if `key` is no valid public key. */
function sealerOf(key: string | undefined, shared: boolean): ClientSealer | undefined {
  return key === undefined ? undefined : new ClientSealer(Buffer.from(key, 'base64url'), shared)
}

/** The store commits concurrent changes as a group. One by one, thousands of them would take minutes. */
const GROUP = 256

async function inGroups<Item>(items: readonly Item[], work: (item: Item) => Promise<void>): Promise<void> {
  for (let at = 0; at < items.length; at += GROUP) await Promise.all(items.slice(at, at + GROUP).map(work))
}

const FORGET_FAILED = 'the parts of a webhook that was not stored could not be deleted'
const RULES_NOT_WRITTEN = 'the rules of a runtime could not be written to the inbox'
const UNPROVEN_RULES =
  'the stored rules of a runtime have no valid MAC: its webhooks are not kept until its client connects again'
const SWEEP_FAILED = 'sweeping the inbox failed'

function withoutSecrets({ verify: _, ...rule }: InboxRule & { verify?: unknown }): InboxRule {
  return rule
}

function zeros<const Name extends string>(names: readonly Name[]): Record<Name, number> {
  return Object.fromEntries(names.map(name => [name, 0])) as Record<Name, number>
}
