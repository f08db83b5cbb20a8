import { adminSettings, graceSetting, logSettings, sessionLimits } from './common.ts'
import * as kinds from './kinds.ts'
import { optional, setting, type Values } from './setting.ts'

/** Settings of `sallyport server`. */
export const serverSettings = {
  'public.listen': setting(kinds.address, '127.0.0.1:8080', 'Where callers arrive.'),
  'public.tls.cert': optional(
    kinds.file,
    'Certificate chain (PEM). With it HTTP/2 and HTTP/1.1 by ALPN; without it plain HTTP. A changed file is loaded.',
  ),
  'public.tls.key': optional(kinds.file, 'Private key of the certificate (PEM).'),
  'public.tls.ocsp': optional(
    kinds.file,
    'OCSP response (DER) that is stapled to the certificate; to be renewed before it ends. A changed file is loaded.',
  ),
  'public.plaintext': setting(kinds.toggle, 'false', 'Allows plain HTTP for callers off loopback, behind a proxy.'),
  'public.cors.origins': optional(
    kinds.list(kinds.origin),
    'Origins that may read error answers of runtimes that never published a policy.',
  ),
  'public.health-path': optional(
    kinds.path,
    'Path that answers a load balancer 200 or, where /readyz would, 503; on any Host.',
  ),
  'control.listen': optional(
    kinds.addressOrOff,
    'Where tunnel clients dial in. Default `127.0.0.1:8443`, or `off` with `--control.host`.',
  ),
  'control.host': optional(
    kinds.hostName,
    'Shares the public TLS listener: connections that ask for this name (SNI) reach the control endpoint.',
  ),
  'control.tls.cert': optional(kinds.file, 'Certificate chain (PEM) of the control endpoint.'),
  'control.tls.key': optional(kinds.file, 'Private key of that certificate (PEM).'),
  'control.tls.client-ca': optional(
    kinds.file,
    'Authorities (PEM) of client certificates. With it every tunnel client must present one. A changed file is loaded.',
  ),
  'control.tls.min': setting(kinds.oneOf('1.3', '1.2'), '1.3', 'Lowest TLS version of the control endpoint.'),
  'control.plaintext': setting(
    kinds.toggle,
    'false',
    'Serves the control endpoint without TLS, behind a proxy that ends it.',
  ),
  'control.proxy-protocol': optional(
    kinds.list(kinds.cidr),
    'Proxies in front of the control endpoint that must send a PROXY protocol v2 header.',
  ),
  domain: optional(kinds.list(kinds.hostName), 'Domains of runtimes: `<runtime>.<domain>`. At least one is needed.'),
  'auth.jwks.file': optional(kinds.file, 'Key set (JWKS) that verifies tokens. A changed file is loaded.'),
  'auth.jwks.url': optional(kinds.url(['https:']), 'Key set (JWKS) to fetch, instead of a file.'),
  'auth.jwks.ca': optional(kinds.file, 'Authorities (PEM) for that URL, instead of those of the system.'),
  'auth.issuer': optional(kinds.text('ISSUER'), 'Claim `iss` that tokens must have.'),
  'auth.audience': setting(kinds.text('AUDIENCE'), 'sallyport', 'Claim `aud` that tokens must have.'),
  'auth.runtime-claim': setting(kinds.text('CLAIM'), 'sub', 'Claim that names the runtime.'),
  'auth.algorithms': optional(
    kinds.list(kinds.text('ALG')),
    'Signature algorithms that are taken. Default: EdDSA and the ES, RS and PS families; never HS or none.',
  ),
  'auth.clock-tolerance': setting(
    kinds.durationFrom('0s', '60s'),
    '30s',
    'Difference of clocks that is forgiven; at most 60s.',
  ),
  'auth.revocations.file': optional(
    kinds.file,
    'List of revoked tokens. It must exist (an empty file will do); a changed file is loaded, and `sallyport revoke` adds to it.',
  ),
  'auth.revocations.url': optional(kinds.url(['https:']), 'List of revoked tokens to ask for every 5 s, besides.'),
  'auth.revocations.ca': optional(kinds.file, 'Authorities (PEM) for that URL, instead of those of the system.'),
  'trusted-proxies': optional(
    kinds.list(kinds.cidr),
    'Proxies in front whose X-Forwarded-For, -Proto, -Host and X-Request-Id are believed.',
  ),
  directory: optional(
    kinds.redisUrl,
    'Redis (7.0 or newer) that makes several servers one: `redis://HOST:PORT`, several hosts with commas, or `redis+sentinel://HOST:PORT/NAME`. Default: each server stands alone.',
  ),
  'directory.user': optional(kinds.text('USER'), "User of Redis's access control list."),
  'directory.password.file': optional(kinds.file, "File with that user's password; read at each connect."),
  'directory.sentinel.user': optional(kinds.text('USER'), 'User of the Sentinels, where they have any.'),
  'directory.sentinel.password.file': optional(
    kinds.file,
    'File with the password that the Sentinels demand; read at each connect.',
  ),
  'directory.tls.ca': optional(
    kinds.file,
    'Authorities (PEM) for `rediss://` and `rediss+sentinel://`, instead of those of the system.',
  ),
  'directory.lease': setting(
    kinds.duration,
    '5s',
    'How long what a replica knows counts without being confirmed; at least 1s.',
  ),
  'directory.prefix': setting(kinds.text('NAME'), 'sallyport', 'What keys and the channel in Redis begin with.'),
  'peer.listen': optional(kinds.address, 'Where other replicas connect. Without it each serves its own clients alone.'),
  'peer.advertise': optional(
    kinds.address,
    'Address by which other replicas reach this one. Default: where it listens.',
  ),
  'peer.tls.cert': optional(
    kinds.file,
    'Certificate (PEM) for `replica.sallyport.internal`, for server and client use. A changed file is loaded.',
  ),
  'peer.tls.key': optional(kinds.file, 'Private key of that certificate (PEM).'),
  'peer.tls.ca': optional(kinds.file, 'Authority (PEM) of the certificates of all replicas, and of nobody else.'),
  replica: optional(kinds.id, 'Name of this server, for logs and clients. Default: a random one.'),
  'drain-spread': setting(
    kinds.grace,
    '5s',
    'Time over which clients are asked to leave when a server with a directory stops; `0s`: all at once, as without a directory.',
  ),
  'reuse-address': setting(
    kinds.toggle,
    'false',
    'Lets another server of this user with the same flag listen on the same public, control and health addresses: the next one, before this one stops.',
  ),
  'drain-delay': setting(
    kinds.grace,
    '0s',
    'How long a server that stops serves on while `/readyz` is 503, so that a load balancer notices.',
  ),
  ...graceSetting,
  'hold.time': setting(
    kinds.duration,
    '5s',
    'How long a request waits for a session of its runtime, if the runtime is known; `0s`: not at all.',
  ),
  'hold.forget': setting(kinds.duration, '60s', 'How long a runtime is known after its last session ended.'),
  'hold.startup': setting(kinds.duration, '10s', "How long after the server's start every runtime counts as known."),
  'hold.requests-per-runtime': setting(kinds.integer(0, 1_000_000), '256', 'Requests that wait for one runtime.'),
  'hold.bytes-per-runtime': setting(kinds.bytes, '4MiB', 'Bytes of their bodies.'),
  'hold.requests': setting(kinds.integer(0, 1_000_000), '4096', 'Requests that wait, over all runtimes.'),
  'hold.bytes': setting(kinds.bytes, '64MiB', 'Bytes of their bodies.'),
  'limits.handshake': setting(kinds.durationFrom('100ms', '10m'), '10s', "From a client's first byte to its hello."),
  'limits.handshake-budget': setting(kinds.share, '0.3', 'Share of event-loop time that handshakes may take.'),
  'limits.handshakes-waiting': setting(
    kinds.integer(1, 1_000_000),
    '4096',
    'Clients that wait for their handshake; one more replaces one of the network that has most.',
  ),
  'limits.handshakes-waiting-per-address': setting(
    kinds.integer(1, 1_000_000),
    '256',
    'The same for one address (IPv6: one /64).',
  ),
  'limits.handshakes-under-way': setting(
    kinds.integer(8, 1_000_000),
    '1024',
    'Clients whose handshake has begun and that have not said hello; one more ends the oldest of the network that has most.',
  ),
  'limits.sessions': setting(
    kinds.integer(1, 1_000_000),
    '20000',
    'Sessions of all runtimes; each counts until its socket is closed.',
  ),
  'limits.sessions-per-runtime': setting(kinds.integer(1, 10_000), '64', 'Sessions of one runtime.'),
  'limits.sessions-per-address': setting(
    kinds.integer(0, 1_000_000),
    '0',
    'Sessions of clients at one address (IPv6: at one /64); 0 here and below: no limit.',
  ),
  'limits.exchanges-per-runtime': setting(kinds.integer(0, 1_000_000), '10000', 'Exchanges of one runtime at a time.'),
  'limits.request-rate-per-runtime': setting(
    kinds.integer(0, 1_000_000),
    '0',
    'Requests of one runtime per second, and at once; those above are answered 429.',
  ),
  'limits.byte-rate-per-runtime': setting(
    kinds.bytes,
    '0',
    'Bytes of bodies of one runtime per second, both ways together. It is slowed, and new requests are answered 429.',
  ),
  'limits.buffer-per-runtime': setting(kinds.bytes, '64MiB', 'Unread bytes of the sessions of one runtime.'),
  'limits.exchanges-per-address': setting(
    kinds.integer(0, 1_000_000),
    '0',
    'Exchanges at a time of the callers at one address, which may be a proxy.',
  ),
  'limits.request-rate-per-address': setting(kinds.integer(0, 1_000_000), '0', 'Their requests per second.'),
  'limits.byte-rate-per-address': setting(kinds.bytes, '0', 'Their bytes of bodies per second.'),
  'limits.process-buffer': setting(kinds.bytes, '256MiB', 'Unread bytes of all sessions.'),
  'limits.replay': setting(
    kinds.bytes,
    '64KiB',
    'Request body kept to be sent again, per exchange; four times as much until a session has it.',
  ),
  'limits.replay-total': setting(kinds.bytes, '64MiB', 'The same over all exchanges.'),
  'limits.response-head': setting(
    kinds.duration,
    '0s',
    "From a request to the head of its answer, waiting for a session included; `0s`: as long as the route's time.",
  ),
  'limits.cors-keep': setting(kinds.duration, '7d', "How long a runtime's CORS policy outlives its last session."),
  ...sessionLimits,
  ...adminSettings(9090),
  ...logSettings,
}

export type ServerConfig = Values<typeof serverSettings>
