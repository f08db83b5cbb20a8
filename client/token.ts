/** The client's token: fetched when it is needed, renewed when a third of its life is left, warned of at a quarter. */

import { formatDuration, MAX_TIMER_MS } from '../protocol/base/durations.ts'
import { messageOf } from '../protocol/base/errors.ts'
import { type Guard, logGuard } from '../protocol/base/guard.ts'
import type { Logger } from '../protocol/base/log.ts'
import { isTokenText } from '../protocol/wire/control.ts'
import { readOwnClaims } from './claims.ts'

/** A token, or a function that returns one. It is called again whenever a fresh token is needed. */
export type TokenSource = string | (() => string | Promise<string>)

/**
 * A token without the white space around it. Throws TypeError for one that could be sent neither in a header nor in band.
 */
export function checkToken(given: unknown): string {
  const token = typeof given === 'string' ? given.trim() : ''
  if (token === '') throw new TypeError('no token was given')
  if (!isTokenText(token)) throw new TypeError('the token is too long, or holds characters that no token has')
  return token
}

interface TokenKeeperOptions {
  readonly source: TokenSource
  /** A token that differs from the one before: live sessions send it in band. */
  readonly onFresh: (token: string) => void
  readonly logger: Logger
}

/** The source must answer in this time. */
const SOURCE_TIMEOUT_MS = 10_000
const MIN_RETRY_MS = 500
const MAX_RETRY_MS = 30_000

export class TokenKeeper {
  readonly #onFresh: (token: string) => void
  readonly #logger: Logger
  /** What goes wrong beside its callers ends nothing: dials ask again. */
  readonly #guard: Guard
  #source: TokenSource
  #token: string | undefined
  #seenMs = 0
  #refused = false
  #fetching: Promise<string> | undefined
  #timer: NodeJS.Timeout | undefined
  #warned = false
  #aheadMs = 0
  #closed = false

  constructor(options: TokenKeeperOptions) {
    this.#source = options.source
    this.#onFresh = options.onFresh
    this.#logger = options.logger
    this.#guard = logGuard(options.logger, 'the token could not be renewed')
  }

  /** When the token ends, ms since 1970; `undefined` if there is none yet or it does not say. */
  get expiresMs(): number | undefined {
    const exp = this.#token === undefined ? undefined : readOwnClaims(this.#token)?.exp
    return exp === undefined ? undefined : exp * 1000
  }

  /** The last token that came; `undefined` before the first. A secret. */
  get latest(): string | undefined {
    return this.#token
  }

  /** A token worth showing: the one at hand, or a fresh one if that was refused or is in its last third. */
  async get(): Promise<string> {
    if (this.#token !== undefined && !this.#refused && this.#nowMs() < this.#renewMs()) return this.#token
    return await this.#fetch()
  }

  /**
   * Puts a token in force; live sessions send it at once, also one that was refused before: by now the server may know its
   * key. A source that is a function is asked when it ends. Throws TypeError for what is no token.
   */
  set(given: string): void {
    const token = checkToken(given)
    if (typeof this.#source === 'string') this.#source = token
    this.#take(token)
    this.#offerAgain()
  }

  /** The token at hand once more, if it was refused and no other has come. */
  #offerAgain(): void {
    if (this.#token === undefined || !this.#refused || this.#closed) return
    this.#refused = false
    this.#schedule()
    this.#onFresh(this.#token)
  }

  /** Asks the source for a token now. */
  async refresh(): Promise<void> {
    await this.#fetch()
  }

  /** A server did not take this token. What it says of an older one than that at hand is of no interest any more. */
  refused(token: string): void {
    if (token !== this.#token) return
    this.#refused = true
    this.#schedule()
  }

  /** The clock of a server that took the token, from its `Date`. If it differs from ours by seconds, it decides when the token ends. */
  serverTime(dateMs: number): void {
    const aheadMs = Date.now() - dateMs
    this.#aheadMs = Math.abs(aheadMs) < 5000 ? 0 : aheadMs
    this.#schedule()
  }

  /** The clock on the wall was set back by so much; the server's was not. */
  setBack(byMs: number): void {
    this.#aheadMs -= byMs
    this.#schedule()
  }

  /** To be called when the clock has gone on without the timer: the machine slept, or somebody set it. */
  look(): void {
    if (!this.#closed) this.#due()
  }

  close(): void {
    this.#closed = true
    clearTimeout(this.#timer)
  }

  #fetch(): Promise<string> {
    this.#fetching ??= this.#ask().finally(() => {
      this.#fetching = undefined
      this.#schedule()
    })
    return this.#fetching
  }

  async #ask(): Promise<string> {
    const source = this.#source
    const token = checkToken(typeof source === 'string' ? source : await withDeadline(async () => await source()))
    this.#take(token)
    return token
  }

  #take(token: string): void {
    if (token === this.#token || this.#closed) return
    const first = this.#token === undefined
    this.#token = token
    this.#seenMs = this.#nowMs()
    this.#refused = false
    this.#warned = false
    this.#schedule()
    if (!first) this.#onFresh(token)
  }

  #nowMs(): number {
    return Date.now() - this.#aheadMs
  }

