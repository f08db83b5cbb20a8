/** Compiles `verify` and `inbox` of a route, with the secrets read from their files. */
import { readPlainSync } from '../protocol/base/plain-file.ts'
import { readDuration } from '../protocol/base/units.ts'
import { schemeOf, schemeProblem, type WebhookScheme } from '../protocol/webhook/scheme.ts'
import { readSecret, type WebhookSecret } from '../protocol/webhook/secret.ts'
import { createSigner, type Signer } from '../protocol/webhook/sign.ts'
import { createVerifier, MAX_SECRETS, type Verifier } from '../protocol/webhook/verify.ts'
import type { ReportProblem } from './compile.ts'
import { isAlwaysRemoved } from './compile-headers.ts'
import type { CompiledRoute } from './compiled.ts'
import type { Route, RouteProblem, RouteResign, RouteSignature, RouteVerify, SecretFile } from './table.ts'

type Path = RouteProblem['path']

export function compileWebhook(
  route: Route,
  warnings: string[],
  report: ReportProblem,
): Pick<CompiledRoute, 'verifier' | 'signer'> {
  const { inbox } = route
  if (route.verify !== undefined && inbox?.verify !== undefined) {
    report(['verify'], 'inbox.verify is set, too; one of the two is enough')
  }
  if (route.verify?.at === 'edge')
    report(['verify', 'at'], 'only the webhooks of an inbox can be checked at the edge: see inbox.verify')
  const verify = inbox?.verify ?? route.verify
  const at = inbox?.verify === undefined ? ['verify'] : ['inbox', 'verify']
  if (verify !== undefined && route.target === undefined) report(at, 'a fixed answer needs no signature')
  const resign = inbox?.resign
  if (resign !== undefined && verify === undefined) {
    report(['inbox', 'resign'], 'needs verify: otherwise anything that a stranger sends would get a valid signature')
  }
  if (inbox !== undefined && verify !== undefined && schemeOf(verify.scheme).timestamped && resign === undefined) {
    const late = `signatures of ${verify.scheme} cover the time; a target that checks it refuses late deliveries`
    warnings.push(`route "${route.name}": ${late}, unless inbox.resign signs them again`)
  }
  return {
    verifier: verify === undefined ? undefined : compileVerify(verify, at, report),
    signer: resign === undefined ? undefined : compileResign(resign, ['inbox', 'resign'], report),
  }
}

function compileVerify(verify: RouteVerify, at: Path, report: ReportProblem): Verifier | undefined {
  const scheme = compileScheme(verify, at, report)
  if (verify.secrets.length > MAX_SECRETS) report([...at, 'secrets'], `at most ${MAX_SECRETS}`)
  const secrets = verify.secrets
    .slice(0, MAX_SECRETS)
    .map((secret, i) => readSecretFile(verify, secret, [...at, 'secrets', i], report))
  if (scheme === undefined || secrets.includes(undefined)) return undefined
  return createVerifier(scheme, secrets as WebhookSecret[])
}

function compileResign(resign: RouteResign, at: Path, report: ReportProblem): Signer | undefined {
  const scheme = compileScheme(resign, at, report)
  const secret = readSecretFile(resign, resign.secret, [...at, 'secret'], report)
  if (scheme === undefined || secret === undefined) return undefined
  if (secret.bytes === undefined && secret.privateKey === undefined) {
    report([...at, 'secret', 'file'], `${resign.secret.file} is a public key, which signs nothing`)
    return undefined
  }
  return createSigner(scheme, secret)
}

/** The scheme in the form of the library. */
export function schemeOptions(given: RouteSignature & { tolerance?: string | undefined }): WebhookScheme {
  const { scheme, tolerance, header, prefix, encoding, hash } = given
  const toleranceMs = tolerance === undefined ? undefined : readDuration(tolerance)
  return { scheme, toleranceMs, header, prefix, encoding, hash }
}

function compileScheme(
  given: RouteSignature & { tolerance?: string | undefined },
  at: Path,
  report: ReportProblem,
): WebhookScheme | undefined {
  const options = schemeOptions(given)
  const wrong = schemeProblem(options)
  if (isAlwaysRemoved(options.header?.toLowerCase() ?? '')) {
    report([...at, 'header'], 'is removed from every request, so no signature is ever in it')
  } else if (wrong === undefined) return options
  if (wrong !== undefined) report([...at, wrong.member === 'toleranceMs' ? 'tolerance' : wrong.member], wrong.message)
  return undefined
}

function readSecretFile(
  given: RouteSignature,
  { file }: SecretFile,
  at: Path,
  report: ReportProblem,
): WebhookSecret | undefined {
  let bytes: Buffer
  try {
    bytes = readPlainSync(file)
  } catch (error) {
    report([...at, 'file'], `cannot read ${file} (${(error as NodeJS.ErrnoException).code})`)
    return undefined
  }
  try {
    return readSecret({ scheme: given.scheme }, bytes)
  } catch (error) {
    report([...at, 'file'], `${file} ${(error as TypeError).message}`)
    return undefined
  }
}
