/** The options of {@link createServer}: types, defaults, and checks that throw a TypeError before anything listens. */
import { isLoopback } from '../protocol/base/address.ts'
import { checkAuthoritiesOf } from '../protocol/base/certificates.ts'
import { checkDuration } from '../protocol/base/durations.ts'
import { hook, safeLogger } from '../protocol/base/guard.ts'
import { checkSocket, demand, type LimitOptions, type LimitValues, resolveLimits } from '../protocol/base/limit.ts'
import type { Logger } from '../protocol/base/log.ts'
import { checkMembers, type Members } from '../protocol/base/members.ts'
import { checkTlsMin } from '../protocol/base/tls-profile.ts'
import { DEFAULT_ALGORITHMS } from '../protocol/base/token-algorithms.ts'
import type { ExchangeRecord } from '../protocol/exchange.ts'
import { HTTP_LIMITS, type HttpLimitOptions } from '../protocol/http/limits.ts'
import type { Layer } from '../protocol/layer.ts'
import { resolveTracing, type Tracing, type TracingOptions } from '../protocol/trace/sampling.ts'
import { isId, MAX_DURATION_MS } from '../protocol/wire/control.ts'
import { type AccessOptions, checkAccess } from './access/options.ts'
import { type Identity, MAX_TOLERANCE_S } from './auth/claims.ts'
import type { KeyOrigin } from './auth/key-source.ts'
import type { RevocationSources } from './auth/revocation-store.ts'
import type { Directory } from './directory/directory.ts'
import type { Recorder } from './directory/recorder.ts'
import type { RedisOptions } from './directory/redis-options.ts'
import { checkInboxOptions, type InboxOptions, type ResolvedInbox } from './inbox/options.ts'
import { keptClock } from './kept-clock.ts'
import { checkKeyOrigin } from './key-origin.ts'
import {
  DRAIN_TIMES,
  HOLD_LIMITS,
  type HoldLimits,
  type HoldOptions,
  INBOX,
  type ResolvedLimits,
  SERVER_LIMITS,
  type ServerLimits,
} from './limits.ts'
import { checkPublicUrl } from './public-url.ts'
import { checkReplicas, type PeerOptions } from './replica-options.ts'
import { type Authorities, checkGiven, checkTlsFiles, refuseAuthorities, type TlsFiles } from './tls.ts'

/** The listener for callers. */
export interface PublicOptions {
  /** Default `127.0.0.1`. */
  readonly host?: string | undefined
  /** 0 takes a free port. */
  readonly port: number
  /**
   * A listening socket that a supervisor passed to this process, instead of host and port. The supervisor keeps it while
   * the server restarts, so that no connection is refused.
   */
  readonly fd?: number | undefined
  /** Without it: plain HTTP/1.1, and HTTP/2 with prior knowledge. Addresses other than loopback then need `plaintext`. */
  readonly tls?: TlsFiles | undefined
  /**
   * A folder of certificates for other names (SNI), such as hosts of runtimes' own: pairs `NAME.crt` and `NAME.key`, and `tls.crt`
   * and `tls.key` in subfolders. It is watched. All other names get `tls`.
   */
  readonly tlsFolder?: string | undefined
  /** Allows plain HTTP on addresses other than loopback, behind a proxy. Default false. */
  readonly plaintext?: boolean | undefined
  /**
   * How callers reach runtimes, such as `https://*.tunnels.example.com`. Clients are told this as their own address, with their name
   * in place of `*`. Default: the first domain with the port of this listener, or without a port if `plaintext` is set.
   */
  readonly url?: string | undefined
  /** Limits on heads, stalled bodies and HTTP/2. The defaults are in `docs/security.md`. */
  readonly limits?: HttpLimitOptions | undefined
}

