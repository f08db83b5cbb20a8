/** `docs/metrics.md`, made from the definitions of the metrics. */
import { type Definition, METRICS, RUNTIME_METRICS } from '../../admin/definitions.ts'
import { row } from './tables.ts'

/** The whole page. */
export function metricsPage(): string {
  return `# Metrics

Made by \`npm run docs\` from \`admin/definitions.ts\`; a test compares it with running components. [monitoring.md](monitoring.md) says how
to collect them, with alerts and dashboards.

Names and units are OpenTelemetry's where it has them (semantic conventions 1.37, written as its rules for Prometheus say); a unit in
braces says what is counted. A label has only values of the last column. A counter with a list of values has a series for each from the
start, at 0.

## Of every component, at \`/metrics\`

${tableOf(METRICS)}
## Of each runtime, at \`/metrics/runtimes\`

On the admin listener of a server, for those who have its token: these name tenants.

${tableOf(RUNTIME_METRICS)}`
}

function tableOf(definitions: readonly Definition<never>[]): string {
  const rows = definitions.map(({ name, type, unit, on, help, answers, labels }) => {
    const about = Object.entries(labels).map(([label, values]) => `\`${label}\`: ${valuesText(values)}`)
    return row([`\`${name}\``, type, `\`${unit}\``, on.join(', '), help, answers, about.join('. ')])
  })
  return `| metric | type | unit | on | what it says | which question it answers | labels |\n|---|---|---|---|---|---|---|\n${rows.join('')}`
}

function valuesText(values: readonly string[] | string): string {
  return typeof values === 'string' ? values : values.map(value => `\`${value}\``).join(', ')
}
