import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { cpuMs, rssBytes } from '../lib/cpu.ts'
import { figure, type Measured, summary } from '../lib/measure.ts'
import { start } from '../lib/processes.ts'
import type { Section } from '../lib/section.ts'
import { Worker } from '../lib/worker.ts'
import { command, portOf } from '../setups/command.ts'
import type { Stoppable } from '../setups/setup.ts'
import { serverArguments } from '../setups/tunnel.ts'
import type { SessionsResult, SessionsTask } from '../workers/sessions.ts'
import { type Bench, bars, type Scenario } from './scenario.ts'

const SIZES = { smoke: [20], quick: [300], full: [2_000, 10_000] } as const
/** Only this size has all kinds. The others have only a bare session and ours, to save time. */
const ALL_KINDS_OF = 2_000
/** Opened first and not counted, since what a process allocates once is not the cost of a session. */
const WARM_UP = { smoke: 5, quick: 600, full: 1_000 } as const
/** After the handshakes, before anything is measured. */
const SETTLE_MS = { smoke: 0, quick: 1_000, full: 5_000 } as const
/** In a full run, long enough for a round of probes. */
const WATCH_MS = { smoke: 500, quick: 2_500, full: 10_000 } as const
/** Repeats for the largest size: V8 collects garbage for some seconds after the handshakes, which the median leaves out. */
const MAX_WATCHES = 3

type SessionsWorker = Worker<SessionsTask, SessionsResult>

interface Kind {
  readonly key: string
  readonly name: string
  /** How many sessions one unit of the table consists of. */
  readonly sessions: number
  start(bench: Bench): Promise<Stoppable & { pid: number; port: number }>
  open(worker: SessionsWorker, bench: Bench, port: number, from: number, count: number): Promise<SessionsResult>
}

const bare = (kind: 'tls' | 'websocket', name: string): Kind => ({
  key: `bare-${kind}`,
  name,
  sessions: 1,
  start: bench => startBare(kind, bench),
  open: (worker, { secrets }, port, _from, count) => worker.ask({ op: `open-${kind}`, port, ca: secrets.ca, count }),
})

const clients = (key: string, name: string, connections: number): Kind => ({
  key,
  name,
  sessions: connections,
  start: startServer,
  async open(worker, { secrets }, port, from, count) {
    const names = Array.from({ length: count }, (_, index) => `idle-${from + index}`)
    const tokens = await Promise.all(names.map(name => secrets.token(name)))
    return worker.ask({ op: 'open-clients', port, ca: secrets.ca, clients: { tokens, connections } })
  },
})

const BARE_TLS = bare('tls', 'bare TLS socket')
const BARE_WEBSOCKET = bare('websocket', 'bare ws session, an echo every 10 s')
const SESSION = clients('sallyport', 'Sallyport session', 1)
const RUNTIME = clients('sallyport-runtime', 'Sallyport runtime, its 2 sessions', 2)

/** Sessions that do nothing, held by a separate process: memory and CPU of the server. */
export const idle: Scenario = {
  name: 'idle',
  title: 'idle sessions, 2,000 and 10,000: RSS of the server for each, CPU',
  async run(bench) {
    const sections: Section[] = []
    for (const size of SIZES[bench.mode]) {
      const kinds = size === ALL_KINDS_OF ? [BARE_TLS, BARE_WEBSOCKET, SESSION, RUNTIME] : [BARE_WEBSOCKET, SESSION]
      const measured: Measured[] = []
      for (const kind of kinds) measured.push(await hold(bench, kind, size))
      sections.push(section(size, measured))
    }
    return sections
  },
}

/** Holds `size` sessions of the kind. */
async function hold(bench: Bench, kind: Kind, size: number): Promise<Measured> {
  bench.progress(`idle, ${size} sessions: ${kind.name}`)
  const server = await kind.start(bench)
  const worker = new Worker<SessionsTask, SessionsResult>('sessions')
  try {
    const warmUp = WARM_UP[bench.mode]
    await kind.open(worker, bench, server.port, 0, warmUp)
    await pause(SETTLE_MS[bench.mode] / 2)
    const before = rssBytes([server.pid])
    const units = Math.round(size / kind.sessions)
    const startedAt = performance.now()
    const { open } = await kind.open(worker, bench, server.port, warmUp, units)
    const openMs = performance.now() - startedAt
    await pause(SETTLE_MS[bench.mode])
    const rss = rssBytes([server.pid])
    const watchMs = WATCH_MS[bench.mode]
    const shares: number[] = []
    for (let watch = size < 10_000 ? 1 : MAX_WATCHES; watch > 0; watch--) {
      const cpuBefore = cpuMs([server.pid])
      await pause(watchMs)
      shares.push((cpuMs([server.pid]) - cpuBefore) / watchMs)
    }
    const missing = (warmUp + units) * kind.sessions - open
    const figures = {
      rssKb: (rss - before) / 1024 / units,
      cpuShare: figure(shares).median * 100,
      openedPerSecond: (units * kind.sessions) / (openMs / 1000),
    }
    return summary(kind, [{ figures, wrong: missing }])
  } finally {
    await worker.stop()
    await server.stop()
  }
}

async function startBare(kind: 'tls' | 'websocket', { secrets }: Bench) {
  let port = 0
  const server = await start({
    name: `bare ${kind} server`,
    command: process.execPath,
    args: [fileURLToPath(new URL('../idle/bare-server.ts', import.meta.url)), kind, secrets.certificate, secrets.key],
    ready: line => {
      port = Number(line)
      return true
    },
  })
  return { ...server, port }
}

async function startServer({ secrets }: Bench) {
  const listen = { public: '127.0.0.1:0', control: '127.0.0.1:0' }
  // The rate of handshakes is what the storm measures. Here it would only take time.
  const args = [...serverArguments({ secrets }, listen), '--limits.handshake-budget', '0.95']
  const server = await command(args, { until: ['public', 'control'] })
  return { ...server, port: portOf(server.address('control')) }
}

function section(size: number, measured: readonly Measured[]): Section {
  return {
    name: `idle-${size}`,
    title: `${size.toLocaleString('en')} idle sessions`,
    note:
      "Growth of the server's RSS, divided by the sessions. The first 600 (1,000 in a full run) were open before and do not " +
      'count, because V8 grows its heap in steps of tens of MiB for them. CPU afterwards, in percent of a core, with all ' +
      'the probes that keep sessions alive; for 10,000 sessions, the median of three times 10 s. One round.',
    measured,
    columns: [
      { title: 'RSS KB each', figure: 'rssKb' },
      { title: 'CPU %', figure: 'cpuShare' },
      { title: 'opened/s', figure: 'openedPerSecond' },
    ],
    charts: [
      {
        title: `RSS of the server, ${size.toLocaleString('en')} sessions`,
        unit: 'KB each, less is better',
        bars: bars(measured, 'rssKb'),
      },
    ],
  }
}
