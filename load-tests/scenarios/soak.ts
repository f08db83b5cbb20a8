import { readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import type { LineChart } from '../lib/charts.ts'
import { handleCount, rssBytes } from '../lib/cpu.ts'
import { Generators } from '../lib/generator.ts'
import { type Measured, slope, summary } from '../lib/measure.ts'
import { stopSetups } from '../setups/index.ts'
import { type Setup, withPath } from '../setups/setup.ts'
import { PATHS, SMALL_BODY } from '../upstream/service.ts'
import type { Bench, Scenario } from './scenario.ts'

const LOAD = { rate: 300, connections: 16 } as const
const SAMPLES = 60
/** The first share of the time is the warm-up: heaps grow to their size, and code is compiled. */
const WARM_UP_SHARE = 1 / 3
/** One more sample is taken shortly before the load ends, with the same connections open. */
const LATE_SHARE = 0.97
const KEPT_MEMORY = new URL('../idle/kept-memory.ts', import.meta.url).href
const MAX_COLLECTION_MS = 5_000

interface Sample {
  readonly minutes: number
  readonly rssMb: number
  readonly handles: number
}

interface Watched {
  readonly key: string
  readonly name: string
  readonly pid: number
  readonly samples: Sample[]
  /** What remained after a full collection, in MB: after the warm-up, and at the end. */
  kept: readonly number[]
}

/** Steady load, and what happens to memory and handles, for our processes and for a plain Node proxy next to them. */
export const soak: Scenario = {
  name: 'soak',
  modes: ['smoke', 'full'],
  title: 'steady load for --minutes N: RSS and handles over time, least-squares slope',
  async run(bench) {
    const setups = await withKeptMemory(bench, () => bench.setups.make(['tunnel', 'http-proxy'], {}))
    try {
      return [await measure(bench, setups)]
    } finally {
      await stopSetups(setups)
    }
  },
}

/** Processes that `start` starts can be asked how much memory they keep. */
async function withKeptMemory<T>({ secrets }: Bench, start: () => Promise<T>): Promise<T> {
  const { NODE_OPTIONS } = process.env
  process.env.NODE_OPTIONS = `${NODE_OPTIONS ?? ''} --import=${KEPT_MEMORY}`
  process.env.BENCH_KEPT = secrets.folder
  try {
    return await start()
  } finally {
    delete process.env.BENCH_KEPT
    if (NODE_OPTIONS === undefined) delete process.env.NODE_OPTIONS
    else process.env.NODE_OPTIONS = NODE_OPTIONS
  }
}

/** In MB; NaN if the process does not answer. */
async function keptBy(pid: number, folder: string): Promise<number> {
  const file = join(folder, `kept-${pid}`)
  await rm(file, { force: true })
  process.kill(pid, 'SIGUSR2')
  for (const until = performance.now() + MAX_COLLECTION_MS; performance.now() < until; await pause(50)) {
    const bytes = await readFile(file, 'utf8').catch(() => undefined)
    if (bytes !== undefined) return Number(bytes) / 1e6
  }
  return Number.NaN
}

async function measure(bench: Bench, setups: readonly Setup[]) {
  const [tunnel, proxy] = setups as [Setup, Setup]
  const watched = [
    watch('sallyport-server', 'server', tunnel.pids[0]!),
    watch('sallyport-client', 'client', tunnel.pids[1]!),
    watch('http-proxy', proxy.name, proxy.pids[0]!),
  ]
  const durationMs = bench.minutes * 60_000
  const startedAt = performance.now()
  const look = () => {
    const minutes = (performance.now() - startedAt) / 60_000
    bench.progress(`soak: ${minutes.toFixed(1)} of ${bench.minutes} minutes`)
    for (const { pid, samples } of watched)
      samples.push({ minutes, rssMb: rssBytes([pid]) / 1e6, handles: handleCount([pid]) })
  }
  const timer = setInterval(look, durationMs / SAMPLES)
  const load = (setup: Setup) => ({ ...withPath(setup, PATHS.small), ...LOAD, durationMs, expectBody: SMALL_BODY })
  // A generator handles one task at a time.
  const second = new Generators('autocannon')
  const loads = [bench.generators.run(load(tunnel)), second.run(load(proxy))] as const
  const over = new AbortController()
  const keptAt = async (share: number) => {
    await pause(durationMs * share, undefined, over)
    return Promise.all(watched.map(({ pid }) => keptBy(pid, bench.secrets.folder)))
  }
  const kept = Promise.all([keptAt(WARM_UP_SHARE), keptAt(LATE_SHARE)])
  kept.catch(() => {})
  const [result, beside] = await Promise.all(loads).finally(async () => {
    clearInterval(timer)
    over.abort()
    await second.stop()
  })
  const [early, late] = await kept
  for (const [index, each] of watched.entries()) each.kept = [early[index]!, late[index]!]
  const wrong = [result.wrong, 0, beside.wrong]
  const rows = watched.map((process, index) => row(process, wrong[index]!))
  return {
    name: 'soak',
    title: `${bench.minutes} minutes at ${LOAD.rate} requests/s`,
    note:
      `1 KB GETs on ${LOAD.connections} connections, corrected for coordinated omission: p50 ${result.p50.toFixed(2)} ms, ` +
      `p99 ${result.p99.toFixed(2)} ms. The slope is that of the least-squares line through RSS after the first third; ` +
      'noise is its standard error. "Kept" is what a full collection leaves on the heap and in buffers, after the first ' +
      'third and at the end. It shows a leak, while RSS also includes garbage. The plain Node proxy, which has the same ' +
      'load, shows the slope of a process that keeps nothing.',
    measured: rows,
    columns: [
      { title: 'RSS MB, third', figure: 'from' },
      { title: 'end', figure: 'to' },
      { title: 'slope MB/min', figure: 'slope' },
      { title: 'noise', figure: 'noise' },
      { title: 'kept MB, third', figure: 'keptFrom' },
      { title: 'end', figure: 'keptTo' },
      { title: 'handles, third', figure: 'handlesFrom' },
      { title: 'end', figure: 'handlesTo' },
    ],
    charts: [
      chart('RSS', 'MB', watched, sample => sample.rssMb),
      chart('Handles', 'open files and sockets', watched, sample => sample.handles),
    ],
  }
}

const watch = (key: string, name: string, pid: number): Watched => ({ key, name, pid, samples: [], kept: [] })

function row({ key, name, samples, kept }: Watched, wrong: number): Measured {
  const steady = samples.slice(Math.floor(samples.length * WARM_UP_SHARE))
  const points = steady.map(sample => [sample.minutes, sample.rssMb] as const)
  const [first, last] = [steady[0], steady.at(-1)]
  const figures = {
    ...{ from: first?.rssMb ?? Number.NaN, to: last?.rssMb ?? Number.NaN },
    ...{ slope: slope(points), noise: slopeError(points) },
    ...{ keptFrom: kept[0] ?? Number.NaN, keptTo: kept[1] ?? Number.NaN },
    ...{ handlesFrom: first?.handles ?? Number.NaN, handlesTo: last?.handles ?? Number.NaN },
  }
  return summary({ key, name }, [{ figures, wrong }])
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

function chart(title: string, y: string, watched: readonly Watched[], value: (sample: Sample) => number): LineChart {
  const lines = watched.map(({ name, samples }) => ({
    label: name,
    points: samples.map(sample => [sample.minutes, value(sample)] as const),
  }))
  return { title: `${title} under steady load`, x: 'minutes', y, lines }
}
