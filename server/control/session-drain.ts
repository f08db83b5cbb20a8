/**
 * The orderly end of a session. The end that drains announces it first. The session then takes no new exchanges, ends when its last
 * exchange does, and is cut at its deadline.
 */
import { performance } from 'node:perf_hooks'
import type { Guard } from '../../protocol/base/guard.ts'
import type { Drain } from '../../protocol/wire/control.ts'

/**
 * How long a client that was asked to leave may take to open another session before this one gets no new exchanges. At most half of
 * the time that open exchanges have left.
 */
const MOVE_MS = 5000
/** How long before the end of a session its WebSockets are told to close, so that they have time to answer. */
const FAREWELL_MS = 1000
const MAX_REASON = 120

/** How long a draining session still takes exchanges. */
export interface Stay {
  readonly until: Promise<unknown>
  /** The client can connect elsewhere, so the drain also waits until it has. */
  readonly elsewhere: boolean
}

const STAY: Stay = { until: Promise.resolve(), elsewhere: true }

export interface SessionDrainOwner {
  /** Number of open exchanges. */
  readonly exchanges: number
  readonly guard: Guard
  say(message: object): void
  stopOpening(): void
  /** Ends exchanges that would go on forever. */
  leave(): void
  end(reason: string, code: number): void
}

export class SessionDrain {
  readonly #owner: SessionDrainOwner
  #reason = ''
  /** WebSocket close code for the end of the session when its last exchange ends. 0 while it does not end then. */
  #code = 0
  /** Set while we wait for the client to open its new session. */
  #onMoved: (() => void) | undefined
  #moving: NodeJS.Timeout | undefined
  #farewell: NodeJS.Timeout | undefined
  #deadline: NodeJS.Timeout | undefined
  /** Monotonic time. */
  #endsAt = Number.POSITIVE_INFINITY
  /** The session still takes exchanges, but endless ones are told to end at once. */
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

  /** Tells the client that the session takes no new exchanges from this moment on. */
  begin(reason: string, deadlineMs: number, code: number): void {
    this.#say(reason, 0, deadlineMs)
    this.#endBy(deadlineMs, code)
    this.#finish(code)
  }

  /** The client is leaving. It sends `bye` when it is done. */
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
   * Sets the deadline. Exchanges that would go on forever are told to end shortly before it; others are not disturbed. A deadline can
   * only be moved closer, whoever sets another one, and however often.
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

  /** Takes no new exchanges, and ends when the last one does. */
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

/** Makes a reason fit for a message: short, without control characters, and without half a surrogate pair at its end. */
function sayable(reason: string): string {
  return reason
    .replace(/\p{Cc}/gu, ' ')
    .slice(0, MAX_REASON)
    .toWellFormed()
}

/** How long endless exchanges may go on if everything must end in `deadlineMs`. */
export function untilFarewell(deadlineMs: number): number {
  return deadlineMs - Math.min(FAREWELL_MS, deadlineMs / 5)
}
