import { TRACING } from '../../protocol/trace/sampling.ts'
import * as kinds from './kinds.ts'
import { limitSettings, optional, setting } from './setting.ts'

/** Settings that every long-running component has. */
export const logSettings = {
  'log.level': setting(kinds.oneOf('debug', 'info', 'warn', 'error'), 'info', 'Lowest level to log.'),
  'log.format': setting(
    kinds.oneOf('auto', 'json', 'text'),
    'auto',
    'Format of the log on stderr. `auto` is for people on a terminal and JSON lines elsewhere.',
  ),
  'log.access': setting(
    kinds.oneOf('errors', 'all', 'off'),
    'errors',
    'Which exchanges to log: those that ended with a 5xx or were cut off (at most 100 in 10 s), all, or none. Default on a terminal: all.',
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
      'Serves only `/livez`, `/readyz` and `/metrics`, without authentication, for the kubelet and Prometheus.',
    ),
  }
}

/** Where requests go: for the client with an embedded router, and for the router service. */
export const routeSettings = {
  routes: optional(kinds.file, 'YAML file with the route table. Reloaded when it changes, without a restart.'),
  preset: optional(kinds.oneOf('gitops-runtime'), 'A built-in route table.'),
  'preset.namespaces': optional(
    kinds.list(kinds.label),
    'Namespaces whose event sources receive webhooks. Without any, webhooks are answered with 404.',
  ),
  'preset.event-sources': optional(
    kinds.list(kinds.label),
    'Event sources that receive webhooks. The router answers 404 for any other. Default: all. Empty: none.',
  ),
  'preset.cors-origin': optional(
    kinds.list(kinds.origin),
    'Origins of the UI that calls App-Proxy. They may read error answers of Sallyport.',
  ),
  'preset.cluster-domain': setting(kinds.hostName, 'cluster.local', 'DNS domain of the Kubernetes cluster.'),
  'preset.app-proxy': setting(kinds.url(['http:', 'https:', 'h2c:']), 'http://cap-app-proxy:3017', 'URL of App-Proxy.'),
  'preset.workflows': setting(
    kinds.url(['http:', 'https:', 'h2c:']),
    'http://argo-server:2746',
    'URL of Argo Workflows.',
  ),
}

export const tracingEndpoint = {
  'tracing.endpoint': optional(
    kinds.url(['http:', 'https:']),
    'Receiver of OTLP over HTTP, without `/v1/traces`. Default: `OTEL_EXPORTER_OTLP_ENDPOINT`, else `http://127.0.0.1:4318`.',
  ),
}

/** Settings of the components that take requests from anyone: server and router. */
export const tracingSettings = {
  tracing: setting(
    kinds.oneOf('off', 'otlp'),
    'off',
    "Exports traces as OTLP over HTTP. OpenTelemetry's environment variables apply to what is not set here.",
  ),
  ...tracingEndpoint,
  ...limitSettings(TRACING),
}

export const graceSetting = {
  grace: setting(
    kinds.grace,
    '30s',
    'How long a graceful stop waits for exchanges in flight; at most 24h. A second signal stops at once.',
  ),
}
