/**
 * `deploy/helm/sallyport`: what Helm 3 and 4 render from it, with each part on and off, and that this matches the
 * recipes.
 */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { COMPONENTS, type ComponentName } from '../../cli/config/components.ts'
import { environmentName, type Settings } from '../../cli/config/setting.ts'
import { CHART, OF_TEMPLATES, VALUES } from '../../scripts/docs/chart.ts'
import { PUBLIC_URL } from '../../server/public-url.ts'
import { GO_BUILD_MS, goBuild } from '../support/go.ts'
import { long, needs, program } from '../support/needs.ts'

interface Container {
  readonly name: string
  readonly args?: readonly string[]
  readonly env?: readonly { readonly name: string; readonly value?: string }[]
  readonly securityContext?: object
}

interface PodSpec {
  readonly automountServiceAccountToken?: boolean
  readonly affinity?: object
  readonly terminationGracePeriodSeconds?: number
  readonly volumes?: readonly { readonly name: string }[]
  readonly securityContext: Readonly<Record<string, unknown>>
  readonly containers: readonly Container[]
}

interface Manifest {
  readonly kind: string
  readonly metadata: { readonly name: string; readonly annotations?: Readonly<Record<string, string>> }
  readonly data?: Readonly<Record<string, string>>
  readonly spec?: {
    readonly template?: { readonly spec: PodSpec }
    readonly jobTemplate?: { readonly spec: { readonly template: { readonly spec: PodSpec } } }
    /** Of a NetworkPolicy. */
    readonly egress?: readonly Rule[]
    readonly ingress?: readonly Rule[]
  }
}

/** A list that is missing or empty admits everything. */
interface Rule {
  readonly ports?: readonly { readonly port: number | string }[] | null
  readonly to?: readonly object[] | null
  readonly from?: readonly object[] | null
}

const SERVER = {
  enabled: true,
  config: { domain: ['a.example.com', 'b.example.com'], 'control.host': 'c.example.net' },
}
const CLIENT = { enabled: true, config: { server: ['wss://c.example.net:443'], preset: 'gitops-runtime' } }
const SEVERAL = { replicas: 2, directory: { redis: true }, inbox: { kind: 'none' } }

