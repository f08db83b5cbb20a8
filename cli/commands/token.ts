import type { JWK } from 'jose'
import { checkRuntimeName } from '../../certs/names.ts'
import { createToken, inspectToken, type TokenOptions, type TokenReport } from '../../certs/tokens.ts'
import { formatDuration } from '../../protocol/base/durations.ts'
import { HOSTS_CLAIM } from '../../protocol/base/names.ts'
import type { Arguments } from '../args.ts'
import type { Run } from '../command.ts'
import { configurationError, EXIT, usageError } from '../failure.ts'
import { checked, optionalFlag, readInput, requiredFlag } from '../options.ts'
import { isSameFile, overwrite } from '../output-files.ts'
import { plainText } from '../plain-text.ts'
import { printResult } from '../print.ts'
import { facts } from '../table.ts'

export const tokenCreate: Run = async (args, io) => {
  const keyFile = requiredFlag(args, 'key')
  const runtime = requiredFlag(args, 'runtime')
  await checked(() => checkRuntimeName(runtime))
  const options: TokenOptions = { key: readKey(keyFile), runtime, ...claims(args) }
  const out = optionalFlag(args, 'out')
  if (out !== undefined && isSameFile(out, keyFile)) throw usageError(`${out} is the key: give another --out`)
  const { token, expiresAt } = await checked(() => createToken(options))
  if (out === undefined) io.out(`${token}\n`)
  else await overwrite({ path: out, text: `${token}\n`, secret: true }, io)
  io.note(`token for ${runtime}, valid until ${new Date(expiresAt).toISOString()}`)
  return EXIT.ok
}

function claims(args: Arguments): Partial<TokenOptions> {
  const [ttl, audience, issuer, cert] = ['ttl', 'audience', 'issuer', 'cert'].map(name => optionalFlag(args, name))
  const hosts = args.flags.get('host')
  return {
    ...(hosts === undefined ? {} : { hosts: hosts.map(host => host.toLowerCase()) }),
    ...(ttl === undefined ? {} : { ttl }),
    ...(audience === undefined ? {} : { audience }),
    ...(issuer === undefined ? {} : { issuer }),
    ...(cert === undefined ? {} : { certificate: readInput(cert, 'the certificate') }),
  }
}

function readKey(path: string): JWK {
  const text = readInput(path, 'the key')
  try {
    const key: unknown = JSON.parse(text)
    if (typeof key === 'object' && key !== null && 'kty' in key) return key as JWK
  } catch {
    // Falls through, because the message of the parser would show a part of the key.
  }
  throw configurationError(`${path} is not a private JWK; \`sallyport keys create\` makes one`)
}

export const tokenInspect: Run = async (args, io) => {
  const path = args.positionals[0] ?? '-'
  const text = path === '-' ? await io.readStdin() : readInput(path, 'the token')
  const report = await checked(() => inspectToken(text.trim()), path === '-' ? 'stdin' : path)
  return printResult(args, io, report, () => describe(report))
}

function describe({ header, claims, issuedAt, expiresAt, problems }: TokenReport): string {
  const rows: [string, string][] = [
    ['runtime', String(claims.sub ?? '-')],
    ['audience', String(claims.aud ?? '-')],
    ['issuer', String(claims.iss ?? '-')],
    ['id', String(claims.jti ?? '-')],
    ...(Array.isArray(claims[HOSTS_CLAIM]) ? [['hosts', claims[HOSTS_CLAIM].join(', ')] as [string, string]] : []),
    ['signed', `${String(header.alg)}, key ${String(header.kid ?? '-')}`],
    ['issued', issuedAt === undefined ? '-' : new Date(issuedAt).toISOString()],
    ['ends', expiresAt === undefined ? '-' : `${new Date(expiresAt).toISOString()} (${distance(expiresAt)})`],
    ...problems.map(problem => ['problem', problem] as [string, string]),
  ]
  return facts(
    rows.map(([name, value]) => [name, plainText(value)]),
    9,
  )
}

function distance(time: number): string {
  const leftMs = time - Date.now()
  return leftMs >= 0 ? `in ${formatDuration(leftMs)}` : `${formatDuration(-leftMs)} ago`
}
