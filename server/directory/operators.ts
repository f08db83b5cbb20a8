/** What an operator asks of one replica, asked of all that share a store. */

/** Does, here, what another replica was asked for; resolves to a JSON value. */
export type AnswerOthers = (what: string, body: object, by: string) => Promise<unknown>

export interface SharedOperators {
  /** Set by the owner; absent, nobody here answers. */
  answer: AnswerOthers | undefined
  /** Listens, and goes on trying by itself. Resolves whether or not it succeeded. */
  open(): Promise<void>
  /**
   * Asks all other replicas; resolves to what those say that answer in time, and `{ problem }` where one could not answer, or
   * some did not. Rejects if they cannot be asked.
   */
  ask(what: string, body: object): Promise<unknown[]>
  close(): void
}
