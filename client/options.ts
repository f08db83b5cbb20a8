/** The options of {@link connect}. Options that can never work throw a TypeError at once instead of failing attempt by attempt. */
import { createPrivateKey, randomBytes, randomUUID } from 'node:crypto'
import type { Server as HttpServer } from 'node:http'
import type { LookupFunction } from 'node:net'
import { isLoopback, parseCidrs } from '../protocol/base/address.ts'
import { safeLogger } from '../protocol/base/guard.ts'
import { maskSecrets } from '../protocol/base/held-text.ts'
import { formatAddress, type HostPort, readDialled } from '../protocol/base/host-port.ts'
import { type LimitOptions, type LimitValues, resolveLimits } from '../protocol/base/limit.ts'
import type { Logger } from '../protocol/base/log.ts'
import { checkMembers, type Members } from '../protocol/base/members.ts'
import { checkTlsMin } from '../protocol/base/tls-profile.ts'
import { softwareName } from '../protocol/base/version.ts'
import type { ExchangeRecord, Handler } from '../protocol/exchange.ts'
import type { CorsPolicy } from '../protocol/http/problem.ts'
import type { Layer } from '../protocol/layer.ts'
import { InboxKeys } from '../protocol/sealing/sealed-webhook.ts'
import { resolveTracing, type Tracing } from '../protocol/trace/sampling.ts'
import type { Tracer } from '../protocol/trace/span.ts'
import {
  type CorsRule,
  FEATURE,
  type Hello,
  type InboxRule,
  MAX_CONTROL_BYTES,
  MINOR_VERSION,
  parseControl,
} from '../protocol/wire/control.ts'
import { DEFAULT_SESSION_LIMITS } from '../protocol/wire/yamux/limits.ts'
import type { CheckedTargets } from '../router/check.ts'
import { BACKOFF_LIMITS, type BackoffOptions } from './dial/backoff.ts'
import { parseProxy } from './dial/proxy.ts'
import type { ClientCertificate } from './dial/trust.ts'
import { CLIENT_SESSION_LIMITS, CONNECT_LIMITS, type SessionLimitOptions } from './limits.ts'
import type { FetchHandler } from './targets/function.ts'
import { checkToken, type TokenSource } from './token.ts'
import type { TunnelEvents } from './tunnel.ts'

/** A target with a handler of its own, such as the router that `createRouter` returns. */
export interface HandlerTarget {
  readonly handler: Handler
  /** Which web pages may read the error answers of the server itself. */
  cors?(): readonly { readonly path: string; readonly cors: CorsPolicy }[]
  /** Which webhooks the server may keep while they cannot be delivered. */
  inbox?(): readonly InboxRule[]
  /** Checks which of its services accept connections, each within `connectMs`, when the server asks. The server learns no address. */
  check?(connectMs: number): Promise<CheckedTargets>
}

/**
 * Where requests go: the URL of a service, a router, a `node:http` server that does not listen, or a function from a web
 * `Request` to a `Response`.
 */
export type Target = string | URL | HandlerTarget | HttpServer | FetchHandler

