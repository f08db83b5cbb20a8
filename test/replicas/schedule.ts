/** A random schedule: instances come and go, callers arrive all the time, and everything between the replicas fails. */
import type { PeerTls } from '../../server/peer/tls.ts'
import { randomOf } from '../support/random.ts'
import type { Redis } from '../support/redis.ts'
import type { Entry } from './history.ts'
import { type FakeInstance, ModelReplica, RUNTIME } from './model.ts'

const REPLICAS = 3
const STEPS = 30
/** A bound, so that a schedule that never settles is reported with its seed. */
const AGREE_LEASES = 20

export interface ModelRun {
  readonly history: readonly Entry[]
  /** What was done, in words, in order. */
  readonly steps: readonly string[]
  readonly routed: number
  /** All replicas agreed again after the last fault. */
  readonly agreed: boolean
}

export class Schedule {
  readonly #random: () => number
  readonly #redis: Redis
  readonly #tls: PeerTls
  /** Everything else takes time in proportion to this. */
  readonly #leaseMs: number
  readonly #history: Entry[] = []
  readonly #steps: string[] = []
  readonly #replicas: ModelReplica[] = []
  readonly #instances: FakeInstance[] = []
  #agreed = true
  #named = 0
  #paused = false
  /** When Redis was emptied, or a replica was last cut off after that; until all have written back what they know. */
  #emptiedMs: number | undefined
  /** A replica died and another one started since all paths were last intact. */
  #replaced = false
  /** Those that died and are still being closed. */
  readonly #dead: Promise<void>[] = []

  constructor(seed: number, redis: Redis, tls: PeerTls, leaseMs: number) {
    this.#random = randomOf(seed)
    this.#redis = redis
    this.#tls = tls
    this.#leaseMs = leaseMs
  }

