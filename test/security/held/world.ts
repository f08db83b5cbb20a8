/** Real processes with a probe in each of them, the targets behind them, and callers who fill them. */
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect as connectTls } from 'node:tls'
import { createAuthority, createReplicaCertificate } from '../../../certs/index.ts'
import { Part } from '../../../cli/demo/parts.ts'
import { HAS_INBOX } from '../../../cli/demo/topology.ts'
import { COMMAND, type Processes, startProcesses } from '../../support/processes.ts'
import { Redis } from '../../support/redis.ts'
import { DOMAIN } from '../../support/secrets.ts'
import { atRest, settled } from './holding.ts'
import { type Place, SECRET, type Shape, TARGETS } from './shapes.ts'

/** What one part has gained. */
export interface Gain {
  readonly part: string
  readonly held: number
  readonly counted: number
}

const PROBE = ['--expose-gc', '--import', join(import.meta.dirname, 'probe.ts')]

const sum = (numbers: number[]) => numbers.reduce((a, b) => a + b, 0)

export class World {
  readonly #processes: Processes
  readonly #folder: string
  readonly #servers: Server[]
  /** Of callers and of targets. */
  readonly #sockets: Set<Socket>
  /** More that it has started. */
  readonly #more: { stop(): Promise<void> }[] = []
  #other: Part | undefined

