/**
 * security.md, E18: who may call, as checked at the edge. Real TLS, a real forward-auth service, and canaries behind
 * it.
 */

import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import {
  createServer,
  type Server as HttpServer,
  request as httpRequest,
  type IncomingMessage,
  type RequestListener,
} from 'node:http'
import { connect as connectHttp2, createSecureServer } from 'node:http2'
import { type AddressInfo, connect as connectTcp, createServer as createTcpServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from 'node:tls'
import { gunzipSync, gzipSync } from 'node:zlib'
import { importJWK, SignJWT } from 'jose'
import { afterEach, describe, expect, test } from 'vitest'
import { createAuthority, createClientCertificate, createKeys, createServerCertificate } from '../../certs/index.ts'
import { discarding } from '../../protocol/base/guard.ts'
import type { HeaderList } from '../../protocol/exchange.ts'
import type { ExchangeHandler } from '../../protocol/wire/exchange/accept.ts'
import { access } from '../../server/access/access.ts'
import type { AccessOptions } from '../../server/access/options.ts'
import type { ServerOptions } from '../../server/options.ts'
import type { Server } from '../../server/server.ts'
import {
  type Answer,
  answer,
  type CallOptions,
  call,
  DOMAIN,
  dial,
  makeWorld,
  startServer,
  token,
} from '../server/fixture.ts'
import { until } from '../support/until.ts'

let server: Server
const others: HttpServer[] = []
afterEach(async () => {
  await server?.close({ graceMs: 0 })
  for (const other of others.splice(0)) other.closeAllConnections()
})

/** Heads of the requests that reached the runtimes. */
let seen: HeaderList[] = []
const witness: ExchangeHandler = (_preamble, request, response) => {
  seen.push(request.headers)
  answer(response, 200, `${request.method} ${request.path}`)
  return discarding(response)
}

async function start(options: ServerOptions['access'], more: Partial<ServerOptions> = {}): Promise<void> {
  seen = []
  server = await startServer({ access: options, ...more })
  for (const runtime of ['demo', 'other']) await dial(server, { runtime, handler: witness })
}

const ask = (path = '/', headers: Record<string, string> = {}, options: CallOptions = {}, runtime = 'demo') =>
  call(server, `${runtime}.${DOMAIN}`, path, { headers, ...options })
const outcome = ({ status, headers }: Answer) => [status, headers['sallyport-error']]

const keys = createKeys()
async function callerToken(claims: Record<string, unknown> = {}, key = keys): Promise<string> {
  const { privateJwk } = await key
  return new SignJWT({ aud: 'callers', sub: 'ann', exp: Math.floor(Date.now() / 1000) + 60, ...claims })
    .setProtectedHeader({ alg: privateJwk.alg!, kid: privateJwk.kid! })
    .sign(await importJWK(privateJwk, privateJwk.alg))
}

describe("E18 a caller's token", () => {
  const jwt = async (more: object = {}) => ({ jwt: { jwks: (await keys).jwks, audience: 'callers', ...more } })
  const bearer = (value: string) => ({ authorization: `Bearer ${value}` })

  test('lets the caller in and is not forwarded', async () => {
    await start(await jwt())
    expect((await ask('/a', bearer(await callerToken()))).text).toBe('GET /a')
    expect(seen[0]).not.toContain('authorization')
    expect(server.stats().access).toEqual({ passed: 1, refused: 0, failed: 0 })
  })

  test('is forwarded where the service is to read it', async () => {
    await start(await jwt({ forward: true }))
    const value = bearer(await callerToken()).authorization
    expect((await ask('/', { authorization: value })).status).toBe(200)
    expect(seen[0]).toContain(value)
  })

  test("lets nobody in if it is missing, expired, from another issuer, or a tunnel client's", async () => {
    await start(await jwt({ issuer: 'https://id.example' }))
    const good = { iss: 'https://id.example' }
    expect((await ask('/', bearer(await callerToken(good)))).status).toBe(200)
    const bad = [
      await callerToken(),
      await callerToken({ ...good, exp: 1 }),
      await callerToken({ ...good, nbf: Math.floor(Date.now() / 1000) + 600 }),
      await callerToken({ ...good, aud: 'sallyport' }),
      await callerToken({ ...good, cnf: { jkt: 'x' } }),
      await callerToken(good, createKeys()),
      await token('demo'),
      'nonsense',
    ]
    const heads = [{}, { authorization: 'Basic YTpi' }, { authorization: 'Bearer' }, ...bad.map(bearer)]
    for (const head of heads) {
      const refused = await ask('/', head as Record<string, string>)
      expect([outcome(refused), refused.headers['www-authenticate']]).toEqual([[401, 'not-authenticated'], 'Bearer'])
    }
    expect(seen.length).toBe(1)
    expect(server.stats().access).toEqual({ passed: 1, refused: heads.length, failed: 0 })
  })

  test('opens the runtimes it names and no others', async () => {
    await start(await jwt({ runtimeClaim: 'runtimes' }))
    for (const [runtimes, expected] of [
      ['demo', 200],
      [['other', 'demo'], 200],
      ['other', 401],
      [[['demo']], 401],
      [undefined, 401],
    ]) {
      expect((await ask('/', bearer(await callerToken({ runtimes })))).status).toBe(expected)
    }
  })

  test('cannot be checked before there is a key set: 503, nobody gets in', async () => {
    await start({ jwt: { jwks: { url: 'https://127.0.0.1:9/jwks.json' }, audience: 'callers' } })
    expect(outcome(await ask('/', bearer(await callerToken())))).toEqual([503, 'access-unavailable'])
    expect(server.stats().access!.failed).toBe(1)
  })
})

/** A service that decides who may call. */
async function judge(listener: RequestListener): Promise<{ url: string; asked: IncomingMessage[] }> {
  const asked: IncomingMessage[] = []
  const service = createServer((request, response) => {
    asked.push(request)
    listener(request, response)
  })
  others.push(service.listen(0, '127.0.0.1'))
  await once(service, 'listening')
  return { url: `http://127.0.0.1:${(service.address() as AddressInfo).port}/auth?rd=1`, asked }
}

const says = (status: number, headers: Record<string, string | string[]> = {}, body = ''): RequestListener => {
  return (_request, response) => void response.writeHead(status, headers).end(body)
}
const HEADERS = ['X-Auth-Request-User', 'x-auth-request-groups']

describe('E18 a forward-auth service', () => {
  test("sees the request's head, allows it and names the caller; callers cannot name themselves", async () => {
    const { url, asked } = await judge(says(202, { 'x-auth-request-user': 'ann', 'x-secret': 'no' }))
    await start({ forwardAuth: { url, headers: HEADERS } })
    const forged = {
      'x-auth-request-user': 'root',
      x_auth_request_user: 'root',
      'x.auth.request.groups': 'wheel',
      cookie: 'session=1',
      'x-forwarded-uri': '/forged',
    }
    const body = 'x'.repeat(100_000)
    const headers = { ...forged, 'content-length': String(body.length) }
    const said = await ask('/a?b=c', headers, { method: 'POST', body })
    expect([said.status, said.text]).toEqual([200, 'POST /a?b=c'])
    expect(asked[0]!.headers).toMatchObject({
      cookie: 'session=1',
      'x-forwarded-method': 'POST',
      'x-forwarded-uri': '/a?b=c',
      'x-forwarded-host': `demo.${DOMAIN}`,
      'x-forwarded-for': '127.0.0.1',
    })
    expect([asked[0]!.method, asked[0]!.url]).toEqual(['GET', '/auth?rd=1'])
    expect(JSON.stringify(asked[0]!.headers)).not.toMatch(/root|wheel|forged|100000/)
    const text = JSON.stringify(seen[0])
    expect(text).toContain('"x-auth-request-user","ann"')
    expect(text).not.toMatch(/root|wheel|x-secret|groups/)
  })

  test('names the caller in a field with `_` or `.`, and callers cannot write it in another way', async () => {
    const { url } = await judge(says(202, { remote_user: 'ann', 'remote.group': 'staff' }))
    await start({ forwardAuth: { url, headers: ['Remote_User', 'remote.group'] } })
    const forged = ['remote-user', 'remote_user', 'remote.user', 'remote-group', 'remote_group', 'remote.group']
    expect((await ask('/', Object.fromEntries(forged.map(name => [name, 'root'])))).status).toBe(200)
    const named = seen[0]!.flatMap((name, i) =>
      i % 2 === 0 && name.startsWith('remote') ? [name, seen[0]![i + 1]] : [],
    )
    expect(named).toEqual(['remote_user', 'ann', 'remote.group', 'staff'])
  })

  test('strips what callers claim about themselves even where it is not asked', async () => {
    const { url, asked } = await judge(says(500))
    await start({ forwardAuth: { url, headers: HEADERS }, runtimes: ['demo'], open: ['demo/webhooks'] })
    const forged = { 'x-auth-request-user': 'root', 'Grpc-Metadata-X-Auth-Request-User': 'root' }
    expect((await ask('/webhooks/a', forged)).status).toBe(200)
    expect((await ask('/', forged, {}, 'other')).status).toBe(200)
    expect(JSON.stringify(seen)).not.toContain('root')
    expect(asked.length).toBe(0)
  })

  test('learns what the request is from us alone', async () => {
    const { url, asked } = await judge(says(200))
    await start({ forwardAuth: { url } })
    const forged = {
      'x-original-url': 'https://open.example/forged',
      x_original_method: 'forged',
      'x-rewrite-url': '/forged',
      'x-forwarded-uri': '/forged',
      'if-none-match': '"forged"',
      range: 'bytes=0-1',
    }
    expect((await ask('/a', forged)).status).toBe(200)
    expect(asked[0]!.headers).toMatchObject({ 'x-forwarded-uri': '/a', 'x-forwarded-method': 'GET' })
    expect(JSON.stringify(asked[0]!.headers)).not.toMatch(/forged|bytes=/)
  })

  test('E9: learns the host that the request is routed by, also from a trusted proxy that passes on another one', async () => {
    const { url, asked } = await judge(says(200))
    await start({ forwardAuth: { url } }, { trustedProxies: ['127.0.0.1/32'] })
    const proxied = { 'x-forwarded-for': '192.0.2.7', 'x-forwarded-proto': 'https' }
    expect((await ask('/a', { ...proxied, 'x-forwarded-host': `other.${DOMAIN}` })).status).toBe(200)
    const host = `demo.${DOMAIN}`
    const forwarded = `for=192.0.2.7;host=${host};proto=https`
    expect(asked[0]!.headers).toMatchObject({ ...proxied, 'x-forwarded-host': host, forwarded })
  })

  test('names the caller, and no trailer overrides it, checked or not', async () => {
    const { url } = await judge(says(202, { 'x-auth-request-user': '\tann\t' }))
    const trailers: HeaderList[] = []
    seen = []
    server = await startServer({ access: { forwardAuth: { url, headers: HEADERS }, open: ['/webhooks'] } })
    const handler: ExchangeHandler = (_preamble, request, response) => {
      seen.push(request.headers)
      const end = (fields: HeaderList) => {
        trailers.push(fields)
        answer(response, 200, '')
      }
      return { ...discarding(response), requestEnd: end }
    }
    await dial(server, { handler })
    const { host, port } = server.publicAddress!
    for (const path of ['/', '/webhooks']) {
      const sent = httpRequest({
        host,
        port,
        path,
        method: 'POST',
        headers: { host: `demo.${DOMAIN}`, trailer: 'x-a' },
      })
      const forged = { 'x-auth-request-user': 'root', 'grpc-metadata-x-auth-request-user': 'root' }
      sent.addTrailers({ ...forged, x_auth_request_groups: 'wheel', 'x-a': '1' })
      sent.end('body')
      const [said] = (await once(sent, 'response')) as [IncomingMessage]
      expect(said.statusCode).toBe(200)
      said.resume()
    }
    expect(trailers).toEqual([
      ['x-a', '1'],
      ['x-a', '1'],
    ])
    expect(seen[0]).toContain('ann')
  })

  test('serves others while one caller has as many checks under way as it may', async () => {
    const { url, asked } = await judge((request, response) => {
      if (request.headers.cookie === 'session=1') response.end()
    })
    await start({ forwardAuth: { url, timeoutMs: 20_000 } })
    const aborted = new AbortController()
    const greedy = Array.from({ length: 70 }, () => ask('/', {}, { signal: aborted.signal, agent: false }))
    for (const one of greedy) one.catch(() => {})
    await until(() => asked.length === 64)
    expect((await ask('/', { cookie: 'session=1' }, { localAddress: '127.0.0.9' })).status).toBe(200)
    expect(asked.length).toBe(65)
    aborted.abort()
    await Promise.allSettled(greedy)
    await until(() => server.stats().exchanges === 0)
    expect((await ask('/', { cookie: 'session=1' })).status).toBe(200)
  })

  test('keeps each caller waiting on a connection of its own while no TLS handshake is answered', async () => {
    const accepted: Socket[] = []
    const service = createTcpServer(socket => void accepted.push(socket.on('error', () => {}).resume()))
    await once(service.listen(0, '127.0.0.1'), 'listening')
    const { port } = service.address() as AddressInfo
    await start({ forwardAuth: { url: `https://127.0.0.1:${port}/`, timeoutMs: 60_000 } })
    const asked = Array.from({ length: 3 }, () => ask())
    await until(() => accepted.length === 3)
    // Each is asked once more.
    service.on('connection', socket => socket.destroy())
    for (const socket of accepted) socket.destroy()
    for (const answered of await Promise.all(asked)) expect(outcome(answered)).toEqual([503, 'access-unavailable'])
    service.close()
  })

  test('is asked over HTTP/1.1, where a check that gets no answer ends its connection, although it prefers HTTP/2', async () => {
    const { authority, server: pair } = await makeWorld()
    const versions: string[] = []
    const service = createSecureServer(
      { cert: pair.certificate, key: pair.key, allowHTTP1: true },
      (request, response) => {
        versions.push(request.httpVersion)
        response.end()
      },
    )
    await once(service.listen(0, '127.0.0.1'), 'listening')
    const { port } = service.address() as AddressInfo
    await start({ forwardAuth: { url: `https://127.0.0.1:${port}/`, ca: authority.certificate } })
    expect((await ask()).status).toBe(200)
    expect(versions).toEqual(['1.1'])
    service.close()
  })

  test('refuses with a content coding that the caller is told about', async () => {
    const { url } = await judge((_request, response) => {
      response.writeHead(401, { 'content-encoding': 'gzip' }).end(gzipSync('log in'))
    })
    await start({ forwardAuth: { url } })
    const { host, port } = server.publicAddress!
    const sent = httpRequest({ host, port, headers: { host: `demo.${DOMAIN}` } }).end()
    const [refused] = (await once(sent, 'response')) as [IncomingMessage]
    expect([refused.statusCode, refused.headers['content-encoding']]).toEqual([401, 'gzip'])
    expect(gunzipSync(Buffer.concat(await refused.toArray())).toString()).toBe('log in')
  })

  test.each([
    [401, { 'www-authenticate': 'Basic' }, 401],
    [403, {}, 403],
    [302, { location: 'https://login.example/', 'set-cookie': ['a=1', 'b=2'] }, 302],
  ])('refuses with %s: the caller gets that answer and nothing else from it', async (status, headers, expected) => {
    const { url } = await judge(says(status, { ...headers, 'x-secret': 'no', 'content-type': 'text/plain' }, 'log in'))
    await start({ forwardAuth: { url } })
    const said = await ask()
    expect([said.status, said.text]).toEqual([expected, 'log in'])
    expect(said.headers).toMatchObject(headers)
    expect(said.headers).not.toHaveProperty('x-secret')
    const head = await ask('/', {}, { method: 'HEAD' })
    expect([head.status, head.text]).toEqual([expected, ''])
    expect(seen).toEqual([])
  })

  test('refuses in a way that pages can read, if the policy of the runtime lets them read refusals', async () => {
    const { url } = await judge(says(401, {}, 'log in'))
    await start({ forwardAuth: { url } })
    const cors = [{ path: '/', origins: ['https://ui.example'], credentials: true }]
    await dial(server, { runtime: 'ui', handler: witness, hello: { cors } })
    const refusal = async (origin: string) => {
      const { status, headers } = await ask('/', { origin }, {}, 'ui')
      return [status, headers['access-control-allow-origin'], headers['access-control-allow-credentials'], headers.vary]
    }
    expect(await refusal('https://ui.example')).toEqual([401, 'https://ui.example', 'true', 'origin'])
    expect(await refusal('https://evil.example')).toEqual([401, undefined, undefined, 'origin'])
  })

  test('is asked again over another connection if it closes an idle one just then', async () => {
    const used = new WeakSet<Socket>()
    const { url, asked } = await judge(({ socket }, response) => {
      if (used.has(socket)) socket.destroy()
      used.add(socket)
      response.writeHead(403).end()
    })
    await start({ forwardAuth: { url } })
    expect([(await ask()).status, (await ask()).status, asked.length]).toEqual([403, 403, 3])
  })

  test.each<[string, RequestListener]>([
    ['fails', says(500)],
    ['is not there under that path', says(404)],
    ['asks for patience', says(429)],
    ['answers nothing', () => {}],
    ['breaks off', (_request, response) => void response.socket!.destroy()],
    ['answers too much', says(401, {}, 'x'.repeat(70_000))],
    ['says yes with too much', says(200, { 'x-auth-request-user': 'x'.repeat(9000) })],
  ])('that %s lets nobody in: 503', async (_name, listener) => {
    const { url } = await judge(listener)
    await start({ forwardAuth: { url, headers: HEADERS, timeoutMs: 500 } })
    expect(outcome(await ask())).toEqual([503, 'access-unavailable'])
    expect([seen, server.stats().access]).toEqual([[], { passed: 0, refused: 0, failed: 1 }])
  })

  test('that cannot be reached lets nobody in: 503', async () => {
    await start({ forwardAuth: { url: 'http://127.0.0.1:9/' } })
    expect(outcome(await ask())).toEqual([503, 'access-unavailable'])
  })

  test('is not asked any further once the caller has gone', async () => {
    const left = Promise.withResolvers<void>()
    const { url, asked } = await judge((_request, response) => response.once('close', left.resolve))
    await start({ forwardAuth: { url } })
    const aborted = new AbortController()
    const gone = ask('/', {}, { signal: aborted.signal })
    await until(() => asked.length === 1)
    aborted.abort()
    await expect(gone).rejects.toThrow('abort')
    await left.promise
    expect([seen, server.stats().access]).toEqual([[], { passed: 0, refused: 0, failed: 0 }])
  })

  test('and a token must both agree, and the service sees the token', async () => {
    const { url, asked } = await judge(says(200))
    await start({
      jwt: { jwks: (await keys).jwks, audience: 'callers' },
      forwardAuth: { url, headers: ['authorization'] },
    })
    const authorization = `Bearer ${await callerToken()}`
    expect((await ask('/', { authorization })).status).toBe(200)
    expect(asked[0]!.headers.authorization).toBe(authorization)
    expect((await ask()).status).toBe(401)
    expect([asked.length, seen.length]).toEqual([1, 1])
  })
})

describe("E18 a caller's certificate", () => {
  const HOST = `demo.${DOMAIN}`
  async function startTls(more: Partial<ServerOptions> = {}, given?: Awaited<ReturnType<typeof createAuthority>>) {
    const { authority, server: ours } = await makeWorld()
    const callers = given ?? (await createAuthority())
    const shown = await createClientCertificate(callers, { runtime: 'ann' })
    const tls = { cert: ours.certificate, key: ours.key }
    await start({ clientCa: callers.certificate, open: ['/webhooks'] }, { public: { port: 0, tls }, ...more })
    const trust = { ca: authority.certificate, servername: HOST }
    return { trust, shown: { cert: shown.certificate, key: shown.key }, callers }
  }

  test('is requested only at the runtimes whose rules ask for it', async () => {
    const { url } = await judge(says(200))
    const callers = await createAuthority()
    const more = { forwardAuth: { url }, runtimes: ['other'] }
    const { trust, shown } = await startTls({ access: [{ clientCa: callers.certificate }, more] }, callers)
    const other = { ...trust, servername: `other.${DOMAIN}` }
    expect((await ask('/', {}, { ...trust, ...shown })).status).toBe(200)
    expect(outcome(await ask('/', {}, trust))).toEqual([401, 'not-authenticated'])
    expect((await ask('/', {}, other, 'other')).status).toBe(200)
  })

  test('lets the caller in over HTTP/1.1 and HTTP/2; without one, or with one from another authority, nobody gets in', async () => {
    const { trust, shown } = await startTls()
    const stranger = await createClientCertificate(await createAuthority(), { runtime: 'ann' })
    const foreign = { cert: stranger.certificate, key: stranger.key }
    expect((await ask('/', {}, { ...trust, ...shown })).status).toBe(200)
    expect(outcome(await ask('/', {}, trust))).toEqual([401, 'not-authenticated'])
    expect(outcome(await ask('/', {}, { ...trust, ...foreign }))).toEqual([401, 'not-authenticated'])
    expect((await ask('/webhooks/a', {}, trust)).status).toBe(200)
    for (const [certificate, expected] of [
      [shown, 200],
      [foreign, 401],
      [{}, 401],
    ] as const) {
      const { host, port } = server.publicAddress!
      const session = connectHttp2(`https://${host}:${port}`, { ...trust, ...certificate })
      const stream = session.request({ ':authority': HOST })
      const [head] = await once(stream, 'response')
      expect(head[':status']).toBe(expected)
      session.destroy()
    }
  })

  test('is valid on an open connection only as long as its authority is trusted', async () => {
    const { trust, shown } = await startTls()
    const { server: ours } = await makeWorld()
    const { host, port } = server.publicAddress!
    const asks = (socket: TLSSocket) => {
      socket.write(`GET / HTTP/1.1\r\nhost: ${HOST}\r\n\r\n`)
      return once(socket, 'data').then(([bytes]) => String(bytes))
    }
    const open = async (options: ConnectionOptions) => {
      const socket = connectTls({ host, port, ...trust, ...options })
      await once(socket, 'secureConnect')
      return socket
    }
    const [certified, other] = [await open(shown), await open({})]
    const session = connectHttp2(`https://${host}:${port}`, { ...trust, ...shown })
    const stream = session.request({ ':authority': HOST })
    await once(stream, 'response')
    expect([(await asks(certified)).slice(9, 12), (await asks(other)).slice(9, 12)]).toEqual(['200', '401'])
    const ended = [once(certified, 'end'), once(session, 'goaway')]
    const next = await createAuthority()
    const tls = { cert: ours.certificate, key: ours.key, ca: next.certificate }
    expect(await server.reload({ publicTls: tls })).toBe(true)
    await Promise.all(ended)
    session.destroy()
    // A caller that showed no certificate has lost nothing and stays connected.
    expect(await asks(other)).toMatch(/^HTTP\/1\.1 401 (?!.*connection: close)/s)
    other.destroy()
    expect((await ask('/', {}, { ...trust, ...shown })).status).toBe(401)
  })

  test('stays valid when an authority is added, unlike after any other change', async () => {
    const { trust, shown, callers } = await startTls()
    const { server: ours } = await makeWorld()
    const { host, port } = server.publicAddress!
    const asks = async (socket: TLSSocket) => {
      socket.write(`GET / HTTP/1.1\r\nhost: ${HOST}\r\n\r\n`)
      return String((await once(socket, 'data'))[0])
    }
    const open = connectTls({ host, port, ...trust, ...shown })
    expect(await asks(open)).toMatch(/^HTTP\/1\.1 200 /)
    const begun = connectTcp(port, host)
    await once(begun, 'connect')
    await until(() => server.stats().callers === 2)
    const next = await createAuthority()
    const tls = { cert: ours.certificate, key: ours.key, ca: [next.certificate, callers.certificate] }
    expect(await server.reload({ publicTls: tls })).toBe(true)
    for (const socket of [open, connectTls({ ...trust, ...shown, socket: begun })]) {
      expect(await asks(socket)).toMatch(/^HTTP\/1\.1 200 (?!.*connection: close)/s)
      socket.destroy()
    }
  })

  test('is not valid if its authority was removed after its handshake began', async () => {
    const { trust, shown } = await startTls()
    const { server: ours } = await makeWorld()
    const { host, port } = server.publicAddress!
    const sockets = await Promise.all(
      [shown, {}].map(async certificate => {
        const socket = connectTcp(port, host)
        await once(socket, 'connect')
        return { socket, certificate }
      }),
    )
    const next = await createAuthority()
    const tls = { cert: ours.certificate, key: ours.key, ca: next.certificate }
    await until(() => server.stats().callers >= sockets.length)
    expect(await server.reload({ publicTls: tls })).toBe(true)
    const answers = sockets.map(async ({ socket, certificate }) => {
      const secured = connectTls({ ...trust, ...certificate, socket })
      const ended = Promise.race([once(secured, 'close'), once(secured, 'error')]).then(() => 'closed')
      secured.write(`GET / HTTP/1.1\r\nhost: ${HOST}\r\n\r\n`)
      const answer = await Promise.race([once(secured, 'data').then(([bytes]) => String(bytes).slice(9, 12)), ended])
      secured.destroy()
      return answer
    })
    expect(await Promise.all(answers)).toEqual(['closed', '401'])
  })

  test('nor if another connection has come from the same address and port, to another address of ours', async () => {
    const { server: ours } = await makeWorld()
    const { trust, shown } = await startTls({
      public: { host: '0.0.0.0', port: 0, tls: { cert: ours.certificate, key: ours.key } },
    })
    const { port } = server.publicAddress!
    const begun = connectTcp({ host: '127.0.0.1', port, localAddress: '127.0.0.1' })
    await once(begun, 'connect')
    await until(() => server.stats().callers === 1)
    const next = await createAuthority()
    const tls = { cert: ours.certificate, key: ours.key, ca: next.certificate }
    expect(await server.reload({ publicTls: tls })).toBe(true)
    const twin = connectTcp({ host: '127.0.0.2', port, localAddress: '127.0.0.1', localPort: begun.localPort! })
    await once(twin, 'connect')
    await until(() => server.stats().callers === 2)
    const secured = connectTls({ ...trust, ...shown, socket: begun })
    const ended = Promise.race([once(secured, 'close'), once(secured, 'error')]).then(() => 'closed')
    secured.write(`GET / HTTP/1.1\r\nhost: ${HOST}\r\n\r\n`)
    const answer = once(secured, 'data').then(([bytes]) => String(bytes).slice(9, 12))
    expect(await Promise.race([answer, ended])).toBe('closed')
    secured.destroy()
    twin.destroy()
  })

  test('is checked against the same authorities after a reload that names none', async () => {
    const { trust, shown } = await startTls()
    const { server: ours } = await makeWorld()
    const tls = { cert: ours.certificate, key: ours.key }
    expect(await server.reload({ publicTls: { ...tls, ca: undefined } })).toBe(true)
    expect((await ask('/', {}, { ...trust, ...shown })).status).toBe(200)
    expect((await ask('/', {}, trust)).status).toBe(401)
  })

  test('is checked against the same authorities where a name has its own certificate', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'sallyport-access-'))
    try {
      const { authority } = await makeWorld()
      const own = await createServerCertificate(authority, { hosts: [HOST] })
      await writeFile(join(folder, 'own.crt'), own.certificate)
      await writeFile(join(folder, 'own.key'), own.key)
      const { server: ours } = await makeWorld()
      const tls = { cert: ours.certificate, key: ours.key }
      const { trust, shown, callers } = await startTls({ public: { port: 0, tls, tlsFolder: folder } })
      expect((await ask('/', {}, { ...trust, ...shown })).status).toBe(200)
      expect((await ask('/', {}, trust)).status).toBe(401)
      // From here on, others are trusted, under each of our certificates.
      const next = await createAuthority()
      expect(await server.reload({ publicTls: { ...tls, ca: [next.certificate] } })).toBe(true)
      const fresh = await createClientCertificate(next, { runtime: 'ann' })
      expect((await ask('/', {}, { ...trust, cert: fresh.certificate, key: fresh.key })).status).toBe(200)
      expect((await ask('/', {}, { ...trust, ...shown })).status).toBe(401)
      expect(callers.certificate).not.toBe(next.certificate)
    } finally {
      await rm(folder, { recursive: true })
    }
  })
})

