/**
 * The tunnel server: where callers arrive and where tunnel clients dial in.
 *
 * @example
 * ```ts
 * import { createServer } from 'sallyport/server'
 *
 * await using server = await createServer({
 *   public: { port: 8080 },
 *   control: { port: 8443, tls: { cert: { file: 'server.pem' }, key: { file: 'server-key.pem' } } },
 *   domains: ['tunnels.example.com'],
 *   auth: { jwks: { file: 'jwks.json' } },
 * })
 * const response = await server.fetch('prod', new Request('https://prod.tunnels.example.com/readyz'))
 * ```
 */
import { resolveOptions, type ServerOptions } from './options.ts'
import type { Server } from './server.ts'
import { TunnelServer } from './tunnel-server.ts'

export { SallyportError } from '../protocol/base/errors.ts'
export type { ExchangeRecord } from '../protocol/exchange.ts'
export type { HttpLimitOptions } from '../protocol/http/limits.ts'
export type { Layer } from '../protocol/layer.ts'
export type { TracingOptions } from '../protocol/trace/sampling.ts'
export type { AccessOptions, CallerTokens, ForwardAuth } from './access/options.ts'
export type { AccessStats } from './access/rules.ts'
export type { Identity } from './auth/claims.ts'
export type { KeyOrigin } from './auth/key-source.ts'
export type { ListedRevocation, RevocationSources } from './auth/revocation-store.ts'
export type { Revocation } from './auth/revocations.ts'
export type { HandshakeRefusal } from './control/handshake.ts'
export type {
  Directory,
  DirectoryStats,
  Grant,
  Registration,
  RuntimeState,
} from './directory/directory.ts'
export type { RedisOptions } from './directory/redis-options.ts'
export type { CallOptions } from './embed/request.ts'
export type { ServerEvents } from './events.ts'
export type { HoldOptions, ServerLimits } from './limits.ts'
export type { Address } from './listeners.ts'
export type { AuthOptions, ControlOptions, PublicOptions, ServerOptions } from './options.ts'
export type { HostStats } from './own-hosts.ts'
export type { PeerStats } from './peer/peers.ts'
export type { PeerOptions } from './replica-options.ts'
export type { DrainOptions, InstanceTargets, Server } from './server.ts'
export type { ServerStats, SessionInfo } from './stats.ts'
export type { TlsFiles } from './tls.ts'

/**
 * Starts a tunnel server. Rejects with a `TypeError` for options that cannot hold (no key set, TLS missing), with an
 * `Error` for bad certificates or keys, and with the system's error when an address is taken.
 *
 * @example
 * ```ts
 * import { createServer } from 'sallyport/server'
 *
 * await using server = await createServer({
 *   public: { port: 0 },
 *   control: { port: 0, tls: { cert: { file: 'server.pem' }, key: { file: 'server-key.pem' } } },
 *   domains: ['tunnels.example.com'],
 *   auth: { jwks: { file: 'jwks.json' } },
 * })
 * server.on('ready', ({ runtime }) => console.log(`${runtime} is connected`))
 * ```
 */
export async function createServer(options: ServerOptions): Promise<Server> {
  return TunnelServer.start(resolveOptions(options))
}
