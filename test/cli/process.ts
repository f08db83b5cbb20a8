import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import type { KeptSockets } from '../support/kept-sockets.ts'

export interface LogLine {
  readonly msg: string
  readonly name?: string
  readonly address?: string
  readonly [field: string]: unknown
}

/** A `sallyport` command as a separate process, with its output. */
export class Running {
  readonly lines: LogLine[] = []
  readonly #child: ChildProcess
  readonly #exit: Promise<{ code: number | null; signal: string | null }>
  #wake: (() => void)[] = []
  #ended = false
  out = ''

  /** `kept`: a supervisor starts it again and again, and this stands for the supervisor; see {@link pids}. */
  constructor(
    args: readonly string[],
    environment: Record<string, string> = {},
    node: string = process.execPath,
    kept?: KeptSockets,
  ) {
    const clean = Object.entries(process.env).filter(([name]) => !name.startsWith('SALLYPORT_'))
    const [command, ...rest] = [...(kept?.command ?? []), node, 'bin/sallyport.js', ...args]
    this.#child = spawn(command!, rest, {
      stdio: ['ignore', 'pipe', 'pipe', ...(kept?.fds ?? [])],
      env: { ...Object.fromEntries(clean), ...environment, ...kept?.environment },
    })
    kept?.release()
    this.#child.stdout!.setEncoding('utf8').on('data', chunk => {
      this.out += chunk
    })
    createInterface(this.#child.stderr!).on('line', line => {
      this.lines.push(parse(line))
      this.#changed()
    })
    this.#exit = once(this.#child, 'close').then(([code, signal]) => {
      this.#ended = true
      this.#changed()
      return { code, signal }
    })
  }

  #changed(): void {
    for (const wake of this.#wake.splice(0)) wake()
  }

  get pid(): number {
    return this.#child.pid!
  }

  /** Of the processes that a supervisor started, one after the other. */
  get pids(): number[] {
    return this.lines.flatMap(line => (line.msg === 'began' ? [Number(line.pid)] : []))
  }

  get text(): string {
    return this.lines.map(line => JSON.stringify(line)).join('\n')
  }

  /** The first line, past or future, that matches; its output, if it ends without one. */
  async line(fits: (line: LogLine) => boolean): Promise<LogLine> {
    for (;;) {
      const found = this.lines.find(fits)
      if (found) return found
      if (this.#ended) throw new Error(`it ended before that line:\n${this.text}`)
      await new Promise<void>(resolve => this.#wake.push(resolve))
    }
  }

  /** `HOST:PORT` of its listener with that name. */
  async address(name: string): Promise<string> {
    return (await this.line(line => line.msg === 'listening' && line.name === name)).address!
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal)
  }

  /** Resolves when it has ended, by itself or by the signal. */
  async end(signal?: NodeJS.Signals): Promise<number | string | null> {
    if (signal) this.kill(signal)
    const { code, signal: by } = await this.#exit
    return code ?? by
  }
}

function parse(line: string): LogLine {
  try {
    return JSON.parse(line) as LogLine
  } catch {
    return { msg: line }
  }
}
