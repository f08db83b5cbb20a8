import { type ClientOptions, createTunnel, type Tunnel } from '../../client/index.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { createForwarder } from '../../router/forward.ts'
import type { Arguments } from '../args.ts'
import type { Run } from '../command.ts'
import type { ClientConfig, clientSettings } from '../config/client.ts'
import { loadFromCommandLine } from '../config/command-line.ts'
import type { Loaded } from '../config/load.ts'
import { checkClientConfig } from '../config/rules.ts'
import { EXIT, usageError } from '../failure.ts'
import { Changes } from '../service/changes.ts'
import { loadTrust, watchTrust } from '../service/client-trust.ts'
import { type EmbeddedTarget, embedRouter } from '../service/embedded-router.ts'
import { checkClientFiles } from '../service/files.ts'
import { loadInboxKeys } from '../service/inbox-key.ts'
import { inspection } from '../service/inspection.ts'
import { runService, type Service, type ServiceContext } from '../service/run-service.ts'
import { checkWhenAway, hasSession } from '../service/self-check.ts'
import { openTokenSource } from '../service/token-source.ts'
import { openTracing } from '../service/tracing.ts'
import { tunnelOptions } from '../service/tunnel-options.ts'
import { announceClient } from '../terminal/announce.ts'

export const runClient: Run = async (args, io) => {
  const loaded = await loadFromCommandLine('client', withTarget(args), io)
  checkClientConfig(loaded.values, loaded.origins)
  await checkClientFiles(loaded.values)
  const warnings = [...loaded.warnings, ...proxyWarnings(loaded)]
  // With TARGET on a terminal, a developer is probably watching, so the inspector is on by default.
  const watched = loaded.origins.get('inspect')?.source === 'default' && args.positionals.length > 0
  return runService('client', { ...loaded, warnings }, io, context => {
    const inspect = watched && context.terminal !== undefined ? 'heads' : loaded.values.inspect
    return start({ ...loaded.values, inspect }, context)
  })
}

/** Turns TARGET (`3000`, `localhost:3000` or a URL) into `--target`. */
export function withTarget({ flags, positionals }: Arguments): Arguments {
  const [text] = positionals
  if (text === undefined) return { flags, positionals }
  if (flags.has('target')) throw usageError('give either TARGET or --target')
  const host = /^\d{1,5}$/.test(text) ? `localhost:${text}` : text
  const target = host.includes('://') ? host : `http://${host}`
  return { flags: new Map([...flags, ['target', [target]]]), positionals: [] }
}

/** Warns of secrets on the command line, which anyone on the machine can read. */
function proxyWarnings({ values, origins }: Loaded<typeof clientSettings>): string[] {
  const { proxy = '' } = values
  const isOpen = proxy !== '' && new URL(proxy).password !== '' && origins.get('proxy')?.source === 'flag'
  return isOpen ? ['--proxy shows its password to everyone on this machine; SALLYPORT_PROXY does not'] : []
}

async function start(config: ClientConfig, context: ServiceContext): Promise<Service> {
  const { logger, terminal, onExchange } = context
  warnAtStart(config, logger)
  const token = await openTokenSource(config, logger)
  const target = config.target === undefined ? await embedRouter(config, logger) : forwardTo(config, logger)
  const ended = Promise.withResolvers<number>()
  const changes = new Changes()
  const loaded = await loadTrust(config)
  const tracing = await openTracing(config, context)
  const options: ClientOptions = {
    ...tunnelOptions(config),
    ...loaded,
    inboxKeys: config['inbox.key.file'] === undefined ? undefined : loadInboxKeys(config['inbox.key.file']),
    token: token.source,
    target: target.target,
    tracing: config.tracing === 'server' ? 'server' : tracing && { tracer: tracing.options.tracer },
    logger,
    onExchange,
  }
  const tunnel = createTunnel({
    ...options,
    on: {
      // A live session means that its token is still valid.
      refused: () => config['exit-on-refusal'] && !hasSession(tunnel) && ended.resolve(EXIT.refused),
    },
  })
  followSessions(tunnel, changes)
  if (terminal !== undefined) announceClient(terminal, tunnel, config)
  token.follow(fresh => tunnel.setToken(fresh))
  target.follow(() => tunnel.republish())
  const trust = watchTrust(config, loaded, tunnel, logger)
  const selfCheck = checkWhenAway(tunnel, () => ({ ...options, ...trust.inForce() }), logger)
  return {
    ...inspection(tunnel.inspector),
    ready: () => tunnel.ready(),
    status: () => ({ ...describeTunnel(tunnel), recent: changes.recent }),
    snapshot: () => ({
      ...snapshot(tunnel),
      stateChanges: changes.counts,
      certificates: trust.certificates(),
      spans: tracing?.stats(),
    }),
    ended: ended.promise,
    async close(options) {
      selfCheck.close()
      trust.close()
      await tunnel.close(options)
      token.close()
      await target.close()
      await tracing?.close()
    },
  }
}

function forwardTo(config: ClientConfig, logger: Logger): EmbeddedTarget {
  const forwarder = createForwarder(config.target!, { trustErrors: config['target.trust-errors'], logger })
  return { target: forwarder, follow() {}, close: async () => forwarder.close() }
}

function warnAtStart(config: ClientConfig, logger: Logger): void {
  if (config['ca-only']) logger.info({}, 'the authorities of the system are not trusted')
  if (config.server?.some(server => server.startsWith('ws:'))) {
    logger.warn({}, 'ws:// sends the token in the clear; it is for tests on one machine')
  }
}

function followSessions(tunnel: Tunnel, changes: Changes): void {
  tunnel.on('connected', ({ session }) => changes.note('connected', { session }))
  tunnel.on('disconnected', ({ session, reason }) => changes.note('disconnected', { session, reason }))
  tunnel.on('draining', ({ session, reason }) => changes.note('draining', { session, reason }))
  tunnel.on('reconnecting', ({ reason }) => changes.note('reconnecting', { reason }))
  tunnel.on('refused', ({ reason }) => changes.note('refused', { reason }))
  tunnel.on('standing', ({ active, epoch }) =>
    changes.note(active ? 'active' : 'standby', { reason: `epoch ${epoch}` }),
  )
}

function snapshot(tunnel: Tunnel) {
  const { sessions, reconnects, tokenExpiresMs, active, bodyBytesIn, bodyBytesOut } = tunnel.stats()
  const sum = (value: (session: (typeof sessions)[number]) => number) =>
    sessions.reduce((total, session) => total + value(session), 0)
  return {
    sessions: sessions.filter(session => session.state === 'ready').length,
    streams: sum(session => session.streams),
    bufferedBytes: sum(session => session.bufferedBytes),
    roundTripsMs: sessions.map(session => session.rttMs),
    reconnects,
    ...{ bodyBytesIn, bodyBytesOut },
    active: active ? 1 : 0,
    ...(tokenExpiresMs === undefined ? {} : { tokenExpiresAt: tokenExpiresMs }),
  }
}

function describeTunnel(tunnel: Tunnel) {
  const { sessions, connections, tokenExpiresMs, ...rest } = tunnel.stats()
  return {
    ...rest,
    connections: connections.map(({ lastErrorMs, ...connection }) => ({
      ...connection,
      lastErrorAt: lastErrorMs === undefined ? undefined : new Date(lastErrorMs).toISOString(),
    })),
    tokenEnds: tokenExpiresMs === undefined ? undefined : new Date(tokenExpiresMs).toISOString(),
    sessions: sessions.map(({ openedMs, ...session }) => ({
      ...session,
      connectedSince: new Date(openedMs).toISOString(),
    })),
  }
}
