/** Checks the options of {@link connect} at once: whatever can never work is a TypeError, not an attempt. */
import { createPrivateKey, randomUUID } from 'node:crypto'
import type { Server as HttpServer } from 'node:http'
import type { LookupFunction } from 'node:net'
import { isLoopback } from '../protocol/base/address.ts'
import { safeLogger } from '../protocol/base/guard.ts'
import { formatAddress, type HostPort, readDialled } from '../protocol/base/host-port.ts'
import { type LimitOptions, type LimitValues, resolveLimits } from '../protocol/base/limit.ts'
import type { Logger } from '../protocol/base/log.ts'
import { softwareName } from '../protocol/base/version.ts'
import type { ExchangeRecord, Handler } from '../protocol/exchange.ts'
import { parseCidrs } from '../protocol/http/forwarded.ts'
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

/** What `createRouter` returns is one. */
export interface HandlerTarget {
  readonly handler: Handler
  /** Which web pages may read the error answers that the server itself makes. */
  cors?(): readonly { readonly path: string; readonly cors: CorsPolicy }[]
  /** Which webhooks the server may keep while they cannot be delivered. */
  inbox?(): readonly InboxRule[]
  /** Which of its services take connections, each within `connectMs`, for a server that asks. The server gets no address. */
  check?(connectMs: number): Promise<CheckedTargets>
}

/**
 * Where the requests go: the URL of a service, a router, a `node:http` server that listens nowhere, or a function of a
 * web Request.
 */
export type Target = string | URL | HandlerTarget | HttpServer | FetchHandler

/** What {@link connect} takes: which server, which token, and where requests go. */
export interface ClientOptions extends LimitOptions<typeof CONNECT_LIMITS> {
  /** `wss://host[:port]` of the control endpoint; several are replicas. `ws://` is only for loopback. */
  readonly url: string | URL | readonly (string | URL)[]
  /** Whom to dial instead of the host of `url`, as curl's `--connect-to`: certificates and names are still those of `url`. */
  readonly connectTo?: HostPort | undefined
  /** A JWT, or a function that returns one. It is called at the start, and whenever a third of the last token's life is left. */
  readonly token: TokenSource
  /** Where requests go. */
  readonly target: Target
  /** Authorities (PEM) to trust besides those of the system. */
  readonly ca?: string | Buffer | readonly (string | Buffer)[] | undefined
  /** Trust only `ca`. Default false. */
  readonly caOnly?: boolean | undefined
  /** Client certificate, PEM. */
  readonly tls?: ClientCertificate | undefined
  /** `TLSv1.2` only for middleboxes that cannot pass 1.3. */
  readonly tlsMin?: 'TLSv1.2' | 'TLSv1.3' | undefined
  /**
   * X25519 private keys (PEM, PKCS #8) for what a server keeps of our webhooks: it is sealed for the first, and opened with any.
   * All clients of a runtime need the same. Absent: a server keeps none, unless it may keep them in clear.
   */
  readonly inboxKeys?: readonly string[] | undefined
  /** CIDRs that may call; the server enforces it. Absent: all, empty: none. */
  readonly allowCallers?: readonly string[] | undefined
  /** Which web pages may read our error answers, by path, even while the runtime is offline. A router brings its own rules. */
  readonly cors?: readonly CorsRule[] | undefined
  /** Outbound proxy (CONNECT), `http://[user:password@]host:port`; '' for none. Default: HTTPS_PROXY and NO_PROXY. */
  readonly proxy?: string | undefined
  /** Aborts `connect` while it waits for its first session. */
  readonly signal?: AbortSignal | undefined
  /** Name of this running client, the same in all its sessions. Default: random. */
  readonly instance?: string | undefined
  /** Audience that the server expects. Used only to explain refusals. Default `sallyport`. */
  readonly audience?: string | undefined
  /**
   * Follows the traces that the server follows, if it does: with spans of its own, or with `server`, which returns them to the server
   * over the session. Default off: `traceparent` passes as it came. See `docs/tracing.md`.
   */
  readonly tracing?: { readonly tracer: Tracer } | 'server' | undefined
  /** How long to wait between attempts. */
  readonly backoff?: BackoffOptions | undefined
  /** Limits of each session. */
  readonly limits?: SessionLimitOptions | undefined
  /** Resolves host names, like the option of `net.connect`. */
  readonly lookup?: LookupFunction | undefined
  /** Where log lines go. Default: nowhere. */
  readonly logger?: Logger | undefined
  /**
   * What stands in front of the target, in the order in which a request meets it. A layer that throws costs its exchange; see
   * {@link Layer}. Default none.
   */
  readonly layers?: readonly Layer[] | undefined
  /**
   * Keeps the last 500 exchanges for {@link Tunnel.inspector}, at most 32 MiB, with secrets redacted: their heads alone, or the first
   * 128 KiB of their bodies too. Default `off`.
   */
  readonly inspect?: 'off' | 'heads' | 'bodies' | undefined
  /** Called once for each exchange, when it is over. */
  readonly onExchange?: ((record: ExchangeRecord) => void) | undefined
  /** Listeners from the first moment on, while `connect` still waits. */
  readonly on?:
    | { readonly [Name in keyof TunnelEvents]?: ((event: TunnelEvents[Name]) => void) | undefined }
    | undefined
  /** Default Math.random; for tests. */
  readonly random?: (() => number) | undefined
}

