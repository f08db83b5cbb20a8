import { setTimeout as wait } from 'node:timers/promises'
import type { Running } from '../../cli/process.ts'
import type { Relay, RelayedConnection } from '../../support/relay.ts'
import type { DeploymentOptions } from './deployment.ts'
import { endGracefully, type Processes, within } from './processes.ts'
import { readStatus } from './status.ts'

const END_MS = 60_000
const CONNECTIONS = 2
const LOOK_MS = 50

/** The client of one runtime: an instance, and for a while two of them. */
export class ClientNode {
  readonly runtime: string
  /** One a server. */
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

  /** Its connections to all servers. */
  get connections(): RelayedConnection[] {
    return this.relays.flatMap(relay => [...relay.connections])
  }

  /** Starts an instance; resolves when both of its sessions are in service. */
  async start(): Promise<void> {
    this.child = await this.startInstance()
    await this.bothConnected(this.child)
  }

  /** Starts an instance beside the one there is; resolves when it is ready. */
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

  /** Its connections, as soon as each carries a session in service: none of them drains, or is being replaced. */
  async steadyConnections(): Promise<RelayedConnection[]> {
    const child = this.child!
    const steady = async () => {
      while (this.connections.length !== CONNECTIONS || !(await this.#isSteady(child))) await wait(LOOK_MS)
    }
    await within(child, 'steady sessions', steady())
    return this.connections
  }

  async #isSteady(child: Running): Promise<boolean> {
    const status = await readStatus(child, this.#processes.files.at('admin.token'))
    const { sessions } = status as { readonly sessions: ReadonlyArray<{ readonly state: string }> }
    return sessions.length === CONNECTIONS && sessions.every(({ state }) => state === 'ready')
  }

  /** Asks the instance to stop; resolves when it has ended. */
  async stop(child: Running = this.child!): Promise<void> {
    await endGracefully(child, END_MS)
  }
}
