import { PRESSURE, SHED_SHARE } from './budget.ts'

/**
 * The ceilings of runtimes that share sessions. A ceiling bounds the bytes of its runtime that all these sessions hold for
 * receivers that have not taken them, so that one runtime takes nothing from the others.
 */
export class RuntimeCeilings {
  readonly #limitBytes: number
  /** Runtimes of which anything is held. */
  readonly #usedBytes = new Map<string, number>()

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes
  }

  /** Below 0: this many bytes are no longer held. */
  add(runtime: string, bytes: number): void {
    const usedBytes = this.usedBytes(runtime) + bytes
    if (usedBytes > 0) this.#usedBytes.set(runtime, usedBytes)
    else this.#usedBytes.delete(runtime)
  }

  usedBytes(runtime: string): number {
    return this.#usedBytes.get(runtime) ?? 0
  }

  /** Runtimes of which anything is held. */
  get runtimes(): number {
    return this.#usedBytes.size
  }

  pressed(runtime: string): boolean {
    return this.usedBytes(runtime) >= this.#limitBytes * PRESSURE
  }

  /** What it has to let go of. */
  excess(runtime: string): number {
    const usedBytes = this.usedBytes(runtime)
    return usedBytes > this.#limitBytes ? usedBytes - this.#limitBytes * (1 - SHED_SHARE) : 0
  }
}
