/** A real nginx in front of the router service, with the very file that `docs/ingress.md` shows. */
import { type ChildProcess, spawn } from 'node:child_process'
import { createHash, createHmac, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer as createHttp, type IncomingMessage } from 'node:http'
import { request as httpsRequest } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { connect as connectTls } from 'node:tls'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import { nginxConfig } from '../../cli/demo/nginx.ts'
import { type RouterService, serveRouter } from '../../router/index.ts'
import { needs, program } from '../support/needs.ts'
import { freePort } from '../support/proxy-program.ts'
import { makeSecrets, type Secrets } from '../support/secrets.ts'
import { RawUpstream } from './support.ts'

const root = resolve(import.meta.dirname, '../..')
const conf = await readFile(join(root, 'deploy/ingress/nginx.conf'), 'utf8')
const doc = await readFile(join(root, 'docs/ingress.md'), 'utf8')

/** Directives of the location, sorted. */
const directives = (text: string) =>
  /location \/ \{([^}]*)\}/
    .exec(text)![1]!
    .split('\n')
    .map(line => line.trim())
    .filter(line => line !== '' && !/^proxy_(pass|ssl)/.test(line))
    .toSorted()

describe("the documentation's nginx", () => {
  it('is the file in deploy/ingress', () => {
    expect(doc).toContain(`\`\`\`nginx\n${conf}\`\`\`\n`)
  })

  it('is what the demo runs', () => {
    const demo = nginxConfig({ folder: '/f', port: 1, certificate: 'c', key: 'k', ca: 'a', router: 'https://r' })
    expect(directives(conf)).toEqual(expect.arrayContaining(directives(demo)))
    expect(directives(demo).length).toBeGreaterThan(8)
  })
})

const UI = 'https://ui.example.com'
const HOST = 'ingress.tunnels.test'

