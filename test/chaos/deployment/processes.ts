/** The `sallyport` processes of a deployment: started, kept apart, and none left behind. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Running } from '../../cli/process.ts'
import type { KeptSockets } from '../../support/kept-sockets.ts'
import type { DeploymentFiles } from './files.ts'

const START_MS = 120_000
const LIVE_FLAGS = ['--log.format', 'json', '--admin.listen', '127.0.0.1:0']

export class Processes {
  readonly files: DeploymentFiles
  readonly #environment: Record<string, string>
  readonly #started: Array<{ readonly part: string; readonly child: Running }> = []
  readonly #running = new Map<Running, string>()

  constructor(files: DeploymentFiles, inspect: boolean) {
    this.files = files
    this.#environment = {
      HTTPS_PROXY: '',
      https_proxy: '',
      TMPDIR: files.folder,
      XDG_RUNTIME_DIR: '',
      NODE_OPTIONS: inspect ? '--inspect=127.0.0.1:0' : '',
    }
  }

  /** The running processes, each with the name of its part. */
  get running(): ReadonlyMap<Running, string> {
    return this.#running
  }

  start(
    component: 'server' | 'client' | 'router',
    part: string,
    flags: readonly string[],
    kept?: KeptSockets,
  ): Running {
    const token = ['--admin.token.file', this.files.at('admin.token')]
    const child = new Running([component, ...LIVE_FLAGS, ...token, ...flags], this.#environment, process.execPath, kept)
    this.#running.set(child, part)
    this.#started.push({ part, child })
    void child.end().then(() => this.#running.delete(child))
    return child
  }

  /** Writes the log of each process of this deployment into `folder`. */
  async saveLogs(folder: string): Promise<void> {
    for (const [i, { part, child }] of this.#started.entries()) {
      await writeFile(join(folder, `${i}-${part.replaceAll(' ', '-')}-${child.pid}.log`), `${child.text}\n`)
    }
  }

  async killAll(): Promise<void> {
    const ends = [...this.#running.keys()].map(child => child.end('SIGKILL'))
    // A supervisor that is killed leaves its processes running.
    for (const { child } of this.#started) killLast(child.pids)
    await Promise.all(ends)
  }
}

function killLast(pids: readonly number[]): void {
  const last = pids.at(-1)
  if (last === undefined) return
  try {
    process.kill(last, 'SIGKILL')
  } catch {
    // It has ended.
  }
}

/** Like `promise`, but if a step never happens, the error has the log of the process. */
export async function within<T>(child: Running, what: string, promise: Promise<T>, ms = START_MS): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => reject(new Error(`no ${what} within ${ms / 1000} s:\n${tail(child)}`)), ms)
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}

/** Ends it with a signal that it should handle. Throws for an exit code other than 0. */
export async function endGracefully(child: Running, ms: number): Promise<void> {
  const how = await within(child, 'end', child.end('SIGTERM'), ms)
  if (how !== 0) throw new Error(`it ended with ${how}:\n${tail(child)}`)
}

function tail(child: Running): string {
  return child.text.split('\n').slice(-30).join('\n')
}
