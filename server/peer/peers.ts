/**
 * The other replicas: where to send an exchange whose session is there, and, while the directory cannot be reached, who
 * vouches that nothing has changed.
 */
import type { Logger } from '../../protocol/log.ts'
import { BufferBudget } from '../../protocol/yamux/budget.ts'
import type { Standing } from '../directory/directory.ts'
import { formatStanding, parseStanding, type ReplicaLease } from '../directory/standing.ts'
import type { Witnesses, WitnessListener } from '../directory/witnesses.ts'
import type { Hops } from '../registry.ts'
import { Hop } from './hop.ts'
import { joinAddress, PeerLink } from './link.ts'
import { PeerListener } from './listener.ts'
import type { SplicedSession } from './splice.ts'
import type { PeerTls } from './tls.ts'

export interface PeersOptions {
  /** Name of this replica, the same as in the directory. */
  readonly replica: string
  readonly tls: PeerTls
  readonly leaseMs: number
  readonly bufferBytes: number
  readonly maxWindowBytes: number
  readonly logger: Logger
  readonly now?: (() => number) | undefined
  /** A session of this replica on this epoch. */
  readonly pick: (runtime: string, epoch: number) => SplicedSession | undefined
}

export interface PeerStats {
  /** Other replicas that this one is connected to. */
  readonly connected: number
  readonly known: number
  /** Exchanges that were handed to others, and taken from them, since the start. */
  readonly sent: number
  readonly taken: number
}

/** Replicas are trusted: the bounds are those of memory, not of manners. */
const LIMITS = {
  maxStreams: 20_000,
  backlog: 20_000,
  resetBurst: 1_000_000,
  resetsPerSecond: 100_000,
  pingIntervalMs: 1000,
  pingTimeoutMs: 4000,
} as const
const PROBE_MS = 500
const MAX_PEERS = 1000

export class Peers implements Witnesses, Hops<Hop> {
  readonly #options: PeersOptions
  readonly #logger: Logger
  readonly #now: () => number
  readonly #links = new Map<string, PeerLink>()
  readonly #listener: PeerListener
  readonly #budget: BufferBudget
  readonly #timer: NodeJS.Timeout
  #tls: PeerTls
  #witness: WitnessListener | undefined
  #contactMs = Number.NEGATIVE_INFINITY
  #watching = false
  #askedMs = 0
  #closed = false
  #sent = 0

  constructor(options: PeersOptions) {
    this.#options = options
    this.#logger = options.logger
    this.#now = options.now ?? (() => performance.now())
    this.#tls = options.tls
    this.#budget = new BufferBudget(options.bufferBytes)
    this.#listener = new PeerListener({
      replica: options.replica,
      tls: options.tls,
      session: this.#session,
      logger: options.logger,
      pick: options.pick,
      standings: () => this.#standings(),
    })
    this.#timer = setInterval(() => this.#probe(), PROBE_MS).unref()
  }

  get #session() {
    return {
      ...LIMITS,
      sessionBufferBytes: this.#options.bufferBytes,
      maxWindowBytes: this.#options.maxWindowBytes,
      processBudget: this.#budget,
    }
  }

  /** Returns the address that it listens on, as other replicas may be told of it. */
  async bind(host: string, port: number): Promise<string> {
    const bound = await this.#listener.listen(host, port)
    return joinAddress(bound.host, bound.port)
  }

  setTls(tls: PeerTls): void {
    this.#tls = tls
    this.#listener.setTls(tls)
  }

  // Exchanges.

  pick(standing: Standing, instance: string, not: unknown): Hop | undefined {
    const { epoch, version } = standing
    const failed = not instanceof Hop && not.version === version ? not.link : undefined
    let best: PeerLink | undefined
    for (const replica of standing.instances.get(instance)?.replicas ?? []) {
      const link = this.#links.get(replica)
      if (link === undefined || link === failed || !link.usable) continue
      if (best === undefined || cost(link) < cost(best)) best = link
    }
    if (best === undefined) return undefined
    this.#sent++
    return new Hop(best, instance, epoch, version)
  }

  // Witnesses.

  listen(listener: WitnessListener): void {
    this.#witness = listener
  }

  confirmed(sentMs: number, replicas: readonly ReplicaLease[]): void {
    this.#contactMs = sentMs
    const alive = new Set<string>()
    for (const { name, leftMs, address } of replicas) {
      if (name === this.#options.replica || leftMs < 0 || address === '' || alive.size >= MAX_PEERS) continue
      alive.add(name)
      const link = this.#links.get(name)
      if (link?.address === address) continue
      link?.close()
      this.#links.set(name, this.#dial(name, address))
    }
    for (const [name, link] of this.#links) {
      // A directory that lost its memory is told again of those that are there.
      if (alive.has(name) || link.up) continue
      this.#links.delete(name)
      link.close()
    }
  }

  #dial(name: string, address: string): PeerLink {
    return new PeerLink(name, address, {
      replica: this.#options.replica,
      tls: () => this.#tls,
      session: this.#session,
      logger: this.#logger,
      now: this.#now,
      onStanding: text => this.#heard(text, name),
      onUp: () => this.#witness?.reached(),
      onChange: () => {
        if (this.#watching) this.#ask()
        this.#witness?.changed()
      },
    })
  }

  #heard(text: string, teller: string): void {
    try {
      this.#witness?.heard(parseStanding(text, this.#now()), teller)
    } catch (error) {
      this.#logger.warn({ err: error }, 'what another replica told cannot be read')
    }
  }

  watch(on: boolean): void {
    if (on === this.#watching) return
    this.#watching = on
    if (on) this.#ask()
  }

  #probe(): void {
    for (const link of this.#links.values()) link.probe()
    if (this.#watching) {
      this.#ask()
      this.#witness?.changed()
    }
  }

  #ask(): void {
    const now = this.#now()
    if (now - this.#askedMs < PROBE_MS / 2) return
    this.#askedMs = now
    for (const link of this.#links.values()) link.ask(link.sinceMs > this.#contactMs && !link.whole)
  }

  vouchedUntilMs(): number {
    let untilMs = Number.POSITIVE_INFINITY
    for (const link of this.#links.values()) {
      if (link.gone) continue
      const knowsAll = link.up && (link.whole || link.sinceMs <= this.#contactMs)
      untilMs = Math.min(untilMs, knowsAll ? link.toldMs + this.#options.leaseMs : Number.NEGATIVE_INFINITY)
    }
    return untilMs
  }

  tell(standing: Standing, own: boolean): void {
    this.#listener.tell(() => formatStanding(standing, this.#now()), own)
  }

  *#standings(): IterableIterator<string> {
    const now = this.#now()
    for (const standing of this.#witness?.standings() ?? []) yield formatStanding(standing, now)
  }

  // The end.

  stats(): PeerStats {
    let connected = 0
    for (const link of this.#links.values()) if (link.up) connected++
    return { connected, known: this.#links.size, sent: this.#sent, taken: this.#listener.taken }
  }

  /** Streams that would go on for ever are finished. */
  leave(): void {
    for (const link of this.#links.values()) link.leave()
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    clearInterval(this.#timer)
    this.#listener.bye()
    this.#listener.close()
    for (const link of this.#links.values()) link.close()
  }
}

function cost(link: PeerLink): number {
  return Math.max(link.rttMs, 1) * (link.exchanges + 1)
}
