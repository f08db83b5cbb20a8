/** Why something that is tried again and again does not work, so that its log says that once. */
import { messageOf } from './errors.ts'

export class LastProblem {
  #message: string | undefined

  /** False if the last attempt has failed in the same way. */
  isNew(error: unknown): boolean {
    const message = messageOf(error)
    const isNew = message !== this.#message
    this.#message = message
    return isNew
  }

  /** The last attempt has worked. */
  clear(): void {
    this.#message = undefined
  }
}