/** Values, and the objects that they must add or remove, as `Kind/name`. */
const CASES: Readonly<Record<string, { values: object; has: readonly string[]; lacks?: readonly string[] }>> = {
  nothing: { values: {}, has: [], lacks: ['Deployment/', 'NetworkPolicy/'] },
  server: {
    values: { server: SERVER },
    has: [
      'Deployment/sallyport-server',
      'PersistentVolumeClaim/sallyport-inbox',
      'PodDisruptionBudget/sallyport-server',
    ],
    lacks: ['Deployment/sallyport-client', 'Deployment/internal-router', 'Certificate/', 'PodMonitor/'],
  },
  'several servers': {
    values: { server: { ...SERVER, ...SEVERAL } },
    has: ['Deployment/sallyport-redis', 'NetworkPolicy/sallyport-replicas', 'NetworkPolicy/sallyport-redis'],
    lacks: ['PersistentVolumeClaim/'],
  },
  'several servers with PostgreSQL, and a Redis of ours': {
    values: {
      server: {
        ...SERVER,
        autoscaling: { maxReplicas: 5 },
        directory: { url: 'rediss://redis.example.com:6380', ports: [6380, 16380], ca: true },
        inbox: { kind: 'postgresql' },
      },
    },
    has: ['HorizontalPodAutoscaler/sallyport-server', 'NetworkPolicy/sallyport-inbox'],
    lacks: ['PersistentVolumeClaim/', 'Deployment/sallyport-redis'],
  },
  "cert-manager, a key set's URL, a place for pods": {
    values: {
      image: { digest: `sha256:${'0'.repeat(64)}`, pullSecrets: ['one', 'two'] },
      server: {
        ...SERVER,
        config: { ...SERVER.config, 'auth.jwks.url': 'https://keys.example.com/jwks', 'inbox.bytes': 4294967296 },
        tls: { issuer: { name: 'letsencrypt' } },
        service: { type: 'ClusterIP', annotations: { a: 'b' } },
        mounts: [{ secret: 'more', path: '/more' }],
        nodeSelector: { disk: 'fast' },
        tolerations: [{ key: 'k', operator: 'Exists', effect: 'NoSchedule' }],
        podAnnotations: { c: 'd' },
      },
    },
    has: ['Certificate/sallyport-server'],
  },
  client: {
    values: { client: CLIENT },
    has: ['Deployment/sallyport-client', 'CronJob/sallyport-token', 'Role/sallyport-token', 'Secret/sallyport-token'],
    lacks: ['Deployment/sallyport-server', 'Service/'],
  },
  'a client with a token of somebody else, a private authority and routes': {
    values: {
      client: {
        ...CLIENT,
        config: { server: CLIENT.config.server },
        routes: [{ name: 'app', match: { path: '/' }, target: 'http://app:80' }],
        token: { renew: false, secret: 'theirs' },
        ca: { secret: 'sallyport-ca' },
        proxy: { secret: 'proxy' },
        ports: [3128],
        inboxKey: { secret: '' },
        servicesIn: { matchLabels: { 'kubernetes.io/metadata.name': 'apps' } },
      },
    },
    has: ['ConfigMap/sallyport-client-routes'],
    lacks: ['CronJob/', 'Role/', 'Secret/'],
  },
  'a client that needs no port outside the cluster': {
    values: { client: { ...CLIENT, ports: [] } },
    has: ['NetworkPolicy/sallyport-client'],
  },
  'a router behind an Ingress and a Gateway': {
    values: {
      router: {
        enabled: true,
        routes: [{ name: 'app', match: { path: '/' }, target: 'http://app:80' }],
        autoscaling: { maxReplicas: 4 },
        ingress: { host: 'ingress.example.com' },
        httpRoute: { gateway: 'front', namespace: 'edge', listener: 'https', hostnames: ['ingress.example.com'] },
      },
    },
    has: ['Ingress/internal-router', 'HTTPRoute/internal-router', 'HorizontalPodAutoscaler/internal-router'],
    lacks: ['Deployment/sallyport-client'],
  },
  'all, on OpenShift and watched': {
    values: {
      openshift: true,
      server: { ...SERVER, ...SEVERAL },
      client: CLIENT,
      router: { enabled: true },
      monitoring: { podMonitors: true, rules: true, dashboards: true, labels: { release: 'prometheus' } },
    },
    has: [
      ...['PodMonitor/sallyport-server', 'PodMonitor/sallyport-client', 'PodMonitor/sallyport-router'],
      ...['PrometheusRule/sallyport', 'ConfigMap/sallyport-dashboards'],
    ],
  },
  'without NetworkPolicies': {
    values: { networkPolicies: false, server: { ...SERVER, ...SEVERAL }, client: CLIENT, router: { enabled: true } },
    has: ['Deployment/internal-router'],
    lacks: ['NetworkPolicy/'],
  },
}

