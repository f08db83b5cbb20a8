import { canonicalAddress, isLoopback } from '../../protocol/base/address.ts'
import { EVERYWHERE, formatAddress, type HostPort, readDialled } from '../../protocol/base/host-port.ts'
import { readPostgresUrl } from '../../server/inbox/postgres-url.ts'
import { configurationError } from '../failure.ts'
import type { ClientConfig } from './client.ts'
import type { RouterConfig } from './router.ts'
import { type AccessConfig, controlAddress, type ServerConfig } from './server.ts'

/** Rules between settings, per component. Each throws on the first violation; none touches a file or the network. */

export function checkServerConfig(config: ServerConfig): void {
  demand((config.domain?.length ?? 0) > 0, '--domain is missing: runtimes are reached as <runtime>.<domain>')
  checkKeySet(config)
  checkCallers(config, config)
  checkPair(config['public.tls.cert'], config['public.tls.key'], 'public.tls')
  const isPlain = config['public.tls.cert'] === undefined
  demand(!isPlain || config['public.tls.ocsp'] === undefined, '--public.tls.ocsp needs --public.tls.cert')
  demand(!isPlain || config['public.tls.folder'] === undefined, '--public.tls.folder needs --public.tls.cert')
  checkPublicConfig(config, config['public.listen'])
  checkControl(config)
  checkReplicas(config)
  checkInbox(config)
  checkAdminConfig(config['admin.listen'], config['admin.token.file'])
  const { 'public.listen': callers, 'peer.listen': peer } = config
  checkAdminPort(config, { 'public.listen': callers, 'control.listen': controlAddress(config), 'peer.listen': peer })
}

function checkInbox(config: ServerConfig): void {
  for (const name of ['inbox.mac.file', 'inbox.password.file', 'inbox.tls.ca'] as const) {
    demand(config.inbox !== 'off' || config[name] === undefined, `--${name} needs --inbox`)
  }
  demandEncrypted(
    isEncryptedInbox(config.inbox),
    'inbox.tls.ca',
    config,
    'PostgreSQL over TLS, such as with ?sslmode=verify-full',
  )
  demand(
    config['inbox.mac.file'] !== undefined || !config['inbox.mac.optional'],
    '--inbox.mac.optional needs --inbox.mac.file',
  )
}

function isEncryptedInbox(url: string): boolean {
  try {
    return url.startsWith('postgres') && readPostgresUrl(url).tls
  } catch (error) {
    throw configurationError(`--inbox: ${(error as Error).message}`, error)
  }
}

/** `address` is the one that callers connect to. */
export function checkPublicConfig(config: ServerConfig, address: HostPort): void {
  demand(
    config['public.tls.cert'] !== undefined || config['public.plaintext'] || isLoopback(address.host),
    `--public.listen ${formatAddress(address)} is not loopback: give --public.tls.cert and ` +
      '--public.tls.key, or --public.plaintext behind a proxy that terminates TLS',
  )
}

function checkReplicas(config: ServerConfig): void {
  const directory = config.directory
  for (const name of ['directory.sentinel.user', 'directory.sentinel.password.file'] as const) {
    demand(
      config[name] === undefined || /^rediss?\+sentinel:/.test(directory ?? ''),
      `--${name} needs redis+sentinel://`,
    )
  }
  for (const name of ['directory.user', 'directory.password.file', 'directory.tls.ca', 'peer.listen'] as const) {
    demand(directory !== undefined || config[name] === undefined, `--${name} needs --directory`)
  }
  const isEncrypted = /^rediss[:+]/.test(directory ?? '')
  demandEncrypted(isEncrypted, 'directory.tls.ca', config, 'rediss:// or rediss+sentinel://')
  const listen = config['peer.listen']
  for (const name of ['peer.advertise', 'peer.tls.cert', 'peer.tls.key', 'peer.tls.ca'] as const) {
    demand(listen !== undefined || config[name] === undefined, `--${name} needs --peer.listen`)
  }
  if (listen === undefined) return
  for (const name of ['peer.tls.cert', 'peer.tls.key', 'peer.tls.ca'] as const) {
    demand(config[name] !== undefined, `--peer.listen needs --${name}: replicas show each other their certificates`)
  }
  const advertise = config['peer.advertise']
  demand(
    advertise === undefined || readDialled(formatAddress(advertise)) !== undefined,
    `--peer.advertise ${advertise && formatAddress(advertise)} cannot be dialled: give a host and a port`,
  )
  demand(
    advertise !== undefined || !EVERYWHERE.test(canonicalAddress(listen.host)),
    `--peer.listen ${formatAddress(listen)} is every address: give --peer.advertise, the address at which others reach this replica`,
  )
}

