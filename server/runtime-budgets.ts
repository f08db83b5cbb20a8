/** The ceilings on buffered bytes: one of the process, and below it one of each runtime whose sessions hold any or may. */
import { type BufferBudget, createBufferBudget } from '../protocol/wire/yamux/budget.ts'
import { RuntimeCeilings } from '../protocol/wire/yamux/runtime-ceilings.ts'

/** As `createSession` takes them. */
interface Budgets {
  readonly processBudget: BufferBudget
  readonly runtimeCeilings: RuntimeCeilings
}

export class RuntimeBudgets {
  readonly #process: BufferBudget
  readonly #runtimeBytes: number
  readonly #all = new Map<string, Budgets>()

  constructor(processBytes: number, runtimeBytes: number) {
    this.#process = createBufferBudget(processBytes)
    this.#runtimeBytes = runtimeBytes
  }

  /** Bytes of all runtimes. */
  get usedBytes(): number {
    return this.#process.usedBytes
  }

  /**
   * Of the runtime; they stay for as long as sessions are under them. At its own ceiling the caller pays that holds most over all
   * of its sessions, at that of the process the greediest session of the runtime that holds most.
   */
  of(runtime: string): Budgets {
    let budgets = this.#all.get(runtime)
    if (budgets === undefined) {
      const onEmpty = () => this.#all.delete(runtime)
      budgets = {
        processBudget: createBufferBudget(Number.POSITIVE_INFINITY, this.#process, onEmpty),
        runtimeCeilings: new RuntimeCeilings(this.#runtimeBytes),
      }
      this.#all.set(runtime, budgets)
    }
    return budgets
  }
}
