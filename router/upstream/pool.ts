/** Connections to one target: takes idle ones, and opens new ones. */
import type { SallyportError } from '../../protocol/base/errors.ts'
import type { ReplayBudget } from '../../protocol/base/replay-budget.ts'
import type { RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import type { UpstreamTarget } from '../target.ts'
import type { UpstreamRequest } from './types.ts'

/** A target's name may lead elsewhere after a while, which only a new connection notices. */
const LIFE_MS = 600_000

/** When a connection that opens now carries no more exchanges. Those that opened together do not all end together. */
export function endOfLife(now: number): number {
  return now + LIFE_MS * (1 - Math.random() / 4)
}

/** A connection that carries one exchange at a time, or a session that carries many. */
export interface PooledUpstream {
  /** `headMs` counts from the last byte of the request. */
  send(request: UpstreamRequest, response: ResponseSink, headMs: number): RequestSink
  /** Whether any byte of the response to the last request has arrived. */
  readonly responseStarted: boolean
}

/** Called once, with either the error or the connection. */
export type OnOpened = (error: SallyportError | undefined, connection: PooledUpstream | undefined) => void

export interface Pool {
  /** For WebSockets, if not this one. Both have the same number of connections together as others. */
  readonly forUpgrades?: Pool | undefined
  /** A connection that `caller` can use at once. */
  take(caller: string): PooledUpstream | undefined
  /** Opens a connection for `caller` or, if they are shared, waits for one being opened. The returned function abandons it. */
  open(caller: string, connectMs: number, done: OnOpened): () => void
  /** Open connections, including idle ones. */
  readonly size: number
  readonly idle: number
  /** Closes idle connections that are due; true if nothing is left and the pool can be forgotten. */
  sweep(now: number): boolean
  /** Closes idle connections at once, and the others when their exchange ends. Nothing is kept from then on. */
  close(): void
}

/** Finds the pool of a target. Do not keep a pool across a wait: one without connections is forgotten. */
export interface Pools {
  readonly replayBudget: ReplayBudget
  poolFor(target: UpstreamTarget, upgrade: boolean): Pool
}
