/** Signs a webhook as its sender would. */
import { createHmac, sign } from 'node:crypto'
import type { HeaderList } from '../exchange.ts'
import { dashed } from '../http/headers.ts'
import { type Signing, schemeOf, schemeProblem, type WebhookScheme } from './scheme.ts'
import type { WebhookSecret } from './secret.ts'

/** Signs with one secret. */
export interface Signer {
  /** Fields that it writes, or that a new signature invalidates, as `dashed` names. They are removed from a request first. */
  readonly fields: ReadonlySet<string>
  /** Returns the fields of the signature. `body` is the whole body, in parts. `signing.id` contains no dot. */
  sign(body: readonly Uint8Array[], signing: Signing): HeaderList
}

/** @throws {TypeError} if the options contradict each other, or if the secret can only verify. */
export function createSigner(options: WebhookScheme, secret: WebhookSecret): Signer {
  const wrong = schemeProblem(options)
  if (wrong !== undefined) throw new TypeError(`${wrong.member}: ${wrong.message}`)
  const scheme = schemeOf(options.scheme)
  const { bytes, privateKey } = secret
  if (bytes === undefined && privateKey === undefined) throw new TypeError('a public key signs nothing')
  const prove = (body: readonly Uint8Array[], prefix: string): Buffer => {
    if (privateKey !== undefined) return sign(null, Buffer.concat([Buffer.from(prefix, 'latin1'), ...body]), privateKey)
    if (scheme.token === true) return bytes!
    const hmac = createHmac(options.hash ?? 'sha256', bytes!).update(prefix, 'latin1')
    for (const chunk of body) hmac.update(chunk)
    return hmac.digest()
  }
  return {
    fields: new Set(scheme.fields(options).map(dashed)),
    sign: (body, signing) =>
      scheme.write(prove(body, scheme.prefix(signing)), signing, options, privateKey !== undefined),
  }
}
