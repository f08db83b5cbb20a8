/**
 * Asks the client of a session which targets of its routes accept connections. There is one question at a time; callers that ask
 * meanwhile get the same answer. A client may answer late, twice, unasked or never. Only the first answer to the open question counts.
 */
import type { Guard } from '../../protocol/base/guard.ts'
import type { CheckAnswered, CheckAsked, CheckedRoute } from '../../protocol/wire/control.ts'

/** A client gives each target 2 s, and replicas must answer each other within 3 s. */
const ANSWER_MS = 2500

/** What a client reports about its targets, or why there is no report. */
export type TargetsAnswer =
  | { readonly targets: readonly CheckedRoute[]; readonly more: number }
  | { readonly problem: 'unsupported' | 'no-answer' }

interface TargetQuestionsOwner {
  readonly guard: Guard
  say(message: CheckAsked): void
}

interface Open {
  readonly id: number
  readonly answer: Promise<TargetsAnswer>
  settle(answer: TargetsAnswer): void
}

export class TargetQuestions {
  readonly #owner: TargetQuestionsOwner
  #open: Open | undefined
  #asked = 0

  constructor(owner: TargetQuestionsOwner) {
    this.#owner = owner
  }

  /** Resolves within `ANSWER_MS`, whatever the client does. */
  ask(): Promise<TargetsAnswer> {
    this.#open ??= this.#question()
    return this.#open.answer
  }

  answered({ id, targets, more }: CheckAnswered): void {
    if (this.#open?.id === id) this.#open.settle({ targets, more })
  }

  /** The session has ended. */
  stop(): void {
    this.#open?.settle({ problem: 'no-answer' })
  }

  #question(): Open {
    const id = this.#asked++
    const { promise, resolve } = Promise.withResolvers<TargetsAnswer>()
    const late = this.#owner.guard(() => this.#open?.settle({ problem: 'no-answer' }))
    const timer = setTimeout(late, ANSWER_MS).unref()
    this.#owner.say({ type: 'check', id })
    const settle = (answer: TargetsAnswer) => {
      clearTimeout(timer)
      this.#open = undefined
      resolve(answer)
    }
    return { id, answer: promise, settle }
  }
}
