// @module-tag slow
/** The chart and the recipes on a real API server: admitted, rolled out, evicted and removed again. */
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, writeFile } from 'node:fs/promises'
import { createServer as createHttp } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createAuthority, createKeys, createServerCertificate, createToken } from '../../certs/index.ts'
import { createServer } from '../../server/index.ts'
import { GO_BUILD_MS } from '../support/go.ts'
import { long, needs } from '../support/needs.ts'
import { until } from '../support/until.ts'
import { Cluster, type Said } from './cluster/cluster.ts'
import { PlayedNode } from './cluster/node.ts'
import { buildPrograms, moduleFolder } from './cluster/programs.ts'

const ROOT = resolve(import.meta.dirname, '../..')
const CHART = join(ROOT, 'deploy/helm/sallyport')
const RECIPES = ['server', 'server-replicas', 'server-replicas-inbox', 'client', 'router']

const VALUES = {
  server: {
    ...{ enabled: true, replicas: 2, directory: { redis: true }, inbox: { kind: 'none' } },
    config: { domain: ['a.example.com'], 'control.host': 'c.example.net' },
  },
  client: { enabled: true, config: { server: ['wss://c.example.net:443'], preset: 'gitops-runtime' } },
  router: {
    enabled: true,
    routes: [{ name: 'app', match: { path: '/' }, target: 'http://app:80' }],
    ingress: { host: 'ingress.example.com' },
    httpRoute: { gateway: 'front', namespace: 'edge', listener: 'https', hostnames: ['ingress.example.com'] },
  },
}

let cluster: Cluster
let node: PlayedNode

