/**
 * Name resolution for new connections. `getaddrinfo` runs on threads that the whole process shares, and a lookup cannot be
 * cancelled. So one lookup serves everyone who waits for a name, and neither names that callers make up nor names whose
 * resolver is silent may occupy all threads. Such names wait in a queue in which networks take turns, so that no network keeps
 * the others waiting.
 */
import dns from 'node:dns'
import type { LookupFunction } from 'node:net'
import { networkOf } from '../../protocol/base/address.ts'
import { SallyportError } from '../../protocol/base/errors.ts'
import { guardWith } from '../../protocol/base/guard.ts'

type Options = Parameters<LookupFunction>[1]
type Answer = Parameters<LookupFunction>[2]

/** Most names that may wait: this many that resolved before, and as many others. */
export const MAX_NAMES_WAITING = 1_024
/** Most names that are remembered as resolved, and as slow. */
const MAX_REMEMBERED = 1_024
/** If both kinds wait, this many names that resolved before go first for each of the others. */
const KNOWN_IN_A_ROW = 64
/** A name is slow if its lookup failed after more than this. One that succeeded late may have waited for a thread. */
const SLOW_MS = 1_000

/** A name that is being looked up, or waits for its turn. */
interface Question {
  readonly name: string
  readonly options: Options
  /** Waiting callers by network. */
  readonly askers: Map<string, Set<Answer>>
}

/** The lookups as one connection sees them. `lookup` is for `net` and `tls`; `leave` abandons the question. */
interface NameLookup {
  readonly lookup: LookupFunction
  leave(): void
}

export class NameLookups {
  readonly #resolve: LookupFunction
  readonly #atOnce: number
  /** Names whose last lookup was slow, if only these wait. Undefined if all names wait. */
  readonly #slow: Set<string> | undefined
  readonly #underWay = new Map<string, Question>()
  /** How many lookups in progress had to wait for their turn. */
  #turns = 0
  /** The waiting names. Those that resolved before go first, but not always. */
  readonly #known = new Line()
  readonly #unknown = new Line()
  readonly #resolved = new Set<string>()
  #knownInARow = 0

  /** At most `atOnce` names are looked up at a time; the others wait. With `slowAlone`, that applies only to slow names, and no others wait. */
  constructor(resolve: LookupFunction, atOnce: number, slowAlone = false) {
    this.#resolve = resolve
    this.#atOnce = atOnce
    this.#slow = slowAlone ? new Set() : undefined
  }

  /** Names that are being looked up or wait. */
  get size(): number {
    return this.#underWay.size + this.#known.size + this.#unknown.size
  }

  /** `caller`: address of the caller. */
  forConnection(caller: string): NameLookup {
    let leave: (() => void) | undefined
    return {
      lookup: (name, options, answer) => {
        leave = this.#ask(name, options, networkOf(caller), answer)
      },
      leave: () => leave?.(),
    }
  }

  /** The returned function abandons the question; `answer` is then not called. */
  #ask(name: string, options: Options, network: string, answer: Answer): () => void {
    const asked = this.#underWay.get(name)
    const line = this.#known.has(name) || this.#resolved.has(name) ? this.#known : this.#unknown
    const waits = this.#slow?.has(name) ?? true
    const question = asked ?? (waits ? line.enter(name, options, network) : { name, options, askers: new Map() })
    if (question === undefined) {
      answer(overloaded(), '')
      return () => {}
    }
    const askers = question.askers.get(network) ?? new Set()
    question.askers.set(network, askers.add(answer))
    if (asked === undefined && !waits) this.#begin(question, () => {})
    else this.#askNext()
    return () => {
      if (!askers.delete(answer) || askers.size > 0) return
      question.askers.delete(network)
      line.leave(question, network)
    }
  }

  #askNext(): void {
    while (this.#turns < this.#atOnce) {
      const question = this.#next()
      if (question === undefined) return
      this.#turns++
      this.#begin(question, () => this.#turns--)
    }
  }

  #begin(question: Question, over: () => void): void {
    const { name, options } = question
    const begun = performance.now()
    this.#underWay.set(name, question)
    const guard = guardWith(error => answerAll(question, error as Error, ''))
    const onAnswer = guard((...answer: Parameters<Answer>) => {
      over()
      this.#keepSlow(name, answer[0] !== null && performance.now() - begun > SLOW_MS)
      this.#answered(question, answer)
    })
    this.#resolve(name, options, onAnswer)
  }

  #keepSlow(name: string, isSlow: boolean): void {
    this.#slow?.delete(name)
    if (isSlow && this.#slow !== undefined) keep(this.#slow, name)
  }

  #next(): Question | undefined {
    const turnOfUnknown = this.#knownInARow >= KNOWN_IN_A_ROW && this.#unknown.size > 0
    const known = turnOfUnknown ? undefined : this.#known.next()
    this.#knownInARow = known === undefined ? 0 : this.#knownInARow + 1
    return known ?? this.#unknown.next()
  }

  #answered(question: Question, answer: Parameters<Answer>): void {
    this.#underWay.delete(question.name)
    if (answer[0] === null) this.#remember(question.name)
    this.#askNext()
    answerAll(question, ...answer)
  }

  #remember(name: string): void {
    this.#resolved.delete(name)
    keep(this.#resolved, name)
  }
}

