/** The load generators, each in its own process: autocannon through its API, or `wrk`. */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

export interface Load {
  url: string
  connections: number
  durationMs: number
  headers?: Record<string, string>
  method?: string
  body?: string
  /** Each answer must have this body. */
  expectBody?: string
  /** Requests per second over all connections; then latency is corrected for coordinated omission. */
  rate?: number
}

export interface LoadResult {
  requests: number
  /** Answers that are wrong, short or missing. */
  wrong: number
  durationMs: number
  perSecond: number
  /** Latency in ms. */
  p50: number
  p99: number
  max: number
  /** The generator's own CPU, as a share of one core. */
  generatorCpu: number
}

export type Generator = (load: Load) => Promise<LoadResult>

async function runForOutput(command: string, args: readonly string[]): Promise<string> {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  let output = ''
  child.stdout.setEncoding('utf8').on('data', text => {
    output += text
  })
  const [code] = await once(child, 'close')
  if (code !== 0) throw new Error(`${command} ended with ${code}`)
  return output
}

export const autocannon: Generator = async load => {
  const worker = fileURLToPath(new URL('./autocannon-worker.ts', import.meta.url))
  return JSON.parse(await runForOutput(process.execPath, [worker, JSON.stringify(load)])) as LoadResult
}

export const hasWrk = (): boolean => spawnSync('wrk', ['-v']).error === undefined

const UNIT_MS: Record<string, number> = { us: 0.001, ms: 1, s: 1000, m: 60_000 }

/** `wrk` checks no bodies; it counts statuses other than 2xx and 3xx, and errors of the socket. */
export const wrk: Generator = async load => {
  const seconds = Math.max(1, Math.round(load.durationMs / 1000))
  const args = ['-t1', `-c${load.connections}`, `-d${seconds}s`, '--latency', '--timeout', '10s']
  for (const [name, value] of Object.entries(load.headers ?? {}))
    args.push('-H', `${name === 'host' ? 'Host' : name}: ${value}`) // wrk knows only this spelling
  const before = process.cpuUsage()
  const text = await runForOutput('wrk', [...args, load.url])
  const number = (pattern: RegExp) => Number(text.match(pattern)?.[1] ?? 0)
  const percentile = (name: string) => {
    const found = text.match(new RegExp(`\\s${name}%\\s+([\\d.]+)(us|ms|s|m)`))
    return found ? Number(found[1]) * UNIT_MS[found[2]!]! : Number.NaN
  }
  const max = text.match(/Latency\s+\S+\s+\S+\s+([\d.]+)(us|ms|s|m)/)
  const errors = text.match(/Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)/)
  return {
    requests: number(/(\d+) requests in/),
    wrong:
      number(/Non-2xx or 3xx responses: (\d+)/) + (errors ? errors.slice(1).reduce((sum, n) => sum + Number(n), 0) : 0),
    durationMs: seconds * 1000,
    perSecond: number(/Requests\/sec:\s+([\d.]+)/),
    p50: percentile('50'),
    p99: percentile('99'),
    max: max ? Number(max[1]) * UNIT_MS[max[2]!]! : Number.NaN,
    generatorCpu: process.cpuUsage(before).user / (seconds * 1e6),
  }
}
