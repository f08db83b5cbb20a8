/** Replicas without sockets for callers and clients: real directory, peers and registry, and stand-ins for sessions. */
import { noLogger } from '../../protocol/base/log.ts'
import type { Grant } from '../../server/directory/directory.ts'
import { RedisStore } from '../../server/directory/redis-store.ts'
import { SharedDirectory } from '../../server/directory/shared-directory.ts'
import type { Hop } from '../../server/peer/hop.ts'
import { Peers } from '../../server/peer/peers.ts'
import type { PeerTls } from '../../server/peer/tls.ts'
import { type RegisteredSession, Registry } from '../../server/registry.ts'
import { Relay } from '../support/relay.ts'
import type { Entry } from './history.ts'

export const RUNTIME = 'demo'

/** An instance's session, as the registry sees it. */
class FakeSession implements RegisteredSession {
  readonly id: string
  readonly runtime = RUNTIME
  readonly instance: string
  readonly rttMs = 0
  readonly overdue = false
  readonly heardAt = 0
  exchanges = 0
  readonly #onGrant: (grant: Grant) => void

  constructor(id: string, instance: string, onGrant: (grant: Grant) => void) {
    this.id = id
    this.instance = instance
    this.#onGrant = onGrant
  }

  claims(): boolean {
    return false
  }

  granted(grant: Grant): void {
    this.#onGrant(grant)
  }
}

/** What an instance remembers: the last epoch that it was told. */
export interface FakeInstance {
  readonly id: string
  epoch: number
}

export class ModelReplica {
  readonly name: string
  readonly registry: Registry<FakeSession, Hop>
  readonly directory: SharedDirectory
  readonly peers: Peers
  /** The path to Redis, and the one by which others reach this replica. */
  readonly paths: { readonly redis: Relay; readonly peers: Relay }
  readonly sessions: FakeSession[] = []
  crashed = false

  static async start(
    name: string,
    redisPort: number,
    tls: PeerTls,
    leaseMs: number,
    history: Entry[],
  ): Promise<ModelReplica> {
    const paths = { redis: await Relay.start({ port: redisPort }), peers: await Relay.start({ port: 0 }) }
    const peers = new Peers({
      replica: name,
      tls,
      leaseMs,
      bufferBytes: 1_000_000,
      bufferBytesPerRuntime: 1_000_000,
      maxWindowBytes: 262_144,
      logger: noLogger,
      pick: () => undefined,
    })
    const { port } = await peers.bind({ port: 0 }, `127.0.0.1:${paths.peers.port}`)
    paths.peers.target = port
    const replica = new ModelReplica(name, paths, peers, leaseMs, history)
    await replica.directory.open()
    return replica
  }

  private constructor(
    name: string,
    paths: { redis: Relay; peers: Relay },
    peers: Peers,
    leaseMs: number,
    history: Entry[],
  ) {
    this.name = name
    this.paths = paths
    this.peers = peers
    const record: NonNullable<ConstructorParameters<typeof Registry>[0]['record']> = (
      deed,
      runtime,
      instance,
      epoch,
    ) => {
      if (!this.crashed) history.push({ atMs: performance.now(), replica: name, deed, runtime, instance, epoch })
    }
    const store = new RedisStore({
      redis: async () => ({ url: `redis://127.0.0.1:${paths.redis.port}` }),
      replica: name,
      address: peers.address,
      leaseMs,
      prefix: 'sallyport',
    })
    this.directory = new SharedDirectory({ store, replica: name, leaseMs, logger: noLogger, witnesses: peers, record })
    this.registry = new Registry<FakeSession, Hop>({ directory: this.directory, logger: noLogger, hops: peers, record })
  }

  join(instance: FakeInstance): void {
    const session = new FakeSession(`${this.name}-${instance.id}-${Math.random()}`, instance.id, ({ epoch }) => {
      if (!this.crashed) instance.epoch = Math.max(instance.epoch, epoch)
    })
    this.sessions.push(session)
    this.registry.add(session)
    this.registry.ready(session, instance.epoch).catch(() => {})
  }

  leave(index: number): void {
    const [session] = this.sessions.splice(index % Math.max(1, this.sessions.length), 1)
    if (session !== undefined) this.registry.remove(session)
  }

  /** A request arrives: recorded if a session of this replica takes it. An unknown runtime is looked up. */
  route(): void {
    if (this.registry.pick(RUNTIME) === undefined) this.registry.ask(RUNTIME, false)
  }

  describe(): string {
    const standing = this.directory.find(RUNTIME)
    const known =
      typeof standing === 'object'
        ? `${standing.active} (${standing.epoch}) ${JSON.stringify([...standing.instances])}`
        : String(standing)
    const here = this.sessions.map(({ instance }) => instance).join()
    return `${this.name} is ${this.directory.state}, has ${here}, knows ${known}, ${JSON.stringify(this.peers.stats())}`
  }

  /** Ends without a word. */
  async crash(): Promise<void> {
    this.paths.redis.silent = true
    this.paths.peers.silent = true
    await this.stop()
  }

  async stop(): Promise<void> {
    this.crashed = true
    await Promise.all([this.peers.close(), this.directory.close()])
    await Promise.all([this.paths.redis.stop(), this.paths.peers.stop()])
  }
}
