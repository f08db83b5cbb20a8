/** The directory of a server that stands alone. */
import type { Claim, Directory, Grant } from './directory.ts'

interface Entry {
  epoch: number
  active: string | undefined
  /** Epochs of instances, those that left included. */
  readonly epochs: Map<string, number>
  readonly present: Set<string>
}

/** Instances of one runtime that are remembered; the oldest that left are forgotten first. */
const MAX_INSTANCES = 32
/** Runtimes that are remembered after their last instance left. */
const MAX_RUNTIMES = 100_000
/** An epoch that a client presents over this is taken as none. */
const MAX_EPOCH = 2 ** 48

export class MemoryDirectory implements Directory {
  readonly #entries = new Map<string, Entry>()

  async ready(claim: Claim): Promise<Grant> {
    const entry = this.#entry(claim.runtime)
    entry.present.add(claim.instance)
    const held = entry.epochs.get(claim.instance)
    if (held === undefined) {
      const presented = Number.isSafeInteger(claim.lastEpoch) && claim.lastEpoch <= MAX_EPOCH ? claim.lastEpoch : 0
      this.#remember(entry, claim.instance, presented > 0 ? presented : entry.epoch + 1)
    }
    const epoch = entry.epochs.get(claim.instance)!
    if (epoch > entry.epoch || entry.active === undefined) entry.active = claim.instance
    if (epoch >= entry.epoch) entry.epoch = epoch
    else if (entry.active === claim.instance) return this.#grantNew(entry, claim.instance)
    return { epoch, active: entry.active === claim.instance }
  }

  async promote(runtime: string, instance: string): Promise<Grant> {
    const entry = this.#entry(runtime)
    if (entry.active === instance) return { epoch: entry.epochs.get(instance)!, active: true }
    return this.#grantNew(entry, instance)
  }

  left(runtime: string, instance: string): void {
    const entry = this.#entries.get(runtime)
    if (entry === undefined) return
    entry.present.delete(instance)
    if (entry.active === instance) entry.active = undefined
  }

  async close(): Promise<void> {
    this.#entries.clear()
  }

  #grantNew(entry: Entry, instance: string): Grant {
    entry.epoch++
    entry.active = instance
    entry.present.add(instance)
    this.#remember(entry, instance, entry.epoch)
    return { epoch: entry.epoch, active: true }
  }

  #remember(entry: Entry, instance: string, epoch: number): void {
    entry.epochs.delete(instance)
    entry.epochs.set(instance, epoch)
    if (entry.epochs.size <= MAX_INSTANCES) return
    for (const known of entry.epochs.keys()) {
      if (entry.present.has(known)) continue
      entry.epochs.delete(known)
      return
    }
  }

  #entry(runtime: string): Entry {
    let entry = this.#entries.get(runtime)
    if (entry !== undefined) return entry
    if (this.#entries.size >= MAX_RUNTIMES) this.#forgetOne()
    entry = { epoch: 0, active: undefined, epochs: new Map(), present: new Set() }
    this.#entries.set(runtime, entry)
    return entry
  }

  #forgetOne(): void {
    for (const [runtime, entry] of this.#entries) {
      if (entry.present.size > 0) continue
      this.#entries.delete(runtime)
      return
    }
  }
}
