import type { LineChart } from '../lib/charts.ts'
import type { Measured } from '../lib/measure.ts'
import { type Road, withPath } from '../roads/road.ts'
import { PATHS, SMALL_BODY } from '../upstream/service.ts'
import { type Bench, lengthMs, limitNote, overRoads, type Scenario } from './scenario.ts'

const CONNECTIONS = 64
/** More curves than these cannot be told apart, and would take longer. */
const ROADS_AT_MOST = 5
/** Shares of the rate that the road reaches in a closed loop. */
const SHARES = { smoke: [0.2], quick: [0.25, 0.5, 0.75], full: [0.1, 0.5, 0.8, 1, 1.15] } as const

/** 1 KB GETs at fixed rates, up to where the road cannot keep up: latency against load. */
export const rates: Scenario = {
  name: 'rates',
  title: '1 KB GET at fixed rates up to the knee: latency against load',
  async run(bench) {
    const roads = (await bench.roads.main()).slice(0, ROADS_AT_MOST)
    const tops = new Map<string, number>()
    for (const road of roads) tops.set(road.key, await closedLoop(bench, road))
    const measured: Measured[] = []
    for (const share of SHARES[bench.mode]) measured.push(...(await atShare(bench, roads, tops, share)))
    measured.sort((a, b) => roads.findIndex(road => road.key === a.key) - roads.findIndex(road => road.key === b.key))
    return [
      {
        name: 'rates',
        title: `1 KB GET at fixed rates, ${CONNECTIONS} connections`,
        note:
          'Requests leave evenly spaced whether answers come or not; latency counts from the moment that each was due ' +
          '(corrected for coordinated omission). The rates are shares of what the road did in a closed loop just ' +
          `before.${limitNote(measured)}`,
        measured,
        columns: [
          { title: 'asked/s', figure: 'rate' },
          { title: 'answered/s', figure: 'perSecond' },
          { title: 'p50 ms', figure: 'p50' },
          { title: 'p99 ms', figure: 'p99' },
          { title: 'CPU us', figure: 'cpu' },
        ],
        charts: [curve(roads, measured, 'p50'), curve(roads, measured, 'p99')],
      },
    ]
  },
}

async function closedLoop(bench: Bench, road: Road): Promise<number> {
  bench.progress(`rates: ${road.name}, closed loop`)
  const load = { ...withPath(road, PATHS.small), connections: CONNECTIONS, durationMs: bench.roundMs }
  await bench.generators.run({ ...load, durationMs: lengthMs(bench, true) })
  return (await bench.generators.run(load)).perSecond
}

function atShare(
  bench: Bench,
  roads: readonly Road[],
  tops: ReadonlyMap<string, number>,
  share: number,
): Promise<Measured[]> {
  const once = async (road: Road) => {
    const rate = Math.max(50, Math.round(tops.get(road.key)! * share))
    const { p50, p99, perSecond, generatorCpu, wrong, requests } = await bench.generators.run({
      ...withPath(road, PATHS.small),
      ...{ connections: CONNECTIONS, rate, durationMs: bench.roundMs, expectBody: SMALL_BODY },
    })
    return { figures: { rate, perSecond, p50, p99, generatorCpu }, wrong, units: requests }
  }
  // The closed loop has warmed them up.
  return overRoads(bench, `rates, ${Math.round(share * 100)} %`, roads, once, { warmUp: false })
}

function curve(roads: readonly Road[], measured: readonly Measured[], name: 'p50' | 'p99'): LineChart {
  return {
    title: `Latency against load, ${name}`,
    x: 'requests per second asked for',
    y: 'ms',
    isLog: true,
    lines: roads.map(road => ({
      label: road.name,
      points: measured
        .filter(row => row.key === road.key)
        .map(({ figures }) => [figures.rate!.median, figures[name]!.median] as const),
    })),
  }
}
