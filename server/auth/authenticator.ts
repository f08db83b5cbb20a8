/** Decides whether a client may connect, and stay: token, certificate, revocation. */
import { performance } from 'node:perf_hooks'
import type { Logger } from '../../protocol/base/log.ts'
import type { ClientCertificateInfo } from '../control/certificate.ts'
import type { Opened } from '../opened.ts'
import type { ResolvedServerOptions } from '../options.ts'
import type { Identity } from './claims.ts'
import { fileKeys } from './key-file.ts'
import { givenKeys, type KeyOrigin, type KeySource } from './key-source.ts'
import { urlKeys } from './key-url.ts'
import { KeysUnavailable, TokenRefused } from './refusal.ts'
import type { RevocationStore } from './revocation-store.ts'
import { TokenVerifier } from './verifier.ts'

/** Failures of the revocation hook are logged at most this often. */
const LOG_EVERY_MS = 60_000
/** How long the revocation hook may take. With the 5 s between two checks, a revocation is in force within 10 s. */
const HOOK_MS = 5000
const RUNTIME_URI = 'URI:urn:sallyport:runtime:'

export class Authenticator {
  readonly #settings: ResolvedServerOptions
  readonly #keys: KeySource
  readonly #verifier: TokenVerifier
  readonly #revocations: RevocationStore
  #loggedMs = Number.NEGATIVE_INFINITY
  /** Failures of the hook since the last log line about them. */
  #failures = 0

  constructor(settings: ResolvedServerOptions, keys: KeySource, revocations: RevocationStore) {
    const { auth, clock } = settings
    this.#settings = settings
    this.#keys = keys
    this.#verifier = new TokenVerifier({
      keys,
      algorithms: auth.algorithms,
      issuer: auth.issuer,
      audience: auth.audience,
      runtimeClaim: auth.runtimeClaim,
      clockToleranceS: auth.clockToleranceS,
      reserved: settings.reserved,
      now: clock,
    })
    this.#revocations = revocations
  }

  /** The identity of a client, after all checks. */
  async authenticate(token: string, certificate: ClientCertificateInfo | undefined): Promise<Identity> {
    const identity = await this.#verifier.verify(token)
    checkCertificate(identity, certificate)
    if (await this.#isRevoked(identity)) throw new TokenRefused('revoked', 'the token is revoked')
    return identity
  }

  /** Checks a fresh token on a live session. It must be for the same runtime and, if bound, the same certificate. */
  async reauthenticate(token: string, runtime: string, thumbprint: string | undefined): Promise<Identity> {
    const identity = await this.#verifier.verify(token)
    if (identity.runtime !== runtime) throw new TokenRefused('another-runtime', 'the token names another runtime')
    checkThumbprint(identity, thumbprint)
    if (await this.#isRevoked(identity)) throw new TokenRefused('revoked', 'the token is revoked')
    return identity
  }

  /** Fails closed: as long as the revocations are unknown, nobody may connect. */
  #isRevoked(identity: Identity): Promise<boolean> {
    if (!this.#revocations.ready) throw new KeysUnavailable('no list of revocations could be fetched yet')
    return this.#isKnownRevoked(identity)
  }

  /** According to the rules that are known, and the hook. */
  async #isKnownRevoked(identity: Identity): Promise<boolean> {
    if (this.covers(identity)) return true
    const { isRevoked } = this.#settings.auth
    // A rule may have been added while the hook was running.
    return (
      isRevoked !== undefined &&
      ((await inTime(async () => checkAnswer(await isRevoked(identity)))) || this.covers(identity))
    )
  }

  /** Whether a rule covers the identity. Does not ask the hook. */
  covers(identity: Identity): boolean {
    return this.#revocations.covers(identity)
  }

  /** For live sessions, which neither a failing hook nor a list that cannot be read may end. */
  async isRevokedNow(identity: Identity): Promise<boolean> {
    try {
      return await this.#isKnownRevoked(identity)
    } catch (error) {
      this.#hookFailed(error)
      return false
    }
  }

  /** Logs at a limited rate, since the hook is called for each live session in each check. */
  #hookFailed(error: unknown): void {
    this.#failures++
    if (performance.now() - this.#loggedMs < LOG_EVERY_MS) return
    this.#settings.logger.error({ err: error, times: this.#failures }, 'the revocation hook failed; live sessions stay')
    this.#loggedMs = performance.now()
    this.#failures = 0
  }

  /** Whether there is a key set to verify tokens with, and the revocations are known. */
  get ready(): boolean {
    return this.#keys.current !== undefined && this.#revocations.ready
  }

  get hasHook(): boolean {
    return this.#settings.auth.isRevoked !== undefined
  }

  close(): void {
    this.#keys.close()
    this.#revocations.close()
  }
}

/** Throws for what is neither true nor false, such as nothing. What JavaScript takes for true revokes, to be safe. */
function checkAnswer(answer: unknown): boolean {
  if (typeof answer === 'boolean' || answer) return Boolean(answer)
  throw new TypeError(`auth.isRevoked must answer true or false, not ${String(answer)}`)
}

/** Limits how long the revocation hook may take, so that one that never answers does not block others. */
async function inTime(ask: () => Promise<boolean>): Promise<boolean> {
  const { promise, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(
    reject,
    HOOK_MS,
    new Error(`the revocation hook did not answer within ${HOOK_MS} ms`),
  ).unref()
  try {
    return await Promise.race([ask(), promise])
  } finally {
    clearTimeout(timer)
  }
}

/** Opens a source of keys for these algorithms. Rejects if a given set or a file is invalid. A URL may fail at first. */
export async function openKeys(
  jwks: KeyOrigin,
  logger: Logger,
  opened: Opened,
  algorithms?: readonly string[],
): Promise<KeySource> {
  if ('keys' in jwks) return givenKeys(jwks, algorithms)
  const now = () => performance.now()
  if ('file' in jwks) return opened.add(await fileKeys(jwks.file, logger, now, algorithms))
  return urlKeys({ ...jwks, algorithms }, logger, now, source => opened.add(source))
}

/** A client certificate must name the same runtime as the token. */
function checkCertificate(identity: Identity, certificate: ClientCertificateInfo | undefined): void {
  checkThumbprint(identity, certificate?.thumbprint)
  if (certificate === undefined) return
  const runtimes = certificate.names.filter(name => name.startsWith(RUNTIME_URI))
  const names = runtimes.length > 0 ? runtimes : certificate.names
  if (names.includes(`${RUNTIME_URI}${identity.runtime}`) || names.includes(`DNS:${identity.runtime}`)) return
  throw new TokenRefused('cnf', 'the certificate names another runtime than the token')
}

function checkThumbprint(identity: Identity, thumbprint: string | undefined): void {
  if (identity.certificateThumbprint === undefined || identity.certificateThumbprint === thumbprint) return
  throw new TokenRefused('cnf', 'the token is bound to another certificate')
}
