/**
 * Whether the targets take connections, for a server that asks. It names none: what is dialled is what the routes name, where no caller
 * has a say. It gets names of routes, times and the codes that callers get, so it learns nothing that a request of its own would not tell.
 */
import { CHECKED_LIMITS, type CheckedRoute, isId, MAX_DURATION_MS } from '../protocol/wire/control.ts'
import type { CheckedTarget, CheckedTargets } from '../router/check.ts'

/** For each connection. Servers wait little longer. */
const TARGET_CHECK_MS = 2000
/** So long an answer is given again, whoever asks. */
const KEPT_MS = 5000

/** The answer, without its id. */
interface TargetsAnswer {
  readonly targets: CheckedRoute[]
  readonly more: number
}

export class TargetChecks {
  readonly #check: (connectMs: number) => Promise<CheckedTargets>
  #round: Promise<TargetsAnswer> | undefined
  #endsMs = 0

  constructor(check: (connectMs: number) => Promise<CheckedTargets>) {
    this.#check = check
  }

  /** One round at a time, over all sessions, and none within 5 s of another. Rejects where the target does. */
  ask(): Promise<TargetsAnswer> {
    const now = performance.now()
    if (this.#round !== undefined && now < this.#endsMs) return this.#round
    this.#endsMs = now + KEPT_MS
    this.#round = this.#check(TARGET_CHECK_MS).then(answerOf)
    return this.#round
  }
}

/** An embedder's target may say anything, and a server ends a session that tells it what the protocol has not. */
function answerOf({ targets, more }: CheckedTargets): TargetsAnswer {
  const told = targets.slice(0, CHECKED_LIMITS.targets).map(routeOf)
  const untold = targets.length - told.length
  return { targets: told, more: Math.min(whole(more, CHECKED_LIMITS.more) + untold, CHECKED_LIMITS.more) }
}

function routeOf({ route, ms, error }: CheckedTarget): CheckedRoute {
  const told = { route: isId(route) ? route : 'unnamed', ms: whole(ms, MAX_DURATION_MS) }
  return error ? { ...told, code: isId(error.reason) ? error.reason : 'internal' } : told
}

/** 0 for what is no number. */
function whole(value: number, most: number): number {
  return Math.min(Math.max(0, Math.round(Number(value)) || 0), most)
}
