/** security.md, "Router": R1 to R7, against upstreams that record every byte. */
import { once } from 'node:events'
import { createServer as createHttp } from 'node:http'
import { connect as connectHttp2, createServer as createHttp2, type ServerHttp2Stream } from 'node:http2'
import type { AddressInfo, Socket } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { createServer as createTls } from 'node:tls'
import { afterEach, describe, expect, it } from 'vitest'
import {
  createRouter,
  type Route,
  type RouterService,
  type RouterServiceOptions,
  serveRouter,
} from '../../router/index.ts'
import { MOUNTED } from '../router/servers.ts'
import { get, OK, RawUpstream, rawCall, recordingLogger } from '../router/support.ts'
import { makeSecrets } from '../support/secrets.ts'

const stops: (() => Promise<unknown> | unknown)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop()
})

async function upstream(onData?: (socket: Socket, text: string, index: number) => void): Promise<RawUpstream> {
  const started = await RawUpstream.start(onData)
  stops.push(() => started.stop())
  return started
}

async function service(routes: Route[], more: Partial<RouterServiceOptions> = {}): Promise<RouterService> {
  const { resolve } = more
  const started = await serveRouter({ port: 0, ...more, routes: { routes, resolve } })
  stops.push(() => started.close({ graceMs: 0 }))
  return started
}

const status = (answer: string) => Number(answer.split(' ')[1])
/** The value of the last such field in what an upstream recorded. */
const field = (text: string, name: string) => new RegExp(`^${name}: (.*)\r$`, 'im').exec(text)?.[1]

