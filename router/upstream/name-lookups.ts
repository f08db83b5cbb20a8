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
const MAX_KNOWN_IN_A_ROW = 64
/** A name is slow if its lookup failed after more than this. One that succeeded late may have waited for a thread. */
const SLOW_MS = 1_000

/** A name that is being looked up, or waits for its turn. */
interface PendingName {
  readonly name: string
  readonly options: Options
  /** Waiting callers by network. */
  readonly waiters: Map<string, Set<Answer>>
}

/** The lookups as one connection sees them. `lookup` is for `net` and `tls`; `leave` abandons the lookup. */
interface NameLookup {
  readonly lookup: LookupFunction
  leave(): void
}

export class NameLookups {
  readonly #resolve: LookupFunction
  readonly #atOnce: number
  /** Names whose last lookup was slow, if only these wait. Undefined if all names wait. */
  readonly #slow: Set<string> | undefined
  readonly #inProgress = new Map<string, PendingName>()
  /** How many lookups in progress had to wait for their turn. */
  #turns = 0
  /** The waiting names. Those that resolved before go first, but not always. */
  readonly #known = new Queue()
  readonly #unknown = new Queue()
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
    return this.#inProgress.size + this.#known.size + this.#unknown.size
  }

  /** `caller`: address of the caller. */
  forConnection(caller: string): NameLookup {
    let leave: (() => void) | undefined
    return {
      lookup: (name, options, answer) => {
        leave = this.#lookUp(name, options, networkOf(caller), answer)
      },
      leave: () => leave?.(),
    }
  }

  /** The returned function abandons the lookup; `answer` is then not called. */
  #lookUp(name: string, options: Options, network: string, answer: Answer): () => void {
    const current = this.#inProgress.get(name)
    const queue = this.#known.has(name) || this.#resolved.has(name) ? this.#known : this.#unknown
    const waits = this.#slow?.has(name) ?? true
    const pending = current ?? (waits ? queue.enter(name, options, network) : { name, options, waiters: new Map() })
    if (pending === undefined) {
      answer(overloaded(), '')
      return () => {}
    }
    const waiters = pending.waiters.get(network) ?? new Set()
    pending.waiters.set(network, waiters.add(answer))
    if (current === undefined && !waits) this.#begin(pending, () => {})
    else this.#startNext()
    return () => {
      if (!waiters.delete(answer) || waiters.size > 0) return
      pending.waiters.delete(network)
      queue.leave(pending, network)
    }
  }

  #startNext(): void {
    while (this.#turns < this.#atOnce) {
      const pending = this.#next()
      if (pending === undefined) return
      this.#turns++
      this.#begin(pending, () => this.#turns--)
    }
  }

  #begin(pending: PendingName, over: () => void): void {
    const { name, options } = pending
    const begun = performance.now()
    this.#inProgress.set(name, pending)
    const guard = guardWith(error => answerAll(pending, error as Error, ''))
    const onAnswer = guard((...answer: Parameters<Answer>) => {
      over()
      this.#keepSlow(name, answer[0] !== null && performance.now() - begun > SLOW_MS)
      this.#answered(pending, answer)
    })
    this.#resolve(name, options, onAnswer)
  }

  #keepSlow(name: string, isSlow: boolean): void {
    this.#slow?.delete(name)
    if (isSlow && this.#slow !== undefined) keep(this.#slow, name)
  }

  #next(): PendingName | undefined {
    const turnOfUnknown = this.#knownInARow >= MAX_KNOWN_IN_A_ROW && this.#unknown.size > 0
    const known = turnOfUnknown ? undefined : this.#known.next()
    this.#knownInARow = known === undefined ? 0 : this.#knownInARow + 1
    return known ?? this.#unknown.next()
  }

  #answered(pending: PendingName, answer: Parameters<Answer>): void {
    this.#inProgress.delete(pending.name)
    if (answer[0] === null) this.#remember(pending.name)
    this.#startNext()
    answerAll(pending, ...answer)
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
class Queue {
  readonly #names = new Map<string, PendingName>()
  /** Networks in the order of their turns, each with its names in the order of arrival. */
  readonly #networks = new Map<string, Set<PendingName>>()

  get size(): number {
    return this.#names.size
  }

  has(name: string): boolean {
    return this.#names.has(name)
  }

  /** Adds `network` to those that wait for `name`, and returns it. Undefined if there is no place for it. */
  enter(name: string, options: Options, network: string): PendingName | undefined {
    let pending = this.#names.get(name)
    if (pending === undefined) {
      if (this.size >= MAX_NAMES_WAITING && !this.#makeRoom(network)) return undefined
      pending = { name, options, waiters: new Map() }
      this.#names.set(name, pending)
    }
    const names = this.#networks.get(network) ?? new Set()
    this.#networks.set(network, names.add(pending))
    return pending
  }

  /** Call it when nobody in `network` waits for the name any more. Does nothing if it has had its turn. */
  leave(pending: PendingName, network: string): void {
    const names = this.#networks.get(network)
    if (names?.delete(pending) !== true) return
    if (names.size === 0) this.#networks.delete(network)
    if (pending.waiters.size === 0) this.#names.delete(pending.name)
  }

  /** Takes out the name whose turn it is. */
  next(): PendingName | undefined {
    const [turn] = this.#networks
    if (turn === undefined) return undefined
    const [network, names] = turn
    const [pending] = names
    this.#networks.delete(network)
    this.#networks.set(network, names)
    for (const waiting of pending!.waiters.keys()) this.leave(pending!, waiting)
    this.#names.delete(pending!.name)
    return pending
  }

  #makeRoom(network: string): boolean {
    const own = this.#networks.get(network)?.size ?? 0
    while (this.size >= MAX_NAMES_WAITING) {
      let greediest: [network: string, names: Set<PendingName>] | undefined
      for (const each of this.#networks) {
        if (each[1].size > (greediest?.[1].size ?? own + 1)) greediest = each
      }
      if (greediest === undefined) return false
      this.#refuse([...greediest[1]].at(-1)!, greediest[0])
    }
    return true
  }

  #refuse(pending: PendingName, network: string): void {
    const waiters = pending.waiters.get(network)
    pending.waiters.delete(network)
    this.leave(pending, network)
    answerEach(waiters, overloaded(), '')
  }
}

function overloaded(): SallyportError {
  return new SallyportError('overloaded', `${MAX_NAMES_WAITING} names wait to be resolved`)
}

function answerAll({ waiters }: PendingName, ...answer: Parameters<Answer>): void {
  for (const each of waiters.values()) answerEach(each, ...answer)
}

/** Answers each waiter once. Those who were answered have left. */
function answerEach(waiters: Set<Answer> | undefined, ...answer: Parameters<Answer>): void {
  for (const waiter of waiters ?? []) {
    waiters!.delete(waiter)
    waiter(...answer)
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
