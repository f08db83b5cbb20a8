/** How long to wait before the next attempt to connect: full jitter, so that a thousand clients do not return at once. */
import { type LimitOptions, type Limits, type LimitValues, resolveLimits } from '../../protocol/base/limit.ts'

export const BACKOFF_LIMITS = {
  firstMs: { kind: 'duration', default: '1s', about: 'Upper end of the first wait; it doubles with each failure.' },
  capMs: { kind: 'duration', default: '30s', about: 'Upper end of any wait.' },
  resetMs: {
    kind: 'duration',
    default: '60s',
    zero: 'behind any session',
    about: 'The back-off starts over after a session that lived this long.',
  },
  refusedMs: {
    kind: 'duration',
    default: '10s',
    about: 'How long to wait after a refused token: between half of this and this, doubling up to `capMs`.',
  },
  moveMs: {
    kind: 'duration',
    default: '20s',
    about:
      'Where two connections have one replica and there may be others: between half of this and this, another is tried; then twice that, up to 10 min.',
  },
} as const satisfies Limits

/** How long a client waits between attempts. */
export type BackoffOptions = LimitOptions<typeof BACKOFF_LIMITS>

/** Where sessions die sooner than this again and again, the server lets clients in only to drop them: slow down. */
const SHORT_MS = 1000
const SHORT_CAP_MS = 5000
const MOVE_CAP_MS = 600_000

/** The waits of one connection, in turn. Holds no timer. */
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

  /** After an attempt that failed. */
  failed(): number {
    this.#refusals = 0
    return this.#random() * this.#grow(this.#limits.firstMs, this.#failures++)
  }

  /** After an attempt that nothing answered, of a client that was connected: it burdens nobody, and the path may return. */
  silent(): number {
    return this.#random() * this.#limits.firstMs
  }

  /** After an answer that says no: slower, because only a person or a new token can help. */
  refused(): number {
    const upper = this.#grow(this.#limits.refusedMs, this.#refusals++)
    return upper / 2 + (this.#random() * upper) / 2
  }

  /** After a session that ended without a drain: the first attempt comes within `firstMs`, whatever failed before it. */
  lost(livedMs: number): number {
    this.#refusals = 0
    if (livedMs >= this.#limits.resetMs) this.#failures = 0
    this.#short = livedMs < SHORT_MS ? this.#short + 1 : 0
    return this.#random() * Math.min(SHORT_CAP_MS, this.#grow(this.#limits.firstMs, Math.max(0, this.#short - 1)))
  }

  /**
   * When the server asks us to leave: 0, since the next session is to be there before this one ends; but for a server that
   * lets clients in only to send them away.
   */
  left(livedMs: number): number {
    if (livedMs < SHORT_MS)
      return this.#random() * Math.min(SHORT_CAP_MS, this.#grow(this.#limits.firstMs, this.#short++))
    this.#failures = 0
    this.#short = 0
    return 0
  }

  /**
   * When the server ends the session that was left, and no other is there: it may be back soon, and what failed before says
   * nothing of that. The first attempt comes within `firstMs`.
   */
  gone(livedMs: number): number {
    if (livedMs >= SHORT_MS) this.#failures = 0
    return this.#random() * this.#limits.firstMs
  }

  /** Until another replica is tried, beside the session in service; `again` after one that came to nothing. */
  move(again: boolean): number {
    this.#moves = again ? this.#moves + 1 : 0
    const upper = Math.min(MOVE_CAP_MS, this.#limits.moveMs * 2 ** Math.min(this.#moves, 20))
    return upper / 2 + (this.#random() * upper) / 2
  }

  /** An embedder's source may throw or say anything: a wait that is none would end the connection, or dial without pause. */
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
