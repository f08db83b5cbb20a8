/** What the manifests promise: probes, budgets, graces that fit, policies; and that Kubernetes would accept them. */
import { execFileSync } from 'node:child_process'
import { globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { describe, expect, test } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { COMPONENTS, type ComponentName } from '../../cli/config/components.ts'
import * as kinds from '../../cli/config/kinds.ts'
import { environmentName } from '../../cli/config/setting.ts'
import { formatAddress, type HostPort, readDialled } from '../../protocol/base/host-port.ts'
import { readPostgresUrl } from '../../server/inbox/postgres-url.ts'
import { long, needs, program } from '../support/needs.ts'

const ROOT = resolve(import.meta.dirname, '../..')
const FOLDERS = ['server', 'server-replicas', 'server-replicas-inbox', 'client', 'router'].map(
  name => `deploy/kubernetes/${name}`,
)

interface Variable {
  readonly name: string
  readonly value?: string
  readonly valueFrom?: object
}

interface Manifest {
  readonly kind: string
  readonly metadata: { readonly name: string }
  readonly spec: {
    readonly replicas?: number
    readonly selector?: { readonly matchLabels: Record<string, string> }
    readonly podSelector?: { readonly matchLabels: Record<string, string> }
    readonly strategy?: { readonly type: string; readonly rollingUpdate?: Record<string, number> }
    readonly template?: { readonly spec: Pod }
  }
}

interface Pod {
  readonly terminationGracePeriodSeconds: number
  readonly enableServiceLinks: boolean
  readonly containers: readonly {
    readonly args?: readonly string[]
    readonly env?: readonly Variable[]
    readonly readinessProbe?: object
    readonly livenessProbe?: object
    readonly lifecycle?: { readonly preStop: { readonly sleep: { readonly seconds: number } } }
  }[]
}

interface Kustomization {
  readonly configMapGenerator?: readonly { readonly name: string; readonly literals?: readonly string[] }[]
}

const files = globSync('deploy/kubernetes/**/*.yaml', { cwd: ROOT })
const read = (file: string) =>
  parseAllDocuments(readFileSync(resolve(ROOT, file), 'utf8')).map(document => document.toJS() as Manifest)
const manifests = files.filter(file => !file.endsWith('kustomization.yaml')).flatMap(read)
const whole = manifests.filter(({ spec }) => spec?.selector !== undefined || spec?.podSelector !== undefined)
const named = (kind: string) => whole.filter(manifest => manifest.kind === kind)
/** Those that run our command. */
const ours = named('Deployment').filter(
  ({ spec }) => (spec.template!.spec.containers[0]!.args?.[0] ?? '') in COMPONENTS,
)
const nameAndManifest = ours.map(manifest => [manifest.metadata.name, manifest] as const)

const GRACE_S = 30

const PATCH = 'deploy/kubernetes/server-replicas/replicas.patch.yaml'
const server = ours.find(({ metadata }) => metadata.name === 'sallyport-server')!
/** With the server alone, and as one of several. */
const deployments = [...ours, merge(server, read(PATCH)[0]!)].sort((a, b) =>
  a.metadata.name < b.metadata.name ? -1 : 1,
)

/** As `kubectl` merges what we have: objects by key, lists by the names in them; null removes. */
function merge<T>(whole: T, patch: T): T {
  if (Array.isArray(whole) && Array.isArray(patch)) {
    const names = patch.map(({ name }) => name)
    const kept = whole.filter(({ name }) => !names.includes(name))
    return [...kept, ...patch.map(one => merge(whole.find(({ name }) => name === one.name) ?? one, one))] as T
  }
  if (typeof whole !== 'object' || whole === null) return patch
  const merged = { ...whole } as Record<string, unknown>
  for (const [key, value] of Object.entries(patch as object)) {
    if (value === null) delete merged[key]
    else merged[key] = merge(merged[key] ?? value, value)
  }
  return merged as T
}

/** The delay before it stops serving. */
function delayOf({ lifecycle, env }: Pod['containers'][number]): number {
  const delay = env?.find(({ name }) => name === 'SALLYPORT_DRAIN_DELAY')?.value ?? '0s'
  return (lifecycle?.preStop.sleep.seconds ?? 0) + Number.parseInt(delay, 10)
}

describe('each component', () => {
  test('exists', () => {
    expect(nameAndManifest.map(([name]) => name).sort()).toEqual([
      'internal-router',
      'sallyport-client',
      'sallyport-server',
    ])
  })

  test.each(nameAndManifest)('%s has probes, and enough time to end', (_name, { spec }) => {
    const pod = spec.template!.spec
    const [container] = pod.containers
    expect(container!.readinessProbe).toMatchObject({ httpGet: { path: '/readyz', port: 'health' } })
    expect(container!.livenessProbe).toMatchObject({ httpGet: { path: '/livez', port: 'health' } })
    expect(pod.enableServiceLinks).toBe(false)
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(delayOf(container!) + GRACE_S + 5)
  })

  test('K1 anything with several replicas is updated without a gap', () => {
    const several = deployments.filter(({ spec }) => spec.replicas! > 1)
    expect(several.map(({ metadata }) => metadata.name)).toEqual([
      'internal-router',
      'sallyport-client',
      'sallyport-server',
    ])
    for (const { spec } of several) {
      expect(spec.strategy).toEqual({ type: 'RollingUpdate', rollingUpdate: { maxUnavailable: 0, maxSurge: 1 } })
      expect(delayOf(spec.template!.spec.containers[0]!)).toBeGreaterThan(0)
    }
  })

  test('K1 anything with one replica is stopped before the next one starts', () => {
    const alone = deployments.filter(({ spec }) => spec.replicas === 1)
    expect(alone.map(({ metadata }) => metadata.name)).toEqual(['sallyport-server'])
    for (const { spec } of alone) {
      expect(spec.strategy).toEqual({ type: 'Recreate' })
      expect(delayOf(spec.template!.spec.containers[0]!)).toBe(0)
    }
  })

  test.each(['10.0.0.9', 'fd00::9'])('K1 a replica says where %s is dialled', ip => {
    const server = deployments.find(({ metadata, spec }) => metadata.name === 'sallyport-server' && spec.replicas === 2)
    const { env } = server!.spec.template!.spec.containers[0]!
    const value = env!.find(({ name }) => name === 'SALLYPORT_PEER_ADVERTISE')!.value!.replace('$(POD_IP)', ip)
    expect(readDialled(formatAddress(kinds.address.read(value) as HostPort))).toEqual({
      host: ip,
      port: 8444,
    })
  })

  test('replicas share an inbox whose URL is in a Secret', () => {
    const folder = 'deploy/kubernetes/server-replicas-inbox'
    const replicas = merge(server, read(PATCH)[0]!)
    const { env } = merge(replicas, read(`${folder}/inbox.patch.yaml`)[0]!).spec.template!.spec.containers[0]!
    expect(env!.filter(({ name }) => name === 'SALLYPORT_INBOX')).toEqual([
      { name: 'SALLYPORT_INBOX', valueFrom: { secretKeyRef: { name: 'sallyport-inbox', key: 'url' } } },
    ])
    // Those that its first lines tell you to create are read as the server reads them.
    const text = readFileSync(resolve(ROOT, folder, 'kustomization.yaml'), 'utf8')
    const url = /--from-literal=url=(\S+)/.exec(text)![1]!
    const { port, tls } = readPostgresUrl(url)
    expect(tls).toBe(true)
    const [policy] = read(`${folder}/policy.yaml`) as unknown as [{ spec: { egress: object[] } }]
    expect(policy.spec.egress).toEqual([{ ports: [{ port }], to: expect.any(Array) }])
  })

  test('K1 none deletes the namespace of the others with itself, nor the webhooks that wait', () => {
    const parts = files.filter(file => dirname(file) !== 'deploy/kubernetes')
    expect(parts.flatMap(read).filter(({ kind }) => /^(Namespace|PersistentVolumeClaim)$/.test(kind))).toEqual([])
  })

  // With `minAvailable: 1`, a single pod could never be evicted, and its node never drained.
  test.each(nameAndManifest)('%s has a disruption budget and a network policy', (_name, { spec }) => {
    const labels = spec.selector!.matchLabels
    const budgets = named('PodDisruptionBudget').map(budget => budget.spec)
    expect(budgets).toContainEqual({ maxUnavailable: 1, selector: { matchLabels: labels } })
    expect(named('NetworkPolicy').map(policy => policy.spec.podSelector!.matchLabels)).toContainEqual(labels)
  })
})

interface Policy {
  readonly spec: {
    readonly ingress?: readonly { readonly from?: object[]; readonly ports: readonly { port: unknown }[] }[]
    readonly egress?: readonly { readonly to?: object[]; readonly ports?: readonly { port: unknown }[] }[]
  }
}

describe('policies', () => {
  const policy = (name: string) => named('NetworkPolicy').find(({ metadata }) => metadata.name === name) as Policy

  test('K1 everyone who can call the router is trusted to name callers', () => {
    const http = policy('internal-router').spec.ingress!.find(({ ports }) => ports[0]!.port === 'http')
    expect(http!.from).toEqual([
      { namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'ingress-nginx' } } },
      { podSelector: { matchLabels: { 'app.kubernetes.io/name': 'sallyport-client' } } },
    ])
  })

  test('K1 a server whose keys are files may reach only DNS', () => {
    const ports = policy('sallyport-server').spec.egress!.flatMap(({ ports = [] }) => ports.map(({ port }) => port))
    expect([...new Set(ports)]).toEqual([53])
  })
})

