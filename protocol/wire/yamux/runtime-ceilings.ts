import { PRESSURE, SHED_SHARE } from './budget.ts'

/**
 * The ceiling of each runtime in sessions that many share: bytes that they hold of it, over all of these sessions, for receivers
 * that have not taken them. It takes nothing from the others by holding much.
 */
export class RuntimeCeilings {
  readonly #limitBytes: number
  /** Runtimes of which anything is held. */
  readonly #usedBytes = new Map<string, number>()

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes
  }

  /** Less than 0: so many are held no longer. */
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
