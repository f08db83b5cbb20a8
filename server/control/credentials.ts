/** The credentials of a session: its token, fresh tokens that come in band, and the callers that they allow. */

import { type Cidrs, isNetwork, parseCidrs } from '../../protocol/base/address.ts'
import type { Guard } from '../../protocol/base/guard.ts'
import { TokenBucket } from '../../protocol/base/token-bucket.ts'
import type { Identity } from '../auth/claims.ts'

/** How many tokens are checked in a burst, and per second in the long run. Each check verifies a signature. */
const REAUTH_BURST = 100
const REAUTHS_PER_SECOND = 1

export interface CredentialsOwner {
  readonly clockToleranceS: number
  /** Milliseconds since 1970. */
  readonly now: () => number
  readonly guard: Guard
  /** Verifies a token. Rejects with the reason. */
  check(token: string): Promise<Identity>
  say(message: object): void
  /** Called when a fresh token was refused. */
  refused(error: unknown): void
  /** Called when a fresh token is in force. */
  renewed(): void
  /** Called when the token has expired. */
  ended(): void
}

export class Credentials {
  readonly #owner: CredentialsOwner
  #renewals: TokenBucket | undefined
  #announced: readonly string[] | undefined
  #checking = false
  #ended = false
  identity: Identity
  /** Addresses that may call. `undefined` means everybody. */
  callers: Cidrs | undefined

  constructor(owner: CredentialsOwner, identity: Identity) {
    this.#owner = owner
    this.identity = identity
  }

  /** Whether the token is valid at this moment. */
  get hold(): boolean {
    return this.#owner.now() < (this.identity.expiresAt + this.#owner.clockToleranceS) * 1000
  }

  /** Call it often. Calls `ended` once the token has expired. */
  check(): void {
    if (this.#ended || this.hold) return
    this.#ended = true
    this.#owner.ended()
  }

  /** Sets the client's list of allowed callers. The token's list overrides it. Returns false if it is malformed. */
  announce(callers: readonly string[] | undefined): boolean {
    if (callers?.every(isNetwork) === false) return false
    this.#announced = callers
    this.#read()
    return true
  }

  #read(): void {
    const list = this.identity.allowCallers ?? this.#announced
    this.callers = list && parseCidrs(list)
  }

  /** A fresh token has arrived. The old one stays in force until the fresh one is verified. */
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
    this.identity = identity
    this.#read()
    this.#owner.renewed()
    this.#owner.say({ type: 'reauth-ok', expiresMs: Math.floor(identity.expiresAt * 1000) })
  }
}
