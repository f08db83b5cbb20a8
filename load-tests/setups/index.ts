/** All setups. Each starts when it is first needed, and is kept until the end of the run. */

import type { Mode } from '../lib/mode.ts'
import { PATHS } from '../upstream/service.ts'
import { bareMux, barePipe } from './bare.ts'
import { direct, httpProxyHop, nginxHop } from './hops.ts'
import { PEERS, type PeerName } from './peers/index.ts'
import { waitForAnswer } from './ready.ts'
import { replicas } from './replicas.ts'
import { type Setup, type SetupContext, type SetupMaker, withPath } from './setup.ts'
import { ingress, tunnel } from './tunnel.ts'

/** By key. `tunnel-tls` is two setups of the same processes. */
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
} as const satisfies Record<string, SetupMaker>

export type SetupKey = keyof typeof OURS | PeerName

/** Every setup for requests that needs no peer. A quick run has no time for the tunnel's variants. */
const OWN_SETUPS = {
  smoke: ['nginx', 'ingress', 'tunnel', 'tunnel-tls'],
  quick: ['direct', 'nginx', 'http-proxy', 'ingress', 'tunnel'],
  full: (Object.keys(OURS) as (keyof typeof OURS)[]).filter(key => !key.startsWith('bare-')),
} as const satisfies Record<Mode, readonly SetupKey[]>

/** One setup of each kind. */
const ONE_OF_EACH = {
  smoke: ['nginx', 'ingress', 'tunnel'],
  quick: ['direct', 'nginx', 'tunnel'],
  full: ['direct', 'nginx', 'http-proxy', 'ingress', 'tunnel', 'tunnel-service'],
} as const satisfies Record<Mode, readonly SetupKey[]>

/** If a peer needs longer for an answer, the answer counts as missing. */
const PEER_ANSWER_MS = 5_000

export class Setups {
  readonly #context: SetupContext
  readonly #peers: readonly PeerName[]
  readonly #mode: Mode
  readonly #started = new Map<string, Promise<Setup[]>>()
  /** Peers that did not start or no longer answer, and why. */
  readonly failed = new Map<string, string>()

  constructor(context: SetupContext, peers: readonly PeerName[], mode: Mode) {
    this.#context = context
    this.#peers = peers
    this.#mode = mode
  }

  /** Every setup for requests, and every peer that is installed. */
  async all(): Promise<Setup[]> {
    return [...(await this.ours()), ...(await this.pick(...(this.#mode === 'smoke' ? [] : this.#peers)))]
  }

  /** Every setup for requests that needs no peer. */
  async ours(): Promise<Setup[]> {
    return this.pick(...OWN_SETUPS[this.#mode])
  }

  /** One setup of each kind, and the peers. */
  async some(): Promise<Setup[]> {
    return this.pick(...ONE_OF_EACH[this.#mode], ...this.#peers)
  }

  /** The unit of the ratios, the tunnel, and the peers. */
  async main(): Promise<Setup[]> {
    return this.pick(...this.mainKeys)
  }

  get mainKeys(): readonly SetupKey[] {
    return ['nginx', 'tunnel', ...this.#peers]
  }

  async pick(...keys: readonly SetupKey[]): Promise<Setup[]> {
    const setups: Setup[] = []
    for (const key of keys) setups.push(...(await this.#start(key)))
    return setups
  }

  /** Setups from the same makers in another context. The caller stops them. */
  async make(keys: readonly SetupKey[], changes: Partial<SetupContext>): Promise<Setup[]> {
    const setups: Setup[] = []
    try {
      for (const key of keys) setups.push(...(await this.#make(key, { ...this.#context, ...changes })))
    } catch (error) {
      await stopSetups(setups)
      throw error
    }
    return setups
  }

  async stop(): Promise<void> {
    for (const setups of this.#started.values()) await stopSetups(await setups.catch(() => []))
  }

  async #start(key: SetupKey): Promise<Setup[]> {
    const started = this.#started.get(key)
    if (started !== undefined) return key in PEERS ? this.#living(key, await started) : started
    const setups = this.#make(key, this.#context)
    this.#started.set(key, setups)
    return setups
  }

  /** A peer that breaks under the load is left out from then on, and the report mentions it. */
  async #living(key: SetupKey, setups: readonly Setup[]): Promise<Setup[]> {
    const living: Setup[] = []
    for (const setup of setups) {
      try {
        await waitForAnswer(withPath(setup, PATHS.small), PEER_ANSWER_MS)
        living.push(setup)
      } catch {
        this.failed.set(setup.name, 'stopped answering and was left out of the later scenarios')
        await setup.stop()
      }
    }
    this.#started.set(key, Promise.resolve(living))
    return living
  }

  /** If a setup that needs another program does not start, the report mentions it. If one of ours does not start, the run ends. */
  #make(key: SetupKey, context: SetupContext): Promise<Setup[]> {
    if (key in OURS && key !== 'replicas') return OURS[key as keyof typeof OURS](context)
    const maker = key === 'replicas' ? replicas : PEERS[key as PeerName]
    return maker(context).catch(error => {
      this.failed.set(key, `did not start: ${error.message}`)
      return []
    })
  }
}

export async function stopSetups(setups: readonly Setup[]): Promise<void> {
  for (const setup of setups.toReversed()) await setup.stop()
}
