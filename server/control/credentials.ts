/** The credentials of a session: its token, fresh tokens that come in band, and the callers that they allow. */

import type { Guard } from '../../protocol/base/guard.ts'
import { TokenBucket } from '../../protocol/base/token-bucket.ts'
import { type Cidrs, parseCidrs } from '../../protocol/http/forwarded.ts'
import type { Identity } from '../auth/claims.ts'

/** How many tokens are checked at once, and per second in the long run. Each check costs a signature. */
const REAUTH_BURST = 100
const REAUTHS_PER_SECOND = 1

export interface CredentialsOwner {
  readonly clockToleranceS: number
  /** Milliseconds since 1970. */
  readonly now: () => number
  readonly guard: Guard
  /** Checks a token; rejects with the reason. */
  check(token: string): Promise<Identity>
  say(message: object): void
  /** A token that came in band was not accepted. */
  refused(error: unknown): void
  /** A token that came in band is in force. */
  renewed(): void
  /** The token has ended. */
  ended(): void
}

export class Credentials {
  readonly #owner: CredentialsOwner
  #renewals: TokenBucket | undefined
  #announced: readonly string[] | undefined
  #checking = false
  #ended = false
  identity: Identity
  /** Who may call; undefined: everybody. */
  callers: Cidrs | undefined

  constructor(owner: CredentialsOwner, identity: Identity) {
    this.#owner = owner
    this.identity = identity
  }

  /** Whether the token holds at this moment. */
  get hold(): boolean {
    return this.#owner.now() < (this.identity.expiresAt + this.#owner.clockToleranceS) * 1000
  }

  /** To be called often: says when the token has ended, once. */
  check(): void {
    if (this.#ended || this.hold) return
    this.#ended = true
    this.#owner.ended()
  }

  /** Takes the client's list of allowed callers; the token's list overrides it. Returns false if it cannot be read. */
  announce(callers: readonly string[] | undefined): boolean {
    this.#announced = callers
    return this.#read(this.identity)
  }

  #read({ allowCallers }: Identity): boolean {
    const list = allowCallers ?? this.#announced
    try {
      this.callers = list === undefined ? undefined : parseCidrs(list)
      return true
    } catch {
      return false
    }
  }

  /** A fresh token came in band. The old one holds until it has been found good. */
  renew(token: string): void {
    const { guard, say, check, refused } = this.#owner
    this.#renewals ??= new TokenBucket(REAUTH_BURST, REAUTHS_PER_SECOND)
    if (this.#checking || !this.#renewals.take()) {
      say({ type: 'reauth-refused' })
      return
    }
    this.#checking = true
    const guarded = <T>(step: (value: T) => void) =>
      guard((value: T) => {
        this.#checking = false
        step(value)
      })
    check(token).then(
      guarded(identity => this.#renewed(identity)),
      guarded(error => refused(error)),
    )
  }

  #renewed(identity: Identity): void {
    if (!this.#read(identity)) {
      this.#owner.say({ type: 'reauth-refused' })
      return
    }
    this.identity = identity
    this.#owner.renewed()
    this.#owner.say({ type: 'reauth-ok', expiresMs: Math.floor(identity.expiresAt * 1000) })
  }
}
