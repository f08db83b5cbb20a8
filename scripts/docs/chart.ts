/**
 * The values of `deploy/helm/sallyport`, from which `values.yaml`, `values.schema.json` and the README's table are generated. Also
 * copies files from other folders.
 */
import { stringify } from 'yaml'
import { COMPONENTS, type ComponentName } from '../../cli/config/components.ts'
import type { Settings } from '../../cli/config/setting.ts'
import { DNS_LABEL } from '../../protocol/base/names.ts'
import { packageVersion } from '../../protocol/base/version.ts'
import { row, withTable } from './tables.ts'

type Schema = Readonly<Record<string, unknown>>

interface Value {
  readonly schema: Schema
  readonly default: unknown
  readonly about: string
}

export const CHART = 'deploy/helm/sallyport'

/** Settings that are not chart values, because the templates set them or a pod has no file or port for them. */
export const OF_TEMPLATES: Readonly<Record<ComponentName, readonly string[]>> = {
  server: [
    ...['public.listen', 'public.tls.cert', 'public.tls.key', 'public.plaintext', 'reuse-address'],
    ...[
      'control.listen',
      'control.tls.cert',
      'control.tls.key',
      'control.plaintext',
      'auth.jwks.file',
      'health.listen',
    ],
    ...['inbox', 'inbox.password.file', 'inbox.tls.ca', 'replica', 'drain-delay'],
    ...['directory', 'directory.password.file', 'directory.tls.ca', 'peer.listen', 'peer.advertise'],
    ...['peer.tls.cert', 'peer.tls.key', 'peer.tls.ca'],
  ],
  client: ['proxy', 'token.file', 'token.command', 'ca', 'inbox.key.file', 'routes', 'health.listen'],
  router: ['listen', 'tls.cert', 'tls.key', 'routes', 'health.listen'],
}

/** What the chart says of a setting whose default its templates give. */
const ABOUT_HERE: Readonly<Record<string, string>> = {
  'public.url':
    "URL at which callers reach runtimes, with `*` for the name. Each client is told its own URL. Default: the first domain, with the Service's port.",
}

const value = (schema: Schema, fallback: unknown, about: string): Value => ({ schema, default: fallback, about })
const flag = (fallback: boolean, about: string) => value({ type: 'boolean' }, fallback, about)
const text = (fallback: string, about: string) => value({ type: 'string' }, fallback, about)
const choice = (words: readonly string[], fallback: string, about: string) => value({ enum: words }, fallback, about)
const whole = (minimum: number, fallback: number, about: string) => value({ type: 'integer', minimum }, fallback, about)
const list = (items: Schema, fallback: readonly unknown[], about: string) =>
  value({ type: 'array', items }, fallback, about)
/** At least one item, since to Kubernetes an empty list means everything. */
const some = (items: Schema, fallback: readonly unknown[], about: string) =>
  value({ type: 'array', items, minItems: 1 }, fallback, about)
const words = (about: string) => value({ type: 'object', additionalProperties: { type: 'string' } }, {}, about)

const TEXT = { type: 'string', minLength: 1 }
/** A URL that appears in the manifest, where anybody can read it. */
const WITHOUT_PASSWORD = { type: 'string', pattern: '^[^@]*$' }
const PORT = { type: 'integer', minimum: 1, maximum: 65_535 }
const object = (properties: Readonly<Record<string, Schema>>, required: readonly string[] = []): Schema => ({
  type: 'object',
  additionalProperties: false,
  properties,
  required,
})
const AMOUNTS = object({ cpu: { type: ['string', 'number'] }, memory: { type: 'string' } })
const LABELS = { type: 'object', additionalProperties: { type: 'string' } }
const NAMESPACES = object({ matchLabels: LABELS })
const SOME_NAMESPACES = object({ matchLabels: { ...LABELS, minProperties: 1 } }, ['matchLabels'])

const resources = (cpu: string, memory: string, limit: string) =>
  value(
    object({ requests: AMOUNTS, limits: AMOUNTS }),
    { requests: { cpu, memory }, limits: { memory: limit } },
    'Requests and limits.',
  )

