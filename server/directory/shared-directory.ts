/**
 * The directory of several servers, over a store that they share (`store.ts`). Everything that a replica knows is a copy. Changes go
 * through the store, which notifies all replicas. A replica acts on its copy only while its lease says that the copy is complete, by
 * the local clock (`lease.ts`, `elapsed.ts`).
 *
 * When the link to the store breaks, what is known stays valid for the rest of the lease. After that it is valid only if all other
 * replicas vouch that they were granted nothing (`witnesses.ts`).
 */
import { elapsedMs } from '../../protocol/base/elapsed.ts'
import { detached, logDefect, logGuard } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import {
  type Directory,
  type DirectoryListener,
  type DirectoryState,
  type DirectoryStats,
  MAX_REPORTED_EPOCH,
  presentedEpoch,
  type Registration,
  type RuntimeState,
} from './directory.ts'
import { KnownRuntimes } from './known-runtimes.ts'
import { Lease } from './lease.ts'
import { Lookups } from './lookups.ts'
import { absent, isSame, merge, present } from './presume.ts'
import type { Recorder } from './recorder.ts'
import { MAX_RUNTIME_STATE_BYTES, parseRuntimeState, type Renewal } from './runtime-state.ts'
import { StateLog } from './state-log.ts'
import { type DirectoryChange, type DirectoryStore, NoRight, QueueFull, type StoreMember } from './store.ts'
import { StoreConnection } from './store-connection.ts'
import { Upkeep } from './upkeep.ts'
import { NoWitnesses, type Witnesses } from './witnesses.ts'

export interface SharedDirectoryOptions extends Omit<StoreMember, 'address'> {
  readonly store: DirectoryStore
  readonly logger: Logger
  readonly witnesses?: Witnesses | undefined
  readonly record?: Recorder | undefined
  /** Called whenever the store was reached anew, before it is told anything. If it rejects, the store counts as unreachable. */
  readonly prepare?: (() => Promise<void>) | undefined
  /** Monotonic time in milliseconds, which goes on while the machine is suspended. Default {@link elapsedMs}. */
  readonly now?: (() => number) | undefined
}

/** Longest notice: a state with as many instances and replicas as possible. */
const MAX_NOTICE_CHARS = 2 * MAX_RUNTIME_STATE_BYTES

export class SharedDirectory implements Directory {
  readonly replica: string
  readonly #options: SharedDirectoryOptions
  readonly #logger: Logger
  readonly #witnesses: Witnesses
  readonly #now: () => number
  readonly #known: KnownRuntimes
  readonly #lease: Lease
  readonly #connection: StoreConnection
  readonly #upkeep: Upkeep
  readonly #stateLog: StateLog
  readonly #lookups: Lookups
  #listener: DirectoryListener | undefined
  /** All others tell us their news. */
  #watching = false
  /** Somebody asked while the directory was lost. */
  #askedWhileLost = false
  /** The latest version of any record that the store reported, on this link or the one before it. */
  #latest = 0

