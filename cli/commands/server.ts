import { createServer, type Server, type ServerOptions } from '../../server/index.ts'
import { DRAIN_TIMES, HOLD_LIMITS, INBOX, LEASE, SERVER_LIMITS } from '../../server/limits.ts'
import type { TlsFiles } from '../../server/tls.ts'
import type { Run } from '../command.ts'
import { loadFromCommandLine } from '../config/command-line.ts'
import { formatAddress } from '../../protocol/base/host-port.ts'
import { checkPublicConfig, checkServerConfig } from '../config/rules.ts'
import { controlAddress, type ServerConfig } from '../config/server.ts'
import { limitOptions } from '../config/setting.ts'
import { readInput } from '../options.ts'
import { announceServer } from '../terminal/announce.ts'
import { Changes } from '../service/changes.ts'
import { checkServerFiles } from '../service/files.ts'
import { demandListeners, type GivenSockets } from '../service/given-sockets.ts'
import { explainListenErrorOf } from '../service/listen-error.ts'
import { runService, type Service, type ServiceContext } from '../service/run-service.ts'
import { sessionStatus, serverLifecycle } from '../service/server-lifecycle.ts'
import { openTracing } from '../service/tracing.ts'

/** `sallyport server` */
export const runServer: Run = async (args, io) => {
  const loaded = await loadFromCommandLine('server', args, io)
  checkServerConfig(loaded.values)
  await checkServerFiles(loaded.values)
  return runService('server', loaded, io, context => start(loaded.values, context))
}

async function start(config: ServerConfig, context: ServiceContext): Promise<Service> {
  warnAtStart(config, context)
  demandListeners(context.sockets, {
    control: controlAddress(config) !== undefined,
    peer: config['peer.listen'] !== undefined,
  })
  const tracing = await openTracing(config, context)
  const server = await listen(config, context, tracing?.options)
  try {
    // A socket that is given has an address of its own, whatever the flag says.
    checkPublicConfig(config, server.publicAddress!)
  } catch (error) {
    await server.close({ graceMs: 0 })
    throw error
  }
  const changes = followSessions(server)
  if (context.terminal !== undefined) announceServer(context.terminal, server, config)
  return {
    ready: () => server.ready(),
    status: () => describeServer(server, changes),
    snapshot: () => ({ ...server.stats(), stateChanges: changes.counts, spans: tracing?.stats() }),
    sessions: () => server.sessions(),
    ...serverLifecycle(server, context.logger),
    async close(options) {
      await server.close(options)
      await tracing?.close()
    },
  }
}

async function listen(
  config: ServerConfig,
  context: ServiceContext,
  tracing: ServerOptions['tracing'],
): Promise<Server> {
  try {
    return await createServer({ ...serverOptions(config, context), tracing })
  } catch (error) {
    const control = controlAddress(config)
    throw explainListenErrorOf(error, [
      { flag: 'public.listen', address: formatAddress(config['public.listen']), port: config['public.listen'].port },
      ...(config['peer.listen']
        ? [
            {
              flag: 'peer.listen',
              address: formatAddress(config['peer.listen']),
              port: config['peer.listen'].port,
            },
          ]
        : []),
      ...(control ? [{ flag: 'control.listen', address: formatAddress(control), port: control.port }] : []),
    ])
  }
}

function serverOptions(config: ServerConfig, { logger, onExchange, sockets, stopping }: ServiceContext): ServerOptions {
  const publicTls = tlsFiles(config['public.tls.cert'], config['public.tls.key'], config['public.tls.ocsp'])
  const clientCa = config['control.tls.client-ca']
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
      jwks: keySet(config),
      revocations: {
        file: config['auth.revocations.file'],
        url: config['auth.revocations.url'],
        ca: authorities(config['auth.revocations.ca'], 'the authorities of the list of revocations'),
      },
      issuer: config['auth.issuer'],
      audience: config['auth.audience'],
      runtimeClaim: config['auth.runtime-claim'],
      algorithms: config['auth.algorithms'],
      clockToleranceS: config['auth.clock-tolerance'] / 1000,
    },
    trustedProxies: config['trusted-proxies'],
    cors: config['public.cors.origins'] && { origins: config['public.cors.origins'] },
    limits: limitOptions(SERVER_LIMITS, config),
    hold: limitOptions(HOLD_LIMITS, config),
    ...limitOptions(DRAIN_TIMES, config),
    directory: directory(config),
    peer: peer(config, sockets),
    inbox: inbox(config),
    replica: config.replica,
    healthPath: config['public.health-path'],
    reusePort: config['reuse-address'],
    signal: stopping,
    logger,
    onExchange,
  }
}

function directory(config: ServerConfig): ServerOptions['directory'] {
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
    tls: { ...files, ca: readInput(config['peer.tls.ca']!, 'the authority of the replicas') },
  }
}

function inbox(config: ServerConfig): ServerOptions['inbox'] {
  if (config.inbox === 'off') return undefined
  const file = config['inbox.password.file']
  return {
    url: config.inbox,
    password: file === undefined ? undefined : { file },
    ca: authorities(config['inbox.tls.ca'], 'the authorities of PostgreSQL'),
    plaintext: config['inbox.plaintext'],
    ...limitOptions(INBOX, config),
  }
}

function keySet(config: ServerConfig): ServerOptions['auth']['jwks'] {
  const file = config['auth.jwks.file']
  if (file !== undefined) return { file }
  return { url: config['auth.jwks.url']!, ca: authorities(config['auth.jwks.ca'], 'the authorities of the key set') }
}

function authorities(file: string | undefined, what: string): string | undefined {
  return file === undefined ? undefined : readInput(file, what)
}

function tlsFiles(cert: string | undefined, key: string | undefined, ocsp?: string): TlsFiles | undefined {
  if (cert === undefined || key === undefined) return undefined
  return { cert: { file: cert }, key: { file: key }, ...(ocsp === undefined ? {} : { ocsp: { file: ocsp } }) }
}

function followSessions(server: Server): Changes {
  const changes = new Changes()
  server.on('session', ({ id, runtime }) => changes.note('session opened', { session: id, runtime }))
  server.on('ready', ({ id, runtime }) => changes.note('session ready', { session: id, runtime }))
  server.on('sessionEnded', ({ id, runtime, reason }) => {
    changes.note('session ended', { session: id, runtime, reason })
  })
  server.on('refused', ({ reason, detail }) => changes.note('handshake refused', { reason: detail || reason }))
  return changes
}

function describeServer(server: Server, changes: Changes) {
  return { ...server.stats(), openSessions: server.sessions().map(sessionStatus), recent: changes.recent }
}

function warnAtStart(config: ServerConfig, { logger }: ServiceContext): void {
  if (config['control.tls.min'] === '1.2')
    logger.warn({}, 'the control endpoint takes TLS 1.2, for old middleboxes only')
  if (config['inbox.plaintext'])
    logger.warn({}, 'the inbox is plain for clients without a key: their webhooks stand in its file as they came')
  if (config['control.plaintext']) logger.warn({}, 'the control endpoint is plain: tokens cross it in the clear')
}
