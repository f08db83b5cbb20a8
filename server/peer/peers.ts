/**
 * The connections to other replicas. They carry exchanges whose session is there. While the directory cannot be reached, the other
 * replicas vouch that nothing has changed.
 */

import { type BufferBudget, createBufferBudget } from '../../protocol/base/budget.ts'
import { dropsAny } from '../../protocol/base/certificates.ts'
import { elapsedMs } from '../../protocol/base/elapsed.ts'
import { logGuard } from '../../protocol/base/guard.ts'
import { formatAddress, type HostPort, readDialled } from '../../protocol/base/host-port.ts'
import type { Logger } from '../../protocol/base/log.ts'
import type { ListenAddress } from '../../protocol/http/listen-on.ts'
import type { Span } from '../../protocol/trace/span.ts'
import { RESETS_OF_STRANGERS } from '../../protocol/wire/yamux/limits.ts'
import { RuntimeCeilings } from '../../protocol/wire/yamux/runtime-ceilings.ts'
import type { ReturnedSpans } from '../control/returned-spans.ts'
import type { RuntimeState } from '../directory/directory.ts'
import { formatRuntimeState, parseRuntimeState, type ReplicaLease } from '../directory/runtime-state.ts'
import type { Witnesses, WitnessListener } from '../directory/witnesses.ts'
import type { HopFinder } from '../registry.ts'
import { Cooldowns } from './cooldowns.ts'
import { Hop, type HopOwner, hopId } from './hop.ts'
import { PeerLink } from './link.ts'
import { PeerListener } from './listener.ts'
import type { SpliceOwner } from './splice.ts'
import type { PeerTls } from './tls.ts'
import { MAX_PEER_MESSAGE_BYTES } from './transport.ts'

interface PeersOptions {
  /** Name of this replica, the same as in the directory. */
  readonly replica: string
  readonly tls: PeerTls
  readonly leaseMs: number
  readonly bufferBytes: number
  readonly bufferBytesPerRuntime: number
  readonly maxWindowBytes: number
  readonly logger: Logger
  readonly now?: (() => number) | undefined
  /** Picks a session of this replica on this epoch. */
  readonly pick: SpliceOwner['pick']
}

/** Connections to other replicas, and counts of what crosses them. */
export interface PeerStats {
  /** Other replicas that this one is connected to. */
  readonly connected: number
  readonly known: number
  /** Exchanges handed to other replicas, and taken over from them, since the start. */
  readonly sent: number
  readonly taken: number
  /** Streams to and from other replicas, and their bytes that are buffered here. */
  readonly streams: number
  readonly bufferedBytes: number
}

/**
 * Replicas are trusted, so these limits only protect memory. The edge bounds exchanges by runtime. All runtimes share a link, and none
 * may fill it up for the others.
 */
const LIMITS = {
  maxStreams: 1_000_000,
  backlog: 1_000_000,
  ...RESETS_OF_STRANGERS,
  pingIntervalMs: 1000,
  pingTimeoutMs: 4000,
  /** The other replica waits for its client's acknowledgement, and knows how slow the path there is. */
  openDeadlineMs: 60_000,
  controlBytes: MAX_PEER_MESSAGE_BYTES,
} as const
const PROBE_MS = 500
const MAX_PEERS = 1000
/** Most replicas that are dialled although their leases have ended. */
const MAX_DEAD = 16
/** Most replicas that one log line names. */
const MAX_NAMED = 8
/** How long a missing replica is dialled. */
const FORGET_MS = 60_000

export class Peers implements Witnesses, HopFinder<Hop>, HopOwner {
  readonly #options: PeersOptions
  readonly #logger: Logger
  readonly #now: () => number
  readonly #links = new Map<string, PeerLink>()
  readonly #listener: PeerListener
  readonly #budget: BufferBudget
  readonly #runtimeCeilings: RuntimeCeilings
  readonly #cooldowns: Cooldowns
  readonly #timer: NodeJS.Timeout
  onAgain: ((runtime: string) => void) | undefined
  onRoom: ((runtime: string) => void) | undefined
  /** Receives spans that clients return. Set by the server. */
  returned: ReturnedSpans | undefined
  #tls: PeerTls
  #address = ''
  #witness: WitnessListener | undefined
  #contactMs = Number.NEGATIVE_INFINITY
  /** Live replicas that cannot be asked, because they announce no address that can be dialled. */
  #unreachable = ''
  #watching = false
  #closed = false
  #sent = 0

