import { withPath } from '../setups/setup.ts'
import { PATHS } from '../upstream/service.ts'
import type { EventsResult, EventsTask } from '../workers/events.ts'
import { bars, measureSetups, type Scenario, UNIT } from './scenario.ts'

const SETUPS = {
  smoke: ['tunnel'],
  quick: ['direct', 'nginx', 'tunnel'],
  full: ['direct', 'nginx', 'tunnel', 'tunnel-tls'],
} as const
const STREAMS = { smoke: 20, quick: 200, full: 1000 } as const
/** At least two seconds, so that each stream has events to count. */
const DURATION_MS = { smoke: 1500, quick: 2000, full: 3000 } as const

/** Open event streams with one event per second each, and how late the events arrive. */
export const events: Scenario = {
  name: 'sse',
  title: 'server-sent events: 1,000 open streams, an event each every second, delivery delay',
  async run(bench) {
    const streams = STREAMS[bench.mode]
    const setups = await bench.setups.pick(...SETUPS[bench.mode])
    const measured = await measureSetups(
      { ...bench, rounds: bench.mode === 'full' ? bench.rounds : 1 },
      `sse, ${streams} streams`,
      setups.filter(setup => !setup.http2),
      async (setup, isWarmUp) => {
        const durationMs = isWarmUp ? 0 : DURATION_MS[bench.mode]
        const { open, events, p50, p99, wrong, generatorCpu } = await bench.generators.ask<EventsTask, EventsResult>(
          'events',
          { ...withPath(setup, PATHS.events), streams: isWarmUp ? 5 : streams, durationMs },
        )
        const perSecond = events / (durationMs / 1000)
        return { figures: { open, perSecond, p50, p99, generatorCpu }, wrong, units: events }
      },
    )
    return [
      {
        name: 'sse',
        title: `${streams} event streams, one event a second each`,
        note:
          'Delay from the write at the upstream to the arrival at the caller, on one clock. A skipped event or a broken ' +
          'stream is a wrong answer. CPU is per event, and includes opening the streams.',
        measured,
        columns: [
          { title: 'open', figure: 'open' },
          { title: 'events/s', figure: 'perSecond' },
          { title: 'p50 ms', figure: 'p50' },
          { title: 'x nginx', figure: 'p50', over: UNIT },
          { title: 'p99 ms', figure: 'p99' },
          { title: 'CPU us', figure: 'cpu' },
        ],
        charts: [{ title: 'Delivery delay of events, p99', unit: 'ms, less is better', bars: bars(measured, 'p99') }],
      },
    ]
  },
}
