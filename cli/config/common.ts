import * as kinds from './kinds.ts'
import { optional, setting } from './setting.ts'

/** Settings that every long-running component has. */
export const logSettings = {
  'log.level': setting(kinds.oneOf('debug', 'info', 'warn', 'error'), 'info', 'Lowest level to log.'),
  'log.format': setting(
    kinds.oneOf('auto', 'json', 'text'),
    'auto',
    'Format of the log on stderr. `auto` is text on a terminal and JSON lines elsewhere.',
  ),
  'log.access': setting(
    kinds.oneOf('errors', 'all', 'off'),
    'errors',
    'Which exchanges to log: those that ended with a 5xx or were cut, all, or none.',
  ),
}

/** The admin and health listeners; `port` is the default admin port. */
export function adminSettings(port: number) {
  return {
    'admin.listen': setting(
      kinds.addressOrOff,
      `127.0.0.1:${port}`,
      'Admin listener. On addresses other than loopback it needs `--admin.token.file`. If the default port is taken, it uses another.',
    ),
    'admin.token.file': optional(
      kinds.file,
      'File with the bearer token of the admin listener. Default on loopback: a random token, made at start.',
    ),
    'health.listen': setting(
      kinds.addressOrOff,
      'off',
      'Serves only `/livez`, `/readyz` and `/metrics`, to anybody: for the kubelet and Prometheus.',
    ),
  }
}

/** Where requests go: for the client with an embedded router, and for the router service. */
export const routeSettings = {
  routes: optional(kinds.file, 'YAML file with the route table. Reloaded when it changes, without a restart.'),
  preset: optional(kinds.oneOf('gitops-runtime'), 'A built-in route table.'),
  'preset.namespaces': optional(
    kinds.list(kinds.text('NAMES')),
    'Namespaces whose event sources get webhooks. Without any, webhooks get 404.',
  ),
  'preset.cors-origin': optional(
    kinds.list(kinds.origin),
    'Origins of the UI that calls App-Proxy. They may read our error answers.',
  ),
  'preset.cluster-domain': setting(kinds.hostName, 'cluster.local', 'DNS domain of the Kubernetes cluster.'),
  'preset.app-proxy': setting(kinds.url(['http:', 'https:', 'h2c:']), 'http://cap-app-proxy:3017', 'URL of App-Proxy.'),
  'preset.workflows': setting(
    kinds.url(['http:', 'https:', 'h2c:']),
    'http://argo-server:2746',
    'URL of Argo Workflows.',
  ),
}

export const graceSetting = {
  grace: setting(
    kinds.grace,
    '30s',
    'How long a graceful stop waits for exchanges in flight; at most 24h. A second signal stops at once.',
  ),
}

/** Bounds of one session, the same at both ends. */
export const sessionSettings = {
  'limits.streams': setting(kinds.integer(1, 100_000), '1000', 'Most streams of one session at a time.'),
  'limits.window': setting(
    kinds.bytesFrom('1KiB', '16MiB'),
    '4MiB',
    'Largest receive window of a stream; at most 16MiB.',
  ),
  'limits.session-buffer': setting(kinds.bytesFrom('1KiB', '65536GiB'), '32MiB', 'Most unread bytes of one session.'),
  'ping.interval': setting(
    kinds.durationFrom('1s', '20s'),
    '10s',
    'How often the server pings a session. A client pings when that is overdue. Middleboxes cut connections that are quiet for longer.',
  ),
  'ping.timeout': setting(
    kinds.durationFrom('1s', '10m'),
    '15s',
    'A session is dead if nothing arrived on it for this long. Pings are sent at least every two thirds of it.',
  ),
}
