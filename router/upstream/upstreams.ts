/** All upstreams of a router or forwarder: one pool per target and TLS identity (R5), within one budget. */
import { performance } from 'node:perf_hooks'
import { SallyportError } from '../../protocol/base/errors.ts'
import { type Guard, logGuard, safeLogger } from '../../protocol/base/guard.ts'
import { type LimitOptions, type Limits, resolveLimits } from '../../protocol/base/limit.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { ReplayBudget } from '../../protocol/base/replay-budget.ts'
import type { RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import { SocketReader } from '../../protocol/http/http1/socket-reader.ts'
import type { UpstreamTarget } from '../target.ts'
import { SecureContexts } from './dial.ts'
import { UpstreamExchange } from './exchange.ts'
import { Http1Pool } from './http1-pool.ts'
import { Http2Pool } from './http2-pool.ts'
import { NegotiatedPool } from './negotiated-pool.ts'
import { ConnectionBudget, TargetConnections } from './places.ts'
import type { Pool, Pools } from './pool.ts'
import type { ForwardOptions, UpstreamRequest } from './types.ts'

export const UPSTREAM_LIMITS = {
  maxConnectionsPerTarget: { kind: 'count', default: '2048', about: 'Most connections to one target.' },
  maxUpstreamConnections: { kind: 'count', default: '8192', about: 'Most connections to all targets together.' },
  idleMs: {
    kind: 'duration',
    default: '4s',
    zero: 'connections are not reused',
    about: 'How long an idle connection may be reused, but never longer than its `Keep-Alive: timeout` less 1 s.',
  },
} as const satisfies Limits

/** Most bytes of one body that are kept for sending again, and of all bodies. */
const REPLAY_BYTES = 64 * 1024
const REPLAY_TOTAL_BYTES = 64 * 1024 * 1024

/** Limits on connections to upstreams. */
export interface UpstreamsOptions extends LimitOptions<typeof UPSTREAM_LIMITS> {
  logger?: Logger | undefined
}

export interface UpstreamsStats {
  targets: number
  connections: number
  idle: number
}

const SWEEP_MS = 1_000
/** Most targets in use at a time. Captured names could otherwise make any number. */
const MAX_TARGETS = 8_192

export class Upstreams implements Pools {
  readonly replayBudget = new ReplayBudget(REPLAY_BYTES, REPLAY_TOTAL_BYTES)
  readonly #pools = new Map<string, Pool>()
  readonly #contexts = new SecureContexts()
  readonly #reader = new SocketReader()
  readonly #budget: ConnectionBudget
  readonly #idleMs: number
  readonly #guard: Guard
  #sweeper: NodeJS.Timeout | undefined
  #closed = false

  constructor(options: UpstreamsOptions = {}) {
    const limits = resolveLimits(UPSTREAM_LIMITS, options)
    this.#budget = new ConnectionBudget(limits.maxConnectionsPerTarget, limits.maxUpstreamConnections)
    this.#idleMs = limits.idleMs
    this.#guard = logGuard(safeLogger(options.logger), 'sweeping connections to upstreams failed')
  }

  forward(
    target: UpstreamTarget,
    request: UpstreamRequest,
    options: ForwardOptions,
    response: ResponseSink,
  ): RequestSink {
    const exchange = new UpstreamExchange(this, target, request, options, response)
    exchange.start()
    return exchange
  }

  poolFor(target: UpstreamTarget, upgrade: boolean): Pool {
    if (this.#closed) return refusing('the router is closed')
    const pool = this.#pools.get(target.key) ?? this.#addPool(target)
    return (upgrade && pool.forUpgrades) || pool
  }

  #addPool(target: UpstreamTarget): Pool {
    if (this.#pools.size >= MAX_TARGETS) this.#sweep()
    if (this.#pools.size >= MAX_TARGETS) return refusing(`${MAX_TARGETS} targets are in use`)
    const pool = makePool(target, this.#contexts, new TargetConnections(this.#budget), this.#idleMs, this.#reader)
    this.#pools.set(target.key, pool)
    this.#sweeper ??= setInterval(this.#guard(this.#sweep), SWEEP_MS).unref()
    return pool
  }

  readonly #sweep = (): void => {
    const now = performance.now()
    for (const [key, pool] of this.#pools) if (pool.sweep(now)) this.#pools.delete(key)
    if (this.#pools.size > 0) return
    clearInterval(this.#sweeper)
    this.#sweeper = undefined
  }

  stats(): UpstreamsStats {
    let connections = 0
    let idle = 0
    for (const pool of this.#pools.values()) {
      connections += pool.size
      idle += pool.idle
    }
    return { targets: this.#pools.size, connections, idle }
  }

  /** Idle connections close at once, others when their exchange ends. */
  close(): void {
    this.#closed = true
    clearInterval(this.#sweeper)
    this.#sweeper = undefined
    for (const pool of this.#pools.values()) pool.close()
    this.#pools.clear()
  }
}

/** A pool that speaks what `target` does. */
export function makePool(
  target: UpstreamTarget,
  contexts: SecureContexts,
  connections: TargetConnections,
  idleMs: number,
  reader: SocketReader,
): Pool {
  const shared = [contexts, connections, idleMs] as const
  if (target.protocol === 'h2c') return new Http2Pool(target, ...shared)
  const newHttp1 = () => new Http1Pool(target.http1 ?? target, ...shared, reader)
  const http1 = newHttp1()
  if (target.http1 === undefined) return http1
  return new NegotiatedPool(http1, new Http2Pool(target, ...shared, http1), newHttp1(), connections)
}

/** Stands in for a pool when no other may be created. */
function refusing(why: string): Pool {
  return {
    size: 0,
    idle: 0,
    take: () => undefined,
    open: (_caller, _connectMs, done) => {
      done(new SallyportError('overloaded', why), undefined)
      return () => {}
    },
    sweep: () => true,
    close: () => {},
  }
}
