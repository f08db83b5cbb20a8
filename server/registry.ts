/**
 * Which sessions carry a runtime's traffic: runtimes -> instances -> sessions.
 *
 * One instance of a runtime is active. A newer one that is ready takes over; the older one keeps the streams it has, and
 * stays as a standby until the active one drains or is gone.
 */
import type { Logger } from '../protocol/log.ts'
import type { Directory, Grant } from './directory/directory.ts'

/** What the registry needs of a session. */
export interface Member {
  readonly id: string
  readonly runtime: string
  readonly instance: string
  /** Smoothed round trip; 0 before the first. */
  readonly rttMs: number
  /** Exchanges open on it. */
  exchanges: number
  /** Its instance was given an epoch, became active or became a standby. */
  granted(grant: Grant): void
}

class Instance<M extends Member> {
  readonly id: string
  epoch = 0
  active = false
  /** A grant was asked for or given: the routes are loaded and an echo has crossed. */
  claimed = false
  readonly all = new Set<M>()
  /** Ready and not draining: these get new streams while the instance is active. */
  readonly live: M[] = []

  constructor(id: string) {
    this.id = id
  }
}

class Runtime<M extends Member> {
  readonly name: string
  readonly instances = new Map<string, Instance<M>>()
  active: Instance<M> | undefined

  constructor(name: string) {
    this.name = name
  }
}

export interface RegistryOptions {
  readonly directory: Directory
  readonly logger: Logger
  /** From 0 to 1, for the choice between sessions. Default `Math.random`. */
  readonly random?: () => number
  /** A runtime has a live session that it had not a moment ago. */
  readonly onLive?: (runtime: string) => void
}

export class Registry<M extends Member> {
  readonly #runtimes = new Map<string, Runtime<M>>()
  readonly #directory: Directory
  readonly #logger: Logger
  readonly #random: () => number
  readonly #onLive: ((runtime: string) => void) | undefined
  #sessions = 0

  constructor(options: RegistryOptions) {
    this.#directory = options.directory
    this.#logger = options.logger
    this.#random = options.random ?? Math.random
    this.#onLive = options.onLive
  }

  get sessions(): number {
    return this.#sessions
  }

  get runtimes(): number {
    return this.#runtimes.size
  }

  *members(): IterableIterator<M> {
    for (const runtime of this.#runtimes.values()) {
      for (const instance of runtime.instances.values()) yield* instance.all
    }
  }

