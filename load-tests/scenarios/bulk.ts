import type { Section } from '../lib/section.ts'
import { type Setup, withPath } from '../setups/setup.ts'
import { PATHS } from '../upstream/service.ts'
import type { BulkResult, BulkTask } from '../workers/bulk.ts'
import { type Bench, bars, measureSetups, type Scenario, UNIT } from './scenario.ts'

export const MIB_100 = 100 * 1024 * 1024
export const GIB = 1024 * 1024 * 1024
/** For a smoke test. */
export const MIB_4 = 4 * 1024 * 1024

const SIZES = { smoke: [MIB_4], quick: [MIB_100], full: [MIB_100, GIB] } as const
/** One transfer of 100 MiB takes a tenth of a second in some setups, which is only ten ticks of the CPU clock. */
const MIN_MS = { smoke: 0, quick: 400, full: 1_500 } as const
const LABELS = { [MIB_4]: '4 MiB', [MIB_100]: '100 MiB', [GIB]: '1 GiB' } as const

/** Large bodies down and up on one connection. Every byte is compared. */
export const bulk: Scenario = {
  name: 'bulk',
  title: '100 MiB (and 1 GiB) down and up',
  async run(bench) {
    const sections: Section[] = []
    for (const bytes of SIZES[bench.mode])
      for (const direction of ['down', 'up'] as const) sections.push(await transfers(bench, direction, bytes))
    return sections
  },
}

async function setupsFor({ mode, setups }: Bench, bytes: number): Promise<Setup[]> {
  if (bytes === GIB) return setups.pick('nginx', 'ingress', 'tunnel')
  const some = await setups.some()
  return mode === 'smoke' ? some : [...some, ...(await setups.pick('bare-pipe'))]
}

async function transfers(bench: Bench, direction: 'down' | 'up', bytes: keyof typeof LABELS): Promise<Section> {
  const setups = (await setupsFor(bench, bytes)).filter(setup => !setup.http2)
  const measured = await measureSetups(bench, `bulk ${direction}, ${LABELS[bytes]}`, setups, async setup => {
    const task: BulkTask = {
      ...withPath(setup, direction === 'down' ? `${PATHS.bytes}${bytes}` : PATHS.sink),
      ...{ direction, bytes, minMs: MIN_MS[bench.mode] },
    }
    const result = await bench.generators.ask<BulkTask, BulkResult>('bulk', task)
    const megabytes = result.bytes / 1e6
    const mbPerSecond = megabytes / (result.durationMs / 1000)
    return { figures: { mbPerSecond, generatorCpu: result.generatorCpu }, wrong: result.wrong, units: megabytes }
  })
  const size = LABELS[bytes]
  return {
    name: bytes === GIB ? `bulk-${direction}-1g` : `bulk-${direction}`,
    title: `${size} ${direction}, one connection`,
    note:
      'One transfer after another, each on its own connection, for about a second. The receiver compares every byte. ' +
      'CPU is per MB, over the processes of the setup. The bare pipe is the minimum for two Node processes with a ' +
      'WebSocket over TLS between them: it parses no HTTP and multiplexes nothing.',
    measured,
    columns: [
      { title: 'MB/s', figure: 'mbPerSecond' },
      { title: 'of nginx', figure: 'mbPerSecond', over: UNIT },
      { title: 'CPU us/MB', figure: 'cpu' },
      { title: 'x nginx', figure: 'cpu', over: UNIT },
      { title: 'generator', figure: 'generatorCpu' },
    ],
    charts: [{ title: `${size} ${direction}`, unit: 'MB/s, more is better', bars: bars(measured, 'mbPerSecond') }],
  }
}
