/** The three upstreams, each of which tells what it saw: Node in this process, nginx and Apache as processes of ours. */
import { once } from 'node:events'
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import {
  createServer,
  type Server as HttpServer,
  type IncomingMessage,
  type RequestListener,
  type ServerResponse,
} from 'node:http'
import { type AddressInfo, createServer as createNetServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join, posix } from 'node:path'
import { nginxFile } from '../../cli/demo/nginx.ts'
import { ByteReader } from '../support/byte-reader.ts'
import { bodyForm, collect, readBody, readHead, value, writeFields } from '../support/http1-wire.ts'
import { program } from '../support/needs.ts'
import { freePort, startProxyProgram } from '../support/proxy-program.ts'
import { CONNECTION_FIELD, md5, REPORT_FIELD, type Report, writeReport } from './reports.ts'

export interface Upstream {
  readonly name: 'node' | 'nginx' | 'apache'
  readonly port: number
  /** How it reads a target before it acts on it, where that is not byte for byte. */
  readonly reads?: (target: string) => string
  stop(): Promise<void>
}

export async function startNode(): Promise<Upstream> {
  const server = await listen((request, response, body) => {
    const { method = '', url: target = '', headers } = request
    const report = { method, target, host: headers.host ?? '', bodyBytes: body.length, bodyMd5: md5(body) }
    answer(response, writeReport(report), request.socket.remotePort)
  })
  return { name: 'node', port: portOf(server), stop: () => stopServer(server) }
}

/** nginx tells method, target and host in fields of its own making; the body is what arrives behind it. */
export async function startNginx(): Promise<Upstream> {
  const behind = await Behind.start(fields => ({
    method: value(fields, 'x-method') ?? '',
    target: value(fields, 'x-target') ?? '',
    host: value(fields, 'x-host') ?? '',
  }))
  const running = await startUpstream('nginx', folder => ({
    file: 'nginx.conf',
    config: port => nginxConfig(folder, port, behind.port),
    args: ['-p', folder, '-e', 'stderr', '-c', join(folder, 'nginx.conf')],
  }))
  return { name: 'nginx', port: running.port, stop: () => both(running, behind) }
}

function nginxConfig(folder: string, port: number, behind: number): string {
  return nginxFile(
    folder,
    `\
  large_client_header_buffers 8 32k;
  keepalive_requests 1000000;
  merge_slashes off;
  upstream behind { server 127.0.0.1:${behind}; keepalive 16; }
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass http://behind;
      proxy_method POST;
      proxy_http_version 1.1;
      proxy_pass_request_headers off;
      proxy_set_header Connection "";
      proxy_set_header Host behind;
      proxy_set_header X-Method $request_method;
      proxy_set_header X-Target $request_uri;
      proxy_set_header X-Host $http_host;
      proxy_set_header X-Port $remote_port;
    }
  }
`,
    'stderr crit',
  )
}

/** Apache hands on method, target and host as it read them. */
export async function startApache(): Promise<Upstream> {
  const behind = await Behind.start((fields, line) => {
    const [method = '', target = ''] = line.split(' ')
    return { method, target, host: value(fields, 'host') ?? '' }
  })
  const running = await startUpstream('apache2', folder => ({
    file: 'apache.conf',
    config: port => apacheConfig(folder, port, behind.port),
    args: ['-d', folder, '-f', join(folder, 'apache.conf'), '-D', 'FOREGROUND'],
  }))
  return { name: 'apache', port: running.port, reads: readByApache, stop: () => both(running, behind) }
}

/** Where a target begins with two slashes, its path is normalised before it goes on; our router knows of that (R3). */
function readByApache(target: string): string {
  if (!target.startsWith('//')) return target
  return target.replace(/^[^?]*/, path => posix.normalize(decodeUnreserved(path)))
}

/** RFC 3986, section 2.3. */
function decodeUnreserved(path: string): string {
  return path.replace(/%[0-9a-f]{2}/gi, code => {
    const character = String.fromCharCode(Number.parseInt(code.slice(1), 16))
    return /[\w.~-]/.test(character) ? character : code
  })
}

async function both(running: Omit<Upstream, 'name'>, behind: Behind): Promise<void> {
  await running.stop()
  behind.stop()
}

