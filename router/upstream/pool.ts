/** Connections to one target: those that are idle, how many there are, and how a new one comes about. */
import { SallyportError } from '../../protocol/base/errors.ts'
import type { RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import type { UpstreamTarget } from '../target.ts'
import type { UpstreamRequest } from './types.ts'

/** One connection that carries an exchange at a time, or a session that carries many. */
export interface PooledUpstream {
  /** `headMs` counts from the last byte of the request. */
  send(request: UpstreamRequest, response: ResponseSink, headMs: number): RequestSink
  /** Whether a byte of the response to the last request has come. */
  readonly responseStarted: boolean
}

/** Told once: either the error or the connection. */
export type OnOpened = (error: SallyportError | undefined, connection: PooledUpstream | undefined) => void

export interface Pool {
  /** A connection that can be used at once. */
  take(): PooledUpstream | undefined
  /** A new one for `caller` (or, where connections are shared, one that is on its way). The function returned gives it up. */
  open(caller: string, connectMs: number, done: OnOpened): () => void
  /** Open connections, idle ones included. */
  readonly size: number
  readonly idle: number
  /** Closes idle connections that are due; true if nothing is left and the pool can be forgotten. */
  sweep(now: number): boolean
  /** Closes idle ones at once, the others when their exchange ends; nothing is kept from then on. */
  close(): void
}

/** Where exchanges find the pool of their target; one without connections is forgotten, so it is not kept across a wait. */
export interface Pools {
  poolFor(target: UpstreamTarget): Pool
}

/** Ceilings on connections, shared by the pools of one router. */
export class ConnectionBudget {
  readonly perTarget: number
  readonly total: number
  used = 0

  constructor(perTarget: number, total: number) {
    this.perTarget = perTarget
    this.total = total
  }

  /** Undefined if one more is all right. */
  refuse(targetSize: number): SallyportError | undefined {
    if (targetSize < this.perTarget && this.used < this.total) return undefined
    return new SallyportError(
      'overloaded',
      `too many connections to upstreams (${targetSize} here, ${this.used} in all)`,
    )
  }
}
