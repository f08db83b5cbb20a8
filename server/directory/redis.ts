/**
 * The directory of several servers, in Redis. Everything that a replica knows is a copy: written by the scripts, told by
 * the channel, and acted on only as long as a lease says that it is whole, by the local monotonic clock.
 *
 * The connection is one ordered stream, so an answer to our renewal means that we heard of every change before it. When
 * it breaks, what was known still holds for the rest of the lease; after that only if all other replicas vouch that they
 * were granted nothing (`witnesses.ts`).
 */
import { detached, logGuard, tellDefect } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import {
  type Registration,
  type Directory,
  type DirectoryListener,
  type DirectoryState,
  type DirectoryStats,
  MAX_INSTANCES,
  MAX_TOLD_EPOCH,
  presentedEpoch,
  type RuntimeState,
} from './directory.ts'
import { KnownRuntimes } from './known-runtimes.ts'
import { absent, isSame, merge, present } from './presume.ts'
import type { Recorder } from './recorder.ts'
import { NoRight, QueueFull, type RedisAddress, RedisLink } from './redis-link.ts'
import { CHANGE, RENEW } from './scripts.ts'
import {
  MAX_RUNTIME_STATE_BYTES,
  parseRenewal,
  parseRuntimeState,
  type Renewal,
  type ReplicaLease,
} from './runtime-state.ts'
import { NoWitnesses, type Witnesses } from './witnesses.ts'

export interface RedisDirectoryOptions {
  /** Read at each connect, so that a changed password counts. */
  readonly redis: () => Promise<RedisAddress>
  /** Name of this replica among all; unique to this process. */
  readonly replica: string
  /** Where other replicas reach this one; empty: nowhere. */
  readonly address: string
  readonly leaseMs: number
  readonly prefix: string
  readonly logger: Logger
  readonly witnesses?: Witnesses | undefined
  readonly record?: Recorder | undefined
  /** Milliseconds of a clock that never goes back. Default `performance.now`. */
  readonly now?: (() => number) | undefined
}

/** How long a record is kept: with live sessions (they are confirmed every hour), and without. */
const KEEP_LIVE_MS = 7 * 86_400_000
const KEEP_EMPTY_MS = 86_400_000
/** How long a replica that is dead is remembered, so that what it left behind is removed where it is found. */
const KEEP_DEAD_MS = 3_600_000
const CONFIRM_EVERY_MS = 3_600_000
const RETRY_MS = 1000
const ASK_AGAIN_MS = 100
/** Sessions that are written back at once. */
const BATCH = 128
const MAX_LEAVING = 100_000
/** What a change may say of so many instances and replicas as there can be. */
const MAX_MESSAGE_CHARS = 2 * MAX_RUNTIME_STATE_BYTES

export class RedisDirectory implements Directory {
  readonly replica: string
  readonly #options: RedisDirectoryOptions
  readonly #logger: Logger
  readonly #witnesses: Witnesses
  readonly #now: () => number
  readonly #known: KnownRuntimes
  #listener: DirectoryListener | undefined
  #link: RedisLink | undefined
  /** When the last renewal that was answered was sent, and how long it holds. */
  #contactMs = Number.NEGATIVE_INFINITY
  #contactUntilMs = Number.NEGATIVE_INFINITY
  /** When the directory began to remember; a young one may not know yet who is there. */
  #bornMs = Number.POSITIVE_INFINITY
  #replicas: readonly ReplicaLease[] = []
  #dead: readonly string[] = []
  /** Instances that left while the directory could not be told, or was being told of too many. */
  readonly #leaving = new Map<string, { readonly runtime: string; readonly instance: string }>()
  /** Runtimes of which something odd was told. */
  readonly #doubted = new Set<string>()
  /** Runtimes whose sessions are yet to be confirmed in this round. */
  #confirming: Registration[] = []
  #refreshing = new Map<string, Promise<RuntimeState | 'unknown' | undefined>>()
  #pausing: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined
  #said: DirectoryState | 'young' | undefined
  /** Somebody was told that nothing may be acted on. */
  #missed = false
  /** There are standbys, which may have taken over where nobody listens. */
  #several = false
  /** When nobody listened where Redis should be: then nobody was granted anything. */
  #refusedMs = Number.NEGATIVE_INFINITY
  #closed = false
  /** Aborted when it closes. */
  readonly #opening = new AbortController()
  #operations = 0
  #failures = 0
  /** Why there is no link. */
  #failure: Error | undefined
  #roundTripMs = 0

