/** `https:` targets that may choose HTTP/2 (ALPN). */
import { once } from 'node:events'
import { createSecureServer, type Http2SecureServer } from 'node:http2'
import { createServer as createHttps, type Server as HttpsServer } from 'node:https'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import * as grpc from '@grpc/grpc-js'
import { afterEach, beforeAll, expect, it } from 'vitest'
import { WebSocketServer } from 'ws'
import { type Route, type RouterService, type RouterServiceOptions, serveRouter } from '../../../router/index.ts'
import { makeSecrets, type Secrets } from '../../support/secrets.ts'
import { get } from '../support.ts'

let secrets: Secrets
beforeAll(async () => {
  secrets = await makeSecrets()
})
const stops: (() => Promise<unknown> | unknown)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop()
})

interface Up {
  target: string
  sockets: Socket[]
  connections: () => number
}

async function up(server: Http2SecureServer | HttpsServer): Promise<Up> {
  const sockets: Socket[] = []
  server.on('secureConnection', (socket: Socket) => {
    sockets.push(socket)
    socket.on('error', () => {})
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  stops.push(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  return {
    target: `https://localhost:${(server.address() as AddressInfo).port}`,
    sockets,
    connections: () => sockets.length,
  }
}

/** Answers with the protocol and scheme of the request. */
function both(): Http2SecureServer {
  return createSecureServer({ ...secrets.server, allowHTTP1: true }, (request, response) => {
    const scheme = (request.headers[':scheme'] as string | undefined) ?? ''
    response.end(`over ${request.httpVersion} ${scheme} te=${request.headers.te ?? ''}`)
  })
}

async function route(
  target: string,
  tls: Route['tls'] = {},
  options: Partial<RouterServiceOptions> = {},
): Promise<RouterService> {
  const routes = [{ name: 'all', match: {}, target, tls: { ca: secrets.ca, ...tls } }]
  const service = await serveRouter({ port: 0, routes: { routes }, ...options })
  stops.push(() => service.close({ graceMs: 0 }))
  return service
}

it('HTTP/2 if the route offers it and the target accepts it, over one connection', async () => {
  const { target, connections } = await up(both())
  const service = await route(target, { http2: true })
  const answers = await Promise.all(Array.from({ length: 20 }, () => get(service.address.port, '/')))
  for (const answer of answers) expect(answer).toMatch(/over 2\.0 https te=/)
  expect(connections()).toBe(1)
  expect(service.stats().upstreams).toMatchObject({ connections: 1, idle: 1 })
})

it.each([
  ['ended', (socket: Socket) => void socket.end()],
  ['reset', (socket: Socket) => socket.destroy()],
])('a connection that is %s is abandoned, and its exchanges are cut', async (_, end) => {
  const server = createSecureServer(secrets.server, (request, response) => {
    if (request.url === '/whole') response.end('ok')
    else response.write('half')
  })
  const { target, sockets } = await up(server)
  const service = await route(target, { http2: true })
  expect(await get(service.address.port, '/whole')).toMatch(/ok\r\n0\r\n\r\n$/)
  const caller = connect(service.address.port, '127.0.0.1')
  let text = ''
  caller.on('data', chunk => {
    text += chunk.toString('latin1')
  })
  caller.on('error', () => {})
  caller.write('GET /half HTTP/1.1\r\nhost: a\r\n\r\n')
  while (!text.includes('half')) await once(caller, 'data')
  end(sockets[0]!)
  if (!caller.closed) await once(caller, 'close')
  expect(text).not.toContain('0\r\n\r\n')
  expect(await get(service.address.port, '/whole')).toMatch(/ok\r\n0\r\n\r\n$/)
  expect(sockets).toHaveLength(2)
  expect(service.stats()).toMatchObject({ active: 0, upstreams: { connections: 1, idle: 1 } })
})

it('HTTP/1.1 if the route does not offer it', async () => {
  const { target } = await up(both())
  const service = await route(target)
  expect(await get(service.address.port, '/', 'te: trailers')).toMatch(/over 1\.1 {2}te=$/)
})

it('HTTP/1.1 if the target does not accept it: many at once get a connection each', async () => {
  const waiting: (() => void)[] = []
  const server = createHttps(secrets.server, (request, response) => {
    waiting.push(() => response.end(`over ${request.httpVersion}`))
    if (waiting.length >= 10) for (const answer of waiting) answer()
  })
  const { target, connections } = await up(server)
  const service = await route(target, { http2: true })
  const answers = await Promise.all(Array.from({ length: 10 }, () => get(service.address.port, '/')))
  for (const answer of answers) expect(answer).toMatch(/over 1\.1/)
  expect(connections()).toBe(10)
  expect(await get(service.address.port, '/')).toMatch(/over 1\.1/)
  expect(connections()).toBe(10)
  expect(service.stats().upstreams).toMatchObject({ connections: 10, idle: 10 })
})

it.each([
  ['both', ['h2', 'http/1.1']],
  ['only HTTP/2', ['h2']],
])(
  'a busy target that begins to offer %s gets HTTP/2, even while an exchange over HTTP/1.1 goes on',
  async (_, later) => {
    let offered = ['http/1.1']
    const ALPNCallback = ({ protocols }: { protocols: string[] }) => offered.find(name => protocols.includes(name))
    const server = createSecureServer({ ...secrets.server, allowHTTP1: true, ALPNCallback }, (request, response) => {
      if (request.httpVersion === '1.1') response.setHeader('connection', 'close')
      if (request.url === '/long') response.write('begun')
      else void setTimeout(20).then(() => response.end(`over ${request.httpVersion}`))
    })
    const { target } = await up(server)
    const service = await route(target, { http2: true })
    const long = connect(service.address.port, '127.0.0.1')
    stops.push(() => long.destroy())
    long.write('GET /long HTTP/1.1\r\nhost: a\r\n\r\n')
    await once(long, 'data')
    offered = later
    let settled = false
    stops.push(() => {
      settled = true
    })
    const caller = async () => {
      while (!settled) if ((await get(service.address.port, '/')).includes('over 2.0')) settled = true
    }
    await Promise.all(Array.from({ length: 20 }, caller))
    expect(await get(service.address.port, '/')).toMatch(/over 2\.0/)
  },
)

/** A target that chooses HTTP/1.1, is busy with `requests`, and is due to be asked again. Each connection that opens is given to `opens`. */
async function busy(
  opens: (done: () => void) => void,
  options?: Partial<RouterServiceOptions>,
  requests = 1,
): Promise<number> {
  const SNICallback = (_: string, done: (error: null) => void) => opens(() => done(null))
  const server = createHttps({ ...secrets.server, SNICallback }, (request, response) => {
    if (request.url === '/long') response.write('begun')
    else response.end(`over ${request.httpVersion}`)
  })
  const { target } = await up(server)
  const { address } = await route(target, { http2: true }, options)
  for (let i = 0; i < requests; i++) {
    const long = connect(address.port, '127.0.0.1')
    stops.push(() => long.destroy())
    long.write('GET /long HTTP/1.1\r\nhost: a\r\n\r\n')
    await once(long, 'data')
  }
  await setTimeout(1_100)
  return address.port
}

it('a busy target over HTTP/1.1 gets no more connections than are allowed', async () => {
  const port = await busy(done => done(), { maxConnectionsPerTarget: 1 })
  expect(await get(port, '/')).toMatch(/^HTTP\/1\.1 503 [\s\S]*sallyport-error: overloaded/)
})

it('a network that uses its share of a target over HTTP/1.1 gets no more, one a second included', async () => {
  const port = await busy(done => done(), { maxConnectionsPerTarget: 4 }, 3)
  expect(await get(port, '/')).toMatch(/^HTTP\/1\.1 503 [\s\S]*sallyport-error: overloaded/)
})

it('connections over HTTP/2 count, too, once a target has gone back to HTTP/1.1', async () => {
  let offered = 'h2'
  const settings = { maxConcurrentStreams: 1 }
  const options = { ...secrets.server, allowHTTP1: true, settings, ALPNCallback: () => offered }
  const { target, sockets } = await up(createSecureServer(options, (_, response) => void response.write('begun')))
  const { address } = await route(target, { http2: true }, { maxConnectionsPerTarget: 2 })
  const ask = async () => {
    const caller = connect(address.port, '127.0.0.1')
    stops.push(() => caller.destroy())
    caller.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n')
    return String((await once(caller, 'data'))[0])
  }
  expect(await ask()).toMatch(/^HTTP\/1\.1 200/)
  offered = 'http/1.1'
  expect(await ask()).toMatch(/^HTTP\/1\.1 200/)
  expect(await ask()).toMatch(/^HTTP\/1\.1 503/)
  expect(sockets).toHaveLength(2)
})

it('while a connection to it does not open, nobody else waits for that', async () => {
  let opened = 0
  const port = await busy(done => ++opened !== 2 && done())
  const stalled = get(port, '/')
  while (opened < 2) await setTimeout(10)
  await setTimeout(1_100)
  expect(await Promise.race([stalled, get(port, '/')])).toMatch(/over 1\.1/)
})

it('a WebSocket uses HTTP/1.1', async () => {
  const server = both()
  const webSockets = new WebSocketServer({ noServer: true })
  server.on('upgrade', (request, socket, head) =>
    webSockets.handleUpgrade(request, socket, head, each => each.send(`over ${request.httpVersion}`)),
  )
  const { target } = await up(server)
  const service = await route(target, { http2: true })
  const socket = connect(service.address.port, '127.0.0.1')
  stops.push(() => socket.destroy())
  const fields = 'sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n'
  socket.write(`GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n${fields}\r\n`)
  let text = ''
  socket.on('data', chunk => {
    text += chunk.toString('latin1')
  })
  while (!text.includes('over 1.1')) await once(socket, 'data')
  expect(text).toMatch(/^HTTP\/1\.1 101 /)
})

it('WebSockets and other requests have the connections of a target together', async () => {
  const held = Promise.withResolvers<void>()
  const server = createSecureServer({ ...secrets.server, allowHTTP1: true }, () => held.resolve())
  const { target, connections } = await up(server)
  const service = await route(target, { http2: true }, { maxConnectionsPerTarget: 1 })
  const socket = connect(service.address.port, '127.0.0.1')
  stops.push(() => socket.destroy())
  void get(service.address.port, '/').catch(() => {})
  await held.promise
  const fields = 'sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n'
  socket.write(`GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n${fields}\r\n`)
  const [answer] = (await once(socket, 'data')) as [Buffer]
  expect([answer.toString('latin1').slice(0, 12), connections()]).toEqual(['HTTP/1.1 503', 1])
})

it('the certificate is checked, and connections are not shared with a route that checks differently', async () => {
  const { target, connections } = await up(both())
  const other = await makeSecrets()
  const named = (name: string, tls: Route['tls']): Route => ({ name, match: { path: `/${name}` }, target, tls })
  const routes = [
    named('good', { ca: secrets.ca, http2: true }),
    named('stranger', { ca: other.ca, http2: true }),
    named('insecure', { insecure: true, http2: true }),
    named('old', { ca: secrets.ca }),
  ]
  const service = await serveRouter({ port: 0, routes: { routes } })
  stops.push(() => service.close({ graceMs: 0 }))
  const ask = (path: string) => get(service.address.port, path)
  expect(await ask('/good')).toMatch(/over 2\.0/)
  expect(await ask('/stranger')).toMatch(/502[\s\S]*sallyport-error: upstream-tls/)
  const before = connections()
  expect(await ask('/insecure')).toMatch(/over 2\.0/)
  expect(await ask('/old')).toMatch(/over 1\.1/)
  expect(connections()).toBe(before + 2)
})

it('gRPC over TLS, trailers included', async () => {
  const server = new grpc.Server()
  const same = (value: Buffer) => value
  const shape = { requestSerialize: same, requestDeserialize: same, responseSerialize: same, responseDeserialize: same }
  const unary = { path: '/test.Echo/Unary', requestStream: false, responseStream: false, ...shape } as const
  server.addService(
    { unary },
    { unary: (call: { request: Buffer }, done: grpc.sendUnaryData<Buffer>) => done(null, call.request) },
  )
  const pair = { cert_chain: Buffer.from(secrets.server.cert), private_key: Buffer.from(secrets.server.key) }
  const port = await new Promise<number>((resolve, reject) => {
    const credentials = grpc.ServerCredentials.createSsl(null, [pair])
    server.bindAsync('127.0.0.1:0', credentials, (error, bound) => (error === null ? resolve(bound) : reject(error)))
  })
  stops.push(() => server.forceShutdown())
  const service = await route(`https://localhost:${port}`, { http2: true })
  const client = new grpc.Client(`127.0.0.1:${service.address.port}`, grpc.credentials.createInsecure())
  stops.push(() => client.close())
  const answer = await new Promise((resolve, reject) => {
    client.makeUnaryRequest(unary.path, same, same, Buffer.from('hello'), (error, value) =>
      error === null ? resolve(String(value)) : reject(error),
    )
  })
  expect(answer).toBe('hello')
})
