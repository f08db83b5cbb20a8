/** A deployment of real processes: servers, clients, a router, a proxy in front, relays in between, and Redis. */

import type { Place } from '../../support/caller.ts'
import type { ProxyProgram } from '../../support/proxy-program.ts'
import { Redis } from '../../support/redis.ts'
import { Relay } from '../../support/relay.ts'
import { DOMAIN } from '../../support/secrets.ts'
import type { Ledger } from '../traffic/ledger.ts'
import { TrafficUpstream } from '../traffic/upstream.ts'
import { ClientNode } from './client-node.ts'
import { DeploymentFiles } from './files.ts'
import { startHaproxy } from './haproxy.ts'
import { startNginx } from './nginx.ts'
import { Processes } from './processes.ts'
import { RouterNode } from './router-node.ts'
import { replicaName, ServerNode } from './server-node.ts'

export interface DeploymentOptions {
  /** With several, there is a proxy in front of them, and a directory. */
  readonly servers: 1 | 2 | 3
  /** Default nginx. HAProxy is for two servers. */
  readonly proxy?: 'nginx' | 'haproxy' | undefined
  /** Between clients and servers. */
  readonly roundTripMs: number
  /** Whether a supervisor keeps the sockets of the server while it restarts. */
  readonly keepsSockets?: boolean | undefined
  readonly graceS: number
  /** How many times longer than usual things take on this machine. */
  readonly pace: number
  readonly pingInterval: string
  readonly pingTimeout: string
  /** Whether processes can be inspected while they run. */
  readonly inspect?: boolean
}

/** The last runtime's client forwards to a separate router. The others embed theirs. */
export const RUNTIMES = ['alpha', 'bravo', 'charlie'] as const

export class Deployment {
  readonly options: DeploymentOptions
  readonly files: DeploymentFiles
  readonly processes: Processes
  readonly upstreams: TrafficUpstream[] = []
  readonly servers: ServerNode[] = []
  readonly clients: ClientNode[] = []
  /** Conditions of the faults themselves that did not hold, in words. */
  readonly notes: string[] = []
  readonly #relays: Relay[] = []
  router: RouterNode | undefined
  redis: Redis | undefined
  #proxy: ProxyProgram | undefined

  private constructor(options: DeploymentOptions, files: DeploymentFiles) {
    this.options = options
    this.files = files
    this.processes = new Processes(files, options.inspect === true)
  }

  static async start(options: DeploymentOptions, ledger: Ledger): Promise<Deployment> {
    const deployment = new Deployment(options, await DeploymentFiles.make())
    try {
      await deployment.#start(ledger)
      return deployment
    } catch (error) {
      await deployment.stop()
      throw error
    }
  }

  async #start(ledger: Ledger): Promise<void> {
    for (const runtime of RUNTIMES) this.upstreams.push(await TrafficUpstream.start(runtime, ledger))
    await this.#startServers()
    if (this.options.servers > 1) {
      const startProxy = this.options.proxy === 'haproxy' ? startHaproxy : startNginx
      this.#proxy = await startProxy(
        this.files,
        this.servers.map(server => server.publicPort),
        this.options.pace,
      )
    }
    for (const upstream of this.upstreams) this.clients.push(await this.#makeClient(upstream))
    await Promise.all(this.clients.map(client => client.start()))
  }

  async #startServers(): Promise<void> {
    if (this.options.servers > 1) {
      this.redis = await Redis.start()
      await this.redis.age()
    }
    for (let i = 0; i < this.options.servers; i++) {
      this.servers.push(await ServerNode.make(replicaName(i), this.processes, this.options, this.redis))
    }
    await Promise.all(this.servers.map(server => server.start()))
  }

  async #makeClient(upstream: TrafficUpstream): Promise<ClientNode> {
    const { runtime, port } = upstream
    await this.files.renewToken(runtime)
    await this.files.writeRoutes(runtime, `http://127.0.0.1:${port}`)
    const relays = await Promise.all(this.servers.map(server => this.#relayTo(server)))
    const isRouted = runtime === RUNTIMES.at(-1)
    if (isRouted) this.router = await RouterNode.start(runtime, this.processes)
    const target = isRouted
      ? ['--target', `http://${this.router!.address}`]
      : ['--routes', this.files.at(`${runtime}.yaml`)]
    return new ClientNode(runtime, relays, target, this.processes, this.options)
  }

  async #relayTo(server: ServerNode): Promise<Relay> {
    const relay = await Relay.start({ port: 0, roundTripMs: this.options.roundTripMs })
    this.#relays.push(relay)
    server.follow(relay)
    return relay
  }

  /** Where callers reach a runtime. */
  placeOf(runtime: string): Place {
    const port = this.#proxy?.port ?? this.servers[0]!.publicPort
    return { port, authority: `${runtime}.${DOMAIN}:${port}`, ca: this.files.ca }
  }

  /** Ends everything at once. Nothing remains, except for the folder with all logs if `SALLYPORT_CHAOS_KEEP=1`. */
  async stop(): Promise<void> {
    await this.processes.killAll()
    await Promise.all([this.#proxy?.stop(), this.redis?.stop()])
    await Promise.all([...this.#relays.map(relay => relay.stop()), ...this.upstreams.map(upstream => upstream.stop())])
    if (process.env.SALLYPORT_CHAOS_KEEP === undefined) return this.files.remove()
    await this.processes.saveLogs(this.files.folder)
    console.log(`logs are in ${this.files.folder}`)
  }
}
