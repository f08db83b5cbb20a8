import type { LineChart } from '../lib/charts.ts'
import { handleCount, rssBytes } from '../lib/cpu.ts'
import { type Measured, slope, summary } from '../lib/measure.ts'
import { stopRoads } from '../roads/index.ts'
import { type Road, withPath } from '../roads/road.ts'
import { PATHS, SMALL_BODY } from '../upstream/service.ts'
import type { Bench, Scenario } from './scenario.ts'

const LOAD = { rate: 300, connections: 16 } as const
const SAMPLES = 60
/** The first share of the time warms up: heaps grow to their size, code is compiled. */
const WARM_UP_SHARE = 1 / 3

interface Sample {
  readonly minutes: number
  readonly rssMb: number
  readonly handles: number
}

/** Steady load, and what becomes of memory and handles. */
export const soak: Scenario = {
  name: 'soak',
  modes: ['smoke', 'full'],
  title: 'steady load for --minutes N: RSS and handles over time, least-squares slope',
  async run(bench) {
    const roads = await bench.roads.make(['tunnel'], {})
    try {
      return [await measure(bench, roads[0]!)]
    } finally {
      await stopRoads(roads)
    }
  },
}

async function measure(bench: Bench, road: Road) {
  const names = ['server', 'client']
  const samples = names.map((): Sample[] => [])
  const durationMs = bench.minutes * 60_000
  const startedAt = performance.now()
  const look = () => {
    const minutes = (performance.now() - startedAt) / 60_000
    bench.progress(`soak: ${minutes.toFixed(1)} of ${bench.minutes} minutes`)
    for (const [index, pid] of road.pids.entries())
      samples[index]!.push({ minutes, rssMb: rssBytes([pid]) / 1e6, handles: handleCount([pid]) })
  }
  const timer = setInterval(look, durationMs / SAMPLES)
  const place = withPath(road, PATHS.small)
  const load = { ...place, ...LOAD, durationMs, expectBody: SMALL_BODY }
  const result = await bench.generators.run(load).finally(() => clearInterval(timer))
  const rows = names.map((name, index) => row(name, samples[index]!, index === 0 ? result.wrong : 0))
  return {
    name: 'soak',
    title: `${bench.minutes} minutes at ${LOAD.rate} requests/s`,
    note:
      `1 KB GETs on ${LOAD.connections} connections, corrected for coordinated omission: p50 ${result.p50.toFixed(2)} ms, ` +
      `p99 ${result.p99.toFixed(2)} ms. The slope is that of the least-squares line through RSS after the first third; ` +
      'noise is the standard error of that slope, and a slope within two of it means nothing.',
    measured: rows,
    columns: [
      { title: 'RSS MB, third', figure: 'from' },
      { title: 'end', figure: 'to' },
      { title: 'slope MB/min', figure: 'slope' },
      { title: 'noise', figure: 'noise' },
      { title: 'handles, third', figure: 'handlesFrom' },
      { title: 'end', figure: 'handlesTo' },
    ],
    charts: [
      chart('RSS', 'MB', names, samples, sample => sample.rssMb),
      chart('Handles', 'open files and sockets', names, samples, sample => sample.handles),
    ],
  }
}

function row(name: string, samples: readonly Sample[], wrong: number): Measured {
  const steady = samples.slice(Math.floor(samples.length * WARM_UP_SHARE))
  const points = steady.map(sample => [sample.minutes, sample.rssMb] as const)
  const [first, last] = [steady[0], steady.at(-1)]
  const figures = {
    ...{ from: first?.rssMb ?? Number.NaN, to: last?.rssMb ?? Number.NaN },
    ...{ slope: slope(points), noise: slopeError(points) },
    ...{ handlesFrom: first?.handles ?? Number.NaN, handlesTo: last?.handles ?? Number.NaN },
  }
  return summary({ key: `sallyport-${name}`, name }, [{ figures, wrong }])
}

/** Standard error of the slope of the least-squares line. */
function slopeError(points: readonly (readonly [number, number])[]): number {
  const meanX = points.reduce((sum, [x]) => sum + x, 0) / points.length
  const meanY = points.reduce((sum, [, y]) => sum + y, 0) / points.length
  const rise = slope(points)
  const residual = points.reduce((sum, [x, y]) => sum + (y - meanY - rise * (x - meanX)) ** 2, 0)
  const spread = points.reduce((sum, [x]) => sum + (x - meanX) ** 2, 0)
  return Math.sqrt(residual / (points.length - 2) / spread)
}

function chart(
  title: string,
  y: string,
  names: readonly string[],
  samples: readonly (readonly Sample[])[],
  value: (sample: Sample) => number,
): LineChart {
  const lines = names.map((label, index) => ({
    label,
    points: samples[index]!.map(sample => [sample.minutes, value(sample)] as const),
  }))
  return { title: `${title} under steady load`, x: 'minutes', y, lines }
}
