import { certificatesIn } from '../../protocol/base/certificates.ts'
import { formatAddress } from '../../protocol/base/host-port.ts'
import type { AccessOptions } from '../../server/access/options.ts'
import type { KeyOrigin } from '../../server/auth/key-source.ts'
import type { RedisOptions } from '../../server/directory/redis-options.ts'
import type { ServerOptions } from '../../server/index.ts'
import { DRAIN_TIMES, HOLD_LIMITS, INBOX, LEASE, SERVER_LIMITS } from '../../server/limits.ts'
import { tlsFiles } from '../../server/tls.ts'
import { type AccessConfig, controlAddress, type ServerConfig } from '../config/server.ts'
import { limitOptions } from '../config/setting.ts'
import { readInput } from '../options.ts'
import type { GivenSockets } from './given-sockets.ts'

/** Options of `createServer`, without those of the process around it. */
export function serverOptions(
  config: ServerConfig,
  callers: readonly AccessConfig[],
  sockets: GivenSockets,
): ServerOptions {
  const publicTls = tlsFiles(config['public.tls.cert'], config['public.tls.key'], config['public.tls.ocsp'])
  const clientCa = config['control.tls.client-ca']
  const access = callers.flatMap(one => accessOptions(one) ?? [])
  return {
    public: {
      ...config['public.listen'],
      fd: sockets.get('public'),
      tls: publicTls,
      tlsFolder: config['public.tls.folder'],
      plaintext: config['public.plaintext'],
      url: config['public.url'],
    },
    control: {
      ...controlAddress(config),
      fd: sockets.get('control'),
      tls:
        tlsFiles(config['control.tls.cert'], config['control.tls.key']) ??
        (config['control.host'] === undefined ? undefined : publicTls),
      clientCa: clientCa === undefined ? undefined : { file: clientCa },
      plaintext: config['control.plaintext'],
      hostName: config['control.host'],
      proxyProtocol: config['control.proxy-protocol'],
      tlsMin: config['control.tls.min'] === '1.2' ? 'TLSv1.2' : 'TLSv1.3',
    },
    domains: config.domain ?? [],
    ownHosts: config['own-hosts'],
    auth: {
      jwks: keySet(config['auth.jwks.file'], config['auth.jwks.url'], config['auth.jwks.ca']),
      revocations: {
        file: config['auth.revocations.file'],
        url: config['auth.revocations.url'],
        ca: authorities(config['auth.revocations.ca'], 'the authorities of the revocation list'),
      },
      issuer: config['auth.issuer'],
      audience: config['auth.audience'],
      runtimeClaim: config['auth.runtime-claim'],
      algorithms: config['auth.algorithms'],
      clockToleranceS: config['auth.clock-tolerance'] / 1000,
    },
    access: access.length === 0 ? undefined : access,
    trustedProxies: config['trusted-proxies'],
    cors: config['public.cors.origins'] && { origins: config['public.cors.origins'] },
    limits: limitOptions(SERVER_LIMITS, config),
    hold: limitOptions(HOLD_LIMITS, config),
    ...limitOptions(DRAIN_TIMES, config),
    directory: directoryOptions(config),
    peer: peer(config, sockets),
    inbox: inbox(config),
    replica: config.replica,
    healthPath: config['public.health-path'],
    reusePort: config['reuse-address'],
  }
}

/** Undefined if nothing is checked. */
export function accessOptions(config: AccessConfig): AccessOptions | undefined {
  const [audience, clientCa] = [config['access.jwt.audience'], config['access.client-ca']]
  const url = config['access.forward-auth.url']
  if (audience === undefined && url === undefined && clientCa === undefined) return undefined
  return {
    jwt: audience === undefined ? undefined : callerTokens(config, audience),
    forwardAuth: url === undefined ? undefined : forwardAuth(config, url),
    clientCa: clientCa === undefined ? undefined : { file: clientCa },
    runtimes: config['access.runtimes'],
    open: config['access.open'],
  }
}

function callerTokens(config: AccessConfig, audience: string) {
  return {
    audience,
    jwks: keySet(config['access.jwt.jwks.file'], config['access.jwt.jwks.url'], config['access.jwt.jwks.ca']),
    issuer: config['access.jwt.issuer'],
    runtimeClaim: config['access.jwt.runtime-claim'],
    forward: config['access.jwt.forward'],
  }
}

function forwardAuth(config: AccessConfig, url: string) {
  return {
    url,
    ca: authorities(config['access.forward-auth.ca'], 'the authorities of the forward-auth service'),
    headers: config['access.forward-auth.headers'],
    timeoutMs: config['access.forward-auth.timeout'],
  }
}

/** How to connect to the directory. Undefined without one. */
export function directoryOptions(config: ServerConfig): RedisOptions | undefined {
  const url = config.directory
  if (url === undefined) return undefined
  const secret = (file: string | undefined) => (file === undefined ? undefined : { file })
  const [user, password] = [config['directory.sentinel.user'], secret(config['directory.sentinel.password.file'])]
  return {
    url,
    user: config['directory.user'],
    password: secret(config['directory.password.file']),
    sentinel: user === undefined && password === undefined ? undefined : { user, password },
    ca: authorities(config['directory.tls.ca'], 'the authorities of the directory'),
    ...limitOptions(LEASE, config),
    prefix: config['directory.prefix'],
  }
}

function peer(config: ServerConfig, sockets: GivenSockets): ServerOptions['peer'] {
  const listen = config['peer.listen']
  if (listen === undefined) return undefined
  const advertise = config['peer.advertise']
  const files = tlsFiles(config['peer.tls.cert'], config['peer.tls.key'])!
  return {
    ...listen,
    fd: sockets.get('peer'),
    advertise: advertise && formatAddress(advertise),
    tls: { ...files, ca: { file: config['peer.tls.ca']! } },
  }
}

function inbox(config: ServerConfig): ServerOptions['inbox'] {
  if (config.inbox === 'off') return undefined
  const [file, mac] = [config['inbox.password.file'], config['inbox.mac.file']]
  return {
    url: config.inbox,
    password: file === undefined ? undefined : { file },
    ca: authorities(config['inbox.tls.ca'], 'the authorities of PostgreSQL'),
    mac: mac === undefined ? undefined : { file: mac, optional: config['inbox.mac.optional'] },
    plaintext: config['inbox.plaintext'],
    ...limitOptions(INBOX, config),
  }
}

function keySet(file: string | undefined, url: string | undefined, ca: string | undefined): KeyOrigin {
  return file === undefined ? { url: url!, ca: authorities(ca, 'the authorities of the key set') } : { file }
}

function authorities(file: string | undefined, what: string): string | undefined {
  return file === undefined ? undefined : certificatesIn(readInput(file, what)).join('')
}
