import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import { program } from '../../support/needs.ts'
import type { DeploymentFiles } from './files.ts'
import { lastingPort } from './ports.ts'

/** The directory's Redis: a process at a time, always on the same port, and empty after each start. */
export class RedisNode {
  readonly url: string
  readonly #port: number
  readonly #files: DeploymentFiles
  #child: ChildProcess | undefined

  private constructor(port: number, files: DeploymentFiles) {
    this.#port = port
    this.#files = files
    this.url = `redis://127.0.0.1:${port}`
  }

  static async start(files: DeploymentFiles): Promise<RedisNode> {
    const node = new RedisNode(await lastingPort(), files)
    await mkdir(files.at('redis'))
    await node.start()
    return node
  }

  /** Resolves when it takes connections. */
  async start(): Promise<void> {
    const settings = ['--bind', '127.0.0.1', '--port', String(this.#port), '--dir', this.#files.at('redis')]
    const child = spawn(program('redis-server'), [...settings, '--save', '', '--appendonly', 'no'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    this.#child = child
    for await (const line of createInterface(child.stdout)) if (line.includes('Ready to accept connections')) break
    child.stdout.resume()
    if (child.exitCode !== null) throw new Error(`redis-server ended with ${child.exitCode}`)
  }

  signal(signal: 'SIGSTOP' | 'SIGCONT'): void {
    this.#child?.kill(signal)
  }

  async kill(): Promise<void> {
    const child = this.#child
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    const gone = once(child, 'exit')
    child.kill('SIGKILL')
    await gone
  }
}
