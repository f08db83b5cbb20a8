import type { Running } from '../../cli/process.ts'
import { type Processes, within } from './processes.ts'

/** A router as a separate service, behind the client of one runtime. */
export class RouterNode {
  readonly child: Running
  readonly address: string

  private constructor(child: Running, address: string) {
    this.child = child
    this.address = address
  }

  static async start(runtime: string, processes: Processes): Promise<RouterNode> {
    const routes = processes.files.at(`${runtime}.yaml`)
    const child = processes.start('router', 'router', ['--listen', '127.0.0.1:0', '--routes', routes])
    return new RouterNode(child, await within(child, 'listener', child.address('router')))
  }
}
