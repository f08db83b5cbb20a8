import type { Running } from '../../cli/process.ts'
import { type KeptSockets, keepSockets } from '../../support/kept-sockets.ts'
import { lastingPort } from '../../support/ports.ts'
import type { Redis } from '../../support/redis.ts'
import type { Relay } from '../../support/relay.ts'
import { DOMAIN } from '../../support/secrets.ts'
import type { DeploymentOptions } from './deployment.ts'
import { DRAIN_DELAY_S, HEALTH_PATH } from './haproxy.ts'
import { endGracefully, type Processes, within } from './processes.ts'

/** The longest that a server may take to stop: more than the longest grace of a deployment. */
const END_MS = 120_000
/** A client that is restarted in place is away for its grace and its start. */
const HOLD_MS = 8000

/** One replica: one process at a time, always on the same public port. */
export class ServerNode {
  readonly name: string
  /** The sockets of its listeners, if a supervisor keeps them. */
  readonly #kept: KeptSockets | undefined
  readonly publicPort: number
  readonly #processes: Processes
  readonly #options: DeploymentOptions
  readonly #redis: Redis | undefined
  readonly #relays: Relay[] = []
  /** 0 while it is down. */
  #controlPort = 0
  child: Running | undefined

  private constructor(
    name: string,
    place: number | KeptSockets,
    processes: Processes,
    options: DeploymentOptions,
    redis: Redis | undefined,
  ) {
    this.name = name
    this.#kept = typeof place === 'number' ? undefined : place
    this.publicPort = typeof place === 'number' ? place : place.ports[0]!
    this.#processes = processes
    this.#options = options
    this.#redis = redis
  }

  static async make(
    name: string,
    processes: Processes,
    options: DeploymentOptions,
    redis: Redis | undefined,
  ): Promise<ServerNode> {
    const place = options.keepsSockets === true ? await keepSockets(['public', 'control']) : await lastingPort()
    return new ServerNode(name, place, processes, options, redis)
  }

  /** The relay forwards to this server, wherever its control endpoint listens. */
  follow(relay: Relay): void {
    this.#relays.push(relay)
    relay.target = this.#controlPort
  }

  /** Starts a new process. Resolves when it serves callers and clients. */
  async start(): Promise<void> {
    const { files } = this.#processes
    const tls = (prefix: string) => [
      ...[`--${prefix}.tls.cert`, files.at('server.pem'), `--${prefix}.tls.key`, files.at('server-key.pem')],
    ]
    const { graceS, pace, pingInterval, pingTimeout, proxy } = this.#options
    const flags = [
      ...['--public.listen', `127.0.0.1:${this.publicPort}`, ...tls('public')],
      ...['--control.listen', '127.0.0.1:0', ...tls('control')],
      ...['--domain', DOMAIN, '--auth.jwks.file', files.at('jwks.json'), '--replica', this.name],
      ...[
        '--grace',
        `${graceS}s`,
        '--drain-spread',
        '1s',
        '--ping.interval',
        pingInterval,
        '--ping.timeout',
        pingTimeout,
      ],
      ...['--hold.time', `${Math.round(HOLD_MS * pace)}ms`],
      ...['--trusted-proxies', '127.0.0.1/32'],
      ...(proxy === 'haproxy'
        ? ['--public.health-path', HEALTH_PATH, '--drain-delay', `${Math.ceil(DRAIN_DELAY_S * pace)}s`]
        : []),
      ...this.#peering(),
    ]
    const child = this.#processes.start('server', 'server', flags, this.#kept)
    this.child = child
    const [control] = await within(
      child,
      'listeners',
      Promise.all([child.address('control'), child.address('public'), child.address('admin')]),
    )
    this.#lead(portOf(control))
  }

  /** Asks the process that its supervisor has started to stop. Resolves when the next one serves. */
  async restart(): Promise<void> {
    const child = this.child!
    const before = child.lines.length
    process.kill(child.pids.at(-1)!, 'SIGTERM')
    for (const name of ['public', 'control', 'admin']) {
      const again = child.line(
        line => line.name === name && line.msg === 'listening' && child.lines.indexOf(line) >= before,
      )
      await within(child, `second ${name}`, again)
    }
  }

  /** Asks it to stop. Resolves when it has ended. */
  async stop(): Promise<void> {
    const child = this.child!
    await endGracefully(child, END_MS)
    this.#down()
  }

  async kill(): Promise<void> {
    await this.child!.end('SIGKILL')
    this.#down()
  }

  #peering(): string[] {
    if (this.#redis === undefined) return []
    const { files } = this.#processes
    const cert = ['--peer.tls.cert', files.at('replica.pem'), '--peer.tls.key', files.at('replica-key.pem')]
    const peer = ['--peer.listen', '127.0.0.1:0', ...cert, '--peer.tls.ca', files.at('ca.pem')]
    return ['--directory', this.#redis.url, ...peer]
  }

  #down(): void {
    this.child = undefined
    this.#lead(0)
  }

  #lead(controlPort: number): void {
    this.#controlPort = controlPort
    for (const relay of this.#relays) relay.target = controlPort
  }
}

export function replicaName(index: number): string {
  return `replica-${index}`
}

export function portOf(address: string): number {
  return Number(address.slice(address.lastIndexOf(':') + 1))
}
