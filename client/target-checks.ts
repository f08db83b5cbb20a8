/**
 * Checks whether the targets accept connections, when the server asks. The server names no target: we dial only targets of the
 * routes whose host no caller chooses. It gets route names, times and the error codes that callers get, so it learns nothing
 * that it could not learn by sending a request.
 */
import { CHECKED_LIMITS, type CheckedRoute, isId, MAX_DURATION_MS } from '../protocol/wire/control.ts'
import type { CheckedTarget, CheckedTargets } from '../router/check.ts'

/** Time for each connection. Servers wait only a little longer. */
const TARGET_CHECK_MS = 2000
/** How long the same answer is given again, whoever asks. */
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

  /** Runs one round at a time over all sessions, at most one every 5 s. Rejects if the target's check does. */
  ask(): Promise<TargetsAnswer> {
    const now = performance.now()
    if (this.#round !== undefined && now < this.#endsMs) return this.#round
    this.#endsMs = now + KEPT_MS
    this.#round = this.#check(TARGET_CHECK_MS).then(answerOf)
    return this.#round
  }
}

/** Bounds the answer of an embedder's target, since the server ends a session that sends anything the protocol does not allow. */
function answerOf({ targets, more }: CheckedTargets): TargetsAnswer {
  const sent = targets.slice(0, CHECKED_LIMITS.targets).map(routeOf)
  const omitted = targets.length - sent.length
  return { targets: sent, more: Math.min(whole(more, CHECKED_LIMITS.more) + omitted, CHECKED_LIMITS.more) }
}

function routeOf({ route, ms, error }: CheckedTarget): CheckedRoute {
  const checked = { route: isId(route) ? route : 'unnamed', ms: whole(ms, MAX_DURATION_MS) }
  return error ? { ...checked, code: isId(error.reason) ? error.reason : 'internal' } : checked
}

/** Rounds and bounds a number; 0 for anything else. */
function whole(value: number, most: number): number {
  return Math.min(Math.max(0, Math.round(Number(value)) || 0), most)
}
