import { setTimeout as pause } from 'node:timers/promises'
import { type Relay, startRelay } from '../relay/index.ts'
import { stopSetups } from '../setups/index.ts'
import { type Setup, withPath } from '../setups/setup.ts'
import { PATHS, SMALL_BODY } from '../upstream/service.ts'
import type { BulkResult, BulkTask } from '../workers/bulk.ts'
import { GIB, MIB_100 } from './bulk.ts'
import { type Bench, bars, measureSetups, type Scenario } from './scenario.ts'

const LINE = { roundTripMs: 50, bytesPerSecond: 50_000_000 } as const
const SMALL = { rate: 50, connections: 16 } as const
const DURATION_MS = { smoke: 500, quick: 2_000, full: 3_000 } as const
const ALONE_MS = { smoke: 300, quick: 500, full: 1_000 } as const
/** How long before the small requests the downloads start, so that the line is full. */
const HEAD_START_MS = { smoke: 100, quick: 1_000, full: 1_000 } as const

/** The tunnel's own connection crosses a wide-area network, with `streams` downloads at a time on it. */
type WanSetup = Setup & { readonly streams: number }

export const wan: Scenario = {
  name: 'wan',
  title: 'over a line of 50 ms and 50 MB/s: bulk, small, mixed, a bulk stream on each of two sessions',
  async run(bench) {
    const relays: Relay[] = []
    const setups: WanSetup[] = []
    try {
      await startSetups(bench, relays, setups)
      return [await measure(bench, setups)]
    } finally {
      await stopSetups(setups)
      for (const relay of relays) await relay.stop()
    }
  },
}

async function startSetups(bench: Bench, relays: Relay[], setups: WanSetup[]): Promise<void> {
  const via = async (port: number) => {
    const relay = await startRelay(port, LINE)
    relays.push(relay)
    return relay.port
  }
  const url = `http://127.0.0.1:${await via(bench.upstreamPort)}`
  const plain = { key: 'plain', name: 'plain TCP', url, headers: {}, pids: [], stop: async () => {} }
  setups.push({ ...plain, streams: 1 })
  const peers = bench.setups.mainKeys.filter(key => key !== 'nginx')
  for (const setup of await bench.setups.make(peers, { via, sessions: 1 })) setups.push({ ...setup, streams: 1 })
  const [two] = await bench.setups.make(['tunnel'], { via, sessions: 2 })
  setups.push({ ...two!, key: 'tunnel-2', name: 'tunnel, 2 sessions, bulk on each', streams: 2 })
}

async function measure(bench: Bench, setups: readonly WanSetup[]) {
  const byKey = new Map(setups.map(setup => [setup.key, setup]))
  const measured = await measureSetups(
    bench.mode === 'quick' ? { ...bench, rounds: 1 } : bench,
    'wan',
    setups,
    async (setup, isWarmUp) => {
      const headStartMs = HEAD_START_MS[bench.mode]
      const { streams } = byKey.get(setup.key)!
      const small = { ...withPath(setup, PATHS.small), ...SMALL, expectBody: SMALL_BODY }
      const alone = await bench.generators.run({ ...small, durationMs: isWarmUp ? 300 : ALONE_MS[bench.mode] })
      const durationMs = isWarmUp ? 500 : DURATION_MS[bench.mode]
      const bytes = bench.mode === 'full' ? GIB : MIB_100
      const bulk = bench.generators.ask<BulkTask, BulkResult>('bulk', {
        ...withPath(setup, `${PATHS.bytes}${bytes}`),
        ...{ direction: 'down', bytes, streams, durationMs: durationMs + headStartMs },
      })
      await pause(headStartMs)
      const [beside, transferred] = await Promise.all([bench.generators.run({ ...small, durationMs }), bulk])
      const megabytes = transferred.bytes / 1e6
      return {
        figures: {
          mbPerSecond: megabytes / (transferred.durationMs / 1000),
          ...{ aloneP50: alone.p50, aloneP99: alone.p99, p50: beside.p50 },
          overRoundTrip: beside.p99 - LINE.roundTripMs,
        },
        wrong: alone.wrong + beside.wrong + transferred.wrong,
        units: megabytes,
      }
    },
    // Every setup first has to learn how much its line carries.
    { warmUp: true },
  )
  return {
    name: 'wan',
    title: `A line of ${LINE.roundTripMs} ms and ${LINE.bytesPerSecond / 1e6} MB/s between the ends`,
    note:
      'A relay is between tunnel client and server (for plain TCP: in front of the upstream), with a queue of at most ' +
      `100 ms in each direction. Small requests at ${SMALL.rate}/s, corrected for coordinated omission, alone and beside ` +
      'downloads. "p99 over round trip" is the p99 beside bulk minus 50 ms. MB/s includes the start of the transfer.',
    measured,
    columns: [
      { title: 'bulk MB/s', figure: 'mbPerSecond' },
      { title: 'of plain', figure: 'mbPerSecond', over: 'plain' },
      { title: 'small alone p50 ms', figure: 'aloneP50' },
      { title: 'p99 ms', figure: 'aloneP99' },
      { title: 'beside p50 ms', figure: 'p50' },
      { title: 'p99 over round trip', figure: 'overRoundTrip' },
      { title: 'CPU us/MB', figure: 'cpu' },
    ],
    charts: [
      {
        title: 'Bulk over 50 ms',
        unit: 'MB/s, more is better',
        bars: bars(measured, 'mbPerSecond'),
      },
      {
        title: 'Small requests beside it: p99 over the round trip',
        unit: 'ms, less is better',
        bars: bars(measured, 'overRoundTrip'),
      },
    ],
  }
}
