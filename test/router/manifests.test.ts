/** The manifests in deploy/ingress lead where they say. */
import { readFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { expect, it } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { createRouter, gitopsRuntime } from '../../router/index.ts'

const deploy = resolve(import.meta.dirname, '../../deploy')

// biome-ignore lint/suspicious/noExplicitAny: manifests are data without a schema here
type Manifest = any

async function manifests(...names: string[]): Promise<Manifest[]> {
  const text = await readFile(join(deploy, ...names), 'utf8')
  return parseAllDocuments(text).map(document => {
    expect(document.errors).toEqual([])
    return document.toJS()
  })
}

const PATHS = ['/app-proxy', '/webhooks', '/workflows']

it('the Ingress and the HTTPRoute send App-Proxy, webhooks and workflows to the router service', async () => {
  const router = await manifests('kubernetes', 'router', 'router.yaml')
  const service = router.find(({ kind }) => kind === 'Service')
  const [ingress] = await manifests('ingress', 'ingress.yaml')
  const paths = ingress.spec.rules[0].http.paths
  expect(paths.map(({ path }: Manifest) => path)).toEqual(PATHS)
  for (const { backend } of paths) {
    expect(backend.service.name).toBe(service.metadata.name)
    expect(service.spec.ports.map(({ name }: Manifest) => name)).toContain(backend.service.port.name)
  }
  const [gateway, route] = await manifests('ingress', 'gateway.yaml')
  expect(route.spec.parentRefs[0].name).toBe(gateway.metadata.name)
  expect(route.spec.rules[0].matches.map(({ path }: Manifest) => path.value)).toEqual(PATHS)
  expect(route.spec.rules[0].backendRefs).toEqual([{ name: service.metadata.name, port: service.spec.ports[0].port }])
})

it('every path that they send has a route in the preset', () => {
  const router = createRouter({ routes: gitopsRuntime({ namespaces: ['argo-events'] }) })
  for (const url of ['/app-proxy/x', '/webhooks/argo-events/push', '/workflows/x']) {
    expect(router.match({ url }).outcome).toBe('forward')
  }
})
