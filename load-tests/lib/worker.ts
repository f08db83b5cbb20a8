/** A load generator runs in a separate process: a file of `workers/` that handles one task after another. */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { extname } from 'node:path'
import { fileURLToPath } from 'node:url'
import { asBatch } from './batch.ts'

export type WorkerName =
  | 'autocannon'
  | 'paced'
  | 'http2'
  | 'bulk'
  | 'slow-reader'
  | 'websocket'
  | 'events'
  | 'sessions'
  | 'mux'

/** What a worker reports about itself with each result. */
export interface Effort {
  /** Its own CPU while it worked, as a share of one core. */
  readonly generatorCpu: number
}

type Reply<Result> = { readonly result: Result & Effort } | { readonly error: string }

const running = new Set<ChildProcess>()

/** `.ts` in a checkout, `.js` in the package. */
const EXTENSION = extname(import.meta.filename)

export class Worker<Task, Result> {
  readonly #child: ChildProcess
  readonly #name: WorkerName

  constructor(name: WorkerName) {
    this.#name = name
    const file = fileURLToPath(new URL(`../workers/${name}${EXTENSION}`, import.meta.url))
    const [execPath, ...execArgv] = asBatch(process.execPath, [])
    this.#child = fork(file, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'], execPath, execArgv })
    running.add(this.#child)
    this.#child.once('exit', () => running.delete(this.#child))
  }

  get pid(): number {
    return this.#child.pid!
  }

  /** Runs one task at a time. Rejects if the worker fails or ends. */
  async ask(task: Task): Promise<Result & Effort> {
    const settled = new AbortController()
    const gone = once(this.#child, 'exit', { signal: settled.signal }).then(
      (): Reply<Result> => ({ error: 'it ended' }),
    )
    const answered = once(this.#child, 'message', { signal: settled.signal }).then(([reply]) => reply as Reply<Result>)
    gone.catch(() => {})
    answered.catch(() => {})
    this.#child.send(task as object)
    const reply = await Promise.race([gone, answered])
    settled.abort()
    if ('error' in reply) throw new Error(`${this.#name} worker: ${reply.error}`)
    return reply.result
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    const gone = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await gone
  }
}

/** Ends every worker that is still running, as a runner's last resort. */
export function stopWorkers(): void {
  for (const child of running) child.kill('SIGKILL')
}

/** The other side, called by the files of `workers/`. */
export function serveTasks<Task, Result extends object>(work: (task: Task) => Promise<Result>): void {
  process.on('message', async (task: Task) => {
    process.send?.(await attempt(() => work(task)))
  })
  process.once('disconnect', () => process.exit())
  // Ctrl-C reaches the whole process group, but the runner ends its workers itself.
  process.on('SIGINT', () => {})
}

async function attempt<Result extends object>(work: () => Promise<Result>): Promise<Reply<Result>> {
  const startedAt = performance.now()
  const before = process.cpuUsage()
  try {
    const result = await work()
    const { user, system } = process.cpuUsage(before)
    return { result: { ...result, generatorCpu: (user + system) / 1000 / (performance.now() - startedAt) } }
  } catch (error) {
    return { error: error instanceof Error ? (error.stack ?? error.message) : String(error) }
  }
}
