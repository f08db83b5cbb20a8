/** Stores webhooks: reserves room for each, and writes its parts and then the webhook itself. */
import { networkOf } from '../../protocol/base/address.ts'
import { SallyportError } from '../../protocol/base/errors.ts'
import { detached } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { TokenBucket } from '../../protocol/base/token-bucket.ts'
import { BODY_UNKNOWN, type HeaderList, type HttpRequest, type ResponseSink } from '../../protocol/exchange.ts'
import type { Refuse } from '../../protocol/http/problem.ts'
import { KnownSenders } from '../../protocol/webhook/known-senders.ts'
import { AgedMap } from '../aged-map.ts'
import type { InboxLimits } from '../limits.ts'
import { CAPTURE_REASONS, type Capture, type CaptureReason } from './capture.ts'
import { encodeHead } from './head.ts'
import { dedupeDigest, proofsOf, senderId } from './identity.ts'
import { BodyBudget } from './kept-body.ts'
import type { Lanes } from './lanes.ts'
import { type Ledger, SCARCE } from './ledger.ts'
import type { InboxMac } from './mac.ts'
import type { Recount } from './recount.ts'
import type { Outcome } from './retry.ts'
import { SEAL_BYTES } from './sealing.ts'
import { encodeCaller } from './spans.ts'
import { type ChangeResult, type InboxStore, type Message, type NewMessage, StoreError } from './store.ts'

interface IntakeParts {
  readonly store: InboxStore
  readonly mac: InboxMac | undefined
  readonly limits: InboxLimits
  readonly ledger: Ledger
  readonly lanes: Lanes
  /** Counts again what the ledger counts. `undefined` if only this server uses the store. */
  readonly recount: Recount | undefined
  readonly logger: Logger
  /** Ms since 1970. */
  readonly now: () => number
}

interface Captured {
  readonly why: CaptureReason
  readonly rest: Uint8Array
  readonly digest: Uint8Array
  /** Number of parts of the body. */
  readonly parts: number
  readonly bodyBytes: number
  readonly trailers: HeaderList
}

type Charge = readonly [rate: TokenBucket, webhooks: number]

/** Networks whose unverified webhooks are rate-limited, each at every runtime where it sends some, and over all of them. */
const MAX_RATES = 10_000
const MAX_ORPHANS = 10_000

export class WebhookIntake {
  readonly logger: Logger
  readonly now: () => number
  readonly #budget: BodyBudget
  /**
   * Known senders have one of their own, which strangers in thousands of networks cannot use up. One network may send to all runtimes,
   * as GitHub's do, so it is limited only at each. If its webhooks stay in memory, that is due to the runtime's receivers.
   */
  readonly #knownBudget: BodyBudget
  readonly #senders = new KnownSenders()
  /** For attempts that go on after their webhooks were stored. It is not the same, so that slow receivers keep no webhook out. */
  readonly attempts: BodyBudget
  readonly accepted: Record<CaptureReason | 'duplicate', number> = { ...zeros(CAPTURE_REASONS), duplicate: 0 }
  readonly refused: Record<'inbox-full' | 'inbox-away', number> = { 'inbox-full': 0, 'inbox-away': 0 }
  /** Sends an error response. Set before the first webhook arrives. */
  answer: Refuse | undefined
  readonly #parts: IntakeParts
  readonly #store: InboxStore
  readonly #lanes: Lanes
  readonly #ledger: Ledger
  readonly #unverified = new AgedMap<TokenBucket>()
  /** Ids of webhooks that were not stored, but whose parts may still be in the store. */
  readonly #orphans = new Set<string>()

  constructor(parts: IntakeParts) {
    this.#parts = parts
    this.#store = parts.store
    this.#lanes = parts.lanes
    this.#ledger = parts.ledger
    this.logger = parts.logger
    this.now = parts.now
    this.#budget = new BodyBudget(parts.limits.bufferBytes)
    this.#knownBudget = new BodyBudget(parts.limits.bufferBytes, false)
    this.attempts = new BodyBudget(parts.limits.bufferBytes)
  }

  get attemptMs(): number {
    return this.#parts.limits.attemptMs
  }

