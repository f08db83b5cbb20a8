/** A router attached to the embedder's own `http.Server`. */
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import { createServer as createHttp2Server, createSecureServer } from 'node:http2'
import { type AddressInfo, connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { webSocketAccept } from '../../protocol/http/http1/websocket.ts'
import { createRouter, type Router, serveRouter } from '../../router/index.ts'
import { get, RawUpstream, rawCall } from './support.ts'

let upstream: RawUpstream
/** The server's answer to each request. */
let answer: string
let router: Router
let host: Server
let port: number

beforeEach(async () => {
  answer = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'
  upstream = await RawUpstream.start((socket, text) => {
    const key = /sec-websocket-key: (\S+)/.exec(text)?.[1]
    const fields = 'connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: '
    if (key !== undefined) socket.write(`HTTP/1.1 101 Yes\r\n${fields}${webSocketAccept(key)}\r\n\r\nhello`)
    else if (text.endsWith('\r\n\r\n') || text.endsWith('the end')) socket.write(answer)
  })
  router = createRouter({ routes: { routes: [{ name: 'up', match: { path: '/up' }, target: upstream.url }] } })
  host = createServer((_, response) => response.end('the app'))
  host.listen(0, '127.0.0.1')
  await once(host, 'listening')
  port = (host.address() as AddressInfo).port
})
afterEach(async () => {
  host.closeAllConnections()
  host.close()
  await router.close()
  await upstream.stop()
})

const call = (head: string, body = '') => rawCall(port, `${head}\r\nconnection: close\r\n\r\n${body}`)

/** The lines of an answer, sorted, without those that vary; and how its connection ended. */
async function heard(port: number, request: string) {
  const socket = connect(port, '127.0.0.1').on('error', () => {})
  let text = ''
  socket.on('data', chunk => {
    text += chunk.toString('latin1')
  })
  let ended = 'reset'
  socket.once('end', () => {
    ended = 'closed'
  })
  socket.write(request)
  await new Promise(resolve => socket.once('close', resolve))
  const lines = text.toLowerCase().split('\r\n')
  const kept = lines.filter(line => !/^(?:(?:date|x-request-id|connection|trailer): |\{)/.test(line)).sort()
  return { kept, ended }
}

describe('an attached router', () => {
  it('serves until it is detached', async () => {
    const detach = router.attach(host)
    expect(await get(port, '/up')).toMatch(/^HTTP\/1\.1 200 OK\r\n[\s\S]*\r\n\r\nok$/)
    expect(await get(port, '/other')).toMatch(/^HTTP\/1\.1 404 [\s\S]*sallyport-error: no-route/)
    detach()
    expect(await get(port, '/up')).toMatch(/the app$/)
  })

  it.each([createHttp2Server(), createSecureServer(), createSecureServer({ allowHTTP1: true })])(
    'refuses a server of HTTP/2 (%#)',
    http2 => {
      const listeners = http2.rawListeners('request')
      expect(() => router.attach(http2 as unknown as Server)).toThrow(/http\.Server or an https\.Server/)
      expect(http2.rawListeners('request')).toEqual(listeners)
    },
  )

  it('leaves other hosts to the server', async () => {
    router.attach(host, { serves: authority => authority === 'ours.example' })
    expect(await call('GET /up HTTP/1.1\r\nhost: ours.example')).toMatch(/ok$/)
    expect(await call('GET /up HTTP/1.1\r\nhost: theirs.example')).toMatch(/the app$/)
  })

  it.each(['h2c', 'websocket'])(
    'leaves requests to the server after an offer of %s on the same connection',
    async offer => {
      router.attach(host, { serves: authority => authority === 'ours.example' })
      const first = `GET /up HTTP/1.1\r\nhost: ours.example\r\nconnection: upgrade\r\nupgrade: ${offer}\r\n\r\n`
      const reply = await call(`${first}GET /up HTTP/1.1\r\nhost: theirs.example`)
      expect(reply).toMatch(/\r\n\r\nok(?:HTTP|$)/)
      expect(upstream.received.join('')).not.toContain('theirs.example')
    },
  )

  it('leaves a request to the server if `serves` throws', async () => {
    const serves = () => {
      throw new Error('a defect of the embedder')
    }
    router.attach(host, { serves })
    expect(await call('GET /up HTTP/1.1\r\nhost: a')).toMatch(/the app$/)
    expect(await call('GET /up HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket')).toMatch(/the app$/)
  })

  it('passes bodies in both directions', async () => {
    router.attach(host)
    const body = `${'x'.repeat(300_000)}the end`
    answer = `HTTP/1.1 200 OK\r\ncontent-length: 300000\r\n\r\n${'y'.repeat(300_000)}`
    const reply = await call(`POST /up HTTP/1.1\r\nhost: a\r\ncontent-length: ${body.length}`, body)
    expect(reply.endsWith('y'.repeat(300_000))).toBe(true)
    expect(upstream.received[0]!.endsWith(body)).toBe(true)
    expect(router.stats()).toMatchObject({ active: 0, total: 1 })
  })

  it('believes only trusted proxies', async () => {
    const detach = router.attach(host)
    await get(port, '/up', 'x-forwarded-for: 192.0.2.7')
    detach()
    router.attach(host, { trustedProxies: ['127.0.0.0/8'] })
    await get(port, '/up', 'x-forwarded-for: 192.0.2.7')
    const callers = upstream.received.join('').match(/x-forwarded-for: \S+/g)
    expect(callers).toEqual(['x-forwarded-for: 127.0.0.1', 'x-forwarded-for: 192.0.2.7'])
    expect(() => router.attach(host, { trustedProxies: ['nonsense'] })).toThrow(TypeError)
  })

  it.skipIf(process.platform === 'win32')('treats callers through a Unix socket as this machine', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'attach-'))
    const local = createServer().listen(join(folder, 'socket'))
    await once(local, 'listening')
    router.attach(local, { trustedProxies: ['127.0.0.0/8'] })
    const call = async (fields: string) => {
      const socket = connect(join(folder, 'socket')).resume()
      socket.write(`GET /up HTTP/1.1\r\nhost: a\r\n${fields}connection: close\r\n\r\n`)
      await once(socket, 'close')
    }
    await call('')
    await call('x-forwarded-for: 192.0.2.7\r\n')
    local.close()
    await rm(folder, { recursive: true })
    const callers = upstream.received.join('').match(/x-forwarded-for: \S+/g)
    expect(callers).toEqual(['x-forwarded-for: 127.0.0.1', 'x-forwarded-for: 192.0.2.7'])
  })

  it('carries WebSockets', async () => {
    router.attach(host)
    const socket = connect(port, '127.0.0.1')
    const key = 'sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13'
    socket.write(`GET /up HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n${key}\r\n\r\n`)
    let text = ''
    socket.on('data', chunk => {
      text += chunk.toString('latin1')
    })
    while (!text.endsWith('hello')) await once(socket, 'data')
    expect(text).toMatch(/^HTTP\/1\.1 101 [\s\S]*sec-websocket-accept: ICX\+Yqv66kxgM0FcWaLWlFLwTAI=\r\n/)
    socket.destroy()
  })

  const chunked = 'transfer-encoding: chunked'
  it.each([
    ['a length', 'HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc'],
    ['chunks', `HTTP/1.1 200 OK\r\n${chunked}\r\n\r\n3\r\nabc\r\n0\r\n\r\n`],
    ['trailers', `HTTP/1.1 200 OK\r\n${chunked}\r\ntrailer: x-t\r\n\r\n3\r\nabc\r\n0\r\nx-t: 1\r\n\r\n`],
    ['trailers announced beside a length', 'HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntrailer: x-t\r\n\r\nabc'],
    ['a part', 'HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 0-2/9\r\ncontent-length: 3\r\n\r\nabc'],
    ['204', 'HTTP/1.1 204 No Content\r\n\r\n'],
    ['204 with a length', 'HTTP/1.1 204 No Content\r\ncontent-length: 3\r\n\r\n'],
    ['204 with trailers announced', `HTTP/1.1 204 No Content\r\n${chunked}\r\ntrailer: x-t\r\n\r\n`],
    ['304 with a length', 'HTTP/1.1 304 Not Modified\r\netag: "a"\r\ncontent-length: 3\r\n\r\n'],
    ['304 with trailers announced', 'HTTP/1.1 304 Not Modified\r\ntrailer: x-t\r\n\r\n'],
    ['hints', 'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc'],
    ['fewer bytes than announced', 'HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\nabc', 'cut'],
    ['chunks that break off', `HTTP/1.1 200 OK\r\n${chunked}\r\n\r\n3\r\nabc\r\n`, 'cut'],
    ['an invalid answer', 'HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n'],
  ])('answers as a listener of ours does: %s', async (_, text, cut = '') => {
    answer = text
    router.attach(host)
    const routes = { routes: [{ name: 'up', match: { path: '/up' }, target: upstream.url }] }
    await using service = await serveRouter({ routes, port: 0 })
    const ask = async (port: number, line: string) => {
      const next = upstream.sockets.length
      const reply = heard(port, `${line}\r\nhost: a\r\nconnection: close\r\n\r\n`)
      if (cut !== '') {
        await upstream.until(() => upstream.received[next]?.endsWith('\r\n\r\n') === true)
        upstream.sockets[next]!.destroy()
      }
      return reply
    }
    for (const method of ['GET', 'HEAD']) {
      for (const version of ['1.0', '1.1']) {
        const line = `${method} /up HTTP/${version}`
        expect(await ask(port, line), line).toEqual(await ask(service.address.port, line))
      }
    }
  })

  it.each([
    ['two links', '</a.css>; rel=preload, </b.js>; rel=preload'],
    ['a quoted title', '</a>; rel="next"; title="a, \\"b\\""'],
    ['an unknown form', 'anything'],
  ])('passes hints unchanged: %s', async (_, link) => {
    answer = `HTTP/1.1 103 Early Hints\r\nlink: ${link}\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok`
    router.attach(host)
    const reply = await get(port, '/up')
    expect(reply).toMatch(/^HTTP\/1\.1 103 /)
    expect(reply).toContain(`link: ${link}\r\n`)
    expect(reply).toMatch(/HTTP\/1\.1 200 OK[\s\S]*\r\n\r\nok$/)
  })

  it.each([
    ['a fragment', 'GET /up#x HTTP/1.1\r\nhost: a', 400, 'bad-request'],
    ['two hosts', 'GET /up HTTP/1.1\r\nhost: a\r\nhost: b', 400, 'bad-request'],
    ['an odd host', 'GET /up HTTP/1.1\r\nhost: a b', 400, 'bad-request'],
    ['TRACE', 'TRACE /up HTTP/1.1\r\nhost: a', 405, 'method-not-allowed'],
    ['too many fields', `GET /up HTTP/1.1\r\nhost: a\r\n${'x: y\r\n'.repeat(130)}x: y`, 431, 'head-too-large'],
  ])('refuses what every listener of ours does: %s', async (_, head, status, code) => {
    router.attach(host)
    const reply = await call(head)
    expect(reply).toMatch(new RegExp(`^HTTP/1\\.1 ${status} [\\s\\S]*sallyport-error: ${code}\\r\\n`))
    expect(upstream.received.join('')).toBe('')
  })
})
