import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { type CertificateAndKey, createAuthority } from '../../certs/authority.ts'
import { parseDurationMs } from '../../certs/duration.ts'
import type { OutputFile } from '../../certs/files.ts'
import { type CertificateReport, inspectCertificates } from '../../certs/inspect.ts'
import {
  createClientCertificate,
  createReplicaCertificate,
  createServerCertificate,
  REPLICA_NAME,
} from '../../certs/leaf.ts'
import { checkRuntimeName, parseHostName } from '../../certs/names.ts'
import { exportPkcs12 } from '../../certs/pkcs12.ts'
import type { Arguments } from '../args.ts'
import type { Io, Run } from '../command.ts'
import { configurationError, EXIT, usageError } from '../failure.ts'
import { checked, optionalCount, optionalFlag, readInput, requiredFlag } from '../options.ts'
import { changeOutput, isSameFile, writeOutput } from '../output-files.ts'
import { plainText } from '../plain-text.ts'
import { printResult } from '../print.ts'
import { facts } from '../table.ts'

export const certsInit: Run = async (args, io) => {
  const out = requiredFlag(args, 'out')
  const hosts = await checkedHosts(args)
  const authority = await createAuthority()
  const server = await checked(() => createServerCertificate(authority, { hosts, ...validity(args) }))
  noteEnd(join(out, 'server.pem'), server, authority, io)
  return writeOutput([...pair(out, 'ca', authority), ...pair(out, 'server', server)], args, io)
}

export const certsServer: Run = async (args, io) => {
  const out = requiredFlag(args, 'out')
  const hosts = await checkedHosts(args)
  const { authority, where } = readAuthority(args, out)
  const server = await checked(() => createServerCertificate(authority, { hosts, ...validity(args) }), where)
  noteEnd(join(out, 'server.pem'), server, authority, io)
  return writeOutput(pair(out, 'server', server), args, io)
}

export const certsClient: Run = async (args, io) => {
  const out = requiredFlag(args, 'out')
  const runtime = requiredFlag(args, 'runtime')
  await checked(() => checkRuntimeName(runtime))
  const { authority, where } = readAuthority(args, out)
  const client = await checked(() => createClientCertificate(authority, { runtime, ...validity(args) }), where)
  const files = pair(out, runtime, client)
  const own = files.find(({ path }) => isAuthority(path, where))
  if (own !== undefined) throw configurationError(`${own.path} is the authority: give a different --out`)
  noteEnd(join(out, `${runtime}.pem`), client, authority, io)
  return writeOutput(files, args, io)
}

export const certsReplica: Run = async (args, io) => {
  const out = requiredFlag(args, 'out')
  const { authority, where } = readAuthority(args, out)
  const replica = await checked(() => createReplicaCertificate(authority, validity(args)), where)
  noteEnd(join(out, 'replica.pem'), replica, authority, io)
  return writeOutput(pair(out, 'replica', replica), args, io)
}

export const certsRenew: Run = async (args, io) => {
  const path = args.positionals[0]!
  if ((await ending(args, io)) === undefined) return EXIT.ok
  return changeOutput(path, io, async rewrite => {
    // Another command may just have renewed it.
    const report = await ending(args, io)
    if (report !== undefined) await rewrite(await renewed(args, report, io))
    return EXIT.ok
  })
}

/** The certificate to renew. `undefined` if it is too early. */
async function ending(args: Arguments, io: Io): Promise<CertificateReport | undefined> {
  const path = args.positionals[0]!
  const [report] = await checked(() => inspectCertificates(readInput(path, 'the certificate')), path)
  const { validTo, authority } = report!
  if (authority) throw configurationError(`${path} is an authority: docs/keys.md describes how to replace it`)
  const before = optionalFlag(args, 'before')
  const withinMs = before === undefined ? undefined : await checked(() => parseDurationMs(before), '--before')
  if (withinMs === undefined || validTo.getTime() - Date.now() <= withinMs) return report
  io.note(`${path} expires ${validTo.toISOString()}: nothing to do`)
  return undefined
}

/** The new key and certificate. */
async function renewed(args: Arguments, report: CertificateReport, io: Io): Promise<OutputFile[]> {
  const path = args.positionals[0]!
  const keyFile = optionalFlag(args, 'key') ?? keyBeside(path)
  // If there is no key, it is elsewhere, and would no longer fit the certificate.
  if (!readInput(keyFile, 'the key (--key)').includes('PRIVATE KEY-----')) {
    throw configurationError(`${keyFile} has no private key: give a different --key`)
  }
  if (isSameFile(keyFile, path))
    throw configurationError(`${path} has both certificate and key: split it into two files`)
  const signer = readAuthority(args, dirname(path))
  if (isAuthority(keyFile, signer.where))
    throw configurationError(`${keyFile} is the authority: give a different --key`)
  const made = await checked(() => reissue(signer.authority, report, validity(args)), signer.where)
  const [fresh] = inspectCertificates(made.certificate)
  if (!isDeepStrictEqual(identityOf(fresh!), identityOf(report))) {
    throw configurationError(
      `${path} has names or uses that \`sallyport certs\` does not issue: renew it where it came from`,
    )
  }
  noteEnd(path, made, signer.authority, io)
  // The key first: a process that reads them in between finds a pair that does not match, and keeps the old one.
  return [
    { path: keyFile, text: made.key, secret: true },
    { path, text: made.certificate, secret: false },
  ]
}

