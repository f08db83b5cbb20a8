/** Limits on buffered bytes: one for the process, and under it one for each runtime that has sessions. */
import { type BufferBudget, createBufferBudget, SharedBudget } from '../protocol/base/budget.ts'
import { RuntimeCeilings } from '../protocol/wire/yamux/runtime-ceilings.ts'
import { shedStreams } from '../protocol/wire/yamux/shares.ts'
import type { YamuxStream } from '../protocol/wire/yamux/yamux-stream.ts'

/** As options of `createSession`. */
interface Budgets {
  readonly processBudget: BufferBudget
  readonly runtimeCeilings: RuntimeCeilings
}

/** A network of callers that holds more over all runtimes than any runtime pays first. */
class ProcessBudget extends SharedBudget {
  readonly #runtimes: ReadonlyMap<string, Budgets>

  constructor(limitBytes: number, runtimes: ReadonlyMap<string, Budgets>) {
    super(limitBytes)
    this.#runtimes = runtimes
  }

  *#streams(): IterableIterator<YamuxStream> {
    for (const { runtimeCeilings } of this.#runtimes.values()) yield* runtimeCeilings.streams()
  }

  override shed(bytes: number): number {
    const freed = shedStreams(this, this.#streams(), bytes)
    return freed + super.shed(bytes - freed)
  }
}

export class RuntimeBudgets {
  readonly #runtimeBytes: number
  readonly #all = new Map<string, Budgets>()
  readonly #process: BufferBudget

  constructor(processBytes: number, runtimeBytes: number) {
    this.#process = new ProcessBudget(processBytes, this.#all)
    this.#runtimeBytes = runtimeBytes
  }

  /** Bytes of all runtimes. */
  get usedBytes(): number {
    return this.#process.usedBytes
  }

  /**
   * The budgets of a runtime. They are removed when no session uses them any more. If the runtime's limit is reached, the caller that
   * holds most over all of its sessions pays; if that of the process is, the caller that holds more over all runtimes than any of them
   * does, or else that caller of the runtime that holds most.
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
