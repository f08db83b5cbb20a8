/**
 * Which sessions carry a runtime's traffic: runtimes -> instances -> sessions.
 *
 * One instance of a runtime is active, the same one on all replicas; the directory says which. A newer instance takes over when it
 * is ready. The older one keeps the streams it has, and stays as a standby until the active one drains or is gone.
 */

import type { Cidrs } from '../protocol/base/address.ts'
import { elapsedMs } from '../protocol/base/elapsed.ts'
import { ignore, logGuard } from '../protocol/base/guard.ts'
import type { Logger } from '../protocol/base/log.ts'
import type { Span } from '../protocol/trace/span.ts'
import type { Stream } from '../protocol/wire/yamux/stream.ts'
import type { Directory, DirectoryListener, Grant, Registration, RuntimeState } from './directory/directory.ts'
import type { Recorder } from './directory/recorder.ts'
import { Questions } from './questions.ts'

/** What the registry needs to know about a session. */
export interface RegisteredSession {
  readonly id: string
  readonly runtime: string
  readonly instance: string
  /** Smoothed round-trip time. 0 until it is measured. */
  readonly rttMs: number
  /** Exchanges open on it. */
  exchanges: number
  /** Its token has ended, it is slow to answer, or it has just refused an exchange. It gets no exchanges while another session is healthy. */
  readonly overdue: boolean
  /** When anything last arrived on it, in ms. 0 if it takes no exchanges at the moment. */
  readonly heardAt: number
  /** Whether its token names this host as its runtime's own. */
  claims(host: string): boolean
  /** Called when its instance is granted an epoch, or becomes active or a standby, whether or not the session takes exchanges. */
  granted(grant: Grant): void
}

/** What can carry an exchange: a session at this replica, or a hop to one at another replica. */
export interface Carrier {
  readonly id: string
  readonly instance: string
  readonly epoch: number
  /** Number of replicas between us and the session. */
  readonly hops: 0 | 1
  /** Callers that may use it. `undefined` means everybody. */
  readonly callers: Cidrs | undefined
  /** Whether new exchanges may go here. */
  readonly usable: boolean
  /** It has as many open streams as it accepts. */
  readonly full: boolean
  exchanges: number
  /** Called for an attempt that is recorded, with its span. */
  gave(span: Span): void
  open(): Stream
  /** Called when it refused an exchange. */
  refused?(): void
  /** Called when one of its exchanges is over. */
  released(): void
}

/** Finds sessions at other replicas. */
export interface HopFinder<H> {
  /** A hop to a replica that has a session of `instance`. `not`, which just failed, only if there is no other. */
  pick(state: RuntimeState, instance: string, not: unknown): H | undefined
  /** Set by the registry. Called when a replica that refused an exchange of the runtime may be tried again. */
  onAgain: ((runtime: string) => void) | undefined
  /** The same, when an exchange of the runtime is over at a replica that has refused one, so that there may be room for another. */
  onRoom: ((runtime: string) => void) | undefined
}

class Instance<M extends RegisteredSession> {
  readonly id: string
  grant: Grant = { epoch: 0, active: false }
  /** The directory has answered about it. */
  known = false
  /** The highest epoch that its clients presented. */
  lastEpoch = 0
  /** The directory is being asked. */
  asking: Promise<RuntimeState> | undefined
  readonly all = new Set<M>()
  /** Ready and not draining: these get new streams while the instance is active. */
  readonly live: M[] = []

  constructor(id: string) {
    this.id = id
  }
}

interface RegistryOptions<H> {
  readonly directory: Directory
  /** Questions to the directory, shared with whoever asks about hosts. Default: its own. */
  readonly questions?: Questions | undefined
  readonly logger: Logger
  /** Listener for the names in the directory that are hosts, not runtimes. They contain a dot. */
  readonly hosts?: DirectoryListener | undefined
  /** Absent if there are no other replicas. */
  readonly hops?: HopFinder<H> | undefined
  /** Random numbers for the choice between sessions. Default `Math.random`. */
  readonly random?: () => number
  /** Called when a runtime may have a live session again; `undefined` means any runtime. */
  readonly onLive?: (runtime: string | undefined) => void
  /** Called when a replica that refused an exchange of the runtime may be tried again. */
  readonly onAgain?: (runtime: string) => void
  /** Called when such a replica may have room for another exchange of the runtime. */
  readonly onRoom?: (runtime: string) => void
  readonly record?: Recorder | undefined
}

