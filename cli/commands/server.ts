import { NoRight } from '../../server/directory/store.ts'
import { createServer, type Server, type ServerOptions } from '../../server/index.ts'
import type { Run } from '../command.ts'
import { loadFromCommandLine } from '../config/command-line.ts'
import { checkPublicConfig, checkServerConfig } from '../config/rules.ts'
import { type AccessConfig, controlAddress, type ServerConfig } from '../config/server.ts'
import { configurationError } from '../failure.ts'
import { readAccess } from '../service/access-files.ts'
import { Changes } from '../service/changes.ts'
import { checkServerFiles } from '../service/files.ts'
import { demandListeners } from '../service/given-sockets.ts'
import { explainListenErrorOf } from '../service/listen-error.ts'
import { RecentTraces } from '../service/recent-traces.ts'
import { runService, type Service, type ServiceContext } from '../service/run-service.ts'
import { serverLifecycle, sessionStatus } from '../service/server-lifecycle.ts'
import { serverOptions } from '../service/server-options.ts'
import { keepRecent, openTracing } from '../service/tracing.ts'
import { announceServer } from '../terminal/announce.ts'

export const runServer: Run = async (args, io) => {
  const loaded = await loadFromCommandLine('server', args, io)
  checkServerConfig(loaded.values)
  const callers = await readAccess(loaded.values)
  await checkServerFiles(loaded.values, callers)
  return runService('server', loaded, io, context => start(loaded.values, callers, context))
}

async function start(
  config: ServerConfig,
  callers: readonly AccessConfig[],
  context: ServiceContext,
): Promise<Service> {
  warnAtStart(config, context)
  demandListeners(context.sockets, {
    control: controlAddress(config) !== undefined,
    peer: config['peer.listen'] !== undefined,
  })
  const recent = config.tracing === 'recent' ? new RecentTraces() : undefined
  const tracing = recent === undefined ? await openTracing(config, context) : keepRecent(recent, config, context)
  const server = await listen(serverOptions(config, callers, context.sockets), config, context, tracing?.options)
  try {
    // A socket that was passed in has its own address, whatever the flag says.
    checkPublicConfig(config, server.publicAddress!)
  } catch (error) {
    await server.close({ graceMs: 0 })
    throw error
  }
  const changes = followSessions(server)
  const lifecycle = serverLifecycle(server, context.logger)
  if (context.terminal !== undefined) announceServer(context.terminal, server, config)
  return {
    ready: () => server.ready(),
    status: () => describeServer(server, changes),
    snapshot: () => ({ ...server.stats(), stateChanges: changes.counts, spans: tracing?.stats() }),
    sessions: () => server.sessions(),
    ...lifecycle,
    views: { ...lifecycle.views, '/traces': () => ({ traces: recent?.list() ?? null }) },
    async close(options) {
      await server.close(options)
      await tracing?.close()
    },
  }
}

async function listen(
  options: ServerOptions,
  config: ServerConfig,
  context: ServiceContext,
  tracing: ServerOptions['tracing'],
): Promise<Server> {
  try {
    const { logger, onExchange, stopping } = context
    return await createServer({ ...options, signal: stopping, logger, onExchange, tracing })
  } catch (error) {
    if (error instanceof NoRight) throw configurationError(`--directory: ${error.message}`, error)
    const { 'public.listen': callers, 'peer.listen': peer } = config
    const addresses = { 'public.listen': callers, 'peer.listen': peer, 'control.listen': controlAddress(config) }
    throw explainListenErrorOf(error, addresses)
  }
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
    logger.warn({}, 'the control endpoint accepts TLS 1.2, which is only for old middleboxes')
  if (config['inbox.plaintext']) logger.warn({}, 'webhooks for clients without an inbox key are stored unencrypted')
  if (config['inbox.mac.optional'])
    logger.warn(
      {},
      'webhooks in the inbox are trusted without a MAC: anyone with write access to its store can insert some',
    )
  if (config['control.plaintext']) logger.warn({}, 'the control endpoint has no TLS: tokens arrive in the clear')
}
