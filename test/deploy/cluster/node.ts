/**
 * The part of scheduler and kubelet that the control plane waits for: pods are bound, ready and gone. No container
 * runs, except those of `helm test`, as processes.
 */
import type { Cluster, Said } from './cluster.ts'
import { type ContainerPod, runPod } from './pod.ts'

const NAME = 'node'
const LOOK_MS = 200

interface Pod extends ContainerPod {
  readonly metadata: ContainerPod['metadata'] & {
    readonly uid: string
    readonly annotations?: Readonly<Record<string, string>>
    readonly deletionTimestamp?: string
  }
  readonly spec: ContainerPod['spec'] & { readonly nodeName?: string }
  readonly status: { readonly phase: string; readonly conditions?: readonly { readonly type: string }[] }
}

export class PlayedNode {
  readonly #cluster: Cluster
  /** Pods become ready. */
  makesReady = true
  /** What the pods of `helm test` have printed, by name. */
  readonly said = new Map<string, Said>()
  readonly #begun = new Set<string>()
  #stopped = false
  readonly #over: Promise<void>

  static async start(cluster: Cluster): Promise<PlayedNode> {
    await cluster.call('POST', '/api/v1/nodes', { apiVersion: 'v1', kind: 'Node', metadata: { name: NAME } })
    return new PlayedNode(cluster)
  }

  private constructor(cluster: Cluster) {
    this.#cluster = cluster
    this.#over = this.#look()
  }

  async #look(): Promise<void> {
    while (!this.#stopped) {
      const { body } = await this.#cluster.call('GET', '/api/v1/pods')
      for (const pod of body.items as Pod[]) await this.#serve(pod)
      await new Promise(resolve => setTimeout(resolve, LOOK_MS))
    }
  }

  async #serve(pod: Pod): Promise<void> {
    const { metadata, spec, status } = pod
    const path = `/api/v1/namespaces/${metadata.namespace}/pods/${metadata.name}`
    if (metadata.deletionTimestamp !== undefined) {
      await this.#cluster.call('DELETE', path, { gracePeriodSeconds: 0 })
    } else if (spec.nodeName === undefined) {
      const target = { apiVersion: 'v1', kind: 'Node', name: NAME }
      const binding = { apiVersion: 'v1', kind: 'Binding', metadata: { name: metadata.name }, target }
      await this.#cluster.call('POST', `${path}/binding`, binding)
    } else if (metadata.annotations?.['helm.sh/hook'] === 'test') {
      // Not ready while it runs: its gate is never open.
      if (this.#begun.has(metadata.uid)) return
      this.#begun.add(metadata.uid)
      void this.#run(pod, path)
    } else if (status.phase === 'Pending' && this.makesReady) {
      const lastTransitionTime = new Date().toISOString()
      const types = ['Initialized', 'ContainersReady', 'Ready']
      const conditions = types.map(type => ({ type, status: 'True', lastTransitionTime }))
      const changed = { status: { phase: 'Running', conditions, podIP: '10.0.0.1' } }
      await this.#cluster.call('PATCH', `${path}/status`, changed, 'application/strategic-merge-patch+json')
    }
  }

  async #run(pod: Pod, path: string): Promise<void> {
    const said = await runPod(this.#cluster, pod).catch(
      (error: Error): Said => ({ code: 1, out: '', err: String(error) }),
    )
    this.said.set(pod.metadata.name, said)
    const phase = said.code === 0 ? 'Succeeded' : 'Failed'
    await this.#cluster.call('PATCH', `${path}/status`, { status: { phase } }, 'application/strategic-merge-patch+json')
  }

  async stop(): Promise<void> {
    this.#stopped = true
    await this.#over
  }
}
