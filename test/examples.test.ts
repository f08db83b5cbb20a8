import { type ChildProcess, spawn } from 'node:child_process'
import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { createServer as createHttpServer, type Server as HttpServer, type IncomingMessage } from 'node:http'
import { get } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { text } from 'node:stream/consumers'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { connect, type Tunnel } from '../client/index.ts'
import { createServer, type Server } from '../server/index.ts'
import { Http1Caller } from './support/caller-http1.ts'
import { DOMAIN, makeSecrets, type Secrets } from './support/secrets.ts'

const ROOT = resolve(import.meta.dirname, '..')

let secrets: Secrets
let folder: string
let server: Server
const programs: Program[] = []
const services: HttpServer[] = []
const tunnels: Tunnel[] = []

beforeAll(async () => {
  secrets = await makeSecrets()
  folder = mkdtempSync(join(tmpdir(), 'sallyport-examples-'))
  const files = {
    'ca.pem': secrets.ca,
    'server.pem': secrets.server.cert,
    'server-key.pem': secrets.server.key,
    'jwks.json': JSON.stringify(secrets.jwks),
    token: await secrets.token('demo'),
  }
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text, { mode: 0o600 })
  server = await createServer({
    control: { host: '127.0.0.1', port: 0, tls: secrets.server },
    domains: [DOMAIN],
    auth: { jwks: secrets.jwks },
  })
})

afterEach(async () => {
  await Promise.all(tunnels.splice(0).map(tunnel => tunnel.close({ graceMs: 0 })))
  await Promise.all(programs.splice(0).map(program => program.stop()))
  for (const service of services.splice(0)) service.close()
})

afterAll(async () => {
  await server.close({ graceMs: 0 })
  rmSync(folder, { recursive: true })
})

/** An example as its own process. */
class Program {
  readonly #child: ChildProcess
  readonly #exited: Promise<unknown[]>
  #output = ''
  #heard: (() => void) | undefined

  constructor(name: string, env: Record<string, string> = {}) {
    const args = ['--import', join(ROOT, 'test/support/sources.ts'), join(ROOT, 'examples', name)]
    const files = { CA: 'ca.pem', TOKEN: 'token', CERT: 'server.pem', KEY: 'server-key.pem', JWKS: 'jwks.json' }
    const paths = Object.fromEntries(Object.entries(files).map(([key, file]) => [key, join(folder, file)]))
    this.#child = spawn(process.execPath, args, {
      env: { PATH: process.env.PATH, DOMAIN, ...paths, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    this.#exited = once(this.#child, 'exit')
    for (const stream of [this.#child.stdout!, this.#child.stderr!]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        this.#output += text
        this.#heard?.()
      })
    }
    void this.#exited.then(() => this.#heard?.())
    programs.push(this)
  }

