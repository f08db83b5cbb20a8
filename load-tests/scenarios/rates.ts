import type { LineChart } from '../lib/charts.ts'
import type { Measured } from '../lib/measure.ts'
import { type Setup, withPath } from '../setups/setup.ts'
import { PATHS, SMALL_BODY } from '../upstream/service.ts'
import { type Bench, lengthMs, limitNote, measureSetups, type Scenario } from './scenario.ts'

const CONNECTIONS = 64
/** More curves than these cannot be told apart, and would take longer. */
const MAX_SETUPS = 5
/** Shares of the rate that the setup reaches in a closed loop. */
const SHARES = { smoke: [0.2], quick: [0.25, 0.5, 0.75], full: [0.1, 0.5, 0.8, 1, 1.15] } as const

/** 1 KB GETs at fixed rates, up to where the setup cannot keep up: latency against load. */
export const rates: Scenario = {
  name: 'rates',
  title: '1 KB GET at fixed rates up to the knee: latency against load',
  async run(bench) {
    const setups = (await bench.setups.main()).slice(0, MAX_SETUPS)
    const tops = new Map<string, number>()
    for (const setup of setups) tops.set(setup.key, await closedLoop(bench, setup))
    const measured: Measured[] = []
    for (const share of SHARES[bench.mode]) measured.push(...(await atShare(bench, setups, tops, share)))
    measured.sort(
      (a, b) => setups.findIndex(setup => setup.key === a.key) - setups.findIndex(setup => setup.key === b.key),
    )
    return [
      {
        name: 'rates',
        title: `1 KB GET at fixed rates, ${CONNECTIONS} connections`,
        note:
          'Requests are sent evenly spaced, whether or not answers arrive. Latency counts from the time each was due ' +
          '(corrected for coordinated omission). The rates are shares of what the setup reached in a closed loop just ' +
          `before.${limitNote(measured)}`,
        measured,
        columns: [
          { title: 'asked/s', figure: 'rate' },
          { title: 'answered/s', figure: 'perSecond' },
          { title: 'p50 ms', figure: 'p50' },
          { title: 'p99 ms', figure: 'p99' },
          { title: 'CPU us', figure: 'cpu' },
        ],
        charts: [curve(setups, measured, 'p50'), curve(setups, measured, 'p99')],
      },
    ]
  },
}

async function closedLoop(bench: Bench, setup: Setup): Promise<number> {
  bench.progress(`rates: ${setup.name}, closed loop`)
  const load = { ...withPath(setup, PATHS.small), connections: CONNECTIONS, durationMs: bench.roundMs }
  await bench.generators.run({ ...load, durationMs: lengthMs(bench, true) })
  return (await bench.generators.run(load)).perSecond
}

function atShare(
  bench: Bench,
  setups: readonly Setup[],
  tops: ReadonlyMap<string, number>,
  share: number,
): Promise<Measured[]> {
  const once = async (setup: Setup) => {
    const rate = Math.max(50, Math.round(tops.get(setup.key)! * share))
    const { p50, p99, perSecond, generatorCpu, wrong, requests } = await bench.generators.run({
      ...withPath(setup, PATHS.small),
      ...{ connections: CONNECTIONS, rate, durationMs: bench.roundMs, expectBody: SMALL_BODY },
    })
    return { figures: { rate, perSecond, p50, p99, generatorCpu }, wrong, units: requests }
  }
  // The closed loop has warmed them up.
  return measureSetups(bench, `rates, ${Math.round(share * 100)} %`, setups, once, { warmUp: false })
}

function curve(setups: readonly Setup[], measured: readonly Measured[], name: 'p50' | 'p99'): LineChart {
  return {
    title: `Latency against load, ${name}`,
    x: 'requests per second asked for',
    y: 'ms',
    isLog: true,
    lines: setups.map(setup => ({
      label: setup.name,
      points: measured
        .filter(row => row.key === setup.key)
        .map(({ figures }) => [figures.rate!.median, figures[name]!.median] as const),
    })),
  }
}
