/**
 * What follows an attempt. Pure: the caller provides the clock and the random numbers.
 *
 *     waiting ──▶ an attempt ──▶ delivered
 *       ▲             │
 *       │ a step      ├──▶ dead: refused for good, or three times; expired; poison; damaged; bad MAC
 *       └─────────────┘
 */
import type { ErrorCode } from '../../protocol/base/errors.ts'
import { type Message, type Progress, REFUSED } from './store.ts'

/** The outcome of an attempt. */
export interface Outcome {
  readonly kind: OutcomeKind
  /** The error code or the status, for people. */
  readonly reason: string
  readonly retryAfterMs?: number | undefined
}

/**
 * `offline`: nobody was there to deliver to, so it does not count as an attempt. `gone`: it will never be accepted.
 * `damaged`: what the store holds is unusable.
 */
export type OutcomeKind = 'delivered' | 'refused' | 'gone' | 'failed' | 'offline' | 'damaged'

const STEPS_MS = [1000, 5000, 30_000, 120_000, 300_000, 600_000]
const SPREAD = 0.2
/** A receiver that is just starting may refuse what it accepts a moment later. */
const REFUSED_STEPS_MS = [10_000, 240_000]
const MAX_REFUSALS = REFUSED_STEPS_MS.length + 1
/** After this, the next message of the lane is tried, to find out whether the receiver or the message is at fault. */
const SUSPECT_FAILURES = 10
const SUSPECT_MS = 30 * 60_000
/** Most messages behind the first one that are tried. Each is tried only if all messages before it are suspect. */
export const MAX_TESTS = 8
/** They all begin within this time. If the receiver recovered between the first attempt and the last, the messages would be blamed. */
export const TESTS_MS = 10_000

/** Statuses that say nothing about the message itself. */
const PASSING: ReadonlySet<number> = new Set([408, 425, 429])
const GONE: ReadonlySet<number> = new Set([410, 413])
/** Our own error codes of what a router refuses, whatever its receiver does. Retries would let strangers hold up a lane with forgeries. */
const REFUSED_FOR_GOOD: ReadonlySet<ErrorCode | undefined> = new Set<ErrorCode | undefined>([
  'bad-request',
  'no-route',
  'webhook-signature',
  'caller-not-allowed',
])
/** Our own error codes that mean that the request never reached the receiver. */
const NOT_TRIED: ReadonlySet<ErrorCode | undefined> = new Set<ErrorCode | undefined>([
  'runtime-offline',
  'overloaded',
  'too-many-requests',
])

/** Whether the sender gets an answer with this status, since it tells what is wrong with the webhook. */
export function isForSender(status: number): boolean {
  return status < 500 && !PASSING.has(status)
}

/** `code` is the error code that the answer carries, if it is one of ours. */
export function outcomeOf(status: number, code: ErrorCode | undefined, retryAfterMs?: number): Outcome {
  const reason = code ?? String(status)
  if (status >= 200 && status < 300) return { kind: 'delivered', reason }
  if (NOT_TRIED.has(code)) return { kind: 'offline', reason }
  if (!isForSender(status)) return { kind: 'failed', reason, retryAfterMs }
  return { kind: GONE.has(status) || REFUSED_FOR_GOOD.has(code) ? 'gone' : 'refused', reason }
}

/** What becomes of a message after an attempt. `random` is between 0 and 1. */
export function progressOf(message: Message, outcome: Outcome, now: number, random: number): Progress {
  const { kind, reason } = outcome
  if (kind === 'delivered') return { state: 'delivered', reason }
  if (kind === 'offline') return { attempts: Math.max(0, message.attempts - 1), next: now, reason }
  if (kind === 'damaged') return { state: 'dead', reason }
  if (kind === 'gone') return { state: 'dead', reason: REFUSED + reason }
  const failedSince = message.failedSince === 0 ? now : message.failedSince
  if (kind === 'refused') {
    const refusals = message.refusals + 1
    if (refusals >= MAX_REFUSALS) return { refusals, failedSince, state: 'dead', reason: REFUSED + reason }
    return { refusals, failedSince, reason, next: now + spread(REFUSED_STEPS_MS[refusals - 1]!, random) }
  }
  const failures = message.failures + 1
  const step = STEPS_MS[Math.min(failures, STEPS_MS.length) - 1]!
  const asked = Math.min(Math.max(outcome.retryAfterMs ?? 0, step), 2 * step)
  return { failures, failedSince, reason, next: now + spread(asked, random) }
}

/**
 * The same for a message that was tried before its turn. It then waits for its turn, not for a time. A refusal does not count either:
 * while a receiver is down, something in front of it may refuse everything.
 */
export function progressOfTest(message: Message, outcome: Outcome, now: number, random: number): Progress {
  const { next: _, refusals: __, ...progress } = progressOf({ ...message, refusals: 0 }, outcome, now, random)
  return progress
}

/** The longest possible wait for the next attempt. A longer one means that the clock has been set back since. */
export function longestWaitMs({ failures, refusals }: Pick<Message, 'failures' | 'refusals'>): number {
  const failed = STEPS_MS[Math.min(failures, STEPS_MS.length) - 1] ?? 0
  return Math.max(2 * failed, REFUSED_STEPS_MS[refusals - 1] ?? 0) * (1 + SPREAD)
}

function spread(ms: number, random: number): number {
  return Math.round(ms * (1 + SPREAD * (2 * random - 1)))
}

/** The receiver closed the connection under the first message, and refused one for the message behind it. */
export function tookReceiverDown(first: Pick<Message, 'reason'>, second: Pick<Message, 'reason'>): boolean {
  const [closed, refused]: ErrorCode[] = ['upstream-broken', 'upstream-refused']
  return first.reason === closed && second.reason === refused
}

/** Whether the message may be at fault rather than the receiver. */
export function isSuspect({ failures, failedSince }: Pick<Message, 'failures' | 'failedSince'>, now: number): boolean {
  return failures >= SUSPECT_FAILURES || (failures > 0 && now - failedSince >= SUSPECT_MS)
}

/** The same for a message that was tried before its turn. */
export function isSuspectOfTest(message: Message, { kind }: Outcome, now: number): boolean {
  return isSuspect(kind === 'refused' ? { ...message, failures: Math.max(1, message.failures) } : message, now)
}