/** The values of each component. */
const part = (name: ComponentName, replicas: number, grace: number, more: Readonly<Record<string, Value>>) => {
  const all: Record<string, Value> = {
    enabled: flag(false, `Install a ${name}.`),
    replicas: whole(
      1,
      replicas,
      name === 'client'
        ? 'One is active, the others are standbys.'
        : 'Number of replicas; with an autoscaler, the minimum.',
    ),
    config: value(
      settingsSchema(name),
      {},
      `Settings by flag, such as \`log.level: debug\`: [all](../../../docs/configuration.md#sallyport-${name}).`,
    ),
    ...more,
    terminationGracePeriodSeconds: whole(10, grace, 'At least 15 more than `grace` and the delays before it.'),
    mounts: list(
      object({ secret: TEXT, path: { type: 'string', pattern: '^/' } }, ['secret', 'path']),
      [],
      'Secrets to mount, for settings that name files: a list of `secret` and `path`.',
    ),
    nodeSelector: words('Labels of nodes to run on.'),
    tolerations: list(
      object({
        key: TEXT,
        operator: { enum: ['Exists', 'Equal'] },
        value: { type: 'string' },
        effect: { enum: ['NoSchedule', 'PreferNoSchedule', 'NoExecute'] },
        tolerationSeconds: { type: 'integer' },
      }),
      [],
      'Node taints to tolerate.',
    ),
    podAnnotations: words('Annotations of the pods.'),
  }
  return Object.fromEntries(Object.entries(all).map(([key, one]) => [`${name}.${key}`, one]))
}

const autoscaling = {
  'autoscaling.maxReplicas': whole(0, 0, 'Maximum number of replicas; 0 for no autoscaler.'),
  'autoscaling.cpu': whole(1, 70, 'Target CPU usage, in percent of the request.'),
}
const routes = {
  routes: list({ type: 'object' }, [], 'The [route table](../../../docs/routes.md).'),
}
const services = {
  servicesIn: value(NAMESPACES, {}, 'Selector for namespaces of the services that routes lead to. Empty for all.'),
}

