/** The directory of a single server. */
import { elapsedMs } from '../../protocol/base/elapsed.ts'
import {
  type Directory,
  type DirectoryListener,
  type DirectoryStats,
  presentedEpoch,
  type Registration,
  type RuntimeState,
} from './directory.ts'
import { enter, leave, newRecord, type RuntimeRecord, stateOf } from './record.ts'

const REPLICA = 'this'
/** Nobody else writes here, so there is nothing to wait for. */
const NOW = { nowMs: 0, leaseMs: 0, young: false }
/** Runtimes that are remembered after their last instance left. */
const MAX_RUNTIMES = 100_000

export class MemoryDirectory implements Directory {
  readonly replica = REPLICA
  readonly #records = new Map<string, RuntimeRecord>()
  readonly #states = new Map<string, RuntimeState>()
  /** Runtimes without a live session. The one that lost its last one first comes first. */
  readonly #offline = new Set<string>()
  #listener: DirectoryListener | undefined
  #operations = 0

  listen(listener: DirectoryListener): void {
    this.#listener = listener
  }

  find(runtime: string): RuntimeState | undefined {
    return this.#states.get(runtime)
  }

  async refresh(runtime: string): Promise<RuntimeState | undefined> {
    return this.find(runtime)
  }

  async ready({ runtime, instance, lastEpoch }: Registration): Promise<RuntimeState> {
    const entrance = { instance, replica: REPLICA, presented: presentedEpoch(lastEpoch), seen: 0, seenActive: '' }
    return this.#change(runtime, record => enter(record, entrance, NOW))
  }

  gone(runtime: string, instance: string): void {
    if (this.#records.has(runtime)) this.#change(runtime, record => leave(record, instance, REPLICA, NOW))
  }

  isDead(): boolean {
    return false
  }

  #change(runtime: string, change: (record: RuntimeRecord) => void): RuntimeState {
    this.#operations++
    let record = this.#records.get(runtime)
    if (record === undefined) {
      if (this.#records.size >= MAX_RUNTIMES) this.#forgetOne()
      record = newRecord()
      this.#records.set(runtime, record)
    }
    change(record)
    record.version++
    const state = stateOf(runtime, record, elapsedMs())
    this.#states.set(runtime, state)
    if ([...record.instances.values()].some(({ replicas }) => replicas.size > 0)) this.#offline.delete(runtime)
    else this.#offline.add(runtime)
    this.#listener?.changed(state)
    return state
  }

  #forgetOne(): void {
    const [runtime] = this.#offline
    if (runtime === undefined) return
    this.#offline.delete(runtime)
    this.#records.delete(runtime)
    this.#states.delete(runtime)
  }

  stats(): DirectoryStats {
    return {
      kind: 'memory',
      state: 'connected',
      known: this.#records.size,
      replicas: 1,
      operations: this.#operations,
      failures: 0,
      roundTripMs: 0,
    }
  }

  async close(): Promise<void> {
    this.#records.clear()
    this.#states.clear()
    this.#offline.clear()
  }
}
