/** The client's token. It is fetched on demand and renewed when a third of its lifetime is left; a quarter left logs a warning. */

import { formatDuration, MAX_TIMER_MS } from '../protocol/base/durations.ts'
import { messageOf } from '../protocol/base/errors.ts'
import { type Guard, logGuard } from '../protocol/base/guard.ts'
import type { Logger } from '../protocol/base/log.ts'
import { isTokenText } from '../protocol/wire/control.ts'
import { readOwnClaims } from './claims.ts'

/** A token, or a function that returns one. It is called again whenever a fresh token is needed. */
export type TokenSource = string | (() => string | Promise<string>)

/** Trims the token. Throws TypeError if it could not be sent in a header and in band. */
export function checkToken(given: unknown): string {
  const token = typeof given === 'string' ? given.trim() : ''
  if (token === '') throw new TypeError('no token was given')
  if (!isTokenText(token)) throw new TypeError('the token is too long, or contains characters that no token has')
  return token
}

interface TokenKeeperOptions {
  readonly source: TokenSource
  /** Called with a token for live sessions to send in band. It is the same as before if it was refused and is to be offered again. */
  readonly onFresh: (token: string, before: string) => void
  readonly logger: Logger
}

/** Time for the source to answer. */
const SOURCE_TIMEOUT_MS = 10_000
/** How long a dial waits for a fresh token if the current one is still good. */
const FRESH_WAIT_MS = 1000
const MIN_RETRY_MS = 500
const MAX_RETRY_MS = 30_000

export class TokenKeeper {
  readonly #onFresh: TokenKeeperOptions['onFresh']
  readonly #logger: Logger
  /** Guards work in the background. A failure ends nothing, since each dial asks again. */
  readonly #guard: Guard
  #source: TokenSource
  #token: string | undefined
  #seenMs = 0
  #refused = false
  /** The token that a server accepted last. */
  #accepted: string | undefined
  /** A token was refused, and the latest has not been accepted since. */
  #disputed = false
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

