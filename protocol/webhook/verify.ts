/**
 * Checks whether a webhook was signed with one of our secrets. The body is hashed while it arrives, byte for byte as received:
 *
 *     begin(headers, arrivalMs) ──▶ update(chunk) ... ──▶ verdict()
 *            └─ refusal: the head alone says no
 */
import { createHash, createHmac, type Hmac, type KeyObject, timingSafeEqual, verify } from 'node:crypto'
import { GatheredChunks } from '../base/gathered.ts'
import type { HeaderList } from '../exchange.ts'
import { type Claim, schemeOf, schemeProblem, type WebhookScheme } from './scheme.ts'
import { readSecret, type WebhookSecret } from './secret.ts'

/** A rotation needs two. With more, strangers could make us hash each body that many times. */
export const MAX_SECRETS = 4
const TOLERANCE_MS = 300_000
/** Ed25519 needs the whole message in memory, so the Ed25519 signatures of a larger body are not checked. */
const MAX_SIGNED_BYTES = 1024 * 1024

/** Checks the webhooks of one scheme. */
export interface Verifier {
  /** `arrivalMs` is when the request first reached us, in ms since 1970. Signed timestamps are compared with it. */
  begin(headers: HeaderList, arrivalMs: number): Verification
}

/** The verification of one webhook. */
export interface Verification {
  /** The head alone decides, either way, so the body is not needed. */
  readonly isDecided: boolean
  /** Why the webhook is refused, if the head already shows that. */
  readonly refusal: string | undefined
  /** How many bytes of the body are kept until the verdict: all of them, if Ed25519 has to check the body. */
  readonly heldBytes: number
  update(chunk: Uint8Array): void
  /** Called once, after the last byte. Undefined if the signature is good, else the reason, which discloses nothing of a secret. */
  verdict(): string | undefined
}

/**
 * Any of `secrets` may be the one that signed, so that they can be rotated.
 *
 * @throws {TypeError} if the options contradict each other, or if there are no secrets or too many.
 */
export function createVerifier(options: WebhookScheme, secrets: readonly WebhookSecret[]): Verifier {
  const wrong = schemeProblem(options)
  if (wrong !== undefined) throw new TypeError(`${wrong.member}: ${wrong.message}`)
  if (secrets.length === 0 || secrets.length > MAX_SECRETS) throw new TypeError(`from 1 to ${MAX_SECRETS} secrets`)
  const scheme = schemeOf(options.scheme)
  const toleranceMs = options.toleranceMs ?? TOLERANCE_MS
  return {
    begin(headers, arrivalMs) {
      const claim = scheme.read(headers, options)
      if (typeof claim === 'string') return new Decided(claim)
      const late = lateness(claim.timestamp, arrivalMs, toleranceMs)
      if (late !== undefined) return new Decided(late)
      if (claim.token !== undefined) return new Decided(isToken(claim.token, secrets) ? undefined : NO_MATCH)
      return new Signed(claim, secrets, options.hash ?? 'sha256')
    },
  }
}

/** A scheme with its secrets, each as base64 of the bytes of its file. This is how a client announces it to its server. */
export interface AnnouncedWebhook extends WebhookScheme {
  secrets: readonly string[]
}

/** @throws {TypeError} like {@link createVerifier}, and if a secret is not valid for the scheme. */
export function announcedVerifier(announced: AnnouncedWebhook): Verifier {
  return createVerifier(
    announced,
    announced.secrets.map(secret => readSecret(announced, Buffer.from(secret, 'base64'))),
  )
}

const NO_MATCH = 'signed with another secret, or changed on the way'

function lateness(timestamp: number | undefined, arrivalMs: number, toleranceMs: number): string | undefined {
  if (timestamp === undefined) return undefined
  const ageMs = arrivalMs - timestamp * 1000
  if (Math.abs(ageMs) <= toleranceMs) return undefined
  return `the timestamp is ${Math.abs(Math.round(ageMs / 1000))} s ${ageMs > 0 ? 'old' : 'ahead'}`
}

/** Digests are compared, so that not even the length of a secret shows. */
function isToken(token: string, secrets: readonly WebhookSecret[]): boolean {
  const given = createHash('sha256').update(token, 'latin1').digest()
  let fits = false
  for (const { bytes } of secrets) {
    if (bytes !== undefined && timingSafeEqual(createHash('sha256').update(bytes).digest(), given)) fits = true
  }
  return fits
}

/** The head alone decides: it is refused, or its token matches. */
class Decided implements Verification {
  readonly isDecided = true
  readonly heldBytes = 0
  readonly refusal: string | undefined

  constructor(refusal: string | undefined) {
    this.refusal = refusal
  }

  update(): void {}

  verdict(): string | undefined {
    return this.refusal
  }
}

class Signed implements Verification {
  readonly isDecided = false
  readonly refusal = undefined
  readonly #claim: Claim
  readonly #hmacs: Hmac[] = []
  readonly #publicKeys: KeyObject[] = []
  /** The body for Ed25519. Undefined if nothing needs it. */
  #message: GatheredChunks | undefined

  constructor(claim: Claim, secrets: readonly WebhookSecret[], hash: string) {
    this.#claim = claim
    for (const { bytes, publicKey } of secrets) {
      if (bytes !== undefined && claim.macs.length > 0) {
        this.#hmacs.push(createHmac(hash, bytes).update(claim.prefix, 'latin1'))
      }
      if (publicKey !== undefined && claim.signatures.length > 0) this.#publicKeys.push(publicKey)
    }
    if (this.#publicKeys.length > 0) this.#message = new GatheredChunks()
  }

  get heldBytes(): number {
    return this.#message?.bytes ?? 0
  }

  update(chunk: Uint8Array): void {
    for (const hmac of this.#hmacs) hmac.update(chunk)
    if (this.heldBytes + chunk.length > MAX_SIGNED_BYTES) this.#message = undefined
    this.#message?.add(chunk)
  }

  verdict(): string | undefined {
    let fits = false
    for (const hmac of this.#hmacs) {
      const digest = hmac.digest()
      for (const mac of this.#claim.macs) if (timingSafeEqual(mac, digest)) fits = true
    }
    const message = this.#message
    this.#message = undefined
    if (fits || (message !== undefined && this.#hasSigned(message))) return undefined
    const tooLarge = this.#publicKeys.length > 0 && message === undefined
    return tooLarge ? `a body with an Ed25519 signature may have ${MAX_SIGNED_BYTES} bytes` : NO_MATCH
  }

  #hasSigned(body: Iterable<Uint8Array>): boolean {
    const message = Buffer.concat([Buffer.from(this.#claim.prefix, 'latin1'), ...body])
    return this.#publicKeys.some(key => this.#claim.signatures.some(one => verify(null, message, key, one)))
  }
}
