/** What a route has beside its target: answers, header rules, host, CORS; and how a router ends. */
import { connect } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import type { ExchangeRecord } from '../../protocol/exchange.ts'
import {
  createRouter,
  type Route,
  type RouterService,
  type RouterServiceOptions,
  serveRouter,
} from '../../router/index.ts'
import { get, RawUpstream, rawCall, recordingLogger } from './support.ts'

const stops: (() => Promise<unknown> | unknown)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop()
})

async function service(routes: Route[], more: Partial<RouterServiceOptions> = {}): Promise<RouterService> {
  const started = await serveRouter({ port: 0, ...more, routes: { routes } })
  stops.push(() => started.close({ graceMs: 0 }))
  return started
}

async function upstream(answer?: string): Promise<RawUpstream> {
  const started = await RawUpstream.start(answer === undefined ? undefined : socket => socket.write(answer))
  stops.push(() => started.stop())
  return started
}

const call = (port: number, method: string, path: string, ...fields: string[]) =>
  rawCall(
    port,
    `${method} ${path} HTTP/1.1\r\nhost: outer.example\r\nconnection: close\r\n${fields.map(field => `${field}\r\n`).join('')}\r\n`,
  )

describe('a table made in code', () => {
  it.each<[string, Partial<Route>, string]>([
    [
      'a line end in a content type',
      { answer: { contentType: 'a\r\nb: c' } },
      'answer.contentType: is not a valid field value',
    ],
    [
      'a content type beyond latin1',
      { answer: { contentType: '\u20ac' } },
      'answer.contentType: is not a valid field value',
    ],
    ['infinite retries', { target: 'http://a', retries: { attempts: Number.POSITIVE_INFINITY } }, 'must be at most 5'],
    ['half a retry', { target: 'http://a', retries: { attempts: 0.5 } }, 'must be a whole number'],
  ])('%s is refused when it is read', (_, route, message) => {
    expect(() => createRouter({ routes: { routes: [{ name: 'a', match: {}, ...route }] } })).toThrow(message)
  })
})

describe('fixed answers', () => {
  it('have status, type and length; HEAD has no body; a request body is discarded', async () => {
    const { address } = await service([
      { name: 'ok', match: { path: '/readyz' }, answer: { body: 'ok' } },
      { name: 'gone', match: { path: '/old' }, answer: { status: 410, body: '{}', contentType: 'application/json' } },
      { name: 'empty', match: { path: '/empty' }, answer: { status: 204 } },
    ])
    const ok = await get(address.port, '/readyz')
    expect(ok).toMatch(
      /^HTTP\/1\.1 200 OK\r\ncontent-type: text\/plain; charset=utf-8\r\ncontent-length: 2\r\n[\s\S]*\r\n\r\nok$/,
    )
    expect(await call(address.port, 'HEAD', '/readyz')).toMatch(/content-length: 2\r\n[\s\S]*\r\n\r\n$/)
    expect(await get(address.port, '/old')).toMatch(/^HTTP\/1\.1 410 [\s\S]*application\/json[\s\S]*\r\n\r\n\{\}$/)
    expect(await get(address.port, '/empty')).toMatch(/^HTTP\/1\.1 204 [\s\S]*\r\n\r\n$/)
    const post =
      'POST /readyz HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhelloGET /readyz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n'
    expect((await rawCall(address.port, post)).match(/HTTP\/1\.1 200/g)).toHaveLength(2)
  })
})

describe('header rules', () => {
  it('remove and set fields of requests and responses', async () => {
    const up = await upstream(
      'HTTP/1.1 200 OK\r\nserver: inner\r\nx-a: 1\r\nsallyport-error: no-route\r\ncontent-length: 0\r\n\r\n',
    )
    const { address } = await service([
      {
        name: 'all',
        match: {},
        target: up.url,
        headers: { set: { 'X-Team': 'blue' }, remove: ['Cookie'] },
        responseHeaders: { set: { 'X-A': '2' }, remove: ['Server'] },
      },
    ])
    const answer = await get(address.port, '/', 'cookie: a=b', 'x-team: red', 'x-team: green', 'x-kept: yes')
    expect(up.received[0]).toMatch(/x-kept: yes\r\n/)
    expect(up.received[0]!.match(/x-team: .*/g)).toEqual(['x-team: blue\r'.trim()])
    expect(up.received[0]).not.toMatch(/cookie/)
    expect(answer).toMatch(/x-a: 2\r\n/)
    expect(answer).not.toMatch(/inner|x-a: 1|sallyport-error/)
  })

  it('remove fields of informational responses, and set none', async () => {
    const fields = 'server: inner\r\nx!a: 1\r\nlink: </a>\r\nsallyport-error: no-route\r\n\r\n'
    const up = await upstream(`HTTP/1.1 103 Early Hints\r\n${fields}HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n`)
    const responseHeaders = { set: { 'X-A': '2' }, remove: ['Server'] }
    const { address } = await service([{ name: 'all', match: {}, target: up.url, responseHeaders }])
    expect(await get(address.port, '/')).toMatch(/^HTTP\/1\.1 103 [^\r]*\r\nlink: <\/a>\r\n\r\nHTTP\/1\.1 200 /)
  })

  it("Host is the caller's, or the target's", async () => {
    const up = await upstream()
    const { address } = await service([
      { name: 'keep', match: { path: '/keep' }, target: up.url },
      { name: 'target', match: { path: '/target' }, target: up.url, host: 'target' },
    ])
    await get(address.port, '/keep')
    await get(address.port, '/target')
    const text = up.received.join('')
    expect(text).toMatch(/GET \/keep HTTP\/1\.1\r\nhost: outer\.example\r\n/)
    expect(text).toMatch(new RegExp(`GET /target HTTP/1\\.1\\r\\nhost: 127\\.0\\.0\\.1:${up.port}\\r\\n`))
    expect(text.match(/x-forwarded-host: outer\.example/g)).toHaveLength(2)
  })
})

