/**
 * The route table as people write it, in YAML or as an object. `compile.ts` turns it into what the hot path reads.
 */

import type { CorsPolicy } from '../protocol/http/problem.ts'
import type { SchemeName } from '../protocol/webhook/scheme.ts'

/** A route table, as in a routes file. docs/routes.md describes each key. */
export interface RouteTable {
  routes: Route[]
  /** Like `curl --resolve`: maps `name:port` to `address:port`. Host, SNI and certificate name remain those of the target. */
  resolve?: Record<string, string> | undefined
}

/** One route: which requests it takes, where they go, and how they are handled. */
export interface Route {
  /** Unique name; appears in logs and metrics. */
  name: string
  match: RouteMatch
  /** `http://`, `https://` or `h2c://` (HTTP/2 without TLS), host and port. `{name}` in the host is a capture. */
  target?: string | undefined
  /** A fixed response instead of a target. */
  answer?: StaticAnswer | undefined
  /** How to change the path. Default: it is not changed. */
  rewrite?: { stripPrefix?: string | undefined; replacePrefix?: PrefixReplacement | undefined } | undefined
  /** The `Host` that the upstream sees: the caller's (`keep`, default) or the target's. */
  host?: 'keep' | 'target' | undefined
  /** Request header fields to set or remove, last of all before the request goes to the upstream. */
  headers?: HeaderRules | undefined
  /** Response header fields to set or remove. */
  responseHeaders?: HeaderRules | undefined
  timeouts?: RouteTimeouts | undefined
  /** `bodyBytes`: largest request body. Default: no limit. */
  limits?: { bodyBytes?: number | undefined } | undefined
  tls?: RouteTls | undefined
  /**
   * Passes on `sallyport-error` from the target. Set it only if the target is a `sallyport router`; any other upstream could
   * fake our errors. Default false.
   */
  trustErrors?: boolean | undefined
  retries?: RouteRetries | undefined
  /** CORS policy for our own error answers, and for preflights while the target is down. */
  cors?: CorsPolicy | undefined
  /**
   * `callers`: CIDRs that may call. Default: all; an empty list allows none. Every other key is a capture of the path, with
   * the list of its allowed values; an empty list allows none. An empty object is refused.
   */
  allow?: Record<string, string[] | undefined> | undefined
  /** Takes only signed webhooks. Anything else gets 401, and the target never receives it in full. */
  verify?: RouteVerify | undefined
  /** In the routes of a client: lets the server store webhooks that cannot be delivered at once. Default: it stores none. */
  inbox?: RouteInbox | undefined
}

/** How a webhook is signed; `docs/webhooks.md` has the schemes. */
export interface RouteSignature {
  scheme: SchemeName
  /** Only for `hmac`: the header field that carries the signature. */
  header?: string | undefined
  /** Only for `hmac`: the prefix of the digest, such as `sha256=`. Default: none. */
  prefix?: string | undefined
  /** Only for `hmac`: encoding of the digest. Default `hex`. */
  encoding?: 'hex' | 'base64' | undefined
  /** Only for `hmac`: the hash function. Default `sha256`. */
  hash?: 'sha256' | 'sha512' | undefined
}

/** A file with a secret. One trailing line break is ignored. The file is read again when it changes. */
export interface SecretFile {
  file: string
}

/** Which signatures a route accepts. */
export interface RouteVerify extends RouteSignature {
  /** Up to four secrets. A signature may match any of them, so that they can be rotated. */
  secrets: SecretFile[]
  /**
   * Where signatures are checked. `router` (default): the secrets never leave the client. `edge`, only for an inbox: the
   * server also gets the secrets and refuses forgeries itself, so that strangers cannot fill the inbox while the client is
   * offline.
   */
  at?: 'router' | 'edge' | undefined
  /** How far a signed time may be from the time of arrival. Default `5m`. */
  tolerance?: string | undefined
}

/** A new signature for the webhooks that go on to the target. */
export interface RouteResign extends RouteSignature {
  secret: SecretFile
}

