/**
 * Name resolution for new connections. `getaddrinfo` runs on threads that the whole process shares, and a lookup that has
 * one cannot be taken back. So a name is asked for once for all who wait for it, and names that callers can make up never
 * hold all of these threads.
 */
import dns from 'node:dns'
import type { LookupFunction } from 'node:net'
import { SallyportError } from '../../protocol/base/errors.ts'
import { guardWith } from '../../protocol/base/guard.ts'

type Options = Parameters<LookupFunction>[1]
type Answer = Parameters<LookupFunction>[2]

/** Most names that wait: so many that resolved before, and so many others. */
export const MAX_NAMES_WAITING = 1_024
/** Most names of which it is known that they resolved; the oldest is forgotten. */
const MAX_RESOLVED = 1_024

/** A name that is asked for, or waits for its turn. */
interface Question {
  readonly name: string
  readonly options: Options
  readonly askers: Set<Answer>
}

/** What one connection has of the lookups: `lookup` is for `net` and `tls`; `leave` gives up what it asked. */
interface NameLookup {
  readonly lookup: LookupFunction
  leave(): void
}

export class NameLookups {
  readonly #resolve: LookupFunction
  readonly #atOnce: number
  readonly #underWay = new Map<string, Question>()
  /** Those that wait: names that resolved before have their turn first. */
  readonly #known = new Map<string, Question>()
  readonly #unknown = new Map<string, Question>()
  readonly #resolved = new Set<string>()

  /** At most `atOnce` names are asked for at a time; the others wait. */
  constructor(resolve: LookupFunction, atOnce: number) {
    this.#resolve = resolve
    this.#atOnce = atOnce
  }

  /** Names that are asked for or wait. */
  get size(): number {
    return this.#underWay.size + this.#known.size + this.#unknown.size
  }

  forConnection(): NameLookup {
    let leave: (() => void) | undefined
    return {
      lookup: (name, options, answer) => {
        leave = this.#ask(name, options, answer)
      },
      leave: () => leave?.(),
    }
  }

  /** The function returned gives it up; `answer` is not called then. */
  #ask(name: string, options: Options, answer: Answer): (() => void) | undefined {
    const queue = this.#resolved.has(name) ? this.#known : this.#unknown
    let question = this.#underWay.get(name) ?? this.#known.get(name) ?? this.#unknown.get(name)
    if (question === undefined) {
      if (queue.size >= MAX_NAMES_WAITING) {
        answer(new SallyportError('overloaded', `${MAX_NAMES_WAITING} names wait to be resolved`), '')
        return undefined
      }
      question = { name, options, askers: new Set() }
      queue.set(name, question)
    }
    const { askers } = question
    askers.add(answer)
    this.#askNext()
    return () => {
      if (!askers.delete(answer) || askers.size > 0) return
      this.#known.delete(name)
      this.#unknown.delete(name)
    }
  }

  #askNext(): void {
    while (this.#underWay.size < this.#atOnce) {
      const queue = this.#known.size > 0 ? this.#known : this.#unknown
      const [question] = queue.values()
      if (question === undefined) return
      queue.delete(question.name)
      this.#underWay.set(question.name, question)
      const guard = guardWith(error => tell(question, error as Error, ''))
      this.#resolve(
        question.name,
        question.options,
        guard((...answer: Parameters<Answer>) => this.#answered(question, answer)),
      )
    }
  }

  #answered(question: Question, answer: Parameters<Answer>): void {
    this.#underWay.delete(question.name)
    if (answer[0] === null) this.#remember(question.name)
    this.#askNext()
    tell(question, ...answer)
  }

  #remember(name: string): void {
    this.#resolved.delete(name)
    this.#resolved.add(name)
    const [oldest] = this.#resolved
    if (this.#resolved.size > MAX_RESOLVED) this.#resolved.delete(oldest!)
  }
}

/** Each asker hears once: who is told has left. */
function tell({ askers }: Question, ...answer: Parameters<Answer>): void {
  for (const asker of askers) {
    askers.delete(asker)
    asker(...answer)
  }
}

/** libuv gives `getaddrinfo` half of its threads, of which there are 4 by default. One of that half stays free. */
function atOnceOfCaptured(): number {
  const threads = Number(process.env.UV_THREADPOOL_SIZE ?? 4) || 1
  return Math.max(1, Math.floor((threads + 1) / 2) - 1)
}

const systemLookup: LookupFunction = (name, options, answer) => dns.lookup(name, options, answer)

/** Of the process, as the threads are, whatever number of routers it has. */
const configuredNames = new NameLookups(systemLookup, Infinity)
export const capturedNames = new NameLookups(systemLookup, atOnceOfCaptured())

/** Where a target's name is looked up: captured names wait for each other, and configured ones for nobody. */
export function namesFor(target: { readonly captured: boolean }): NameLookups {
  return target.captured ? capturedNames : configuredNames
}