describe('every setting is one that the command knows', () => {
  const known = (component: ComponentName) => new Set(Object.keys(COMPONENTS[component]).map(environmentName))

  const inPods = manifests.flatMap(({ kind, spec }) =>
    kind === 'Deployment' ? spec.template!.spec.containers.flatMap(({ env = [] }) => env.map(({ name }) => name)) : [],
  )
  const inMaps = files
    .filter(file => file.endsWith('kustomization.yaml'))
    .flatMap(file =>
      (read(file) as unknown as Kustomization[]).flatMap(({ configMapGenerator = [] }) => configMapGenerator),
    )
    .flatMap(({ literals = [] }) => literals.map(literal => literal.split('=', 1)[0]!))
  const names = [...new Set([...inPods, ...inMaps])].filter(name => name.startsWith('SALLYPORT_'))

  test('there are some', () => {
    expect(names.length).toBeGreaterThan(15)
  })

  test.each(names)('%s', name => {
    const all = (Object.keys(COMPONENTS) as ComponentName[]).flatMap(component => [...known(component)])
    expect(all).toContain(name)
  })
})

/** What the published types ask for; Debian 12 has 1.19. */
function isGoRecent(): boolean {
  const version = execFileSync(program('go'), ['env', 'GOVERSION'], { encoding: 'utf8' })
  return Number(/^go1\.(\d+)/.exec(version)?.[1]) >= 23
}

