/** The server under attack, a well-behaved client beside it, and what an attacker needs to know about them. */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type Server } from 'node:https'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { type ClientOptions, connect, type Tunnel } from '../../client/index.ts'
import type { ServerStats } from '../../server/index.ts'
import { resetPeak, residentBytes } from '../support/processes.ts'
import { DOMAIN, makeSecrets, type Secrets } from '../support/secrets.ts'
import type { Measured, VictimReady, VictimState, WitnessOptions } from './messages.ts'

export class World {
  readonly secrets: Secrets
  readonly publicPort: number
  readonly controlPort: number
  readonly #victim: ChildProcess
  readonly #witness: ChildProcess
  readonly #keys: KeyServer

  private constructor(secrets: Secrets, keys: KeyServer, victim: ChildProcess, witness: ChildProcess, at: VictimReady) {
    this.secrets = secrets
    this.#keys = keys
    this.#victim = victim
    this.#witness = witness
    this.publicPort = at.publicPort
    this.controlPort = at.controlPort
  }

  static async start(): Promise<World> {
    const secrets = await makeSecrets()
    const keys = await KeyServer.start(secrets)
    const victim = child('victim-process.ts', '--expose-gc')
    const tls = secrets.server
    const start = {
      public: { port: 0, tls },
      control: { port: 0, tls },
      domains: [DOMAIN],
      auth: { jwks: { url: keys.url, ca: secrets.ca } },
    }
    const at = await ask<VictimReady>(victim, { start })
    const witness = child('witness-process.ts')
    const good: WitnessOptions = {
      ...at,
      ca: secrets.ca,
      token: await secrets.token('good'),
      authority: `good.${DOMAIN}:${at.publicPort}`,
    }
    await ask(witness, { start: good })
    return new World(secrets, keys, victim, witness, at)
  }

  /** Where callers reach a runtime. */
  place(runtime: string) {
    return { port: this.publicPort, authority: `${runtime}.${DOMAIN}:${this.publicPort}`, ca: this.secrets.ca }
  }

  /** One of our clients, in this process. */
  async connect(runtime: string, target: ClientOptions['target'], connections = 1): Promise<Tunnel> {
    return connect({
      url: `wss://127.0.0.1:${this.controlPort}`,
      token: () => this.secrets.token(runtime),
      ca: this.secrets.ca,
      proxy: '',
      target,
      connections,
      connectTimeoutMs: 100_000,
    })
  }

  /** How often the server has fetched its key set. */
  get keyFetches(): number {
    return this.#keys.fetches
  }

  state(): Promise<VictimState> {
    return ask<VictimState>(this.#victim, 'state')
  }

  /** Only the counts, without a garbage collection, which would pause the server for everyone. */
  stats(): Promise<ServerStats> {
    return ask<ServerStats>(this.#victim, 'stats')
  }

  /** Resolves with the reason once the server has ended a session of `runtime`. */
  sessionEnded(runtime: string): Promise<string> {
    return ask<string>(this.#victim, { sessionEnded: runtime })
  }

  get residentBytes(): { now: number; peak: number } {
    return residentBytes(this.#victim.pid ?? 0)
  }

  resetPeak(): void {
    resetPeak(this.#victim.pid ?? 0)
  }

  /** What the well-behaved caller sees while `work` runs. */
  async witness(work: () => Promise<void>): Promise<Measured> {
    this.#witness.send('measure')
    try {
      await work()
    } catch (error) {
      await ask(this.#witness, 'stop')
      throw error
    }
    return ask<Measured>(this.#witness, 'stop')
  }

  async stop(): Promise<void> {
    for (const one of [this.#witness, this.#victim]) {
      if (one.exitCode !== null) continue
      const gone = once(one, 'exit')
      one.disconnect()
      await gone
    }
    this.#keys.stop()
  }
}

/** The remote key set, which counts how often it is fetched. */
class KeyServer {
  fetches = 0
  readonly #server: Server

  private constructor(secrets: Secrets) {
    this.#server = createServer(secrets.server, (_request, response) => {
      this.fetches++
      response.setHeader('content-type', 'application/jwk-set+json')
      response.end(JSON.stringify(secrets.jwks))
    })
  }

  static async start(secrets: Secrets): Promise<KeyServer> {
    const keys = new KeyServer(secrets)
    keys.#server.listen(0, '127.0.0.1')
    await once(keys.#server, 'listening')
    return keys
  }

  get url(): string {
    return `https://127.0.0.1:${(this.#server.address() as AddressInfo).port}/jwks.json`
  }

  stop(): void {
    this.#server.close()
    this.#server.closeAllConnections()
  }
}

function child(file: string, ...execArgv: string[]): ChildProcess {
  return fork(join(import.meta.dirname, file), { execArgv })
}

/** Sends a message to a child, and waits for its answer. */
function ask<T>(child: ChildProcess, message: object | string): Promise<T> {
  return new Promise((resolve, reject) => {
    const onExit = (code: number | null) => reject(new Error(`the process ended with ${code}`))
    child.once('exit', onExit)
    child.once('message', answer => {
      child.off('exit', onExit)
      resolve(answer as T)
    })
    child.send(message)
  })
}