test("E18 callers' certificates come from one authority, whatever the runtime", async () => {
  const [{ server: ours }, one, other] = [await makeWorld(), await createAuthority(), await createAuthority()]
  const tls = { cert: ours.certificate, key: ours.key }
  const sets = [one, other].map(({ certificate }, i) => ({ clientCa: certificate, runtimes: [`r${i}`] }))
  await expect(startServer({ access: sets, public: { port: 0, tls } })).rejects.toThrow('clientCa must be the same')
  const both = [one.certificate, other.certificate]
  await start([{ clientCa: both }, { clientCa: [...both], runtimes: ['demo'] }], { public: { port: 0, tls } })
  const shown = await Promise.all([one, other].map(authority => createClientCertificate(authority, { runtime: 'ann' })))
  for (const { certificate: cert, key } of shown) {
    expect((await ask('/', {}, { ca: ours.certificate, rejectUnauthorized: false, cert, key })).status).toBe(200)
  }
})

describe('E18 open to everyone', () => {
  test('is a path and everything below it, if it can be read in only one way', async () => {
    const { url } = await judge(says(403))
    await start({ forwardAuth: { url }, open: ['/webhooks', 'demo/hook/'] })
    for (const path of ['/webhooks', '/webhooks/', '/webhooks?x=%2e%2e', '/webhooks/github/1', '/hook/a']) {
      expect([path, (await ask(path)).status]).toEqual([path, 200])
    }
    const closed = [
      ...['/', '/webhooksx', '/Webhooks', '/hook', '/a/webhooks', '//webhooks', '/webhooks/../admin', '/webhooks/..'],
      ...['/webhooks/%2e%2e/admin', '/webhooks/..%2fadmin', '/webhooks/..;/admin', '/webhooks/.%2e/admin'],
      ...[
        '/webhooks/..\\admin',
        '/webhooks//admin',
        '/webhooks/./admin',
        '/webhooks/..../admin',
        '/webhooks%2fa',
        '/webhooks;a=b/x',
      ],
    ]
    for (const path of closed) {
      const { status } = await ask(path)
      expect([path, status === 403 || status === 400]).toEqual([path, true])
    }
    expect((await ask('/hook/a', {}, {}, 'other')).status).toBe(403)
    expect(seen.length).toBe(5)
  })

  test('is not left through a field that names another path, or the mount', async () => {
    const { url } = await judge(says(403))
    const forged = [
      'x-original-url',
      'X-Rewrite-Url',
      'x_original_uri',
      'x.original.method',
      'x!original!url',
      'x~rewrite+path',
    ]
    const mounts = [
      'SCRIPT_NAME',
      'Script-Name',
      'PATH_INFO',
      'Daphne-Root-Path',
      'X-Vhm-Root',
      'x_vhm_root',
      'X-Script-Name',
    ]
    for (const trustedProxies of [[], ['127.0.0.0/8']]) {
      await start({ forwardAuth: { url }, open: ['/webhooks'] }, { trustedProxies })
      for (const field of [...forged, ...mounts]) {
        expect([field, (await ask('/webhooks', { [field]: '/evil' })).status]).toEqual([field, 200])
      }
      expect(seen.length).toBe(forged.length + mounts.length)
      expect(JSON.stringify(seen)).not.toContain('evil')
      await server.close({ graceMs: 0 })
    }
  })

  test('and what is copied are no patterns, which would stand for themselves', async () => {
    const { url } = await judge(says(403))
    for (const open of ['/hooks/*', '/{name}/hooks', '/:name/hooks', 'demo/<name>']) {
      await expect(start({ forwardAuth: { url }, open: [open] })).rejects.toThrow('has a pattern')
    }
    const headers = ['x-auth-request-*']
    await expect(start({ forwardAuth: { url, headers } })).rejects.toThrow('has a "*", which stands for nothing here')
  })

  test('is no request that has a second path, in a field', async () => {
    const { url } = await judge(says(403))
    await start({ forwardAuth: { url }, open: ['/webhooks'] })
    for (const field of ['Destination', 'x-amz-copy-source', 'x_ms_copy_source', 'X-Copy-From', 'x.symlink.target']) {
      expect([field, (await ask('/webhooks', { [field]: '/webhooks/x' }, { method: 'COPY' })).status]).toEqual([
        field,
        403,
      ])
    }
    expect(seen).toEqual([])
    expect((await ask('/webhooks', { 'x-destination': '/a', source: '/a' }, { method: 'COPY' })).status).toBe(200)
  })

  test('is every runtime that is not named', async () => {
    const { url } = await judge(says(403))
    await start({ forwardAuth: { url }, runtimes: ['demo'] })
    expect([(await ask()).status, (await ask('/', {}, {}, 'other')).status]).toEqual([403, 200])
  })

  test("is a browser's preflight, by the policy of the runtime", async () => {
    const { url, asked } = await judge(says(403))
    await start({ forwardAuth: { url } })
    const cors = [{ path: '/', origins: ['https://ui.example'] }]
    await dial(server, { runtime: 'ui', handler: witness, hello: { cors } })
    const preflight = (origin: string) => {
      const headers = { origin, 'access-control-request-method': 'POST' }
      return ask('/', headers, { method: 'OPTIONS' }, 'ui')
    }
    expect((await preflight('https://ui.example')).status).toBe(204)
    expect([(await preflight('https://evil.example')).status, asked.length, seen.length]).toEqual([403, 1, 0])
  })
})

