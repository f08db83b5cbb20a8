/** A store for the directory, in memory, for replicas of one process. By the rules of `record.ts`, as `scripts.ts` in Redis. */
import type { RuntimeState } from '../../server/directory/directory.ts'
import { applyChange, newRecord, type RuntimeRecord, stateOf } from '../../server/directory/record.ts'
import {
  type DirectoryChange,
  type DirectoryStore,
  KEEP_DEAD_MS,
  type StoreLink,
  type StoreListener,
  type StoreMember,
} from '../../server/directory/store.ts'

interface Lease {
  readonly endsMs: number
  readonly address: string
}

export class MemoryStore {
  readonly #listeners = new Set<StoreListener>()
  #records = new Map<string, RuntimeRecord>()
  #leases = new Map<string, Lease>()
  #bornMs: number | undefined
  /** The latest version of any record. */
  #latest = 0
  /** What its own clock showed at the last renewal, and what the machine's did. */
  #shownMs: number | undefined
  #atMs = 0
  /** How far the machine's clock was set. */
  skewMs = 0

  /** It loses all that it knows, its age as well. */
  forget(): void {
    this.#records = new Map()
    this.#leases = new Map()
    this.#bornMs = undefined
    this.#latest = 0
    this.#shownMs = undefined
  }

  /** Returns what makes it as it is now. */
  keep(): () => void {
    const [records, leases] = [structuredClone(this.#records), structuredClone(this.#leases)]
    const [bornMs, shownMs, atMs, latest] = [this.#bornMs, this.#shownMs, this.#atMs, this.#latest]
    return () => {
      this.#records = records
      this.#leases = leases
      this.#bornMs = bornMs
      this.#shownMs = shownMs
      this.#atMs = atMs
      this.#latest = latest
    }
  }

  /** From now on it is as old as can be. */
  age(): void {
    this.#bornMs = Number.NEGATIVE_INFINITY
  }

  /** It has no steps: see `scripts.ts`. */
  #now(leaseMs: number): number {
    const passedMs = Math.max(0, this.#wallMs - this.#atMs)
    return this.#shownMs === undefined ? this.#wallMs : this.#shownMs + Math.min(passedMs, leaseMs / 2)
  }

  get #wallMs(): number {
    return performance.now() + this.skewMs
  }

  for(member: StoreMember): DirectoryStore {
    return { kind: 'memory', open: async listener => this.#open(member, listener), isAbsent: () => false }
  }

  #open(member: StoreMember, listener: StoreListener): StoreLink {
    this.#listeners.add(listener)
    return {
      change: async change => this.#change(member, change),
      renew: async (leaseMs, isTelling, latest) => this.#renew(member, leaseMs, isTelling, latest),
      close: () => {
        if (this.#listeners.delete(listener)) listener.closed(new Error('closed'))
      },
    }
  }

  #change({ replica, leaseMs }: StoreMember, change: DirectoryChange): string | null {
    const { operation, runtime } = change
    const known = this.#records.get(runtime)
    const nowMs = this.#now(leaseMs)
    const isAlive = (name: string) => (this.#leases.get(name)?.endsMs ?? Number.NEGATIVE_INFINITY) >= nowMs
    const young = nowMs - (this.#bornMs ?? nowMs) < leaseMs
    if (known === undefined && operation !== 'enter') return operation === 'look' && young ? '' : null
    const record = known ?? newRecord()
    this.#records.set(runtime, record)
    const before = shapeOf(record)
    applyChange(record, change, replica, isAlive, { nowMs, leaseMs, young })
    const isChanged = known === undefined || shapeOf(record) !== before
    if (isChanged) record.version = ++this.#latest
    const text = textOf(stateOf(runtime, record, 0))
    if (isChanged) for (const listener of this.#listeners) listener.notice(text)
    return text
  }

  #renew({ replica, address }: StoreMember, leaseMs: number, isTelling: boolean, latest: number): string {
    const nowMs = this.#now(leaseMs)
    if (latest > this.#latest) this.#bornMs = nowMs
    this.#bornMs ??= nowMs
    if (isTelling && nowMs - this.#bornMs < leaseMs) this.#bornMs = Math.max(this.#bornMs, nowMs - leaseMs / 2)
    const lease = this.#leases.get(replica)
    const lapsed = lease === undefined || lease.endsMs < nowMs
    if (leaseMs > 0) {
      this.#leases.set(replica, { endsMs: nowMs + leaseMs, address })
      this.#shownMs = nowMs
      this.#atMs = this.#wallMs
    } else this.#leases.delete(replica)
    const ageMs = Math.min(nowMs - this.#bornMs, Number.MAX_SAFE_INTEGER)
    const said = [String(Math.floor(ageMs)), lapsed ? '1' : '0']
    for (const [name, { endsMs, address }] of this.#leases) {
      if (endsMs + KEEP_DEAD_MS < nowMs) this.#leases.delete(name)
      else said.push(name, String(Math.floor(endsMs - nowMs)), address)
    }
    return JSON.stringify(said)
  }
}

function shapeOf(record: RuntimeRecord): string {
  const instances = [...record.instances].map(([name, { epoch, replicas }]) => [name, epoch, [...replicas].sort()])
  return JSON.stringify([record.epoch, record.active, record.lostUntilMs, instances.sort()])
}

function textOf({ runtime, epoch, active, version, instances }: RuntimeState): string {
  const list = [runtime, epoch, active, version, 0].map(String)
  for (const [name, one] of instances) list.push(name, [one.epoch, ...one.replicas].join(' '))
  return JSON.stringify(list)
}
