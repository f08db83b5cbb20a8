/** The load generators, each a separate process: autocannon, `wrk`, ours at a fixed rate, and ours over HTTP/2. */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { asBatch } from './batch.ts'
import { endedChildrenCpuMs } from './cpu.ts'
import type { Load, LoadResult } from './load.ts'
import { type Effort, Worker, type WorkerName } from './worker.ts'

export type GeneratorName = 'autocannon' | 'wrk'

/** Gives each load to the generator that fits. A worker starts when it is first needed, and is kept. */
export class Generators {
  readonly #name: GeneratorName
  readonly #workers = new Map<WorkerName, Worker<unknown, unknown>>()

  constructor(name: GeneratorName) {
    this.#name = name
  }

  run(load: Load): Promise<LoadResult & Effort> {
    if (load.rate !== undefined) return this.ask('paced', load)
    if (load.http2) return this.ask('http2', load)
    return this.#name === 'wrk' && load.body === undefined ? runWrk(load) : this.ask('autocannon', load)
  }

  /** One task at a time for each kind of worker. */
  ask<Task, Result>(name: WorkerName, task: Task): Promise<Result & Effort> {
    let worker = this.#workers.get(name) as Worker<Task, Result> | undefined
    if (worker === undefined) {
      worker = new Worker<Task, Result>(name)
      this.#workers.set(name, worker as Worker<unknown, unknown>)
    }
    return worker.ask(task)
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#workers.values()].map(worker => worker.stop()))
    this.#workers.clear()
  }
}

export const hasWrk = (): boolean => spawnSync('wrk', ['-v']).error === undefined

const UNIT_MS: Record<string, number> = { us: 0.001, ms: 1, s: 1000, m: 60_000 }

/** `wrk` checks no bodies. It counts statuses other than 2xx and 3xx, and socket errors. */
async function runWrk(load: Load): Promise<LoadResult & Effort> {
  const seconds = Math.max(1, Math.round(load.durationMs / 1000))
  const args = ['-t1', `-c${load.connections}`, `-d${seconds}s`, '--latency', '--timeout', '10s']
  for (const [name, value] of Object.entries(load.headers))
    args.push('-H', `${name === 'host' ? 'Host' : name}: ${value}`) // wrk knows only this spelling
  const before = endedChildrenCpuMs()
  const text = await outputOf(asBatch('wrk', [...args, load.url]))
  const cpuMs = endedChildrenCpuMs() - before
  const number = (pattern: RegExp) => Number(text.match(pattern)?.[1] ?? 0)
  const ms = (pattern: RegExp) => {
    const [, value, unit] = text.match(pattern) ?? []
    return value === undefined ? Number.NaN : Number(value) * UNIT_MS[unit!]!
  }
  const other = number(/Non-2xx or 3xx responses: (\d+)/)
  const errors = text.match(/Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)/)
  const broken = (errors ?? []).slice(1).reduce((sum, n) => sum + Number(n), 0)
  const requests = number(/(\d+) requests in/)
  // wrk does not count answers that are still due at its end as errors.
  const missing = requests === 0 ? load.connections : 0
  return {
    requests,
    wrong: other + broken + missing,
    answers: { '2xx': requests - other, other, broken },
    durationMs: seconds * 1000,
    perSecond: number(/Requests\/sec:\s+([\d.]+)/),
    p50: ms(/\s50%\s+([\d.]+)(us|ms|s|m)/),
    p99: ms(/\s99%\s+([\d.]+)(us|ms|s|m)/),
    max: ms(/Latency\s+\S+\s+\S+\s+([\d.]+)(us|ms|s|m)/),
    generatorCpu: cpuMs / (seconds * 1000),
  }
}

async function outputOf([command, ...args]: readonly [string, ...string[]]): Promise<string> {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  let output = ''
  child.stdout.setEncoding('utf8').on('data', text => {
    output += text
  })
  const [code] = await once(child, 'close')
  if (code !== 0) throw new Error(`${command} ended with ${code}`)
  return output
}
