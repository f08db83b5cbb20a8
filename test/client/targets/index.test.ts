import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { type ClientOptions, createTunnel, type Tunnel } from '../../../client/index.ts'
import { createRouter } from '../../../router/index.ts'
import { FakeServer, type FakeSession } from '../fake-server.ts'

const open: { server: FakeServer; tunnel: Tunnel }[] = []
const services: Server[] = []

afterEach(async () => {
  for (const { server, tunnel } of open.splice(0)) {
    await tunnel.close({ graceMs: 0 })
    await server.close()
  }
  for (const service of services.splice(0)) service.close()
})

async function serve(target: ClientOptions['target'], more: Partial<ClientOptions> = {}): Promise<FakeSession> {
  const server = await FakeServer.listen()
  const tunnel = createTunnel({ url: server.url, token: 'a.b.c', target, connections: 1, ...more })
  open.push({ server, tunnel })
  return await server.serve()
}

async function service(): Promise<string> {
  const http = createServer((request, response) => {
    const { host, 'x-forwarded-for': caller, 'x-forwarded-proto': scheme } = request.headers
    response.end(`${request.url} ${host} ${caller} ${scheme}`)
  })
  services.push(http)
  http.listen(0, '127.0.0.1')
  await once(http, 'listening')
  return `http://127.0.0.1:${(http.address() as AddressInfo).port}`
}

describe('a target URL', () => {
  it.each([['text'], ['URL']])(
    'is forwarded to, given as %s: the host is kept, and the caller passed on',
    async kind => {
      const url = await service()
      const session = await serve(kind === 'URL' ? new URL(url) : url)
      const { status, text } = await session.exchange({ path: '/a?b=1' }).answer()
      expect([status, text]).toEqual([200, '/a?b=1 prod.tunnels.test 192.0.2.1 https'])
    },
  )

  it('where nobody listens becomes a 502', async () => {
    const url = await service()
    const gone = services.pop()!
    gone.close()
    await once(gone, 'close')
    const session = await serve(url)
    const { status, text } = await session.exchange().answer()
    expect([status, JSON.parse(text).code]).toEqual([502, 'upstream-refused'])
  })
})

describe('a router', () => {
  const table = (target: string) => ({
    routes: [
      {
        name: 'app',
        match: { path: '/app' },
        target,
        cors: { origins: ['https://ui.example.com'], methods: ['GET', 'PUT'], headers: ['x-a'], credentials: true },
      },
      { name: 'rest', match: { path: '/' }, target },
    ],
  })

  it('routes, and tells the server how to show its failures', async () => {
    const url = await service()
    await using router = createRouter({ routes: table(url) })
    const session = await serve(router)
    expect(session.hello!.cors).toEqual([
      {
        path: '/app',
        origins: ['https://ui.example.com'],
        methods: ['GET', 'PUT'],
        headers: ['x-a'],
        credentials: true,
      },
    ])
    expect((await session.exchange({ path: '/app/x' }).answer()).text).toContain('/app/x')
  })

  it('is not closed with the tunnel, and its policy gives way to the option', async () => {
    const url = await service()
    await using router = createRouter({ routes: table(url) })
    const cors = [{ path: '/', origins: ['*'] }]
    expect((await serve(router, { cors })).hello!.cors).toEqual(cors)
    await open[0]!.tunnel.close({ graceMs: 0 })
    const again = await serve(router)
    expect((await again.exchange({ path: '/app/y' }).answer()).status).toBe(200)
  })
})