/** What a target has to say to the server, in each hello. */
export interface Announcement {
  readonly cors: CorsRule[]
  /** Absent: no inbox. */
  readonly inbox?: InboxRule[]
}

/** The options with their defaults, checked. */
export interface ResolvedClientOptions extends LimitValues<typeof CONNECT_LIMITS> {
  readonly servers: readonly URL[]
  readonly audience: string
  readonly logger: Logger
  readonly random: () => number
  readonly cors: readonly CorsRule[]
  readonly tracing: Tracing | 'server' | undefined
  /** Without what changes from session to session. */
  readonly hello: Omit<Hello, 'lastEpoch' | 'connection' | 'cors' | 'inbox'>
}

const WINDOW_BYTES = 65_536

/** Throws TypeError. `said` is what the target has to say to the server. */
export function checkOptions(options: ClientOptions, said: Announcement): ResolvedClientOptions {
  const { token, proxy } = options
  if (typeof token !== 'function' && (typeof token !== 'string' || token.trim() === '')) {
    throw new TypeError('token is missing: give a JWT, or a function that returns one')
  }
  if (typeof token === 'string') checkToken(token)
  const times = resolveLimits(CONNECT_LIMITS, options)
  resolveLimits(BACKOFF_LIMITS, options.backoff, 'backoff')
  resolveLimits(CLIENT_SESSION_LIMITS, options.limits, 'limits')
  if (proxy !== undefined && proxy !== '') parseProxy(proxy)
  if (options.caOnly === true && options.ca === undefined)
    throw new TypeError('caOnly needs ca: nothing would be trusted')
  if (options.allowCallers !== undefined) parseCidrs(options.allowCallers)
  if (options.inspect !== undefined && !['off', 'heads', 'bodies'].includes(options.inspect)) {
    throw new TypeError("inspect must be 'off', 'heads' or 'bodies'")
  }
  const cors = [...(options.cors ?? [])].sort((a, b) => b.path.length - a.path.length)
  checkHello(options, said)
  const servers = checkServers(options.url)
  checkConnectTo(options.connectTo, servers)
  return {
    servers,
    ...times,
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
  if (readDialled(address) === undefined) throw new TypeError(`connectTo "${address}" is no host and port to dial`)
  if (!isLoopback(connectTo.host) && servers.some(({ protocol }) => protocol === 'ws:')) {
    throw new TypeError(`connectTo "${address}" is another machine, and ws:// would send it the token unencrypted`)
  }
}

/** Reads the address of a control endpoint. Throws TypeError. */
function parseServerUrl(text: string): URL {
  const url = URL.parse(text)
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
    instance: options.instance ?? randomUUID(),
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

/** Throws TypeError for anything but a key of X25519. */
export function readInboxKeys(pems: readonly string[] | undefined): InboxKeys | undefined {
  const [first, ...others] = (pems ?? []).map(pem => {
    const key = createPrivateKey(pem)
    if (key.asymmetricKeyType !== 'x25519') throw new TypeError('inboxKeys: only X25519 keys')
    return key
  })
  return first === undefined ? undefined : new InboxKeys([first, ...others])
}

/**
 * Throws TypeError if the server could not read a hello with these options and this announcement: the codec itself says so. To be
 * asked before a target takes other rules.
 */
export function checkHello(
  options: HelloOptions,
  said: { readonly cors: readonly object[]; readonly inbox?: readonly object[] },
): void {
  const hello = makeHello(options)
  const text = JSON.stringify({
    ...hello,
    ...said,
    lastEpoch: Number.MAX_SAFE_INTEGER,
    connection: Number(CONNECT_LIMITS.connections.most),
  })
  if (Buffer.byteLength(text) > MAX_CONTROL_BYTES)
    throw new TypeError('cors, inbox and allowCallers together are too long')
  try {
    parseControl(text)
  } catch (cause) {
    throw new TypeError(`an option does not hold: ${(cause as Error).message}`, { cause })
  }
}