  constructor(options: RedisDirectoryOptions) {
    this.#options = options
    this.replica = options.replica
    this.#logger = options.logger
    this.#witnesses = options.witnesses ?? new NoWitnesses(options.replica)
    this.#now = options.now ?? (() => performance.now())
    this.#known = new KnownRuntimes(this.#now)
    this.#witnesses.listen({
      heard: (standing, teller) => this.#heard(standing, teller),
      reached: () => this.#listener?.regained(),
      standings: () => this.#known.all(),
      changed: () => this.#judge(),
    })
  }

  /**
   * Connects for the first time; later it tries again by itself for ever. Resolves whether or not it succeeded, but rejects
   * where the user of Redis may not do what is needed.
   */
  async open(): Promise<void> {
    await this.#connect()
    if (!(this.#failure instanceof NoRight)) return
    await this.close()
    throw this.#failure
  }

  listen(listener: DirectoryListener): void {
    this.#listener = listener
  }

  // What is known.

  get state(): DirectoryState {
    const now = this.#now()
    if (now < this.#contactUntilMs) return 'connected'
    return this.#presumes(now) ? 'presumed' : 'lost'
  }

  #presumes(now: number): boolean {
    return now < this.#presumedUntilMs()
  }

  /** Until when it is certain that no other replica was granted anything that we did not hear of. */
  #presumedUntilMs(): number {
    const vouchedMs = this.#contactMs > Number.NEGATIVE_INFINITY ? this.#witnesses.vouchedUntilMs() : this.#contactMs
    return Math.max(this.#refusedMs + this.#options.leaseMs, vouchedMs)
  }

  /** Young: it was made, or lost its memory, less than a lease ago; who is live may be about to be written back. */
  get young(): boolean {
    return this.#now() - this.#bornMs < this.#options.leaseMs
  }

  find(runtime: string): RuntimeState | 'unknown' | undefined {
    const { state } = this
    if (state !== 'lost') return this.#known.find(runtime, state === 'presumed')
    this.#missed = true
    return 'unknown'
  }

  refresh(runtime: string): Promise<RuntimeState | 'unknown' | undefined> {
    if (this.#link === undefined) return this.#later().then(() => this.find(runtime))
    let asked = this.#refreshing.get(runtime)
    if (asked === undefined) {
      asked = this.#look(runtime).finally(() => this.#refreshing.delete(runtime))
      this.#refreshing.set(runtime, asked)
    }
    return asked
  }

  async #look(runtime: string): Promise<RuntimeState | 'unknown' | undefined> {
    this.#known.expect(runtime)
    try {
      const standing = await this.#change('look', runtime, '', 0)
      if (standing === undefined && !this.young) this.#known.missing(runtime)
    } catch {
      // The link broke: what is known is what there is.
    }
    if (this.find(runtime) === 'unknown') await this.#later()
    return this.find(runtime)
  }

  /** Whoever asked will ask again: not without a pause, and all of them after the same one. */
  #later(): Promise<void> {
    this.#pausing ??= pause(ASK_AGAIN_MS).finally(() => {
      this.#pausing = undefined
    })
    return this.#pausing
  }

  // Changes.

  async ready({ runtime, instance, lastEpoch }: Registration): Promise<RuntimeState> {
    this.#leaving.delete(keyOf(runtime, instance))
    const held = this.#known.last(runtime)?.instances.get(instance)?.epoch ?? 0
    const presented = Math.max(presentedEpoch(lastEpoch), held)
    try {
      return (await this.#change('enter', runtime, instance, presented))!
    } catch (error) {
      if (this.#closed) throw error
      if (error instanceof QueueFull) return this.#later().then(() => this.ready({ runtime, instance, lastEpoch }))
      return this.#presume(present(this.#known.last(runtime), runtime, instance, this.replica, presented))
    }
  }

  gone(runtime: string, instance: string): void {
    const guard = logGuard(this.#logger, 'an instance that left could not be told of')
    const untold = guard(() => {
      if (this.#closed || this.#leaving.size >= MAX_LEAVING) return
      this.#leaving.set(keyOf(runtime, instance), { runtime, instance })
      const known = this.#known.last(runtime)
      if (known !== undefined) this.#presume(absent(known, instance, this.replica))
    })
    this.#change('leave', runtime, instance, 0).catch(untold)
  }

  /** Without the directory: no new epoch, but what is so is told. */
  #presume(standing: RuntimeState): RuntimeState {
    this.#learn(standing)
    this.#witnesses.tell(standing, true)
    return standing
  }

  async #change(operation: string, runtime: string, instance: string, presented: number) {
    const link = this.#link
    if (link === undefined) throw new Error('the directory is not reachable')
    const seen = this.#known.last(runtime)
    const { leaseMs } = this.#options
    this.#operations++
    const answer = await link.run(
      CHANGE,
      [this.#key(`runtime:${encodeURIComponent(runtime)}`), this.#key('replicas')],
      [
        operation,
        runtime,
        instance,
        this.replica,
        String(presented),
        String(seen?.epoch ?? 0),
        seen?.active ?? '',
        String(leaseMs),
        String(KEEP_LIVE_MS),
        String(KEEP_EMPTY_MS),
        String(MAX_INSTANCES),
        this.#channel,
      ],
    )
    this.#roundTripMs = link.roundTripMs
    if (link !== this.#link) throw new Error('the directory was lost meanwhile')
    const standing = answer === null ? undefined : parseRuntimeState(answer, this.#now())
    if (standing === undefined) return undefined
    if (standing.epoch > (seen?.epoch ?? 0)) this.#witnesses.tell(standing, true)
    // Of what nothing was heard meanwhile the directory itself knows best.
    const certain = seen === this.#known.last(runtime)
    if (certain) this.#doubted.delete(runtime)
    this.#learn(standing, certain)
    return this.#known.last(runtime)
  }

  get #channel(): string {
    return `${this.#options.prefix}:changes`
  }

  /** In braces what a cluster chooses the node by: a script sees all of its keys on one. */
  #key(name: string): string {
    return `{${this.#options.prefix}}:${name}`
  }

  #learn(standing: RuntimeState, certain = false): void {
    if (this.#known.learn(standing, certain)) {
      this.#witnesses.tell(standing, false)
      this.#listener?.changed(standing)
    } else if (this.#known.outdated(standing)) {
      // It forgot an epoch that we know of; asking reminds it.
      detached(this.#logger, 'the directory could not be asked', this.refresh(standing.runtime))
    }
  }

  #heard(standing: RuntimeState, teller: string): void {
    const { runtime } = standing
    const known = this.#known.last(runtime)
    if (standing.epoch > MAX_TOLD_EPOCH) return
    if (this.#link === undefined) {
      const merged = merge(known, standing, teller)
      if (!isSame(known, merged)) this.#learn(merged)
    } else if (standing.epoch > (known?.epoch ?? 0) && this.#known.wants(runtime)) this.#learn(standing)
  }

  // The connection.

  async #connect(): Promise<void> {
    if (this.#closed) return
    const { leaseMs } = this.#options
    const startedMs = this.#now()
    try {
      const address = await this.#options.redis()
      const deadlineMs = Math.min(2000, Math.max(250, leaseMs / 4))
      let link: RedisLink | undefined
      const listener = {
        message: (text: string) => this.#message(text),
        closed: (error: Error) => {
          if (link !== undefined) this.#lost(link, error)
        },
      }
      const place = { channel: this.#channel, key: this.#key('replicas') }
      link = await RedisLink.open(address, place, deadlineMs, listener, this.#opening.signal)
      await link.checkRights(this.#key('replicas'), this.#options.prefix)
      if (this.#closed) {
        link.close()
        return
      }
      this.#failure = undefined
      this.#link = link
      this.#several = link.several
      this.#known.renew(this.#validUntilMs())
      await this.#tick(link)
    } catch (error) {
      this.#failures++
      this.#failure = error as Error
      if (isRefused(error) && !this.#several) this.#refusedMs = startedMs
      this.#logger.debug({ err: error }, 'the directory is not reachable')
      this.#again()
    }
    this.#judge()
  }

  /** Until when what was known before this connection holds. */
  #validUntilMs(): number {
    const untilMs = Math.max(this.#contactUntilMs, this.#presumedUntilMs())
    return Math.min(untilMs, this.#now() + this.#options.leaseMs)
  }

  #lost(link: RedisLink, error: Error): void {
    if (this.#link !== link || this.#closed) return
    this.#failures++
    this.#failure = error
    this.#link = undefined
    this.#logger.warn({ err: error }, 'the directory was lost')
    this.#again()
    this.#judge()
  }

  #again(): void {
    this.#in(RETRY_MS * (0.1 + 0.4 * Math.random()), () => this.#connect())
  }

  /** One thing is due at a time; each sees to it by itself that another one follows. */
  #in(ms: number, step: () => Promise<void>): void {
    clearTimeout(this.#timer)
    const what = 'what is due at the directory could not be done'
    const guard = logGuard(this.#logger, what)
    const due = guard(() => detached(this.#logger, what, step()))
    this.#timer = setTimeout(due, ms).unref()
  }

  /**
   * Renews the lease, and does what is due then; again after a quarter of it, as long as there is the link. Whatever goes
   * wrong, an answer that nobody understands among it, ends the link, and a new one is tried: there is always a timer.
   */
  async #tick(link: RedisLink, round = 0): Promise<void> {
    try {
      const { lapsed } = await this.#renew(link)
      if (link !== this.#link || this.#closed) return
      this.#in(this.#options.leaseMs / 4, () => this.#tick(link, round + 1))
      if (lapsed && round > 0) this.#known.renew(this.#validUntilMs())
      this.#tellLeft()
      await this.#lookInto(link)
      await (lapsed || round === 0 ? this.#writeBack(link) : this.#confirm(link))
    } catch (error) {
      this.#lost(link, error as Error)
      link.close()
    }
  }

  async #renew(link: RedisLink): Promise<Renewal> {
    const { leaseMs, address } = this.#options
    clearTimeout(this.#timer)
    const sentMs = this.#now()
    this.#operations++
    const answer = await link.run(
      RENEW,
      [this.#key('replicas')],
      [this.replica, address, String(leaseMs), String(KEEP_DEAD_MS)],
    )
    const renewal = parseRenewal(answer ?? '')
    if (link === this.#link) this.#renewed(renewal, sentMs, link.roundTripMs)
    return renewal
  }

  #renewed({ ageMs, replicas }: Renewal, sentMs: number, roundTripMs: number): void {
    const { leaseMs } = this.#options
    const isYoung = ageMs < leaseMs
    if (!isYoung) {
      this.#contactMs = sentMs
      this.#contactUntilMs = sentMs + leaseMs
    }
    this.#roundTripMs = roundTripMs
    this.#bornMs = this.#now() - ageMs
    this.#replicas = replicas
    this.#dead = replicas.filter(({ leftMs }) => leftMs < 0).map(({ name }) => name)
    this.#witnesses.confirmed(isYoung ? undefined : sentMs, replicas)
    if (!isYoung) this.#options.record?.('renewed', '', '', 0)
    this.#judge()
  }

  /** Whoever may publish can say anything: what is told is acted on, and where it is odd the directory is asked, soon. */
  #message(text: string): void {
    try {
      if (text.length > MAX_MESSAGE_CHARS) throw new TypeError(`it is ${text.length} characters long`)
      const standing = parseRuntimeState(text, this.#now())
      const { runtime, epoch } = standing
      if (!this.#known.wants(runtime)) return
      const isOdd = epoch > MAX_TOLD_EPOCH || this.#known.older(standing)
      if (!isOdd) this.#learn(standing)
      if (isOdd || !this.#isServed(standing)) this.#doubted.add(runtime)
    } catch (error) {
      this.#logger.warn({ err: error }, "a message on the directory's channel cannot be read")
    }
  }

  /** Whether the active instance is at a replica that is alive. */
  #isServed({ active, instances }: RuntimeState): boolean {
    const replicas = instances.get(active)?.replicas ?? []
    return replicas.some(replica => this.#replicas.some(({ name, leftMs }) => name === replica && leftMs >= 0))
  }

  // What it may have forgotten.

  /** Tells a directory that was lost, or that lost its memory, what is so. */
  async #writeBack(link: RedisLink): Promise<void> {
    this.#confirming = []
    await this.#confirmAll(link, [...(this.#listener?.live() ?? [])])
  }

  async #lookInto(link: RedisLink): Promise<void> {
    const doubted = [...this.#doubted]
    this.#doubted.clear()
    for (let at = 0; at < doubted.length && link === this.#link; at += BATCH) {
      await Promise.all(doubted.slice(at, at + BATCH).map(runtime => this.refresh(runtime)))
    }
  }

  #tellLeft(): void {
    const left = [...this.#leaving.values()]
    this.#leaving.clear()
    for (const { runtime, instance } of left) this.gone(runtime, instance)
  }

  async #confirmAll(link: RedisLink, claims: readonly Registration[]): Promise<void> {
    for (let at = 0; at < claims.length && link === this.#link; at += BATCH) {
      await Promise.all(claims.slice(at, at + BATCH).map(claim => this.ready(claim).catch(() => {})))
    }
  }

  /** A part of all sessions, so that each is confirmed once an hour; and at once those that wait for an epoch. */
  async #confirm(link: RedisLink): Promise<void> {
    const live = [...(this.#listener?.live() ?? [])]
    const waiting = live.filter(claim => this.#isWaiting(claim))
    if (this.#confirming.length === 0) this.#confirming = live
    const share = Math.ceil((live.length * this.#options.leaseMs) / 4 / CONFIRM_EVERY_MS)
    // Those that have left since the round began would be entered again.
    const isLive = new Set(live.map(({ runtime, instance }) => keyOf(runtime, instance)))
    const next = this.#confirming
      .splice(0, share)
      .filter(({ runtime, instance }) => isLive.has(keyOf(runtime, instance)))
    await this.#confirmAll(link, [...waiting, ...next])
  }

  /** It has none yet, or the active instance of its runtime is gone. */
  #isWaiting({ runtime, instance }: Registration): boolean {
    const standing = this.#known.last(runtime)
    if ((standing?.instances.get(instance)?.epoch ?? 0) === 0) return true
    const replicas = standing?.instances.get(standing.active)?.replicas ?? []
    return replicas.every(replica => this.#dead.includes(replica))
  }

  // What is so.

  /** Says and logs what has become of the directory. */
  #judge(): void {
    try {
      this.#judgeState()
    } catch (error) {
      tellDefect(this.#logger, 'what has become of the directory could not be told', error)
    }
  }

  #judgeState(): void {
    const { state } = this
    this.#witnesses.watch(state !== 'connected' || this.#link === undefined || this.young)
    const regained = this.#missed && state !== 'lost'
    if (regained) this.#missed = false
    this.#say(state)
    if (regained) this.#listener?.regained()
  }

  #say(state: DirectoryState): void {
    const said = state === 'lost' && this.#link !== undefined && this.young ? 'young' : state
    if (said === this.#said) return
    this.#said = said
    const level = said === 'lost' ? 'error' : said === 'presumed' ? 'warn' : 'info'
    const err = level === 'info' ? undefined : this.#failure
    this.#logger[level]({ state, replicas: this.#replicas.length, err }, WORDS[said])
  }

  stats(): DirectoryStats {
    return {
      kind: 'redis',
      state: this.state,
      known: this.#known.size,
      replicas: this.#replicas.length - this.#dead.length,
      operations: this.#operations,
      failures: this.#failures,
      roundTripMs: this.#roundTripMs,
    }
  }

  async close(): Promise<void> {
    if (this.#closed) return
    this.#opening.abort()
    const link = this.#link
    try {
      await link?.run(RENEW, [this.#key('replicas')], [this.replica, '', '0', String(KEEP_DEAD_MS)])
    } catch {
      // The lease ends by itself.
    }
    this.#closed = true
    clearTimeout(this.#timer)
    link?.close()
  }
}

const WORDS: Record<DirectoryState | 'young', string> = {
  connected: 'the directory is there',
  young: 'the directory is new, or was emptied; nothing is routed until it is as old as a lease',
  presumed: 'the directory is not reachable; what was last known holds, and no new instance becomes active',
  lost: 'neither the directory nor all other replicas are reachable; nothing is routed until one of them is',
}

function pause(ms: number): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, ms).unref())
}

function keyOf(runtime: string, instance: string): string {
  return `${runtime} ${instance}`
}

/**
 * Whether nobody listens there, for whomever. All else may be so from here alone: no way to the machine, a name that does not
 * resolve, a reset, an answer that does not come, a file of ours that cannot be read. Of several addresses each must say so.
 */
export function isRefused(error: unknown): boolean {
  const { code, errors } = error as { code?: string; errors?: unknown[] }
  return errors?.every(isRefused) ?? code === 'ECONNREFUSED'
}