/** Options of {@link connect}: the server, the token, and where requests go. */
export interface ClientOptions extends LimitOptions<typeof CONNECT_LIMITS> {
  /** `wss://host[:port]` of the control endpoint; several are replicas. `ws://` is only for loopback. */
  readonly url: string | URL | readonly (string | URL)[]
  /** Address to dial instead of the host of `url`, like curl's `--connect-to`. Certificates and names are still checked against `url`. */
  readonly connectTo?: HostPort | undefined
  /** A JWT, or a function that returns one. It is called at the start, and whenever a third of the current token's lifetime is left. */
  readonly token: TokenSource
  /** Where requests go. */
  readonly target: Target
  /** Authorities (PEM) to trust besides those of the system. Needs a `wss` URL. */
  readonly ca?: string | Buffer | readonly (string | Buffer)[] | undefined
  /** Trusts only `ca`. Default false. */
  readonly caOnly?: boolean | undefined
  /** Client certificate, PEM. */
  readonly tls?: ClientCertificate | undefined
  /** Lowest TLS version. Use `TLSv1.2` only for middleboxes that do not pass 1.3. Default `TLSv1.3`. */
  readonly tlsMin?: 'TLSv1.2' | 'TLSv1.3' | undefined
  /**
   * X25519 private keys (PEM, PKCS #8) for webhooks in the inbox of the server. They are sealed for the first key and can be
   * opened with any. All clients of a runtime need the same keys. Without keys, the server stores no webhooks, unless it may
   * store them unencrypted.
   */
  readonly inboxKeys?: readonly string[] | undefined
  /** CIDRs that may call; the server enforces this. Default: all. Empty: none. */
  readonly allowCallers?: readonly string[] | undefined
  /** Which web pages may read error answers of Sallyport, by path, even while the runtime is offline. A router adds its own rules. */
  readonly cors?: readonly CorsRule[] | undefined
  /** Outbound proxy (CONNECT), `http://[user:password@]host:port`; `''` for none. Default: `HTTPS_PROXY` and `NO_PROXY`. */
  readonly proxy?: string | undefined
  /** Aborts `connect` while it waits for its first session. */
  readonly signal?: AbortSignal | undefined
  /**
   * Beginning of the name of this running client, such as the name of its machine: at most 47 characters. The rest is random, since a
   * request that a client has begun may be sent again to a client of the same name, which has to know that. Default: all of it is random.
   */
  readonly instance?: string | undefined
  /** Audience that the server expects. Used only to explain refusals. Default `sallyport`. */
  readonly audience?: string | undefined
  /**
   * Adds spans to the traces that the server follows. They go to `tracer`, or with `'server'` back to the server over the
   * session. Default: off; `traceparent` passes unchanged. See `docs/tracing.md`.
   */
  readonly tracing?: { readonly tracer: Tracer } | 'server' | undefined
  /** How long to wait between attempts. */
  readonly backoff?: BackoffOptions | undefined
  /** Limits of each session. */
  readonly limits?: SessionLimitOptions | undefined
  /** Resolves host names, like the option of the same name of `net.connect`. */
  readonly lookup?: LookupFunction | undefined
  /** Receives log lines. Default: none are written. */
  readonly logger?: Logger | undefined
  /**
   * Layers in front of the target, in the order in which a request passes them. A layer that throws fails its exchange; see
   * {@link Layer}. Default: none.
   */
  readonly layers?: readonly Layer[] | undefined
  /**
   * Keeps the last 500 exchanges for {@link Tunnel.inspector}, at most 32 MiB, with secrets redacted: only their heads, or
   * also the first 128 KiB of each body. Default `off`.
   */
  readonly inspect?: 'off' | 'heads' | 'bodies' | undefined
  /** Called once for each exchange, when it has ended. */
  readonly onExchange?: ((record: ExchangeRecord) => void) | undefined
  /** Event listeners that are registered from the start, so that they hear events while `connect` still waits. */
  readonly on?:
    | { readonly [Name in keyof TunnelEvents]?: ((event: TunnelEvents[Name]) => void) | undefined }
    | undefined
  /** Source of random numbers, for tests. Default `Math.random`. */
  readonly random?: (() => number) | undefined
}

/** The rules of a target that `hello` tells the server. */
export interface Announcement {
  readonly cors: CorsRule[]
  /** Absent if no webhook may go to the inbox. */
  readonly inbox?: InboxRule[]
}

/** The options, checked and completed with defaults. */
export interface ResolvedClientOptions extends LimitValues<typeof CONNECT_LIMITS> {
  readonly servers: readonly URL[]
  readonly limits: LimitValues<typeof CLIENT_SESSION_LIMITS>
  readonly audience: string
  readonly logger: Logger
  readonly random: () => number
  readonly cors: readonly CorsRule[]
  readonly tracing: Tracing | 'server' | undefined
  /** The fields that are the same for all sessions. */
  readonly hello: Omit<Hello, 'lastEpoch' | 'connection' | 'cors' | 'inbox'>
}

