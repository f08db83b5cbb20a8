/**
 * The other replicas: where to send an exchange whose session is there, and, while the directory cannot be reached, who
 * vouches that nothing has changed.
 */

import { logGuard } from '../../protocol/base/guard.ts'
import { formatAddress, type HostPort, readDialled } from '../../protocol/base/host-port.ts'
import type { Logger } from '../../protocol/base/log.ts'
import type { ListenAddress } from '../../protocol/http/listen-on.ts'
import type { Span } from '../../protocol/trace/span.ts'
import { type BufferBudget, createBufferBudget } from '../../protocol/wire/yamux/budget.ts'
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
  /** A session of this replica on this epoch. */
  readonly pick: SpliceOwner['pick']
}

/** Connections to other replicas, and counts of what crosses them. */
export interface PeerStats {
  /** Other replicas that this one is connected to. */
  readonly connected: number
  readonly known: number
  /** Exchanges handed to other replicas, and taken from them, since the start. */
  readonly sent: number
  readonly taken: number
  /** Streams to and from other replicas, and their bytes that wait here. */
  readonly streams: number
  readonly bufferedBytes: number
}

/**
 * Replicas are trusted: the bounds are those of memory, not of manners. Exchanges are bounded at the edge, by runtime; all
 * runtimes share a link, and none may fill it for the others.
 */