  #lifeMs(): number {
    const claims = this.#token === undefined ? undefined : readOwnClaims(this.#token)
    if (claims?.exp === undefined) return Number.POSITIVE_INFINITY
    const fromMs = claims.iat === undefined ? this.#seenMs : claims.iat * 1000
    return Math.max(0, claims.exp * 1000 - fromMs)
  }

  #renewMs(): number {
    return this.#leftMs(1 / 3)
  }

  #warnMs(): number {
    return this.#leftMs(1 / 4)
  }

  /** When this share of the life is left; never, if the token does not say when it ends. */
  #leftMs(share: number): number {
    const expiresMs = this.expiresMs
    return expiresMs === undefined ? Number.POSITIVE_INFINITY : expiresMs - this.#lifeMs() * share
  }

  /** Sets the one timer for what comes next: renewal, the warning, or another try. */
  #schedule(): void {
    clearTimeout(this.#timer)
    const expiresMs = this.expiresMs
    if (this.#closed || expiresMs === undefined) return
    const nowMs = this.#nowMs()
    const waits: number[] = []
    if (!this.#warned) waits.push(this.#warnMs() - nowMs)
    if (typeof this.#source === 'function') {
      const untilMs = this.#refused ? 0 : this.#renewMs() - nowMs
      waits.push(untilMs > 0 ? untilMs : retryMs(expiresMs - nowMs))
    }
    if (waits.length === 0) return
    const delayMs = Math.min(MAX_TIMER_MS, Math.max(0, Math.min(...waits)))
    const due = this.#guard(() => this.#due())
    this.#timer = setTimeout(due, delayMs)
    this.#timer.unref()
  }

  #due(): void {
    const nowMs = this.#nowMs()
    if (!this.#warned && nowMs >= this.#warnMs()) this.#warn(nowMs)
    if (typeof this.#source !== 'function' || (!this.#refused && nowMs < this.#renewMs())) {
      this.#schedule()
      return
    }
    const failed = this.#guard((error: unknown) => {
      // No more of it than that: an error of whatever asked for the token may hold its own credentials.
      this.#logger.warn({ err: { message: messageOf(error) } }, 'could not get a fresh token')
    })
    this.#fetch()
      .then(() => this.#offerAgain())
      .catch(failed)
  }

  #warn(nowMs: number): void {
    this.#warned = true
    const leftMs = (this.expiresMs ?? nowMs) - nowMs
    const when = leftMs > 0 ? `expires in ${formatDuration(leftMs)}` : `expired ${formatDuration(-leftMs)} ago`
    this.#logger.warn({ leftMs }, `the token ${when} and was not renewed`)
  }
}

/** More often as the end comes near; after it, each dial asks besides. */
function retryMs(leftMs: number): number {
  return leftMs <= 0 ? MAX_RETRY_MS : Math.min(MAX_RETRY_MS, Math.max(MIN_RETRY_MS, leftMs / 10))
}

async function withDeadline<Value>(run: () => Promise<Value>): Promise<Value> {
  const { promise, reject } = Promise.withResolvers<never>()
  const late = new Error(`the source of the token did not answer within ${formatDuration(SOURCE_TIMEOUT_MS)}`)
  const timer = setTimeout(reject, SOURCE_TIMEOUT_MS, late)
  try {
    return await Promise.race([run(), promise])
  } finally {
    clearTimeout(timer)
  }
}
