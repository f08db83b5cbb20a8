/** A connection to a target leaves no local port that is taken for a minute, however it ends: all callers share these ports. */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer, type RequestListener, type Server } from 'node:http'
import { createServer as createHttp2Server, createSecureServer } from 'node:http2'
import { createServer as createTlsServer } from 'node:https'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { serveRouter } from '../../router/index.ts'
import { makeTarget } from '../../router/target.ts'
import { dialUpstream, SecureContexts } from '../../router/upstream/dial.ts'
import { makeSecrets } from '../support/secrets.ts'
import { eventually, until } from '../support/until.ts'
import { rawCall } from './support.ts'

const secrets = await makeSecrets()
const SERVERS = {
  http: (listener: RequestListener): Server => createServer(listener),
  https: (listener: RequestListener): Server => createTlsServer(secrets.server, listener),
  h2c: (listener: RequestListener): Server => createHttp2Server(listener as never) as never,
  'https over HTTP/2': (listener: RequestListener): Server =>
    createSecureServer(secrets.server, listener as never) as never,
}
type Scheme = keyof typeof SERVERS

/** A program on Node, and what it hears of connections that fail. */
async function startProgram(scheme: Scheme) {
  const asked: string[] = []
  const server = SERVERS[scheme](({ url }, response) => {
    asked.push(url!)
    if (url === '/length') response.setHeader('content-length', 2)
    if (url !== '/never') response.end('ok')
  })
  const sockets: Socket[] = []
  const errors: unknown[] = []
  server.on('connection', socket => sockets.push(socket))
  server.on('clientError', (error, socket) => {
    errors.push(error)
    socket.destroy()
  })
  server.on('sessionError', error => errors.push(error))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  const { port } = server.address() as AddressInfo
  // Another test may have had this port within the last minute.
  const before = waiting(port)
  return { port, asked, sockets, errors, taken: () => waiting(port) - before }
}

const TIME_WAIT = '06'

/** Connections to `port` that nobody holds any more, while the kernel keeps their local ports. */
function waiting(port: number): number {
  const peer = `:${port.toString(16).toUpperCase().padStart(4, '0')}`
  const rows = readFileSync('/proc/net/tcp', 'utf8').split('\n')
  return rows.map(row => row.trim().split(/\s+/)).filter(row => row[2]?.endsWith(peer) && row[3] === TIME_WAIT).length
}

const UPGRADE =
  'upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nconnection: upgrade'
const WHOLE: [string, string][] = [
  ['HEAD without a length', 'HEAD / HTTP/1.1\r\nhost: a\r\nconnection: close'],
  ['HEAD with a length', 'HEAD /length HTTP/1.1\r\nhost: a\r\nconnection: close'],
  ['a WebSocket that is refused', `GET / HTTP/1.1\r\nhost: a\r\n${UPGRADE}`],
  ['a connection that is not used again', 'GET /length HTTP/1.1\r\nhost: a\r\nconnection: close'],
]
const SCHEMES = Object.keys(SERVERS) as Scheme[]
const isHttp1 = (scheme: Scheme) => scheme === 'http' || scheme === 'https'
const CASES = SCHEMES.flatMap(scheme => WHOLE.map(([name, head]) => [scheme, name, head] as const)).filter(
  ([scheme, , head]) => isHttp1(scheme) || !head.includes(UPGRADE),
)

async function startRouter(scheme: Scheme, port: number) {
  const [protocol] = scheme.split(' ')
  const tls = protocol === 'https' ? { tls: { insecure: true, http2: !isHttp1(scheme) } } : {}
  const target = `${protocol}://127.0.0.1:${port}`
  const service = await serveRouter({
    port: 0,
    idleMs: 0,
    routes: { routes: [{ name: 'all', match: {}, target, ...tls }] },
  })
  onTestFinished(() => service.close({ graceMs: 0 }))
  return service
}

describe.runIf(process.platform === 'linux')('the local port of a connection to a target is free again after', () => {
  it.each(CASES)('%s: %s, and its program hears of no error', async (scheme, _name, head) => {
    const { port, asked, sockets, errors, taken } = await startProgram(scheme)
    const { address } = await startRouter(scheme, port)
    for (let i = 0; i < 5; i++) expect(await rawCall(address.port, `${head}\r\n\r\n`)).toMatch(/^HTTP\/1\.1 /)
    await until(() => sockets.every(socket => socket.destroyed))
    expect(taken()).toBeLessThanOrEqual(0)
    expect([asked.length, sockets.length, errors]).toEqual([5, 5, []])
  })

  it.each(['http', 'h2c', 'https over HTTP/2'] as const)('%s: a request whose caller leaves', async scheme => {
    const { port, asked, sockets, taken } = await startProgram(scheme)
    const { address, stats } = await startRouter(scheme, port)
    for (let i = 1; i <= 5; i++) {
      const caller = connect(address.port, '127.0.0.1')
      caller.write('GET /never HTTP/1.1\r\nhost: a\r\n\r\n')
      await until(() => asked.length === i)
      caller.resetAndDestroy()
    }
    await until(() => stats().active === 0 && sockets.every(socket => socket.destroyed))
    expect(taken()).toBeLessThanOrEqual(0)
    expect(sockets.length).toBe(5)
  })

  it.each([
    ['http', 'at once'],
    ['https', 'at once'],
    ['https', 'in its handshake'],
  ] as const)('%s: a connection that is given up %s', async (scheme, when) => {
    const { port, sockets, taken } = await startProgram(scheme)
    const tls = { key: 'test', insecure: true } as never
    for (let i = 1; i <= 5; i++) {
      const target = makeTarget(scheme, '127.0.0.1', port, new Map(), scheme === 'https' ? tls : undefined)
      const giveUp = dialUpstream(target, '192.0.2.1', 1000, new SecureContexts(), () => {})
      // The kernel has connected by then, and Node has not looked.
      await new Promise<void>(resolve => process.nextTick(resolve))
      if (when !== 'at once') await until(() => sockets.length === i)
      giveUp()
    }
    await until(() => sockets.length === 5 && sockets.every(socket => socket.destroyed))
    await eventually(() => expect(taken()).toBeLessThanOrEqual(0))
  })
})