/** The listener for tunnel clients. It needs TLS, unless `plaintext` says that a proxy in front terminates it. */
export interface ControlOptions {
  /** Default `127.0.0.1`. Ignored with `hostName` and no port. */
  readonly host?: string | undefined
  /**
   * 0 takes a free port. May be absent with `hostName`, in which case the public listener carries the control endpoint. May also be
   * absent without `public`, in which case `server.attach` carries it, with the TLS of the embedder's server.
   */
  readonly port?: number | undefined
  /** A listening socket instead of host and port; see {@link PublicOptions.fd}. */
  readonly fd?: number | undefined
  /** Certificate and key of the control endpoint. */
  readonly tls?: TlsFiles | undefined
  /**
   * Authority of client certificates (PEM, or a file, which is watched). If set, every client must present one. With `server.attach`,
   * the embedder's server must request the certificate and verify it against the same authority (`requestCert`, `ca`).
   */
  readonly clientCa?: Authorities | undefined
  /** No TLS, because a proxy in front terminates it. */
  readonly plaintext?: boolean | undefined
  /** Name (SNI) at which clients reach the control endpoint on the public listener. */
  readonly hostName?: string | undefined
  /** Default `TLSv1.3`. */
  readonly tlsMin?: 'TLSv1.2' | 'TLSv1.3' | undefined
  /** Proxies (CIDRs) that must send a PROXY protocol v2 header. Default none. */
  readonly proxyProtocol?: readonly string[] | undefined
}

/** Which tokens are accepted from clients. Only `jwks` is required. */
export interface AuthOptions {
  /** The keys themselves, a file (watched), or an https URL. Required. */
  readonly jwks: KeyOrigin
  /** The exact `iss` claim, if given. */
  readonly issuer?: string | undefined
  /** The exact `aud` claim. Default `sallyport`. */
  readonly audience?: string | undefined
  /** Claim that names the runtime. Default `sub`. */
  readonly runtimeClaim?: string | undefined
  /** Accepted signature algorithms. Default: EdDSA, ES*, RS*, PS*. HS* and `none` are never accepted. */
  readonly algorithms?: readonly string[] | undefined
  /** Tolerated clock difference, at most 60. Default 30. */
  readonly clockToleranceS?: number | undefined
  /** Where revocations are loaded from and kept. */
  readonly revocations?: RevocationSources | undefined
  /** Called at each handshake, at each `reauth`, and every 5 s for live sessions. An error, or no answer within 5 s, refuses
   * new sessions and leaves live ones alone. */
  readonly isRevoked?: ((identity: Identity) => boolean | Promise<boolean>) | undefined
}

/** Options of {@link createServer}: the listeners for callers and clients, the keys that sign tokens, and all limits. */
export interface ServerOptions extends LimitOptions<typeof DRAIN_TIMES> {
  /** The listener for callers. Without it, mount the server with `server.attach(httpServer)`. */
  readonly public?: PublicOptions | undefined
  /** The listener for tunnel clients, or `off`. */
  readonly control: ControlOptions | 'off'
  /** Runtimes are reached as `<runtime>.<domain>`. */
  readonly domains: readonly string[]
  /**
   * Runtimes may also have hosts of their own, which their tokens claim (`sallyport_hosts`). The first runtime to claim a host keeps
   * it; others that claim it are told so. Default false.
   */
  readonly ownHosts?: boolean | undefined
  /** Which tokens let a client in. */
  readonly auth: AuthOptions
  /** Who may call: one set of rules, or several for different runtimes. Default: everybody. */
  readonly access?: AccessOptions | readonly AccessOptions[] | undefined
  /** Proxies (CIDRs) whose forwarded headers are trusted. Default none. */
  readonly trustedProxies?: readonly string[] | undefined
  /** Origins that may read our own errors if the runtime has published no policy. */
  readonly cors?: { readonly origins: readonly string[] } | undefined
  /** Path for the health checks of a load balancer, on any Host: 200, or 503 while the server is not `ready`. Default off. */
  readonly healthPath?: string | undefined
  /** Limits of the server. Each has a default. */
  readonly limits?: ServerLimits | undefined
  /** How requests wait for a runtime that is known but has no session at the moment. */
  readonly hold?: HoldOptions | undefined
  /** Name of this replica: 1 to 64 of `A-Z a-z 0-9 . _ -`. Default: a random name. */
  readonly replica?: string | undefined
  /**
   * Lets another process of the same user listen on the same public and control addresses (SO_REUSEPORT), so that the next server can
   * start before this one stops. Default false.
   */
  readonly reusePort?: boolean | undefined
  /** Aborts the start: `createServer` then rejects with its reason and cleans up. It has no effect once the server has started. */
  readonly signal?: AbortSignal | undefined
  /** Where log lines go. Default: nowhere. */
  readonly logger?: Logger | undefined
  /**
   * Layers between the edge and the sessions, in the order in which a request passes them: after host, quota and record, before
   * anything that waits or retries. A layer that throws ends only its exchange; see {@link Layer}. Default none.
   */
  readonly layers?: readonly Layer[] | undefined
  /** Called once for each exchange, when it is over. */
  readonly onExchange?: ((record: ExchangeRecord) => void) | undefined
  /**
   * Decides which tokens and revocations are in force: milliseconds since 1970. What it returns at the start must be between the years
   * 1973 and 5138, so that one in seconds or microseconds is refused. While it returns no number later on, all tokens are refused. Default `Date.now`.
   */
  readonly clock?: (() => number) | undefined
  /** Knows which server serves which runtime. Default: in memory, for a single server. With Redis, several servers act as one. */
  readonly directory?: Directory | RedisOptions | undefined
  /** How this replica and the others reach each other. Needs a `directory` in Redis. */
  readonly peer?: PeerOptions | undefined
  /** Keeps webhooks that cannot be delivered at once, for routes that ask for it. Default: none. */
  readonly inbox?: InboxOptions | undefined
  /**
   * Records traces of requests: those that a trusted proxy has begun, and a share of the others. Default: off, and `traceparent`
   * passes through unchanged. See `docs/tracing.md`.
   */
  readonly tracing?: TracingOptions | undefined
  /** @internal Records what this replica does with epochs, for tests. */
  readonly record?: Recorder | undefined
}