  get bufferBytes(): number {
    return this.#budget.used + this.#knownBudget.used + this.attempts.used
  }

  /** What the body of a webhook counts against. */
  budgetOf({ runtime, caller }: HttpRequest): BodyBudget {
    const isKnown = this.#senders.has(runtime!, networkOf(caller!.address))
    return isKnown ? this.#knownBudget : this.#budget
  }

  /** The signature of a webhook is valid. */
  remember({ runtime, caller }: HttpRequest): void {
    this.#senders.add(runtime!, networkOf(caller!.address))
  }

  /** Whether it must wait behind others. `arrived` is as in {@link Lanes.isBusy}. */
  isBusy(capture: Capture, arrived?: number): boolean {
    const runtime = capture.request.runtime!
    if (this.#lanes.isPaused(runtime) || this.#store.shared?.isLeaseOver() === true) return true
    // Usually nothing waits for the runtime, and computing the lane's digest can be skipped.
    return this.#lanes.has(runtime) && this.#lanes.isBusy(runtime, capture.lane, arrived)
  }

  async part(capture: Capture, n: number, bytes: Uint8Array): Promise<void> {
    const { id, sealing, request } = capture
    const part = sealing?.part(n, bytes) ?? bytes
    const mac = this.#parts.mac?.partMac({ runtime: request.runtime!, id }, n, part)
    if (mac !== undefined) {
      capture.macs ??= []
      capture.macs[n] = mac
    }
    await this.#reserveInTurn(capture, () => part.length)
    await this.#store.apply({ op: 'part', id, n, bytes: part })
  }

  /** Deletes the parts of a webhook that is not stored after all. If it is charged, they count against its sender's rates all the same. */
  forget(capture: Capture, isCharged: boolean): void {
    detached(this.logger, FORGET_FAILED, this.#forget(capture, isCharged))
  }

  async #forget(capture: Capture, isCharged: boolean): Promise<void> {
    // A part that waits for room would be stored after that.
    await capture.room?.catch(() => {})
    giveBackRates(capture, isCharged ? capture.reservedBytes : 0)
    await this.#forgetParts(capture.id)
    this.#release(capture)
  }

  /** Call it when the store is open again. */
  forgetOrphans(): void {
    for (const id of this.#orphans) detached(this.logger, FORGET_FAILED, this.#forgetParts(id))
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

  /**
   * Resolves once the webhook is durable. {@link refusal} turns a rejection into the sender's answer. Call it only for a complete webhook,
   * so that no other one waits behind a sender that may never finish.
   */
  async store(capture: Capture, captured: Captured, underWay: Promise<Outcome> | undefined): Promise<ChangeResult> {
    const { request, lane } = capture
    const runtime = request.runtime!
    let isExpected = false
    let arrived: Message | undefined
    const expect = () => {
      this.#lanes.expect(runtime, lane, capture.received, underWay !== undefined)
      isExpected = true
    }
    try {
      const { head, rest } = sealedParts(capture, captured)
      const bytes = head.length + captured.bodyBytes + (capture.sealing === undefined ? 0 : SEAL_BYTES * captured.parts)
      await this.#reserveInTurn(capture, () => bytes - capture.reservedBytes, expect)
      const made = this.#messageOf(capture, captured, bytes, underWay !== undefined)
      const message = this.#parts.mac?.addMacs(made, capture.macs ?? [], head, rest) ?? made
      const applied = await this.#store.apply({ op: 'append', message, head, rest, at: this.now() })
      if (applied.status === 'absent') throw new StoreError('away', 'the store lost the beginning of the body')
      if (applied.status === 'stored') {
        this.#ledger.add(runtime, 1, bytes)
        this.#ledger.move(undefined, 'waiting')
        arrived = { ...message, state: 'waiting', changed: message.received }
        this.accepted[captured.why]++
        const { id, route, why } = message
        this.logger.info({ runtime, inboxId: id, route, reason: why, requestId: request.requestId }, 'webhook stored')
      } else this.accepted.duplicate++
      this.#release(capture)
      return applied
    } catch (error) {
      if (captured.parts > (captured.rest.length > 0 ? 1 : 0)) this.forget(capture, isFull(error))
      else {
        giveBackRates(capture, 0)
        this.#release(capture)
      }
      throw error
    } finally {
      if (isExpected) this.#lanes.arrived(runtime, lane, arrived, underWay)
    }
  }

  /**
   * Reserves room for more bytes of a webhook, and the first time also for the webhook itself. `expect` is called if there is room: from
   * then on, a complete webhook counts in its lane.
   */
  #reserve(capture: Capture, bytes: number, expect?: () => void): void {
    const isNew = capture.reservedBytes === 0
    const { runtime } = capture.request
    const charges = this.#admit(capture, bytes, expect !== undefined)
    if (!this.#ledger.reserve(runtime!, isNew ? 1 : 0, bytes)) throw new StoreError('full', 'a quota is used up')
    // One that is refused takes nothing, since it is tried again after a new count.
    for (const [rate, webhooks] of charges) {
      rate.give(-webhooks)
      capture.taken ??= new Map()
      capture.taken.set(rate, webhooks + (capture.taken.get(rate) ?? 0))
    }
    capture.reservedBytes += bytes
    expect?.()
  }

  /** Parts must reach the store in order, so each waits until those before it have room. */
  #reserveInTurn(capture: Capture, bytes: () => number, expect?: () => void): Promise<void> {
    const reserve = () => this.#reserveSurely(capture, bytes(), expect)
    capture.room = capture.room === undefined ? reserve() : capture.room.then(reserve)
    return capture.room
  }

  /** Does the same, and is refused only by counts that are not out of date. */
  async #reserveSurely(capture: Capture, bytes: number, expect?: () => void): Promise<void> {
    try {
      this.#reserve(capture, bytes, expect)
    } catch (error) {
      if (!(await this.#recount(capture))) throw error
      this.#reserve(capture, bytes, expect)
    }
  }

  /** False if both were counted a moment ago, or nobody else changes them. */
  async #recount({ request, lane }: Capture): Promise<boolean> {
    const { recount } = this.#parts
    if (recount === undefined) return false
    const isOfLane = this.#isCrowded(request.runtime!, lane)
    const asked = [
      isOfLane && this.#lanes.recount(request.runtime!, lane),
      (!isOfLane || this.#isScarce(request.runtime!)) && recount.run(),
    ]
    return (await Promise.all(asked)).includes(true)
  }

  #isCrowded(runtime: string, lane: string): boolean {
    return this.#lanes.waiting(runtime, lane) >= this.#parts.limits.messagesPerLane * SCARCE
  }

  #isScarce(runtime: string): boolean {
    return this.#ledger.isScarce(runtime) || this.#ledger.isScarceForAll
  }

  #release(capture: Capture): void {
    if (capture.reservedBytes > 0) this.#ledger.release(capture.request.runtime!, 1, capture.reservedBytes)
    capture.reservedBytes = 0
  }

