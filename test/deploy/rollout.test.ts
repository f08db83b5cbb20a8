/** K1: an update of `deploy/kubernetes/server`, with its strategy and delays, and real processes as its pods. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { request as httpsRequest } from 'node:https'
import { type AddressInfo, connect as connectTcp, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterEach, expect, test } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { createKeys, createToken } from '../../certs/index.ts'
import { connect, type Tunnel } from '../../client/index.ts'
import { Running } from '../cli/process.ts'
import { sallyport } from '../cli/run.ts'

const MANIFEST = resolve(import.meta.dirname, '../../deploy/kubernetes/server/server.yaml')
const DOMAIN = 'tunnels.localhost'
const HOST = `demo.${DOMAIN}`

/** Like a Kubernetes Service: new connections go to the pods that are ready and not terminating, in turn. */
class Service {
  readonly pods: string[] = []
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #turn = 0

  constructor() {
    this.#server = createServer(outer => {
      const pod = this.pods[this.#turn++ % this.pods.length]
      if (pod === undefined) {
        outer.destroy()
        return
      }
      const inner = connectTcp(Number(pod.split(':')[1]), '127.0.0.1')
      for (const [from, to] of [
        [outer, inner],
        [inner, outer],
      ] as const) {
        this.#sockets.add(from)
        from.on('error', () => to.destroy()).on('close', () => to.destroy())
        from.pipe(to)
      }
    })
  }

  async listen(): Promise<number> {
    await new Promise<void>(resolve => this.#server.listen(0, '127.0.0.1', resolve))
    return (this.#server.address() as AddressInfo).port
  }

  close(): void {
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
  }
}

interface Recipe {
  readonly recreates: boolean
  readonly minReadyMs: number
  readonly preStopMs: number
  readonly flags: readonly string[]
}

function readRecipe(): Recipe {
  const documents = parseAllDocuments(readFileSync(MANIFEST, 'utf8')).map(document => document.toJS())
  const { spec } = documents.find(({ kind }) => kind === 'Deployment')
  expect(spec.replicas).toBe(1)
  const [{ env, lifecycle }] = spec.template.spec.containers
  const delay = env.find(({ name }: { name: string }) => name === 'SALLYPORT_DRAIN_DELAY')?.value
  return {
    recreates: spec.strategy.type === 'Recreate',
    minReadyMs: (spec.minReadySeconds ?? 0) * 1000,
    preStopMs: (lifecycle?.preStop.sleep.seconds ?? 0) * 1000,
    flags: delay === undefined ? [] : ['--drain-delay', delay],
  }
}

const undo: (() => unknown)[] = []
afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step()
})

const pause = (ms: number) => new Promise(resolve => setTimeout(resolve, ms))

test('K1 while a single server is updated, nobody who reaches one is told that the runtime is offline', {
  tags: ['slow'],
}, async () => {
  const recipe = readRecipe()
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-rollout-'))
  undo.push(() => rmSync(folder, { recursive: true }))
  const file = (name: string) => join(folder, name)
  await sallyport(['certs', 'init', '--out', folder, '--host', '127.0.0.1', '--host', `*.${DOMAIN}`])
  const keys = await createKeys()
  writeFileSync(file('jwks.json'), JSON.stringify(keys.jwks))
  const ca = readFileSync(file('ca.pem'), 'utf8')
  const [callers, clients] = [new Service(), new Service()]
  const [port, controlPort] = [await callers.listen(), await clients.listen()]
  undo.push(
    () => callers.close(),
    () => clients.close(),
  )

  const startPod = async (): Promise<{ pod: Running; ready: () => Promise<void>; gone: () => void }> => {
    const pod = new Running([
      ...['server', '--public.listen', '127.0.0.1:0', '--control.listen', '127.0.0.1:0', '--admin.listen', 'off'],
      ...['--public.tls.cert', file('server.pem'), '--public.tls.key', file('server-key.pem'), '--domain', DOMAIN],
      ...['--control.tls.cert', file('server.pem'), '--control.tls.key', file('server-key.pem')],
      ...['--auth.jwks.file', file('jwks.json'), '--health.listen', '127.0.0.1:0', ...recipe.flags],
    ])
    undo.push(() => pod.end('SIGKILL'))
    const [edge, control] = [await pod.address('public'), await pod.address('control')]
    const health = await pod.address('health')
    const ready = async () => {
      while (!(await fetch(`http://${health}/readyz`)).ok) await pause(20)
      callers.pods.push(edge)
      clients.pods.push(control)
    }
    const gone = () => {
      callers.pods.splice(callers.pods.indexOf(edge), 1)
      clients.pods.splice(clients.pods.indexOf(control), 1)
    }
    return { pod, ready, gone }
  }

  const ask = () =>
    new Promise<string>(resolve => {
      const options = { host: '127.0.0.1', port, ca, servername: HOST, headers: { host: HOST }, agent: false }
      const request = httpsRequest(options, response => {
        response.resume().once('close', () => {
          const { 'sallyport-error': reason } = response.headers
          resolve(response.complete ? [response.statusCode, reason].filter(Boolean).join(' ') : 'cut')
        })
      })
      request.once('error', () => resolve('nobody')).end()
    })

  const first = await startPod()
  await first.ready()
  const tunnel: Tunnel = await connect({
    url: `wss://127.0.0.1:${controlPort}`,
    token: async () => (await createToken({ key: keys.privateJwk, runtime: 'demo', ttl: '1h' })).token,
    ca,
    proxy: '',
    target: () => new Response('ok'),
  })
  undo.push(() => tunnel.close({ graceMs: 0 }))
  expect(await ask()).toBe('200')

  const answers: Promise<string>[] = []
  const calling = setInterval(() => answers.push(ask()), 50)
  undo.push(() => clearInterval(calling))
  const stop = async ({ pod, gone }: typeof first) => {
    gone()
    await pause(recipe.preStopMs)
    expect(await pod.end('SIGTERM')).toBe(0)
  }
  if (recipe.recreates) await stop(first)
  const second = await startPod()
  await second.ready()
  if (!recipe.recreates) {
    await pause(recipe.minReadyMs)
    await stop(first)
  }
  while ((await ask()) !== '200') await pause(50)
  clearInterval(calling)
  const all = await Promise.all(answers)
  const counts = Object.groupBy(all, answer => answer)
  console.log(
    Object.entries(counts)
      .map(([answer, { length } = []]) => `${length} ${answer}`)
      .join(', '),
  )
  expect(Object.keys(counts).filter(answer => answer !== '200' && answer !== 'nobody')).toEqual([])
  expect(counts['200']!.length).toBeGreaterThan(0)
})