describe.runIf(needs('nginx'))('behind a real nginx', () => {
  let folder: string
  let port: number
  let nginx: ChildProcess
  let service: RouterService
  let secrets: Secrets
  let raw: RawUpstream
  let onRaw: (socket: Socket, text: string) => void = () => {}
  const http = createHttp()
  const sockets = new WebSocketServer({ server: http })
  const seen: { onRequest: (request: IncomingMessage) => void; push: (text: string) => void } = {
    onRequest: () => {},
    push: () => {},
  }

  beforeAll(async () => {
    sockets.on('connection', ws => ws.on('message', (data, binary) => ws.send(data, { binary })))
    http.on('request', (request, response) => {
      seen.onRequest(request)
      if (request.url === '/app-proxy/events') {
        response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders()
        seen.push = text => response.write(text)
        return
      }
      const hash = createHash('sha256')
      request.on('data', chunk => hash.update(chunk))
      request.on('end', () =>
        response.end(JSON.stringify({ hash: hash.digest('hex'), headers: request.headers, url: request.url })),
      )
    })
    http.listen(0, '127.0.0.1')
    await once(http, 'listening')
    raw = await RawUpstream.start((socket, text) => onRaw(socket, text))
    const target = `http://127.0.0.1:${(http.address() as AddressInfo).port}`
    const routes = [
      { name: 'app-proxy', match: { path: '/app-proxy' }, target },
      { name: 'raw', match: { path: '/raw' }, target: raw.url },
      {
        name: 'down',
        match: { path: '/down' },
        target: `http://127.0.0.1:${await freePort()}`,
        cors: { origins: [UI], credentials: true },
      },
    ]
    service = await serveRouter({ port: 0, routes: { routes }, trustedProxies: ['127.0.0.1'] })
    secrets = await makeSecrets()
    folder = await mkdtemp(join(tmpdir(), 'sallyport-ingress-'))
    port = await freePort()
    nginx = await startNginx()
  })

  /** The documented file, with this test's addresses and folders in it. */
  async function startNginx(): Promise<ChildProcess> {
    await writeFile(join(folder, 'tls.crt'), secrets.server.cert)
    await writeFile(join(folder, 'tls.key'), secrets.server.key, { mode: 0o600 })
    const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
      name => `${name}_temp_path ${folder}/${name};`,
    )
    const text = conf
      .replace('listen 443', `listen 127.0.0.1:${port}`)
      .replaceAll('/etc/nginx/tls', folder)
      .replace('internal-router.sallyport.svc.cluster.local:80', `127.0.0.1:${service.address.port}`)
      .replace('ingress.example.com', HOST)
      .replace('http {', `http {\n${paths.join('\n')}`)
    const file = join(folder, 'nginx.conf')
    await writeFile(file, `daemon off;\nmaster_process off;\npid ${folder}/pid;\nerror_log stderr crit;\n${text}`)
    const child = spawn(program('nginx'), ['-p', folder, '-e', 'stderr', '-c', file], {
      stdio: ['ignore', 'ignore', 'inherit'],
    })
    for (;;) {
      if (child.exitCode !== null) throw new Error(`nginx ended with ${child.exitCode}`)
      const opened = await open().then(
        socket => socket.destroy(),
        () => undefined,
      )
      if (opened !== undefined) return child
    }
  }

  afterAll(async () => {
    if (nginx?.exitCode === null) {
      nginx.kill('SIGTERM')
      await once(nginx, 'exit')
    }
    await service?.close({ graceMs: 0 })
    await raw?.stop()
    http.closeAllConnections()
    http.close()
    await rm(folder, { recursive: true, force: true })
  })

  async function open(): Promise<Socket> {
    const socket = connectTls({ port, host: '127.0.0.1', servername: HOST, ca: secrets?.ca })
    await once(socket, 'secureConnect')
    return socket.on('error', () => {})
  }

  function begin(path: string, options: { method?: string; headers?: Record<string, string> } = {}) {
    const { method = 'GET', headers = {} } = options
    const to = { port, host: '127.0.0.1', servername: HOST, ca: secrets.ca, agent: false as const }
    return httpsRequest({ ...to, path, method, headers: { host: HOST, ...headers } })
  }

  async function ask(path: string, options: Parameters<typeof begin>[1] & { body?: Buffer } = {}) {
    const outgoing = begin(path, options)
    outgoing.end(options.body)
    const [response] = (await once(outgoing, 'response')) as [IncomingMessage]
    let text = ''
    for await (const chunk of response) text += chunk
    return { status: response.statusCode, headers: response.headers, text, trailers: response.trailers }
  }

  async function rawAsk(text: string): Promise<string> {
    const socket = await open()
    socket.write(text.replaceAll('\n', '\r\n'))
    let answer = ''
    socket.setEncoding('latin1').on('data', chunk => {
      answer += chunk
    })
    await once(socket, 'close')
    return answer
  }

  it('webhook bodies arrive byte for byte, with the path and query as they came', async () => {
    for (const body of [Buffer.alloc(0), Buffer.from([0xff, 0, 0xc3, 0x28]), randomBytes(5 * 1024 * 1024)]) {
      const signature = createHmac('sha256', 'x').update(body).digest('hex')
      const headers = { 'x-hub-signature-256': signature, 'content-encoding': 'gzip' }
      const answer = await ask('/app-proxy//a%2Fb/%7e?q=%2f&r=//', { method: 'POST', body, headers })
      const arrived = JSON.parse(answer.text)
      expect(arrived.hash).toBe(createHash('sha256').update(body).digest('hex'))
      expect(arrived.url).toBe('/app-proxy//a%2Fb/%7e?q=%2f&r=//')
      expect(arrived.headers).toMatchObject(headers)
    }
  })

  it("the upstream sees the real caller, https and the outer host; the caller's forgeries are gone", async () => {
    const forged = {
      'x-forwarded-for': '6.6.6.6',
      'x-forwarded-proto': 'ftp',
      'x-forwarded-host': 'evil',
      forwarded: 'for=6.6.6.6',
      'x-real-ip': '6.6.6.6',
      'x-request-id': 'evil',
      traceparent: '00-66666666666666666666666666666666-6666666666666666-01',
      tracestate: 'evil=1',
    }
    const { headers } = JSON.parse((await ask('/app-proxy/x', { headers: forged })).text)
    expect(headers).toMatchObject({
      host: HOST,
      'x-forwarded-for': '127.0.0.1',
      'x-forwarded-proto': 'https',
      'x-forwarded-host': HOST,
      forwarded: `for=127.0.0.1;host=${HOST};proto=https`,
    })
    const { 'x-request-id': id, ...others } = headers
    expect(id).toMatch(/^[0-9a-f]{32}$/)
    expect(JSON.stringify(others)).not.toMatch(/6\.6\.6\.6|666|evil/)
  })

  it('events go out one by one', async () => {
    const outgoing = begin('/app-proxy/events').end()
    const [response] = (await once(outgoing, 'response')) as [IncomingMessage]
    for (const text of ['data: 1\n\n', 'data: 2\n\n', 'data: 3\n\n']) {
      seen.push(text)
      expect(String((await once(response, 'data'))[0])).toBe(text)
    }
    outgoing.destroy()
  })

  it('a request body is passed on piece by piece, with a length and chunked', async () => {
    onRaw = (socket, text) => {
      if (text.endsWith('three') || text.endsWith('0\r\n\r\n'))
        socket.end('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n')
    }
    for (const headers of [{ 'content-length': '11' }, {}] as Record<string, string>[]) {
      const index = raw.received.length
      const outgoing = begin('/raw/upload', { method: 'POST', headers })
      for (const text of ['one', 'two', 'three']) {
        outgoing.write(text)
        await raw.until(() => raw.received[index]?.includes(text) === true)
      }
      outgoing.end()
      const [response] = (await once(outgoing, 'response')) as [IncomingMessage]
      expect(response.statusCode).toBe(200)
      response.resume()
    }
  })

  it('WebSocket, text and binary', async () => {
    const to = { host: '127.0.0.1', servername: HOST, ca: secrets.ca, headers: { host: HOST } }
    const ws = new WebSocket(`wss://127.0.0.1:${port}/app-proxy/ws`, to)
    await once(ws, 'open')
    const big = randomBytes(200_000)
    ws.send(big)
    expect(big.equals((await once(ws, 'message'))[0])).toBe(true)
    ws.close(4000)
    expect((await once(ws, 'close'))[0]).toBe(4000)
  })

  it('errors of the router come with CORS, and a preflight is answered while the target is down', async () => {
    const answer = await ask('/down', { headers: { origin: UI } })
    expect(answer).toMatchObject({
      status: 502,
      headers: { 'sallyport-error': 'upstream-refused', 'access-control-allow-origin': UI },
    })
    const headers = { origin: UI, 'access-control-request-method': 'POST' }
    expect(await ask('/down', { method: 'OPTIONS', headers })).toMatchObject({
      status: 204,
      headers: { 'access-control-allow-credentials': 'true' },
    })
  })

  it('a caller that leaves aborts the upstream request', async () => {
    onRaw = socket => socket.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n')
    const index = raw.received.length
    const outgoing = begin('/raw/endless').end()
    const [response] = (await once(outgoing, 'response')) as [IncomingMessage]
    await once(response, 'data')
    response.on('error', () => {})
    outgoing.destroy()
    await raw.until(() => raw.sockets[index]?.destroyed === true)
  })

  it('an upstream that breaks off midway cuts the response', async () => {
    onRaw = socket =>
      socket.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n', () => socket.resetAndDestroy())
    const answer = await rawAsk(`GET /raw/cut HTTP/1.1\nhost: ${HOST}\nconnection: close\n\n`)
    expect(answer).toMatch(/^HTTP\/1\.1 200 /)
    expect(answer).not.toMatch(/\r\n0\r\n\r\n$/)
  })

  describe('cannot carry, as the documentation says:', () => {
    /** The row is in the documentation, and only then is it tested here. */
    const row = (name: string, test: () => Promise<void>) =>
      it(name, async () => {
        expect(doc).toContain(`\n| ${name} | `)
        await test()
      })

    row('response trailers', async () => {
      onRaw = socket =>
        socket.end('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-sum: 1\r\n\r\n')
      const { text, trailers } = await ask('/raw/trailers')
      expect([text, trailers]).toEqual(['a', {}])
    })

    row('request trailers', async () => {
      // A body that arrived in one piece is passed on with a length.
      onRaw = (socket, text) => {
        if (/\r\n\r\n(?:a|1\r\na\r\n0\r\n[\s\S]*\r\n)$/.test(text))
          socket.end('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n')
      }
      const index = raw.received.length
      const body = '1\na\n0\nx-sum: 1\n\n'
      await rawAsk(`POST /raw/up HTTP/1.1\nhost: ${HOST}\nconnection: close\ntransfer-encoding: chunked\n\n${body}`)
      expect(raw.received[index]).toMatch(/\r\n\r\n[\s\S]*a/)
      expect(raw.received[index]).not.toContain('x-sum')
    })

    row('103 early hints', async () => {
      onRaw = socket =>
        socket.end('HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok')
      const socket = await open()
      socket.write(`GET /raw/hints HTTP/1.1\r\nhost: ${HOST}\r\n\r\n`)
      expect(String((await once(socket, 'data'))[0])).toMatch(/^HTTP\/1\.1 103 /)
      socket.destroy()
    })

    row('`Expect: 100-continue` to the upstream', async () => {
      const index = raw.received.length
      onRaw = socket => socket.end('HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n')
      const head = `POST /raw/expect HTTP/1.1\nhost: ${HOST}\nconnection: close\nexpect: 100-continue\ncontent-length: 1\n\n`
      expect(await rawAsk(head)).toMatch(/^HTTP\/1\.1 100 /)
      expect(raw.received[index]).not.toMatch(/\r\nexpect:/i)
    })

    row('methods in lower case', async () => {
      expect(await rawAsk(`foo /raw/x HTTP/1.1\nhost: ${HOST}\nconnection: close\n\n`)).toMatch(/ 400 /)
    })

    row('header names with `_` or `.`', async () => {
      const { headers } = JSON.parse(
        (await ask('/app-proxy/x', { headers: { x_a: '1', 'x.b': '2', 'x-c': '3' } })).text,
      )
      expect(headers).toMatchObject({ 'x-c': '3' })
      expect(headers.x_a ?? headers['x.b']).toBeUndefined()
    })
  })
})
