import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { extname, join, resolve } from 'node:path'
import type { Road } from './dial.ts'
import { type DemoFiles, DOMAIN, HOSTS, partFolder, WEBHOOK_PATH, writeRoutes } from './files.ts'
import { findNginx, nginxConfig } from './nginx.ts'
import { Part } from './parts.ts'
import { freePort } from './ports.ts'

/** `.ts` in a checkout, `.js` in the package. */
const EXTENSION = extname(import.meta.filename)
const COMMAND = [
  join(import.meta.dirname, '../../bin/sallyport.js'),
  join(import.meta.dirname, '../../../bin/sallyport.js'),
]
const NGINX_READY_MS = 10_000

/** One listener of the demo, as the table shows it. */
export interface Listening {
  readonly part: string
  readonly what: string
  readonly address: string
}

const TABLE_ORDER = ['server', 'client', 'router', 'ingress', 'app-proxy', 'event-source']

/** The parts that run, each its own process, and what they listen on. Ends with {@link Demo.stop}. */
export class Demo {
  readonly files: DemoFiles
  readonly #nginx: string
  readonly #listening: Listening[] = []
  readonly #addresses = new Map<string, string>()
  readonly #parts: Part[] = []
  #routes = ''
  #control = ''
  #public = 0

  /** `nginx` is its program; where that is empty, the ingress road leads straight to the router service. */
  constructor(files: DemoFiles, nginx: string = findNginx() ?? '') {
    this.files = files
    this.#nginx = nginx
  }

  /** What listens where, in the order of a request's way. */
  get listening(): Listening[] {
    return this.#listening.toSorted((a, b) => TABLE_ORDER.indexOf(a.part) - TABLE_ORDER.indexOf(b.part))
  }

  get parts(): readonly Part[] {
    return this.#parts
  }

