/** A control plane for the test on loopback: etcd, API server, controllers. No kubelet: a test plays the node. */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { generateKeyPairSync } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Agent, request } from 'undici'
import { createAuthority, createServerCertificate } from '../../../certs/index.ts'
import { lastingPort } from '../../support/ports.ts'
import { until } from '../../support/until.ts'

const TOKEN = 'the token of an admin of this test'.replaceAll(' ', '-')

export interface Answer {
  readonly status: number
  // biome-ignore lint/suspicious/noExplicitAny: objects of many kinds
  readonly body: any
}

export interface Said {
  readonly code: number
  readonly out: string
  readonly err: string
}

export class Cluster {
  readonly url: string
  readonly ca: string
  readonly folder: string
  readonly #programs: string
  readonly #agent: Agent
  readonly #children: ChildProcess[] = []

  static async start(programs: string): Promise<Cluster> {
    const folder = await mkdtemp(join(tmpdir(), 'sallyport-cluster-'))
    const at = (name: string) => join(folder, name)
    const authority = await createAuthority({ name: 'cluster', validDays: 1 })
    const hosts = ['127.0.0.1', 'kubernetes.default.svc']
    const certificate = await createServerCertificate(authority, { hosts, validDays: 1 })
    const accounts = generateKeyPairSync('rsa', { modulusLength: 2048 })
    const [store, storePeer, api, controllers] = [
      await lastingPort(),
      await lastingPort(),
      await lastingPort(),
      await lastingPort(),
    ]
    const cluster = new Cluster(programs, folder, `https://127.0.0.1:${api}`, authority.certificate)
    const user = { name: 'admin', user: { token: TOKEN } }
    const place = { server: cluster.url, 'certificate-authority': at('ca.pem') }
    await Promise.all([
      writeFile(at('ca.pem'), authority.certificate),
      writeFile(at('cert.pem'), certificate.certificate),
      writeFile(at('key.pem'), certificate.key, { mode: 0o600 }),
      writeFile(at('accounts.pem'), accounts.privateKey.export({ type: 'pkcs8', format: 'pem' }), { mode: 0o600 }),
      writeFile(at('accounts.pub'), accounts.publicKey.export({ type: 'spki', format: 'pem' })),
      writeFile(at('tokens.csv'), `${TOKEN},admin,admin,system:masters\n`, { mode: 0o600 }),
      writeFile(
        at('kubeconfig'),
        JSON.stringify({
          ...{ apiVersion: 'v1', kind: 'Config', 'current-context': 'c' },
          ...{ clusters: [{ name: 'c', cluster: place }], users: [user] },
          contexts: [{ name: 'c', context: { cluster: 'c', user: 'admin' } }],
        }),
        { mode: 0o600 },
      ),
    ])
    cluster.#run('etcd', [
      ...['--data-dir', at('etcd'), '--log-level', 'error', '--unsafe-no-fsync'],
      ...['--listen-client-urls', `http://127.0.0.1:${store}`, '--advertise-client-urls', `http://127.0.0.1:${store}`],
      ...['--listen-peer-urls', `http://127.0.0.1:${storePeer}`],
      ...['--initial-advertise-peer-urls', `http://127.0.0.1:${storePeer}`],
      ...['--initial-cluster', `default=http://127.0.0.1:${storePeer}`],
    ])
    cluster.#run('kube-apiserver', [
      ...['--etcd-servers', `http://127.0.0.1:${store}`, '--bind-address', '127.0.0.1', '--secure-port', `${api}`],
      ...['--tls-cert-file', at('cert.pem'), '--tls-private-key-file', at('key.pem')],
      ...['--token-auth-file', at('tokens.csv'), '--authorization-mode', 'RBAC'],
      ...['--service-account-key-file', at('accounts.pub'), '--service-account-signing-key-file', at('accounts.pem')],
      ...['--service-account-issuer', 'https://kubernetes.default.svc', '--service-cluster-ip-range', '10.96.0.0/16'],
      ...['--endpoint-reconciler-type', 'none'],
    ])
    await until(() => cluster.isReady(), 'the API server is ready')
    cluster.#run('kube-controller-manager', [
      ...['--kubeconfig', at('kubeconfig'), '--leader-elect=false', '--bind-address', '127.0.0.1'],
      ...['--secure-port', `${controllers}`, '--root-ca-file', at('ca.pem')],
      ...['--service-account-private-key-file', at('accounts.pem')],
      // A played node sends no heartbeats. After a minute, this controller would say that pods that come to it are not ready.
      ...['--controllers', '*,-node-lifecycle-controller'],
    ])
    return cluster
  }

  private constructor(programs: string, folder: string, url: string, ca: string) {
    this.#programs = programs
    this.folder = folder
    this.url = url
    this.ca = ca
    this.#agent = new Agent({ connect: { ca } })
  }

  #run(name: string, args: string[]): void {
    this.#children.push(spawn(join(this.#programs, name), args, { cwd: this.folder, stdio: 'ignore' }))
  }

  async isReady(): Promise<boolean> {
    return await this.call('GET', '/readyz').then(
      ({ status }) => status === 200,
      () => false,
    )
  }

  /** Asks the API server itself. */
  async call(method: string, path: string, body?: object, type = 'application/json'): Promise<Answer> {
    const answer = await request(`${this.url}${path}`, {
      dispatcher: this.#agent,
      method: method as 'GET',
      headers: { authorization: `Bearer ${TOKEN}`, 'content-type': type },
      body: body === undefined ? null : JSON.stringify(body),
    })
    const text = await answer.body.text()
    return { status: answer.statusCode, body: text.startsWith('{') ? JSON.parse(text) : text }
  }

  /** Runs `kubectl`, `helm3` or `helm4`. */
  async run(name: string, args: readonly string[], env: Record<string, string> = {}): Promise<Said> {
    const home = { HOME: this.folder, KUBECONFIG: join(this.folder, 'kubeconfig') }
    return await new Promise(resolve => {
      execFile(
        join(this.#programs, name),
        args,
        { env: { PATH: process.env.PATH, ...home, ...env }, maxBuffer: 64 * 1024 * 1024 },
        (error, out, err) => resolve({ code: error === null ? 0 : Number(error.code), out, err }),
      )
    })
  }

  async stop(): Promise<void> {
    for (const child of this.#children.toReversed()) {
      if (child.exitCode !== null || child.signalCode !== null) continue
      child.kill('SIGKILL')
      await once(child, 'exit')
    }
    await this.#agent.close()
    await rm(this.folder, { recursive: true, force: true })
  }
}