  /** With a runtime that has an inbox, if this Node can keep one. */
  static async start(): Promise<World> {
    const world = await World.#start(folder => {
      const inbox = ['--inbox', `sqlite:${join(folder, 'inbox.db')}`, '--inbox.plaintext']
      return [...(HAS_INBOX ? inbox : []), '--hold.time', '5m', '--hold.startup', '1h']
    })
    if (!HAS_INBOX) return world
    const match = { path: '/inbox', methods: ['POST'] }
    await world.#connect('inbox', [{ name: 'inbox', match, inbox: { mode: 'always' }, target: 'http://127.0.0.1:9' }])
    return world
  }

  /** With another server, to which callers may come, too. */
  static async startPair(): Promise<World> {
    const redis = await Redis.start()
    await redis.age()
    const authority = await createAuthority()
    const { certificate, key } = await createReplicaCertificate(authority)
    const peering = async (folder: string) => {
      const at = (name: string) => join(folder, name)
      await writeFile(at('peers.pem'), authority.certificate)
      await writeFile(at('peer.pem'), certificate)
      await writeFile(at('peer-key.pem'), key, { mode: 0o600 })
      const tls = [
        '--peer.tls.cert',
        at('peer.pem'),
        '--peer.tls.key',
        at('peer-key.pem'),
        '--peer.tls.ca',
        at('peers.pem'),
      ]
      return ['--directory', redis.url, '--peer.listen', '127.0.0.1:0', ...tls]
    }
    const world = await World.#start(peering)
    world.#more.push(redis)
    await world.#startOther(await peering(world.#folder))
    return world
  }

  static async #start(flagsIn: (folder: string) => string[] | Promise<string[]>): Promise<World> {
    const folder = await mkdtemp(join(tmpdir(), 'sallyport-held-'))
    await writeFile(join(folder, 'secret'), SECRET)
    const servers: Server[] = []
    const sockets = new Set<Socket>()
    const listening = async (serve: (socket: Socket) => void) => {
      const server = createServer({ allowHalfOpen: true }, socket => {
        sockets.add(socket)
        socket.on('error', () => {}).on('close', () => sockets.delete(socket))
        serve(socket)
      })
      servers.push(server)
      await once(server.listen(0, '127.0.0.1'), 'listening')
      return `127.0.0.1:${(server.address() as AddressInfo).port}`
    }
    const routes: object[] = [{ name: 'fixed', match: { path: '/fixed' }, answer: { body: 'f'.repeat(3000) } }]
    for (const [target, { scheme = 'http', verify, serve }] of Object.entries(TARGETS)) {
      const signed =
        verify === true ? { verify: { scheme: 'github', secrets: [{ file: join(folder, 'secret') }] } } : {}
      const at = `${scheme}://${await listening(serve)}`
      routes.push({ name: target, match: { path: `/${target}` }, target: at, ...signed })
    }
    const processes = await startProcesses(JSON.stringify({ routes }), await flagsIn(folder), PROBE)
    return new World(processes, folder, servers, sockets)
  }

  async #startOther(peering: readonly string[]): Promise<void> {
    const { folder } = this.#processes
    const at = (name: string) => join(folder, name)
    const listen = ['public', 'control'].flatMap(name => [
      ...[`--${name}.listen`, '127.0.0.1:0', `--${name}.tls.cert`, at('server.pem')],
      ...[`--${name}.tls.key`, at('server-key.pem')],
    ])
    const args = [
      '--domain',
      DOMAIN,
      '--auth.jwks.file',
      at('jwks.json'),
      '--admin.listen',
      'off',
      ...listen,
      ...peering,
    ]
    this.#other = new Part('other', process.execPath, [...PROBE, COMMAND, 'server', ...args], process.env)
    this.#more.push(this.#other)
    await this.#other.listening('public')
  }

  /** Another client, of this runtime. */
  async #connect(runtime: string, routes: readonly object[]): Promise<void> {
    const { control, secrets, folder } = this.#processes
    const [token, table] = [join(this.#folder, 'token'), join(this.#folder, 'routes.json')]
    await writeFile(token, await secrets.token(runtime), { mode: 0o600 })
    await writeFile(table, JSON.stringify({ routes }))
    const args = ['--server', control, '--token.file', token, '--ca', join(folder, 'ca.pem'), '--routes', table]
    const command = [COMMAND, 'client', '--admin.listen', 'off', ...args]
    const client = new Part('client', process.execPath, command, process.env)
    this.#more.push(client)
    await client.line('session', line => line.msg === 'connected')
  }

  private constructor(processes: Processes, folder: string, servers: Server[], sockets: Set<Socket>) {
    this.#processes = processes
    this.#folder = folder
    this.#servers = servers
    this.#sockets = sockets
  }

  /** At the router service itself, without TLS. */
  atRouter(shape: Shape): Promise<Gain> {
    const port = Number(this.#processes.service.split(':').at(-1))
    const place = { authority: 'a', fieldBytes: 30_000 }
    return this.#gain(this.#processes.router, shape, place, () => connect(port, '127.0.0.1'))
  }

  /** At the server, with TLS, and on through the tunnel. `where`: whose gain. */
  atEdge(
    shape: Shape,
    protocol: 'http/1.1' | 'h2',
    { where = 'server', runtime = 'demo' }: { where?: 'server' | 'client'; runtime?: string } = {},
  ): Promise<Gain> {
    const { [where]: part, place } = this.#processes
    const authority = place.authority.replace('demo', runtime)
    const servername = authority.split(':')[0]!
    const options = { port: place.port, host: '127.0.0.1', ca: place.ca, servername, ALPNProtocols: [protocol] }
    return this.#gain(part, shape, { authority, fieldBytes: 15_000 }, () => connectTls(options))
  }

  /** At a server, of callers who came to the other one, which hands their requests over to it. */
  async atPair(shape: Shape, protocol: 'http/1.1' | 'h2', where: 'server' | 'other'): Promise<Gain> {
    const address = await this.#other!.listening('public')
    const part = where === 'other' ? this.#other! : this.#processes.server
    const port = Number(address.split(':').at(-1))
    const { ca, authority } = this.#processes.place
    const place = { authority: authority.replace(/\d+$/, `${port}`), fieldBytes: 15_000 }
    const servername = authority.split(':')[0]!
    const options = { port, host: '127.0.0.1', ca, servername, ALPNProtocols: [protocol] }
    return this.#gain(part, shape, place, () => connectTls(options))
  }

  /** At the server, while its client reads nothing. */
  async beforeDeafClient(shape: Shape, protocol: 'http/1.1' | 'h2'): Promise<Gain> {
    const { pid } = this.#processes.client
    process.kill(pid!, 'SIGSTOP')
    try {
      return await this.atEdge(shape, protocol)
    } finally {
      process.kill(pid!, 'SIGCONT')
    }
  }

  async #gain(part: Part, shape: Shape, place: Place, dial: () => Socket): Promise<Gain> {
    await atRest(part)
    const before = await settled(part)
    const callers: Socket[] = []
    const answered: Promise<unknown>[] = []
    for (let i = 0; i < shape.callers; i++) {
      const socket = dial()
      callers.push(socket)
      this.#sockets.add(socket)
      socket.on('error', () => {}).on('close', () => this.#sockets.delete(socket))
      await once(socket, 'connect')
      socket.write(shape.sends(place))
      const { later, leaves } = shape
      if (later !== undefined)
        answered.push(once(socket, 'data').then(() => (leaves === true ? socket.end(later) : socket.write(later))))
      else if (shape.deaf !== true) socket.resume()
    }
    await Promise.all(answered)
    const after = await settled(part, () => sum(callers.map(one => one.bytesWritten - one.writableLength)))
    for (const socket of this.#sockets) socket.destroy()
    return { part: part.name, held: after.live - before.live, counted: after.counted - before.counted }
  }

  async stop(): Promise<void> {
    for (const server of this.#servers) server.close()
    await Promise.all([this.#processes, ...this.#more].map(each => each.stop()))
    await rm(this.#folder, { recursive: true })
  }
}