/**
 * The waiting names. Networks take turns. When all places are taken, the network with the most places loses its newest to one
 * that has fewer.
 */
class Line {
  readonly #names = new Map<string, Question>()
  /** Networks in the order of their turns, each with its names in the order of arrival. */
  readonly #networks = new Map<string, Set<Question>>()

  get size(): number {
    return this.#names.size
  }

  has(name: string): boolean {
    return this.#names.has(name)
  }

  /** Adds `network` to the question for `name`, and returns it. Undefined if there is no place for it. */
  enter(name: string, options: Options, network: string): Question | undefined {
    let question = this.#names.get(name)
    if (question === undefined) {
      if (this.size >= MAX_NAMES_WAITING && !this.#makeRoom(network)) return undefined
      question = { name, options, askers: new Map() }
      this.#names.set(name, question)
    }
    const questions = this.#networks.get(network) ?? new Set()
    this.#networks.set(network, questions.add(question))
    return question
  }

  /** Call it when nobody in `network` waits for the name any more. Does nothing if it has had its turn. */
  leave(question: Question, network: string): void {
    const questions = this.#networks.get(network)
    if (questions?.delete(question) !== true) return
    if (questions.size === 0) this.#networks.delete(network)
    if (question.askers.size === 0) this.#names.delete(question.name)
  }

  /** Takes out the name whose turn it is. */
  next(): Question | undefined {
    const [turn] = this.#networks
    if (turn === undefined) return undefined
    const [network, questions] = turn
    const [question] = questions
    this.#networks.delete(network)
    this.#networks.set(network, questions)
    for (const asking of question!.askers.keys()) this.leave(question!, asking)
    this.#names.delete(question!.name)
    return question
  }

  #makeRoom(network: string): boolean {
    const own = this.#networks.get(network)?.size ?? 0
    while (this.size >= MAX_NAMES_WAITING) {
      let greediest: [network: string, questions: Set<Question>] | undefined
      for (const each of this.#networks) {
        if (each[1].size > (greediest?.[1].size ?? own + 1)) greediest = each
      }
      if (greediest === undefined) return false
      this.#refuse([...greediest[1]].at(-1)!, greediest[0])
    }
    return true
  }

  #refuse(question: Question, network: string): void {
    const askers = question.askers.get(network)
    question.askers.delete(network)
    this.leave(question, network)
    answerEach(askers, overloaded(), '')
  }
}

function overloaded(): SallyportError {
  return new SallyportError('overloaded', `${MAX_NAMES_WAITING} names wait to be resolved`)
}

function answerAll({ askers }: Question, ...answer: Parameters<Answer>): void {
  for (const each of askers.values()) answerEach(each, ...answer)
}

/** Answers each asker once. Those who were answered have left. */
function answerEach(askers: Set<Answer> | undefined, ...answer: Parameters<Answer>): void {
  for (const asker of askers ?? []) {
    askers!.delete(asker)
    asker(...answer)
  }
}

/** Adds `name` as the newest, and forgets the oldest. */
function keep(names: Set<string>, name: string): void {
  names.add(name)
  const [oldest] = names
  if (names.size > MAX_REMEMBERED) names.delete(oldest!)
}

/** libuv gives `getaddrinfo` half of its threads, of which there are 4 by default. */
const threads = Math.floor(((Number(process.env.UV_THREADPOOL_SIZE ?? 4) || 1) + 1) / 2)
const slowAtOnce = Math.max(1, Math.floor(threads / 4))
/** One thread stays free if there are more than two. */
const capturedAtOnce = Math.max(1, threads - slowAtOnce - 1)

const systemLookup: LookupFunction = (name, options, answer) => dns.lookup(name, options, answer)

/** One for the whole process, since all routers share its threads. */
const configuredNames = new NameLookups(systemLookup, slowAtOnce, true)
export const capturedNames = new NameLookups(systemLookup, capturedAtOnce)

/** The lookups for a target. Captured names wait for each other. Of the configured ones, only slow ones wait for each other. */
export function namesFor(target: { readonly captured: boolean }): NameLookups {
  return target.captured ? capturedNames : configuredNames
}
