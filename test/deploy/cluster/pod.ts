/**
 * Runs a pod's container as the API server has it: its arguments, variables and mounted files; no image, no isolation.
 */
import { execFile } from 'node:child_process'
import { mkdir, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import type { Cluster, Said } from './cluster.ts'

const COMMAND = resolve(import.meta.dirname, '../../../bin/sallyport.js')

interface KeyRef {
  readonly name: string
  readonly key: string
}

interface Variable {
  readonly name: string
  readonly value?: string
  readonly valueFrom?: { readonly secretKeyRef?: KeyRef; readonly fieldRef?: { readonly fieldPath: string } }
}

interface Volume {
  readonly name: string
  readonly secret?: { readonly secretName: string; readonly optional?: boolean }
  readonly configMap?: { readonly name: string }
}

export interface ContainerPod {
  readonly metadata: { readonly name: string; readonly namespace: string }
  readonly spec: {
    readonly containers: readonly {
      readonly args: readonly string[]
      readonly env?: readonly Variable[]
      readonly envFrom?: readonly { readonly configMapRef: { readonly name: string } }[]
      readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[]
    }[]
    readonly volumes: readonly Volume[]
  }
}

/** Rejects if something that the pod needs is missing. */
export async function runPod(cluster: Cluster, { metadata, spec }: ContainerPod): Promise<Said> {
  const { name, namespace } = metadata
  const read = async (kind: 'configmaps' | 'secrets', which: string) => {
    const { status, body } = await cluster.call('GET', `/api/v1/namespaces/${namespace}/${kind}/${which}`)
    return status === 200 ? (body.data as Record<string, string>) : undefined
  }
  const secret = async (which: string, key: string) => {
    return Buffer.from((await read('secrets', which))![key]!, 'base64').toString()
  }
  const [container] = spec.containers
  const { args, env = [], envFrom = [], volumeMounts } = container!
  const folder = join(cluster.folder, 'pods', namespace, name)
  for (const { name: volume, secret, configMap } of spec.volumes) {
    await mkdir(join(folder, volume), { recursive: true })
    const held = await (configMap ? read('configmaps', configMap.name) : secret && read('secrets', secret.secretName))
    if (held === undefined && (configMap || secret?.optional === false)) throw new Error(`${name} has no ${volume}`)
    for (const [key, text] of Object.entries(held ?? {})) {
      await writeFile(join(folder, volume, key), Buffer.from(text, configMap ? 'utf8' : 'base64'), { mode: 0o600 })
    }
  }
  const variables: Record<string, string> = { PATH: process.env.PATH! }
  for (const { configMapRef } of envFrom) Object.assign(variables, await read('configmaps', configMapRef.name))
  for (const { name: variable, value, valueFrom } of env) {
    const { secretKeyRef, fieldRef } = valueFrom ?? {}
    const field = fieldRef && (fieldRef.fieldPath === 'metadata.name' ? name : '127.0.0.1')
    variables[variable] = value ?? field ?? (await secret(secretKeyRef!.name, secretKeyRef!.key))
  }
  for (const [variable, value] of Object.entries(variables)) {
    const mount = volumeMounts.find(({ mountPath }) => value.startsWith(`${mountPath}/`))
    if (mount !== undefined) variables[variable] = join(folder, mount.name, value.slice(mount.mountPath.length))
  }
  return await new Promise(resolve => {
    execFile(process.execPath, [COMMAND, ...args], { env: variables, timeout: 120_000 }, (error, out, err) =>
      resolve({ code: error === null ? 0 : Number(error.code), out, err }),
    )
  })
}