/** Values that must be refused, and the message. */
const MISTAKES: readonly (readonly [object, string])[] = [
  [{ server: { enabled: true } }, 'domain'],
  [{ server: { ...SERVER, config: { domain: ['a.example.com'] } } }, 'control.host'],
  [{ client: { enabled: true } }, 'server'],
  [{ client: { ...CLIENT, proxy: { url: 'http://me:secret@proxy:3128' } } }, 'proxy'],
  [{ server: { ...SERVER, ...SEVERAL, directory: { url: 'rediss://:secret@redis:6379' } } }, 'url'],
  [{ server: { ...SERVER, config: { ...SERVER.config, 'log.levle': 'debug' } } }, 'log.levle'],
  [{ server: { ...SERVER, config: { ...SERVER.config, 'log.level': 'loud' } } }, 'log.level'],
  [{ server: { ...SERVER, config: { ...SERVER.config, 'admin.listen': false } } }, 'admin.listen'],
  [{ server: { ...SERVER, config: { ...SERVER.config, 'public.listen': '0.0.0.0:1' } } }, 'public.listen'],
  [{ sever: SERVER }, 'sever'],
  [{ client: { ...CLIENT, token: { runtme: 'demo' } } }, 'runtme'],
  [{ networkPolicies: null }, 'networkPolicies'],
  [{ server: { ...SERVER, inbox: { kind: null } } }, 'kind'],
  [{ client: { ...CLIENT, config: null } }, 'config'],
  [{ router: { enabled: true, callersIn: { matchLabels: null } } }, 'matchLabels'],
  [{ router: { enabled: true, callersIn: { matchLabels: { 'kubernetes.io/metadata.name': null } } } }, 'matchLabels'],
  [{ router: { enabled: true, paths: [] } }, 'paths'],
  [{ router: { enabled: true, autoscaling: { maxReplicas: 1 } } }, 'maxReplicas: less than replicas'],
  [{ server: { ...SERVER, inbox: { kind: 'postgresql', postgresql: { cidrs: [] } } } }, 'cidrs'],
  [{ server: { ...SERVER, ...SEVERAL, directory: { url: 'rediss://redis:6379', ports: [] } } }, 'ports'],
  [{ server: { ...SERVER, ...SEVERAL, directory: { url: 'rediss://redis:6379', redis: true } } }, 'redis or url'],
  [{ server: { ...SERVER, replicas: 2 } }, 'server.directory.redis'],
  [{ server: { ...SERVER, replicas: 2, directory: { redis: true } } }, 'say postgresql or none'],
  [{ server: { ...SERVER, config: { ...SERVER.config, grace: '120s' } } }, 'server.terminationGracePeriodSeconds'],
  [{ server: { ...SERVER, terminationGracePeriodSeconds: 30 } }, 'server.terminationGracePeriodSeconds'],
  [{ client: { ...CLIENT, config: { ...CLIENT.config, grace: '1h' } } }, 'client.terminationGracePeriodSeconds'],
  [{ router: { enabled: true, config: { grace: '35001ms' } } }, 'router.terminationGracePeriodSeconds'],
  [{ server: { ...SERVER, mounts: [{ secret: 'more', path: '/tls/' }] } }, 'server.mounts: /tls is taken'],
  [{ client: { ...CLIENT, mounts: [1, 2].map(() => ({ secret: 'more', path: '/more' })) } }, 'client.mounts: /more is'],
]