// The programs are built once and kept; a CI run has no time for that.
describe.runIf(long && needs('new-go'))('a Kubernetes API server', () => {
  beforeAll(async () => {
    cluster = await Cluster.start(await buildPrograms())
    node = await PlayedNode.start(cluster)
    const types = join(await moduleFolder('sigs.k8s.io/gateway-api'), 'config/crd/standard')
    good(await cluster.run('kubectl', ['apply', '--server-side', '-f', types]))
    const established = ['wait', '--for=condition=Established', 'crd', '--all', '--timeout=120s']
    good(await cluster.run('kubectl', established))
  }, 4 * GO_BUILD_MS)

  afterAll(async () => {
    await node?.stop()
    await cluster?.stop()
  })

  test.each(['helm3', 'helm4'])(
    '%s installs the chart, upgrades it, rolls back, and leaves nothing',
    async helm => {
      const space = `with-${helm}`
      await createNamespace(space)
      const values = join(cluster.folder, 'values.json')
      await writeFile(values, JSON.stringify(VALUES))
      const level = async () =>
        (await cluster.call('GET', `/api/v1/namespaces/${space}/configmaps/sallyport-server`)).body.data
          .SALLYPORT_LOG_LEVEL
      const servers = async () => (await podsOf(space, 'sallyport-server')).toSorted()
      const run = async (...words: string[]) =>
        good(
          await cluster.run(helm, [...words, '--namespace', space, '--kubeconfig', join(cluster.folder, 'kubeconfig')]),
        )

      const installed = await run('install', 'tunnel', CHART, '--values', values)
      expect(installed.out).toContain('callers reach https://RUNTIME.a.example.com\n')
      await allReady(space)
      expect(await level()).toBeUndefined()
      const first = await servers()
      await run('upgrade', 'tunnel', CHART, '--values', values, '--set', 'server.config.log\\.level=debug')
      await allReady(space)
      expect(await level()).toBe('debug')
      const second = await servers()
      expect(second).toHaveLength(2)
      expect(first.filter(name => second.includes(name))).toEqual([])
      await run('rollback', 'tunnel', '1')
      await allReady(space)
      expect(await level()).toBeUndefined()
      await run('uninstall', 'tunnel')
      await until(async () => (await objectsIn(space)).length === 0, 'nothing is left')
    },
    600_000,
  )

  test.each(['helm3', 'helm4'])(
    "%s test: the findings of check, with each component's settings, Secrets and token",
    async helm => {
      const space = `checked-with-${helm}`
      await createNamespace(space)
      const app = createHttp((_, response) => void response.end('hello'))
      await once(app.listen(0, '127.0.0.1'), 'listening')
      const { authority, certificate, keys, token } = await credentials()
      const server = await createServer({
        public: { port: 0 },
        control: { host: '127.0.0.1', port: 0, tls: { cert: certificate.certificate, key: certificate.key } },
        domains: ['a.example.com'],
        auth: { jwks: keys.jwks },
      })
      const target = `http://127.0.0.1:${(app.address() as AddressInfo).port}`
      const routes = [{ name: 'app', match: { path: '/' }, target }]
      const values = join(cluster.folder, 'checked.json')
      const control = { server: [`wss://localhost:${server.controlAddress!.port}`] }
      await writeFile(
        values,
        JSON.stringify({
          server: { enabled: true, inbox: { kind: 'none' }, config: VALUES.server.config },
          client: {
            ...{ enabled: true, routes, config: control, ca: { secret: 'ca' }, inboxKey: { secret: '' } },
            token: { renew: false, secret: 'token' },
          },
          router: { enabled: true, routes },
        }),
      )
      const secret = async (name: string, stringData: object) => {
        const body = { apiVersion: 'v1', kind: 'Secret', metadata: { name }, stringData }
        expect((await cluster.call('POST', `/api/v1/namespaces/${space}/secrets`, body)).status).toBe(201)
      }
      await secret('sallyport-tls', { 'tls.crt': certificate.certificate, 'tls.key': certificate.key })
      await secret('sallyport-jwks', { 'jwks.json': JSON.stringify(keys.jwks) })
      await secret('ca', { 'ca.pem': authority.certificate })
      const run = async (...words: string[]) => await cluster.run(helm, [...words, '--namespace', space])
      const pods = async (name: string) => (await podsOf(space, name)).filter(pod => pod.includes('check'))
      try {
        good(await run('install', 'tunnel', CHART, '--values', values))
        await allReady(space)
        // The token does not exist yet.
        expect((await run('test', 'tunnel')).code).toBe(1)
        expect(node.said.get('sallyport-check-client')!.out).toMatch(/^fail {4}token /m)
        expect(await pods('sallyport-client')).toEqual(['sallyport-check-client'])
        await secret('token', { token })
        const well = await run('test', 'tunnel')
        const said = ['client', 'server', 'router'].map(name => node.said.get(`sallyport-check-${name}`)!.out)
        expect([well.code, said.join('').match(/^fail.*$/gm)]).toEqual([0, null])
        expect(said[0]).toMatch(/^ok {6}authentication /m)
        expect(said[2]).toMatch(/^ok {6}upstream /m)
        expect(await pods('sallyport-client')).toEqual([])
        app.close().closeAllConnections()
        expect((await run('test', 'tunnel', '--filter', 'name=sallyport-check-router')).code).toBe(1)
        expect(node.said.get('sallyport-check-router')!.out).toMatch(/^fail {4}upstream .*ECONNREFUSED/m)
        good(await run('uninstall', 'tunnel'))
      } finally {
        app.close().closeAllConnections()
        await server.close({ graceMs: 0 })
      }
    },
    300_000,
  )

  test('of two servers one may be evicted, and the other only once the first is back', async () => {
    const space = 'evictions'
    await createNamespace(space)
    const values = join(cluster.folder, 'values.json')
    await writeFile(values, JSON.stringify(VALUES))
    good(await cluster.run('helm4', ['install', 'tunnel', CHART, '--values', values, '--namespace', space]))
    await allReady(space)
    const [first, second] = await podsOf(space, 'sallyport-server')
    const evict = async (name = '') => {
      const path = `/api/v1/namespaces/${space}/pods/${name}/eviction`
      const eviction = { apiVersion: 'policy/v1', kind: 'Eviction', metadata: { name } }
      return await cluster.call('POST', path, eviction)
    }
    // The controller counts the pods a moment after they are ready.
    await until(async () => {
      const found = await cluster.call(
        'GET',
        `/apis/policy/v1/namespaces/${space}/poddisruptionbudgets/sallyport-server`,
      )
      return found.body.status.disruptionsAllowed === 1
    })
    node.makesReady = false
    try {
      expect((await evict(first)).status).toBe(201)
      const refused = await evict(second)
      expect([refused.status, refused.body.message]).toEqual([
        429,
        "Cannot evict pod as it would violate the pod's disruption budget.",
      ])
    } finally {
      node.makesReady = true
    }
    await allReady(space)
    await until(async () => (await evict(second)).status === 201, 'the other may go')
  }, 600_000)

  test.each(RECIPES)(
    'deploy/kubernetes/%s passes strict decoding, and its pods are admitted',
    async recipe => {
      const folder = join(ROOT, 'deploy/kubernetes')
      good(await cluster.run('kubectl', ['apply', '-f', join(folder, 'namespace.yaml')]))
      const words = ['apply', '--server-side', '--validate=strict']
      const volume = recipe === 'server' ? [join(folder, 'inbox.yaml')] : []
      for (const file of volume) good(await cluster.run('kubectl', [...words, '-f', file]))
      good(await cluster.run('kubectl', [...words, '-k', join(folder, recipe)]))
      await allReady('sallyport')
      good(await cluster.run('kubectl', ['delete', '-k', join(folder, recipe), '--wait=true']))
      const kept = volume.map(() => 'persistentvolumeclaim/sallyport-inbox')
      await until(async () => (await objectsIn('sallyport')).join() === kept.join(), 'nothing else is left')
      for (const file of volume) good(await cluster.run('kubectl', ['delete', '-f', file]))
    },
    300_000,
  )

  test('the first token: the job is admitted, and its rights are enough but reach no other Secret', async () => {
    const folder = join(ROOT, 'deploy/kubernetes')
    good(await cluster.run('kubectl', ['apply', '-f', join(folder, 'namespace.yaml')]))
    good(await cluster.run('kubectl', ['apply', '-k', join(folder, 'client')]))
    const kubectl = async (...words: string[]) =>
      (await cluster.run('kubectl', ['-n', 'sallyport', ...words])).out.trim()
    await kubectl('create', 'job', '--from=cronjob/sallyport-token', 'first-token')
    await until(async () => (await kubectl('get', 'pods', '-l', 'job-name=first-token', '-o', 'name')) !== '')

    const as = '--as=system:serviceaccount:sallyport:sallyport-token'
    expect(await kubectl('auth', 'can-i', 'patch', 'secrets/sallyport-token', as)).toBe('yes')
    expect(await kubectl('auth', 'can-i', 'get', 'secrets/sallyport-token', as)).toBe('no')
    expect(await kubectl('auth', 'can-i', 'patch', 'secrets/sallyport-signing-key', as)).toBe('no')
    expect(await kubectl('auth', 'can-i', 'create', 'secrets', as)).toBe('no')

    const account = join(cluster.folder, 'account')
    await mkdir(account)
    await writeFile(join(account, 'token'), await kubectl('create', 'token', 'sallyport-token'))
    await writeFile(join(account, 'private.jwk'), JSON.stringify((await createKeys()).privateJwk), { mode: 0o600 })
    const env = {
      PATH: process.env.PATH,
      ...{ SALLYPORT_BIN: join(ROOT, 'bin/sallyport.js'), KEY_FILE: join(account, 'private.jwk') },
      ...{ ACCOUNT_DIR: account, API: cluster.url, NODE_EXTRA_CA_CERTS: join(cluster.folder, 'ca.pem') },
      ...{ NAMESPACE: 'sallyport', RUNTIME: 'demo', TTL: '1h', AUDIENCE: 'sallyport' },
    }
    const said = await new Promise<Said>(resolve => {
      execFile(process.execPath, [join(folder, 'client/renew-token.mjs')], { env }, (error, out, err) =>
        resolve({ code: error === null ? 0 : Number(error.code), out, err }),
      )
    })
    expect([said.code, said.err]).toEqual([0, expect.stringContaining('token for runtime demo renewed\n')])
    const token = Buffer.from(
      await kubectl('get', 'secret', 'sallyport-token', '-o', 'jsonpath={.data.token}'),
      'base64',
    )
    expect(JSON.parse(Buffer.from(token.toString().split('.')[1]!, 'base64url').toString())).toMatchObject({
      sub: 'demo',
      aud: 'sallyport',
    })
    await kubectl('delete', '-k', join(folder, 'client'))
  })

  test('deploy/ingress passes strict decoding, including the Gateway', async () => {
    good(await cluster.run('kubectl', ['apply', '-f', join(ROOT, 'deploy/kubernetes/namespace.yaml')]))
    for (const file of ['ingress.yaml', 'gateway.yaml']) {
      const words = ['apply', '--dry-run=server', '--validate=strict', '-f', join(ROOT, 'deploy/ingress', file)]
      expect(good(await cluster.run('kubectl', words)).out).toContain('server dry run')
    }
  })
})