/** Options with their defaults filled in. */
export interface ResolvedServerOptions extends LimitValues<typeof DRAIN_TIMES> {
  readonly public: PublicOptions | undefined
  readonly control: ControlOptions | undefined
  readonly domains: readonly string[]
  readonly ownHosts: boolean
  /** Domains that no token may claim, including all names under them. */
  readonly reserved: readonly string[]
  readonly auth: AuthOptions & {
    readonly audience: string
    readonly runtimeClaim: string
    readonly algorithms: readonly string[]
    readonly clockToleranceS: number
  }
  readonly access: readonly AccessOptions[]
  readonly trustedProxies: readonly string[]
  readonly cors: { readonly origins: readonly string[] } | undefined
  readonly healthPath: string | undefined
  readonly limits: ResolvedLimits
  readonly hold: HoldLimits
  readonly replica: string
  readonly reusePort: boolean
  readonly signal: AbortSignal | undefined
  readonly logger: Logger
  readonly layers: readonly Layer[]
  readonly onExchange: ((record: ExchangeRecord) => void) | undefined
  /** NaN while there is no time. */
  readonly clock: () => number
  /** Always has a time. It must not decide on tokens. */
  readonly keptClock: () => number
  readonly directory: Directory | RedisOptions | undefined
  readonly peer: PeerOptions | undefined
  readonly inbox: ResolvedInbox | undefined
  readonly tracing: Tracing | undefined
  readonly record: Recorder | undefined
}

const MEMBERS: Members<ServerOptions, typeof DRAIN_TIMES> = {
  public: 'object',
  control: 'any',
  domains: 'strings',
  ownHosts: 'boolean',
  auth: 'object',
  access: 'any',
  trustedProxies: 'strings',
  cors: 'object',
  healthPath: 'string',
  limits: 'object',
  hold: 'object',
  replica: 'string',
  reusePort: 'boolean',
  signal: 'object',
  logger: 'object',
  layers: 'list',
  onExchange: 'function',
  clock: 'function',
  directory: 'object',
  peer: 'object',
  inbox: 'object',
  tracing: 'object',
  record: 'function',
}
const AUTH: Members<AuthOptions> = {
  jwks: 'object',
  issuer: 'string',
  audience: 'string',
  runtimeClaim: 'string',
  algorithms: 'strings',
  clockToleranceS: 'number',
  revocations: 'object',
  isRevoked: 'function',
}
const REVOCATIONS: Members<RevocationSources> = { file: 'string', url: 'string', ca: 'content' }
const PUBLIC: Members<PublicOptions> = {
  host: 'string',
  port: 'number',
  fd: 'number',
  tls: 'object',
  tlsFolder: 'string',
  plaintext: 'boolean',
  url: 'string',
  limits: 'object',
}
const CONTROL: Members<ControlOptions> = {
  host: 'string',
  port: 'number',
  fd: 'number',
  tls: 'object',
  clientCa: 'content',
  plaintext: 'boolean',
  hostName: 'string',
  tlsMin: 'string',
  proxyProtocol: 'strings',
}