function apacheConfig(folder: string, port: number, behind: number): string {
  const modules = ['mpm_event', 'authz_core', 'headers', 'proxy', 'proxy_http']
    .map(name => `LoadModule ${name}_module /usr/lib/apache2/modules/mod_${name}.so`)
    .join('\n')
  return `${modules}
ServerRoot ${folder}
ServerName upstream.test
PidFile ${folder}/apache.pid
DefaultRuntimeDir ${folder}
ErrorLog ${folder}/error.log
LogLevel crit
User nobody
Group nogroup
Listen 127.0.0.1:${port}
StartServers 1
ServerLimit 1
ThreadsPerChild 16
MaxRequestWorkers 16
MinSpareThreads 1
MaxSpareThreads 16
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 60
AllowEncodedSlashes NoDecode
LimitRequestFields 200
LimitRequestFieldSize 32768
LimitRequestLine 16384
ProxyPreserveHost On
ProxyPass / http://127.0.0.1:${behind}/ nocanon mapping=encoded
RequestHeader set X-Port "expr=%{REMOTE_PORT}"
`
}

type Told = Pick<Report, 'method' | 'target' | 'host'>

/** What runs behind a program: reads any request byte by byte, as `http1-wire.ts` does, and reports it. */
class Behind {
  readonly #server: Server
  readonly #sockets = new Set<Socket>()

  private constructor(server: Server, told: (fields: string[], line: string) => Told) {
    this.#server = server
    server.on('connection', socket => {
      this.#sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => this.#sockets.delete(socket))
      serveWire(socket, told).catch(() => socket.destroy())
    })
  }

  static async start(told: (fields: string[], line: string) => Told): Promise<Behind> {
    const server = createNetServer({ noDelay: true }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    return new Behind(server, told)
  }

  get port(): number {
    return portOf(this.#server)
  }

  stop(): void {
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
  }
}

async function serveWire(socket: Socket, told: (fields: string[], line: string) => Told): Promise<void> {
  const reader = new ByteReader(socket)
  for (;;) {
    const head = await readHead(reader)
    if (head === undefined) return
    if (value(head.fields, 'expect') !== undefined) socket.write('HTTP/1.1 100 Continue\r\n\r\n')
    const body = await collect(readBody(reader, bodyForm(head.fields, false), []))
    const report = writeReport({ ...told(head.fields, head.start), bodyBytes: body.length, bodyMd5: md5(body) })
    const port = value(head.fields, CONNECTION_FIELD)
    const isHead = head.start.startsWith('HEAD ')
    const fields = writeFields([REPORT_FIELD, report, CONNECTION_FIELD, String(port), 'content-length', '2'])
    socket.write(`HTTP/1.1 200 OK\r\n${fields}\r\n${isHead ? '' : 'ok'}`)
  }
}

type Answer = (request: IncomingMessage, response: ServerResponse, body: Buffer) => void

/** A Node server that reads each body before it answers; idle connections stay. */
async function listen(onRequest: Answer): Promise<HttpServer> {
  const listener: RequestListener = (request, response) => {
    const parts: Buffer[] = []
    request.on('data', part => parts.push(part))
    request.on('end', () => onRequest(request, response, Buffer.concat(parts)))
    request.on('error', () => {})
  }
  const server = createServer({ keepAliveTimeout: 60_000, maxHeaderSize: 32_768 }, listener)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return server
}

function answer(response: ServerResponse, report: string, port: unknown): void {
  response.writeHead(200, { [REPORT_FIELD]: report, [CONNECTION_FIELD]: String(port), 'content-length': 2 })
  response.end('ok')
}

async function stopServer(server: HttpServer): Promise<void> {
  server.close()
  server.closeAllConnections()
  await once(server, 'close')
}

function portOf(server: Server): number {
  return (server.address() as AddressInfo).port
}

interface Plan {
  readonly file: string
  readonly config: (port: number) => string
  readonly args: readonly string[]
}

/** A program with its own folder, in the foreground, that ends with the test. */
async function startUpstream(name: string, plan: (folder: string) => Plan): Promise<Omit<Upstream, 'name'>> {
  const folder = await mkdtemp(join(tmpdir(), `sallyport-${name}-`))
  await chmod(folder, 0o755)
  const { file, config, args } = plan(folder)
  const port = await freePort()
  await writeFile(join(folder, file), config(port))
  const running = await startProxyProgram(program(name), args, port)
  const stop = async () => {
    await running.stop()
    await rm(folder, { recursive: true, force: true })
  }
  return { port, stop }
}
