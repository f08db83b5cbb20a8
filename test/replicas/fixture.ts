/** Several servers in this process that know each other through one real Redis. */
import { createReplicaCertificate } from '../../certs/index.ts'
import type { ServerOptions } from '../../server/options.ts'
import type { Server } from '../../server/server.ts'
import { makeWorld, startServer } from '../server/fixture.ts'
import { unhurried } from '../support/busy.ts'
import { Redis } from '../support/redis.ts'
import { until } from '../support/until.ts'

export const LEASE_MS = unhurried(1000)

/** What a replica needs to talk to the others. */
export async function peerOptions(port = 0): Promise<NonNullable<ServerOptions['peer']>> {
  const { authority } = await makeWorld()
  const made = await createReplicaCertificate(authority)
  return { port, tls: { cert: made.certificate, key: made.key, ca: authority.certificate } }
}

/** A set of replicas that ends with its test. */
export class ReplicaGroup {
  readonly servers: Server[] = []
  readonly redis: Redis

  static async start(): Promise<ReplicaGroup> {
    const redis = await Redis.start()
    await redis.age()
    return new ReplicaGroup(redis)
  }

  private constructor(redis: Redis) {
    this.redis = redis
  }

  async add(overrides: Partial<ServerOptions> = {}): Promise<Server> {
    const server = await startServer({
      replica: `r${this.servers.length + 1}`,
      directory: { url: this.redis.url, leaseMs: LEASE_MS },
      peer: await peerOptions(),
      hold: {},
      ...overrides,
    })
    this.servers.push(server)
    await until(() => this.servers.every(one => one.stats().peers?.connected === this.servers.length - 1))
    return server
  }

  async closeServers(): Promise<void> {
    await Promise.all(this.servers.splice(0).map(server => server.close({ graceMs: 0 })))
  }

  /** Between tests: no servers, and a directory that is empty and not young. */
  async clear(): Promise<void> {
    this.redis.resume()
    await this.closeServers()
    await this.redis.command('FLUSHALL')
    await this.redis.age()
  }

  async stop(): Promise<void> {
    await this.closeServers()
    await this.redis.stop()
  }
}