const folder = mkdtempSync(join(tmpdir(), 'sallyport-chart-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

function helm(name: 'helm' | 'helm3', ...words: string[]): string {
  const home = join(folder, 'home')
  const env = {
    PATH: process.env.PATH!,
    HOME: home,
    HELM_CACHE_HOME: home,
    HELM_CONFIG_HOME: home,
    HELM_DATA_HOME: home,
  }
  return execFileSync(program(name), words, { encoding: 'utf8', stdio: 'pipe', env })
}

function withValues(values: object): string[] {
  const file = join(folder, 'values.json')
  writeFileSync(file, JSON.stringify(values))
  return ['--values', file]
}

const render = (name: 'helm' | 'helm3', values: object, ...more: string[]) =>
  helm(
    name,
    'template',
    'sallyport',
    CHART,
    '--namespace',
    'sallyport',
    '--kube-version',
    '1.31.0',
    ...withValues(values),
    ...more,
  )

const read = (text: string) =>
  parseAllDocuments(text)
    .map(document => document.toJS() as Manifest | null)
    .filter(manifest => manifest !== null)

const ODD = 'yes # "a: b", }'

/** `ODD` in all free-text values, with as much switched on as can be combined. */
function oddValues(more: object): object {
  const values = structuredClone(more)
  for (const [name, { schema }] of Object.entries(VALUES)) {
    const isFree = schema.type === 'string' && schema.pattern === undefined
    if (isFree) put(values, name.split('.'), `${ODD} ${name}`)
  }
  return values
}

function put(object: object, [key, ...rest]: readonly string[], value: unknown): void {
  const at = object as Record<string, object>
  at[key!] ??= rest.length === 0 ? (value as object) : {}
  if (rest.length > 0) put(at[key!]!, rest, value)
}

function textsOf(value: unknown): string[] {
  if (typeof value === 'string') return [value]
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(textsOf) : []
}

const podOf = ({ kind, spec }: Manifest) =>
  kind === 'Pod' ? (spec as unknown as PodSpec) : (spec?.jobTemplate?.spec.template ?? spec?.template)?.spec

test('the chart has the version of the package, and so does its image', () => {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'))
  const chart = parse(readFileSync(`${CHART}/Chart.yaml`, 'utf8'))
  expect([chart.version, chart.appVersion, VALUES['image.tag']!.default]).toEqual([version, version, version])
})

test('no value may be empty (`null`), which would remove its default', () => {
  const schema = JSON.parse(readFileSync(`${CHART}/values.schema.json`, 'utf8'))
  for (const name of Object.keys(VALUES)) {
    let at = schema
    for (const key of name.split('.')) {
      expect(at.required, name).toContain(key)
      at = at.properties[key]
    }
  }
})

test.each(Object.entries(OF_TEMPLATES))('what is not a value of the %s is a setting', (component, names) => {
  const settings: Settings = COMPONENTS[component as ComponentName]
  expect(names.filter(name => settings[name] === undefined)).toEqual([])
})

describe.each(['helm', 'helm3'] as const)('%s', name => {
  describe.runIf(needs(name))('renders the chart', () => {
    test.each(Object.entries(CASES))('%s', (_case, { values, has, lacks = [] }) => {
      helm(name, 'lint', '--strict', CHART, ...withValues(values))
      const manifests = read(render(name, values))
      const made = manifests.map(({ kind, metadata }) => `${kind}/${metadata.name}`)
      expect(made).toEqual(expect.arrayContaining([...has]))
      expect(made.filter(one => lacks.some(start => one.startsWith(start)))).toEqual([])
      expect(new Set(made).size).toBe(made.length)
      for (const manifest of manifests) {
        const pod = podOf(manifest)
        if (pod) expectRestricted(pod, 'openshift' in values)
        if (manifest.kind === 'NetworkPolicy') expectNarrow(manifest)
        if (manifest.kind === 'PodDisruptionBudget') expect(manifest.spec).toMatchObject({ maxUnavailable: 1 })
      }
    })

    test.each([
      [['a.example.com'], 'c.example.net', ['a.example.com', 'c.example.net', '*.a.example.com']],
      [['a.example.com'], 'c.a.example.com', ['a.example.com', '*.a.example.com']],
      [
        'a.example.com, B.a.example.com.',
        'd.b.a.example.com',
        ['a.example.com', '*.a.example.com', '*.b.a.example.com'],
      ],
    ])('a certificate has no name that one of its wildcards covers: %j, %s', (domain, control, names) => {
      const server = { enabled: true, config: { domain, 'control.host': control }, tls: { issuer: { name: 'acme' } } }
      const certificate = read(render(name, { server })).find(({ kind }) => kind === 'Certificate')
      expect(certificate!.spec).toMatchObject({ dnsNames: names })
    })

    test('and each setting that it passes is one that the component knows, and not a value', () => {
      for (const { values } of Object.values(CASES)) {
        for (const manifest of read(render(name, values))) {
          const [container] = podOf(manifest)?.containers ?? []
          if (!container || !(container.name in COMPONENTS)) continue
          const given = container.env!.map(one => one.name).filter(one => one.startsWith('SALLYPORT_'))
          const own = OF_TEMPLATES[container.name as ComponentName].map(environmentName)
          expect(given.filter(one => !own.includes(one))).toEqual([])
        }
      }
    })

    test.each(Object.entries(CASES))('helm test checks each component with its own files: %s', (_case, { values }) => {
      const manifests = read(render(name, values))
      const deployed = manifests.filter(({ kind }) => kind === 'Deployment').map(manifest => podOf(manifest)!)
      const components = deployed.filter(({ containers }) => containers[0]!.name in COMPONENTS)
      const checks = manifests.filter(({ kind }) => kind === 'Pod')
      expect(checks).toHaveLength(components.length)
      for (const { metadata, ...check } of checks) {
        expect(metadata.annotations).toMatchObject({ 'helm.sh/hook': 'test' })
        const pod = podOf(check as Manifest)!
        const { args, ...given } = pod.containers[0]!
        const component = components.find(({ containers }) => containers[0]!.name === given.name)!
        const seconds = component.terminationGracePeriodSeconds
        expect(args).toEqual(['check', given.name, '--termination-grace', `${seconds}s`])
        // Including its image, mounts and security.
        expect(component.containers[0]).toMatchObject(given)
        expect(component.volumes).toEqual(pod.volumes)
        expect(component.securityContext).toEqual(pod.securityContext)
        expect(pod.automountServiceAccountToken).toBe(false)
        const hasVolume = JSON.stringify(pod.volumes).includes('persistentVolumeClaim')
        expect(pod.affinity !== undefined).toBe(hasVolume)
      }
    })

    test('numbers and lists reach the component in the form that it reads', () => {
      const config = { ...SERVER.config, 'inbox.bytes': 4294967296, 'hold.time': '5s' }
      const map = read(render(name, { server: { enabled: true, config } })).find(({ kind }) => kind === 'ConfigMap')
      expect(map!.data).toEqual({
        SALLYPORT_DOMAIN: 'a.example.com,b.example.com',
        SALLYPORT_CONTROL_HOST: 'c.example.net',
        SALLYPORT_PUBLIC_URL: 'https://*.a.example.com',
        SALLYPORT_INBOX_BYTES: '4294967296',
        SALLYPORT_HOLD_TIME: '5s',
      })
    })

    test.each<[given: { service?: object; config?: object }, url: string]>([
      [{}, 'https://*.a.example.com'],
      [{ service: { port: 9443 } }, 'https://*.a.example.com:9443'],
      [{ config: { domain: 'my_zone.example.com., b.example.com' } }, 'https://*.my_zone.example.com'],
      [{ service: { port: 9443 }, config: { 'public.url': 'https://*.b.example.com' } }, 'https://*.b.example.com'],
    ])("clients are told the Service's port, not the container's: %j", (given, url) => {
      const server = { ...SERVER, ...given, config: { ...SERVER.config, ...given.config } }
      const manifests = read(render(name, { server }))
      expect(manifests.find(({ kind }) => kind === 'ConfigMap')!.data!.SALLYPORT_PUBLIC_URL).toBe(url)
      expect(url).toMatch(PUBLIC_URL)
    })

    test('a key set from a URL needs no Secret, and its port is allowed', () => {
      const url = { ...SERVER.config, 'auth.jwks.url': 'https://keys.example.com/jwks' }
      const [file, fetched] = [SERVER.config, url].map(config => render(name, { server: { ...SERVER, config } }))
      expect([file!.includes('sallyport-jwks'), file!.includes('port: 443 }]')]).toEqual([true, false])
      expect([fetched!.includes('sallyport-jwks'), fetched!.includes('port: 443 }]')]).toEqual([false, true])
      expect(fetched).not.toContain('SALLYPORT_AUTH_JWKS_FILE')
    })

    test('an inbox in PostgreSQL needs no authority of its own', () => {
      const texts = [true, false].map(ca => {
        const inbox = { kind: 'postgresql', postgresql: { ca } }
        return render(name, { server: { ...SERVER, inbox } })
      })
      for (const part of ['SALLYPORT_INBOX_TLS_CA', 'ca.pem'])
        expect(texts.map(text => text.includes(part))).toEqual([true, false])
      expect(texts[1]).toContain('SALLYPORT_INBOX_PASSWORD_FILE')
    })

    test('servers may reach each URL in their settings, at its port', () => {
      const settings: Settings = COMPONENTS.server
      // What callers use is not fetched.
      const fetched = Object.keys(settings).filter(
        setting => settings[setting]!.kind.schema.format === 'uri' && !/^public\.|^directory$/.test(setting),
      )
      expect(fetched).toEqual(expect.arrayContaining(['access.forward-auth.url', 'tracing.endpoint']))
      const urls = fetched.map((setting, i) => [setting, `https://a.example.com:${9000 + i}/path?a=b:1`])
      const config = { ...SERVER.config, ...Object.fromEntries(urls) }
      const policy = (given: object) =>
        read(render(name, { server: { enabled: true, config: given } })).find(({ kind }) => kind === 'NetworkPolicy')!
      const ports = (given: object) => policy(given).spec!.egress!.flatMap(rule => rule.ports!.map(({ port }) => port))
      expect(ports(config).sort()).toEqual([53, 53, ...fetched.map((_, i) => 9000 + i)])
      const usual = { 'auth.jwks.url': 'https://[::1]/a', 'access.forward-auth.url': 'http://auth.svc/' }
      expect(ports({ ...SERVER.config, ...usual, 'tracing.endpoint': 'http://[::1]:4318' })).toEqual([
        53, 53, 443, 80, 4318,
      ])
    })

    test('text stays text, whatever YAML makes of it', () => {
      const postgresql = { kind: 'postgresql' }
      const renders = [
        { server: { ...SERVER, directory: { redis: true, url: '' }, inbox: postgresql }, client: CLIENT },
        { server: SERVER, client: { ...CLIENT, token: { renew: false } }, router: { enabled: true } },
      ].map(values => textsOf(read(render(name, oddValues(values)))))
      const names = Object.entries(VALUES).flatMap(([value, { schema }]) =>
        schema.type === 'string' && schema.pattern === undefined ? [value] : [],
      )
      const missing = names.filter(value => !renders.flat().some(text => text.includes(`${ODD} ${value}`)))
      expect(missing).toEqual([])
    })

    test('a long grace is a whole number', () => {
      const text = render(name, { server: { ...SERVER, terminationGracePeriodSeconds: 1_000_000 } })
      expect(text).toMatch(/terminationGracePeriodSeconds: 1000000$/m)
      expect(text).toContain('--termination-grace, 1000000s')
    })

    test('Secrets are mounted whatever their names', () => {
      const secrets = ['tls', 'more', 'more', 'my.secret', 'a'.repeat(80)]
      const mounts = secrets.map((secret, i) => ({ secret, path: `/more/${i}` }))
      const pods = read(render(name, { server: { ...SERVER, mounts } })).flatMap(manifest => podOf(manifest) ?? [])
      for (const { volumes } of pods) {
        const names = volumes!.map(volume => volume.name)
        expect(new Set(names).size).toBe(names.length)
        expect(names.filter(one => !/^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/.test(one))).toEqual([])
        expect(textsOf(volumes)).toEqual(expect.arrayContaining(secrets))
      }
      expect(pods).toHaveLength(2)
    })

    test("an inbox's volume outlives its release", () => {
      const claim = read(render(name, { server: SERVER })).find(({ kind }) => kind === 'PersistentVolumeClaim')
      expect(claim!.metadata.annotations).toEqual({ 'helm.sh/resource-policy': 'keep' })
    })

    test.each(MISTAKES)('but not %j', (values, word) => {
      expect(() => render(name, values)).toThrow(word)
    })

    test("the README's values", () => {
      const blocks = [...readFileSync(`${CHART}/README.md`, 'utf8').matchAll(/```yaml\n(.*?)```/gs)]
      expect(blocks).toHaveLength(2)
      for (const [, block] of blocks) helm(name, 'lint', '--strict', CHART, ...withValues(parse(block!)))
    })
  })
})

/** As the `restricted` pod security requires; on OpenShift without ids, which the namespace assigns. */
function expectRestricted(pod: PodSpec, openshift: boolean): void {
  expect(pod.securityContext).toMatchObject({ runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } })
  expect('runAsUser' in pod.securityContext || 'fsGroup' in pod.securityContext).toBe(!openshift)
  for (const { securityContext } of pod.containers)
    expect(securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    })
}

