/** The inbox of a server: what clients announced, what is kept, and who delivers it. `README.md` has the parts. */
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
import { Capture, WHYS, type Why } from './capture.ts'
import { encodeHead } from './head.ts'
import { dedupeDigest, senderId } from './identity.ts'
import { BodyBudget } from './kept-body.ts'
import { Lanes } from './lanes.ts'
import { Ledger } from './ledger.ts'
import type { InboxMac } from './mac.ts'
import { deliverMessage } from './outgoing.ts'
import type { Outcome, OutcomeKind } from './retry.ts'
import { pathOf, Rules } from './rules.ts'
import { SEAL_BYTES, Seals } from './sealing.ts'
import { encodeCaller } from './spans.ts'
import {
  type Applied,
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

/** What operators do with the webhooks that a server keeps. */
export interface InboxOperations {
  /** Whether other servers have it too, so that each of them tells of all. */
  readonly shared: boolean
  /** The newest first. */
  list(filter: Filter): Promise<readonly Message[]>
  read(id: string): Promise<{ readonly head: Uint8Array; readonly body: Uint8Array } | undefined>
  /** Part `n` as it is stored: 0 the head, then the body. Undefined where there is none, or none any more. */
  readPart(id: string, n: number): Promise<Uint8Array | undefined>
  replay(filter: Filter): Promise<string[]>
  drop(filter: Filter): Promise<string[]>
  pause(runtime: string, paused: boolean): Promise<void>
}

interface InboxParts {
  readonly store: InboxStore
  /** What stands in the store is believed only with a MAC; undefined: always. */
  readonly mac?: InboxMac | undefined
  readonly limits: InboxLimits
  /** Webhooks of clients without a key may stand in clear. */
  readonly plaintext: boolean
  readonly logger: Logger
  /** Ms since 1970. */
  readonly now: () => number
  readonly random?: (() => number) | undefined
  readonly tracing?: Tracing | undefined
  /** Whether the runtime has a session now. */
  isLive(runtime: string): boolean
  /** Asks elsewhere for a session of a runtime that has none here. */
  look(runtime: string): void
}

/** What a webhook is stored with. */
interface Taken {
  readonly why: Why
  readonly rest: Uint8Array
  readonly digest: Uint8Array
  /** Of the body. */
  readonly parts: number
  readonly bodyBytes: number
  readonly trailers: HeaderList
}

/** Counters and gauges of an inbox. */
export interface InboxStats {
  readonly store: StoreStats
  readonly messages: Readonly<Record<Message['state'], number>>
  readonly bytes: number
  /** Since the oldest message that waits came; 0: none waits. */
  readonly oldestSeconds: number
  readonly lanes: number
  readonly paused: readonly string[]
  readonly bufferBytes: number
  readonly accepted: Readonly<Record<Why | 'duplicate', number>>
  readonly attempts: Readonly<Record<OutcomeKind, number>>
  readonly dead: Readonly<Record<string, number>>
  /** Runtimes whose rules in the store are not believed, since they have no good MAC. */
  readonly unprovenRules: number
  readonly refused: Readonly<Record<string, number>>
}

const SWEEP_MS = 30_000
/** Rules of a runtime that does not come back are kept so long. */
const RULES_MS = 30 * 86_400_000
/** Rules are written again only after this time, if they are the same. */
const RULES_FRESH_MS = 86_400_000
const MAX_RUNTIMES = 10_000
/** Each sweep looks at what is there: so many that were delivered take it a tenth of a second. */
const MOST_DELIVERED = 200_000
/** Addresses whose unverified webhooks are counted. */
const MAX_ADDRESSES = 10_000
const MAX_UNFORGOTTEN = 10_000
const NONE: Readonly<Record<string, number>> = { expired: 0, poison: 0, refused: 0, damaged: 0, 'bad-mac': 0 }

/** As it stands in the store. */
interface Announced {
  readonly key?: string
  readonly shared?: boolean
  readonly rules: InboxRule[]
  /** Of the runtime's own, as its token names them. */
  readonly hosts?: readonly string[]
}

interface Known {
  readonly rules: Rules
  readonly hosts: readonly string[]
  /** Seals what is kept; undefined: it is not sealed. */
  readonly seals: Seals | undefined
  /** Undefined: its client took back what an earlier one announced, and the store is to be told. */
  readonly text: string | undefined
  /** When they were written; 0: not yet. */
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
  readonly #rules = new AgedMap<Known>()
  /** Runtimes whose rules in the store are not believed. */
  #unproven: ReadonlySet<string> = new Set()
  readonly #strangers = new AgedMap<TokenBucket>()
  /** Webhooks that were not stored, and whose parts are still there. */
  readonly #unforgotten = new Set<string>()
  readonly #sweepTimer: NodeJS.Timeout
  readonly #accepted = { ...zeros(WHYS), duplicate: 0 }
  readonly #attempts: Record<OutcomeKind, number> = {
    delivered: 0,
    refused: 0,
    gone: 0,
    failed: 0,
    offline: 0,
    damaged: 0,
  }
  readonly #dead: Record<string, number> = { ...NONE }
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
      onProgress: (message, outcome, progress) => this.#progressed(message, outcome, progress),
    })
    const guard = logGuard(logger, SWEEP_FAILED)
    const sweep = guard(() => detached(logger, SWEEP_FAILED, this.#sweep()))
    this.#sweepTimer = setInterval(sweep, SWEEP_MS).unref()
  }

  /**
   * Begins to deliver: `deliver` takes an exchange from inside the edge, `refuse` answers in our own name.
   */
  start(deliver: Handler, refuse: Refuse): void {
    this.#deliver = deliver
    this.#answer = refuse
    this.#store.onState = state => this.#storeChanged(state)
    const { shared } = this.#store
    if (shared === undefined) return
    shared.onLane = (runtime, lane, what) => this.#lanes.heard(runtime, lane, what)
    shared.onRules = contents => this.#rulesChanged(contents)
  }

  #storeChanged(state: StoreState): void {
    if (!state.open) return
    const { counts, lanes } = state.contents
    this.#ledger.load(counts)
    if (state.setAside === undefined) this.#rulesChanged(state.contents)
    else this.#writeAnew()
    for (const [runtime, { text, savedAt }] of this.#rules) if (savedAt === 0) this.#save(runtime, text)
    for (const id of this.#unforgotten) detached(this.logger, NOT_FORGOTTEN, this.#forgetParts(id))
    this.#lanes.reset(lanes)
  }

  /** A new file knows nothing of what was announced while the old one was whole. */
  #writeAnew(): void {
    for (const [, known] of this.#rules) known.savedAt = 0
    for (const runtime of this.#lanes.paused) {
      const written = this.#store.apply({ op: 'pause', runtime, paused: true })
      detached(this.logger, 'a pause of the inbox was not written', written)
    }
  }

  /** What stands in the store counts, but for what is on its way there. */
  #rulesChanged({ rules, paused }: Pick<Contents, 'rules' | 'paused'>): void {
    for (const runtime of this.#lanes.paused) if (!paused.includes(runtime)) this.#lanes.pause(runtime, false)
    for (const runtime of paused) this.#lanes.pause(runtime, true)
    const texts = this.#believed(rules)
    for (const [runtime, { savedAt }] of this.#rules)
      if (savedAt > 0 && !texts.has(runtime)) this.#rules.delete(runtime)
    for (const [runtime, text] of texts) {
      const known = this.#rules.get(runtime)
      if (known === undefined || (known.savedAt > 0 && known.text !== text)) this.#learn(runtime, text, this.now())
    }
  }

  /** What clients announced. Rules that prove nothing are none, so that nothing is kept by them. */
  #believed(stored: Contents['rules']): Map<string, string> {
    const texts = new Map<string, string>()
    const unproven = new Set<string>()
    for (const { runtime, rules } of stored) {
      const { mac } = this.#options
      const text = mac === undefined ? rules : mac.provenRules(runtime, rules, this.now() - RULES_MS)
      if (text !== undefined) texts.set(runtime, text)
      else unproven.add(runtime)
    }
    for (const runtime of unproven) if (!this.#unproven.has(runtime)) this.logger.error({ runtime }, UNPROVEN_RULES)
    this.#unproven = unproven
    return texts
  }

  /** Servers have the store together: each of them tells of all. */
  get shared(): boolean {
    return this.#store.shared !== undefined
  }

  // The layer.

  /** In front of the sessions: requests for which there is no rule pass untouched. */
  readonly layer: Layer = next => (request, response) => {
    const known = this.#rules.get(request.runtime!)
    const rule = known?.rules.find(request)
    // Whoever says that a host is the runtime's, what comes for it is kept only if the runtime's own token said so.
    const isTheirs = request.ownHost === undefined || known?.hosts.includes(request.ownHost) === true
    if (known === undefined || rule === undefined || !isTheirs) return next(request, response)
    const id = newRequestId()
    const laneName = rule.lane === 'path' ? pathOf(request) : rule.lane === 'route' ? `route ${rule.route}` : id
    const options = { id, rule, laneName, seals: known.seals }
    return new Capture(this, options, request, response).start(next)
  }

  /**
   * What the client of a runtime announces; an empty list takes back what an earlier one did. `shared`: as in {@link Seals}. `hosts`: of its
   * own, as its token names them.
   */
  publish(
    runtime: string,
    announced: readonly InboxRule[],
    key: string | undefined,
    shared = false,
    hosts: readonly string[] = [],
  ): void {
    const { seals, problem } = this.#sealsOf(key, shared)
    if (problem !== undefined && announced.length > 0) {
      this.logger.error({ runtime, reason: problem }, 'webhooks of a runtime are not kept')
    }
    const rules = problem === undefined ? announced : []
    const known = this.#rules.get(runtime)
    // One that is not open may know of earlier ones.
    if (rules.length === 0 && known === undefined && this.#store.stats().open) return
    const told = { key, shared, rules: rules.map(withoutSecrets), ...(hosts.length > 0 && { hosts }) }
    const text = rules.length === 0 ? undefined : JSON.stringify(told)
    const made = this.#rulesOf(runtime, rules)
    const now = this.now()
    const isFresh = known !== undefined && known.text === text && now - known.savedAt < RULES_FRESH_MS
    this.#rules.putWithin(MAX_RUNTIMES, runtime, {
      ...{ rules: made, hosts, seals, text },
      savedAt: isFresh ? known.savedAt : 0,
    })
    if (!isFresh) this.#save(runtime, text)
  }

  /** A fresh token of the runtime's client names these hosts. */
  renewed(runtime: string, hosts: readonly string[]): void {
    const known = this.#rules.get(runtime)
    if (known?.text === undefined || isDeepStrictEqual(known.hosts, hosts)) return
    const text = JSON.stringify({ ...(JSON.parse(known.text) as Announced), hosts })
    this.#rules.putWithin(MAX_RUNTIMES, runtime, { ...known, hosts, text, savedAt: 0 })
    this.#save(runtime, text)
  }

  /** Nothing is kept in clear that nobody asked to have in clear. */
  #sealsOf(
    key: string | undefined,
    shared: boolean,
  ): { readonly seals?: Seals | undefined; readonly problem?: string } {
    if (key === undefined && !this.#options.plaintext) {
      return {
        problem: 'its client has no key to seal them for (--inbox.key.file), and --inbox.plaintext is not given',
      }
    }
    try {
      return { seals: sealsOf(key, shared) }
    } catch {
      return { problem: 'nothing can be sealed for the key of its client' }
    }
  }

  /** A rule whose secrets cannot be used is none: nothing is stored that should have been checked. */
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

  /** What cannot be read is announced again by the next session. */
  #learn(runtime: string, text: string, savedAt: number): void {
    try {
      const { key, shared = false, rules: announced, hosts = [] } = JSON.parse(text) as Announced
      if (key === undefined && !this.#options.plaintext) return
      const rules = new Rules(announced, this.#options.limits.maxAgeMs)
      this.#rules.putWithin(MAX_RUNTIMES, runtime, { rules, hosts, seals: sealsOf(key, shared), text, savedAt })
    } catch (error) {
      const err = { message: (error as Error).message }
      this.logger.error({ runtime, err }, 'the rules of a runtime cannot be read')
    }
  }

  #save(runtime: string, rules: string | undefined): void {
    detached(this.logger, 'the rules of an inbox were not written', this.#write(runtime, rules))
  }

  /** What cannot be written is forgotten by a restart, unless it is announced again. */
  async #write(runtime: string, rules: string | undefined): Promise<void> {
    const at = this.now()
    try {
      const proven = rules && (this.#options.mac?.proveRules(runtime, rules, at) ?? rules)
      await this.#store.apply({ op: 'rules', runtime, rules: proven, at })
      const known = this.#rules.get(runtime)
      if (known === undefined || known.text !== rules) return
      if (rules === undefined) this.#rules.delete(runtime)
      else known.savedAt = at
    } catch (error) {
      const err = { message: (error as Error).message }
      this.logger.warn({ runtime, err }, 'the rules of an inbox were not written')
    }
  }

  // For a webhook that comes in.

  get attemptMs(): number {
    return this.#options.limits.attemptMs
  }

  isBusy(capture: Capture): boolean {
    const runtime = capture.request.runtime!
    if (this.#lanes.isPaused(runtime)) return true
    // Most of the time nothing waits, and the digest is not needed.
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
    const mac = this.#options.mac?.ofPart({ runtime: request.runtime!, id }, n, part)
    if (mac !== undefined) {
      capture.macs ??= []
      capture.macs[n] = mac
    }
    this.#reserve(capture, part.length)
    await this.#store.apply({ op: 'part', id, n, bytes: part })
  }

  /** Parts whose webhook is not stored. */
  forget(capture: Capture): void {
    detached(this.logger, NOT_FORGOTTEN, this.#forget(capture))
  }

  async #forget(capture: Capture): Promise<void> {
    await this.#forgetParts(capture.id)
    this.#release(capture)
  }

  /** What cannot be removed now goes once the store is open again. */
  async #forgetParts(id: string): Promise<void> {
    try {
      await this.#store.apply({ op: 'forget', id })
      this.#unforgotten.delete(id)
    } catch {
      if (this.#unforgotten.size < MAX_UNFORGOTTEN) this.#unforgotten.add(id)
    }
  }

  /** Resolves once it is durable. Rejects with what {@link refusal} makes an answer of. */
  async store(capture: Capture, taken: Taken, underWay: Promise<Outcome> | undefined): Promise<Applied> {
    const { request, lane } = capture
    const runtime = request.runtime!
    let arrived: Message | undefined
    try {
      const { head, rest } = sealed(capture, taken)
      const bytes = head.length + taken.bodyBytes + (capture.sealing === undefined ? 0 : SEAL_BYTES * taken.parts)
      this.#reserve(capture, bytes - capture.reservedBytes)
      const made = this.#messageOf(capture, taken, bytes, underWay !== undefined)
      const message = this.#options.mac?.prove(made, capture.macs ?? [], head, rest) ?? made
      const applied = await this.#store.apply({ op: 'append', message, head, rest })
      if (applied.status === 'absent') throw new StoreError('away', 'the store has lost the beginning of the body')
      if (applied.status === 'stored') {
        this.#ledger.add(runtime, 1, bytes)
        this.#ledger.move(undefined, 'waiting')
        arrived = { ...message, state: 'waiting', changed: message.received }
        this.#accepted[taken.why]++
        const { id, route, why } = message
        this.logger.info({ runtime, inboxId: id, route, reason: why, requestId: request.requestId }, 'webhook stored')
      } else this.#accepted.duplicate++
      this.#release(capture)
      return applied
    } catch (error) {
      if (taken.parts > (taken.rest.length > 0 ? 1 : 0)) this.forget(capture)
      else this.#release(capture)
      throw error
    } finally {
      this.#lanes.arrived(runtime, lane, arrived, underWay)
    }
  }

  /** Room for so many more bytes of a webhook, and at its first ones for itself. */
  #reserve(capture: Capture, bytes: number): void {
    const isNew = capture.reservedBytes === 0
    this.#admit(capture, isNew, bytes)
    if (!this.#ledger.reserve(capture.request.runtime!, isNew ? 1 : 0, bytes)) {
      throw new StoreError('full', 'the quota is used up')
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
    // A long one uses up as much of the quota as several.
    const webhooks = Math.max(isNew ? 1 : 0, (bytes / bytesPerRuntime) * messagesPerRuntime)
    if (!this.#mayBring(request.caller!.address, webhooks)) {
      throw new StoreError('full', 'the address brings more than it may while there is little room')
    }
  }

  #mayBring(address: string, webhooks: number): boolean {
    const network = networkOf(address)
    const { unverifiedPerMinute } = this.#options.limits
    if (unverifiedPerMinute === 0) return true
    const bucket = this.#strangers.get(network) ?? new TokenBucket(unverifiedPerMinute, unverifiedPerMinute / 60)
    this.#strangers.putWithin(MAX_ADDRESSES, network, bucket)
    return bucket.take(undefined, webhooks)
  }

  #messageOf(capture: Capture, taken: Taken, bytes: number, attempted: boolean): NewMessage {
    const { id, request, rule, lane, received } = capture
    const { head } = capture
    const sender = senderId(head.headers)
    return {
      ...{ key: capture.sealing?.key ?? '', enc: capture.sealing?.enc ?? '' },
      caller: encodeCaller(request.caller!, capture.span),
      ...{ id, runtime: request.runtime!, lane, route: rule.route, why: taken.why, received, bytes },
      ...{ expires: received + rule.maxAgeMs, parts: taken.parts + 1, attempts: attempted ? 1 : 0 },
      ...{ failures: 0, refusals: 0, failedSince: 0, next: received, reason: '' },
      dedupe: sender === undefined ? '' : dedupeDigest(sender.id, head, taken.digest),
      dedupeMs: sender?.dedupeMs ?? 0,
    }
  }

  /** What a sender is told whose webhook was not stored. */
  refusal(error: unknown): SallyportError {
    // Without an error: the memory for bodies is used up.
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

  // What becomes of it.

  /** A session of the runtime may have come. `undefined`: of any runtime. */
  wake(runtime: string | undefined): void {
    this.#lanes.wake(runtime)
  }

  #progressed(message: Message, { kind, reason }: Outcome, progress: Progress): void {
    const { id, runtime, attempts, route } = message
    const fields = { runtime, inboxId: id, route, attempt: attempts, reason: progress.reason ?? reason }
    if (reason !== 'poison') this.#attempts[kind]++
    if (progress.state === 'delivered') {
      this.#ledger.add(runtime, -1, -message.bytes)
      this.#ledger.move('waiting', 'delivered')
      this.logger.info(fields, 'webhook delivered')
    } else if (progress.state === 'dead') this.#died(message, fields.reason)
    else this.logger.info(fields, 'webhook not delivered yet')
  }

  #died({ id, runtime, attempts, route }: Message, reason: string): void {
    const [kind = ''] = reason.split(':')
    this.#dead[kind] = (this.#dead[kind] ?? 0) + 1
    this.#ledger.move('waiting', 'dead')
    this.logger.error({ runtime, inboxId: id, route, attempt: attempts, reason }, 'webhook is a dead letter')
  }

  async #sweep(): Promise<void> {
    const { deadMs, deliveredMs } = this.#options.limits
    if (!this.#store.stats().open) return
    const keep = { deadMs, deliveredMs, mostDelivered: MOST_DELIVERED, rulesMs: RULES_MS }
    for (let more = true; more; ) {
      const swept = await this.#store.sweep(this.now(), keep)
      more = swept.more
      for (const message of swept.expired) {
        this.#died(message, 'expired')
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
      if (savedAt === 0 || isOld) this.#save(runtime, text)
    }
  }

  // What an operator does.

  async list(filter: Filter): Promise<readonly Message[]> {
    return await this.#store.list(filter)
  }

  /** The parts of a message: the head as JSON, and the body. */
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
    return message !== undefined && mac.proves(message, n, bytes) ? bytes : undefined
  }

  /** Dead letters wait once more, as new as on their first day; those that wait are tried at once. */
  async replay(filter: Filter): Promise<string[]> {
    const done: string[] = []
    await together(await this.#store.list(filter), async message => {
      if (message.state === 'delivered') return
      const age = message.expires - message.received
      const fresh = { failures: 0, refusals: 0, failedSince: 0, next: this.now(), expires: this.now() + age }
      const set: Progress = { ...fresh, state: 'waiting', reason: 'replayed' }
      const { status } = await this.#store.apply({ op: 'update', id: message.id, set, at: this.now() })
      // It was delivered or dropped since it was listed.
      if (status === 'absent') return
      if (message.state === 'dead') {
        this.#ledger.move('dead', 'waiting')
        this.#lanes.add(message.runtime, message.lane, 1)
      } else this.#lanes.hurry(message.runtime, message.lane)
      this.logger.info({ runtime: message.runtime, inboxId: message.id }, 'webhook waits again, by hand')
      done.push(message.id)
    })
    return done
  }

  async drop(filter: Filter): Promise<string[]> {
    const done: string[] = []
    await together(await this.#store.list(filter), async message => {
      const { id, runtime, lane, bytes, state } = message
      const { status } = await this.#store.apply({ op: 'drop', id })
      if (status === 'absent') return
      if (state === 'waiting') this.#lanes.remove(runtime, lane, 1)
      if (state !== 'delivered') this.#ledger.add(runtime, -1, -bytes)
      this.#ledger.move(state, undefined)
      this.logger.warn({ runtime, inboxId: id, reason: state }, 'webhook dropped by hand')
      done.push(id)
    })
    return done
  }

  /** Nothing of the runtime is delivered until it is resumed; what comes is stored. */
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

  /** What is under way may end; what is stored stays. */
  async close(): Promise<void> {
    clearInterval(this.#sweepTimer)
    this.#lanes.close()
    this.#options.mac?.close()
    await this.#store.close()
  }
}

