/** The values of `deploy/helm/sallyport`, once: `values.yaml`, `values.schema.json`, the README's table, and copies of other folders' files. */
import { stringify } from 'yaml'
import { COMPONENTS, type ComponentName } from '../../cli/config/components.ts'
import type { Settings } from '../../cli/config/setting.ts'
import { row, withTable } from './tables.ts'

type Schema = Readonly<Record<string, unknown>>

interface Value {
  readonly schema: Schema
  readonly default: unknown
  readonly about: string
}

/** Where the chart is. */
export const CHART = 'deploy/helm/sallyport'

/** Settings that the templates give, or for which a pod has no file and no port: no values. */
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

const value = (schema: Schema, fallback: unknown, about: string): Value => ({ schema, default: fallback, about })
const flag = (fallback: boolean, about: string) => value({ type: 'boolean' }, fallback, about)
const text = (fallback: string, about: string) => value({ type: 'string' }, fallback, about)
const choice = (words: readonly string[], fallback: string, about: string) => value({ enum: words }, fallback, about)
const whole = (minimum: number, fallback: number, about: string) => value({ type: 'integer', minimum }, fallback, about)
const list = (items: Schema, fallback: readonly unknown[], about: string) =>
  value({ type: 'array', items }, fallback, about)
/** An empty one would narrow nothing: Kubernetes takes it for everything. */
const some = (items: Schema, fallback: readonly unknown[], about: string) =>
  value({ type: 'array', items, minItems: 1 }, fallback, about)
const words = (about: string) => value({ type: 'object', additionalProperties: { type: 'string' } }, {}, about)

const TEXT = { type: 'string', minLength: 1 }
/** A URL that stands where everybody may read it. */
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

/** What each component has, below its name. */
const part = (name: ComponentName, replicas: number, grace: number, more: Readonly<Record<string, Value>>) => {
  const all: Record<string, Value> = {
    enabled: flag(false, `Whether there is a ${name}.`),
    replicas: whole(
      1,
      replicas,
      name === 'client' ? 'One is active, the others stand by.' : 'How many; with an autoscaler, the least.',
    ),
    config: value(
      settingsSchema(name),
      {},
      `Settings by flag, such as \`log.level: debug\`: [all](../../../docs/configuration.md#sallyport-${name}).`,
    ),
    ...more,
    terminationGracePeriodSeconds: whole(10, grace, 'More than `grace` and what is waited before it, by 15.'),
    mounts: list(
      object({ secret: TEXT, path: { type: 'string', pattern: '^/' } }, ['secret', 'path']),
      [],
      'Secrets to mount, for settings that are files: a list of `secret` and `path`.',
    ),
    nodeSelector: words('Labels of nodes.'),
    tolerations: list(
      object({
        key: TEXT,
        operator: { enum: ['Exists', 'Equal'] },
        value: { type: 'string' },
        effect: { enum: ['NoSchedule', 'PreferNoSchedule', 'NoExecute'] },
        tolerationSeconds: { type: 'integer' },
      }),
      [],
      'Taints of nodes that are no matter.',
    ),
    podAnnotations: words('Annotations of the pods.'),
  }
  return Object.fromEntries(Object.entries(all).map(([key, one]) => [`${name}.${key}`, one]))
}

const autoscaling = {
  'autoscaling.maxReplicas': whole(0, 0, 'The most that an autoscaler makes; 0: there is none.'),
  'autoscaling.cpu': whole(1, 70, 'CPU, in percent of the request, that it aims at.'),
}
const routes = {
  routes: list({ type: 'object' }, [], 'The route table: [what it may say](../../../docs/routes.md).'),
}
const services = {
  servicesIn: value(NAMESPACES, {}, 'Namespaces of the services that routes lead to, as a selector; empty: all.'),
}

