/** Configures where the spans of a component go, from its settings and the OpenTelemetry variables. */
import { type Logger, noLogger } from '../../protocol/base/log.ts'
import { urlForLogs } from '../../protocol/base/path.ts'
import { packageVersion } from '../../protocol/base/version.ts'
import type { TracingOptions } from '../../protocol/trace/sampling.ts'
import { createTracer } from '../../protocol/trace/tracer.ts'
import type { ExporterStats } from '../../tracing/index.ts'
import { ofMisuse } from '../failure.ts'
import type { RecentTraces } from './recent-traces.ts'

export interface TracingConfig {
  readonly tracing: string
  readonly 'tracing.endpoint': string | undefined
  /** Not for clients. */
  readonly 'tracing.ratio'?: number
}

export interface TracingContext {
  readonly component: string
  readonly logger: Logger
  readonly environment: Readonly<Record<string, string | undefined>>
  /** Whether a setting was given, rather than its default. */
  readonly isGiven: (name: string) => boolean
}

interface OpenTracing {
  readonly options: TracingOptions
  /** Undefined if nothing is exported. */
  stats(): ExporterStats | undefined
  /** Sends the spans that wait. */
  close(): Promise<void>
}

interface ExportedTracing extends OpenTracing {
  /** The receiver, for logs. */
  readonly place: string
  /** Rejects if the receiver does not accept a request without spans. */
  check(): Promise<void>
}

/** Where collectors listen by default. */
const DEFAULT_URL = 'http://127.0.0.1:4318/v1/traces'

/** Undefined if tracing is off. Throws TypeError. */
export async function openTracing(
  config: TracingConfig,
  context: TracingContext,
): Promise<ExportedTracing | undefined> {
  if (config.tracing !== 'otlp') return undefined
  const { createExporter, readOtelEnvironment } = await import('../../tracing/index.ts')
  const { refuseCredentials, tracesUrl } = await import('../../tracing/environment.ts')
  const { logger } = context
  const { disabled, sampler, resource, url, headers, timeoutMs } = readOtelEnvironment(context.environment)
  if (disabled) {
    logger.warn({}, 'tracing is off: an OpenTelemetry variable disables it')
    return undefined
  }
  const endpoint = config['tracing.endpoint']
  if (endpoint === undefined) refuseCredentials(context.environment)
  const receiver = endpoint === undefined ? (url ?? DEFAULT_URL) : tracesUrl(endpoint)
  const exporter = createExporter({
    url: receiver,
    // These headers belong to the endpoint of the same variables, and may be secret.
    headers: endpoint === undefined ? headers : {},
    timeoutMs,
    resource: { 'service.name': `sallyport-${context.component}`, 'service.version': packageVersion(), ...resource },
    logger,
  })
  const { 'tracing.ratio': ratio } = config
  const own = { ratio, parentBased: true }
  const sampling = context.isGiven('tracing.ratio') ? own : (sampler ?? own)
  return {
    options: { tracer: createTracer(exporter.add, logger), ...sampling },
    place: urlForLogs(receiver),
    check: () => exporter.check(),
    stats: () => exporter.stats(),
    close: () => exporter.close(),
  }
}

/** Throws whatever {@link openTracing} would throw. */
export async function checkTracing(config: TracingConfig, environment: TracingContext['environment']): Promise<void> {
  const context = { component: '', logger: noLogger, environment, isGiven: () => false }
  await openTracing(config, context).then(
    tracing => tracing?.close(),
    error => {
      throw ofMisuse(error)
    },
  )
}

/** Keeps spans in memory. Nothing leaves the process, so the OpenTelemetry variables do not apply. */
export function keepRecent(
  recent: RecentTraces,
  { 'tracing.ratio': ratio }: Pick<TracingConfig, 'tracing.ratio'>,
  { logger }: Pick<TracingContext, 'logger'>,
): OpenTracing {
  const tracer = createTracer(recent.add, logger)
  return { options: { tracer, ratio, parentBased: true }, stats: () => undefined, close: async () => {} }
}
