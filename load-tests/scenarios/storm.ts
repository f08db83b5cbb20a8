import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { summary } from '../lib/measure.ts'
import { freePort } from '../lib/ports.ts'
import { DOMAIN } from '../lib/secrets.ts'
import type { Section } from '../lib/section.ts'
import { Worker } from '../lib/worker.ts'
import { command, type SallyportProcess } from '../setups/command.ts'
import { serverArguments } from '../setups/tunnel.ts'
import type { SessionsResult, SessionsTask } from '../workers/sessions.ts'
import type { Bench, Scenario } from './scenario.ts'

const CLIENTS = { smoke: 10, quick: 200, full: 1_000 } as const
const CONNECTIONS = 2
const RETURN_MS = { smoke: 15_000, quick: 30_000, full: 90_000 } as const
const SMALL_RATE = 50
const SMALL_MS = { smoke: 2_000, quick: 8_000, full: 20_000 } as const
const LOOP_DELAY = new URL('../idle/loop-delay.ts', import.meta.url).href
/** The small requests are already running when the server dies. */
const LEAD_MS = 500
const NS_PER_S = 1e9

/** The server is killed while its clients are connected, and restarts at once on the same ports. */
export const storm: Scenario = {
  name: 'storm',
  title: 'the server of 1,000 clients restarts: time until 50, 95 and 100 % have reconnected',
  async run(bench) {
    const count = CLIENTS[bench.mode]
    const worker = new Worker<SessionsTask, SessionsResult>('sessions')
    const server = new RestartingServer(bench)
    try {
      bench.progress(`storm: ${count} clients`)
      await server.start()
      const names = Array.from({ length: count }, (_, index) => `storm-${index}`)
      const tokens = await Promise.all(names.map(name => bench.secrets.token(name)))
      const clients = { tokens, connections: CONNECTIONS }
      await worker.ask({ op: 'open-clients', port: server.control, ca: bench.secrets.ca, clients })
      await worker.ask({ op: 'forget' })
      return [await restart(bench, server, worker, count)]
    } finally {
      await worker.stop()
      await server.stop()
    }
  },
}

class RestartingServer {
  readonly #bench: Bench
  readonly delayFile: string
  #part: SallyportProcess | undefined
  control = 0
  public = 0

  constructor(bench: Bench) {
    this.#bench = bench
    this.delayFile = join(bench.secrets.folder, 'loop-delay.json')
    process.env.BENCH_LOOP_DELAY = this.delayFile
  }

  /** On the same ports each time. */
  async start(): Promise<void> {
    if (this.control === 0) [this.control, this.public] = [await freePort(), await freePort()]
    const listen = { public: `127.0.0.1:${this.public}`, control: `127.0.0.1:${this.control}` }
    const args = serverArguments(this.#bench, listen)
    this.#part = await command(args, { until: ['public', 'control'], preload: [LOOP_DELAY] })
  }

  async kill(): Promise<void> {
    process.kill(this.#part!.pid, 'SIGKILL')
    await this.#part!.stop()
  }

  async stop(): Promise<void> {
    await this.#part?.stop()
    delete process.env.BENCH_LOOP_DELAY
  }

  delays(): { p99: number; max: number } {
    try {
      return JSON.parse(readFileSync(this.delayFile, 'utf8'))
    } catch {
      return { p99: Number.NaN, max: Number.NaN }
    }
  }
}

async function restart(
  bench: Bench,
  server: RestartingServer,
  worker: Worker<SessionsTask, SessionsResult>,
  count: number,
): Promise<Section> {
  bench.progress('storm: the server restarts')
  const load = { url: `http://127.0.0.1:${server.public}/`, headers: { host: `storm-0.${DOMAIN}` }, expectBody: 'ok' }
  const paced = { ...load, connections: 8, rate: SMALL_RATE }
  const before = await bench.generators.run({ ...paced, durationMs: 500 })
  const small = bench.generators.run({ ...paced, durationMs: SMALL_MS[bench.mode] })
  await pause(LEAD_MS)
  const killedNs = Number(process.hrtime.bigint())
  const waiting = worker.ask({ op: 'wait-for-return', timeoutMs: RETURN_MS[bench.mode] })
  await server.kill()
  await server.start()
  const listeningNs = Number(process.hrtime.bigint())
  const { clientsBackNs = [], sessionsBackNs = [] } = await waiting
  const { answers } = await small
  const clients = secondsSince(killedNs, clientsBackNs)
  const backAt = (share: number) => clients[Math.ceil(share * count) - 1] ?? Number.NaN
  const { p99, max } = server.delays()
  const figures = {
    ...{ listening: (listeningNs - killedNs) / NS_PER_S, half: backAt(0.5), most: backAt(0.95), all: backAt(1) },
    ...{ handshakes: busiestSecond(secondsSince(killedNs, sessionsBackNs)), delayP99: p99, delayMax: max },
    ...fate(answers),
  }
  const wrong = before.wrong + count * CONNECTIONS - sessionsBackNs.length + (answers['wrong body'] ?? 0)
  const subject = { key: 'sallyport', name: `${count} clients, ${CONNECTIONS} sessions each` }
  return {
    name: 'storm',
    title: `The server of ${count.toLocaleString('en')} clients is killed and restarts`,
    note:
      'Seconds from the kill until this share of the clients had a session again (back-off with full jitter, handshakes ' +
      `paced to 30 % of the server's event loop). Meanwhile, small requests to one runtime at ${SMALL_RATE}/s were ` +
      'answered, refused with one of our statuses, or broken. A session that did not return counts as wrong. One round.',
    measured: [summary(subject, [{ figures, wrong }])],
    columns: [
      { title: 'listening s', figure: 'listening' },
      { title: '50 % s', figure: 'half' },
      { title: '95 % s', figure: 'most' },
      { title: '100 % s', figure: 'all' },
      { title: 'best handshakes/s', figure: 'handshakes' },
      { title: 'loop delay p99 ms', figure: 'delayP99' },
      { title: 'max ms', figure: 'delayMax' },
      { title: 'small answered', figure: 'answered' },
      { title: 'refused', figure: 'refused' },
      { title: 'broken', figure: 'broken' },
    ],
    charts: [
      {
        ...{ title: 'Clients with a session again', x: 'seconds since the kill', y: 'clients' },
        lines: [{ label: 'clients', points: [[0, 0], ...clients.map((at, index) => [at, index + 1] as const)] }],
      },
    ],
  }
}

const secondsSince = (since: number, all: readonly number[]): number[] =>
  all.map(each => (each - since) / NS_PER_S).sort((a, b) => a - b)

/** The most of them within one second. */
function busiestSecond(seconds: readonly number[]): number {
  let most = 0
  let from = 0
  for (const [index, at] of seconds.entries()) {
    while (at - seconds[from]! > 1) from++
    most = Math.max(most, index - from + 1)
  }
  return most
}

function fate({ 200: answered = 0, broken = 0, ...others }: Readonly<Record<string, number>>) {
  const refused = Object.entries(others)
    .filter(([status]) => /^\d/.test(status))
    .reduce((sum, [, count]) => sum + count, 0)
  return { answered, refused, broken }
}
