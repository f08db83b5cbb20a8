import type { HostPort } from '../../protocol/base/host-port.ts'
import { DEFAULT_ALGORITHMS } from '../../protocol/base/token-algorithms.ts'
import { OPEN_PATH } from '../../server/access/open-path.ts'
import { STORES } from '../../server/directory/stores.ts'
import { DRAIN_TIMES, HOLD_LIMITS, INBOX, LEASE, SERVER_LIMITS } from '../../server/limits.ts'
import { PUBLIC_URL } from '../../server/public-url.ts'
import { adminSettings, graceSetting, logSettings, tracingSettings } from './common.ts'
import * as kinds from './kinds.ts'
import { limitSettings, optional, setting, type Values } from './setting.ts'

/** Settings of `sallyport server`. */
export const serverSettings = {
  'public.listen': setting(kinds.address, '127.0.0.1:8080', 'Address for callers.'),
  'public.tls.cert': optional(
    kinds.file,
    'Certificate chain (PEM) for HTTPS with HTTP/2 and HTTP/1.1. Without it, plain HTTP. Reloaded when the file changes.',
  ),
  'public.tls.key': optional(kinds.file, 'Private key of the certificate (PEM).'),
  'public.tls.ocsp': optional(
    kinds.file,
    'OCSP response (DER) to staple to the certificate. Renew it before it expires. Reloaded when the file changes.',
  ),
  'public.tls.folder': optional(
    kinds.folder,
    "Folder with certificates for other names (SNI), such as runtimes' own hosts: `NAME.crt` with `NAME.key`, and `tls.crt` with `tls.key` in subfolders. Reloaded when files change.",
  ),
  'public.plaintext': setting(
    kinds.toggle,
    'false',
    'Allows plain HTTP on addresses other than loopback, behind a proxy.',
  ),
  'public.url': optional(
    kinds.pattern('https://*.NAME', PUBLIC_URL, 'a URL such as https://*.tunnels.example.com'),
    'URL at which callers reach runtimes, with `*` for the name. Each client is told its own URL. Default: derived from `--domain` and `--public.listen`.',
  ),
  'public.cors.origins': optional(
    kinds.list(kinds.origin),
    'Origins that may read the error answers of the server for runtimes that never published a CORS policy.',
  ),
  'public.health-path': optional(
    kinds.path,
    'Path for the health checks of a load balancer, on any Host: 200, or 503 whenever /readyz is 503.',
  ),
  'control.listen': optional(
    kinds.addressOrOff,
    'Address for tunnel clients. Default `127.0.0.1:8443`, or `off` with `--control.host`.',
  ),
  'control.host': optional(
    kinds.hostName,
    'Name (SNI) by which clients reach the control endpoint on the public TLS listener.',
  ),
  'control.tls.cert': optional(kinds.file, 'Certificate chain (PEM) of the control endpoint.'),
  'control.tls.key': optional(kinds.file, 'Private key of that certificate (PEM).'),
  'control.tls.client-ca': optional(
    kinds.file,
    'Authorities (PEM) of client certificates. If set, every tunnel client must present one. Reloaded when the file changes.',
  ),
  'control.tls.min': setting(kinds.oneOf('1.3', '1.2'), '1.3', 'Lowest TLS version of the control endpoint.'),
  'control.plaintext': setting(
    kinds.toggle,
    'false',
    'Serves the control endpoint without TLS, behind a proxy that terminates TLS.',
  ),
  'control.proxy-protocol': optional(
    kinds.list(kinds.cidr),
    'Proxies in front of the control endpoint. They must send a PROXY protocol v2 header.',
  ),
  domain: optional(kinds.list(kinds.hostName), 'Domain of the runtimes: callers use `<runtime>.<domain>`. Required.'),
  'own-hosts': setting(
    kinds.toggle,
    'false',
    'Lets runtimes have hosts of their own, such as `hooks.customer.com`, which their tokens claim (`sallyport_hosts`). The first runtime to claim a host keeps it.',
  ),
  'auth.jwks.file': optional(kinds.file, 'Key set (JWKS) that verifies tokens. Reloaded when the file changes.'),
  'auth.jwks.url': optional(kinds.url(['https:']), 'URL of the key set (JWKS), instead of a file.'),
  'auth.jwks.ca': optional(kinds.file, "Authorities (PEM) for that URL. Default: Node's own."),
  'auth.issuer': optional(kinds.text('ISSUER'), 'The `iss` claim that tokens must have.'),
  'auth.audience': setting(kinds.text('AUDIENCE'), 'sallyport', 'The `aud` claim that tokens must have.'),
  'auth.runtime-claim': setting(kinds.text('CLAIM'), 'sub', 'The claim that names the runtime.'),
  'auth.algorithms': optional(
    kinds.list({ ...kinds.text('ALG'), read: kinds.oneOf(...DEFAULT_ALGORITHMS).read }),
    'Accepted signature algorithms. Default: EdDSA and the ES, RS and PS families; never HS or none.',
  ),
  'auth.clock-tolerance': setting(kinds.durationFrom('0s', '60s'), '30s', 'Tolerated clock difference; at most 60s.'),
  'auth.revocations.file': optional(
    kinds.file,
    'List of revoked tokens. The file must exist, but may be empty. Reloaded when it changes; `sallyport revoke` adds to it.',
  ),
  'auth.revocations.url': optional(kinds.url(['https:']), 'URL of another list of revoked tokens, fetched every 5 s.'),
  'auth.revocations.ca': optional(kinds.file, "Authorities (PEM) for that URL. Default: Node's own."),
  'trusted-proxies': optional(
    kinds.list(kinds.cidr),
    'Proxies whose X-Forwarded-For, -Proto, -Host and X-Request-Id (with tracing, also traceparent and tracestate) the server trusts.',
  ),
  'access.jwt.jwks.file': optional(
    kinds.file,
    'Key set (JWKS) that verifies the tokens (JWT) of callers. If set, callers must send one as `Authorization: Bearer`. Reloaded when the file changes.',
  ),
  'access.jwt.jwks.url': optional(kinds.url(['https:']), 'URL of that key set, instead of a file.'),
  'access.jwt.jwks.ca': optional(kinds.file, "Authorities (PEM) for that URL. Default: Node's own."),
  'access.jwt.issuer': optional(kinds.text('ISSUER'), 'The `iss` claim that tokens of callers must have.'),
  'access.jwt.audience': optional(
    kinds.text('AUDIENCE'),
    'The `aud` claim that tokens of callers must have. It must differ from `--auth.audience`.',
  ),
  'access.jwt.runtime-claim': optional(
    kinds.text('CLAIM'),
    'The claim that must name the runtime, alone or in a list. Default: a token is good for all runtimes.',
  ),
  'access.jwt.forward': setting(kinds.toggle, 'false', 'Passes the token on to the service.'),
  'access.forward-auth.url': optional(
    kinds.url(['http:', 'https:']),
    'URL of a service that decides who may call. It receives a GET with the head of each request. 2xx allows the call; any other answer refuses it.',
  ),
  'access.forward-auth.ca': optional(kinds.file, "Authorities (PEM) for that URL. Default: Node's own."),
  'access.forward-auth.headers': optional(
    kinds.list(kinds.text('NAME')),
    'Header fields to copy from its answer into the request. Fields with these names from the caller are removed.',
  ),
  'access.forward-auth.timeout': setting(
    kinds.durationFrom('1ms', '60s'),
    '5s',
    'How long that service may take to answer. After that the caller gets 503.',
  ),
  'access.client-ca': optional(
    kinds.file,
    'Authorities (PEM) of client certificates. If set, callers must present one. Reloaded when the file changes.',
  ),
  'access.runtimes': optional(kinds.list(kinds.label), 'Runtimes whose callers are checked. Default: all.'),
  'access.files': optional(
    kinds.list(kinds.file),
    'Files with further sets of rules, one per file. Each has an `access:` section with these settings and names the `runtimes` that it is for. No other rules apply to those runtimes.',
  ),
  'access.open': optional(
    kinds.list(kinds.pattern('[RUNTIME]/PATH', OPEN_PATH, 'a path such as /webhooks, or demo/webhooks')),
    'Paths that need no check: this path and everything below it, at all runtimes or at one.',
  ),
  directory: optional(
    kinds.hostsUrl(Object.keys(STORES)),
    'Redis (7.0 or newer) that several servers share to act as one: `redis://HOST:PORT`, several hosts separated by commas, or `redis+sentinel://HOST:PORT/NAME`. Default: the server works alone.',
  ),
  'directory.user': optional(kinds.text('USER'), 'Redis user (ACL).'),
  'directory.password.file': optional(kinds.file, 'File with the password of that user. Read at each connection.'),
  'directory.sentinel.user': optional(kinds.text('USER'), 'User for the Sentinels, if they have users.'),
  'directory.sentinel.password.file': optional(
    kinds.file,
    'File with the password for the Sentinels. Read at each connection.',
  ),
  'directory.tls.ca': optional(
    kinds.file,
    "Authorities (PEM) for `rediss://` and `rediss+sentinel://`. Default: Node's own.",
  ),
  ...limitSettings(LEASE),
  'directory.prefix': setting(
    kinds.text('NAME'),
    'sallyport',
    'Prefix of the keys and channels in Redis. Services on one Redis need a prefix or a database each.',
  ),
  'peer.listen': optional(
    kinds.address,
    'Address for other replicas. Without it, each replica serves only its own clients.',
  ),
  'peer.advertise': optional(
    kinds.address,
    'Address at which other replicas reach this one. Default: `--peer.listen`.',
  ),
  'peer.tls.cert': optional(
    kinds.file,
    'Certificate (PEM) for `replica.sallyport.internal`, for server and client use. Reloaded when the file changes.',
  ),
  'peer.tls.key': optional(kinds.file, 'Private key of that certificate (PEM).'),
  'peer.tls.ca': optional(
    kinds.file,
    'Authorities (PEM) that issue certificates to the replicas and to nothing else. Reloaded when the file changes.',
  ),
  inbox: setting(
    kinds.inboxOrOff,
    'off',
    'Where to keep webhooks that cannot be delivered at once, for the routes that ask for it: a file in an existing folder, or PostgreSQL (14 or newer), which several servers can share.',
  ),
  'inbox.password.file': optional(kinds.file, 'File with the password for PostgreSQL. Read at each connection.'),
  'inbox.tls.ca': optional(kinds.file, "Authorities (PEM) for PostgreSQL. Default: Node's own."),
  'inbox.mac.file': optional(
    kinds.file,
    'File with secrets, one per line, each at least 32 bytes as hex or base64. The server then trusts only contents of the store that carry a MAC made with one of them. New MACs are made with the first. All servers that share an inbox need the same file. Reloaded when the file changes.',
  ),
  'inbox.mac.optional': setting(
    kinds.toggle,
    'false',
    'Also delivers webhooks without a MAC. Set it only until the webhooks that were stored before `--inbox.mac.file` are gone.',
  ),
  'inbox.plaintext': setting(
    kinds.toggle,
    'false',
    'Also keeps webhooks for clients without `--inbox.key.file`, unencrypted. Protect the store and its backups.',
  ),
  ...limitSettings(INBOX),
  replica: optional(kinds.id, 'Name of this server in logs and for clients. Default: random.'),
  ...limitSettings(DRAIN_TIMES),
  'reuse-address': setting(
    kinds.toggle,
    'false',
    'Lets the next server listen on the same public, control and health addresses before this one stops. Both need this flag and the same user.',
  ),
  ...graceSetting,
  ...limitSettings(HOLD_LIMITS),
  ...limitSettings(SERVER_LIMITS),
  ...tracingSettings,
  tracing: setting(
    kinds.oneOf('off', 'otlp', 'recent'),
    'off',
    'Exports traces as OTLP over HTTP, or keeps the `recent` 100 in memory for `sallyport traces`.',
  ),
  ...adminSettings(9090),
  ...logSettings,
}

export type ServerConfig = Values<typeof serverSettings>

/** One set of rules for callers: the server's own, or that of one of its `access.files`. */
export type AccessConfig = Pick<ServerConfig, Extract<keyof ServerConfig, `access.${string}`>>

const DEFAULT_CONTROL: HostPort = { host: '127.0.0.1', port: 8443 }

/** With `--control.host`, the control endpoint has a separate address only if one is given. */
export function controlAddress(config: ServerConfig): HostPort | undefined {
  const given = config['control.listen']
  if (given === 'off') return undefined
  return given ?? (config['control.host'] === undefined ? DEFAULT_CONTROL : undefined)
}
