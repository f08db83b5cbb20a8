/** How long to wait before the next attempt to connect. Full jitter keeps a thousand clients from returning at once. */
import { type LimitOptions, type Limits, type LimitValues, resolveLimits } from '../../protocol/base/limit.ts'

export const BACKOFF_LIMITS = {
  firstMs: { kind: 'duration', default: '1s', about: 'Upper bound of the first wait. It doubles with each failure.' },
  capMs: { kind: 'duration', default: '30s', about: 'Upper bound of any wait.' },
  resetMs: {
    kind: 'duration',
    default: '60s',
    zero: 'after any session',
    about: 'The back-off starts over after a session that lived this long.',
  },
  refusedMs: {
    kind: 'duration',
    default: '10s',
    about: 'How long to wait after a refusal: a random time between half of this and this, doubling up to `capMs`.',
  },
  moveMs: {
    kind: 'duration',
    default: '20s',
    about:
      'If two connections share a replica and there may be others, or if a session is outdated (its inbox rules have changed, or the token is bound to another certificate): how long to wait before opening a new session, a random time between half of this and this. It doubles with each try, up to 10 min.',
  },
} as const satisfies Limits

/** How long a client waits between attempts. */
export type BackoffOptions = LimitOptions<typeof BACKOFF_LIMITS>

/** If sessions die sooner than this again and again, the server admits clients only to drop them, so we slow down. */
const SHORT_MS = 1000
const SHORT_CAP_MS = 5000
const MOVE_CAP_MS = 600_000

/** Computes the waits of one connection. It holds no timer. */
export class Backoff {
  readonly #limits: LimitValues<typeof BACKOFF_LIMITS>
  readonly #source: () => number
  #failures = 0
  #refusals = 0
  #short = 0
  #moves = 0

  constructor(options: BackoffOptions = {}, random: () => number = Math.random) {
    this.#limits = resolveLimits(BACKOFF_LIMITS, options, 'backoff')
    this.#source = random
  }

  /** The wait after a failed attempt. */
  failed(): number {
    this.#refusals = 0
    return this.#random() * this.#grow(this.#limits.firstMs, this.#failures++)
  }

  /** The wait after an attempt without any answer, if the client was connected before. Such attempts burden nobody, and the network may come back. */
  silent(): number {
    return this.#random() * this.#limits.firstMs
  }

  /** The wait after a refusal. It is longer, because only a person or a new token can help. */
  refused(): number {
    const upper = this.#grow(this.#limits.refusedMs, this.#refusals++)
    return upper / 2 + (this.#random() * upper) / 2
  }

  /** The wait after a session that ended without a drain. The first attempt follows within `firstMs`, whatever failed before. */
  lost(livedMs: number): number {
    this.#refusals = 0
    if (livedMs >= this.#limits.resetMs) this.#failures = 0
    this.#short = livedMs < SHORT_MS ? this.#short + 1 : 0
    return this.#random() * Math.min(SHORT_CAP_MS, this.#grow(this.#limits.firstMs, Math.max(0, this.#short - 1)))
  }

  /**
   * The wait when the server asks us to leave: 0, since the next session should be open before this one ends. It grows for a
   * server that admits clients only to send them away.
   */
  left(livedMs: number): number {
    if (livedMs < SHORT_MS)
      return this.#random() * Math.min(SHORT_CAP_MS, this.#grow(this.#limits.firstMs, this.#short++))
    this.#failures = 0
    this.#short = 0
    return 0
  }

  /**
   * The wait when the server ends a session that we were leaving and we have no other. It may be back soon, whatever failed
   * before, so the first attempt follows within `firstMs`.
   */
  gone(livedMs: number): number {
    if (livedMs >= SHORT_MS) this.#failures = 0
    return this.#random() * this.#limits.firstMs
  }

  /** The wait before trying another replica beside the session in service. `again`: the last try failed. */
  move(again: boolean): number {
    this.#moves = again ? this.#moves + 1 : 0
    const upper = Math.min(MOVE_CAP_MS, this.#limits.moveMs * 2 ** Math.min(this.#moves, 20))
    return upper / 2 + (this.#random() * upper) / 2
  }

  /** An embedder's source may throw or return anything. An invalid wait would end the connection or dial without pause. */
  #random(): number {
    try {
      const share = this.#source()
      if (share >= 0 && share <= 1) return share
    } catch {}
    return Math.random()
  }

  #grow(firstMs: number, times: number): number {
    return Math.min(this.#limits.capMs, firstMs * 2 ** Math.min(times, 20))
  }
}