/** How the server stores webhooks. Durations are written as `8s`, `72h` or `30d`. */
export interface RouteInbox {
  /** What is stored. `fallback` (default): webhooks that cannot be delivered at once. `always`: all, so that senders never wait for the target. */
  mode?: 'fallback' | 'always' | undefined
  /** How long a sender waits for the target's answer before the webhook is stored. Default: that of the server, 8 s. */
  answerWithin?: string | undefined
  /** How long delivery is retried, at most `30d`. Default: that of the server, 72 h. */
  maxAge?: string | undefined
  /** Which webhooks are delivered in order: those of one path (default), those of the whole route, or none. */
  lane?: 'path' | 'route' | 'none' | undefined
  verify?: RouteVerify | undefined
  /** Signs each webhook again on its way to the target. Needs `verify`. */
  resign?: RouteResign | undefined
}

/** Which requests a route takes. All conditions must hold. */
export interface RouteMatch {
  /** Exact names, or `*.example.com` for exactly one more label. Default: any host. */
  hosts?: string[] | undefined
  /**
   * Prefix of whole segments: `/app-proxy` matches itself and `/app-proxy/...`, but not `/app-proxyx`. With a trailing slash,
   * the bare name does not match. `{name}` captures one segment. Default `/`.
   */
  path?: string | undefined
  /** Allowed methods. Default: any. Only the route with the longest path counts: other methods get 405. */
  methods?: string[] | undefined
  /** Header fields by name, with their exact value; `*` means that the field must be present. */
  headers?: Record<string, string> | undefined
}

/** Replaces the path prefix `from` with `to`. */
export interface PrefixReplacement {
  from: string
  to: string
}

/** Header fields to remove, and then fields to set. */
export interface HeaderRules {
  set?: Record<string, string> | undefined
  remove?: string[] | undefined
}

/** Deadlines for the upstream. */
export interface RouteTimeouts {
  /** Name lookup, TCP and TLS together. Default 5,000. */
  connectMs?: number | undefined
  /** From the last progress of the request to the head of the response. Default 60,000. Never cuts a body. */
  headMs?: number | undefined
}

/** How the certificate of an `https://` target is checked. */
export interface RouteTls {
  /** PEM text, or the path of a PEM file. If set, nothing else is trusted. */
  ca?: string | undefined
  /** Name for SNI and for the certificate check. Default: the target's host. */
  serverName?: string | undefined
  /** Accepts any certificate, and logs a warning at the start. */
  insecure?: boolean | undefined
  /**
   * Offers HTTP/2 besides HTTP/1.1 (ALPN), for example for gRPC; the target chooses. WebSockets stay on HTTP/1.1. Default false.
   */
  http2?: boolean | undefined
}

/** When a request may be sent to the upstream again. */
export interface RouteRetries {
  /**
   * How often to send a request again if no connection could be made, or if the upstream failed before the head of its
   * response and the request has a safe method and no body. Default 0. A stale idle connection is always replaced once.
   */
  attempts?: number | undefined
  /**
   * Set it if the target honours `Idempotency-Key`. A request with one such field then counts as safe, with a body of up to 64 KiB. An empty
   * key, `0`, or one with white space, `,` or `;`, does not count: services may read it as none, or as several.
   */
  idempotencyKey?: boolean | undefined
}

/** A fixed response, made by the router itself. */
export interface StaticAnswer {
  /** Default 200. */
  status?: number | undefined
  body?: string | undefined
  /** Default `text/plain; charset=utf-8`. */
  contentType?: string | undefined
}

/** One problem of a table: its place (keys and indices from the top) and what is wrong. */
export interface RouteProblem {
  readonly path: readonly (string | number)[]
  readonly message: string
}

/** A route table that cannot be used. `problems` lists everything that is wrong. */
export class RouteTableError extends Error {
  override readonly name = 'RouteTableError'
  readonly code = 'ERR_SALLYPORT_ROUTES'
  readonly problems: readonly RouteProblem[]
  /** CA and secret files that the table names. The table may become valid when one of them changes. */
  readonly files: readonly string[]

  constructor(problems: readonly RouteProblem[], lines?: readonly string[], files: readonly string[] = []) {
    super((lines ?? problems.map(describe)).join('\n'))
    this.problems = problems
    this.files = files
  }
}

function describe(problem: RouteProblem): string {
  return problem.path.length === 0 ? problem.message : `${formatPath(problem.path)}: ${problem.message}`
}

/** `routes[2].match.path` */
export function formatPath(path: readonly (string | number)[]): string {
  let text = ''
  for (const part of path) text += typeof part === 'number' ? `[${part}]` : text === '' ? part : `.${part}`
  return text
}
