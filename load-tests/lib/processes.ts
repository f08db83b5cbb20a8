/** Child processes of a run: started, watched until they are ready, and ended by their own id. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { asBatch } from './batch.ts'

export interface Started {
  readonly name: string
  readonly pid: number
  /** Last lines of stderr, for an error report. */
  readonly tail: () => string
  stop(): Promise<void>
}

export interface StartOptions {
  name: string
  command: string
  args: readonly string[]
  env?: Record<string, string>
  cwd?: string
  /** Whether it is a part of the measurement and not of what is measured. See batch.ts. */
  batch?: boolean
  /** Called with each line of stdout and stderr. The process is ready once it returns true. Or a promise that resolves when it is ready. */
  ready: ((line: string) => boolean) | Promise<void>
  /** Default 15,000. */
  readyTimeoutMs?: number
}

const running = new Set<ChildProcess>()

/** A run that is killed cannot end what it started, so the kernel does (prctl(2), PR_SET_PDEATHSIG; util-linux 2.33). */
const TIED = ['setpriv', '--pdeathsig', 'TERM'] as const
const hasTied = spawnSync(TIED[0], [...TIED.slice(1), 'true']).status === 0

/** Starts a process and waits until it is ready. If it fails, throws with its last lines. */
export async function start(options: StartOptions): Promise<Started> {
  const line = options.batch ? asBatch(options.command, options.args) : [options.command, ...options.args]
  const [command, ...args] = hasTied ? [...TIED, ...line] : line
  const child = spawn(command!, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...options.env },
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
  })
  running.add(child)
  const lines: string[] = []
  const tail = () => lines.slice(-15).join('\n')
  const exited = once(child, 'exit').catch(() => {})
  void exited.then(() => running.delete(child))

  await new Promise<void>((resolve, reject) => {
    const fail = (why: string) => reject(new Error(`${options.name}: ${why}\n${tail()}`))
    const timer = setTimeout(() => fail('was not ready in time'), options.readyTimeoutMs ?? 15_000)
    child.once('error', error => fail(error.message))
    void exited.then(() => fail(`ended at once (${child.exitCode ?? child.signalCode})`))
    const done = () => {
      clearTimeout(timer)
      resolve()
    }
    if (options.ready instanceof Promise) options.ready.then(done, error => fail(error.message))
    for (const stream of [child.stdout!, child.stderr!])
      createInterface({ input: stream }).on('line', line => {
        lines.push(line)
        if (lines.length > 200) lines.splice(0, 100)
        if (typeof options.ready === 'function' && options.ready(line)) done()
      })
  }).catch(async error => {
    child.kill('SIGKILL')
    await exited
    throw error
  })

  return {
    name: options.name,
    pid: child.pid!,
    tail,
    async stop() {
      if (child.exitCode !== null || child.signalCode !== null) return
      child.kill('SIGTERM')
      const hard = setTimeout(() => child.kill('SIGKILL'), 5_000)
      await exited
      clearTimeout(hard)
    },
  }
}

/** Asks everything that still runs to end. Not with SIGKILL, since nginx would leave its workers behind. */
export function stopAll(): void {
  for (const child of running) child.kill('SIGTERM')
}
