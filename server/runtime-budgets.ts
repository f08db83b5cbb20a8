/** Limits on buffered bytes: one for the process, and under it one for each runtime that has sessions. */
import { type BufferBudget, createBufferBudget } from '../protocol/base/budget.ts'
import { RuntimeCeilings } from '../protocol/wire/yamux/runtime-ceilings.ts'

/** As options of `createSession`. */
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
   * The budgets of a runtime. They are removed when no session uses them any more. If the runtime's limit is reached, the caller that
   * holds most over all of its sessions pays; if that of the process is, that caller of the runtime that holds most.
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
