import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'

/** Starting a process can take long on a busy machine. */
const READY_MS = 60_000
const STOP_MS = 5_000
const KEPT_LINES = 80

/** A log line of a part, parsed. If a line is not JSON, it becomes the `msg`. */
export interface LogLine {
  readonly msg: string
  readonly name?: string
  readonly address?: string
  readonly [field: string]: unknown
}

/** One part of the demo: a process, as in a deployment. */
export class Part {
  readonly name: string
  readonly #child: ChildProcess
  readonly #lines: LogLine[] = []
  readonly #waiting = new Set<() => void>()
  /** Resolves when it has ended. */
  readonly gone: Promise<unknown>
  #exit: string | undefined

  constructor(name: string, program: string, args: readonly string[], env: NodeJS.ProcessEnv) {
    this.name = name
    this.#child = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'], env })
    this.#child.once('error', error => this.#ended(`does not start: ${error.message}`))
    this.gone = once(this.#child, 'exit').catch(() => {})
    this.#child.once('exit', (code, signal) => this.#ended(`ended (${signal ?? `exit ${code}`})`))
    if (this.#child.stderr) createInterface(this.#child.stderr).on('line', line => this.#take(line))
  }

  get pid(): number | undefined {
    return this.#child.pid
  }

  get isRunning(): boolean {
    return this.#exit === undefined
  }

  /** The last lines that it logged, to find out why it failed. */
  get tail(): string {
    return this.#lines.map(line => `    ${JSON.stringify(line)}`).join('\n')
  }

  /** Resolves to the first log line, past or future, that `fits`. */
  async line(what: string, fits: (line: LogLine) => boolean): Promise<LogLine> {
    return (await this.lines(1, what, fits))[0]!
  }

  /** Resolves to the lines that fit, past and future, once there are that many. */
  async lines(count: number, what: string, fits: (line: LogLine) => boolean): Promise<LogLine[]> {
    const deadline = AbortSignal.timeout(READY_MS)
    for (;;) {
      const found = this.#lines.filter(fits)
      if (found.length >= count) return found
      if (this.#exit !== undefined) throw new Error(`${this.name} ${this.#exit} before ${what}\n${this.tail}`)
      if (deadline.aborted) throw new Error(`${this.name}: no ${what} within ${READY_MS / 1000} s\n${this.tail}`)
      await this.#change(deadline)
    }
  }

  /** The address of the part's listener with this name. */
  async listening(name: string): Promise<string> {
    const line = await this.line(`listening on ${name}`, line => line.msg === 'listening' && line.name === name)
    return String(line.address)
  }

  /** Ends it gracefully, or by force after 5 s. Resolves when the process is gone. */
  async stop(): Promise<void> {
    if (!this.isRunning || this.#child.pid === undefined) return
    this.#child.kill('SIGTERM')
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), STOP_MS)
    await this.gone
    clearTimeout(timer)
  }

  #take(text: string): void {
    this.#lines.push(parse(text))
    // Keep both ends: the first lines name addresses, the last ones name causes.
    if (this.#lines.length > KEPT_LINES) this.#lines.splice(KEPT_LINES / 2, 1)
    this.#wake()
  }

  #ended(how: string): void {
    this.#exit ??= how
    this.#wake()
  }

  #wake(): void {
    for (const wake of this.#waiting) wake()
  }

  #change(deadline: AbortSignal): Promise<void> {
    return new Promise(resolve => {
      const done = () => {
        this.#waiting.delete(done)
        deadline.removeEventListener('abort', done)
        resolve()
      }
      this.#waiting.add(done)
      deadline.addEventListener('abort', done)
    })
  }
}

function parse(text: string): LogLine {
  try {
    return JSON.parse(text) as LogLine
  } catch {
    return { msg: text }
  }
}
