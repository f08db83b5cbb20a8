/** All roads. Each starts when it is first needed, and is kept until the end of the run. */

import type { Mode } from '../lib/mode.ts'
import { PATHS } from '../upstream/service.ts'
import { bareMux, barePipe } from './bare.ts'
import { direct, httpProxyHop, nginxHop } from './hops.ts'
import { PEERS, type PeerName } from './peers/index.ts'
import { waitForAnswer } from './ready.ts'
import { replicas } from './replicas.ts'
import { type Road, type RoadContext, type RoadMaker, withPath } from './road.ts'
import { ingress, tunnel } from './tunnel.ts'

/** By key. `tunnel-tls` is two roads of the same processes. */
export const OURS = {
  direct,
  nginx: nginxHop,
  'http-proxy': httpProxyHop,
  ingress,
  tunnel: tunnel({ key: 'tunnel', name: 'tunnel, router embedded' }),
  'tunnel-service': tunnel({ key: 'tunnel-service', name: 'tunnel, router service', router: 'service' }),
  'tunnel-tls': tunnel({ key: 'tunnel-tls', name: 'tunnel, TLS edge', edgeTls: true }),
  replicas,
  'bare-mux': bareMux,
  'bare-pipe': barePipe,
} as const satisfies Record<string, RoadMaker>

export type RoadKey = keyof typeof OURS | PeerName

/** Every road for requests that needs no peer. A quick run has no time for the tunnel's variants. */
const OF_OURS = {
  smoke: ['nginx', 'ingress', 'tunnel', 'tunnel-tls'],
  quick: ['direct', 'nginx', 'http-proxy', 'ingress', 'tunnel'],
  full: (Object.keys(OURS) as (keyof typeof OURS)[]).filter(key => !key.startsWith('bare-')),
} as const satisfies Record<Mode, readonly RoadKey[]>

/** One road of each kind. */
const SOME = {
  smoke: ['nginx', 'ingress', 'tunnel'],
  quick: ['direct', 'nginx', 'tunnel'],
  full: ['direct', 'nginx', 'http-proxy', 'ingress', 'tunnel', 'tunnel-service'],
} as const satisfies Record<Mode, readonly RoadKey[]>

/** If a peer needs longer for an answer, the answer counts as missing. */
const STILL_MS = 5_000

export class Roads {
  readonly #context: RoadContext
  readonly #peers: readonly PeerName[]
  readonly #mode: Mode
  readonly #started = new Map<string, Promise<Road[]>>()
  /** Peers that did not start or no longer answer, and why. */
  readonly failed = new Map<string, string>()

  constructor(context: RoadContext, peers: readonly PeerName[], mode: Mode) {
    this.#context = context
    this.#peers = peers
    this.#mode = mode
  }

  /** Every road for requests, and every peer that is installed. */
  async all(): Promise<Road[]> {
    return [...(await this.ours()), ...(await this.pick(...(this.#mode === 'smoke' ? [] : this.#peers)))]
  }

  /** Every road for requests that needs no peer. */
  async ours(): Promise<Road[]> {
    return this.pick(...OF_OURS[this.#mode])
  }

  /** One road of each kind, and the peers. */
  async some(): Promise<Road[]> {
    return this.pick(...SOME[this.#mode], ...this.#peers)
  }

  /** The unit of the ratios, the tunnel, and the peers. */
  async main(): Promise<Road[]> {
    return this.pick(...this.mainKeys)
  }

  get mainKeys(): readonly RoadKey[] {
    return ['nginx', 'tunnel', ...this.#peers]
  }

  async pick(...keys: readonly RoadKey[]): Promise<Road[]> {
    const roads: Road[] = []
    for (const key of keys) roads.push(...(await this.#start(key)))
    return roads
  }

  /** Roads from the same makers in another context. The caller stops them. */
  async make(keys: readonly RoadKey[], changes: Partial<RoadContext>): Promise<Road[]> {
    const roads: Road[] = []
    try {
      for (const key of keys) roads.push(...(await this.#make(key, { ...this.#context, ...changes })))
    } catch (error) {
      await stopRoads(roads)
      throw error
    }
    return roads
  }

  async stop(): Promise<void> {
    for (const roads of this.#started.values()) await stopRoads(await roads.catch(() => []))
  }

  async #start(key: RoadKey): Promise<Road[]> {
    const started = this.#started.get(key)
    if (started !== undefined) return key in PEERS ? this.#living(key, await started) : started
    const roads = this.#make(key, this.#context)
    this.#started.set(key, roads)
    return roads
  }

  /** A peer that breaks under the load is left out from then on, and the report mentions it. */
  async #living(key: RoadKey, roads: readonly Road[]): Promise<Road[]> {
    const living: Road[] = []
    for (const road of roads) {
      try {
        await waitForAnswer(withPath(road, PATHS.small), STILL_MS)
        living.push(road)
      } catch {
        this.failed.set(road.name, 'was left out from some scenario on: it answered no more')
        await road.stop()
      }
    }
    this.#started.set(key, Promise.resolve(living))
    return living
  }

  /** If a road that needs another program does not start, the report mentions it. If one of ours does not start, the run ends. */
  #make(key: RoadKey, context: RoadContext): Promise<Road[]> {
    if (key in OURS && key !== 'replicas') return OURS[key as keyof typeof OURS](context)
    const maker = key === 'replicas' ? replicas : PEERS[key as PeerName]
    return maker(context).catch(error => {
      this.failed.set(key, `did not start: ${error.message}`)
      return []
    })
  }
}

export async function stopRoads(roads: readonly Road[]): Promise<void> {
  for (const road of roads.toReversed()) await road.stop()
}