const WINDOW_BYTES = 65_536

const MEMBERS: Members<ClientOptions, typeof CONNECT_LIMITS> = {
  url: 'any',
  connectTo: 'object',
  token: 'any',
  target: 'any',
  ca: 'content',
  caOnly: 'boolean',
  tls: 'object',
  tlsMin: 'string',
  inboxKeys: 'strings',
  allowCallers: 'strings',
  cors: 'list',
  proxy: 'string',
  signal: 'object',
  instance: 'string',
  audience: 'string',
  tracing: 'any',
  backoff: 'object',
  limits: 'object',
  lookup: 'function',
  logger: 'object',
  layers: 'list',
  inspect: 'string',
  onExchange: 'function',
  on: 'object',
  random: 'function',
}

const EVENTS: Members<NonNullable<ClientOptions['on']>> = {
  connected: 'function',
  disconnected: 'function',
  draining: 'function',
  standing: 'function',
  reconnecting: 'function',
  refused: 'function',
}

/** Throws a TypeError for a member that is unknown, or of another type. */
export function checkOptionTypes(options: ClientOptions): void {
  checkMembers('', options, MEMBERS, CONNECT_LIMITS)
  checkMembers('on', options.on, EVENTS)
  checkTlsMin('tlsMin', options.tlsMin)
}

/** Throws TypeError. `announcement` holds the rules of the target. */
export function checkOptions(options: ClientOptions, announcement: Announcement): ResolvedClientOptions {
  checkOptionTypes(options)
  const { token, proxy } = options
  if (typeof token !== 'function' && (typeof token !== 'string' || token.trim() === '')) {
    throw new TypeError('token is missing: give a JWT, or a function that returns one')
  }
  if (typeof token === 'string') checkToken(token)
  const times = resolveLimits(CONNECT_LIMITS, options)
  resolveLimits(BACKOFF_LIMITS, options.backoff, 'backoff')
  const limits = resolveLimits(CLIENT_SESSION_LIMITS, options.limits, 'limits')
  if (proxy !== undefined && proxy !== '') parseProxy(proxy)
  if (options.caOnly === true && options.ca === undefined)
    throw new TypeError('caOnly needs ca: nothing would be trusted')
  if (options.allowCallers !== undefined) parseCidrs(options.allowCallers)
  if (options.inspect !== undefined && !['off', 'heads', 'bodies'].includes(options.inspect)) {
    throw new TypeError("inspect must be 'off', 'heads' or 'bodies'")
  }
  const cors = [...(options.cors ?? [])].sort((a, b) => b.path.length - a.path.length)
  checkHello(options, announcement)
  const servers = checkServers(options.url)
  checkConnectTo(options.connectTo, servers)
  if (proxy && servers.some(({ protocol }) => protocol === 'ws:'))
    throw new TypeError('ws:// would send the token to the proxy unencrypted: write wss://, or leave out proxy')
  return {
    servers,
    ...times,
    limits,
    audience: options.audience ?? 'sallyport',
    tracing: options.tracing === 'server' ? 'server' : resolveTracing(options.tracing),
    logger: safeLogger(options.logger),
    random: options.random ?? Math.random,
    cors,
    hello: makeHello(options),
  }
}

function checkServers(url: ClientOptions['url']): URL[] {
  const list = [url].flat() as (string | URL)[]
  if (list.length === 0) throw new TypeError('url is missing: give wss://host:port of the control endpoint')
  return list.map(entry => parseServerUrl(String(entry)))
}

