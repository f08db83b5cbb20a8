/**
 * The route table as people write it, in YAML or as an object. `compile.ts` turns it into what the hot path reads.
 */

import type { CorsPolicy } from '../protocol/http/problem.ts'
import type { SchemeName } from '../protocol/webhook/scheme.ts'

/** A route table, as a routes file holds it; docs/routes.md describes each key. */
export interface RouteTable {
  routes: Route[]
  /** As `curl --resolve`: `name:port` to `address:port`. Host, SNI and the certificate's name stay those of the target. */
  resolve?: Record<string, string> | undefined
}

/** One route: which requests it takes, where they go, and on what terms. */
export interface Route {
  /** Unique name; appears in logs and metrics. */
  name: string
  match: RouteMatch
  /** `http://`, `https://` or `h2c://` (HTTP/2 without TLS), host and port. `{name}` in the host is a capture. */
  target?: string | undefined
  /** A fixed response instead of a target. */
  answer?: StaticAnswer | undefined
  /** How to change the path. Absent: it stays as it came. */
  rewrite?: { stripPrefix?: string | undefined; replacePrefix?: PrefixReplacement | undefined } | undefined
  /** What the upstream sees as `Host`: the caller's (`keep`, default) or the target's. */
  host?: 'keep' | 'target' | undefined
  /** Fields of the request, set or removed last before it goes to the upstream. */
  headers?: HeaderRules | undefined
  /** Fields of the upstream's response. */
  responseHeaders?: HeaderRules | undefined
  timeouts?: RouteTimeouts | undefined
  /** `bodyBytes`: largest request body; absent means no limit. */
  limits?: { bodyBytes?: number | undefined } | undefined
  tls?: RouteTls | undefined
  /**
   * Passes on `sallyport-error` from the target. Set it only if the target is a `sallyport router`; any other upstream could
   * fake our errors. Default false.
   */
  trustErrors?: boolean | undefined
  retries?: RouteRetries | undefined
  /** Put on our own error answers, and on preflights while the target is down. */
  cors?: CorsPolicy | undefined
  /**
   * `callers`: CIDRs that may call; absent means all, an empty list none. Every other key is a capture of the path, and
   * its list holds the values that are taken; an empty list takes none.
   */
  allow?: Record<string, string[] | undefined> | undefined
  /** Takes signed webhooks alone: anything else gets 401, and the target never has it whole. */
  verify?: RouteVerify | undefined
  /** Of a client's routes: lets its server keep webhooks that cannot be delivered at once. Absent: it keeps none. */
  inbox?: RouteInbox | undefined
}

/** How a webhook is signed; `docs/webhooks.md` has the schemes. */
export interface RouteSignature {
  scheme: SchemeName
  /** Of `hmac` alone: the field that carries the signature. */
  header?: string | undefined
  /** Of `hmac` alone: what stands before the digest, such as `sha256=`. Default: nothing. */
  prefix?: string | undefined
  /** Of `hmac` alone: how the digest is written. Default `hex`. */
  encoding?: 'hex' | 'base64' | undefined
  /** Of `hmac` alone. Default `sha256`. */
  hash?: 'sha256' | 'sha512' | undefined
}

/** Where a secret stands. One line break at its end is left out; the file is read again when it changes. */
export interface SecretFile {
  file: string
}

/** Which signatures a route takes. */
export interface RouteVerify extends RouteSignature {
  /** Any of them fits, up to four, so that they can be rotated. */
  secrets: SecretFile[]
  /**
   * `router` (default): the secrets never leave the client. `edge`, in an inbox alone: the server gets them as well, and refuses
   * forgeries itself, so that strangers fill no inbox while the client is away.
   */
  at?: 'router' | 'edge' | undefined
  /** How far a signed time may be from the time of arrival, such as `5m`, the default. */
  tolerance?: string | undefined
}

/** A new signature for what goes on to the target. */
export interface RouteResign extends RouteSignature {
  secret: SecretFile
}

/** On what terms the server keeps webhooks. Durations are written as `8s`, `72h` or `30d`. */
export interface RouteInbox {
  /** `fallback` (default): what cannot be delivered at once. `always`: everything, and senders never wait for the target. */
  mode?: 'fallback' | 'always' | undefined
  /** How long a sender waits for the target's answer before the webhook is kept. Default: the server's, 8 s. */
  answerWithin?: string | undefined
  /** How long delivery is tried; at most `30d`. Default: the server's, 72 h. */
  maxAge?: string | undefined
  /** What stays in order: the webhooks of one path (default), of the whole route, or none. */
  lane?: 'path' | 'route' | 'none' | undefined
  verify?: RouteVerify | undefined
  /** Signs each webhook anew on its way to the target. Needs `verify`. */
  resign?: RouteResign | undefined
}

/** Which requests a route takes. All conditions must hold. */
export interface RouteMatch {
  /** Exact names, or `*.example.com` for exactly one label more. Absent: any host. */
  hosts?: string[] | undefined
  /**
   * Prefix of whole segments: `/app-proxy` matches itself and `/app-proxy/...`, not `/app-proxyx`. With a slash at the
   * end, the bare name does not match. `{name}` captures one segment. Absent: `/`.
   */
  path?: string | undefined
  /** Absent: any. The longest path alone decides: other methods get 405. */
  methods?: string[] | undefined
  /** Name to exact value; `*` means that the field is present. */
  headers?: Record<string, string> | undefined
}

/** Puts `to` in the place of the path prefix `from`. */
export interface PrefixReplacement {
  from: string
  to: string
}

/** Header fields to remove, and then to set. */
export interface HeaderRules {
  set?: Record<string, string> | undefined
  remove?: string[] | undefined
}

/** Deadlines towards the upstream. */
export interface RouteTimeouts {
  /** Name, TCP and TLS together; default 5,000. */
  connectMs?: number | undefined
  /** From the last progress of the request to the response's head; default 60,000. Never cuts a body. */
  headMs?: number | undefined
}

/** How the certificate of an `https://` target is checked. */
export interface RouteTls {
  /** PEM text, or the path of a PEM file. It alone is trusted then. */
  ca?: string | undefined
  /** The name to ask for and to check, if it is not the target's host. */
  serverName?: string | undefined
  /** Accepts any certificate, and warns at the start. */
  insecure?: boolean | undefined
  /**
   * Offers HTTP/2 besides HTTP/1.1 (ALPN), for gRPC, and the target chooses. WebSockets stay on HTTP/1.1. Default false.
   */
  http2?: boolean | undefined
}

/** When a request may be sent to the upstream again. */
export interface RouteRetries {
  /**
   * How often to send a request again if no connection could be made, or if the upstream broke before its head, the method is
   * safe and the body is empty. Default 0; a stale idle connection is replaced once in any case.
   */
  attempts?: number | undefined
  /** The target honours `Idempotency-Key`: a request with that field counts as safe, with a body of up to 64 KiB. */
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

/** One thing wrong in a table: where (keys and indices from the top), and what. */
export interface RouteProblem {
  readonly path: readonly (string | number)[]
  readonly message: string
}

/** A route table that cannot be used; `problems` holds every one that was found. */
export class RouteTableError extends Error {
  override readonly name = 'RouteTableError'
  readonly code = 'ERR_SALLYPORT_ROUTES'
  readonly problems: readonly RouteProblem[]
  /** CA and secret files that the table names: it may be good as soon as one of them has changed. */
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