const LIMITS = {
  maxStreams: 1_000_000,
  backlog: 1_000_000,
  ...RESETS_OF_STRANGERS,
  pingIntervalMs: 1000,
  pingTimeoutMs: 4000,
  controlBytes: MAX_PEER_MESSAGE_BYTES,
} as const
const PROBE_MS = 500
const MAX_PEERS = 1000
/** Replicas that are called though their leases ended. */
const MAX_SOUGHT = 16
/** Replicas that one line of the log names. */
const MAX_NAMED = 8
/** How long a replica that is missing is looked for. */
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
  /** What clients tell of recorded requests; set by the server. */
  returned: ReturnedSpans | undefined
  #tls: PeerTls
  #address = ''
  #witness: WitnessListener | undefined
  #contactMs = Number.NEGATIVE_INFINITY
  /** A replica that is alive cannot be asked: it says no address, or none that can be dialled. */
  #unreachable = ''
  #watching = false
  #closed = false
  #sent = 0

  constructor(options: PeersOptions) {
    this.#options = options
    this.#logger = options.logger
    this.#now = options.now ?? (() => performance.now())
    this.#tls = options.tls
    this.#budget = createBufferBudget(options.bufferBytes)
    this.#runtimeCeilings = new RuntimeCeilings(options.bufferBytesPerRuntime)
    this.#cooldowns = new Cooldowns(this.#now, options.logger, runtime => this.onAgain?.(runtime))
    this.#listener = new PeerListener({
      replica: options.replica,
      tls: options.tls,
      session: this.#session,
      logger: options.logger,
      pick: options.pick,
      states: agoMs => this.#states(agoMs),
      onReplica: (name, address) => this.#meet(name, address),
    })
    const guard = logGuard(options.logger, 'other replicas could not be probed')
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

  /** Returns where it listens; others are told `advertise`, if that is another address. */
  async bind(place: ListenAddress, advertise: string | undefined): Promise<HostPort> {
    const bound = await this.#listener.listen(place)
    this.#address = advertise ?? formatAddress(bound)
    return bound
  }

  /** `host:port` by which others reach this replica. */
  get address(): string {
    return this.#address
  }

  setTls(tls: PeerTls): void {
    this.#tls = tls
    this.#listener.setTls(tls)
  }

  // Exchanges.

  pick(state: RuntimeState, instance: string, not: unknown): Hop | undefined {
    const { runtime, version } = state
    const failed = not instanceof Hop ? not.link : undefined
    let best: PeerLink | undefined
    for (const replica of state.instances.get(instance)?.replicas ?? []) {
      const link = this.#links.get(replica)
      if (link === undefined || !link.usable || this.#cooldowns.has(replica, runtime, version)) continue
      // What failed may have been one of its sessions only.
      if (best === undefined || best === failed || (link !== failed && cost(link) < cost(best))) best = link
    }
    return best && new Hop(this, best, state, instance)
  }

  opened(): void {
    this.#sent++
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
      if (!this.#meet(name, address)) unreachable.push(name)
    }
    const sought = soughtAmong(replicas.filter(({ address }) => !addresses.has(address)))
    for (const { name, address } of sought) this.#seek(name, address)
    const names = new Set(sought.map(({ name }) => name))
    this.#warn(unreachable.sort().slice(0, MAX_NAMED).join(' '))
    for (const [name, link] of this.#links) {
      if (alive.has(name) || link.up || (link.isSought && names.has(name))) link.missedMs = undefined
      else this.#miss(name, link, sentMs !== undefined)
    }
  }

  /**
   * Its lease ended. It may be dead; or it is cut off from the directory alone, acts on what it knew, and has to hear from us
   * what we are granted.
   */
  #seek(name: string, address: string): void {
    if (this.#links.has(name) || !this.#meet(name, address)) return
    const link = this.#links.get(name)
    if (link !== undefined) link.isSought = true
  }

  /**
   * The directory does not know it (any more). It may come back, and be granted something, for a while; but not where its
   * lease has ended (`lapsed`: a directory that has forgotten nothing says so) and nobody listens at its address.
   */
  #miss(name: string, link: PeerLink, lapsed: boolean): void {
    const now = this.#now()
    link.missedMs ??= now
    const isGone = link.departed || (lapsed && link.refused)
    if (!isGone && now - link.missedMs < FORGET_MS) return
    this.#links.delete(name)
    link.close()
  }

  /** False if it says no address where it can be dialled. */
  #meet(name: string, text: string): boolean {
    // Whoever had our address before us leads others here, and us.
    if (name === this.#options.replica) return true
    const address = readDialled(text)
    if (address === undefined) return false
    const link = this.#links.get(name)
    const isThere = link?.address === formatAddress(address) && !link.isSought
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
      onStanding: text => this.#heard(text, name),
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

  #heard(text: string, teller: string): void {
    try {
      this.#witness?.heard(parseRuntimeState(text, this.#now()), teller)
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
      if (link.departed || link.isSought) continue
      untilMs = Math.min(untilMs, link.vouchedMs + this.#options.leaseMs)
    }
    return untilMs
  }

  tell(state: RuntimeState, own: boolean): void {
    this.#listener.tell(() => formatRuntimeState(state, this.#now()), own)
  }

  *#states(agoMs: number): IterableIterator<string> {
    const sinceMs = agoMs < 0 ? Number.NEGATIVE_INFINITY : this.#now() - agoMs
    for (const state of this.#witness?.states() ?? []) {
      if (state.changedMs >= sinceMs) yield formatRuntimeState(state, this.#now())
    }
  }

  // The end.

  stats(): PeerStats {
    let [connected, known] = [0, 0]
    let { streams } = this.#listener
    for (const link of this.#links.values()) {
      if (link.up) connected++
      if (!link.isSought) known++
      streams += link.streams
    }
    const { taken } = this.#listener
    const { usedBytes } = this.#budget
    return { connected, known, sent: this.#sent, taken, streams, bufferedBytes: usedBytes }
  }

  /** Finishes streams that would go on for ever. */
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

/** The dead replicas whose lease ended last. At the address of a live replica, or at ours, no other one is looked for. */
function soughtAmong(replicas: readonly ReplicaLease[]): readonly ReplicaLease[] {
  const dead = replicas.filter(({ leftMs }) => leftMs < 0)
  return dead.sort((a, b) => b.leftMs - a.leftMs).slice(0, MAX_SOUGHT)
}

function cost(link: PeerLink): number {
  return Math.max(link.rttMs, 1) * (link.exchanges + 1)
}
