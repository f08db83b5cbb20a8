/** What the deployment gives our processes: no root, a file system that they only read, no capabilities. */
import { spawnSync } from 'node:child_process'
import { globSync, readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { describe, expect, test } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { needs, program } from '../support/needs.ts'

const ROOT = resolve(import.meta.dirname, '../..')
const units = globSync('deploy/systemd/*.service', { cwd: ROOT })
// A patch has no more of a pod than it changes.
const manifests = globSync('deploy/kubernetes/**/*.yaml', { cwd: ROOT, exclude: name => name.endsWith('.patch.yaml') })

interface PodSpec {
  readonly securityContext?: Record<string, unknown>
  readonly automountServiceAccountToken?: boolean
  readonly containers: readonly { readonly name: string; readonly securityContext?: Record<string, unknown> }[]
  readonly initContainers?: PodSpec['containers']
}

/** Every pod's spec in a manifest, however deep it stands. */
function podsIn(value: unknown): PodSpec[] {
  if (typeof value !== 'object' || value === null) return []
  const inner = Object.values(value).flatMap(podsIn)
  return 'containers' in value ? [value as PodSpec, ...inner] : inner
}

const pods = manifests.flatMap(file =>
  parseAllDocuments(readFileSync(resolve(ROOT, file), 'utf8'))
    .flatMap(document => podsIn(document.toJS()))
    .map((pod, i) => [`${file} ${i}`, pod] as const),
)

describe('Kubernetes', () => {
  test('there are pods', () => {
    expect(pods.length).toBeGreaterThanOrEqual(4)
  })

  test.each(pods)('%s', (_name, pod) => {
    expect(pod.securityContext).toMatchObject({ runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } })
    for (const container of [...pod.containers, ...(pod.initContainers ?? [])]) {
      expect(container.securityContext, container.name).toMatchObject({
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'] },
      })
    }
  })
})

interface Rule {
  readonly resources: readonly string[]
  readonly resourceNames?: readonly string[]
  readonly verbs: readonly string[]
}

describe('roles', () => {
  const documents = manifests.flatMap(file => parseAllDocuments(readFileSync(resolve(ROOT, file), 'utf8')))
  const objects = documents.map(
    document => document.toJS() as { kind: string; rules: Rule[]; metadata: { name: string } },
  )
  const rules = objects.filter(({ kind }) => kind === 'Role' || kind === 'ClusterRole').flatMap(role => role.rules)

  test('K1 reach what they name, and create nothing, for that cannot be limited to a name', () => {
    expect(rules).toEqual([
      { apiGroups: [''], resources: ['secrets'], resourceNames: ['sallyport-token'], verbs: ['patch'] },
    ])
  })

  test('K1 what they name is in the recipe', () => {
    const secrets = objects.filter(({ kind }) => kind === 'Secret').map(({ metadata }) => metadata.name)
    expect(secrets).toEqual(rules.flatMap(({ resourceNames }) => resourceNames))
  })

  // To kustomize a name in `resourceNames` is that of any object, and where it adds a hash to one, it does so there, too.
  test('K1 what they name is the name of nothing that kustomize generates', () => {
    const generated = documents.flatMap(document => {
      const { configMapGenerator = [], secretGenerator = [] } = document.toJS()
      return [...configMapGenerator, ...secretGenerator].map(({ name }: { name: string }) => name)
    })
    expect(generated).toContain('sallyport-client')
    for (const name of rules.flatMap(({ resourceNames = [] }) => resourceNames)) expect(generated).not.toContain(name)
  })
})

/** systemd's own measure, from 0 (nothing exposed) to 10. */
const MOST_EXPOSED = 2.5

describe('systemd', () => {
  test.each(units)('%s takes no new privileges and writes nowhere but where it says', unit => {
    const text = readFileSync(resolve(ROOT, unit), 'utf8')
    for (const line of ['NoNewPrivileges=yes', 'ProtectSystem=strict', 'ProtectHome=yes', 'PrivateTmp=yes']) {
      expect(text).toContain(`${line}\n`)
    }
    expect(text).toMatch(/^CapabilityBoundingSet=/m)
  })

  test.runIf(needs('systemd')).each(units)('%s by systemd-analyze', unit => {
    const ran = spawnSync(
      program('systemd-analyze'),
      ['security', '--offline=true', '--no-pager', resolve(ROOT, unit)],
      {
        encoding: 'utf8',
      },
    )
    const exposure = /Overall exposure level for \S+: ([\d.]+)/.exec(ran.stdout)?.[1]
    expect(Number(exposure), ran.stdout + ran.stderr).toBeLessThanOrEqual(MOST_EXPOSED)
  })
})