// They are some 100 MB of sources to fetch and compile.
describe.runIf(long && needs('go') && isGoRecent())('Kubernetes and the Gateway API', () => {
  test('accept everything, decoded strictly', { timeout: 900_000 }, () => {
    const folder = mkdtempSync(join(tmpdir(), 'sallyport-strict-'))
    const binary = join(folder, 'strict')
    const cwd = join(import.meta.dirname, 'strict')
    execFileSync(program('go'), ['build', '-buildvcs=false', '-o', binary, '.'], { cwd, stdio: 'pipe' })
    const ingress = globSync('deploy/ingress/*.yaml', { cwd: ROOT })
    const out = execFileSync(binary, [...FOLDERS, ...ingress], { cwd: ROOT, encoding: 'utf8' })
    rmSync(folder, { recursive: true })
    expect(new Set(files.map(dirname))).toEqual(new Set(['deploy/kubernetes', ...FOLDERS]))
    expect(out).toContain('deploy/kubernetes/server-replicas NetworkPolicy/sallyport-redis')
    expect(out).toContain('deploy/kubernetes/server-replicas-inbox NetworkPolicy/sallyport-inbox')
    expect(out).toContain('deploy/ingress/gateway.yaml HTTPRoute/')
    expect(out.trim().split('\n').length).toBeGreaterThan(30)
  })
})

test('every recipe that makes a secret makes a file that only its owner can read', () => {
  const files = globSync(['deploy/**/*.{md,yaml}', 'docs/*.md'], { cwd: ROOT })
  const lines = files.flatMap(file => readFileSync(resolve(ROOT, file), 'utf8').split('\n'))
  const recipes = lines.filter(line => /openssl rand .*>/.test(line))
  expect(recipes.length).toBeGreaterThan(4)
  expect(recipes.filter(line => !line.includes('(umask 077; openssl rand'))).toEqual([])
})