/** Throws TypeError. */
function checkConnectTo(connectTo: HostPort | undefined, servers: readonly URL[]): void {
  if (connectTo === undefined) return
  const address = formatAddress(connectTo)
  if (readDialled(address) === undefined)
    throw new TypeError(`connectTo "${maskSecrets(address)}" is not a host and port that can be dialled`)
  if (!isLoopback(connectTo.host) && servers.some(({ protocol }) => protocol === 'ws:')) {
    throw new TypeError(`connectTo "${address}" is another machine, and ws:// would send it the token unencrypted`)
  }
}

/** Reads the address of a control endpoint. Throws TypeError. */
function parseServerUrl(given: string): URL {
  const url = URL.parse(given)
  const text = maskSecrets(given)
  if (url === null) throw new TypeError(`"${text}" is not a URL: write wss://host:port`)
  if (url.protocol === 'https:' || url.protocol === 'http:') {
    throw new TypeError(`"${text}" is not a WebSocket address: write ${text.replace(/^https?/i, 'wss')}`)
  }
  if (url.protocol !== 'wss:' && url.protocol !== 'ws:') {
    throw new TypeError(`"${text}" is not a WebSocket address: write wss://host:port`)
  }
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '') {
    throw new TypeError(
      'the address of a server has no user, password, query or fragment: the token has its own option',
    )
  }
  if (url.protocol === 'ws:' && !isLoopback(url.hostname)) {
    throw new TypeError(`"${text}" would send the token unencrypted: write ${text.replace(/^ws/i, 'wss')}`)
  }
  return url
}

type HelloOptions = Pick<ClientOptions, 'instance' | 'limits' | 'allowCallers' | 'inboxKeys' | 'tracing'>

function makeHello(options: HelloOptions): ResolvedClientOptions['hello'] {
  const keys = readInboxKeys(options.inboxKeys)
  return {
    type: 'hello',
    minor: MINOR_VERSION,
    software: softwareName(),
    instance: options.instance === undefined ? randomUUID() : `${options.instance}.${randomBytes(8).toString('hex')}`,
    startedMs: Date.now(),
    limits: {
      windowBytes: options.limits?.initialWindowBytes ?? WINDOW_BYTES,
      streams: options.limits?.maxStreams ?? DEFAULT_SESSION_LIMITS.maxStreams,
    },
    features: featuresOf(options),
    ...(options.allowCallers === undefined ? {} : { allowCallers: [...options.allowCallers] }),
    ...(keys === undefined ? {} : { inboxKey: keys.announced }),
  }
}

function featuresOf({ tracing, inboxKeys }: HelloOptions): string[] {
  const features: string[] = [FEATURE.checks]
  if (inboxKeys !== undefined) features.push(FEATURE.sharedSeals)
  if (tracing === 'server') features.push(FEATURE.spans)
  return features
}

/** Throws TypeError for anything but X25519 keys. */
export function readInboxKeys(pems: readonly string[] | undefined): InboxKeys | undefined {
  const [first, ...others] = (pems ?? []).map(pem => {
    const key = createPrivateKey(pem)
    if (key.asymmetricKeyType !== 'x25519') throw new TypeError('inboxKeys: only X25519 keys are supported')
    return key
  })
  return first === undefined ? undefined : new InboxKeys([first, ...others])
}

/**
 * Throws TypeError if the server could not read a `hello` with these options and this announcement, according to the codec
 * itself. Call it before a target adopts new rules.
 */
export function checkHello(
  options: HelloOptions,
  announcement: { readonly cors: readonly object[]; readonly inbox?: readonly object[] },
): void {
  const hello = makeHello(options)
  const text = JSON.stringify({
    ...hello,
    ...announcement,
    lastEpoch: Number.MAX_SAFE_INTEGER,
    connection: Number(CONNECT_LIMITS.connections.most),
  })
  if (Buffer.byteLength(text) > MAX_CONTROL_BYTES)
    throw new TypeError('cors, inbox and allowCallers together are too long')
  try {
    parseControl(text)
  } catch (cause) {
    throw new TypeError(`an option is not valid: ${(cause as Error).message}`, { cause })
  }
}