describe('E18 separate rules for some runtimes', () => {
  test('check the callers of those runtimes and no others', async () => {
    const [own, rest] = [await judge(says(403)), await judge(says(200, { 'x-user': 'ann' }))]
    const { jwks } = await keys
    await start([
      { jwt: { jwks, audience: 'callers' }, runtimes: ['demo'], open: ['/open'] },
      { forwardAuth: { url: own.url, headers: ['x-owner'] }, runtimes: ['other', 'other'] },
      { forwardAuth: { url: rest.url, headers: ['x-user'] } },
    ])
    await dial(server, { runtime: 'third', handler: witness })
    const bearer = { authorization: `Bearer ${await callerToken()}` }
    const forged = { ...bearer, 'x-user': 'root', 'x-owner': 'root' }
    const rows = []
    for (const runtime of ['demo', 'other', 'third']) {
      for (const [path, headers] of [
        ['/', {}],
        ['/', forged],
        ['/open', {}],
      ] as const) {
        rows.push(`${runtime}${path} ${(await ask(path, headers, {}, runtime)).status}`)
      }
    }
    expect(rows).toEqual([
      ...['demo/ 401', 'demo/ 200', 'demo/open 200'],
      ...['other/ 403', 'other/ 403', 'other/open 403'],
      ...['third/ 200', 'third/ 200', 'third/open 200'],
    ])
    expect([own.asked.length, rest.asked.length]).toEqual([3, 3])
    expect(JSON.stringify(seen)).not.toContain('root')
    expect(server.stats().access).toEqual({ passed: 4, refused: 4, failed: 0 })
  })

  test('fetch their key sets together at the start, so that one that does not answer keeps no other waiting', async () => {
    let [opened, closed] = [0, 0]
    const silent = createTcpServer(socket => {
      opened++
      socket
        .resume()
        .on('close', () => closed++)
        .on('error', () => {})
    }).listen(0, '127.0.0.1')
    await once(silent, 'listening')
    const url = `https://127.0.0.1:${(silent.address() as AddressInfo).port}/`
    const rules = ['demo', 'other'].map(name => ({ jwt: { jwks: { url }, audience: 'callers' }, runtimes: [name] }))
    const stopping = new AbortController()
    const starting = startServer({ access: rules, signal: stopping.signal })
    await until(() => opened === 2)
    // The second has not just taken the place of the first.
    for (let turn = 0; turn < 10; turn++) await nextTurn()
    expect(closed).toBe(0)
    stopping.abort(new Error('enough'))
    await expect(starting).rejects.toThrow('enough')
    silent.close()
  })

  test('leave all others open where there are no rules for the rest', async () => {
    const { url } = await judge(says(403))
    await start([{ forwardAuth: { url }, runtimes: ['demo'] }])
    expect([(await ask()).status, (await ask('/', {}, {}, 'other')).status]).toEqual([403, 200])
  })
})

