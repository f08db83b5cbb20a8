/** The ceilings on buffered bytes: one of the process, and below it one of each runtime whose sessions hold any or may. */
import { type BufferBudget, createBufferBudget } from '../protocol/wire/yamux/budget.ts'

export class RuntimeBudgets {
  readonly #process: BufferBudget
  readonly #runtimeBytes: number
  readonly #all = new Map<string, BufferBudget>()

  constructor(processBytes: number, runtimeBytes: number) {
    this.#process = createBufferBudget(processBytes)
    this.#runtimeBytes = runtimeBytes
  }

  /** Bytes of all runtimes. */
  get usedBytes(): number {
    return this.#process.usedBytes
  }

  /** Of the runtime; it stays for as long as sessions are under it. */
  of(runtime: string): BufferBudget {
    let budget = this.#all.get(runtime)
    if (budget === undefined) {
      budget = createBufferBudget(this.#runtimeBytes, this.#process, () => this.#all.delete(runtime))
      this.#all.set(runtime, budget)
    }
    return budget
  }
}