  /** Sessions of one runtime, over all of its instances. */
  countOf(runtime: string): number {
    let count = 0
    for (const instance of this.#runtimes.get(runtime)?.instances.values() ?? []) count += instance.all.size
    return count
  }

  /** Whether the member's instance is the active one. */
  isActive(member: M): boolean {
    return this.#runtimes.get(member.runtime)?.active?.id === member.instance
  }

  epochOf(member: M): number {
    return this.#runtimes.get(member.runtime)?.instances.get(member.instance)?.epoch ?? 0
  }

  /** A session said hello. It gets no streams yet. */
  add(member: M): void {
    let runtime = this.#runtimes.get(member.runtime)
    if (runtime === undefined) {
      runtime = new Runtime(member.runtime)
      this.#runtimes.set(member.runtime, runtime)
    }
    let instance = runtime.instances.get(member.instance)
    if (instance === undefined) {
      instance = new Instance(member.instance)
      runtime.instances.set(member.instance, instance)
    }
    instance.all.add(member)
    this.#sessions++
  }

  /** The session is ready; its instance is given its epoch, at the first of its sessions. */
  async ready(member: M, lastEpoch: number): Promise<void> {
    const instance = this.#instance(member)
    if (instance === undefined) return
    if (!instance.claimed) {
      const grant = await this.#directory.ready({ runtime: member.runtime, instance: member.instance, lastEpoch })
      this.#apply(member.runtime, instance, grant)
    }
    if (!instance.all.has(member) || instance.live.includes(member)) return
    instance.live.push(member)
    member.granted({ epoch: instance.epoch, active: instance.active })
    if (instance.active) this.#onLive?.(member.runtime)
    else if (this.#runtimes.get(member.runtime)?.active?.live.length === 0) this.#handOver(member.runtime)
  }

  /** The session gets no new streams; when it was the last of the active instance, a standby takes over. */
  drain(member: M): void {
    const instance = this.#instance(member)
    const index = instance?.live.indexOf(member) ?? -1
    if (index < 0) return
    instance!.live.splice(index, 1)
    if (instance!.live.length === 0 && instance!.active) this.#handOver(member.runtime)
  }

  /** The session has ended. */
  remove(member: M): void {
    const runtime = this.#runtimes.get(member.runtime)
    const instance = runtime?.instances.get(member.instance)
    if (runtime === undefined || instance === undefined || !instance.all.delete(member)) return
    this.#sessions--
    this.drain(member)
    if (instance.all.size > 0) return
    runtime.instances.delete(instance.id)
    this.#directory.left(runtime.name, instance.id)
    if (runtime.active === instance) {
      runtime.active = undefined
      this.#handOver(runtime.name)
    }
    if (runtime.instances.size === 0) this.#runtimes.delete(runtime.name)
  }

  /**
   * A live session of the active instance: of two picked at random the one whose round trip times (open exchanges + 1)
   * is less. `not`: a session that just failed. `instance`: only of this one.
   */
  pick(name: string, not?: M, instanceId?: string): M | undefined {
    const runtime = this.#runtimes.get(name)
    if (runtime === undefined) return undefined
    const instance = instanceId === undefined ? runtime.active : runtime.instances.get(instanceId)
    if (instance === undefined) return undefined
    const { live } = instance
    if (live.length === 1) return live[0] === not ? undefined : live[0]
    return live.length === 0 ? undefined : this.#better(live, not)
  }

  #better(live: readonly M[], not: M | undefined): M | undefined {
    const first = Math.floor(this.#random() * live.length)
    let second = Math.floor(this.#random() * (live.length - 1))
    if (second >= first) second++
    const a = live[first]!
    const b = live[second]!
    if (a === not) return b
    if (b === not) return a
    return cost(a) <= cost(b) ? a : b
  }

  /** The active instance has no live session left: the standby with the highest epoch takes over. */
  #handOver(name: string): void {
    const runtime = this.#runtimes.get(name)
    let next: Instance<M> | undefined
    for (const instance of runtime?.instances.values() ?? []) {
      if (instance.live.length === 0 || instance.active) continue
      if (next === undefined || instance.epoch > next.epoch) next = instance
    }
    if (next === undefined) return
    const chosen = next
    this.#directory.promote(name, chosen.id).then(
      grant => this.#apply(name, chosen, grant),
      error => this.#logger.error({ runtime: name, err: error }, 'a standby could not be made active'),
    )
  }

  #apply(name: string, instance: Instance<M>, grant: Grant): void {
    const runtime = this.#runtimes.get(name)
    if (runtime === undefined || runtime.instances.get(instance.id) !== instance) return
    instance.claimed = true
    const previous = runtime.active
    // Several of its sessions may have asked at once: the later answer wins only if it knows a later epoch.
    if (grant.epoch < instance.epoch) return
    instance.epoch = grant.epoch
    if (grant.active && (previous === undefined || previous === instance || previous.epoch <= grant.epoch)) {
      if (previous !== undefined && previous !== instance) this.#retire(previous)
      instance.active = true
      runtime.active = instance
      if (previous !== instance) {
        this.#logger.info({ runtime: name, instance: instance.id, epoch: grant.epoch }, 'instance is active')
      }
      if (instance.live.length > 0) this.#onLive?.(name)
    }
    for (const member of instance.live) member.granted({ epoch: instance.epoch, active: instance.active })
  }

  #retire(instance: Instance<M>): void {
    instance.active = false
    for (const member of instance.live) member.granted({ epoch: instance.epoch, active: false })
  }

  #instance(member: M): Instance<M> | undefined {
    return this.#runtimes.get(member.runtime)?.instances.get(member.instance)
  }
}

/** Below this, differences are those of a busy event loop and say nothing of the path. */
const NEAR_MS = 5

function cost(member: Member): number {
  return Math.max(member.rttMs, NEAR_MS) * (member.exchanges + 1)
}