/** No rule admits everything. */
function expectNarrow({ metadata, spec }: Manifest): void {
  for (const { ports, to, from } of [...(spec?.egress ?? []), ...(spec?.ingress ?? [])]) {
    const narrows = [ports, to, from].filter(one => one !== undefined)
    expect(narrows.length, metadata.name).toBeGreaterThan(0)
    for (const one of narrows) expect(one ?? [], metadata.name).not.toEqual([])
  }
}

// They are some 100 MB of sources to fetch and compile.
describe.runIf(long && needs('new-go', 'helm'))('Kubernetes', () => {
  const strict = join(folder, 'strict')
  const objects = (...paths: string[]) =>
    new Map(
      execFileSync(strict, paths, { encoding: 'utf8', stdio: 'pipe', maxBuffer: 2 ** 26 })
        .trim()
        .split('\n')
        .map(line => {
          const [, name, json] = / (\w+\/\S+) (\{.*)$/.exec(line)!
          return [name!.replace(HASH, ''), known(json!)] as const
        }),
    )

  beforeAll(() => goBuild(resolve('test/deploy/strict'), strict), GO_BUILD_MS)

  test.each(Object.entries(CASES))('decodes strictly: %s', (_case, { values, has }) => {
    if (has.length === 0) return
    const file = join(folder, 'rendered.yaml')
    writeFileSync(file, render('helm', values))
    expect([...objects(file).keys()]).toEqual(expect.arrayContaining([...has]))
  })

  const several = { directory: { redis: true } }
  test.each([
    ['server', { server: { enabled: true } }],
    ['server-replicas', { server: { enabled: true, replicas: 2, ...several, inbox: { kind: 'none' } } }],
    ['server-replicas-inbox', { server: { enabled: true, replicas: 2, ...several, inbox: { kind: 'postgresql' } } }],
    ['client', { client: { enabled: true } }],
    ['router', { router: { enabled: true } }],
  ] as const)('gets the same from the chart as from deploy/kubernetes/%s', (name, values) => {
    const [component] = Object.keys(values) as [ComponentName]
    const file = join(folder, 'rendered.yaml')
    // The chart has this one by default.
    const { 'public.url': _, ...config } = configOf(component)
    const given = { ...Object.values(values)[0], config }
    // Only the chart has what `helm test` creates.
    writeFileSync(file, render('helm', { [component]: given }, '--skip-tests'))
    const volume = name === 'server' ? ['deploy/kubernetes/inbox.yaml'] : []
    expect(objects(file)).toEqual(objects(`deploy/kubernetes/${name}`, ...volume))
  })

  test('gets the same from the chart as from deploy/ingress', () => {
    const file = join(folder, 'rendered.yaml')
    const host = 'ingress.example.com'
    const httpRoute = { gateway: 'internal-router', listener: 'https', hostnames: [host] }
    writeFileSync(file, render('helm', { router: { enabled: true, ingress: { host }, httpRoute } }))
    const chart = objects(file)
    const recipes = objects('deploy/ingress/ingress.yaml', 'deploy/ingress/gateway.yaml')
    for (const name of ['Ingress/internal-router', 'HTTPRoute/internal-router'])
      expect(chart.get(name)).toEqual(recipes.get(name))
  })
})

/** What `kubectl apply -k` appends to the names of ConfigMaps. */
const HASH = /(?<=^ConfigMap\/\S+)-[2-9bcdfghkmt]{10}$/

/** The settings that a recipe's first lines ask you to edit. */
function configOf(component: ComponentName): Record<string, string> {
  const { configMapGenerator } = parse(readFileSync(`deploy/kubernetes/${component}/kustomization.yaml`, 'utf8')) as {
    configMapGenerator: { name: string; literals: string[] }[]
  }
  const { literals } = configMapGenerator.find(({ name }) => name === `sallyport-${component}`)!
  const names = new Map(Object.keys(COMPONENTS[component]).map(name => [environmentName(name), name]))
  return Object.fromEntries(
    literals.map(literal => {
      const [variable, value] = literal.split(/=(.*)/s)
      return [names.get(variable!)!, value!]
    }),
  )
}

/** An object without what depends on how it was made: Helm's labels, the namespace, hashes in names; lists by name. */
function known(json: string): unknown {
  const plain = json.replaceAll(/("sallyport-[a-z-]+?)-[2-9bcdfghkmt]{10}"/g, '$1"')
  return JSON.parse(plain, (key, value) => {
    if (key === 'checksum/settings' || /^helm\.sh|managed-by$|instance$/.test(key)) return undefined
    if ((key === 'labels' || key === 'annotations') && Object.keys(value).length === 0) return undefined
    if (key === 'metadata') delete value.namespace
    if (Array.isArray(value) && value.every(one => typeof one?.name === 'string'))
      return value.sort((a, b) => (a.name < b.name ? -1 : 1))
    return value
  })
}
