import { formatDuration } from '../../protocol/base/durations.ts'
import type { HostPort } from '../../protocol/base/host-port.ts'
import type { Logger } from '../../protocol/base/log.ts'
import type { ExchangeRecord } from '../../protocol/exchange.ts'
import type { Io } from '../command.ts'
import type { Loaded } from '../config/load.ts'
import { EXIT, ofMisuse } from '../failure.ts'
import type { Terminal } from '../terminal/terminal.ts'
import { accessLog, watchExchanges } from './access-log.ts'
import { type AdminView, startAdmin } from './admin.ts'
import { keepCompiledCode } from './compiled-code.ts'
import { demandListeners, forgetSockets, type GivenSockets, givenSockets } from './given-sockets.ts'
import { openLog } from './log.ts'
import { collectReadBuffers } from './read-buffers.ts'
import { awaitStop, unlessGivenUp, untilSecondSignal } from './stop.ts'

/** Settings that `runService` itself reads. */
interface CommonConfig {
  readonly grace: number
  readonly 'admin.listen': HostPort | 'off'
  readonly 'admin.token.file': string | undefined
  readonly 'health.listen': HostPort | 'off'
  /** Only for servers. */
  readonly 'reuse-address'?: boolean
  readonly 'log.level': 'debug' | 'info' | 'warn' | 'error'
  readonly 'log.format': 'auto' | 'json' | 'text'
  readonly 'log.access': 'errors' | 'all' | 'off'
}

/** A running component. */
export interface Service extends AdminView {
  close(options: { graceMs: number }): Promise<void>
  /** Resolves with an exit code if the component ends by itself. */
  readonly ended?: Promise<number>
}

export interface ServiceContext {
  readonly component: 'server' | 'client' | 'router'
  readonly environment: Readonly<Record<string, string | undefined>>
  /** Whether a setting was given, rather than its default. */
  readonly isGiven: (name: string) => boolean
  readonly logger: Logger
  /** Set if stderr is a terminal that shows the component. */
  readonly terminal: Terminal | undefined
  /** For the component's `onExchange`: access log and metrics. */
  readonly onExchange: (exchange: ExchangeRecord) => void
  readonly sockets: GivenSockets
  /** Aborted at the first signal. A start that is still in progress should end then. */
  readonly stopping: AbortSignal
}

/**
 * Runs a long-running command: starts logger, admin listeners and component. The first signal stops it gracefully: `/readyz`
 * turns 503, the component drains, and everything closes. A second signal stops it at once.
 */
export async function runService(
  component: 'server' | 'client' | 'router',
  loaded: Pick<Loaded<never>, 'origins' | 'warnings'> & { values: CommonConfig },
  io: Io,
  start: (context: ServiceContext) => Promise<Service>,
): Promise<number> {
  const { values, origins, warnings } = loaded
  const { 'log.level': level, 'log.format': format, 'log.access': access } = values
  const sockets = givenSockets(component, io.environment)
  forgetSockets(process.env)
  demandListeners(sockets, { admin: values['admin.listen'] !== 'off', health: values['health.listen'] !== 'off' })
  const isGiven = (name: string) => origins.get(name)?.source !== 'default'
  const { environment } = io
  const { logger, terminal, recent } = await openLog({
    component,
    level,
    levelGiven: isGiven('log.level'),
    format,
    environment,
  })
  for (const warning of warnings) logger.warn({}, warning)
  const stop = awaitStop(logger)
  const opening = startAdmin({
    component,
    admin: values['admin.listen'],
    isGiven: isGiven('admin.listen'),
    tokenFile: values['admin.token.file'],
    health: values['health.listen'],
    sockets,
    reusePort: values['reuse-address'] ?? false,
    environment,
    logger,
    async diagnose(more, profileS) {
      const { diagnosisOf } = await import('../diag/diagnosis.ts')
      return await diagnosisOf(component, loaded, environment, { ...more, log: recent.all, profileS })
    },
  })
  const admin = await unlessGivenUp(opening, stop, logger)
  if (admin === undefined) return notStarted(logger)
  const shown = isGiven('log.access') || level === 'warn' || level === 'error' ? access : 'all'
  const log = terminal === undefined ? accessLog(logger, access) : watchExchanges(terminal, shown)
  keepCompiledCode(logger)
  const stopCollecting = collectReadBuffers(logger)
  try {
    const onExchange = (exchange: ExchangeRecord) => {
      admin.record(exchange)
      log(exchange)
    }
    const starting = start({
      ...{ component, environment, isGiven, logger, terminal, onExchange, sockets },
      stopping: stop.first,
    }).catch(error => {
      throw ofMisuse(error)
    })
    const service = await unlessGivenUp(starting, stop, logger)
    if (service === undefined) return notStarted(logger)
    admin.show(service)
    const link = terminal === undefined ? undefined : admin.link()
    if (link !== undefined) terminal?.banner('page', link)
    const ended = await Promise.race([stop.stopped.then(() => EXIT.ok), service.ended ?? new Promise<never>(() => {})])
    admin.stopping()
    terminal?.note(`stopping: open requests have ${formatDuration(values.grace)} to finish; Ctrl-C again stops at once`)
    await untilSecondSignal(service.close({ graceMs: values.grace }), stop.now)
    if (stop.now.aborted) return EXIT.runtime
    logger.info({}, 'stopped')
    return ended
  } finally {
    stopCollecting()
    terminal?.close()
    await admin.close()
    stop.close()
  }
}

function notStarted(logger: Logger): number {
  logger.info({}, 'stopped before it had started')
  return EXIT.ok
}