  constructor(options: SharedDirectoryOptions) {
    const { replica, leaseMs, logger, store, witnesses = new NoWitnesses(replica), prepare = async () => {} } = options
    const now = options.now ?? elapsedMs
    this.replica = replica
    this.#options = options
    this.#logger = logger
    this.#witnesses = witnesses
    this.#now = now
    this.#known = new KnownRuntimes(now, () => this.#lease.isVouched)
    this.#lease = new Lease({ leaseMs, now, witnesses })
    this.#stateLog = new StateLog(logger)
    this.#connection = new StoreConnection(
      { store, leaseMs, now, logger, prepare },
      {
        notice: text => this.#notice(text),
        mayHaveMissed: () => {
          this.#known.renew(this.#lease.validUntilMs)
          this.#latest = 0
        },
        renewed: (renewal, sentMs) => this.#renewed(renewal, sentMs),
        isTelling: () => this.#upkeep.isTelling,
        latest: () => this.#latest,
        upkeep: (mayHaveForgotten, isCurrent) => this.#upkeep.run(mayHaveForgotten, isCurrent),
        closed: atMs => this.#lease.closed(atMs),
        absent: atMs => this.#lease.absent(atMs),
        unreachable: () => this.#lease.unreachable(),
        updateState: () => this.#updateState(),
      },
    )
    this.#upkeep = new Upkeep(
      { leaseMs, known: this.#known, lease: this.#lease },
      {
        live: () => this.#listener?.live() ?? [],
        ready: registration => this.ready(registration),
        gone: (runtime, instance) => this.gone(runtime, instance),
        refresh: runtime => this.refresh(runtime),
        toldAll: () => {
          this.#known.completed()
          this.#updateState()
        },
      },
    )
    this.#lookups = new Lookups({
      isOpen: () => this.#connection.isOpen,
      look: runtime => this.#look(runtime),
      find: runtime => this.find(runtime),
      canAskOthers: () => this.#canAskOthers(),
      askOthers: runtime => this.#askOthers(runtime),
      now,
    })
    witnesses.listen({
      heard: (state, teller, isAnswer) => this.#receive(state, teller, isAnswer),
      reached: () => {
        this.#lookups.reached()
        this.#listener?.regained()
      },
      states: () => this.#known.all(),
      find: runtime => this.find(runtime),
      changed: () => this.#updateState(),
    })
  }

  /**
   * Connects, and keeps trying from then on. Resolves whether or not the first attempt succeeded, but rejects if the user of the store
   * lacks permissions.
   */
  async open(): Promise<void> {
    await this.#connection.open()
    const { failure } = this.#connection
    if (!(failure instanceof NoRight)) return
    await this.close()
    throw failure
  }

  listen(listener: DirectoryListener): void {
    this.#listener = listener
  }

  // What is known

  get state(): DirectoryState {
    return this.#lease.state
  }

  /** See {@link Lease.young}. */
  get young(): boolean {
    return this.#lease.young
  }

  find(runtime: string): RuntimeState | 'unknown' | undefined {
    const { state } = this
    if (state !== 'lost') return this.#known.find(runtime, state === 'presumed')
    this.#askedWhileLost = true
    return 'unknown'
  }

  refresh(runtime: string): Promise<RuntimeState | 'unknown' | undefined> {
    return this.#lookups.refresh(runtime)
  }

  async #look(runtime: string): Promise<void> {
    this.#known.expect(runtime)
    const before = this.#known.last(runtime)
    // Rejects if a young store does not know the runtime. Whether it is young is not known here before the next renewal.
    const state = await this.#change('look', runtime, '', 0)
    // Somebody may have come while the answer was on its way.
    const isLatest = before === this.#known.last(runtime)
    if (state === undefined && isLatest) this.#known.missing(runtime)
  }

  /** Not if nothing may be acted on anyway, or if an answer would become outdated because others do not tell us their news. */
  #canAskOthers(): boolean {
    return this.state !== 'lost' && this.#watching && this.#witnesses.canAsk
  }

  async #askOthers(runtime: string): Promise<boolean> {
    await this.#witnesses.askAbout(runtime)
    return this.#known.last(runtime) !== undefined
  }

  // Changes

  async ready(registration: Registration): Promise<RuntimeState> {
    const { runtime, instance, lastEpoch } = registration
    this.#upkeep.returned(registration)
    const held = this.#known.last(runtime)?.instances.get(instance)?.epoch ?? 0
    const presented = Math.max(presentedEpoch(lastEpoch), held)
    try {
      return (await this.#change('enter', runtime, instance, presented))!
    } catch (error) {
      if (this.#connection.closed) throw error
      if (error instanceof QueueFull) return this.#lookups.later().then(() => this.ready(registration))
      return this.#presume(present(this.#known.last(runtime), runtime, instance, this.replica, presented))
    }
  }

  gone(runtime: string, instance: string): void {
    const guard = logGuard(this.#logger, 'reporting that an instance left failed')
    const untold = guard(() => {
      if (this.#connection.closed || !this.#upkeep.left(runtime, instance)) return
      const known = this.#known.last(runtime)
      if (known !== undefined) this.#presume(absent(known, instance, this.replica))
    })
    this.#change('leave', runtime, instance, 0).catch(untold)
  }

  /** Without the store there can be no new epoch, but the other replicas are told. */
  #presume(state: RuntimeState): RuntimeState {
    this.#add(state)
    this.#witnesses.tell(state, true)
    return state
  }

  #add(state: RuntimeState, isAnswer = false): void {
    if (this.#known.add(state, isAnswer)) this.#learned(state, !isAnswer)
  }

  async #change(operation: DirectoryChange['operation'], runtime: string, instance: string, presented: number) {
    const before = this.#known.last(runtime)
    const [seen, seenActive] = [before?.epoch ?? 0, before?.active ?? '']
    const answer = await this.#connection.change({ operation, runtime, instance, presented, seen, seenActive })
    if (answer === null) return undefined
    const state = this.#parse(answer)
    if (state.epoch > seen) this.#witnesses.tell(state, true)
    // If nothing was learned meanwhile, the store's answer is the latest state.
    const certain = before === this.#known.last(runtime)
    if (certain) this.#upkeep.trust(runtime)
    this.#learn(state, certain)
    return this.#known.last(runtime)
  }

  #parse(text: string): RuntimeState {
    const state = parseRuntimeState(text, this.#now())
    this.#latest = Math.max(this.#latest, state.version)
    return state
  }

  #learn(state: RuntimeState, certain = false): void {
    if (this.#known.learn(state, certain)) this.#learned(state)
    else if (this.#known.outdated(state)) {
      // The store forgot an epoch that we know. A lookup reminds it.
      detached(this.#logger, 'asking the directory failed', this.refresh(state.runtime))
    }
  }

  #learned(state: RuntimeState, isNews = true): void {
    if (isNews) this.#witnesses.tell(state, false)
    this.#listener?.changed(state)
  }

  /** The live replicas, including this one. */
  get living(): string[] {
    return this.#lease.living
  }

  isDead(replica: string): boolean {
    return this.#lease.isDead(replica)
  }

  // What others tell

  /** Another replica has told a state. Answers to our questions are not passed on: all others were asked as well, or can ask. */
  #receive(state: RuntimeState, teller: string, asked: boolean): void {
    const { runtime, epoch } = state
    const known = this.#known.last(runtime)
    if (epoch > MAX_REPORTED_EPOCH) return
    const isAnswer = asked && epoch >= (known?.epoch ?? 0)
    // The teller does not know the later epoch.
    if (known !== undefined && epoch < known.epoch) this.#witnesses.tell(known, true)
    if (!this.#connection.isOpen) {
      const merged = merge(known, state, teller)
      if (isAnswer || !isSame(known, merged)) this.#add(merged, isAnswer)
    } else if (epoch > (known?.epoch ?? 0) && this.#known.wants(runtime)) this.#learn(state)
  }

  /** Anybody with the permission to publish can send anything. An odd notice is not acted on; the store is asked soon instead. */
  #notice(text: string): void {
    try {
      if (text.length > MAX_NOTICE_CHARS) throw new TypeError(`it is ${text.length} characters long`)
      const state = this.#parse(text)
      const { runtime, epoch } = state
      if (!this.#known.wants(runtime)) return
      const isOdd = epoch > MAX_REPORTED_EPOCH || this.#known.older(state)
      if (!isOdd) this.#learn(state)
      if (isOdd || !this.#isServed(state)) this.#upkeep.doubt(runtime)
    } catch (error) {
      this.#logger.warn({ err: error }, "a message on the directory's channel cannot be read")
    }
  }

  /** Whether a live replica has the active instance. */
  #isServed({ active, instances }: RuntimeState): boolean {
    const replicas = instances.get(active)?.replicas ?? []
    return replicas.some(replica => this.#lease.isAlive(replica))
  }

  #renewed(renewal: Renewal, sentMs: number): void {
    if (this.#lease.renewed(renewal, sentMs, this.#known.isWhole)) {
      this.#known.confirmed()
      this.#options.record?.('renewed', '', '', 0)
    }
    this.#updateState()
  }

  // The state of the directory

  /** Logs and reports a change of state. */
  #updateState(): void {
    try {
      this.#applyState()
    } catch (error) {
      logDefect(this.#logger, 'reporting the state of the directory failed', error)
    }
  }

  #applyState(): void {
    const { state, young } = this
    const { isOpen, failure } = this.#connection
    this.#watching = state !== 'connected' || !isOpen || young || !this.#known.isWhole
    this.#witnesses.watch(this.#watching)
    const regained = this.#askedWhileLost && state !== 'lost'
    if (regained) this.#askedWhileLost = false
    this.#stateLog.say(state, isOpen && young, this.#lease.replicas, failure)
    if (regained) this.#listener?.regained()
  }

  stats(): DirectoryStats {
    const { operations, failures, roundTripMs } = this.#connection
    return {
      kind: this.#options.store.kind,
      state: this.state,
      known: this.#known.size,
      replicas: this.#lease.alive,
      operations,
      failures,
      roundTripMs,
    }
  }

  close(): Promise<void> {
    return this.#connection.close()
  }
}