const INBOX_MEMBERS: Members<InboxOptions, typeof INBOX> = {
  url: 'string',
  password: 'object',
  ca: 'content',
  mac: 'object',
  plaintext: 'boolean',
}

const DOMAIN = /^(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*$/i

/** Fills in defaults. Throws a TypeError that names the invalid option. */
export function resolveOptions(options: ServerOptions): ResolvedServerOptions {
  checkMembers('', options, MEMBERS, DRAIN_TIMES)
  checkMembers('cors', options.cors, { origins: 'strings' })
  checkMembers('inbox', options.inbox, INBOX_MEMBERS, INBOX)
  checkMembers('inbox.password', options.inbox?.password, { file: 'string' })
  checkMembers('inbox.mac', options.inbox?.mac, { file: 'string', optional: 'boolean' })
  checkAuth(options.auth)
  checkPublic(options.public)
  const control = options.control === 'off' ? undefined : options.control
  checkControl(control, options.public)
  checkReplicas(options.directory, options.peer)
  // Not in the store's own check, since the command's help loads that, and needs no certificates.
  if (options.directory && 'ca' in options.directory) {
    const { url, ca } = options.directory
    checkAuthoritiesOf(/^rediss[:+]/.test(url), 'directory.ca', ca, 'rediss:// or rediss+sentinel://')
  }
  const access = [options.access ?? []].flat()
  demand(options.access === undefined || access.length > 0, 'access is empty: leave it out if everybody may call')
  checkAccess(access, options.auth.audience ?? 'sallyport', options.public?.tls !== undefined)
  const isReachable = options.domains?.length > 0 || (options.domains !== undefined && options.ownHosts === true)
  demand(isReachable, 'domains is empty: runtimes are reached as <runtime>.<domain>')
  for (const domain of options.domains) demand(DOMAIN.test(domain), `domains: ${domain} is not a domain name`)
  demand(options.healthPath?.startsWith('/') ?? true, 'healthPath must begin with /')
  const domains = options.domains.map(domain => domain.toLowerCase())
  const { replica } = options
  demand(replica === undefined || isId(replica), 'replica must be 1 to 64 letters, digits, ".", "_" or "-"')
  const clock = checkClock(options.clock)
  return {
    public: options.public,
    control,
    domains,
    ownHosts: options.ownHosts ?? false,
    reserved: control?.hostName === undefined ? domains : [...domains, control.hostName.toLowerCase()],
    auth: {
      ...options.auth,
      audience: options.auth.audience ?? 'sallyport',
      runtimeClaim: options.auth.runtimeClaim ?? 'sub',
      algorithms: options.auth.algorithms ?? DEFAULT_ALGORITHMS,
      clockToleranceS: options.auth.clockToleranceS ?? 30,
    },
    access,
    trustedProxies: options.trustedProxies ?? [],
    cors: options.cors,
    healthPath: options.healthPath,
    limits: resolveLimits(SERVER_LIMITS, options.limits, 'limits'),
    hold: resolveLimits(HOLD_LIMITS, options.hold, 'hold'),
    replica: replica ?? `replica-${Math.random().toString(36).slice(2, 10)}`,
    ...resolveLimits(DRAIN_TIMES, options),
    reusePort: options.reusePort ?? false,
    signal: options.signal,
    logger: safeLogger(options.logger),
    layers: options.layers ?? [],
    onExchange: hook('onExchange', options.onExchange, safeLogger(options.logger)),
    clock,
    keptClock: keptClock(clock),
    directory: options.directory,
    peer: options.peer,
    inbox: checkInboxOptions(options.inbox),
    tracing: resolveTracing(options.tracing),
    record: hook('record', options.record, safeLogger(options.logger)),
  }
}

/** In ms, as times that a clock in seconds, microseconds, or since the start of the process does not show. */
const [EARLIEST_MS, LATEST_MS] = [1e11, 1e14]

function checkClock(clock: () => number = Date.now): () => number {
  const now: unknown = clock()
  const isTime = typeof now === 'number' && now >= EARLIEST_MS && now <= LATEST_MS
  demand(isTime, `clock must return the time in ms since 1970, not ${String(now)}`)
  // `null` would count as 0.
  return () => {
    const now = clock()
    return Number.isFinite(now) ? now : Number.NaN
  }
}

/** Checks a time that clients are told, or wait for. It may be a day at most. Throws a TypeError. */
export function checkGrace(name: string, ms: number): number {
  return checkDuration(name, ms, 0, MAX_DURATION_MS)
}

function checkAuth(auth: AuthOptions | undefined): void {
  checkMembers('auth', auth, AUTH)
  demand(auth?.jwks !== undefined, 'auth.jwks is required: without keys, no token can be verified')
  checkMembers('auth.revocations', auth.revocations, REVOCATIONS)
  checkKeyOrigin('auth.jwks', auth.jwks)
  const tolerance = auth.clockToleranceS ?? 30
  demand(tolerance >= 0 && tolerance <= MAX_TOLERANCE_S, `auth.clockToleranceS must be from 0 to ${MAX_TOLERANCE_S}`)
  demand(auth.audience !== '', 'auth.audience must not be empty')
  for (const algorithm of auth.algorithms ?? []) {
    demand(
      DEFAULT_ALGORITHMS.includes(algorithm),
      `auth.algorithms: ${algorithm} is not one of ${DEFAULT_ALGORITHMS.join(', ')}`,
    )
  }
  const { url, ca } = auth.revocations ?? {}
  demand(url === undefined || /^https:/i.test(url), 'auth.revocations.url must be an https URL')
  checkAuthoritiesOf(url !== undefined, 'auth.revocations.ca', ca, 'auth.revocations.url')
  demand(auth.algorithms?.length !== 0, 'auth.algorithms must not be empty')
}

function checkPublic(options: PublicOptions | undefined): void {
  if (options === undefined) return
  checkMembers('public', options, PUBLIC)
  checkTlsFiles('public.tls', options.tls)
  refuseAuthorities('public.tls', options.tls)
  const safe = options.tls !== undefined || options.plaintext === true || isLoopback(options.host ?? '127.0.0.1')
  checkSocket(options, 'public.')
  checkPublicUrl(options.url)
  resolveLimits(HTTP_LIMITS, options.limits, 'public.limits')
  demand(options.tlsFolder === undefined || options.tls !== undefined, 'public.tlsFolder needs public.tls')
  demand(safe, 'public: without tls, it may listen only on loopback, unless plaintext is set')
}

function checkControl(control: ControlOptions | undefined, edge: PublicOptions | undefined): void {
  if (control === undefined) return
  checkMembers('control', control, CONTROL)
  checkTlsFiles('control.tls', control.tls)
  checkTlsMin('control.tlsMin', control.tlsMin)
  checkGiven('control.clientCa', control.clientCa)
  demand(
    control.tls?.ca === undefined || control.clientCa === undefined,
    'control.clientCa and tls.ca mean the same: give one',
  )
  checkSocket(control, 'control.')
  if (control.plaintext === true) {
    demand(
      control.tls === undefined && control.clientCa === undefined,
      'control: plaintext and tls cannot be used together',
    )
    demand(control.hostName === undefined, 'control.hostName needs TLS: the name is read from the ClientHello')
  } else if (control.port !== undefined || control.hostName !== undefined) {
    demand(control.tls !== undefined, 'control.tls is required (or plaintext, behind a proxy that terminates TLS)')
  }
  if (control.hostName !== undefined) {
    demand(DOMAIN.test(control.hostName), `control.hostName: ${control.hostName} is not a host name`)
    demand(edge?.tls !== undefined, 'control.hostName needs public.tls: both share one TLS address')
  } else {
    demand(control.port !== undefined || edge === undefined, 'control.port is required')
  }
  const proxied = control.proxyProtocol !== undefined && control.proxyProtocol.length > 0
  demand(!proxied || control.port !== undefined, 'control.proxyProtocol needs an address of its own (control.port)')
}
