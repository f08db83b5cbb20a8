/** Real processes with a probe in each of them, the targets behind them, and callers who fill them. */
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect as connectTls } from 'node:tls'
import { Part } from '../../../cli/demo/parts.ts'
import { COMMAND, type Processes, startProcesses } from '../../support/processes.ts'
import { atRest, settled } from './holding.ts'
import { type Place, SECRET, type Shape, TARGETS } from './shapes.ts'

/** What one part has gained. */
export interface Gain {
  readonly part: string
  readonly held: number
  readonly counted: number
}

const sum = (numbers: number[]) => numbers.reduce((a, b) => a + b, 0)

export class World {
  readonly #processes: Processes
  readonly #folder: string
  readonly #servers: Server[]
  /** Of callers and of targets. */
  readonly #sockets: Set<Socket>
  #client: Part | undefined

  static async start(): Promise<World> {
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
    const probe = ['--expose-gc', '--import', join(import.meta.dirname, 'probe.ts')]
    const inbox = ['--inbox', `sqlite:${join(folder, 'inbox.db')}`, '--inbox.plaintext']
    const flags = [...inbox, '--hold.time', '5m', '--hold.startup', '1h']
    const processes = await startProcesses(JSON.stringify({ routes }), flags, probe)
    const world = new World(processes, folder, servers, sockets)
    await world.#connect('inbox', [
      {
        name: 'inbox',
        match: { path: '/inbox', methods: ['POST'] },
        inbox: { mode: 'always' },
        target: 'http://127.0.0.1:9',
      },
    ])
    return world
  }

  /** Another client, of this runtime. */
  async #connect(runtime: string, routes: readonly object[]): Promise<void> {
    const { control, secrets, folder } = this.#processes
    const [token, table] = [join(this.#folder, 'token'), join(this.#folder, 'routes.json')]
    await writeFile(token, await secrets.token(runtime), { mode: 0o600 })
    await writeFile(table, JSON.stringify({ routes }))
    const args = ['--server', control, '--token.file', token, '--ca', join(folder, 'ca.pem'), '--routes', table]
    this.#client = new Part(
      'client',
      process.execPath,
      [COMMAND, 'client', '--admin.listen', 'off', ...args],
      process.env,
    )
    await this.#client.line('session', line => line.msg === 'connected')
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
    await this.#client?.stop()
    await this.#processes.stop()
    await rm(this.#folder, { recursive: true })
  }
}