export const VALUES: Readonly<Record<string, Value>> = {
  'image.repository': value(
    TEXT,
    'registry.example.com/sallyport',
    'Your own image, built from the Dockerfile, since none is published yet.',
  ),
  'image.tag': value(TEXT, packageVersion(), 'Its tag.'),
  'image.digest': value({ type: 'string', pattern: '^(sha256:[0-9a-f]{64})?$' }, '', 'Its digest, instead of the tag.'),
  'image.pullSecrets': list(TEXT, [], 'Names of pull Secrets.'),
  openshift: flag(false, 'Leave user and group ids to the namespace.'),
  networkPolicies: flag(true, 'Install NetworkPolicies that allow only what is needed.'),
  'monitoring.podMonitors': flag(false, 'Install PodMonitors, for the Prometheus operator.'),
  'monitoring.rules': flag(false, 'Install the alerts, as a PrometheusRule.'),
  'monitoring.dashboards': flag(false, "Install the dashboards, in a ConfigMap for Grafana's sidecar."),
  'monitoring.labels': words('Labels for these, by which Prometheus and Grafana select them.'),
  ...part('server', 1, 60, {
    'tls.secret': value(
      TEXT,
      'sallyport-tls',
      'Secret with the certificate of the domain, `*.domain` and the control host (`tls.crt`, `tls.key`).',
    ),
    'tls.issuer.name': text(
      '',
      'cert-manager issuer of that certificate. A wildcard needs DNS-01. If empty, you create the Secret.',
    ),
    'tls.issuer.kind': choice(['Issuer', 'ClusterIssuer'], 'ClusterIssuer', 'Kind of the issuer.'),
    'jwks.secret': value(TEXT, 'sallyport-jwks', 'Secret with `jwks.json`. Not used with `auth.jwks.url`.'),
    'inbox.kind': choice(
      ['volume', 'postgresql', 'none'],
      'volume',
      'Where webhooks are kept while a client is offline.',
    ),
    'inbox.volume.size': value(
      TEXT,
      '6Gi',
      'Room for at most 4 GiB of webhooks (`inbox.bytes`), and 1 GiB that stays free.',
    ),
    'inbox.volume.storageClass': text('', "Storage class. Empty for the cluster's default."),
    'inbox.postgresql.secret': value(TEXT, 'sallyport-inbox', 'Secret with `url`, `password` and `ca.pem`.'),
    'inbox.postgresql.ca': flag(
      true,
      'The Secret has the authority of PostgreSQL (`ca.pem`). `false` for a public one, or for `?sslmode=disable`.',
    ),
    'inbox.postgresql.port': value(PORT, 5432, 'Port of PostgreSQL.'),
    'inbox.postgresql.cidrs': some(
      TEXT,
      ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', 'fc00::/7'],
      'Addresses of PostgreSQL.',
    ),
    'directory.redis': flag(
      false,
      'Install a Redis, for several servers. If it and all servers stop at once, revocations are lost.',
    ),
    'directory.image': value(TEXT, 'redis:7.4', 'Image of that Redis.'),
    'directory.url': value(WITHOUT_PASSWORD, '', 'Your own Redis instead, `rediss://...`.'),
    'directory.ports': some(PORT, [6379], 'Ports of your own Redis.'),
    'directory.ca': flag(false, 'The Secret has the authority of your own Redis (`ca.pem`).'),
    'directory.secret': value(TEXT, 'sallyport-redis', 'Secret with the `password` of Redis.'),
    'peer.secret': value(
      TEXT,
      'sallyport-peer',
      'Secret of `sallyport certs replica`: `ca.pem`, `replica.pem`, `replica-key.pem`.',
    ),
    'service.type': choice(
      ['LoadBalancer', 'NodePort', 'ClusterIP'],
      'LoadBalancer',
      'Type of the Service for callers and clients.',
    ),
    'service.externalTrafficPolicy': choice(['Local', 'Cluster'], 'Local', "`Local` preserves callers' addresses."),
    'service.port': value(PORT, 443, 'Port of the Service.'),
    'service.annotations': words('Annotations for the load balancer.'),
    ...autoscaling,
    resources: resources('250m', '256Mi', '1536Mi'),
  }),
  ...part('client', 2, 50, {
    ...routes,
    'token.renew': flag(true, 'Renew the token with a job. Anybody with the signing key can act as any runtime.'),
    'token.secret': value(
      TEXT,
      'sallyport-token',
      "Without the job: a Secret with a `token` that you keep up to date. If you turn the job off, choose another name: Helm deletes the job's Secret.",
    ),
    'token.signingKey': value(TEXT, 'sallyport-signing-key', 'Secret with `private.jwk`.'),
    'token.runtime': value({ type: 'string', pattern: DNS_LABEL.source }, 'demo', 'Name of the runtime.'),
    'token.audience': value(TEXT, 'sallyport', 'Audience that the server expects.'),
    'token.ttl': value(TEXT, '1h', 'Lifetime of a token.'),
    'token.flags': list(TEXT, [], 'More flags of `sallyport token create`, such as `--host=hooks.customer.example`.'),
    'token.schedule': value(TEXT, '*/20 * * * *', 'When the token is renewed.'),
    ports: list(
      PORT,
      [443],
      'Ports that it may reach outside the cluster: that of the server or of the outbound proxy.',
    ),
    'proxy.url': value(WITHOUT_PASSWORD, '', 'An outbound proxy on the way to the server.'),
    'proxy.secret': text('', 'Secret with the `url` of the proxy, if that contains a password.'),
    'ca.secret': text('', "Secret with the authority of the server's certificate (`ca.pem`), if it is private."),
    'inboxKey.secret': text(
      'sallyport-inbox-key',
      'Secret with `key.pem` (X25519), which opens stored webhooks. Empty for none.',
    ),
    ...services,
    resources: resources('100m', '128Mi', '1Gi'),
  }),
  ...part('router', 2, 50, {
    ...routes,
    paths: some(
      { type: 'string', pattern: '^/' },
      ['/app-proxy', '/webhooks', '/workflows'],
      'Paths that an Ingress or HTTPRoute sends to it.',
    ),
    'ingress.host': text('', 'Host of an Ingress. Empty for none.'),
    'ingress.className': value(TEXT, 'nginx', 'Class of the Ingress.'),
    'ingress.tlsSecret': value(TEXT, 'ingress-tls', 'Secret with the certificate of the Ingress.'),
    'ingress.annotations': value(
      { type: 'object', additionalProperties: { type: 'string' } },
      {
        'nginx.ingress.kubernetes.io/proxy-http-version': '1.1',
        'nginx.ingress.kubernetes.io/proxy-body-size': '0',
        'nginx.ingress.kubernetes.io/proxy-request-buffering': 'off',
        'nginx.ingress.kubernetes.io/proxy-buffering': 'off',
        'nginx.ingress.kubernetes.io/proxy-read-timeout': '86400',
        'nginx.ingress.kubernetes.io/proxy-send-timeout': '86400',
      },
      'Annotations for ingress-nginx, as explained in [docs/ingress.md](../../../docs/ingress.md).',
    ),
    'httpRoute.gateway': text('', 'Gateway of an HTTPRoute. Empty for none.'),
    'httpRoute.namespace': text('', "Namespace of the gateway. Empty for the release's."),
    'httpRoute.listener': text('', 'Listener of the gateway. Empty for all.'),
    'httpRoute.hostnames': list(TEXT, [], 'Hosts of the HTTPRoute.'),
    callersIn: value(
      SOME_NAMESPACES,
      { matchLabels: { 'kubernetes.io/metadata.name': 'ingress-nginx' } },
      "Selector for namespaces of the ingress controller or gateway. Only these and this chart's client may call the router. Your labels are added to the default one, unless you set that to `null`.",
    ),
    ...services,
    ...autoscaling,
    resources: resources('100m', '128Mi', '1Gi'),
  }),
}

