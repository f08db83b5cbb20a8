/** The ceilings on buffered bytes: one of the process, and below it one of each runtime that has sessions. */
import { BufferBudget } from '../protocol/yamux/budget.ts'

interface Entry {
  readonly budget: BufferBudget
  sessions: number
}

export class RuntimeBudgets {
  readonly #process: BufferBudget
  readonly #runtimeBytes: number
  readonly #all = new Map<string, Entry>()

  constructor(processBytes: number, runtimeBytes: number) {
    this.#process = new BufferBudget(processBytes)
    this.#runtimeBytes = runtimeBytes
  }

  /** For one more session of the runtime. */
  enter(runtime: string): BufferBudget {
    let entry = this.#all.get(runtime)
    if (entry === undefined) {
      entry = { budget: new BufferBudget(this.#runtimeBytes, this.#process), sessions: 0 }
      this.#all.set(runtime, entry)
    }
    entry.sessions++
    return entry.budget
  }

  /** One of its sessions has ended. */
  leave(runtime: string): void {
    const entry = this.#all.get(runtime)
    if (entry !== undefined && --entry.sessions === 0) this.#all.delete(runtime)
  }
}