type Instances<M extends RegisteredSession> = Map<string, Instance<M>>

export class Registry<M extends RegisteredSession, H = never> {
  readonly #runtimes = new Map<string, Instances<M>>()
  readonly #options: RegistryOptions<H>
  readonly #directory: Directory
  readonly #random: () => number
  readonly #questions: Questions
  /** Guarded, since an embedder's directory may throw. */
  readonly #gone: (runtime: string, instance: string) => void
  #sessions = 0

  constructor(options: RegistryOptions<H>) {
    this.#options = options
    this.#directory = options.directory
    this.#questions = options.questions ?? new Questions(options.directory)
    this.#random = options.random ?? Math.random
    const guard = logGuard(options.logger, 'telling the directory failed')
    this.#gone = guard((runtime: string, instance: string) => this.#directory.gone(runtime, instance))
    if (options.hops !== undefined) {
      options.hops.onAgain = options.onAgain
      options.hops.onRoom = options.onRoom
    }
    const { hosts } = options
    options.directory.listen({
      changed: state => (isHost(state) ? hosts?.changed(state) : this.#apply(state)),
      regained: () => {
        options.onLive?.(undefined)
        hosts?.regained()
      },
      live: () => this.#registrations(),
    })
  }

  get sessions(): number {
    return this.#sessions
  }

  get runtimes(): number {
    return this.#runtimes.size
  }

  *members(): IterableIterator<M> {
    for (const instances of this.#runtimes.values()) {
      for (const instance of instances.values()) yield* instance.all
    }
  }

  *#registrations(): IterableIterator<Registration> {
    for (const [runtime, instances] of this.#runtimes) {
      for (const instance of instances.values()) if (instance.live.length > 0) yield registrationOf(runtime, instance)
    }
    yield* this.#options.hosts?.live() ?? []
  }