  async run(): Promise<ModelRun> {
    for (let i = 0; i < REPLICAS; i++) await this.#add()
    const callers = setInterval(() => {
      for (const replica of this.#replicas) replica.route()
    }, this.#leaseMs / 160)
    for (let i = 0; i < STEPS; i++) {
      await this.#step()
      await sleep(this.#random() * 0.1 * this.#leaseMs)
    }
    await this.#heal()
    clearInterval(callers)
    await Promise.all([...this.#dead, ...this.#replicas.map(replica => replica.stop())])
    const routed = this.#history.filter(({ deed }) => deed === 'routed').length
    return { history: this.#history, steps: this.#steps, routed, agreed: this.#agreed }
  }

  async #add(): Promise<void> {
    const name = `r${++this.#named}`
    this.#replicas.push(await ModelReplica.start(name, this.#redis.port, this.#tls, this.#leaseMs, this.#history))
    this.#steps.push(`${name} starts`)
  }

  #pick<T>(list: readonly T[]): T {
    return list[Math.floor(this.#random() * list.length)]!
  }

  #join(replica: ModelReplica, isNew: boolean): void {
    if (isNew || this.#instances.length === 0) this.#instances.push({ id: `i${this.#instances.length}`, epoch: 0 })
    const instance = isNew ? this.#instances.at(-1)! : this.#pick(this.#instances)
    this.#steps.push(`${instance.id} (epoch ${instance.epoch}) joins ${replica.name}`)
    replica.join(instance)
  }

  get #cutOff(): boolean {
    return this.#paused || this.#replicas.some(({ paths }) => paths.redis.silent || paths.peers.silent)
  }

  /** See `#crash`. */
  #mayEmpty(): boolean {
    if (this.#replaced && this.#cutOff) return false
    this.#emptiedMs = performance.now()
    return true
  }

  /** What was forgotten may be written back while nothing is in the way. */
  #settle(): void {
    const nowMs = performance.now()
    if (this.#cutOff) {
      if (this.#emptiedMs !== undefined) this.#emptiedMs = nowMs
      return
    }
    this.#replaced = false
    if (this.#emptiedMs !== undefined && nowMs - this.#emptiedMs > 2 * this.#leaseMs) this.#emptiedMs = undefined
  }

  async #step(): Promise<void> {
    this.#settle()
    const replica = this.#pick(this.#replicas)
    const dice = this.#random()
    if (dice < 0.22) this.#join(replica, false)
    else if (dice < 0.34) this.#join(replica, true)
    else if (dice < 0.5) {
      this.#steps.push(`a session leaves ${replica.name}`)
      replica.leave(Math.floor(this.#random() * 100))
    } else if (dice < 0.62) this.#path(replica, 'redis')
    else if (dice < 0.74) this.#path(replica, 'peers')
    else if (dice < 0.8) this.#cut(replica)
    else if (dice < 0.86) this.#pause()
    else if (dice < 0.9) await this.#flush()
    else if (dice < 0.94) await this.#restart()
    else if (dice < 0.97) await this.#crash(replica)
    else this.#stall(replica)
  }

  #path(replica: ModelReplica, which: 'redis' | 'peers'): void {
    const relay = replica.paths[which]
    relay.silent = !relay.silent
    this.#steps.push(`${replica.name}: the path to ${which} is ${relay.silent ? 'silent' : 'back'}`)
  }

  #cut(replica: ModelReplica): void {
    this.#steps.push(`${replica.name}: connections are cut`)
    replica.paths.redis.cut()
    replica.paths.peers.cut()
  }

  #pause(): void {
    this.#paused = !this.#paused
    this.#steps.push(`Redis ${this.#paused ? 'stands still' : 'goes on'}`)
    if (this.#paused) this.#redis.pause()
    else this.#redis.resume()
  }

  async #flush(): Promise<void> {
    if (this.#paused || !this.#mayEmpty()) return
    this.#steps.push('Redis is flushed')
    await this.#redis.command('FLUSHALL')
  }

  async #restart(): Promise<void> {
    if (!this.#mayEmpty()) return
    this.#steps.push('Redis is killed, and comes back empty')
    await this.#redis.kill()
    this.#paused = false
    await sleep(this.#random() * 3 * this.#leaseMs)
    await this.#redis.start()
  }

  /**
   * It dies, and another one starts. Not if Redis was also emptied while a replica is cut off: the new one may not
   * learn what those know, nor they what it knows (docs/scaling.md explains this).
   */
  async #crash(replica: ModelReplica): Promise<void> {
    if (this.#emptiedMs !== undefined && this.#cutOff) return
    this.#steps.push(`${replica.name} dies`)
    this.#replaced = true
    this.#replicas.splice(this.#replicas.indexOf(replica), 1)
    this.#dead.push(replica.crash())
    await this.#add()
  }

  /** It hears nothing for a while, then acts before it has heard anything. */
  #stall(replica: ModelReplica): void {
    this.#steps.push(`${replica.name} stands still`)
    const relays = Object.values(replica.paths)
    for (const relay of relays) relay.silent = true
    setTimeout(
      () => {
        replica.route()
        for (const relay of relays) relay.silent = false
      },
      this.#leaseMs * (0.5 + this.#random()),
    )
  }

  /** When all faults are over, all replicas agree, and callers of each are served. */
  async #heal(): Promise<void> {
    if (this.#paused) this.#pause()
    this.#steps.push('all is well')
    for (const { paths } of this.#replicas) for (const relay of Object.values(paths)) relay.silent = false
    this.#join(this.#replicas[0]!, true)
    const untilMs = performance.now() + AGREE_LEASES * this.#leaseMs
    while (!this.#agree()) {
      if (performance.now() > untilMs) {
        this.#steps.push(...this.#replicas.map(replica => `no agreement: ${replica.describe()}`))
        this.#agreed = false
        return
      }
      await sleep(20)
    }
  }

  #agree(): boolean {
    const said = this.#replicas.map(({ directory }) => {
      const standing = directory.find(RUNTIME)
      return typeof standing === 'object' ? `${standing.active} ${standing.epoch}` : 'nothing'
    })
    const served = this.#replicas.every(({ registry }) => registry.pick(RUNTIME) !== undefined)
    return served && new Set(said).size === 1
  }
}

function sleep(ms: number): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, ms))
}
