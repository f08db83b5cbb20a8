/** Small requests at a fixed rate, first alone and then next to something that would hold them up in a bad setup. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Mode } from '../lib/mode.ts'
import type { Section } from '../lib/section.ts'
import { stopSetups } from '../setups/index.ts'
import { type Setup, withPath } from '../setups/setup.ts'
import { PATHS, SMALL_BODY } from '../upstream/service.ts'
import type { BulkResult, BulkTask } from '../workers/bulk.ts'
import type { SlowResult, SlowTask } from '../workers/slow-reader.ts'
import { MIB_4, MIB_100 } from './bulk.ts'
import { type Bench, bars, lengthMs, measureSetups, type Scenario, UNIT } from './scenario.ts'

/** What runs next to the small requests for `durationMs`. */
interface Neighbour {
  readonly name: string
  readonly title: string
  readonly note: string
  readonly modes: readonly Mode[]
  run(bench: Bench, setup: Setup, durationMs: number): Promise<{ mbPerSecond: number; wrong: number }>
}

const SMALL = { rate: 300, connections: 4 } as const
/** How long before the small requests it starts, so that windows and buffers are full when they come. */
const HEAD_START_MS = 300

export const mixed = beside({
  name: 'mixed',
  title: 'small requests beside bulk downloads on the same session',
  note: 'Two downloads at full speed. The tunnels use one session for everything.',
  modes: ['smoke', 'quick', 'full'],
  async run(bench, setup, durationMs) {
    const bytes = bench.mode === 'smoke' ? MIB_4 : MIB_100
    const task: BulkTask = {
      ...withPath(setup, `${PATHS.bytes}${bytes}`),
      ...{ direction: 'down', bytes, streams: 2, durationMs },
    }
    const result = await bench.generators.ask<BulkTask, BulkResult>('bulk', task)
    return { mbPerSecond: result.bytes / 1e3 / result.durationMs, wrong: result.wrong }
  },
})

export const slow = beside({
  name: 'slow',
  title: 'small requests beside slow readers on the same session',
  note: 'Eight downloads whose callers read 50 kB a second each. The tunnels use one session for everything.',
  modes: ['smoke', 'full'],
  async run(bench, setup, durationMs) {
    const bytes = bench.mode === 'smoke' ? MIB_4 : MIB_100
    const task: SlowTask = {
      ...withPath(setup, `${PATHS.bytes}${bytes}`),
      ...{ streams: 8, bytesPerSecond: 50_000, durationMs },
    }
    const result = await bench.generators.ask<SlowTask, SlowResult>('slow-reader', task)
    return { mbPerSecond: result.bytes / 1e3 / durationMs, wrong: result.wrong }
  },
})

function beside(neighbour: Neighbour): Scenario {
  return {
    name: neighbour.name,
    title: neighbour.title,
    modes: neighbour.modes,
    async run(bench) {
      const setups = await bench.setups.make(bench.setups.mainKeys, { sessions: 1 })
      try {
        return [await measure(bench, setups, neighbour)]
      } finally {
        await stopSetups(setups)
      }
    },
  }
}

async function measure(bench: Bench, setups: readonly Setup[], neighbour: Neighbour): Promise<Section> {
  const measured = await measureSetups(bench, neighbour.name, setups, async (setup, isWarmUp) => {
    const durationMs = lengthMs(bench, isWarmUp)
    const load = { ...withPath(setup, PATHS.small), ...SMALL, durationMs, expectBody: SMALL_BODY }
    const alone = await bench.generators.run(load)
    const disturbing = neighbour.run(bench, setup, durationMs + HEAD_START_MS)
    await pause(HEAD_START_MS)
    const [with_, disturbed] = await Promise.all([bench.generators.run(load), disturbing])
    return {
      figures: {
        ...{ aloneP50: alone.p50, aloneP99: alone.p99, p50: with_.p50, p99: with_.p99 },
        mbPerSecond: disturbed.mbPerSecond,
      },
      wrong: alone.wrong + with_.wrong + disturbed.wrong,
      units: alone.requests + with_.requests,
    }
  })
  return {
    name: neighbour.name,
    title: neighbour.title[0]!.toUpperCase() + neighbour.title.slice(1),
    note:
      `${neighbour.note} Small: 1 KB at ${SMALL.rate}/s on ${SMALL.connections} connections; latency counts from the ` +
      'time each was due (corrected for coordinated omission).',
    measured,
    columns: [
      { title: 'alone p50 ms', figure: 'aloneP50' },
      { title: 'p99 ms', figure: 'aloneP99' },
      { title: 'beside p50 ms', figure: 'p50' },
      { title: 'x nginx', figure: 'p50', over: UNIT },
      { title: 'beside p99 ms', figure: 'p99' },
      { title: 'x nginx', figure: 'p99', over: UNIT },
      { title: 'neighbour MB/s', figure: 'mbPerSecond' },
    ],
    charts: [
      {
        title: `p99 of small requests ${neighbour.name === 'mixed' ? 'beside bulk' : 'beside slow readers'}`,
        unit: 'ms, less is better',
        bars: bars(measured, 'p99'),
      },
    ],
  }
}
