/** Upstreams that speak HTTP/2 with prior knowledge. */
import { once } from 'node:events'
import {
  connect as connectHttp2,
  createServer,
  type Http2Server,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2'
import { type AddressInfo, connect } from 'node:net'
import { afterEach, expect, it } from 'vitest'
import { type RouterService, serveRouter } from '../../../router/index.ts'
import { get, rawCall } from '../support.ts'

const stops: (() => Promise<unknown> | unknown)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop()
})

interface Up {
  server: Http2Server
  sessions: ServerHttp2Session[]
  service: RouterService
  port: number
}

async function startH2c(
  onStream: (stream: ServerHttp2Stream, path: string) => void,
  maxConcurrentStreams = 100,
): Promise<Up> {
  const server = createServer({ settings: { maxConcurrentStreams } })
  const sessions: ServerHttp2Session[] = []
  server.on('session', session => sessions.push(session))
  server.on('stream', (stream: ServerHttp2Stream, headers) => {
    stream.on('error', () => {})
    onStream(stream, String(headers[':path']))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const target = `h2c://127.0.0.1:${(server.address() as AddressInfo).port}`
  const service = await serveRouter({ port: 0, routes: { routes: [{ name: 'all', match: {}, target }] } })
  stops.push(async () => {
    await service.close({ graceMs: 0 })
    for (const session of sessions) session.destroy()
    server.close()
  })
  return { server, sessions, service, port: service.address.port }
}

it('many exchanges share one session, and trailers come back', async () => {
  const { port, sessions } = await startH2c(stream => {
    stream.respond({ ':status': 200 }, { waitForTrailers: true })
    stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }))
    stream.end('hi')
  })
  const answers = await Promise.all(Array.from({ length: 20 }, () => get(port, '/')))
  for (const answer of answers) expect(answer).toMatch(/^HTTP\/1\.1 200 [\s\S]*2\r\nhi\r\n0\r\ngrpc-status: 0\r\n\r\n$/)
  expect(sessions).toHaveLength(1)
})

it('when a session is full, another one is opened', async () => {
  const { port, sessions } = await startH2c((stream, path) => {
    stream.respond({ ':status': 200 })
    if (path === '/hold') stream.write('x')
    else stream.end('free')
  }, 1)
  const holder = connect(port, '127.0.0.1')
  holder.write('GET /hold HTTP/1.1\r\nhost: a\r\n\r\n')
  await once(holder, 'data')
  expect(await get(port, '/')).toMatch(/free/)
  expect(sessions).toHaveLength(2)
  holder.destroy()
})

it('of many at once, those that do not fit into one session open others', async () => {
  const held: ServerHttp2Stream[] = []
  const { port, sessions } = await startH2c(stream => {
    held.push(stream)
    if (held.length < 120) return
    for (const each of held) {
      each.respond({ ':status': 200 })
      each.end('hi')
    }
  })
  const answers = await Promise.all(Array.from({ length: 120 }, () => get(port, '/')))
  expect(answers.filter(answer => /hi/.test(answer))).toHaveLength(120)
  expect(sessions).toHaveLength(2)
})

it('an unreachable target fails all who wait', async () => {
  const target = 'h2c://127.0.0.1:1'
  const service = await serveRouter({ port: 0, routes: { routes: [{ name: 'down', match: {}, target }] } })
  stops.push(() => service.close({ graceMs: 0 }))
  const answers = await Promise.all(Array.from({ length: 5 }, () => get(service.address.port, '/')))
  for (const answer of answers) expect(answer).toMatch(/sallyport-error: upstream-refused/)
  expect(service.stats().upstreams).toMatchObject({ connections: 0 })
})

it('bodies pass in both directions', async () => {
  const { port } = await startH2c(stream => {
    stream.respond({ ':status': 200 })
    stream.pipe(stream)
  })
  const body = 'x'.repeat(300_000)
  const head = `POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: ${body.length}\r\n\r\n`
  const answer = await rawCall(port, head + body)
  expect(answer.match(/x/g)?.length).toBeGreaterThanOrEqual(body.length)
})

it('a session that goes away between two requests is replaced', async () => {
  const { port, sessions } = await startH2c(stream => {
    stream.respond({ ':status': 200 })
    stream.end('hi')
  })
  expect(await get(port, '/')).toMatch(/hi/)
  sessions[0]!.goaway()
  sessions[0]!.close()
  await once(sessions[0]!, 'close')
  expect(await get(port, '/')).toMatch(/hi/)
  expect(sessions).toHaveLength(2)
})

it('an upstream that resets the stream before its head becomes 502', async () => {
  const { port } = await startH2c(stream => stream.close(2))
  expect(await get(port, '/')).toMatch(/^HTTP\/1\.1 502 [\s\S]*sallyport-error: upstream-broken\r\n/)
})

it('trailers of bodies with a known length pass, in both directions', async () => {
  let received: unknown
  const { port } = await startH2c(stream => {
    stream.on('trailers', trailers => {
      received = trailers
    })
    stream.resume().on('end', () => {
      stream.respond({ ':status': 200, 'content-length': '2' }, { waitForTrailers: true })
      stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }))
      stream.end('hi')
    })
  })
  const caller = connectHttp2(`http://127.0.0.1:${port}`)
  stops.push(() => caller.destroy())
  const head = { ':method': 'POST', ':path': '/', 'content-length': '3', te: 'trailers' }
  const stream = caller.request(head, { waitForTrailers: true } as object)
  stream.on('wantTrailers', () => stream.sendTrailers({ 'x-sum': '9' }))
  const trailers = once(stream, 'trailers')
  stream.resume().end('abc')
  expect((await trailers)[0]).toMatchObject({ 'grpc-status': '0' })
  expect(received).toMatchObject({ 'x-sum': '9' })
})
