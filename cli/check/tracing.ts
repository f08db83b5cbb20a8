import { noLogger } from '../../protocol/base/log.ts'
import type { Probe } from '../../protocol/base/probe.ts'
import { openTracing, type TracingConfig, type TracingContext } from '../service/tracing.ts'
import { attempt } from './attempt.ts'

const ADVICE = {
  ca: 'NODE_EXTRA_CA_CERTS',
  hint: 'Spans are lost meanwhile. The receiver must take OTLP over HTTP (usually port 4318, not 4317). With --tracing.endpoint, OTEL_EXPORTER_OTLP_HEADERS is not sent.',
}

/** Sends the receiver of traces a request without spans. */
export async function probeTracing(
  component: string,
  config: TracingConfig,
  environment: TracingContext['environment'],
): Promise<Probe[]> {
  if (config.tracing !== 'otlp') return []
  const about = { code: 'tracing', what: '--tracing otlp', expected: 'a receiver of OTLP over HTTP' }
  const tracing = await openTracing(config, { component, logger: noLogger, environment, isGiven: () => false })
  if (tracing === undefined)
    return [{ ...about, status: 'skip', found: 'an OpenTelemetry variable turns tracing off', hint: '' }]
  const probe = await attempt({ ...about, what: `--tracing otlp to ${tracing.place}` }, ADVICE, async () => {
    await tracing.check()
    return { found: 'it takes spans' }
  })
  await tracing.close()
  return [probe]
}