/** Settings that an installed component must have. */
const REQUIRED: Readonly<Record<ComponentName, readonly string[]>> = {
  server: ['domain', 'control.host'],
  client: ['server'],
  router: [],
}

/** The settings by their flags. `off` must be quoted, since YAML reads it as `false` otherwise. */
function settingsSchema(name: ComponentName): Schema {
  const settings: Settings = COMPONENTS[name]
  const own = Object.entries(settings).filter(([setting]) => !OF_TEMPLATES[name].includes(setting))
  const properties = own.map(([setting, { kind, about }]) => [
    setting,
    { description: ABOUT_HERE[setting] ?? about, ...withoutFalse(kind.schema) },
  ])
  return { type: 'object', additionalProperties: false, properties: Object.fromEntries(properties) }
}

function withoutFalse(schema: Schema): Schema {
  const { anyOf } = schema as { anyOf?: readonly { const?: unknown }[] }
  return anyOf === undefined ? schema : { ...schema, anyOf: anyOf.filter(one => one.const !== false) }
}

interface Tree {
  [key: string]: Value | Tree
}

const isValue = (node: Value | Tree): node is Value => 'about' in node && typeof node.about === 'string'

function tree(): Tree {
  const root: Tree = {}
  for (const [name, one] of Object.entries(VALUES)) {
    const keys = name.split('.')
    const last = keys.pop()!
    let at = root
    for (const key of keys) {
      at[key] ??= {}
      at = at[key] as Tree
    }
    at[last] = one
  }
  return root
}

function schemaOf(node: Value | Tree): Schema {
  if (isValue(node)) return { description: node.about, ...node.schema }
  const properties = Object.fromEntries(Object.entries(node).map(([key, inner]) => [key, schemaOf(inner)]))
  // Helm fills in defaults before it validates. A value that is missing then was removed with `null`, which an empty line also means.
  return { type: 'object', additionalProperties: false, properties, required: Object.keys(node) }
}

function chartSchema(): Schema {
  const required = Object.entries(REQUIRED).filter(([, settings]) => settings.length > 0)
  const allOf = required.map(([name, settings]) => ({
    if: { properties: { [name]: { properties: { enabled: { const: true } } } } },
    // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
    then: { properties: { [name]: { properties: { config: { required: settings } } } } },
  }))
  const root = schemaOf(tree())
  const properties = { ...(root.properties as Schema), global: { type: 'object' } }
  return { $schema: 'https://json-schema.org/draft/2020-12/schema', ...root, properties, allOf }
}

function valuesOf(node: Tree, indent: string): string {
  return Object.entries(node)
    .map(([key, inner]) => {
      if (!isValue(inner)) return `${indent}${key}:\n${valuesOf(inner, `${indent}  `)}`
      const written = stringify(inner.default, { collectionStyle: 'flow', lineWidth: 0, version: '1.1' }).trim()
      return `${indent}# ${plain(inner.about)}\n${indent}${key}: ${written}\n`
    })
    .join('')
}

const plain = (about: string) =>
  about.replaceAll(/\[([^\]]+)\]\((?:\.\.\/)*([^)]+)\)/g, (_link, words, path) =>
    path === words ? words : `${words} (${path})`,
  )

/** The generated files, path to text. `read` reads files of the checkout. */
export function chartFiles(read: (path: string) => string): [string, string][] {
  const rows = Object.entries(VALUES).map(([name, { default: fallback, about }]) =>
    row([`\`${name}\``, `\`${JSON.stringify(fallback)}\``, about]),
  )
  const table = `| value | default | what it does |\n|---|---|---|\n${rows.join('')}`
  const copies = [
    ...['rules.yaml', 'dashboard-server.json', 'dashboard-client.json', 'dashboard-inbox.json'].map(
      name => `deploy/monitoring/${name}`,
    ),
    'deploy/kubernetes/client/renew-token.mjs',
  ]
  return [
    [
      `${CHART}/values.yaml`,
      `# Generated by \`npm run docs\`. README.md has the same as a table.\n${valuesOf(tree(), '')}`,
    ],
    [`${CHART}/values.schema.json`, `${JSON.stringify(chartSchema(), undefined, 2)}\n`],
    [`${CHART}/README.md`, withTable(read(`${CHART}/README.md`), '## Values\n', table)],
    ...copies.map((path): [string, string] => [`${CHART}/files/${path.slice(path.lastIndexOf('/') + 1)}`, read(path)]),
  ]
}
