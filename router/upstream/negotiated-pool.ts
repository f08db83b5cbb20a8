/** Connections to one `https:` target that chooses between HTTP/2 and HTTP/1.1 as each of them opens (ALPN). */
import { performance } from 'node:perf_hooks'
import type { Http1Pool } from './http1-pool.ts'
import type { Http2Pool } from './http2-pool.ts'
import type { TargetConnections } from './places.ts'
import type { OnOpened, Pool, PooledUpstream } from './pool.ts'

/** How long a choice of HTTP/1.1 stands. */
const STANDS_MS = 1_000

export class NegotiatedPool implements Pool {
  readonly #http1: Http1Pool
  readonly #http2: Http2Pool
  /** Apart, since what others speak over HTTP/1.1 says what the target chooses. None of its connections is ever idle. */
  readonly forUpgrades: Http1Pool
  readonly #connections: TargetConnections
  #askedAt = 0

  /** `http2` hands `http1` the connections for which the target chooses HTTP/1.1. */
  constructor(http1: Http1Pool, http2: Http2Pool, forUpgrades: Http1Pool, connections: TargetConnections) {
    this.#http1 = http1
    this.#http2 = http2
    this.forUpgrades = forUpgrades
    this.#connections = connections
  }

  get size(): number {
    return this.#http1.size + this.#http2.size + this.forUpgrades.size
  }

  get idle(): number {
    return this.#http1.idle + this.#http2.idle
  }

  take(caller: string): PooledUpstream | undefined {
    return this.#http2.take(caller) ?? this.#http1.take(caller)
  }

  /**
   * The target may be replaced by one that chooses otherwise, even while it has connections. So if they speak HTTP/1.1, one dial a
   * second offers both again, unless such a dial is under way, or the network of the caller uses its share. Over HTTP/1.1, nobody
   * else waits for the dial of another exchange.
   */
  open(caller: string, connectMs: number, done: OnOpened): () => void {
    const now = performance.now()
    const stands = this.#http2.dialling || now < this.#askedAt + STANDS_MS || this.#connections.isGreedy(caller)
    if (this.#http1.size > 0 && stands) return this.#http1.open(caller, connectMs, done)
    this.#askedAt = now
    return this.#http2.open(caller, connectMs, done)
  }

  sweep(now: number): boolean {
    const left = [this.#http1.sweep(now), this.#http2.sweep(now)]
    return !left.includes(false)
  }

  close(): void {
    this.#http1.close()
    this.#http2.close()
  }
}
