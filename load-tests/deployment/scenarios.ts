/** What is measured on a pair that is already running: the same loads as in `npm run bench`, up to a given rate. */
import type { Generators } from '../lib/generator.ts'
import { interleaved, type Measured, type Round } from '../lib/measure.ts'
import type { Column, Section } from '../lib/section.ts'
import { HOOK_BODY, HOOK_HEADERS, PATHS } from '../upstream/service.ts'
import type { BulkResult, BulkTask } from '../workers/bulk.ts'
import type { EventsResult, EventsTask } from '../workers/events.ts'
import type { WebSocketResult, WebSocketTask } from '../workers/websocket.ts'
import { type LoadTarget, under } from './target.ts'

export interface Deployment {
  readonly targets: readonly LoadTarget[]
  readonly connections: number
  /** Requests per second. Undefined: closed loops, as fast as they are answered. */
  readonly rate: number | undefined
  /** The length of one scenario on one target, over all rounds. */
  readonly durationMs: number
  /** The share of wrong answers that ends the run. */
  readonly bailout: number
  readonly generators: Generators
  /** The answer to a GET of the URL itself, if our service is not behind it. */
  readonly plain: { readonly status: number; readonly body?: string } | undefined
  progress(text: string): void
}

export interface DeploymentScenario {
  readonly name: string
  readonly title: string
  /** Needs `sallyport load-test --serve` behind the tunnel. */
  readonly needsService: boolean
  run(deployment: Deployment): Promise<Section>
}

/** Too many answers were wrong. The section contains what was measured until then. */
export class Bailout extends Error {
  override readonly name = 'Bailout'
}

export const ROUNDS = 3
/** Long enough for an event on each stream. */
const EVENTS_MS = 1500
const BULK_BYTES = 16 * 1024 * 1024

const roundMs = ({ durationMs }: Deployment, isWarmUp: boolean): number =>
  isWarmUp ? Math.min(1_000, durationMs / ROUNDS) : durationMs / ROUNDS

/** Throws {@link Bailout} between rounds. */
async function rounds(
  deployment: Deployment,
  label: string,
  once: (target: LoadTarget, isWarmUp: boolean) => Promise<Round & { all: number }>,
): Promise<Measured[]> {
  const progress = (text: string) => deployment.progress(`${label}: ${text}`)
  return interleaved(deployment.targets, { rounds: ROUNDS, progress }, async (target, isWarmUp) => {
    const round = await once(target, isWarmUp)
    if (round.wrong > 0 && round.wrong / Math.max(1, round.all) >= deployment.bailout)
      throw new Bailout(`${label}: ${round.wrong} of ${round.all} answers of ${target.name} were wrong`)
    return round
  })
}

function requests(deployment: Deployment, label: string, load: (target: LoadTarget) => LoadTarget & LoadParts) {
  const { connections, rate, bailout, generators } = deployment
  return rounds(deployment, label, async (target, isWarmUp) => {
    const result = await generators.run({
      ...load(target),
      ...{ connections, durationMs: roundMs(deployment, isWarmUp), bailout },
      ...(rate === undefined ? {} : { rate }),
    })
    const { p50, p99, max, perSecond, generatorCpu } = result
    return { figures: { p50, p99, max, perSecond, generatorCpu }, wrong: result.wrong, all: result.requests }
  })
}

interface LoadParts {
  readonly method?: string
  readonly body?: string
  readonly expectStatus?: number
  readonly expectBody?: string
}

const LATENCY: readonly Column[] = [
  { title: 'answers/s', figure: 'perSecond' },
  { title: 'p50 ms', figure: 'p50' },
  { title: 'over direct', figure: 'p50', above: 'direct' },
  { title: 'p99 ms', figure: 'p99' },
  { title: 'over direct', figure: 'p99', above: 'direct' },
  { title: 'max ms', figure: 'max' },
]

const howMeasured = ({ rate, connections }: Deployment): string =>
  rate === undefined
    ? `Closed loop on ${connections} connections: not corrected for coordinated omission.`
    : `${rate}/s, evenly spaced, on ${connections} connections; latency counts from the time each was due ` +
      '(corrected for coordinated omission).'

const bars = (measured: readonly Measured[], figure: string) =>
  measured.map(row => ({ label: row.name, value: row.figures[figure]?.median ?? 0, isOurs: row.key === 'tunnel' }))

const small: DeploymentScenario = {
  name: 'small',
  title: 'small GET requests',
  needsService: false,
  async run(deployment) {
    const { plain } = deployment
    const measured = await requests(deployment, 'small', target => {
      if (plain === undefined) return { ...under(target, PATHS.small), expectBody: 'x'.repeat(1024) }
      const { status, body } = plain
      return { ...target, expectStatus: status, ...(body === undefined ? {} : { expectBody: body }) }
    })
    return {
      name: 'small',
      title: 'Small GET requests',
      note: howMeasured(deployment),
      measured,
      columns: LATENCY,
      charts: [{ title: 'Small GET requests, p50', unit: 'ms, less is better', bars: bars(measured, 'p50') }],
    }
  },
}