describe('R1 hop-by-hop fields', () => {
  it('and those that Connection names reach no upstream, and ours cannot be removed by naming them', async () => {
    const up = await upstream()
    const { address } = await service([{ name: 'all', match: {}, target: up.url }])
    const bytes = [
      'GET / HTTP/1.1',
      'host: a',
      'Connection: close, x-secret, x-forwarded-for, x-request-id, forwarded',
      'x-secret: 1',
      'Keep-Alive: timeout=9',
      'Proxy-Connection: keep-alive',
      'Proxy-Authorization: Basic eA==',
      'TE: trailers',
      'Upgrade: h2c',
      'HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA',
      'x-kept: yes',
    ]
    await rawCall(address.port, `${bytes.join('\r\n')}\r\n\r\n`)
    const seen = up.received[0]!
    expect(field(seen, 'x-kept')).toBe('yes')
    for (const name of [
      'x-secret',
      'keep-alive',
      'proxy-connection',
      'proxy-authorization',
      'te',
      'upgrade',
      'http2-settings',
    ]) {
      expect(field(seen, name), name).toBeUndefined()
    }
    expect(field(seen, 'x-forwarded-for')).toBe('127.0.0.1')
    expect(field(seen, 'x-request-id')).toMatch(/^[0-9a-f-]{36}$/)
    expect(field(seen, 'forwarded')).toMatch(/^for=127\.0\.0\.1;/)
  })

  it('te: trailers passes to an HTTP/2 upstream, and to no other', async () => {
    const seen: (string | undefined)[] = []
    const server = createHttp2()
    server.on('stream', (stream: ServerHttp2Stream, headers) => {
      seen.push(headers.te as string | undefined)
      stream.respond({ ':status': 200 }, { endStream: true })
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const up = await upstream()
    const { address } = await service([
      { name: 'h2', match: { path: '/h2' }, target: `h2c://127.0.0.1:${(server.address() as AddressInfo).port}` },
      { name: 'h1', match: { path: '/h1' }, target: up.url },
    ])
    const session = connectHttp2(`http://127.0.0.1:${address.port}`)
    for (const path of ['/h2', '/h1']) {
      const stream = session.request({ ':path': path, te: 'trailers' })
      expect((await once(stream, 'response'))[0][':status']).toBe(200)
      stream.resume()
    }
    // Behind a proxy that speaks HTTP/1.1, servers of gRPC require it, too. Proxies do not name it in Connection, but should.
    for (const path of ['/h2', '/h1']) {
      expect(status(await get(address.port, path, 'TE: Trailers'))).toBe(200)
      expect(status(await get(address.port, path, 'TE: trailers', 'Connection: TE'))).toBe(200)
      expect(status(await get(address.port, path, 'TE: gzip'))).toBe(200)
    }
    expect(seen).toEqual(['trailers', 'trailers', 'trailers', undefined])
    for (const head of up.received) expect(field(head, 'te')).toBeUndefined()
    session.destroy()
    stops.push(() => server.close())
  })

  it('and those that Connection names do not come back from an upstream', async () => {
    const answer =
      'HTTP/1.1 200 OK\r\nConnection: x-inner\r\nx-inner: 1\r\nKeep-Alive: timeout=9\r\nx-kept: yes\r\ncontent-length: 0\r\n\r\n'
    const up = await upstream(socket => socket.write(answer))
    const { address } = await service([{ name: 'all', match: {}, target: up.url }])
    const seen = await get(address.port, '/')
    expect(status(seen)).toBe(200)
    expect(field(seen, 'x-kept')).toBe('yes')
    expect(field(seen, 'x-inner')).toBeUndefined()
    expect(field(seen, 'keep-alive')).toBeUndefined()
  })
})

describe('R1 hop-by-hop names spelt with other signs', () => {
  const twins = [
    'Transfer_Encoding',
    'transfer.encoding',
    'Content_Length',
    'Keep_Alive',
    'Proxy_Authorization',
    'Content!Length',
  ]

  it('reach no upstream, in a head or in trailers', async () => {
    const up = await upstream()
    const { address } = await service([{ name: 'all', match: {}, target: up.url }])
    expect(status(await get(address.port, '/', ...twins.map(name => `${name}: chunked`)))).toBe(200)
    for (const name of twins) expect(up.received[0]!.toLowerCase()).not.toContain(name.toLowerCase())
  })
})

describe('R1 the fields that a route removes or sets', () => {
  it('reach no upstream in another spelling', async () => {
    const up = await upstream()
    const headers = { remove: ['X-User'], set: { 'x-from': 'us' } }
    const { address } = await service([{ name: 'all', match: {}, target: up.url, headers }])
    const names = ['X-User', 'X_User', 'x.user', 'x!user', 'X-From', 'X_From', 'x.from']
    const forged = [...names, ...names.map(name => `Grpc-Metadata-${name}`)].map(name => `${name}: evil`)
    expect(status(await get(address.port, '/', ...forged, 'x-kept: yes'))).toBe(200)
    expect(up.received[0]).not.toContain('evil')
    expect(field(up.received[0]!, 'x-from')).toBe('us')
    expect(field(up.received[0]!, 'x-kept')).toBe('yes')
  })

  it('reach nobody as trailers', async () => {
    const answer =
      'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-secret: evil\r\nx-kept: yes\r\n\r\n'
    const up = await upstream((socket, text) => text.endsWith('x-kept: yes\r\n\r\n') && socket.write(answer))
    const rules = {
      headers: { remove: ['X-User'], set: { 'x-from': 'us' } },
      responseHeaders: { remove: ['X-Secret'] },
    }
    const { address } = await service([{ name: 'all', match: {}, target: up.url, ...rules }])
    const head = 'POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n'
    const sent = `${head}1\r\na\r\n0\r\nx-user: evil\r\nX_From: evil\r\nGrpc-Metadata-X-User: evil\r\nx-kept: yes\r\n\r\n`
    const got = await rawCall(address.port, sent)
    expect([field(got, 'x-kept'), field(up.received[0]!, 'x-kept')]).toEqual(['yes', 'yes'])
    expect(up.received[0]! + got).not.toContain('evil')
  })

  it('are none that frame a message, in any spelling', () => {
    const rules = [{ remove: ['content_length'] }, { set: { 'Transfer.Encoding': 'chunked' } }]
    for (const headers of rules) {
      const routes = [{ name: 'all', match: {}, target: 'http://up.test', headers }]
      expect(() => createRouter({ routes: { routes } })).toThrow('belongs to the connection')
    }
  })
})

describe('R2 fields that name the caller', () => {
  const forged = [
    'X-Forwarded-For: 6.6.6.6',
    'X-Forwarded-Proto: https',
    'X-Forwarded-Host: evil',
    'X_Forwarded_For: 6.6.6.6',
    'x-forwarded_host: evil',
    'X-Forwarded-Prefix: /evil',
    'Forwarded: for=6.6.6.6',
    'X-Real-IP: 6.6.6.6',
    'x_real_ip: 6.6.6.6',
    'True-Client-IP: 6.6.6.6',
    'CF_Connecting_IP: 6.6.6.6',
    'Client-Cert: evil',
    'X-SSL-Client-Verify: evil',
    'Sallyport-Internal: evil',
    'Grpc-Metadata-X-Forwarded-For: 6.6.6.6',
    'Grpc-Metadata-Client-Cert: evil',
    'X-Request-Id: evil',
  ]

  it('are replaced if the peer is not trusted, underscore spellings too', async () => {
    const up = await upstream()
    const { address } = await service([{ name: 'all', match: {}, target: up.url }])
    await get(address.port, '/', ...forged)
    const seen = up.received[0]!
    expect(seen).not.toMatch(/6\.6\.6\.6|evil/)
    expect(field(seen, 'x-forwarded-for')).toBe('127.0.0.1')
    expect(field(seen, 'x-forwarded-proto')).toBe('http')
    expect(field(seen, 'x-forwarded-host')).toBe('outer.example')
  })

  it('are believed from a trusted proxy, counted from the right', async () => {
    const up = await upstream()
    const { address } = await service([{ name: 'all', match: {}, target: up.url }], { trustedProxies: ['127.0.0.0/8'] })
    const told = [
      'X-Forwarded-For: 6.6.6.6, 203.0.113.9',
      'X-Forwarded-Proto: https',
      'X-Forwarded-Host: ui.example.com',
    ]
    await get(address.port, '/', ...told, 'X-Request-Id: from-proxy', 'X_Forwarded_For: 6.6.6.6', 'X-Real-IP: 6.6.6.6')
    const seen = up.received[0]!
    expect(field(seen, 'x-forwarded-for')).toBe('203.0.113.9')
    expect(field(seen, 'x-forwarded-proto')).toBe('https')
    expect(field(seen, 'x-forwarded-host')).toBe('ui.example.com')
    expect(field(seen, 'x-request-id')).toBe('from-proxy')
    expect(seen).not.toMatch(/6\.6\.6\.6/)
  })

  it.each(
    Object.entries(MOUNTED).flatMap(([server, { forged, runs }]) => forged.map(line => ({ server, line, runs }))),
  )('do not make $server run another path: $line', async ({ line, runs }) => {
    const up = await upstream()
    const routes: Route[] = [{ name: 'open', match: { path: '/pub' }, target: up.url }]
    const read = (lines: readonly string[]) =>
      runs(
        '/pub/secret',
        new Map(lines.map(each => each.split(': ')).map(([name, value]) => [name!.toLowerCase(), value!])),
      )
    expect(read([line])).not.toBe('/pub/secret')
    for (const trustedProxies of [[], ['127.0.0.0/8']]) {
      const { address } = await service(routes, { trustedProxies })
      expect(status(await get(address.port, '/pub/secret', line))).toBe(200)
      expect(read(up.received.at(-1)!.split('\r\n'))).toBe('/pub/secret')
    }
  })

  it('a mount is named by the rules of a route alone', async () => {
    const up = await upstream()
    const headers = { set: { SCRIPT_NAME: '/ours', 'X-Script-Name': '/ours' } }
    const { address } = await service([{ name: 'all', match: {}, target: up.url, headers }])
    await get(address.port, '/ours/x', 'Script-Name: /evil', 'X_Script.Name: /evil')
    expect(up.received[0]).toMatch(/^script_name: \/ours\r\nx-script-name: \/ours\r$/m)
    expect(up.received[0]).not.toContain('evil')
  })

  it('pass under names that we do not write, from a trusted proxy alone', async () => {
    const up = await upstream()
    const { address } = await service([{ name: 'all', match: {}, target: up.url }], { trustedProxies: ['127.0.0.0/8'] })
    await get(address.port, '/', 'CF-Connecting-IP: 203.0.113.9', 'Client-Cert: :YQ==:')
    expect(field(up.received[0]!, 'cf-connecting-ip')).toBe('203.0.113.9')
    expect(field(up.received[0]!, 'client-cert')).toBe(':YQ==:')
  })

  it('decide who may call a route, including IPv4-mapped addresses and an empty list', async () => {
    const up = await upstream()
    const allow = (callers: string[]): Route => ({ name: 'a', match: {}, target: up.url, allow: { callers } })
    const trusted = { trustedProxies: ['127.0.0.1'] }
    const one = await service([allow(['203.0.113.0/24'])], trusted)
    expect(status(await get(one.address.port, '/', 'X-Forwarded-For: ::ffff:203.0.113.9'))).toBe(200)
    expect(status(await get(one.address.port, '/', 'X-Forwarded-For: 203.0.113.9, 198.51.100.1'))).toBe(403)
    const none = await service([allow([])], trusted)
    expect(status(await get(none.address.port, '/'))).toBe(403)
    const untrusting = await service([allow(['203.0.113.0/24'])])
    expect(status(await get(untrusting.address.port, '/', 'X-Forwarded-For: 203.0.113.9'))).toBe(403)
  })

  it("an upstream's own sallyport-error does not pass for ours", async () => {
    const up = await upstream(socket =>
      socket.write('HTTP/1.1 200 OK\r\nSallyport-Error: no-route\r\ncontent-length: 0\r\n\r\n'),
    )
    const { address } = await service([{ name: 'all', match: {}, target: up.url }])
    expect(field(await get(address.port, '/'), 'sallyport-error')).toBeUndefined()
  })
})

describe('R3 one canonical path', () => {
  it('dot segments, encoded slashes, backslashes and NUL never reach another route or its upstream', async () => {
    const open = await upstream()
    const admin = await upstream()
    const { address } = await service([
      { name: 'open', match: { path: '/app' }, target: open.url },
      { name: 'admin', match: { path: '/app/admin' }, target: admin.url, allow: { callers: [] } },
    ])
    const attacks = [
      '/app/../app/admin',
      '/app/x/../admin',
      '/app/x/%2e%2e/admin',
      '/app/x/.%2E/admin',
      '/app/x%2f..%2fadmin',
      '/app/x/..%2Fadmin',
      '/app/x/..;/admin',
      '/app/./admin',
      '/app//admin',
      '/app%2fadmin',
      '/app/x%5c..%5cadmin',
      '/app/admin%00',
      '/app/admin;x=1',
      '/app/%c0%ae%c0%ae/admin',
      '/app/%61dmin',
      '/app/admin%0a',
      '/app/adm%6@n',
      '/app/.../admin',
      '/app/..../admin',
      '/app/.%2e%2e../admin',
      '/app/.....',
    ]
    for (const path of attacks) expect(status(await get(address.port, path)), path).toBe(400)
    expect(status(await get(address.port, '/app/admin'))).toBe(403)
    expect(open.received).toEqual([])
    expect(admin.received).toEqual([])
  })

  it('the accepted path is forwarded byte for byte, query included', async () => {
    const up = await upstream()
    const { address } = await service([{ name: 'open', match: { path: '/app' }, target: up.url }])
    for (const path of ['/app/a%2Fb', '/app//x/', '/app/%7e;v=1?a=../..&b=%00\\%2e%2e', "/app/!$&'()*+,=:@"]) {
      const seen = up.received.length
      expect(status(await get(address.port, path)), path).toBe(200)
      expect(up.received.join('').includes(`GET ${path} HTTP/1.1\r\n`), `${path} after ${seen}`).toBe(true)
    }
  })
})

describe('R3 a second path, in a field', () => {
  const copy = async (port: number, path: string, ...fields: string[]) =>
    status(
      await rawCall(
        port,
        `COPY ${path} HTTP/1.1\r\n${['host: a.example', 'connection: close', ...fields, '', ''].join('\r\n')}`,
      ),
    )
  const NAMES = [
    ...['Destination', 'destination', 'X-Copy-From', 'x_copy_from', 'X!Copy.From', 'X-Object-Manifest'],
    ...['x-amz-copy-source', 'X-Ms-Copy-Source', 'x-goog-copy-source', 'x_amz_copy_source', 'x-amz-rename-source'],
    ...['X-Symlink-Target', 'Destination-Account', 'X-Upyun-Move-Source', 'Upload-Concat'],
  ]
  const all = (target: string): Route => ({ name: 'all', match: {}, target })
  const secret = { path: '/private' }
  const nobody = { callers: [] }

  it.each(NAMES)('reaches no service of which rules guard a part: %s', async name => {
    const up = await upstream()
    const { address } = await service([all(up.url), { name: 'x', match: secret, target: up.url, allow: nobody }])
    for (const value of ['/private/a', '/pub/y', 'http://a.example/', '', 'newdoc']) {
      expect(await copy(address.port, '/pub/x', `${name}: ${value}`), value).toBe(400)
    }
    expect(up.received).toEqual([])
    expect(await copy(address.port, '/pub/x', `${name}-not: /private`)).toBe(200)
  })

  const port = (url: string) => new URL(url).port
  it.each<[what: string, own: number, routes: (up: string, other: string) => Route[]]>([
    ['nothing is guarded', 200, up => [all(up)]],
    ['all of it is', 200, up => [{ ...all(up), allow: { callers: ['127.0.0.1'] } }]],
    ['another service is', 200, (up, other) => [all(up), { name: 'x', match: secret, target: other, allow: nobody }]],
    ['a part, by callers', 400, up => [all(up), { name: 'x', match: secret, target: up, allow: nobody }]],
    [
      'a part, for another method',
      400,
      up => [all(up), { name: 'x', match: { ...secret, methods: ['GET'] }, target: up, allow: nobody }],
    ],
    [
      'a part, with other fields',
      400,
      up => [all(up), { name: 'x', match: { ...secret, headers: { 'x-a': '1' } }, target: up, allow: nobody }],
    ],
    [
      'a part, on another host',
      400,
      up => [all(up), { name: 'x', match: { hosts: ['private.example'] }, target: up, allow: nobody }],
    ],
    ['a part, by an answer', 400, up => [all(up), { name: 'x', match: secret, answer: { status: 403 } }]],
    [
      'a part, by an answer below a capture',
      400,
      up => [
        { ...all(up), match: { path: '/{any}' } },
        { name: 'x', match: { path: '/pub/private' }, answer: { status: 403 } },
      ],
    ],
    [
      'only what another service would answer',
      200,
      (up, other) => [
        { ...all(up), match: { path: '/pub' } },
        { name: 'other', match: { path: '/o' }, target: other },
        { name: 'x', match: { path: '/o/private' }, answer: { status: 403 } },
      ],
    ],
    [
      'a page of another host',
      200,
      up => [
        { ...all(up), match: { hosts: ['a.example'] } },
        { name: 'x', match: { hosts: ['b.example'], path: '/private' }, answer: { status: 403 } },
      ],
    ],
    [
      'nothing, since a page answers',
      200,
      up => [all(up), { name: 'x', match: { path: '/healthz' }, answer: { body: 'ok' } }],
    ],
    [
      'all of it, on two routes alike',
      200,
      up => [
        { ...all(up), allow: { callers: ['127.0.0.1'] } },
        { name: 'x', match: secret, target: up, allow: { callers: ['127.0.0.1'] } },
      ],
    ],
    [
      'a part, under another spelling',
      400,
      up => [
        all(`http://x.localdomain:${port(up)}`),
        {
          name: 'x',
          match: { path: '/of/{name}' },
          target: `http://{name}.LOCALDOMAIN.:${port(up)}`,
          allow: { callers: [] },
        },
      ],
    ],
    [
      'by the names that its own route allows',
      400,
      up => [{ ...all(up), match: { path: '/{name}' }, allow: { name: ['pub'] } }],
    ],
    [
      'by a target that may be the same',
      400,
      up => [
        all(`http://x.localdomain:${port(up)}`),
        {
          name: 'x',
          match: { path: '/of/{name}' },
          target: `http://{name}.localdomain:${port(up)}`,
          allow: { name: ['x'] },
        },
      ],
    ],
    [
      'by a target on another port',
      200,
      (up, other) => [
        all(up),
        {
          name: 'x',
          match: { path: '/of/{name}' },
          target: `http://{name}.localdomain:${port(other)}`,
          allow: { name: ['x'] },
        },
      ],
    ],
    [
      'a part, but the field is removed',
      200,
      up => [
        { ...all(up), headers: { remove: ['destination'] } },
        { name: 'x', match: secret, target: up, allow: nobody },
      ],
    ],
  ])('is refused by what the table guards: %s', async (_, expected, routes) => {
    const [up, other] = [await upstream(), await upstream()]
    const { address } = await service(routes(up.url, other.url))
    expect(await copy(address.port, '/pub/x', 'destination: /pub/y')).toBe(expected)
    expect(up.received.length + other.received.length).toBe(expected === 200 ? 1 : 0)
  })

  it('passes where no route demands anything, and is in no trailers', async () => {
    const up = await upstream((socket, text) => void (text.endsWith('0\r\n\r\n') && socket.write(OK)))
    const { address } = await service([
      { name: 'all', match: {}, target: up.url },
      { name: 'other', match: { path: '/other' }, target: up.url },
    ])
    const trailers = NAMES.map(name => `${name}: /other\r\n`).join('')
    const head = 'PUT /x HTTP/1.1\r\nhost: a\r\nconnection: close\r\ndestination: /other\r\ntransfer-encoding: chunked'
    expect(status(await rawCall(address.port, `${head}\r\n\r\n0\r\n${trailers}\r\n`))).toBe(200)
    expect(field(up.received[0]!, 'destination')).toBe('/other')
    expect(up.received[0]!.split('\r\n\r\n')[1]).toBe('0')
  })
})

describe('R4 the target', () => {
  it('cannot be changed by anything in the request: absolute form, //, user info', async () => {
    const up = await upstream()
    const evil = await upstream()
    const { address } = await service([{ name: 'all', match: {}, target: up.url }])
    const at = `127.0.0.1:${evil.port}`
    const close = 'connection: close\r\n\r\n'
    await rawCall(address.port, `GET http://${at}/x HTTP/1.1\r\nhost: ${at}\r\n${close}`)
    await rawCall(address.port, `GET //${at}/x HTTP/1.1\r\nhost: a\r\n${close}`)
    await rawCall(address.port, `GET /@${at}/x HTTP/1.1\r\nhost: a\r\n${close}`)
    await rawCall(address.port, `GET http://a@${at}/x HTTP/1.1\r\nhost: ${at}\r\n${close}`)
    await rawCall(address.port, `GET / HTTP/1.1\r\nhost: ${at}\r\n${close}`)
    expect(up.received.join('')).toContain('GET /x HTTP/1.1\r\n')
    expect(evil.received).toEqual([])
  })

  it('redirects are returned, not followed', async () => {
    const evil = await upstream()
    const up = await upstream(socket =>
      socket.write(`HTTP/1.1 302 Found\r\nlocation: ${evil.url}/\r\ncontent-length: 0\r\n\r\n`),
    )
    const { address } = await service([{ name: 'all', match: {}, target: up.url }])
    expect(status(await get(address.port, '/'))).toBe(302)
    expect(evil.received).toEqual([])
  })

  it('captured names must be allowed DNS labels that form a service name', async () => {
    const up = await upstream()
    const resolve = { 'push-svc.demo.svc:80': `127.0.0.1:${up.port}`, '127.0.0.1:80': `127.0.0.1:${up.port}` }
    const { address } = await service(
      [
        {
          name: 'hooks',
          match: { path: '/hooks/{namespace}/{source}' },
          target: 'http://{source}-svc.{namespace}.svc',
          allow: { namespace: ['demo'] },
        },
        { name: 'free', match: { path: '/free/{name}' }, target: 'http://{name}' },
      ],
      { resolve },
    )
    expect(status(await get(address.port, '/hooks/demo/push/x'))).toBe(200)
    const bad = [
      'demo/Push',
      'Demo/push',
      'kube-system/push',
      'demo/push.evil',
      'demo/-push',
      'demo/push%00',
      'demo/push@evil',
      'demo/push:81',
      'demo/push%3a81',
      'demo%2f/push',
      `demo/${'x'.repeat(60)}`,
    ]
    for (const names of bad) expect([400, 404], names).toContain(status(await get(address.port, `/hooks/${names}/x`)))
    for (const name of ['2130706433', '0x7f000001', '127.1', 'localhost', '017700000001', '[::1]', '127.0.0.1']) {
      expect([400, 404], name).toContain(status(await get(address.port, `/free/${name}`)))
    }
    expect(up.received).toHaveLength(1)
  })

  it.each<[string, Partial<Route>]>([
    ['forwards to a fixed target', {}],
    ['cuts the path', { rewrite: { stripPrefix: '/way' } }],
    ['forwards to a captured name', { target: 'http://{name}.svc' }],
    ['answers itself', { target: undefined, answer: {} }],
  ])('a list of allowed names applies to a route that %s', async (_, way) => {
    const up = await upstream()
    const match = { path: '/way/{other}/{name}' }
    const route = { name: 'way', match, target: up.url, allow: { name: ['a'] }, ...way }
    const { address } = await service([route], { resolve: { 'a.svc:80': `127.0.0.1:${up.port}` } })
    const answer = async (names: string) => status(await get(address.port, `/way/${names}`))
    for (const good of ['o/a', 'o/a/b', 'o/%61', 'o/a?b', 'o%2d/a']) expect(await answer(good), good).toBe(200)
    const forwarded = up.received.length
    const bad = ['o/b', 'o/b/a', 'o/A', 'o/aa', 'o/a%20', 'o/constructor', 'o/__proto__', 'a/b']
    for (const names of bad) expect(await answer(names), names).toBe(404)
    // The target might read a different name from these.
    for (const names of ['b%2fo/a', 'o/a;b', 'o;x/a%2fb', 'o/b;a']) expect(await answer(names), names).toBe(400)
    expect(up.received).toHaveLength(forwarded)
  })

  it('an empty list allows no name', async () => {
    const { address } = await service([{ name: 'none', match: { path: '/{name}' }, answer: {}, allow: { name: [] } }])
    expect(status(await get(address.port, '/a'))).toBe(404)
  })
})

describe('R5 and R6 upstream TLS', () => {
  it('connections are not shared between TLS identities, and every certificate is checked unless told otherwise', async () => {
    const secrets = await makeSecrets()
    const other = await makeSecrets()
    const used = new Set<object>()
    const server = createTls({ cert: secrets.server.cert, key: secrets.server.key }, socket => {
      socket.on('error', () => {})
      socket.on('data', () => {
        used.add(socket)
        socket.write(OK)
      })
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    stops.push(() => server.close())
    const target = `https://localhost:${(server.address() as AddressInfo).port}`
    const { logger, lines } = recordingLogger()
    const route = (name: string, tls?: Route['tls']): Route => ({ name, match: { path: `/${name}` }, target, tls })
    const { address, router } = await service(
      [
        route('good', { ca: secrets.ca }),
        route('named', { ca: secrets.ca, serverName: 'other.invalid' }),
        route('system'),
        route('stranger', { ca: other.ca }),
        route('insecure', { insecure: true }),
      ],
      { logger },
    )
    const ask = (path: string) => get(address.port, path)
    expect(status(await ask('/good'))).toBe(200)
    for (const path of ['/named', '/system', '/stranger']) {
      const answer = await ask(path)
      expect(status(answer), path).toBe(502)
      expect(field(answer, 'sallyport-error'), path).toBe('upstream-tls')
    }
    expect(status(await ask('/insecure'))).toBe(200)
    expect(router.stats().upstreams).toMatchObject({ idle: 2 })
    expect(status(await ask('/good'))).toBe(200)
    expect(used.size).toBe(2)
    expect(lines.filter(line => line.includes('tls.insecure'))).toEqual([
      'warn route "insecure": tls.insecure is set, any certificate of its target is accepted',
    ])
  })

  it('the final dot of a name is not sent, since servers refuse it (RFC 6066 section 3)', async () => {
    const { ca, server: own } = await makeSecrets()
    const names: unknown[] = []
    const server = createTls({ cert: own.cert, key: own.key }, socket => {
      names.push(socket.servername)
      socket.on('error', () => {})
      socket.on('data', () => socket.write(OK))
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    stops.push(() => server.close())
    const { port } = server.address() as AddressInfo
    const route = (name: string, host: string, serverName?: string): Route => ({
      ...{ name, match: { path: `/${name}` }, target: `https://${host}:${port}`, tls: { ca, serverName } },
    })
    const routes = [route('host', 'localhost.'), route('name', '127.0.0.1', 'localhost.')]
    const { address } = await service(routes, { resolve: { [`localhost.:${port}`]: `127.0.0.1:${port}` } })
    for (const { name } of routes) expect(status(await get(address.port, `/${name}`)), name).toBe(200)
    expect(names).toEqual(['localhost', 'localhost'])
  })
})

describe('R7 nothing is forwarded twice', () => {
  /** The first connection answers once and is kept; it dies as the next request arrives. */
  const dyingSecond = (socket: Socket, text: string, index: number) => {
    if (index > 0 || text.indexOf('\r\n\r\n') === text.lastIndexOf('\r\n\r\n')) socket.write(OK)
    else socket.resetAndDestroy()
  }
  const post = (path: string, ...fields: string[]) =>
    [
      'POST ',
      path,
      ' HTTP/1.1\r\nhost: a\r\nconnection: close\r\n',
      ...fields.map(text => `${text}\r\n`),
      'content-length: 2\r\n\r\nhi',
    ].join('')

  it('a POST on a stale connection is not sent again', async () => {
    const up = await upstream(dyingSecond)
    const { address } = await service([{ name: 'all', match: {}, target: up.url, retries: { attempts: 3 } }])
    expect(status(await get(address.port, '/'))).toBe(200)
    const answer = await rawCall(address.port, post('/'))
    expect(status(answer)).toBe(502)
    expect(field(answer, 'sallyport-error')).toBe('upstream-broken')
    expect(up.received.join('').match(/POST/g)).toHaveLength(1)
  })

  it('a GET on a stale connection is sent again, once', async () => {
    const up = await upstream(dyingSecond)
    const { address } = await service([{ name: 'all', match: {}, target: up.url }])
    expect(status(await get(address.port, '/'))).toBe(200)
    expect(status(await get(address.port, '/second'))).toBe(200)
    expect(up.received).toHaveLength(2)
    expect(up.received.join('').match(/second/g)).toHaveLength(2)
  })

  it.each([
    ['/x', 'X-HTTP-Method-Override: DELETE'],
    ['/x', 'X_HTTP_Method: DELETE'],
    ['/x', 'X-Method.Override: DELETE'],
    ['/x?a&_method=DELETE', 'accept: */*'],
  ])('a GET that a service may run as another method is not sent again: %s %s', async (path, text) => {
    const up = await upstream(dyingSecond)
    const { address } = await service([{ name: 'all', match: {}, target: up.url, retries: { attempts: 3 } }])
    expect(status(await get(address.port, '/'))).toBe(200)
    const head = `GET ${path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n${text}\r\n\r\n`
    expect(status(await rawCall(address.port, head))).toBe(502)
    expect(up.received.join('').match(/GET \/x/g)).toHaveLength(1)
  })

  it('a GET that breaks on a fresh connection, or after a byte of its answer, is not sent again', async () => {
    const up = await upstream((socket, _, index) => {
      if (index === 0) socket.resetAndDestroy()
      else socket.write('HTTP/1.1 2', () => socket.resetAndDestroy())
    })
    const { address } = await service([
      { name: 'none', match: {}, target: up.url },
      { name: 'many', match: { path: '/many' }, target: up.url, retries: { attempts: 3 } },
    ])
    expect(status(await get(address.port, '/'))).toBe(502)
    expect(up.received).toHaveLength(1)
    expect(status(await get(address.port, '/many'))).toBe(502)
    expect(up.received).toHaveLength(2)
  })

  it('a POST is sent again, body and all, only with Idempotency-Key and on a route that allows it', async () => {
    const breaking = (socket: Socket, text: string, index: number) => {
      if (!text.endsWith('hi')) return
      if (index !== 1) socket.resetAndDestroy()
      else socket.end(OK.replace('content', 'connection: close\r\ncontent'))
    }
    const up = await upstream(breaking)
    const retries = { attempts: 1 }
    const { address } = await service([
      { name: 'plain', match: { path: '/plain' }, target: up.url, retries },
      { name: 'keyed', match: { path: '/keyed' }, target: up.url, retries: { ...retries, idempotencyKey: true } },
    ])
    expect(status(await rawCall(address.port, post('/keyed', 'Idempotency-Key: 1')))).toBe(200)
    expect(up.received.map(text => text.endsWith('\r\n\r\nhi'))).toEqual([true, true])
    expect(status(await rawCall(address.port, post('/keyed')))).toBe(502)
    expect(up.received).toHaveLength(3)
    expect(status(await rawCall(address.port, post('/plain', 'Idempotency-Key: 1')))).toBe(502)
    expect(up.received).toHaveLength(4)
  })

  it.each([
    [true, ['Idempotency-Key: 8e03978e-40d5-43dd-bc93-6894a57f9324']],
    [true, ['Idempotency-Key: "order:1"']],
    [false, ['Idempotency-Key:']],
    [false, ['Idempotency-Key: \t ']],
    [false, ['Idempotency-Key: ""']],
    [false, ['Idempotency-Key: " "']],
    [false, ['Idempotency-Key: \xa0']],
    [false, ['Idempotency-Key: 0']],
    [false, ['Idempotency-Key: "0"']],
    [true, ['Idempotency-Key: 00']],
    [false, ['Idempotency-Key: ,']],
    [false, ['Idempotency-Key: "";a=1']],
    [false, ['Idempotency-Key: a, b']],
    [false, ['Idempotency-Key: a', 'Idempotency-Key: a']],
    [false, ['Idempotency-Key:', 'Idempotency-Key: a']],
    [false, ['Idempotency-Key: a', 'Idempotency_Key: b']],
    [false, ['Idempotency_Key: a']],
    [false, ['Connection: Idempotency-Key', 'Idempotency-Key: a']],
    [false, ['X-Removed: a', 'Idempotency-Key: a'], { remove: ['idempotency-key'] }],
    [true, ['Idempotency-Key:'], { set: { 'idempotency-key': 'ours' } }],
  ])(
    'a POST counts as safe (%j) with %j: the target must get one key that it cannot take for none',
    async (isSafe, fields, headers = undefined) => {
      const up = await upstream((socket, text) => {
        if (text.endsWith('hi')) socket.resetAndDestroy()
      })
      const retries = { attempts: 1, idempotencyKey: true }
      const { address } = await service([{ name: 'keyed', match: {}, target: up.url, retries, headers }])
      expect(status(await rawCall(address.port, post('/', ...fields)))).toBe(502)
      expect(up.received).toHaveLength(isSafe ? 2 : 1)
    },
  )

  it('an attempt that never got a connection may be repeated, whatever the method', async () => {
    const http = createHttp((request, response) => {
      request.resume().on('end', () => response.end('ok'))
    })
    const free = createHttp().listen(0, '127.0.0.1')
    await once(free, 'listening')
    const { port } = free.address() as AddressInfo
    free.close()
    await once(free, 'close')
    const { logger, lines } = recordingLogger()
    const route: Route = { name: 'all', match: {}, target: `http://127.0.0.1:${port}`, retries: { attempts: 5 } }
    const { address, router } = await service([route], { logger })
    const answer = rawCall(address.port, post('/'))
    const dialling = () => router.stats().upstreams.connections
    while (dialling() === 0) await nextTurn()
    while (dialling() !== 0) await nextTurn()
    http.listen(port, '127.0.0.1')
    stops.push(() => http.close())
    expect(status(await answer)).toBe(200)
    expect(lines).toEqual([])
  })
})