function checkKeySet(config: ServerConfig): void {
  const given = [config['auth.jwks.file'], config['auth.jwks.url']].filter(value => value !== undefined).length
  demand(given > 0, 'no key set: give --auth.jwks.file or --auth.jwks.url; without one no token can be verified')
  demand(given === 1, '--auth.jwks.file and --auth.jwks.url cannot be used together')
  demandEncrypted(config['auth.jwks.url'] !== undefined, 'auth.jwks.ca', config, '--auth.jwks.url')
  demandEncrypted(config['auth.revocations.url'] !== undefined, 'auth.revocations.ca', config, '--auth.revocations.url')
}

/** A half-configured check would be no check at all. */
export function checkCallers(config: AccessConfig, server: ServerConfig): void {
  const { 'access.jwt.jwks.file': file, 'access.jwt.jwks.url': url, 'access.jwt.audience': audience } = config
  demand(
    file === undefined || url === undefined,
    '--access.jwt.jwks.file and --access.jwt.jwks.url cannot be used together',
  )
  const hasKeys = file !== undefined || url !== undefined
  demand(!hasKeys || audience !== undefined, '--access.jwt.jwks.file and .url need --access.jwt.audience')
  demandEncrypted(url !== undefined, 'access.jwt.jwks.ca', config, '--access.jwt.jwks.url')
  for (const name of ['audience', 'issuer', 'runtime-claim'] as const) {
    demand(
      hasKeys || config[`access.jwt.${name}`] === undefined,
      `--access.jwt.${name} needs --access.jwt.jwks.file or .url`,
    )
  }
  demand(config['access.files']?.length !== 0, '--access.files is empty: its rules would hold for nobody; leave it out')
  demand(audience !== server['auth.audience'], '--access.jwt.audience must differ from --auth.audience')
  const asks = config['access.forward-auth.url'] !== undefined
  for (const name of ['ca', 'headers'] as const) {
    demand(
      asks || config[`access.forward-auth.${name}`] === undefined,
      `--access.forward-auth.${name} needs --access.forward-auth.url`,
    )
  }
  const isEncrypted = /^https:/i.test(config['access.forward-auth.url'] ?? '')
  demandEncrypted(isEncrypted, 'access.forward-auth.ca', config, '--access.forward-auth.url https://...')
  const clientCa = config['access.client-ca']
  demand(
    clientCa === undefined || server['public.tls.cert'] !== undefined,
    '--access.client-ca needs --public.tls.cert',
  )
  for (const name of ['runtimes', 'open'] as const) {
    demand(
      hasKeys || asks || clientCa !== undefined || config[`access.${name}`] === undefined,
      `--access.${name} needs --access.jwt.jwks.file, --access.forward-auth.url or --access.client-ca: nobody would be checked`,
    )
  }
}

function checkControl(config: ServerConfig): void {
  checkPair(config['control.tls.cert'], config['control.tls.key'], 'control.tls')
  const hasTls = config['control.tls.cert'] !== undefined
  const host = config['control.host']
  if (host !== undefined) {
    demand(
      config['public.tls.cert'] !== undefined,
      '--control.host shares the public TLS listener: give --public.tls.cert',
    )
    demand(!config['control.plaintext'], '--control.host and --control.plaintext cannot be used together')
  } else {
    demand(config['control.listen'] !== 'off', '--control.listen off needs --control.host: no client could connect')
    demand(
      hasTls !== config['control.plaintext'],
      hasTls
        ? '--control.plaintext and --control.tls.cert cannot be used together'
        : 'the control endpoint has no certificate: give --control.tls.cert and --control.tls.key ' +
            '(or --control.plaintext behind a proxy that terminates TLS)',
    )
  }
  demand(
    config['control.tls.client-ca'] === undefined || !config['control.plaintext'],
    '--control.tls.client-ca needs TLS on the control endpoint',
  )
}

/** Where each setting is from, by its name. */
type Places = ReadonlyMap<string, { readonly where: string }>