  /** Sessions of one runtime at this replica, over all of its instances. */
  countOf(runtime: string): number {
    let count = 0
    for (const instance of this.#runtimes.get(runtime)?.values() ?? []) count += instance.all.size
    return count
  }

  epochOf(member: M): number {
    return this.#instance(member)?.grant.epoch ?? 0
  }

  /** A session has sent `hello`. It gets no streams yet. */
  add(member: M): void {
    let instances = this.#runtimes.get(member.runtime)
    if (instances === undefined) {
      instances = new Map()
      this.#runtimes.set(member.runtime, instances)
    }
    let instance = instances.get(member.instance)
    if (instance === undefined) {
      instance = new Instance(member.instance)
      instances.set(member.instance, instance)
    }
    instance.all.add(member)
    this.#sessions++
  }

  /** The session is ready. At the first session of an instance, the directory is asked for the instance's epoch. */
  async ready(member: M, lastEpoch: number): Promise<void> {
    const instance = this.#instance(member)
    if (instance === undefined || !instance.all.has(member) || instance.live.includes(member)) return
    instance.live.push(member)
    instance.lastEpoch = Math.max(instance.lastEpoch, lastEpoch)
    if (!instance.known) {
      const state = await this.#ask(member.runtime, instance)
      // The directory reports only changes. If it knew the instance already, nobody else applies this state.
      if (!instance.known) this.#apply(state)
      return
    }
    member.granted(instance.grant)
    if (instance.grant.active) this.#options.onLive?.(member.runtime)
    if (instance.live.length === 1) await this.#ask(member.runtime, instance)
  }

  /** Asks the directory once per instance, however many of its sessions become ready. */
  #ask(runtime: string, instance: Instance<M>): Promise<RuntimeState> {
    instance.asking ??= this.#directory.ready(registrationOf(runtime, instance)).finally(() => {
      instance.asking = undefined
      // If it has drained meanwhile, the directory may have been told so first.
      const isLeft = instance.live.length === 0 && this.#runtimes.get(runtime)?.get(instance.id) === instance
      if (isLeft) this.#gone(runtime, instance.id)
    })
    return instance.asking
  }

  /** The session gets no new streams. If it was the last one of the active instance, a standby takes over. */
  drain(member: M): void {
    const live = this.#instance(member)?.live
    const index = live?.indexOf(member) ?? -1
    if (index < 0) return
    live!.splice(index, 1)
    if (live!.length > 0) return
    this.#options.record?.('released', member.runtime, member.instance, this.epochOf(member))
    this.#gone(member.runtime, member.instance)
  }

  /** The session has ended. */
  remove(member: M): void {
    const instances = this.#runtimes.get(member.runtime)
    const instance = instances?.get(member.instance)
    if (instance === undefined || !instance.all.delete(member)) return
    this.#sessions--
    this.drain(member)
    if (instance.all.size > 0) return
    instances!.delete(instance.id)
    if (instances!.size === 0) this.#runtimes.delete(member.runtime)
  }

  /**
   * A live session of the active instance: of two picked at random, the one with the lower round-trip time x (open exchanges + 1).
   * If this replica has none, a hop to a replica that has one. `not` is what just failed. With `instance`, only if that instance is
   * still active. With `ownHost`, only a session that claims it, or a hop, since only the other replica knows its sessions' tokens.
   */
  pick(name: string, not?: unknown, instance?: string, ownHost?: string): M | H | undefined {
    const state = this.#stateOf(name, instance)
    return state && (this.#pickHere(state, not, ownHost) ?? this.#pickHop(state, not))
  }

  /**
   * Another instance of the runtime that is active at this replica, or with `anywhere` at any. Empty if there may be one elsewhere, and the
   * directory must be asked.
   */
  activeBeside({ runtime, instance }: Pick<M, 'runtime' | 'instance'>, anywhere: boolean): string | undefined {
    const state = this.#directory.find(runtime)
    if (state === 'unknown') return anywhere ? '' : undefined
    if (state === undefined || state.active === instance) return undefined
    const replicas = state.instances.get(state.active)?.replicas ?? []
    const isThere = anywhere ? replicas.length > 0 : replicas.includes(this.#directory.replica)
    return isThere ? state.active : undefined
  }

  /**
   * Whether what an instance announced here may have been overtaken: by another instance that is active, or by its own sessions at other
   * replicas if it has none here. Without `anywhere`, other replicas do not count.
   */
  isOvertaken(by: Pick<M, 'runtime' | 'instance'>, anywhere: boolean): boolean | 'unknown' {
    const { runtime, instance } = by
    const active = this.activeBeside(by, anywhere)
    if (active !== undefined) return active === '' ? 'unknown' : true
    const state = this.#directory.find(runtime)
    if (!anywhere || typeof state !== 'object' || this.#runtimes.get(runtime)?.has(instance)) return false
    return (state.instances.get(instance)?.replicas ?? []).length > 0
  }

  /** Like `pick`, but only a hop, even if this replica has sessions. */
  pickElsewhere(name: string, not?: unknown, instance?: string): H | undefined {
    const state = this.#stateOf(name, instance)
    return state && this.#pickHop(state, not)
  }

  /** `undefined` if the runtime is not known, or if another instance is active. */
  #stateOf(name: string, instance: string | undefined): RuntimeState | undefined {
    const state = this.#directory.find(name)
    if (state === undefined || state === 'unknown') return undefined
    return instance === undefined || instance === state.active ? state : undefined
  }

  #pickHop(state: RuntimeState, not: unknown): H | undefined {
    return this.#options.hops?.pick(state, state.active, not)
  }

  /** Whether a session may come at any moment: there is one somewhere, there was one recently, or we cannot know. */
  knows(name: string, forgetMs: number): boolean {
    if (this.countOf(name) > 0) return true
    const state = this.#directory.find(name)
    if (state === undefined || state === 'unknown') return state === 'unknown'
    if (elapsedMs() - state.changedMs < forgetMs) return true
    for (const { replicas } of state.instances.values()) if (replicas.length > 0) return true
    return false
  }

  /**
   * Asks the directory about a runtime that we do not know, or again with `again`. Waiting requests are woken when it has answered.
   * `refused` if we do not know it, and `network` has asked about too many names that nobody serves, or too many questions are under way.
   */
  ask(name: string, again: boolean, network?: string): boolean | 'refused' {
    const isKnown = this.#directory.find(name) !== 'unknown'
    if (isKnown && !again) return false
    const { onLive, logger } = this.#options
    const questions = this.#questions
    // One answer wakes all waiting requests. If each of them added a callback, each would be woken once per request, over and over.
    if (questions.isAsked(name)) return true
    const answer = questions.ask(name, network)
    if (answer === 'refused') return isKnown ? false : answer
    const guard = logGuard(logger, 'waking the requests for a runtime failed')
    answer.then(
      guard(() => onLive?.(name)),
      // The directory itself reports if it cannot be reached.
      ignore,
    )
    return true
  }

  /** Like `pick`, but only at this replica and only for this epoch. For exchanges that another replica hands over. */
  pickOn(name: string, epoch: number, ownHost?: string): M | undefined {
    const state = this.#directory.find(name)
    if (state === undefined || state === 'unknown' || state.epoch !== epoch) return undefined
    return this.#pickHere(state, undefined, ownHost)
  }

  #pickHere({ runtime, active, epoch }: RuntimeState, not: unknown, ownHost: string | undefined): M | undefined {
    const all = this.#runtimes.get(runtime)?.get(active)?.live
    // The directory could be tampered with, so what counts is the host's claim in a signed token.
    const live = ownHost === undefined ? all : all?.filter(member => member.claims(ownHost))
    if (live === undefined || live.length === 0) return undefined
    const picked = live.length === 1 ? live[0] : this.#better(live, not)
    if (picked === not) return undefined
    this.#options.record?.('routed', runtime, active, epoch)
    return picked
  }

  #better(live: readonly M[], not: unknown): M | undefined {
    const first = Math.floor(this.#random() * live.length)
    let second = Math.floor(this.#random() * (live.length - 1))
    if (second >= first) second++
    const a = live[first]!
    const b = live[second]!
    const picked = a === not ? b : b === not ? a : better(a, b)
    return live.length === 2 || !picked.overdue ? picked : live.filter(one => one !== not).reduce(better)
  }

  /**
   * Tells the sessions at this replica what the directory says about their instances. Tells the directory which instances it lists
   * here although they are gone.
   */
  #apply(state: RuntimeState): void {
    const { runtime, active } = state
    this.#options.record?.('learned', runtime, active, state.epoch)
    const here = this.#runtimes.get(runtime)
    for (const [id, { replicas }] of state.instances) {
      const isListed = replicas.includes(this.#directory.replica)
      if (isListed && here?.has(id) !== true) this.#gone(runtime, id)
    }
    for (const instance of here?.values() ?? []) {
      // A directory that lost its data does not take an instance's epoch away.
      const epoch = state.instances.get(instance.id)?.epoch ?? instance.grant.epoch
      this.#grant(runtime, instance, { epoch, active: active === instance.id })
      this.#correct(state, instance)
    }
    this.#options.onLive?.(runtime)
  }

  #grant(runtime: string, instance: Instance<M>, grant: Grant): void {
    const { grant: before, known } = instance
    if (known && grant.epoch === before.epoch && grant.active === before.active) return
    instance.known = true
    instance.grant = grant
    if (grant.active) this.#options.record?.('acquired', runtime, instance.id, grant.epoch)
    if (grant.active && !before.active) {
      this.#options.logger.info({ runtime, instance: instance.id, epoch: grant.epoch }, 'instance is active')
    }
    for (const member of instance.all) member.granted(grant)
  }

  /** Corrects what the directory knows about our sessions, which may be wrong after it lost data. */
  #correct(state: RuntimeState, instance: Instance<M>): void {
    const listed = state.instances.get(instance.id)?.replicas.includes(this.#directory.replica) ?? false
    if (listed === instance.live.length > 0 || instance.asking !== undefined) return
    if (listed) this.#gone(state.runtime, instance.id)
    else void this.#ask(state.runtime, instance).catch(() => {})
  }

  #instance(member: M): Instance<M> | undefined {
    return this.#runtimes.get(member.runtime)?.get(member.instance)
  }
}

function registrationOf<M extends RegisteredSession>(
  runtime: string,
  { id, grant, lastEpoch }: Instance<M>,
): Registration {
  return { runtime, instance: id, lastEpoch: Math.max(lastEpoch, grant.epoch) }
}

/** Smaller differences come from a busy event loop and say nothing about the network. */
const NEAR_MS = 5

function better<M extends RegisteredSession>(a: M, b: M): M {
  if (a.overdue !== b.overdue) return a.overdue ? b : a
  // The sessions of a client that is gone end one after the other. If an exchange were tried on any of them, it might be tried on each.
  if (a.overdue) return a.heardAt >= b.heardAt ? a : b
  return cost(a) <= cost(b) ? a : b
}

function cost(member: RegisteredSession): number {
  return Math.max(member.rttMs, NEAR_MS) * (member.exchanges + 1)
}

function isHost({ runtime }: RuntimeState): boolean {
  return runtime.includes('.')
}
