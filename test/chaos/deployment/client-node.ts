import { setTimeout as wait } from 'node:timers/promises'
import type { Running } from '../../cli/process.ts'
import type { Relay, RelayedConnection } from '../../support/relay.ts'
import type { DeploymentOptions } from './deployment.ts'
import { endGracefully, type Processes, within } from './processes.ts'
import { replicaName } from './server-node.ts'
import { readStatus } from './status.ts'

const END_MS = 120_000
const CONNECTIONS = 2
const LOOK_MS = 50

/** The client of one runtime: one instance, or two during an update. */
export class ClientNode {
  readonly runtime: string
  /** One per server. */
  readonly relays: readonly Relay[]
  readonly #target: readonly string[]
  readonly #processes: Processes
  readonly #options: DeploymentOptions
  child: Running | undefined

  constructor(
    runtime: string,
    relays: readonly Relay[],
    target: readonly string[],
    processes: Processes,
    options: DeploymentOptions,
  ) {
    this.runtime = runtime
    this.relays = relays
    this.#target = target
    this.#processes = processes
    this.#options = options
  }

  /** Starts an instance. Resolves when both of its sessions are in service. */
  async start(): Promise<void> {
    this.child = await this.startInstance()
    await this.bothConnected(this.child)
  }

  /** Starts an instance beside the existing one. Resolves when it is ready. */
  async startInstance(): Promise<Running> {
    const { files } = this.#processes
    const { graceS, pingInterval, pingTimeout } = this.#options
    const child = this.#processes.start('client', `client of ${this.runtime}`, [
      ...this.relays.flatMap(relay => ['--server', `wss://127.0.0.1:${relay.port}`]),
      ...['--token.file', files.at(`${this.runtime}.token`), '--ca', files.at('ca.pem'), ...this.#target],
      ...['--grace', `${graceS}s`, '--ping.interval', pingInterval, '--ping.timeout', pingTimeout],
    ])
    await within(
      child,
      'session',
      child.line(line => line.msg === 'connected'),
    )
    return child
  }

  async bothConnected(child: Running): Promise<void> {
    const indices = Array.from({ length: CONNECTIONS }, (_, index) => index)
    const connected = indices.map(index => child.line(line => line.msg === 'connected' && line.connection === index))
    await within(child, 'second session', Promise.all(connected))
  }

  /** The connections of its sessions in service, once there are two and none is being opened. */
  async inService(): Promise<RelayedConnection[]> {
    const child = this.child!
    const steady = async () => {
      for (;;) {
        const replicas = await this.#replicasInService(child)
        if (replicas.length === CONNECTIONS) return this.#newest(replicas)
        await wait(LOOK_MS)
      }
    }
    return within(child, 'steady sessions', steady())
  }

  /** The replica of each session in service. Empty while a session is being opened. */
  async #replicasInService(child: Running): Promise<string[]> {
    const status = await readStatus(child, this.#processes.files.at('admin.token'))
    const { sessions } = status as { sessions: ReadonlyArray<{ state: string; replica: string }> }
    const settled = sessions.every(({ state }) => state === 'ready' || state === 'draining')
    return settled ? sessions.filter(({ state }) => state === 'ready').map(({ replica }) => replica) : []
  }

  /** Draining sessions are mostly older than those in service. Nothing else distinguishes them from outside. */
  #newest(replicas: readonly string[]): RelayedConnection[] {
    return this.relays.flatMap((relay, i) => {
      const count = replicas.filter(replica => replica === replicaName(i)).length
      return count === 0 ? [] : [...relay.connections].slice(-count)
    })
  }

  /** Asks the instance to stop. Resolves when it has ended. */
  async stop(child: Running = this.child!): Promise<void> {
    await endGracefully(child, END_MS)
  }
}
