import { CLIENT_SESSION_LIMITS, CONNECT_LIMITS } from '../../client/limits.ts'
import { adminSettings, graceSetting, logSettings, routeSettings, tracingEndpoint } from './common.ts'
import * as kinds from './kinds.ts'
import { limitSettings, optional, setting, type Values } from './setting.ts'

/** Settings of `sallyport client`. */
export const clientSettings = {
  server: optional(
    kinds.list(kinds.url(['wss:', 'ws:', 'https:', 'http:'])),
    'Control endpoint of the server, `wss://host:port`. `ws://` is for loopback only.',
  ),
  'connect-to': optional(
    kinds.address,
    'Dials this address instead of the host of `--server`. Certificates and names are still checked against `--server`.',
  ),
  'token.file': optional(kinds.file, 'File with the token. A changed token is used at once, without reconnecting.'),
  'token.command': optional(
    kinds.text('"PROG ARG..."'),
    "Program that prints a token. Run without a shell, for at most 10 s, and again when a third of the token's lifetime is left.",
    { secret: true },
  ),
  ca: optional(
    kinds.list(kinds.file),
    'Authorities (PEM) to trust besides those of the system. Empty: none. Reloaded when the file changes.',
  ),
  'ca-only': setting(kinds.toggle, 'false', 'Trusts only the authorities of `--ca`.'),
  'tls.cert': optional(
    kinds.file,
    'Client certificate (PEM), if the server asks for one. Reloaded when the file changes.',
  ),
  'tls.key': optional(kinds.file, 'Private key of that certificate (PEM).'),
  'tls.min': setting(kinds.oneOf('1.3', '1.2'), '1.3', 'Lowest TLS version. Use 1.2 only for old middleboxes.'),
  audience: setting(
    kinds.text('AUDIENCE'),
    'sallyport',
    'Audience that the server expects. Used only to explain why a token was refused.',
  ),
  target: optional(kinds.url(['http:', 'https:', 'h2c:']), 'Where all requests go, instead of a route table.'),
  'target.trust-errors': setting(
    kinds.toggle,
    'false',
    'Passes on `sallyport-error` from the target. Set this only if the target is a `sallyport router`.',
  ),
  ...routeSettings,
  'preset.inbox': setting(
    kinds.oneOf('off', 'fallback', 'always'),
    'off',
    'Which webhooks go to the inbox of the server: none, those that cannot be delivered at once, or all.',
  ),
  ...limitSettings(CONNECT_LIMITS),
  'inbox.key.file': optional(
    kinds.file,
    'File with the keys (X25519, PEM) that webhooks in the inbox of the server are sealed for. Created (0600) if it does not exist. All clients of a runtime need the same file.',
  ),
  inspect: setting(
    kinds.oneOf('off', 'heads', 'bodies'),
    'off',
    'Keeps the latest requests for the inspector, redacted: only their heads, or also the beginning of their bodies. With TARGET, on a terminal, the default is `heads`.',
  ),
  'allow.callers': optional(kinds.list(kinds.cidr), 'Addresses that may call this runtime. Default: all. Empty: none.'),
  proxy: optional(
    kinds.url(['http:', 'https:'], { credentials: true, empty: true }),
    'Outbound proxy (CONNECT). Empty: none. Default: `HTTPS_PROXY` and `NO_PROXY` from the environment.',
    { secret: true },
  ),
  'exit-on-refusal': setting(kinds.toggle, 'false', 'Exits with code 4 when the server refuses the token.'),
  ...graceSetting,
  ...limitSettings(CLIENT_SESSION_LIMITS),
  tracing: setting(
    kinds.oneOf('off', 'otlp', 'server'),
    'off',
    'Exports spans of the requests that the server traces: as OTLP over HTTP, or through the session to the `server`, which exports them.',
  ),
  ...tracingEndpoint,
  ...adminSettings(9091),
  ...logSettings,
}

export type ClientConfig = Values<typeof clientSettings>
