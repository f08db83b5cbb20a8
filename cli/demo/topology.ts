import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { extname, join, resolve } from 'node:path'
import type { EntryPoint, Keeper } from './dial.ts'
import { type DemoFiles, DOMAIN, HOSTS, partFolder, WEBHOOK_PATH, writeRoutes } from './files.ts'
import { nginxConfig } from './nginx.ts'
import { type LogLine, Part } from './parts.ts'
import { otherPort, type PickPort, usualPort } from './ports.ts'
import { findProgram } from './programs.ts'

/** `.ts` in a checkout, `.js` in the package. */
const EXTENSION = extname(import.meta.filename)
const COMMAND = [
  join(import.meta.dirname, '../../bin/sallyport.js'),
  join(import.meta.dirname, '../../../bin/sallyport.js'),
]

/** How long the event source's route is not active yet. */
const INACTIVE_MS = '100'
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
/** The inbox needs a version of Node whose SQLite is recent enough. */
export const HAS_INBOX = major > 24 || (major === 24 && minor >= 15)

/** The server also shows what a client does with a request. */
const RETURNS_SPANS = ['--tracing', 'server']

/** A listener of the demo, as the table shows it. */
interface Listening {
  readonly part: string
  readonly what: string
  readonly address: string
}

const TABLE_ORDER = ['server', 'client', 'router', 'ingress', 'app-proxy', 'event-source']

/** The running parts, each a separate process, and what they listen on. Ended by {@link Demo.stop}. */
export class Demo {
  readonly files: DemoFiles
  readonly #nginx: string
  readonly #listening: Listening[] = []
  readonly #addresses = new Map<string, string>()
  readonly #parts: Part[] = []
  #routes = ''
  #embedded: Part | undefined
  #stopping = false

  /** `nginx` is the path of its program. If it is empty, the ingress entry point is the router service itself. */
  constructor(files: DemoFiles, nginx: string = findProgram('nginx') ?? '') {
    this.files = files
    this.#nginx = nginx
  }

  /** What listens where, in the order in which a request passes. */
  get listening(): Listening[] {
    return this.#listening.toSorted((a, b) => TABLE_ORDER.indexOf(a.part) - TABLE_ORDER.indexOf(b.part))
  }

  get parts(): readonly Part[] {
    return this.#parts
  }

