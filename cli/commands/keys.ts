import { join } from 'node:path'
import { createKeys, type TokenAlgorithm } from '../../certs/keys.ts'
import type { Run } from '../command.ts'
import { EXIT } from '../failure.ts'
import { checked, hasSwitch, optionalFlag, requiredFlag } from '../options.ts'
import { writeOutput } from '../output-files.ts'

/** `sallyport keys create` */
export const keysCreate: Run = async (args, io) => {
  const out = requiredFlag(args, 'out')
  const alg = (optionalFlag(args, 'alg') ?? 'EdDSA') as TokenAlgorithm
  const { privateJwk, jwks } = await checked(() => createKeys({ alg }))
  const files = [
    { path: join(out, 'private.jwk'), text: `${JSON.stringify(privateJwk)}\n`, secret: true },
    { path: join(out, 'jwks.json'), text: `${JSON.stringify(jwks, undefined, 2)}\n`, secret: false },
  ]
  await writeOutput(files, hasSwitch(args, 'force'), io)
  return EXIT.ok
}