  /** When the token expires, ms since 1970; `undefined` if there is no token yet or it does not say. */
  get expiresMs(): number | undefined {
    return expiryOf(this.#token)
  }

  /** The same, of the token in force: the one that was accepted last, if the latest is refused. */
  get inForceMs(): number | undefined {
    return expiryOf((this.#disputed ? this.#accepted : undefined) ?? this.#token)
  }

  /** The latest token; `undefined` before the first. A secret. */
  get latest(): string | undefined {
    return this.#token
  }

  /**
   * Returns a token to dial with: the current one, or a fresh one if that was refused or has less than a third of its lifetime left. If the
   * source fails or is late, the current one is used to its end.
   */
  async get(): Promise<string> {
    if (this.#isGood && this.#nowMs() < this.#renewMs()) return this.#token!
    const fetching = this.#fetch()
    if (!this.#isGood) return await fetching
    await withDeadline(Math.min(FRESH_WAIT_MS, this.expiresMs! - this.#nowMs()), fetching).catch(() => {})
    return this.#isGood ? this.#token! : await fetching
  }

  get #isGood(): boolean {
    return this.#token !== undefined && !this.#refused && this.#nowMs() < (this.expiresMs ?? Number.POSITIVE_INFINITY)
  }

  /**
   * Replaces the token. Live sessions send it at once, even if it was refused before, because the server may know its key by
   * now. If the source is a function, it is called again before this token expires. Throws TypeError if it cannot be a token.
   */
  set(given: string): void {
    const token = checkToken(given)
    if (typeof this.#source === 'string') this.#source = token
    this.#take(token)
    this.#offerAgain()
  }

  /** Offers the current token again if it was refused and there is no newer one. */
  #offerAgain(): void {
    if (this.#token === undefined || !this.#refused || this.#closed) return
    this.#refused = false
    this.#schedule()
    this.#onFresh(this.#token, this.#token)
  }

  /** Asks the source for a token now. */
  async refresh(): Promise<void> {
    await this.#fetch()
  }

  /** A server accepted this token. */
  accepted(token: string): void {
    this.#accepted = token
    if (token === this.#token) this.#disputed = false
  }

  /** A server did not accept this token. Ignored unless it is the current one. */
  refused(token: string): void {
    if (token !== this.#token) return
    this.#refused = true
    this.#disputed = true
    this.#schedule()
  }

  /** Takes over the clock of a server that accepted the token, from its `Date`. If it is seconds off ours, it decides when the token expires. */
  serverTime(dateMs: number): void {
    const aheadMs = Date.now() - dateMs
    this.#aheadMs = Math.abs(aheadMs) < 5000 ? 0 : aheadMs
    this.#schedule()
  }

  /** The local clock was set back by this much. The server's clock was not. */
  setBack(byMs: number): void {
    this.#aheadMs -= byMs
    this.#schedule()
  }

  /** Call this when the clock may have advanced without the timer: the machine slept, or the clock was set. */
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
    const token = checkToken(
      typeof source === 'string' ? source : await withDeadline(SOURCE_TIMEOUT_MS, askFor(source)),
    )
    if (this.#isGood && this.#nowMs() >= (expiryOf(token) ?? Number.POSITIVE_INFINITY)) {
      throw new Error('the token source returned a token that has expired')
    }
    this.#take(token)
    return token
  }

  #take(token: string): void {
    if (token === this.#token || this.#closed) return
    const before = this.#token
    this.#token = token
    this.#seenMs = this.#nowMs()
    this.#refused = false
    this.#warned = false
    this.#schedule()
    if (before !== undefined) this.#onFresh(token, before)
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

  /** When this share of the lifetime is left; never, if the token has no expiry. */
  #leftMs(share: number): number {
    const expiresMs = this.expiresMs
    return expiresMs === undefined ? Number.POSITIVE_INFINITY : expiresMs - this.#lifeMs() * share
  }

  /** Sets the single timer for the next event: renewal, the warning, or a retry. */
  #schedule(): void {
    clearTimeout(this.#timer)
    const nowMs = this.#nowMs()
    const waits = this.#warned ? [] : [this.#warnMs() - nowMs]
    if (typeof this.#source === 'function') {
      const untilMs = this.#refused ? 0 : this.#renewMs() - nowMs
      // A refused token may be anything, and may name no expiry. What counts is when the one in force expires.
      waits.push(untilMs > 0 ? untilMs : retryMs((this.inForceMs ?? Number.POSITIVE_INFINITY) - nowMs))
    }
    const waitMs = Math.min(...waits)
    if (this.#closed || waitMs === Number.POSITIVE_INFINITY) return
    const due = this.#guard(() => this.#due())
    this.#timer = setTimeout(due, Math.min(MAX_TIMER_MS, Math.max(0, waitMs)))
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
      // Only the message is logged: the error of a token source may carry credentials of its own.
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

function expiryOf(token: string | undefined): number | undefined {
  const exp = token === undefined ? undefined : readOwnClaims(token)?.exp
  return exp === undefined ? undefined : exp * 1000
}

/** Retries get more frequent towards the expiry. After it, each dial asks as well. */
function retryMs(leftMs: number): number {
  return leftMs <= 0 ? MAX_RETRY_MS : Math.min(MAX_RETRY_MS, Math.max(MIN_RETRY_MS, leftMs / 10))
}

/** Rejects if the source throws. */
async function askFor(source: () => string | Promise<string>): Promise<string> {
  return await source()
}

async function withDeadline<Value>(ms: number, answer: Promise<Value>): Promise<Value> {
  const { promise, reject } = Promise.withResolvers<never>()
  const late = new Error(`the token source did not answer within ${formatDuration(ms)}`)
  const timer = setTimeout(reject, ms, late)
  try {
    return await Promise.race([answer, promise])
  } finally {
    clearTimeout(timer)
  }
}