describe('CORS', () => {
  const UI = 'https://ui.example.com'
  const cors = { origins: [UI], methods: ['GET', 'POST'], headers: ['x-access-token'], credentials: true }
  const preflight = (origin: string) => [`origin: ${origin}`, 'access-control-request-method: POST']

  it('is on our own errors, and answers preflights while the target is down', async () => {
    const { logger, lines } = recordingLogger()
    const { address } = await service(
      [
        { name: 'down', match: { path: '/down' }, target: 'http://127.0.0.1:1', cors },
        { name: 'get', match: { path: '/get', methods: ['GET'] }, target: 'http://127.0.0.1:1', cors },
        { name: 'closed', match: { path: '/closed' }, target: 'http://127.0.0.1:1', cors, allow: { callers: [] } },
      ],
      { logger },
    )
    const { port } = address
    const error = await get(port, '/down', `origin: ${UI}`)
    expect(error).toMatch(/^HTTP\/1\.1 502 /)
    expect(error).toMatch(new RegExp(`access-control-allow-origin: ${UI}\r\n`))
    expect(error).toMatch(/access-control-allow-credentials: true\r\n/)
    expect(error).toMatch(/vary: origin\r\n/)
    const allowed = await call(port, 'OPTIONS', '/down', ...preflight(UI))
    expect(allowed).toMatch(
      /^HTTP\/1\.1 204 [\s\S]*access-control-allow-methods: GET,POST\r\n[\s\S]*access-control-allow-headers: x-access-token\r\n/,
    )
    const stranger = await call(port, 'OPTIONS', '/down', ...preflight('https://evil.example'))
    expect(stranger).toMatch(/^HTTP\/1\.1 502 /)
    expect(stranger).not.toMatch(/access-control/)
    const wrongMethod = await call(port, 'DELETE', '/get', `origin: ${UI}`)
    expect(wrongMethod).toMatch(/^HTTP\/1\.1 405 [\s\S]*allow: GET\r\n/)
    expect(wrongMethod).toMatch(/access-control-allow-origin/)
    expect(await get(port, '/closed', `origin: ${UI}`)).toMatch(/^HTTP\/1\.1 403 [\s\S]*access-control-allow-origin/)
    expect(error).not.toMatch(/127\.0\.0\.1:1/)
    expect(lines).toContain('warn an upstream failed')
  })

  it("leaves the target's own answers and preflights alone", async () => {
    const up = await upstream('HTTP/1.1 418 Teapot\r\naccess-control-allow-origin: *\r\ncontent-length: 0\r\n\r\n')
    const { address } = await service([{ name: 'up', match: {}, target: up.url, cors }])
    const answer = await call(address.port, 'OPTIONS', '/', ...preflight(UI))
    expect(answer).toMatch(/^HTTP\/1\.1 418 /)
    expect(answer.match(/access-control-allow-origin: .*/g)).toHaveLength(1)
  })
})

describe('a router', () => {
  it('reports a head that it refuses, with the id that the caller reads', async () => {
    const records: ExchangeRecord[] = []
    const onExchange = (record: ExchangeRecord) => records.push(record)
    const started = await serveRouter({ port: 0, routes: { routes: [] }, onExchange })
    const text = await rawCall(started.address.port, 'GET / HTTP/1.1\r\nhost: h\r\nbad field\r\n\r\n')
    await started.close()
    const [, requestId] = /"requestId":"([^"]+)"/.exec(text)!
    expect(records).toMatchObject([{ requestId, status: 400, code: 'bad-request', caller: '127.0.0.1' }])
  })
})

describe('the end of a router', () => {
  it('waits for exchanges in progress, and reports each once', async () => {
    const records: ExchangeRecord[] = []
    const up = await upstream('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na')
    const started = await serveRouter({
      port: 0,
      routes: { routes: [{ name: 'up', match: {}, target: up.url }] },
      onExchange: record => records.push(record),
    })
    const socket = connect(started.address.port, '127.0.0.1')
    let seen = ''
    socket.on('data', chunk => {
      seen += chunk
    })
    socket.write('GET /x?secret=1 HTTP/1.1\r\nhost: h\r\n\r\n')
    await up.until(() => up.received.length === 1 && up.received[0] !== '')
    const idle = started.router.close({ graceMs: 10_000 })
    const closed = started.close({ graceMs: 10_000 })
    up.sockets[0]!.write('b')
    await Promise.all([closed, idle])
    expect(seen).toMatch(/\r\n\r\nab$/)
    expect(records).toMatchObject([
      { route: 'up', method: 'GET', host: 'h', path: '/x', status: 200, code: undefined, cut: false, bytesOut: 2 },
    ])
    expect(started.stats()).toMatchObject({ active: 0, connections: 0, upstreams: { connections: 0 } })
  })

  it('closes an idle one at once, and cuts the rest at the end of the grace', async () => {
    const up = await upstream('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na')
    const started = await serveRouter({ port: 0, routes: { routes: [{ name: 'up', match: {}, target: up.url }] } })
    const answer = get(started.address.port, '/')
    await up.until(() => up.received.length === 1 && up.received[0] !== '')
    await started.router.close({ graceMs: 20 })
    await started.close({ graceMs: 20 })
    expect(await answer).not.toMatch(/ab$/)
    await up.until(() => up.sockets[0]!.destroyed)
  })
})