test('E18 without a check there is no access layer at all', () => {
  const next = () => {
    throw new Error('never called')
  }
  expect(access(undefined, () => undefined)(next)).toBe(next)
})

const ANYBODY = { forwardAuth: { url: 'http://x' } }
test.each<[AccessOptions | AccessOptions[], string]>([
  [[ANYBODY, ANYBODY], 'only one set may leave out its runtimes'],
  [
    [
      { ...ANYBODY, runtimes: ['a', 'b'] },
      { ...ANYBODY, runtimes: ['b'] },
    ],
    'b is in two sets',
  ],
  [[ANYBODY, { runtimes: ['a'] }], 'nobody would be checked'],
  [Array.from({ length: 33 }, (_, i) => ({ ...ANYBODY, runtimes: [`r${i}`] })), 'over 32 sets'],
  [{}, 'nobody would be checked'],
  [{ open: ['/a'] }, 'nobody would be checked'],
  [{ jwt: { jwks: { file: 'x' }, audience: 'sallyport' } }, 'must differ from auth.audience'],
  [{ clientCa: 'x' }, 'access.clientCa has no readable certificate'],
  [{ forwardAuth: { url: 'ftp://x' } }, 'http or https'],
  [{ forwardAuth: { url: 'http://x', headers: ['x-forwarded-user'] } }, 'ours to set'],
  [{ forwardAuth: { url: 'http://x', headers: ['Content-Length'] } }, 'ours to set'],
  [{ forwardAuth: { url: 'http://x', headers: ['content_length'] } }, 'ours to set'],
  [{ forwardAuth: { url: 'http://x' }, open: ['webhooks'] }, 'not a plain'],
  [{ forwardAuth: { url: 'http://x' }, open: ['/a/../b'] }, 'not a plain'],
  [{ forwardAuth: { url: 'http://x' }, runtimes: ['Demo'] }, 'names of runtimes'],
  [{ ...ANYBODY, runtimes: [] }, 'access.runtimes is empty: nobody would be checked'],
])('%j is refused: %s', async (options, message) => {
  await expect(startServer({ access: options })).rejects.toThrow(message)
})

test('clientCa without TLS at the edge is refused', async () => {
  const { certificate } = await createAuthority()
  await expect(startServer({ access: { clientCa: certificate } })).rejects.toThrow('needs public.tls')
})