  /** Starts the stand-ins, the router service, the server, the client and the ingress. Resolves to the entry points. */
  async start(): Promise<EntryPoint[]> {
    await Promise.all([
      this.#settle(port => this.#startAppProxy(port), { 'app-proxy': 'http' }),
      this.#settle(port => this.#startEventSource(port), { 'event-source': 'http' }),
      this.#settle(port => this.#startServer(port), { public: 'https', control: 'wss', admin: 'http' }),
    ])
    this.#routes = await this.#writeRoutes('router')
    await this.#settle(port => this.#startRouter(port), { router: 'https', admin: 'http' })
    const service = `https://${this.#address('router')}`
    const [ingressPort] = await Promise.all([this.#startIngress(service), this.#startClient(service)])
    const ca = this.files.caPem
    return [
      { name: 'tunnel', host: HOSTS.tunnel, port: portOf(this.#address('public')), ca },
      { name: 'ingress', host: HOSTS.ingress, port: ingressPort, ca, trustsCaller: this.#nginx === '' },
    ]
  }

  #writeRoutes(who: 'router' | 'client'): Promise<string> {
    return writeRoutes(
      this.files,
      this.#address('app-proxy'),
      this.#address('event-source'),
      who === 'client' && HAS_INBOX,
    )
  }

  /** Starts a second client, with an embedded router. Resolves to its entry point. The server stores its webhooks while it is offline. */
  async startEmbedded(): Promise<EntryPoint> {
    await this.#startEmbedded()
    const keeper: Keeper = {
      stopClient: async () => await this.#embedded!.stop(),
      startClient: () => this.#startEmbedded(),
      recorded: ids => this.#recorded(ids),
    }
    const port = portOf(this.#address('public'))
    const entry = { name: 'embedded', host: HOSTS.embedded, port, ca: this.files.caPem }
    return HAS_INBOX ? { ...entry, keeper } : entry
  }

  async #recorded(ids: readonly string[]): Promise<{ id: string; sha256: string }[]> {
    const eventSource = this.#parts.findLast(part => part.name === 'event-source')!
    const isOne = (line: LogLine) => line.msg === 'event' && ids.includes(String(line.delivery))
    const lines = await eventSource.lines(ids.length, 'event of each webhook', isOne)
    return lines.map(({ delivery, sha256 }) => ({ id: String(delivery), sha256: String(sha256) }))
  }

  async #startEmbedded(): Promise<void> {
    const inbox = HAS_INBOX ? ['--inbox.key.file', join(this.files.folder, 'inbox-key.pem')] : []
    const args = ['--routes', await this.#writeRoutes('client'), ...inbox, '--admin.listen', 'off']
    this.#embedded = this.#client(this.files.tokens.embedded, args, 'embedded')
    await this.#embedded.line('session', line => line.msg === 'connected')
  }

  /** Restarts the embedded client `ms` after it ends, each time, until the demo stops. Returns the process id. */
  keepEmbedded(ms: number): number | undefined {
    const client = this.#embedded
    const again = async () => {
      if (this.#stopping) return
      await this.#startEmbedded()
      this.keepEmbedded(ms)
    }
    void client?.gone.then(() => setTimeout(() => void again().catch(() => {}), ms).unref())
    return client?.pid
  }

  /** Ends every part, the outer ones first. */
  async stop(): Promise<void> {
    this.#stopping = true
    await Promise.all(this.#parts.map(part => part.stop()))
  }

  /** Waits for a part's listeners. If another program took one of its ports first, the part is started once more on other ports. */
  async #settle(start: (port: PickPort) => Promise<Part>, listeners: Record<string, string>): Promise<Part> {
    const part = await start(usualPort)
    try {
      await this.#listen(part, listeners)
      return part
    } catch (error) {
      if (part.isRunning) throw error
      const second = await start(otherPort)
      await this.#listen(second, listeners)
      return second
    }
  }

  async #startAppProxy(port: PickPort): Promise<Part> {
    return this.#standIn('app-proxy', [String(await port(3017))])
  }

  async #startEventSource(port: PickPort): Promise<Part> {
    return this.#standIn('event-source', [
      ...[String(await port(12_000)), WEBHOOK_PATH, this.files.webhookSecret, '0', INACTIVE_MS],
    ])
  }

  async #startServer(port: PickPort): Promise<Part> {
    const { certificate, key, jwks } = this.files
    return this.#command('server', [
      ...['--public.listen', `127.0.0.1:${await port(8080)}`, '--public.tls.cert', certificate],
      ...['--public.tls.key', key, '--control.listen', `127.0.0.1:${await port(8443)}`],
      ...['--control.tls.cert', certificate, '--control.tls.key', key, '--domain', DOMAIN, '--auth.jwks.file', jwks],
      ...['--tracing', 'recent', '--tracing.ratio', '1'],
      ...(HAS_INBOX ? ['--inbox', `sqlite:${join(this.files.folder, 'inbox.db')}`] : []),
    ])
  }

  async #startRouter(port: PickPort): Promise<Part> {
    const { certificate, key } = this.files
    return this.#command('router', [
      ...['--listen', `127.0.0.1:${await port(8081)}`, '--tls.cert', certificate, '--tls.key', key],
      ...['--routes', this.#routes, '--trusted-proxies', '127.0.0.1/32'],
    ])
  }

  async #startClient(target: string): Promise<void> {
    const args = ['--target', target, '--target.trust-errors', '--inspect', 'bodies']
    const client = this.#client(this.files.tokens.service, args)
    await Promise.all([
      client.line('session', line => line.msg === 'connected'),
      this.#listen(client, { admin: 'http' }),
    ])
  }

  /** Starts nginx if it is installed. Otherwise callers reach the router service directly. Resolves to the port. */
  async #startIngress(router: string): Promise<number> {
    const nginx = this.#nginx
    if (nginx === '') {
      this.#listening.push({ part: 'ingress', what: 'none: nginx is not installed', address: this.#address('router') })
      return portOf(this.#address('router'))
    }
    return this.#startNginx(nginx, router, usualPort).catch(() => this.#startNginx(nginx, router, otherPort))
  }

  async #startNginx(nginx: string, router: string, pick: PickPort): Promise<number> {
    const { certificate, key, ca } = this.files
    const port = await pick(8082)
    const folder = await partFolder(this.files, 'nginx')
    const path = join(folder, 'nginx.conf')
    await writeFile(path, nginxConfig({ folder, port, certificate, key, ca, router }))
    const part = this.#part('ingress', nginx, ['-p', folder, '-e', 'stderr', '-c', path])
    // nginx logs its version in its first notice, once it has its port.
    await part.line('notice', line => /\[notice\].* nginx\//.test(line.msg))
    this.#listening.push({ part: 'ingress', what: 'https (nginx)', address: `127.0.0.1:${port}` })
    return port
  }

  #standIn(name: string, args: string[]): Part {
    return this.#part(name, process.execPath, [resolve(import.meta.dirname, name + EXTENSION), ...args])
  }

  #client(token: string, args: string[], label?: string): Part {
    const server = ['--server', `wss://${this.#address('control')}`, '--token.file', token, '--ca', this.files.ca]
    return this.#command('client', [...server, ...args, ...RETURNS_SPANS], label)
  }

  #command(name: string, args: string[], label = name): Part {
    const command = COMMAND.find(existsSync) ?? ''
    return this.#part(label, process.execPath, [command, name, '--log.format', 'json', ...args])
  }

  #part(name: string, program: string, args: string[]): Part {
    const part = new Part(name, program, args, partEnvironment(this.files))
    this.#parts.push(part)
    return part
  }

  /** `listeners` maps the part's names for them to the schemes that they speak. */
  async #listen(part: Part, listeners: Record<string, string>): Promise<void> {
    const names = Object.keys(listeners)
    const addresses = await Promise.all(names.map(name => part.listening(name)))
    for (const [i, name] of names.entries()) {
      const address = addresses[i] ?? ''
      const scheme = listeners[name] ?? ''
      this.#listening.push({ part: part.name, what: part.name === name ? scheme : `${scheme} (${name})`, address })
      if (name !== 'admin') this.#addresses.set(name, address)
    }
  }

  #address(name: string): string {
    const address = this.#addresses.get(name)
    if (address === undefined) throw new Error(`nothing listens as ${name}`)
    return address
  }
}

/** The user's own settings, files of settings and proxies must not reach the demo; its CA must, for the hop from client to router. */
function partEnvironment({ ca, folder }: DemoFiles): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => !/^SALLYPORT_|_proxy$/i.test(name))
  return { ...Object.fromEntries(kept), NODE_EXTRA_CA_CERTS: ca, XDG_CONFIG_HOME: folder }
}

function portOf(address: string): number {
  return Number(address.slice(address.lastIndexOf(':') + 1))
}
