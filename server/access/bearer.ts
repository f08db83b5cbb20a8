/** Verifies callers' tokens in `Authorization: Bearer`, in the same way as those of tunnel clients. */

import { DEFAULT_ALGORITHMS } from '../../protocol/base/token-algorithms.ts'
import type { HeaderList, HttpRequest } from '../../protocol/exchange.ts'
import { getAllHeaders, removeHeader } from '../../protocol/http/headers.ts'
import type { KeySource } from '../auth/key-source.ts'
import { TokenRefused } from '../auth/refusal.ts'
import { TokenVerifier } from '../auth/verifier.ts'
import type { CallerTokens } from './options.ts'

const BEARER = /^bearer ([A-Za-z0-9_.-]+)$/i

export class BearerCheck {
  readonly #options: CallerTokens
  readonly #verifier: TokenVerifier

  constructor(options: CallerTokens, keys: KeySource, clockToleranceS: number, now: () => number) {
    this.#options = options
    const { issuer, audience } = options
    const rules = { issuer, audience, clockToleranceS, runtimeClaim: 'sub', reserved: [] }
    this.#verifier = new TokenVerifier({ ...rules, keys, algorithms: DEFAULT_ALGORITHMS, now })
  }

  /** Rejects with {@link TokenRefused} or `KeysUnavailable`. Removes the token from the request, unless `forward` is set. */
  async check(request: HttpRequest, sent: HeaderList): Promise<void> {
    const { runtimeClaim, forward } = this.#options
    const values = getAllHeaders(sent, 'authorization')
    const token = values.length === 1 ? BEARER.exec(values[0]!)?.[1] : undefined
    if (token === undefined) throw new TokenRefused('missing', 'there is no bearer token')
    const claims = await this.#verifier.check(token)
    // It is bound to a key, and we cannot check that the caller has the key.
    if (claims.cnf !== undefined) throw new TokenRefused('cnf', 'the token is bound to a key')
    if (runtimeClaim !== undefined) {
      const names = Object.hasOwn(claims, runtimeClaim) ? [claims[runtimeClaim]].flat() : []
      if (!names.includes(request.runtime))
        throw new TokenRefused('runtime', `${runtimeClaim} does not name the runtime`)
    }
    if (forward !== true) removeHeader(request.headers, 'authorization')
  }
}
