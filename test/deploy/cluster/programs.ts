/**
 * The programs of a Kubernetes control plane, and Helm 3 and 4, built from their Go modules: some 15 minutes on two cores, and 3 GB of
 * Go's caches. So they are kept outside the repository.
 */
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, rename, rm } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { goBuild } from '../../support/go.ts'
import { program } from '../../support/needs.ts'

const KUBERNETES = '1.35.4'
const HELM = { 3: '3.22.0', 4: '4.3.1' } as const
export type HelmVersion = keyof typeof HELM

const OURS = import.meta.dirname
const NAMES = `kubernetes-${KUBERNETES}-helm-${HELM[3]}-${HELM[4]}`

/** Folder with `etcd`, `kube-apiserver`, `kube-controller-manager`, `kubectl`, `helm3` and `helm4`. */
export async function buildPrograms(): Promise<string> {
  const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'sallyport-tests')
  const folder = join(cache, NAMES)
  if (existsSync(folder)) return folder
  await mkdir(cache, { recursive: true })
  // Whole or not at all, and two builds at once do not collide.
  const made = await mkdtemp(join(cache, 'build-'))
  const version = { gitVersion: `v${KUBERNETES}`, gitMajor: '1', gitMinor: KUBERNETES.split('.')[1] }
  const flags = Object.entries(version).map(([name, value]) => `-X k8s.io/component-base/version.${name}=${value}`)
  const env = { GOFLAGS: `-mod=readonly "-ldflags=-s -w ${flags.join(' ')}"` }
  for (const name of ['kube-apiserver', 'kube-controller-manager', 'kubectl']) {
    await goBuild(OURS, join(made, name), `k8s.io/kubernetes/cmd/${name}`, env)
  }
  await goBuild(OURS, join(made, 'etcd'), './etcd')
  for (const major of [3, 4] as const) {
    const module = `helm.sh/helm/v${major}/cmd/helm@v${HELM[major]}`
    await promisify(execFile)(program('go'), ['install', module], {
      env: { ...process.env, GOBIN: made, GOTOOLCHAIN: 'local' },
    })
    await rename(join(made, 'helm'), join(made, `helm${major}`))
  }
  await rename(made, folder).catch(() => rm(made, { recursive: true }))
  return folder
}

/** Folder of a module of `go.mod`, which the programs above need not have fetched. */
export async function moduleFolder(name: string): Promise<string> {
  const { stdout } = await promisify(execFile)(program('go'), ['mod', 'download', '-json', name], { cwd: OURS })
  return JSON.parse(stdout).Dir
}
