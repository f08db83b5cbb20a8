import { inspectCertificates } from '../../certs/inspect.ts'
import { readPlain } from '../../protocol/base/plain-file.ts'
import { MAX_KEY_SET_BYTES, parseKeySet } from '../../server/auth/key-source.ts'
import { MAX_LIST_BYTES, parseOwnRevocations } from '../../server/auth/revocation-list.ts'
import { loadTls, tlsFiles } from '../../server/tls.ts'
import type { ClientConfig } from '../config/client.ts'
import type { RouterConfig } from '../config/router.ts'
import type { AccessConfig, ServerConfig } from '../config/server.ts'
import { configurationError, Failure, fileProblem, ofMisuse } from '../failure.ts'
import { readAdminTokenFile } from './admin-token.ts'
import { checkInboxKeys } from './inbox-key.ts'
import { loadRoutes } from './routes.ts'
import { splitCommand } from './token-command.ts'

/** Reads every file that the configuration names, so that a bad one is reported in one line before anything listens. */

export async function checkServerFiles(config: ServerConfig, callers: readonly AccessConfig[]): Promise<void> {
  await checkPair('public.tls', config['public.tls.cert'], config['public.tls.key'], config['public.tls.ocsp'])
  await checkFolder('public.tls.folder', config['public.tls.folder'])
  await checkPair('control.tls', config['control.tls.cert'], config['control.tls.key'])
  await checkAuthorities('control.tls.client-ca', config['control.tls.client-ca'])
  await checkPair('peer.tls', config['peer.tls.cert'], config['peer.tls.key'])
  await checkAuthorities('peer.tls.ca', config['peer.tls.ca'])
  await checkAuthorities('directory.tls.ca', config['directory.tls.ca'])
  for (const name of ['directory.password.file', 'directory.sentinel.password.file'] as const) {
    const file = config[name]
    if (file !== undefined) await read(name, file)
  }
  await checkInbox(config)
  await checkAdmin(config)
  await checkAuthorities('auth.jwks.ca', config['auth.jwks.ca'])
  for (const one of callers) await checkAccess(one)
  await checkAuthorities('auth.revocations.ca', config['auth.revocations.ca'])
  const { 'auth.jwks.file': keys, 'auth.algorithms': algorithms, 'auth.revocations.file': revocations } = config
  const parseKeys = (text: string) => parseKeySet(text, algorithms)
  if (keys !== undefined) await checkDocument('auth.jwks.file', keys, MAX_KEY_SET_BYTES, parseKeys)
  if (revocations !== undefined) {
    await checkDocument('auth.revocations.file', revocations, MAX_LIST_BYTES, parseOwnRevocations)
  }
}

export async function checkClientFiles(config: ClientConfig): Promise<void> {
  await checkPair('tls', config['tls.cert'], config['tls.key'])
  for (const file of config.ca ?? []) await checkAuthorities('ca', file)
  checkTokenCommand(config['token.command'])
  await checkAdmin(config)
  if (config['inbox.key.file'] !== undefined) checkInboxKeys(config['inbox.key.file'])
  if (config.target !== undefined) return
  const { checkPublishedRules: checkPublished } = await import('./embedded-router.ts')
  checkPublished(await loadRoutes(config), config)
}

export async function checkRouterFiles(config: RouterConfig): Promise<void> {
  await checkPair('tls', config['tls.cert'], config['tls.key'])
  await checkAdmin(config)
  await loadRoutes(config)
}

async function checkAccess(config: AccessConfig): Promise<void> {
  for (const name of ['access.jwt.jwks.ca', 'access.forward-auth.ca', 'access.client-ca'] as const) {
    await checkAuthorities(name, config[name])
  }
  const keys = config['access.jwt.jwks.file']
  if (keys !== undefined)
    await checkDocument('access.jwt.jwks.file', keys, MAX_KEY_SET_BYTES, text => parseKeySet(text))
}

async function checkInbox(config: ServerConfig): Promise<void> {
  const { inbox, 'inbox.password.file': password, 'inbox.mac.file': mac } = config
  if (inbox === 'off') return
  await checkAuthorities('inbox.tls.ca', config['inbox.tls.ca'])
  if (password !== undefined) await read('inbox.password.file', password)
  if (mac !== undefined) {
    const { MAX_SECRETS_BYTES, parseSecrets } = await import('../../server/inbox/mac.ts')
    await checkDocument('inbox.mac.file', mac, MAX_SECRETS_BYTES, parseSecrets)
  }
  const [, path] = /^sqlite:(.+)$/s.exec(inbox) ?? []
  try {
    if (path === undefined) await (await import('../../server/inbox/postgres.ts')).loadPackage()
    else (await import('../../server/inbox/sqlite.ts')).checkSqlite(path)
  } catch (error) {
    throw ofMisuse(error)
  }
}

async function checkAdmin(config: Pick<ServerConfig, 'admin.listen' | 'admin.token.file'>): Promise<void> {
  const file = config['admin.token.file']
  if (file !== undefined && config['admin.listen'] !== 'off') await readAdminTokenFile(file)
}

async function checkPair(prefix: string, cert?: string, key?: string, ocsp?: string): Promise<void> {
  const files = tlsFiles(cert, key, ocsp)
  if (files === undefined) return
  for (const [name, file] of Object.entries({ cert, key, ocsp }))
    if (file !== undefined) await read(`${prefix}.${name}`, file)
  try {
    await loadTls(files)
  } catch (error) {
    throw configurationError(`--${prefix}: ${(error as Error).message}`, error)
  }
}

/** A broken certificate in the folder does not prevent a start, but a missing folder does. */
async function checkFolder(flag: string, folder: string | undefined): Promise<void> {
  if (folder === undefined) return
  const { findPairs } = await import('../../server/certificate-folder.ts')
  try {
    await findPairs(folder)
  } catch (error) {
    throw configurationError(`--${flag} ${folder}: ${fileProblem(error)}`, error)
  }
}

async function checkAuthorities(flag: string, file: string | undefined): Promise<void> {
  if (file === undefined) return
  const text = await read(flag, file)
  try {
    inspectCertificates(text)
  } catch (error) {
    throw configurationError(`--${flag} ${file}: it has no valid certificate`, error)
  }
}

/** Reads a document as the server does. */
async function checkDocument(
  flag: string,
  file: string,
  maxBytes: number,
  parse: (text: string) => unknown,
): Promise<void> {
  try {
    await parse(String(await readPlain(file, maxBytes)))
  } catch (error) {
    throw configurationError(`--${flag} ${file}: ${fileProblem(error)}`, error)
  }
}

/** Splits the command into words. Throws if it is malformed. */
export function checkTokenCommand(command: string | undefined): string[] | undefined {
  if (command === undefined) return undefined
  try {
    return splitCommand(command)
  } catch (error) {
    throw configurationError(`--token.command: ${(error as Error).message}`, error)
  }
}

async function read(flag: string, file: string): Promise<string> {
  try {
    return String(await readPlain(file))
  } catch (error) {
    if (error instanceof Failure) throw error
    throw configurationError(`--${flag} ${file}: ${fileProblem(error)}`, error)
  }
}
