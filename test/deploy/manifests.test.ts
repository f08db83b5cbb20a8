/** What the manifests promise: probes, budgets, graces that fit, policies; and that Kubernetes would take them. */
import { execFileSync } from 'node:child_process'
import { globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { describe, expect, test } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { COMPONENTS, type ComponentName } from '../../cli/config/components.ts'
import { environmentName } from '../../cli/config/setting.ts'
import { long, needs, program } from '../support/needs.ts'

const ROOT = resolve(import.meta.dirname, '../..')
const FOLDERS = ['server', 'server-replicas', 'client', 'router'].map(name => `deploy/kubernetes/${name}`)

interface Variable {
  readonly name: string
  readonly value?: string
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

describe('each component', () => {
  test('is there', () => {
    expect(nameAndManifest.map(([name]) => name).sort()).toEqual([
      'internal-router',
      'sallyport-client',
      'sallyport-server',
    ])
  })

  test.each(nameAndManifest)('%s is probed, updated without a gap, and given its time to end', (_name, { spec }) => {
    expect(spec.strategy).toMatchObject({ type: 'RollingUpdate', rollingUpdate: { maxUnavailable: 0 } })
    const pod = spec.template!.spec
    const [container] = pod.containers
    expect(container!.readinessProbe).toMatchObject({ httpGet: { path: '/readyz', port: 'health' } })
    expect(container!.livenessProbe).toMatchObject({ httpGet: { path: '/livez', port: 'health' } })
    expect(pod.enableServiceLinks).toBe(false)
    const delay = container!.env?.find(({ name }) => name === 'SALLYPORT_DRAIN_DELAY')?.value ?? '0s'
    const needed = container!.lifecycle!.preStop.sleep.seconds + Number.parseInt(delay, 10) + GRACE_S
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(needed + 5)
  })

  test.each(nameAndManifest)('%s has a disruption budget and a network policy', (_name, { spec }) => {
    const labels = spec.selector!.matchLabels
    expect(named('PodDisruptionBudget').map(budget => budget.spec.selector!.matchLabels)).toContainEqual(labels)
    expect(named('NetworkPolicy').map(policy => policy.spec.podSelector!.matchLabels)).toContainEqual(labels)
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
  return Number(/^go1\.(\d+)/.exec(version)?.[1]) >= 22
}

// They are some 100 MB of sources to fetch and compile.
describe.runIf(long && needs('go') && isGoRecent())('Kubernetes and the Gateway API', () => {
  test('take everything, decoded strictly', { timeout: 900_000 }, () => {
    const folder = mkdtempSync(join(tmpdir(), 'sallyport-strict-'))
    const binary = join(folder, 'strict')
    const cwd = join(import.meta.dirname, 'strict')
    execFileSync(program('go'), ['build', '-buildvcs=false', '-o', binary, '.'], { cwd, stdio: 'pipe' })
    const ingress = globSync('deploy/ingress/*.yaml', { cwd: ROOT })
    const out = execFileSync(binary, [...FOLDERS, ...ingress], { cwd: ROOT, encoding: 'utf8' })
    rmSync(folder, { recursive: true })
    expect(new Set(files.map(dirname))).toEqual(new Set(FOLDERS))
    expect(out).toContain('deploy/kubernetes/server-replicas NetworkPolicy/sallyport-redis')
    expect(out).toContain('deploy/ingress/gateway.yaml HTTPRoute/')
    expect(out.trim().split('\n').length).toBeGreaterThan(30)
  })
})
