/** Forwards an operator's question to all replicas that share a store. */
import type { Logger } from '../../protocol/base/log.ts'

/** Answers a question that an operator asked at another replica. Resolves to a JSON value. */
export type AnswerOthers = (what: string, body: object, by: string) => Promise<unknown>

/** The replica that asks. */
export interface AskingReplica {
  readonly replica: string
  /** Replicas that are probably there, whether or not they listen. May name this one, and one twice. */
  readonly known: () => readonly string[]
  readonly logger: Logger
}

export interface SharedOperators {
  /** Set by the owner. Absent: this replica does not answer. */
  answer: AnswerOthers | undefined
  /** Listens, and keeps trying. Resolves whether or not the first attempt succeeded. */
  open(): Promise<void>
  /**
   * Asks all other replicas. Resolves to the answers that came in time, and `{ problem }` for each that failed or if some are
   * missing. Rejects if they cannot be asked.
   */
  ask(what: string, body: object): Promise<unknown[]>
  close(): void
}