export function checkClientConfig(config: ClientConfig, places: Places = new Map()): void {
  const servers = config.server ?? []
  demand(servers.length > 0, '--server is missing: the control endpoint of the tunnel server, wss://host:port')
  const to = config['connect-to']
  demand(
    to === undefined || readDialled(formatAddress(to)) !== undefined,
    `--connect-to ${to && formatAddress(to)} cannot be dialled: give a host and a port`,
  )
  for (const server of servers) checkServerUrl(server, to?.host)
  const tokens = (['token.file', 'token.command'] as const).filter(name => config[name] !== undefined)
  demand(tokens.length > 0, 'no token: give --token.file or --token.command')
  demand(tokens.length === 1, `--token.file and --token.command cannot be used together${given(tokens, places)}`)
  checkPair(config['tls.cert'], config['tls.key'], 'tls')
  const isEncrypted = servers.some(server => /^wss:/i.test(server))
  demandEncrypted(isEncrypted, 'ca', config, `--server wss://...${given(['ca'], places)}`)
  demand(!config['ca-only'] || (config.ca?.length ?? 0) > 0, '--ca-only needs --ca: no certificate would be trusted')
  const targets = (['target', 'routes', 'preset'] as const).filter(name => config[name] !== undefined)
  checkTarget(targets, '--target, --routes or --preset gitops-runtime', places)
  demand(
    !config['target.trust-errors'] || config.target !== undefined,
    '--target.trust-errors needs --target; a route has its own trustErrors',
  )
  checkAdminConfig(config['admin.listen'], config['admin.token.file'])
}

function checkServerUrl(server: string, to: string | undefined): void {
  const { protocol, hostname, host } = new URL(server)
  if (protocol === 'https:' || protocol === 'http:') {
    const scheme = protocol === 'https:' ? 'wss' : 'ws'
    throw configurationError(`--server ${server}: write ${scheme}:// instead of ${protocol}//: ${scheme}://${host}`)
  }
  demand(
    protocol === 'wss:' || (isLoopback(hostname) && isLoopback(to ?? hostname)),
    `--server ${server}: ws:// sends the token in the clear and is for loopback only; use wss://`,
  )
}

export function checkRouterConfig(config: RouterConfig, places: Places = new Map()): void {
  checkPair(config['tls.cert'], config['tls.key'], 'tls')
  const targets = (['routes', 'preset'] as const).filter(name => config[name] !== undefined)
  checkTarget(targets, '--routes or --preset gitops-runtime', places)
  checkAdminConfig(config['admin.listen'], config['admin.token.file'])
  checkAdminPort(config, { listen: config.listen })
}

function checkTarget(targets: readonly string[], names: string, places: Places): void {
  demand(targets.length > 0, `requests have nowhere to go: give ${names}`)
  demand(targets.length === 1, `give only one of ${names}${given(targets, places)}`)
}

/** One of them may be in a file that nobody thinks of. */
function given(names: readonly string[], places: Places): string {
  const all = names.flatMap(name => places.get(name)?.where ?? [])
  return all.length === 0 ? '' : `; given: ${all.join(', ')}`
}

function checkPair(cert: string | undefined, key: string | undefined, prefix: string): void {
  demand(cert === undefined || key !== undefined, `--${prefix}.cert needs --${prefix}.key`)
  demand(key === undefined || cert !== undefined, `--${prefix}.key needs --${prefix}.cert`)
}

export function checkAdminConfig(address: HostPort | 'off', tokenFile: string | undefined): void {
  demand(
    address === 'off' || tokenFile !== undefined || isLoopback(address.host),
    `--admin.listen ${address === 'off' ? '' : formatAddress(address)} is not loopback: give --admin.token.file`,
  )
}

/** The admin listener opens first, so that the component would find its own port taken. */
function checkAdminPort(
  { 'admin.listen': admin }: Pick<ServerConfig, 'admin.listen'>,
  others: Readonly<Record<string, HostPort | undefined>>,
): void {
  if (admin === 'off' || admin.port === 0) return
  for (const [name, other] of Object.entries(others)) {
    if (other?.port !== admin.port) continue
    const isEverywhere = [other, admin].some(({ host }) => EVERYWHERE.test(canonicalAddress(host)))
    demand(
      !isEverywhere && other.host !== admin.host,
      `--${name} ${formatAddress(other)} has the port of --admin.listen (${formatAddress(admin)}): give one of them another`,
    )
  }
}

/** Authorities that nothing is checked with. The connection would be in clear, although they say otherwise. */
function demandEncrypted<N extends string>(
  isEncrypted: boolean,
  name: N,
  config: { readonly [name in N]: string | readonly string[] | undefined },
  needed: string,
): void {
  demand(isEncrypted || !config[name]?.length, `--${name} needs ${needed}`)
}

function demand(condition: boolean, message: string): void {
  if (!condition) throw configurationError(message)
}