export const VALUES: Readonly<Record<string, Value>> = {
  'image.repository': value(
    TEXT,
    'registry.example.com/sallyport',
    'An image of your own, of the Dockerfile: none is published yet.',
  ),
  'image.tag': value(TEXT, '0.1.0', 'Its tag.'),
  'image.digest': value(
    { type: 'string', pattern: '^(sha256:[0-9a-f]{64})?$' },
    '',
    'Its digest, in the place of the tag.',
  ),
  'image.pullSecrets': list(TEXT, [], 'Names of Secrets to pull it with.'),
  openshift: flag(false, 'Leaves user and group ids to the namespace.'),
  networkPolicies: flag(true, 'Whether NetworkPolicies admit what is needed alone.'),
  'monitoring.podMonitors': flag(false, "Whether there are PodMonitors (Prometheus' operator)."),
  'monitoring.rules': flag(false, 'Whether the alerts are there, as a PrometheusRule.'),
  'monitoring.dashboards': flag(false, "Whether the dashboards are there, in a ConfigMap for Grafana's sidecar."),
  'monitoring.labels': words('Labels of these, by which Prometheus and Grafana choose.'),
  ...part('server', 1, 60, {
    'tls.secret': value(
      TEXT,
      'sallyport-tls',
      'Secret with the certificate of the domain, `*.domain` and the control host (`tls.crt`, `tls.key`).',
    ),
    'tls.issuer.name': text(
      '',
      "cert-manager's issuer of that certificate; a wildcard needs DNS-01. Empty: you make the Secret.",
    ),
    'tls.issuer.kind': choice(['Issuer', 'ClusterIssuer'], 'ClusterIssuer', 'Its kind.'),
    'jwks.secret': value(TEXT, 'sallyport-jwks', 'Secret with `jwks.json`. Not used with `auth.jwks.url`.'),
    'inbox.kind': choice(['volume', 'postgresql', 'none'], 'volume', 'Where webhooks are kept while a client is away.'),
    'inbox.volume.size': value(TEXT, '6Gi', '4 GiB of webhooks at most (`inbox.bytes`), and 1 GiB that stays free.'),
    'inbox.volume.storageClass': text('', "Empty: the cluster's default."),
    'inbox.postgresql.secret': value(TEXT, 'sallyport-inbox', 'Secret with `url`, `password` and `ca.pem`.'),
    'inbox.postgresql.port': value(PORT, 5432, 'Port that the servers may reach.'),
    'inbox.postgresql.cidrs': some(
      TEXT,
      ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', 'fc00::/7'],
      'Addresses at which they may reach it.',
    ),
    'directory.redis': flag(false, 'Whether the chart brings a Redis, for several servers.'),
    'directory.image': value(TEXT, 'redis:7.4', 'Its image.'),
    'directory.url': value(WITHOUT_PASSWORD, '', 'A Redis of yours, `rediss://...`, in the place of it.'),
    'directory.ports': some(PORT, [6379], 'Ports of yours that the servers may reach.'),
    'directory.ca': flag(false, 'Whether the Secret has the authority of yours (`ca.pem`).'),
    'directory.secret': value(TEXT, 'sallyport-redis', 'Secret with its `password`.'),
    'peer.secret': value(
      TEXT,
      'sallyport-peer',
      'Secret of `sallyport certs replica`: `ca.pem`, `replica.pem`, `replica-key.pem`.',
    ),
    'service.type': choice(
      ['LoadBalancer', 'NodePort', 'ClusterIP'],
      'LoadBalancer',
      'How callers and clients come in.',
    ),
    'service.externalTrafficPolicy': choice(
      ['Local', 'Cluster'],
      'Local',
      "`Local` keeps callers' addresses as they are.",
    ),
    'service.port': value(PORT, 443, 'Its port.'),
    'service.annotations': words('For the load balancer.'),
    ...autoscaling,
    resources: resources('250m', '256Mi', '1Gi'),
  }),
  ...part('client', 2, 50, {
    ...routes,
    'token.renew': flag(
      true,
      'Whether a job renews the token. Whoever holds the signing key can speak for every runtime.',
    ),
    'token.secret': value(
      TEXT,
      'sallyport-token',
      'Without the job: a Secret that somebody keeps fresh, with `token`.',
    ),
    'token.signingKey': value(TEXT, 'sallyport-signing-key', 'Secret with `private.jwk`.'),
    'token.runtime': value(TEXT, 'demo', 'Name of the runtime.'),
    'token.audience': value(TEXT, 'sallyport', 'Audience that the server expects.'),
    'token.ttl': value(TEXT, '1h', 'How long a token lasts.'),
    'token.schedule': value(TEXT, '*/20 * * * *', 'When a new one is made.'),
    ports: list(
      PORT,
      [443],
      'Ports that it may reach outside the cluster: that of the server, or of the proxy on the way.',
    ),
    'proxy.url': value(WITHOUT_PASSWORD, '', 'An outbound proxy on the way to the server.'),
    'proxy.secret': text('', 'Secret with its `url`, if there is a password in it.'),
    'ca.secret': text('', 'Secret with the authority of the server (`ca.pem`), if it is not a public one.'),
    'inboxKey.secret': text(
      'sallyport-inbox-key',
      'Secret with `key.pem` (X25519), which opens kept webhooks. Empty: without.',
    ),
    ...services,
    resources: resources('100m', '128Mi', '512Mi'),
  }),
  ...part('router', 2, 50, {
    ...routes,
    paths: some(
      { type: 'string', pattern: '^/' },
      ['/app-proxy', '/webhooks', '/workflows'],
      'What an Ingress or HTTPRoute sends to it.',
    ),
    'ingress.host': text('', 'Host of an Ingress. Empty: there is none.'),
    'ingress.className': value(TEXT, 'nginx', 'Its class.'),
    'ingress.tlsSecret': value(TEXT, 'ingress-tls', 'Secret with its certificate.'),
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
      "ingress-nginx's words for what is in [docs/ingress.md](../../../docs/ingress.md).",
    ),
    'httpRoute.gateway': text('', 'Gateway of an HTTPRoute. Empty: there is none.'),
    'httpRoute.namespace': text('', "Its namespace. Empty: the release's."),
    'httpRoute.listener': text('', 'Its listener. Empty: all.'),
    'httpRoute.hostnames': list(TEXT, [], 'Hosts of the HTTPRoute.'),
    callersIn: value(
      SOME_NAMESPACES,
      { matchLabels: { 'kubernetes.io/metadata.name': 'ingress-nginx' } },
      'Namespaces of the ingress controller or gateway, as a selector: nobody else but a client of this chart calls the router. Labels of yours are added to the default one, unless you set that to `null`.',
    ),
    ...services,
    ...autoscaling,
    resources: resources('100m', '128Mi', '512Mi'),
  }),
}