/** What is stored of a webhook: its head, and the end of its body. */
function sealed({ head, sealing }: Capture, { rest, trailers, parts, bodyBytes }: Taken) {
  const clear = encodeHead(head, { trailers, parts, bodyBytes })
  if (sealing === undefined) return { head: clear, rest }
  return { head: sealing.part(0, clear), rest: rest.length === 0 ? rest : sealing.part(parts, rest) }
}

/** Throws for one that nothing can be sealed for. */
function sealsOf(key: string | undefined, shared: boolean): Seals | undefined {
  return key === undefined ? undefined : new Seals(Buffer.from(key, 'base64url'), shared)
}

/** The store commits what comes at once in one group: each by itself, thousands would take minutes. */
const GROUP = 256

async function together<Item>(items: readonly Item[], work: (item: Item) => Promise<void>): Promise<void> {
  for (let at = 0; at < items.length; at += GROUP) await Promise.all(items.slice(at, at + GROUP).map(work))
}

const NOT_FORGOTTEN = 'parts of a webhook were not forgotten'
const UNPROVEN_RULES =
  'the rules of a runtime have no good MAC: its webhooks are not kept until its client connects again'
const SWEEP_FAILED = 'the inbox could not be swept'

function withoutSecrets({ verify: _, ...rule }: InboxRule & { verify?: unknown }): InboxRule {
  return rule
}

function zeros<const Name extends string>(names: readonly Name[]): Record<Name, number> {
  return Object.fromEntries(names.map(name => [name, 0])) as Record<Name, number>
}