  constructor(options: PeersOptions) {
    this.#options = options
    this.#logger = options.logger
    this.#now = options.now ?? elapsedMs
    this.#tls = options.tls
    this.#budget = createBufferBudget(options.bufferBytes)
    this.#runtimeCeilings = new RuntimeCeilings(options.bufferBytesPerRuntime)
    this.#cooldowns = new Cooldowns(
      this.#now,
      options.logger,
      runtime => this.onAgain?.(runtime),
      runtime => this.onRoom?.(runtime),
    )
    this.#listener = new PeerListener({
      replica: options.replica,
      tls: options.tls,
      session: this.#session,
      logger: options.logger,
      pick: options.pick,
      states: agoMs => this.#states(agoMs),
      stateOf: runtime => this.#stateOf(runtime),
      onReplica: (name, address) => this.#connect(name, address),
    })
    const guard = logGuard(options.logger, 'probing other replicas failed')
    const probe = guard(() => this.#probe())
    this.#timer = setInterval(probe, Math.min(PROBE_MS, options.leaseMs / 4)).unref()
  }

  get #session() {
    return {
      ...LIMITS,
      sessionBufferBytes: this.#options.bufferBytes,
      maxWindowBytes: this.#options.maxWindowBytes,
      processBudget: this.#budget,
      runtimeCeilings: this.#runtimeCeilings,
    }
  }

  /** Listens, and returns the address. Others are told `advertise` instead, if given. */
  async bind(place: ListenAddress, advertise: string | undefined): Promise<HostPort> {
    const bound = await this.#listener.listen(place)
    this.#address = advertise ?? formatAddress(bound)
    return bound
  }

  /** `host:port` at which others reach this replica. */
  get address(): string {
    return this.#address
  }

  setTls(tls: PeerTls): void {
    this.#listener.setTls(tls)
    const { ca } = this.#tls
    this.#tls = tls
    if (!dropsAny(ca, tls.ca)) return
    this.#listener.renew()
    for (const link of this.#links.values()) link.renew()
  }

  // Exchanges.

  pick(state: RuntimeState, instance: string, not: unknown): Hop | undefined {
    const { runtime, version } = state
    const failed = not instanceof Hop ? not.link : undefined
    let best: PeerLink | undefined
    for (const replica of state.instances.get(instance)?.replicas ?? []) {
      const link = this.#links.get(replica)
      if (link === undefined || !link.usable || this.#cooldowns.has(replica, runtime, version)) continue
      // The one that failed is still an option, since maybe only one of its sessions has failed.
      if (best === undefined || best === failed || (link !== failed && cost(link) < cost(best))) best = link
    }
    return best && new Hop(this, best, state, instance)
  }

  opened({ name }: PeerLink, { runtime }: RuntimeState): void {
    this.#sent++
    this.#cooldowns.opened(name, runtime)
  }

  released({ name }: PeerLink, { runtime }: RuntimeState): void {
    this.#cooldowns.released(name, runtime)
  }

  gave(hop: Hop, span: Span): void {
    this.returned?.give(hop.id, span)
  }

  refused({ name }: PeerLink, { runtime, version }: RuntimeState): void {
    this.#cooldowns.begin(name, runtime, version)
  }

  // Witnesses.

  listen(listener: WitnessListener): void {
    this.#witness = listener
  }

  confirmed(sentMs: number | undefined, replicas: readonly ReplicaLease[]): void {
    this.#contactMs = sentMs ?? this.#contactMs
    const alive = new Set<string>()
    const unreachable: string[] = []
    const addresses = new Set([this.#address])
    for (const { name, leftMs, address } of replicas) {
      if (name === this.#options.replica || leftMs < 0) continue
      alive.add(name)
      addresses.add(address)
      if (!this.#connect(name, address)) unreachable.push(name)
    }
    const dead = lastToDie(replicas.filter(({ address }) => !addresses.has(address)))
    for (const { name, address } of dead) this.#dialDead(name, address)
    const names = new Set(dead.map(({ name }) => name))
    this.#warn(unreachable.sort().slice(0, MAX_NAMED).join(' '))
    for (const [name, link] of this.#links) {
      if (alive.has(name) || link.up || (link.isPresumedDead && names.has(name))) link.missedMs = undefined
      else this.#dropMissing(name, link, sentMs !== undefined)
    }
  }

  /**
   * Dials a replica whose lease has ended. It may be dead. Or it may only be cut off from the directory and act on what it knew, in
   * which case we must tell it what we are granted.
   */
  #dialDead(name: string, address: string): void {
    if (this.#links.has(name) || !this.#connect(name, address)) return
    const link = this.#links.get(name)
    if (link !== undefined) link.isPresumedDead = true
  }

  /**
   * The directory does not list the replica (any more). For a while it may come back and be granted something, unless its lease has ended
   * and nobody listens at its address. `lapsed`: the directory has forgotten nothing, so the lease has really ended.
   */
  #dropMissing(name: string, link: PeerLink, lapsed: boolean): void {
    const now = this.#now()
    link.missedMs ??= now
    const isGone = link.departed || (lapsed && link.refused)
    if (!isGone && now - link.missedMs < FORGET_MS) return
    this.#links.delete(name)
    link.close()
  }

  /** Connects to a replica. False if it announces no address that can be dialled. */
  #connect(name: string, text: string): boolean {
    // Ignores our own name: an old entry with our address may lead us to ourselves.
    if (name === this.#options.replica) return true
    const address = readDialled(text)
    if (address === undefined) return false
    const link = this.#links.get(name)
    const isThere = link?.address === formatAddress(address) && !link.isPresumedDead
    if (this.#closed || isThere) return true
    if (link === undefined && this.#links.size >= MAX_PEERS) return false
    link?.close()
    this.#links.set(name, this.#dial(name, address))
    return true
  }

  #warn(unreachable: string): void {
    if (unreachable === this.#unreachable) return
    this.#unreachable = unreachable
    if (unreachable === '') return
    this.#logger.warn({ replicas: unreachable }, 'replicas announce no address at which they can be reached')
  }

  #dial(name: string, address: HostPort): PeerLink {
    return new PeerLink(name, address, {
      replica: this.#options.replica,
      address: () => this.#address,
      tls: () => this.#tls,
      session: this.#session,
      logger: this.#logger,
      now: this.#now,
      onStanding: (text, isAnswer) => this.#receive(text, name, isAnswer),
      onSpans: report => this.returned?.take(hopId(name), report),
      onUp: () => {
        if (this.#watching) this.#ask()
        this.#witness?.reached()
      },
      onChange: () => {
        this.#witness?.changed()
      },
    })
  }

  #receive(text: string, teller: string, isAnswer: boolean): void {
    try {
      this.#witness?.heard(parseRuntimeState(text, this.#now()), teller, isAnswer)
    } catch (error) {
      this.#logger.warn({ err: error }, 'a message from another replica cannot be read')
    }
  }

  watch(on: boolean): void {
    if (on === this.#watching) return
    this.#watching = on
    if (on) this.#ask()
    else for (const link of this.#links.values()) link.enough()
  }

  #probe(): void {
    for (const link of this.#links.values()) link.probe()
    if (this.#watching) {
      this.#ask()
      this.#witness?.changed()
    }
  }

  #ask(): void {
    for (const link of this.#links.values()) link.ask(this.#contactMs)
  }

  vouchedUntilMs(): number {
    if (this.#unreachable !== '') return Number.NEGATIVE_INFINITY
    let untilMs = Number.POSITIVE_INFINITY
    for (const link of this.#links.values()) {
      if (link.departed || link.isPresumedDead) continue
      untilMs = Math.min(untilMs, link.vouchedMs + this.#options.leaseMs)
    }
    return untilMs
  }

  tell(state: RuntimeState, own: boolean): void {
    this.#listener.tell(() => formatRuntimeState(state, this.#now()), own)
  }

  get canAsk(): boolean {
    for (const { usable } of this.#links.values()) if (usable) return true
    return false
  }

  askAbout(runtime: string): Promise<unknown> {
    const links = [...this.#links.values()].filter(({ usable }) => usable)
    return Promise.all(links.map(link => link.askAbout(runtime)))
  }

  #stateOf(runtime: string): string | undefined {
    const state = this.#witness?.find(runtime)
    return typeof state === 'object' ? formatRuntimeState(state, this.#now()) : undefined
  }

  *#states(agoMs: number): IterableIterator<string> {
    const sinceMs = agoMs < 0 ? Number.NEGATIVE_INFINITY : this.#now() - agoMs
    for (const state of this.#witness?.states() ?? []) {
      if (state.changedMs >= sinceMs) yield formatRuntimeState(state, this.#now())
    }
  }

  /** Replicas that this one is connected to. */
  get connected(): string[] {
    return [...this.#links.values()].filter(({ up }) => up).map(({ name }) => name)
  }

  // The end.

  stats(): PeerStats {
    let [connected, known] = [0, 0]
    let { streams } = this.#listener
    for (const link of this.#links.values()) {
      if (link.up) connected++
      if (!link.isPresumedDead) known++
      streams += link.streams
    }
    const { taken } = this.#listener
    const { usedBytes } = this.#budget
    return { connected, known, sent: this.#sent, taken, streams, bufferedBytes: usedBytes }
  }

  /** Tells exchanges that would go on forever to end. */
  leave(): void {
    for (const link of this.#links.values()) link.leave()
  }

  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    clearInterval(this.#timer)
    this.#cooldowns.close()
    await this.#listener.close()
    for (const link of this.#links.values()) link.close()
  }
}

/** The dead replicas whose leases ended last. */
function lastToDie(replicas: readonly ReplicaLease[]): readonly ReplicaLease[] {
  const dead = replicas.filter(({ leftMs }) => leftMs < 0)
  return dead.sort((a, b) => b.leftMs - a.leftMs).slice(0, MAX_DEAD)
}

function cost(link: PeerLink): number {
  return Math.max(link.rttMs, 1) * (link.exchanges + 1)
}