const webhook: DeploymentScenario = {
  name: 'webhook',
  title: '10 KB signed POST, verified by the upstream',
  needsService: true,
  async run(deployment) {
    const measured = await requests(deployment, 'webhook', target => {
      const place = under(target, PATHS.hook)
      const headers = { ...place.headers, ...HOOK_HEADERS }
      return { ...place, headers, method: 'POST', body: HOOK_BODY, expectBody: 'success' }
    })
    return {
      name: 'webhook',
      title: 'Webhooks: 10 KB, signed',
      note: `The upstream verifies the signature over the raw body. ${howMeasured(deployment)}`,
      measured,
      columns: LATENCY,
      charts: [{ title: 'Webhooks, p50', unit: 'ms, less is better', bars: bars(measured, 'p50') }],
    }
  },
}

const bulk: DeploymentScenario = {
  name: 'bulk',
  title: '16 MiB down and up',
  needsService: true,
  async run(deployment) {
    const measured = await rounds(deployment, 'bulk', async target => {
      const transfer = (direction: 'down' | 'up') =>
        deployment.generators.ask<BulkTask, BulkResult>('bulk', {
          ...under(target, direction === 'down' ? `${PATHS.bytes}${BULK_BYTES}` : PATHS.sink),
          ...{ direction, bytes: BULK_BYTES },
        })
      const [down, up] = [await transfer('down'), await transfer('up')]
      const rate = ({ durationMs }: BulkResult) => BULK_BYTES / 1e3 / durationMs
      return { figures: { down: rate(down), up: rate(up) }, wrong: down.wrong + up.wrong, all: 2 }
    })
    return {
      name: 'bulk',
      title: '16 MiB down and up, one connection',
      note: 'The receiver compares every byte. The time includes the dial and the TLS handshake.',
      measured,
      columns: [
        { title: 'down MB/s', figure: 'down' },
        { title: 'of direct', figure: 'down', over: 'direct' },
        { title: 'up MB/s', figure: 'up' },
        { title: 'of direct', figure: 'up', over: 'direct' },
      ],
      charts: [{ title: '16 MiB down', unit: 'MB/s, more is better', bars: bars(measured, 'down') }],
    }
  },
}

const webSocket: DeploymentScenario = {
  name: 'websocket',
  title: 'WebSocket echoes of 64 B',
  needsService: true,
  async run(deployment) {
    const { connections, rate } = deployment
    const measured = await rounds(deployment, 'websocket', async (target, isWarmUp) => {
      const result = await deployment.generators.ask<WebSocketTask, WebSocketResult>('websocket', {
        ...under(target, PATHS.echo),
        ...{ connections, inFlight: 1, messageBytes: 64, durationMs: roundMs(deployment, isWarmUp) },
        ...(rate === undefined ? {} : { rate }),
      })
      const { perSecond, p50, p99, wrong, messages } = result
      return { figures: { perSecond, p50, p99 }, wrong, all: Math.max(messages, wrong) }
    })
    return {
      name: 'websocket',
      title: 'WebSocket echoes of 64 B',
      note: `One message at a time on each of ${connections} connections; every echo is compared.`,
      measured,
      columns: LATENCY.filter(column => column.figure !== 'max'),
      charts: [{ title: 'WebSocket round trip, p50', unit: 'ms, less is better', bars: bars(measured, 'p50') }],
    }
  },
}

const events: DeploymentScenario = {
  name: 'sse',
  title: 'server-sent events, one a second on each connection',
  needsService: true,
  async run(deployment) {
    const measured = await rounds(deployment, 'sse', async (target, isWarmUp) => {
      const durationMs = isWarmUp ? 0 : Math.max(EVENTS_MS, roundMs(deployment, false))
      const result = await deployment.generators.ask<EventsTask, EventsResult>('events', {
        ...under(target, PATHS.events),
        ...{ streams: deployment.connections, durationMs },
        otherClock: true,
      })
      const { open, p50, p99, wrong, events } = result
      return { figures: { open, p50, p99 }, wrong, all: Math.max(events, deployment.connections) }
    })
    return {
      name: 'sse',
      title: 'Server-sent events, one a second on each stream',
      note:
        'The clocks of both ends may differ, so delays are counted above the shortest one of the round. A skipped event ' +
        'or a broken stream is a wrong answer.',
      measured,
      columns: [
        { title: 'open', figure: 'open' },
        { title: 'p50 ms', figure: 'p50' },
        { title: 'p99 ms', figure: 'p99' },
      ],
      charts: [{ title: 'Delay of events, p99', unit: 'ms, less is better', bars: bars(measured, 'p99') }],
    }
  },
}

export const DEPLOYMENT_SCENARIOS: readonly DeploymentScenario[] = [small, webhook, bulk, webSocket, events]