/** Says that a certificate ends earlier than it would otherwise. */
function noteEnd(path: string, made: CertificateAndKey, authority: CertificateAndKey, io: Io): void {
  const end = inspectCertificates(made.certificate)[0]!.validTo.toISOString()
  if (inspectCertificates(authority.certificate).some(({ validTo }) => validTo.toISOString() === end)) {
    io.note(`${path} expires together with its authority, ${end}: docs/keys.md describes how to replace that`)
  }
}

/** Whom a certificate names, and for what, in whatever order. */
function identityOf({ names, usages }: CertificateReport): unknown {
  return [names.map(name => name.toLowerCase()).sort(), [...usages].sort()]
}

/** A certificate of the same kind and for the same names. */
function reissue(
  authority: CertificateAndKey,
  { names, runtime, usages }: CertificateReport,
  validity: { validDays?: number },
): Promise<CertificateAndKey> {
  if (runtime !== undefined) return createClientCertificate(authority, { runtime, ...validity })
  if (names.includes(`DNS:${REPLICA_NAME}`)) return createReplicaCertificate(authority, validity)
  const hosts = names.flatMap(name => /^(?:DNS|IP Address):(.+)$/.exec(name)?.[1] ?? [])
  if (hosts.length > 0 && usages.includes('serverAuth')) {
    return createServerCertificate(authority, { hosts, ...validity })
  }
  throw new TypeError('the certificate is not one that `sallyport certs` makes')
}

function keyBeside(certFile: string): string {
  return certFile.replace(/(\.pem)?$/, '-key.pem')
}

async function checkedHosts(args: Arguments): Promise<readonly string[]> {
  const hosts = args.flags.get('host')
  if (!hosts) throw usageError('--host is missing: the names that the server is reached by')
  await checked(() => hosts.map(parseHostName))
  return hosts
}

function validity(args: Arguments): { validDays?: number } {
  const validDays = optionalCount(args, 'days')
  return validDays === undefined ? {} : { validDays }
}

function readAuthority(args: Arguments, out: string): { authority: CertificateAndKey; where: string } {
  const folder = optionalFlag(args, 'ca') ?? out
  const certificate = readInput(join(folder, 'ca.pem'), 'the authority')
  return {
    authority: { certificate, key: readInput(join(folder, 'ca-key.pem'), "the authority's key") },
    where: folder,
  }
}

function isAuthority(path: string, folder: string): boolean {
  return ['ca.pem', 'ca-key.pem'].some(name => isSameFile(path, join(folder, name)))
}

function pair(folder: string, name: string, { certificate, key }: CertificateAndKey): OutputFile[] {
  return [
    { path: join(folder, `${name}.pem`), text: certificate, secret: false },
    { path: join(folder, `${name}-key.pem`), text: key, secret: true },
  ]
}

export const certsExport: Run = async (args, io) => {
  const path = requiredFlag(args, 'p12')
  const passwordFile = requiredFlag(args, 'password.file')
  const certFile = requiredFlag(args, 'cert')
  const keyFile = optionalFlag(args, 'key') ?? keyBeside(certFile)
  const caFile = optionalFlag(args, 'ca') ?? existing(join(dirname(certFile), 'ca.pem'))
  const password = readInput(passwordFile, 'the password').replace(/\r?\n$/, '')
  const certificate = readInput(certFile, 'the certificate')
  const key = readInput(keyFile, 'the key')
  const authorities = caFile === undefined ? '' : readInput(caFile, 'the authorities')
  const store = await checked(() => exportPkcs12({ certificate, key, authorities, password }), certFile)
  return writeOutput([{ path, text: store, secret: true }], args, io)
}

function existing(path: string): string | undefined {
  return existsSync(path) ? path : undefined
}

export const certsShow: Run = async (args, io) => {
  const path = args.positionals[0]!
  const reports = await checked(() => inspectCertificates(readInput(path, 'the certificate')), path)
  return printResult(args, io, reports, () => reports.map(describe).join('\n'))
}

function describe(report: CertificateReport): string {
  const rows: [string, string][] = [
    ['subject', report.subject.replaceAll('\n', ', ')],
    ['issuer', report.issuer.replaceAll('\n', ', ')],
    ['names', report.names.join(', ') || '-'],
    ...(report.runtime === undefined ? [] : [['runtime', report.runtime] as [string, string]]),
    ['from', report.validFrom.toISOString()],
    ['until', `${report.validTo.toISOString()}${report.validTo.getTime() < Date.now() ? ' (ended)' : ''}`],
    ['use', report.authority ? 'authority' : report.usages.join(', ') || 'any'],
    ['key', report.key],
    ['sha-256', report.fingerprint],
  ]
  return facts(
    rows.map(([name, value]) => [name, plainText(value)]),
    9,
  )
}
