import { adminSettings, graceSetting, logSettings, routeSettings, sessionLimits } from './common.ts'
import * as kinds from './kinds.ts'
import { optional, setting, type Values } from './setting.ts'

/** Settings of `sallyport client`. */
export const clientSettings = {
  server: optional(
    kinds.list(kinds.url(['wss:', 'ws:', 'https:', 'http:'])),
    'Control endpoint of the tunnel server, `wss://host:port`; `ws://` only to loopback.',
  ),
  'token.file': optional(kinds.file, 'File with the token. A changed file is used at once, without a reconnect.'),
  'token.command': optional(
    kinds.text('"PROG ARG..."'),
    'Program that prints a token; run without a shell, at most 10 s, again when a third of the life is left.',
    { secret: true },
  ),
  ca: optional(
    kinds.list(kinds.file),
    'Authorities (PEM) that are trusted besides those of the system. A changed file is used.',
  ),
  'ca-only': setting(kinds.toggle, 'false', 'Trusts the authorities of `--ca` alone.'),
  'tls.cert': optional(kinds.file, 'Client certificate (PEM), where the server asks for one. A changed file is used.'),
  'tls.key': optional(kinds.file, 'Private key of that certificate (PEM).'),
  'tls.min': setting(kinds.oneOf('1.3', '1.2'), '1.3', 'Lowest TLS version; 1.2 for old middleboxes only.'),
  audience: setting(
    kinds.text('AUDIENCE'),
    'sallyport',
    'Audience that the server wants; only to explain why a token was refused.',
  ),
  target: optional(kinds.url(['http:', 'https:', 'h2c:']), 'Where every request goes, instead of a route table.'),
  'target.trust-errors': setting(
    kinds.toggle,
    'false',
    'The target is a router of ours (`sallyport router`): its `sallyport-error` is passed on.',
  ),
  ...routeSettings,
  connections: setting(kinds.integer(1, 16), '2', 'Sessions to keep up.'),
  'allow.callers': optional(kinds.list(kinds.cidr), 'Addresses that may call this runtime; absent: all, empty: none.'),
  proxy: optional(
    kinds.url(['http:', 'https:'], { credentials: true }),
    'Outbound proxy (CONNECT). Default: `HTTPS_PROXY` and `NO_PROXY` of the environment.',
    { secret: true },
  ),
  'exit-on-refusal': setting(kinds.toggle, 'false', 'Exits with code 4 when the server refuses the token.'),
  ...graceSetting,
  ...sessionLimits,
  ...adminSettings(9091),
  ...logSettings,
}

export type ClientConfig = Values<typeof clientSettings>