  /** Returns what it takes of the rates of its sender. */
  #admit(capture: Capture, bytes: number, isComplete: boolean): readonly Charge[] {
    const { request, lane, isVerified, reservedBytes, taken } = capture
    const { messagesPerLane, unverifiedPerMinute } = this.#parts.limits
    const isLaneFull = this.#lanes.waiting(request.runtime!, lane) >= messagesPerLane
    if (isLaneFull && (isComplete || reservedBytes === 0)) throw new StoreError('full', 'the lane is full')
    if (isVerified || unverifiedPerMinute === 0) return []
    const charges = this.#chargesOf(capture, bytes)
    // One that said how long it is has paid for all but its head and what its seals add. It is not refused for these few bytes.
    const isPaid = (rate: TokenBucket) => request.bodyBytes !== BODY_UNKNOWN && taken?.has(rate) === true
    if (charges.every(([rate, webhooks]) => isPaid(rate) || rate.has(webhooks))) return charges
    throw new StoreError(
      'full',
      'the address sends more unverified webhooks than are allowed while the quota is scarce',
    )
  }

  /**
   * What it has yet to pay before more bytes of it are stored. If it says how long it is, it pays all at once. A long webhook counts as
   * several, by its share of the byte quota.
   */
  #chargesOf({ request, lane, reservedBytes, taken }: Capture, bytes: number): readonly Charge[] {
    const runtime = request.runtime!
    const network = networkOf(request.caller!.address)
    const { messagesPerRuntime, bytesPerRuntime, bytes: allBytes } = this.#parts.limits
    const whole = Math.max(reservedBytes + bytes, request.bodyBytes)
    const chargeOf = (sender: string, least: number, quota: number): Charge => {
      const rate = this.#rateOf(sender)
      const paid = taken?.has(rate) === true ? Math.max(reservedBytes, request.bodyBytes) : reservedBytes
      return [rate, Math.max(least, ((whole - paid) / quota) * messagesPerRuntime)]
    }
    const charges: Charge[] = []
    if (this.#isCrowded(runtime, lane) || this.#ledger.isScarce(runtime)) {
      charges.push(chargeOf(`${runtime} ${network}`, reservedBytes === 0 ? 1 : 0, bytesPerRuntime))
    }
    if (this.#ledger.isScarceForAll) charges.push(chargeOf(network, 0, allBytes))
    return charges
  }

  #rateOf(sender: string): TokenBucket {
    const { unverifiedPerMinute } = this.#parts.limits
    const rate = this.#unverified.get(sender) ?? new TokenBucket(unverifiedPerMinute, unverifiedPerMinute / 60)
    // One that is forgotten begins anew. There are so many only if their webhooks would fill the quotas in any case.
    this.#unverified.putWithin(MAX_RATES, sender, rate)
    return rate
  }

  #messageOf(capture: Capture, captured: Captured, bytes: number, attempted: boolean): NewMessage {
    const { id, request, rule, lane, received, head, isVerified } = capture
    const sender = senderId(head.headers)
    const proofs = () => proofsOf(head.headers, rule, isVerified)
    return {
      ...{ key: capture.sealing?.key ?? '', enc: capture.sealing?.enc ?? '' },
      caller: encodeCaller(request.caller!, capture.span),
      ...{ id, runtime: request.runtime!, lane, route: rule.route, why: captured.why, received, bytes },
      ...{ expires: received + rule.maxAgeMs, parts: captured.parts + 1, attempts: attempted ? 1 : 0 },
      ...{ failures: 0, refusals: 0, failedSince: 0, next: received, reason: '' },
      dedupe: sender === undefined ? '' : dedupeDigest(sender.id, proofs(), head, captured.digest),
      dedupeMs: sender?.dedupeMs ?? 0,
    }
  }

  /** The error that the sender gets if its webhook was not stored. */
  refusal(capture: Capture, error: unknown): SallyportError {
    const code = isFull(error) ? 'inbox-full' : 'inbox-away'
    this.refused[code]++
    const detail = error === undefined ? 'no memory for bodies' : (error as Error).message
    this.logger.warn({ ...capture.fields, code, err: { message: detail } }, 'a webhook was not stored')
    return new SallyportError(code, detail)
  }

  refuse(request: HttpRequest, response: ResponseSink, error: SallyportError): void {
    this.answer!(request, response, error)
  }
}

/** Whether a webhook is not stored because there is no room. No error means that the memory for bodies is used up. */
function isFull(error: unknown): boolean {
  return error === undefined || (error instanceof StoreError && error.kind === 'full')
}

/** The webhook is not stored, so of the rates of its sender it takes no more than `bytes` of it. */
function giveBackRates({ taken, reservedBytes, request }: Capture, bytes: number): void {
  const share = bytes / Math.max(reservedBytes, request.bodyBytes, 1)
  for (const [rate, webhooks] of taken ?? []) rate.give(webhooks * (1 - share))
  taken?.clear()
}

/** The head and the last part of the body, as they are stored. */
function sealedParts({ head, sealing }: Capture, { rest, trailers, parts, bodyBytes }: Captured) {
  const clear = encodeHead(head, { trailers, parts, bodyBytes })
  if (sealing === undefined) return { head: clear, rest }
  return { head: sealing.part(0, clear), rest: rest.length === 0 ? rest : sealing.part(parts, rest) }
}

const FORGET_FAILED = 'the parts of a webhook that was not stored could not be deleted'

function zeros<const Name extends string>(names: readonly Name[]): Record<Name, number> {
  return Object.fromEntries(names.map(name => [name, 0])) as Record<Name, number>
}