/** What must be said of a component that is there. */
const REQUIRED: Readonly<Record<ComponentName, readonly string[]>> = {
  server: ['domain', 'control.host'],
  client: ['server'],
  router: [],
}

/** The settings by their flags. `off` must stand in quotes: without them YAML reads `false`. */
function settingsSchema(name: ComponentName): Schema {
  const settings: Settings = COMPONENTS[name]
  const own = Object.entries(settings).filter(([setting]) => !OF_TEMPLATES[name].includes(setting))
  const properties = own.map(([setting, { kind, about }]) => [
    setting,
    { description: about, ...withoutFalse(kind.schema) },
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
  // Helm fills in the defaults before it looks. What is missing then was taken away by `null`, which an empty line means.
  return { type: 'object', additionalProperties: false, properties, required: Object.keys(node) }
}

function chartSchema(): Schema {
  const required = Object.entries(REQUIRED).filter(([, settings]) => settings.length > 0)
  const allOf = required.map(([name, settings]) => ({
    if: { properties: { [name]: { properties: { enabled: { const: true } } } } },
    // biome-ignore lint/suspicious/noThenProperty: JSON Schema's word
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

/** Path to text of all that is made; `read` has the files of the checkout. */
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
    [`${CHART}/values.yaml`, `# Made by \`npm run docs\`; README.md has the same as a table.\n${valuesOf(tree(), '')}`],
    [`${CHART}/values.schema.json`, `${JSON.stringify(chartSchema(), undefined, 2)}\n`],
    [`${CHART}/README.md`, withTable(read(`${CHART}/README.md`), '## Values\n', table)],
    ...copies.map((path): [string, string] => [`${CHART}/files/${path.slice(path.lastIndexOf('/') + 1)}`, read(path)]),
  ]
}