async function credentials() {
  const authority = await createAuthority()
  const hosts = ['a.example.com', '*.a.example.com', 'c.example.net', 'localhost']
  const keys = await createKeys()
  const { token } = await createToken({ key: keys.privateJwk, runtime: 'demo' })
  return { authority, certificate: await createServerCertificate(authority, { hosts }), keys, token }
}

/** Nothing failed, and there were no warnings. */
function good(said: Said): Said {
  expect([said.code, said.err]).toEqual([0, expect.not.stringContaining('Warning')])
  return said
}

async function createNamespace(name: string): Promise<void> {
  const labels = { 'pod-security.kubernetes.io/enforce': 'restricted', 'pod-security.kubernetes.io/warn': 'restricted' }
  await cluster.call('POST', '/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata: { name, labels } })
  // Pods need it.
  await until(
    async () => (await cluster.call('GET', `/api/v1/namespaces/${name}/serviceaccounts/default`)).status === 200,
  )
}

async function podsOf(space: string, name: string): Promise<string[]> {
  const path = `/api/v1/namespaces/${space}/pods?labelSelector=app.kubernetes.io/name%3D${name}`
  const { body } = await cluster.call('GET', path)
  const pods = (body.items as { metadata: { name: string; deletionTimestamp?: string } }[]).map(pod => pod.metadata)
  return pods.filter(({ deletionTimestamp }) => deletionTimestamp === undefined).map(({ name }) => name)
}

/** Each pod of each Deployment was admitted, and is of the newest version. */
async function allReady(space: string): Promise<void> {
  await until(async () => {
    const { body } = await cluster.call('GET', `/apis/apps/v1/namespaces/${space}/deployments`)
    // biome-ignore lint/suspicious/noExplicitAny: a Deployment
    return body.items.every(({ metadata, spec, status }: any) => {
      const failed = status.conditions?.find(({ type }: { type: string }) => type === 'ReplicaFailure')
      if (failed !== undefined) throw new Error(failed.message)
      const isNew = status.observedGeneration === metadata.generation && status.updatedReplicas === spec.replicas
      return isNew && status.readyReplicas === spec.replicas && status.replicas === spec.replicas
    })
  }, `the pods of ${space} are ready`)
}

const KINDS = [
  ...['deployments', 'replicasets', 'pods', 'services', 'cronjobs', 'jobs', 'roles', 'rolebindings', 'ingresses'],
  ...['networkpolicies', 'poddisruptionbudgets', 'persistentvolumeclaims', 'horizontalpodautoscalers', 'httproutes'],
]

async function objectsIn(space: string): Promise<string[]> {
  const { out } = good(await cluster.run('kubectl', ['get', KINDS.join(','), '-n', space, '-o', 'name']))
  return out.split('\n').filter(Boolean)
}
