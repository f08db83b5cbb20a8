/**
 * How a session ends in order. Whoever drains says so first; the session then takes nothing new, ends when its last
 * exchange does, and is cut at its deadline.
 */
import { performance } from 'node:perf_hooks'
import type { Guard } from '../../protocol/base/guard.ts'
import type { Drain } from '../../protocol/wire/control.ts'

/**
 * How long a client that was asked to leave has to open another session, before this one gets no new exchanges; at most
 * half of what is left to those that it has.
 */
const MOVE_MS = 5000
/** Before a session ends, WebSockets that are told to close have so long to answer. */
const FAREWELL_MS = 1000
const MAX_REASON = 120

/** Until when a session that is to end takes exchanges. */
export interface Stay {
  readonly until: Promise<unknown>
  /** There is somewhere else to go, so the drain also waits until the client is there. */
  readonly elsewhere: boolean
}

const STAY: Stay = { until: Promise.resolve(), elsewhere: true }

export interface SessionDrainOwner {
  /** Exchanges that are open. */
  readonly exchanges: number
  readonly guard: Guard
  say(message: object): void
  stopOpening(): void
  /** Finishes what would go on for ever. */
  leave(): void
  end(reason: string, code: number): void
}

export class SessionDrain {
  readonly #owner: SessionDrainOwner
  #reason = ''
  /** WebSocket close code with which the session ends as soon as its last exchange does; 0: it does not. */
  #code = 0
  /** Set while we wait for the client to have its new session. */
  #onMoved: (() => void) | undefined
  #moving: NodeJS.Timeout | undefined
  #farewell: NodeJS.Timeout | undefined
  #deadline: NodeJS.Timeout | undefined
  /** Of a clock that never goes back. */
  #endsAt = Number.POSITIVE_INFINITY
  /** The session still takes exchanges, but no endless ones. */
  leaving = false

  constructor(owner: SessionDrainOwner) {
    this.#owner = owner
  }

  /** Asks the client to leave; see `RuntimeSession.drain`. */
  ask(reason: string, afterMs: number, deadlineMs: number, code: number, stay: Stay = STAY): void {
    const { guard } = this.#owner
    this.#say(reason, afterMs, deadlineMs)
    const finish = guard(() => this.#finish(code))
    const stayed = guard(() => {
      clearTimeout(this.#moving)
      this.#onMoved = undefined
      stay.until.then(finish, finish)
    })
    clearTimeout(this.#moving)
    if (stay.elsewhere) {
      this.#onMoved = stayed
      this.#moving = setTimeout(stayed, afterMs + Math.min(MOVE_MS, (deadlineMs - afterMs) / 2)).unref()
    } else stayed()
    this.#endBy(deadlineMs, code)
  }

  /** The client has its new session, or cannot have one. */
  moved(): void {
    this.#onMoved?.()
  }

  /** Tells the client that it takes nothing more from this moment on. */
  begin(reason: string, deadlineMs: number, code: number): void {
    this.#say(reason, 0, deadlineMs)
    this.#endBy(deadlineMs, code)
    this.#finish(code)
  }

  /** The client leaves: it says bye when it is done. */
  follow({ reason, deadlineMs }: Drain, lastStream: number, code: number): void {
    this.#reason = `the client drains: ${reason}`
    this.#endBy(deadlineMs, code)
    this.#owner.stopOpening()
    this.#owner.say({ type: 'drained', lastStream })
  }

  /** An exchange of the session is over. */
  released(): void {
    if (this.#code === 0 || this.#owner.exchanges > 0) return
    this.#owner.say({ type: 'bye', reason: sayable(this.#reason) })
    this.#owner.end(this.#reason, this.#code)
  }

  #say(reason: string, afterMs: number, deadlineMs: number): void {
    this.#reason = sayable(reason)
    this.#owner.say({
      type: 'drain',
      reason: this.#reason,
      afterMs: Math.floor(afterMs),
      deadlineMs: Math.floor(deadlineMs),
    })
  }

  /**
   * What would go on for ever is finished shortly before the session ends: what ends by itself is not disturbed. A deadline
   * only comes nearer, whoever names another one, and however often.
   */
  #endBy(deadlineMs: number, code: number): void {
    const { guard } = this.#owner
    const endsAt = performance.now() + deadlineMs
    if (endsAt >= this.#endsAt) return
    this.#endsAt = endsAt
    const leave = guard(() => {
      this.leaving = true
      this.#owner.leave()
    })
    const end = guard(() => this.#owner.end(this.#reason, code))
    clearTimeout(this.#farewell)
    clearTimeout(this.#deadline)
    this.#farewell = setTimeout(leave, untilFarewell(deadlineMs)).unref()
    this.#deadline = setTimeout(end, deadlineMs).unref()
  }

  /** Takes nothing new, and ends when its last exchange does. */
  #finish(code: number): void {
    this.#owner.stopOpening()
    this.#code = code
    this.released()
  }

  stop(): void {
    for (const timer of [this.#moving, this.#farewell, this.#deadline]) clearTimeout(timer)
    this.#code = 0
  }
}

/** What a peer can read in a message: no control characters, nor half of one that was cut. */
function sayable(reason: string): string {
  return reason
    .replace(/\p{Cc}/gu, ' ')
    .slice(0, MAX_REASON)
    .toWellFormed()
}

/** How long endless exchanges may go on, if all must end in `deadlineMs`. */
export function untilFarewell(deadlineMs: number): number {
  return deadlineMs - Math.min(FAREWELL_MS, deadlineMs / 5)
}