  /** Starts the stand-ins, the router service, the server, the client and the ingress; resolves to the roads in. */
  async start(): Promise<Road[]> {
    const { certificate, key, webhookSecret, caPem: ca } = this.files
    const appProxy = this.#standIn('app-proxy', [String(await freePort(3017))])
    const eventSource = this.#standIn('event-source', [String(await freePort(12_000)), WEBHOOK_PATH, webhookSecret])
    const server = await this.#startServer()
    await Promise.all([this.#listen(appProxy, 'app-proxy', 'http'), this.#listen(eventSource, 'event-source', 'http')])
    const [appProxyAddress, eventSourceAddress] = [this.#address('app-proxy'), this.#address('event-source')]
    this.#routes = await writeRoutes(this.files, appProxyAddress, eventSourceAddress)
    const tls = ['--tls.cert', certificate, '--tls.key', key]
    const router = this.#command('router', [
      ...['--listen', `127.0.0.1:${await freePort(8081)}`, ...tls, '--routes', this.#routes],
      ...['--trusted-proxies', '127.0.0.1/32'],
    ])
    await Promise.all([this.#listenServer(server), this.#listen(router, 'router', 'https')])
    await Promise.all([this.#listen(server, 'admin', 'http'), this.#listen(router, 'admin', 'http')])
    const service = `https://${this.#address('router')}`
    const [ingressPort] = await Promise.all([this.#startIngress(service), this.#startClient(service)])
    return [
      { name: 'tunnel', host: HOSTS.tunnel, port: this.#public, ca },
      { name: 'ingress', host: HOSTS.ingress, port: ingressPort, ca, trustsCaller: this.#nginx === '' },
    ]
  }

  /** A second client, with the router in its own process; resolves to its road. */
  async startEmbedded(): Promise<Road> {
    const { tokens, ca, caPem } = this.files
    const args = ['--server', this.#control, '--token.file', tokens.embedded, '--ca', ca, '--routes', this.#routes]
    const client = this.#command('client', [...args, '--admin.listen', 'off'], 'embedded')
    await client.line('session', line => line.msg === 'connected')
    return { name: 'embedded', host: HOSTS.embedded, port: this.#public, ca: caPem }
  }

  /** Ends every part, the outer ones first. */
  async stop(): Promise<void> {
    await Promise.all(this.#parts.map(part => part.stop()))
  }

  async #startServer(): Promise<Part> {
    const { certificate, key, jwks } = this.files
    return this.#command('server', [
      ...['--public.listen', `127.0.0.1:${await freePort(8080)}`, '--public.tls.cert', certificate],
      ...['--public.tls.key', key, '--control.listen', `127.0.0.1:${await freePort(8443)}`],
      ...['--control.tls.cert', certificate, '--control.tls.key', key, '--domain', DOMAIN, '--auth.jwks.file', jwks],
    ])
  }

  async #listenServer(server: Part): Promise<void> {
    await Promise.all([this.#listen(server, 'public', 'https'), this.#listen(server, 'control', 'wss')])
    this.#public = portOf(this.#address('public'))
    this.#control = `wss://${this.#address('control')}`
  }

  async #startClient(target: string): Promise<void> {
    const { tokens, ca } = this.files
    const args = ['--server', this.#control, '--token.file', tokens.service, '--ca', ca, '--target', target]
    const client = this.#command('client', args)
    await Promise.all([client.line('session', line => line.msg === 'connected'), this.#listen(client, 'admin', 'http')])
  }

  /** nginx where it is installed; else callers reach the router service straight. Resolves to the port. */
  async #startIngress(router: string): Promise<number> {
    const nginx = this.#nginx
    if (nginx === '') {
      this.#listening.push({ part: 'ingress', what: 'none: nginx is not installed', address: this.#address('router') })
      return portOf(this.#address('router'))
    }
    const { certificate, key, ca } = this.files
    const port = await freePort(8082)
    const folder = await partFolder(this.files, 'nginx')
    const path = join(folder, 'nginx.conf')
    await writeFile(path, nginxConfig({ folder, port, certificate, key, ca, router }))
    const part = this.#part('ingress', nginx, ['-p', folder, '-e', 'stderr', '-c', path])
    await untilOpen(port, part)
    this.#listening.push({ part: 'ingress', what: 'https (nginx)', address: `127.0.0.1:${port}` })
    return port
  }

  #standIn(name: string, args: string[]): Part {
    return this.#part(name, process.execPath, [resolve(import.meta.dirname, name + EXTENSION), ...args])
  }

  #command(name: string, args: string[], label = name): Part {
    const command = COMMAND.find(existsSync) ?? ''
    return this.#part(label, process.execPath, [command, name, '--log.format', 'json', ...args])
  }

  #part(name: string, program: string, args: string[]): Part {
    const part = new Part(name, program, args, partEnvironment(this.files.ca))
    this.#parts.push(part)
    return part
  }

  async #listen(part: Part, name: string, what: string): Promise<void> {
    const address = await part.listening(name)
    this.#listening.push({ part: part.name, what: part.name === name ? what : `${what} (${name})`, address })
    if (name !== 'admin') this.#addresses.set(name, address)
  }

  #address(name: string): string {
    const address = this.#addresses.get(name)
    if (address === undefined) throw new Error(`nothing listens as ${name}`)
    return address
  }
}

/** The user's own settings and proxies must not reach the demo; its CA must, for the hop from client to router. */
function partEnvironment(ca: string): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => !/^SALLYPORT_|_proxy$/i.test(name))
  return { ...Object.fromEntries(kept), NODE_EXTRA_CA_CERTS: ca }
}

function portOf(address: string): number {
  return Number(address.slice(address.lastIndexOf(':') + 1))
}

/** nginx says nothing when it is ready, so its port is asked until it answers. */
async function untilOpen(port: number, part: Part): Promise<void> {
  const deadline = performance.now() + NGINX_READY_MS
  while (!(await isOpen(port))) {
    if (!part.isRunning || performance.now() > deadline) throw new Error(`nginx does not listen\n${part.tail}`)
  }
}

function isOpen(port: number): Promise<boolean> {
  return new Promise(resolve => {
    const socket = connect(port, '127.0.0.1')
    const done = (open: boolean) => {
      socket.destroy()
      // A refusal comes at once; the pause keeps the loop from spinning.
      if (open) resolve(true)
      else setTimeout(resolve, 20, false)
    }
    socket.once('connect', () => done(true))
    socket.once('error', () => done(false))
  })
}
