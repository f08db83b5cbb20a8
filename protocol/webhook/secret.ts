/** Webhook secrets as files contain them: arbitrary bytes, or the text of Standard Webhooks (`whsec_`, `whpk_`, `whsk_`). */
import { createPrivateKey, createPublicKey, type KeyObject } from 'node:crypto'
import { schemeOf, type WebhookScheme } from './scheme.ts'

/** An HMAC key or a token, or an Ed25519 key pair whose private half may be missing. */
export interface WebhookSecret {
  readonly bytes: Buffer | undefined
  readonly publicKey: KeyObject | undefined
  readonly privateKey: KeyObject | undefined
}

/** Larger than any secret that a sender accepts. */
const MAX_SECRET_BYTES = 4096
const KEY_BYTES = 32
/** The DER prefixes of the 32 bytes of a public and of a private key (RFC 8410). */
const PUBLIC_DER = Buffer.from('302a300506032b6570032100', 'hex')
const PRIVATE_DER = Buffer.from('302e020100300506032b657004220420', 'hex')

/** Reads a secret, without one line break at its end. Throws TypeError, which never quotes the secret. */
export function readSecret(options: WebhookScheme, file: Uint8Array): WebhookSecret {
  if (file.length > MAX_SECRET_BYTES) throw new TypeError(`holds more than ${MAX_SECRET_BYTES} bytes`)
  const text = Buffer.from(file)
    .toString('latin1')
    .replace(/\r?\n$/, '')
  if (text.trim() === '') throw new TypeError('is empty')
  const { encodedSecret, token } = schemeOf(options.scheme)
  if (encodedSecret === true) return readEncoded(text.trim())
  if (token === true && /[^!-~]/.test(text))
    throw new TypeError('must be ASCII without spaces, since it is sent as it is')
  return { bytes: Buffer.from(text, 'latin1'), publicKey: undefined, privateKey: undefined }
}

/** Standard Webhooks 1.0.0, "Secret serialization". Like its libraries, we also accept an HMAC secret without the prefix. */
function readEncoded(text: string): WebhookSecret {
  const [, kind = 'whsec_', base64 = ''] = /^(whsec_|whpk_|whsk_)?(.*)$/.exec(text)!
  const bytes = Buffer.from(base64, 'base64')
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(base64) || bytes.length === 0) {
    throw new TypeError('is no secret of Standard Webhooks: whsec_, whpk_ or whsk_, and base64')
  }
  if (kind === 'whsec_') return { bytes, publicKey: undefined, privateKey: undefined }
  // A private key may be followed by its public half, which is libsodium's format.
  const isKey = bytes.length === KEY_BYTES || (kind === 'whsk_' && bytes.length === 2 * KEY_BYTES)
  if (!isKey) throw new TypeError(`is no Ed25519 key: ${kind} and ${KEY_BYTES} bytes as base64`)
  const key = bytes.subarray(0, KEY_BYTES)
  if (kind === 'whpk_') return { bytes: undefined, publicKey: publicKey(key), privateKey: undefined }
  const privateKey = createPrivateKey({ key: Buffer.concat([PRIVATE_DER, key]), format: 'der', type: 'pkcs8' })
  return { bytes: undefined, publicKey: createPublicKey(privateKey), privateKey }
}

function publicKey(key: Buffer): KeyObject {
  return createPublicKey({ key: Buffer.concat([PUBLIC_DER, key]), format: 'der', type: 'spki' })
}