  /** What the program prints that matches, once it does. */
  async says(pattern: RegExp): Promise<string> {
    for (;;) {
      const match = pattern.exec(this.#output)
      if (match !== null) return match[1] ?? match[0]
      if (this.#child.exitCode !== null) throw new Error(`it ended with ${this.#child.exitCode}:\n${this.#output}`)
      await new Promise<void>(wake => {
        this.#heard = wake
      })
    }
  }

  /** SIGTERM; gives the exit code. */
  async stop(): Promise<number | null> {
    if (this.#child.exitCode === null) this.#child.kill('SIGTERM')
    const [code] = await this.#exited
    return code as number | null
  }
}

function control(): string {
  return `wss://127.0.0.1:${server.controlAddress?.port}`
}

/** An HTTP service of the test on loopback. */
async function service(answer: Parameters<typeof createHttpServer>[1]): Promise<string> {
  const http = createHttpServer(answer)
  services.push(http)
  http.listen(0, '127.0.0.1')
  await once(http, 'listening')
  return `http://127.0.0.1:${(http.address() as AddressInfo).port}`
}

async function tunnelTo(url: string, target: (request: Request) => Response): Promise<Tunnel> {
  const token = () => secrets.token('demo')
  const tunnel = await connect({ url, token, ca: secrets.ca, proxy: '', target, connectTimeoutMs: 100_000 })
  tunnels.push(tunnel)
  return tunnel
}

const fetchDemo = (path: string, init?: RequestInit) =>
  server.fetch('demo', new Request(`https://demo.${DOMAIN}${path}`, init))

describe('examples', () => {
  it('client-function.ts', async () => {
    const program = new Program('client-function.ts', { SERVER: control() })
    expect(await program.says(/connected as \w+/)).toBe('connected as demo')
    expect(await (await fetchDemo('/')).json()).toMatchObject({ hello: 'from behind the firewall' })
    const echo = await fetchDemo('/echo', { method: 'POST', body: 'x'.repeat(300_000) })
    expect(await echo.text()).toBe('x'.repeat(300_000))
    expect(await program.stop()).toBe(0)
    expect(server.sessions()).toEqual([])
  })

  it('client-node-server.ts', async () => {
    const program = new Program('client-node-server.ts', { SERVER: control() })
    await program.says(/connected as demo/)
    expect(await (await fetchDemo('/')).json()).toEqual({
      hello: 'fastify',
      caller: '127.0.0.1',
      host: `demo.${DOMAIN}`,
    })
    const headers = { 'content-type': 'application/json' }
    const stored = await fetchDemo('/items', { method: 'POST', body: '{"name":"a"}', headers })
    expect([stored.status, await stored.json()]).toEqual([201, { stored: { name: 'a' } }])
    expect((await fetchDemo('/nothing')).status).toBe(404)
    expect(await program.stop()).toBe(0)
  })

  it('client-router.ts', async () => {
    const secret = 'secret'
    const api = await service((request, response) => void response.end(`api ${request.url}`))
    const hooks = await service((request, response) => {
      const hmac = createHmac('sha256', secret)
      request.on('data', chunk => hmac.update(chunk))
      request.on('end', () => {
        const valid = request.headers['x-hub-signature-256'] === `sha256=${hmac.digest('hex')}`
        response.writeHead(valid ? 200 : 400).end(request.url)
      })
    })
    const program = new Program('client-router.ts', { SERVER: control(), API: api, HOOKS: hooks })
    await program.says(/connected as demo/)
    expect(await (await fetchDemo('/api/items?x=1')).text()).toBe('api /items?x=1')
    const body = '{ "zen" : "Keep it logically awesome." }'
    const signature = `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`
    const hook = { method: 'POST', body, headers: { 'x-hub-signature-256': signature } }
    expect((await fetchDemo('/webhooks/demo/push', hook)).status).toBe(200)
    expect((await fetchDemo('/webhooks/demo/push')).status).toBe(405)
    expect((await fetchDemo('/other')).status).toBe(404)
    await program.says(/POST \/webhooks\/demo\/push 200 in \d+ ms/)
    expect(await program.stop()).toBe(0)
  })

  it('router-service.ts', async () => {
    const api = await service((request, response) => void response.end(request.headers['x-forwarded-for']))
    const program = new Program('router-service.ts', { PORT: '0', API: api })
    const url = await program.says(/listening on (http:\S+)/)
    expect(await (await fetch(`${url}/healthz`)).text()).toBe('ok')
    const headers = { 'x-forwarded-for': '192.0.2.7' }
    expect(await (await fetch(`${url}/api/x`, { headers })).text()).toBe('192.0.2.7')
    expect(await program.stop()).toBe(0)
  })

  it('server-embedded.ts', async () => {
    const program = new Program('server-embedded.ts', { PUBLIC_PORT: '0', CONTROL_PORT: '0' })
    const port = Number(await program.says(/callers: https:\/\/127\.0\.0\.1:(\d+)/))
    const tunnel = await tunnelTo(await program.says(/clients: (wss:\S+)/), () => new Response('hello'))
    await program.says(/demo is connected/)
    const caller = await Http1Caller.connect({ port, authority: `demo.${DOMAIN}:${port}`, ca: secrets.ca })
    const reply = await caller.ask({ path: '/x' })
    expect([reply.status, String(reply.content)]).toEqual([200, 'hello'])
    caller.close()
    await program.says(/demo: GET \/x 200/)
    await tunnel.close()
    expect(await program.stop()).toBe(0)
  })

  it('server-fetch.ts', async () => {
    const program = new Program('server-fetch.ts', { PORT: '0', CONTROL_PORT: '0' })
    const platform = Number(await program.says(/platform: https:\/\/127\.0\.0\.1:(\d+)/))
    const cancelled = Promise.withResolvers<void>()
    const endless = () =>
      new ReadableStream({ pull: out => out.enqueue(Buffer.alloc(1024)), cancel: cancelled.resolve })
    const callers: (string | null)[] = []
    const answer = (request: Request) => {
      callers.push(request.headers.get('x-forwarded-for'))
      return new Response(new URL(request.url).pathname === '/version' ? '1.2.3' : endless())
    }
    const tunnel = await tunnelTo(await program.says(/clients: (wss:\S+)/), answer)
    const ask = async (host: string, path: string) => {
      const at = { host: '127.0.0.1', port: platform, localAddress: '127.0.0.9', path }
      const sent = get({ ...at, servername: host, headers: { host }, ca: secrets.ca, agent: false })
      const [response] = (await once(sent, 'response')) as [IncomingMessage]
      return { status: response.statusCode, text: await text(response) }
    }
    const asked = await ask('localhost', '/runtimes/demo')
    expect(JSON.parse(asked.text)).toEqual({ name: 'demo', health: 200, version: '1.2.3' })
    await cancelled.promise
    expect(callers).toEqual(['127.0.0.9', '127.0.0.9'])
    expect((await ask('localhost', '/else')).status).toBe(404)
    expect(await ask(`demo.${DOMAIN}`, '/version')).toEqual({ status: 200, text: '1.2.3' })
    await tunnel.close()
    expect(await program.stop()).toBe(0)
  })

  it('layer.ts', async () => {
    const program = new Program('layer.ts', { PUBLIC_PORT: '0', CONTROL_PORT: '0' })
    const port = Number(await program.says(/callers: https:\/\/127\.0\.0\.1:(\d+)/))
    const tunnel = await tunnelTo(await program.says(/clients: (wss:\S+)/), () => new Response('hello'))
    const caller = await Http1Caller.connect({ port, authority: `demo.${DOMAIN}:${port}`, ca: secrets.ca })
    const own = await caller.ask({ path: '/admin/x', method: 'POST', body: 'x' })
    expect([own.status, String(own.content)]).toEqual([503, 'demo is under maintenance\n'])
    const passed = await caller.ask({ path: '/x' })
    expect([passed.status, String(passed.content)]).toEqual([200, 'hello'])
    caller.close()
    await program.says(/200: 5 bytes/)
    await tunnel.close()
    expect(await program.stop()).toBe(0)
  })

  it('each has its test here', () => {
    const names = readdirSync(join(ROOT, 'examples')).filter(name => name.endsWith('.ts'))
    expect(names.sort()).toEqual([
      'client-function.ts',
      'client-node-server.ts',
      'client-router.ts',
      'layer.ts',
      'router-service.ts',
      'server-embedded.ts',
      'server-fetch.ts',
    ])
  })
})
