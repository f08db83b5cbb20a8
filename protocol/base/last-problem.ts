/** Why something that is tried again and again does not work, so that its log says that once. */
import { messageOf } from './errors.ts'

export class LastProblem {
  #problem: string | undefined

  /** False if the last attempt has failed in the same way, with the same `input`. */
  isNew(error: unknown, input = ''): boolean {
    const problem = `${input} ${messageOf(error)}`
    const isNew = problem !== this.#problem
    this.#problem = problem
    return isNew
  }

  /** The last attempt has worked. */
  clear(): void {
    this.#problem = undefined
  }
}
