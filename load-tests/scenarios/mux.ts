import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { findProgram } from '../../cli/demo/programs.ts'
import { interleaved, type Measured, type Round } from '../lib/measure.ts'
import type { Section } from '../lib/section.ts'
import type { MuxResult, MuxTask } from '../workers/mux.ts'
import { type Bench, bars, lengthMs, type Scenario } from './scenario.ts'

const run = promisify(execFile)
const GO_FOLDER = fileURLToPath(new URL('../mux-go', import.meta.url))
const LOADS = ['exchanges', 'bulk'] as const

type Load = (typeof LOADS)[number]

interface Mux {
  readonly key: string
  readonly name: string
  measure(bench: Bench, load: Load, durationMs: number): Promise<MuxResult>
}

const inNode = (implementation: MuxTask['implementation'], key: string, name: string): Mux => ({
  key,
  name,
  measure: (bench, load, durationMs) =>
    bench.generators.ask<MuxTask, MuxResult>('mux', { implementation, load, durationMs }),
})

/** The multiplexers alone, without TLS, WebSocket or HTTP. */
export const mux: Scenario = {
  name: 'mux',
  title: "our yamux alone, beside yamux-js and Go's: streams and MB per second over memory",
  async run(bench) {
    const folder = await mkdtemp(join(tmpdir(), 'sallyport-mux-'))
    try {
      const go = await buildGo(bench, join(folder, 'mux'))
      const all = [
        inNode('sallyport', 'sallyport', 'protocol/ (this project)'),
        inNode('yamux-js', 'yamux-js', 'yamux-js 0.2.0'),
        ...(go === undefined ? [] : [go]),
      ]
      const sections: Section[] = []
      for (const load of LOADS) sections.push(section(load, await measureAll(bench, all, load)))
      return sections
    } finally {
      await rm(folder, { recursive: true })
    }
  },
}

/** Undefined if Go is missing or cannot build the program, or if there is no time to build it. */
async function buildGo(bench: Bench, binary: string): Promise<Mux | undefined> {
  const go = bench.mode === 'full' ? findProgram('go') : undefined
  if (go === undefined) return undefined
  bench.progress("mux: building Go's side")
  try {
    await run(go, ['build', '-buildvcs=false', '-o', binary, '.'], {
      ...{ cwd: GO_FOLDER, env: { ...process.env, GOTOOLCHAIN: 'local' } },
    })
  } catch {
    return undefined
  }
  return {
    key: 'go',
    name: 'hashicorp/yamux (Go), one thread',
    async measure(_bench, load, durationMs) {
      const { stdout } = await run(binary, [load, String(Math.round(durationMs))], { env: { GOMAXPROCS: '1' } })
      return JSON.parse(stdout) as MuxResult
    },
  }
}

function measureAll(bench: Bench, all: readonly Mux[], load: Load): Promise<Measured[]> {
  const progress = (text: string) => bench.progress(`mux, ${load}: ${text}`)
  return interleaved(
    all,
    { rounds: bench.rounds, warmUp: bench.mode !== 'smoke', progress },
    async (each, isWarmUp): Promise<Round> => {
      const { count, cpuUs, durationMs, wrong } = await each.measure(bench, load, lengthMs(bench, isWarmUp) / 2)
      return { figures: { perSecond: count / (durationMs / 1000), cpu: cpuUs }, wrong }
    },
  )
}

function section(load: Load, measured: readonly Measured[]): Section {
  const [unit, title, note] =
    load === 'exchanges'
      ? [
          'streams/s',
          'Multiplexer alone: short streams',
          '64 streams at a time. Each is opened, sends 300 bytes, receives 1 KB and ends. yamux-js never handles the end ' +
            'of a stream and would exhaust its backlog, so its 64 streams are opened once and reused.',
        ]
      : [
          'MB/s',
          'Multiplexer alone: one bulk stream',
          '64 KiB at a time, each byte counted on arrival. yamux-js polls every 100 ms for a larger window.',
        ]
  return {
    name: `mux-${load}`,
    title,
    note: `Both ends in one process, over memory. ${note}`,
    measured,
    columns: [
      { title: unit, figure: 'perSecond' },
      { title: `CPU us per ${load === 'bulk' ? 'MB' : 'stream'}`, figure: 'cpu' },
      { title: 'x ours', figure: 'cpu', over: 'sallyport' },
    ],
    charts: [{ title, unit: `${unit}, more is better`, bars: bars(measured, 'perSecond') }],
  }
}
