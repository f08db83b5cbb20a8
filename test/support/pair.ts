import { type ClientOptions, connect, type Tunnel } from '../../client/index.ts'
import { createServer, type Server, type ServerOptions } from '../../server/index.ts'
import type { Place } from './caller.ts'
import { DOMAIN, makeSecrets, type Secrets } from './secrets.ts'

export interface PairOptions {
  readonly target: ClientOptions['target']
  /** Default `demo`. */
  readonly runtime?: string
  readonly server?: Partial<ServerOptions>
  readonly client?: Partial<ClientOptions>
  readonly secrets?: Secrets
}

/** A server and a client of it in this process, over real TLS and WSS. */
export interface Pair {
  readonly server: Server
  readonly tunnel: Tunnel
  readonly secrets: Secrets
  /** The runtime's place at the public edge. */
  readonly place: Place
  placeOf(runtime: string): Place
  /** One more client. */
  connect(runtime: string, target: ClientOptions['target'], options?: Partial<ClientOptions>): Promise<Tunnel>
  stop(): Promise<void>
}

export async function startPair(options: PairOptions): Promise<Pair> {
  const secrets = options.secrets ?? (await makeSecrets())
  const server = await createServer({
    public: { host: '127.0.0.1', port: 0, tls: secrets.server },
    control: { host: '127.0.0.1', port: 0, tls: secrets.server },
    domains: [DOMAIN],
    auth: { jwks: secrets.jwks },
    ...options.server,
  })
  const port = server.publicAddress?.port ?? 0
  const placeOf = (runtime: string) => ({ port, authority: `${runtime}.${DOMAIN}:${port}`, ca: secrets.ca })
  const tunnels: Tunnel[] = []
  const connectOne: Pair['connect'] = async (runtime, target, more) => {
    const tunnel = await connect({
      url: `wss://127.0.0.1:${server.controlAddress?.port}`,
      token: () => secrets.token(runtime),
      ca: secrets.ca,
      proxy: '',
      target,
      connectTimeoutMs: 100_000,
      ...more,
    })
    tunnels.push(tunnel)
    return tunnel
  }
  const runtime = options.runtime ?? 'demo'
  const tunnel = await connectOne(runtime, options.target, options.client)
  const stop = async () => {
    await Promise.all(tunnels.map(tunnel => tunnel.close({ graceMs: 0 })))
    await server.close({ graceMs: 0 })
  }
  return { server, tunnel, secrets, place: placeOf(runtime), placeOf, connect: connectOne, stop }
}
