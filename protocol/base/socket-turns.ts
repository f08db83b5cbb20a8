/**
 * Leaves others their turns. Within one turn of the event loop, Node may read megabytes of one socket. Handling them takes a few
 * milliseconds if they are bulk, but a hundred times as long if their sender has cut them into the smallest pieces that its
 * protocol has. Requests take longer still to begin. So those that arrive together are begun later, and share the end of a turn.
 */
import { performance } from 'node:perf_hooks'
import type { Duplex } from 'node:stream'
import { type Failing, guardWith, ignore, stepOf } from './guard.ts'

/** A socket whose bytes have taken this long to handle rests: it is not read from in this turn any more. */
const TURN_MS = 2
/** Turns that take less than this are not told apart. Most do. */
const SHORT_TURN_MS = 1
/** Once all sockets together have made a turn this long, each of them rests that has taken more than usual requests do. */
const LONG_TURN_MS = 8
const REQUEST_MS = 0.5
/** The most that is owed. Much of what took longer was collecting garbage, or a process that stood still. */
const MOST_OWED_MS = 8
/** How many turns a socket rests for that if no other does. */
const MOST_TURNS_OWED = MOST_OWED_MS / TURN_MS

interface Handle {
  /** Whether its stream wants to read. It does not know that the handle has stopped. */
  readonly reading?: boolean
  readStart?(): number
  readStop?(): number
}

/** How many requests of one connection begin in one turn. Answers to earlier ones can leave before the next turn. */
const AT_ONCE = 16
/** About this many begin if those of many connections wait. Each begins fewer, so that nobody waits long for the turn of one. */
const AT_ONCE_OF_ALL = 256

/** A connection that has requests to begin. */
export interface Beginner extends Failing {
  /** Begins a few of them. If there are more, it calls {@link beginLater} again. */
  beginMore(most: number): void
}

const guard = guardWith(ignore)
const beginMore = stepOf<Beginner>(beginner => beginner.beginMore(most))
/** Those that rest. */
const resting = new Set<SocketTurns>()
const beginners = new Set<Beginner>()
let most = AT_ONCE
/** What all have taken in this turn. */
let takenMs = 0
let turn = 0
let endIsDue = false

/** The turns of one socket. */
export class SocketTurns {
  readonly #socket: { readonly _handle?: Handle | null }
  #turn = 0
  #tookMs = 0
  #owedMs = 0
  isPaused = false
  /** What its next turn may take, going by those before. */
  expectedMs = 0

  constructor(socket: Duplex) {
    this.#socket = socket as Duplex & { readonly _handle?: Handle | null }
  }

  /** What was read has been handled, from `since` on. */
  took(since: number): void {
    const ms = performance.now() - since
    if (this.#turn !== turn) this.#begin()
    this.#tookMs += ms
    this.#owedMs = Math.min(MOST_OWED_MS, this.#owedMs + ms)
    takenMs += ms
    // A stream that was paused before it read for the first time has started since.
    if (this.isPaused) this.#stop()
    if (takenMs < SHORT_TURN_MS) return
    endSoon()
    if (this.#owedMs < (takenMs < LONG_TURN_MS ? TURN_MS : REQUEST_MS)) return
    this.#stop()
    resting.add(this)
  }

  #stop(): void {
    this.#socket._handle?.readStop?.()
  }

  #begin(): void {
    this.#turn = turn
    this.#tookMs = 0
    if (!resting.has(this)) this.#owedMs = 0
  }

  /** Whether its socket is closed. Nobody waits for what it owes. */
  get hasEnded(): boolean {
    return !this.#socket._handle
  }

  /** The turn ends. Returns what it took of it. */
  settle(): number {
    if (this.#turn !== turn) return 0
    this.expectedMs = Math.max(this.#tookMs, this.expectedMs / 2)
    return this.#tookMs
  }

  /** Returns whether nothing is owed any more. */
  forgive(ms: number): boolean {
    this.#owedMs -= ms
    return this.#owedMs <= 0
  }

  readOn(): void {
    const handle = this.#socket._handle
    if (handle?.reading === true && !this.isPaused) handle.readStart?.()
  }

  /** Whether {@link pause} stops it. */
  get canPause(): boolean {
    return this.#socket._handle?.readStop !== undefined
  }

  /** Stops reading at once. */
  pause(): void {
    this.isPaused = true
    this.#stop()
  }

  resume(): void {
    this.isPaused = false
    if (!resting.has(this)) this.readOn()
  }
}

/** Its requests are begun at the end of this turn, or of a later one if those of many connections wait. */
export function beginLater(beginner: Beginner): void {
  beginners.add(beginner)
  endSoon()
}

/**
 * For a timer: runs the step only after all socket events that are pending by then. Node runs timers first, so if this process
 * stood still, data that arrived in time would still be waiting, some of it until its socket has rested. The step runs even if the timer
 * was cleared meanwhile.
 */
export function heardFirst<Owner>(guarded: (owner: Owner) => void): (owner: Owner) => void {
  const hear: (owner: Owner, turns: number) => void = guard((owner, turns) => {
    if (turns > 0 && resting.size > 0) setImmediate(hear, owner, turns - 1)
    else setImmediate(guarded, owner)
  })
  return owner => hear(owner, MOST_TURNS_OWED)
}

function endSoon(): void {
  if (endIsDue) return
  endIsDue = true
  setImmediate(endTurn)
}

/**
 * However many rest, together they are forgiven the time that all others have taken, or at least that of one. As many read on as will
 * take that long, if they take what they took before. So nobody waits for all that rest, none of them waits for good while others are
 * served, and whoever has taken less rests for less long. Nothing here throws: the methods of a handle return their errors.
 */
const endTurn: () => void = guard(() => {
  const readMs = takenMs
  for (const turns of resting) {
    takenMs -= turns.settle()
    if (turns.hasEnded) resting.delete(turns)
  }
  let leftMs = Math.max(TURN_MS, takenMs)
  const ms = leftMs / resting.size
  turn++
  takenMs = 0
  for (const turns of resting) {
    if (!turns.forgive(ms) || leftMs <= 0) continue
    leftMs -= turns.expectedMs
    resting.delete(turns)
    turns.readOn()
  }
  beginFor(Math.max(TURN_MS, readMs))
  endIsDue = false
  if (resting.size + beginners.size > 0) endSoon()
})

/** Connections begin requests in the order in which they came, each of them once. */
function beginFor(ms: number): void {
  const until = performance.now() + ms
  let left = beginners.size
  most = Math.min(AT_ONCE, Math.ceil(AT_ONCE_OF_ALL / left))
  for (const beginner of beginners) {
    beginners.delete(beginner)
    beginMore(beginner)
    if (--left === 0 || performance.now() > until) return
  }
}
