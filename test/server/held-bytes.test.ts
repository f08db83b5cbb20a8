/**
 * What a session holds for its callers is released when they have it or have left; otherwise its buffers would fill up
 * for good.
 */
import { once } from 'node:events'
import { type ClientHttp2Session, connect as connectHttp2 } from 'node:http2'
import { createServer as createHttpsServer } from 'node:https'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { afterAll, afterEach, describe, expect, test } from 'vitest'
import type { Server } from '../../server/server.ts'
import { eventually, until } from '../support/until.ts'
import { always, call, dial, HOST, makeWorld, startServer } from './fixture.ts'

const KIB = 1024

const { authority, server: own } = await makeWorld()
const host = createHttpsServer({ cert: own.certificate, key: own.key })
let server: Server
afterEach(() => server.close({ graceMs: 0 }))
afterAll(() => host.close())

async function serve(bytes: number): Promise<number> {
  server = await startServer()
  await dial(server, { handler: always('x'.repeat(bytes)) })
  return server.publicAddress!.port
}

/** Connects a caller to an embedder's own `https.Server`, to which the server is attached. */
async function attached(): Promise<() => Socket> {
  if (!host.listening) await once(host.listen(0, '127.0.0.1'), 'listening')
  server.attach(host)
  const { port } = host.address() as AddressInfo
  return () => connectTls({ port, host: '127.0.0.1', ca: authority.certificate, servername: 'localhost' })
}

/** Resolves once nothing has changed for a few checks. */
async function still(): Promise<void> {
  for (let looks = 0, last = ''; looks < 5; ) {
    const { streams, bufferedBytes } = server.stats()
    const now = `${streams} ${bufferedBytes}`
    looks = now === last ? looks + 1 : 0
    last = now
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}

const nothingHeld = () =>
  eventually(() => expect(server.stats()).toMatchObject({ streams: 0, exchanges: 0, bufferedBytes: 0 }))

async function http2(port: number, use: (session: ClientHttp2Session) => Promise<void>): Promise<void> {
  const session = connectHttp2(`http://127.0.0.1:${port}`)
  await use(session)
  session.destroy()
}

function get(session: ClientHttp2Session) {
  return session.request({ ':path': '/', ':authority': HOST })
}

describe('of answers that were read', () => {
  test.each([10, KIB, 100 * KIB])('nothing is left: HTTP/1.1, %i bytes', async bytes => {
    await serve(bytes)
    for (let i = 0; i < 20; i++) expect((await call(server, HOST)).text).toHaveLength(bytes)
    await nothingHeld()
  })

  test.each([10, KIB, 100 * KIB])('nothing is left: HTTP/2, %i bytes', async bytes => {
    const port = await serve(bytes)
    await http2(port, async session => {
      const one = async () => {
        const stream = get(session)
        let got = 0
        for await (const chunk of stream) got += chunk.length
        expect(got).toBe(bytes)
      }
      for (let i = 0; i < 5; i++) await Promise.all(Array.from({ length: 10 }, one))
      await nothingHeld()
    })
  })

  test("nothing is left: an embedder's own server", async () => {
    await serve(100 * KIB)
    const dialHost = await attached()
    for (let i = 0; i < 20; i++) {
      const socket = dialHost()
      socket.write(`GET / HTTP/1.1\r\nHost: ${HOST}\r\nConnection: close\r\n\r\n`)
      let got = 0
      for await (const chunk of socket) got += chunk.length
      expect(got).toBeGreaterThan(100 * KIB)
    }
    await nothingHeld()
  })

  test('nothing is left: an embedder', async () => {
    await serve(100 * KIB)
    for (let i = 0; i < 5; i++) {
      const response = await server.fetch('demo', `https://${HOST}/`)
      await eventually(() => expect(server.stats().streams).toBe(0))
      expect(await response.text()).toHaveLength(100 * KIB)
    }
    await nothingHeld()
  })
})

describe('of answers that arrived whole and were not read', () => {
  test.each(['HTTP/1.1', "an embedder's own server"])('nothing is left: %s, the caller leaves', async edge => {
    const port = await serve(200 * KIB)
    const dialEdge = edge === 'HTTP/1.1' ? () => connect(port, '127.0.0.1') : await attached()
    const sockets = Array.from({ length: 10 }, () => {
      const socket = dialEdge()
      socket.on('error', () => {}).pause()
      socket.write(`GET / HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`)
      return socket
    })
    await eventually(() => expect(server.stats().streams).toBe(0))
    for (const socket of sockets) socket.destroy()
    await nothingHeld()
  })

  test('nothing is left: HTTP/1.1, the caller leaves before the kernel has accepted everything', {
    tags: ['slow'],
  }, async () => {
    let bytes = 2048 * KIB
    server = await startServer()
    await dial(server, {
      handler: (...about) => {
        begun++
        return always('x'.repeat(bytes))(...about)
      },
    })
    const { port } = server.publicAddress!
    let full = 0
    let begun = 0
    for (; full < 3 && bytes < 16_384 * KIB; bytes += 64 * KIB) {
      const socket = connect(port, '127.0.0.1')
      socket.on('error', () => {}).pause()
      socket.write(`GET / HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`)
      const before = begun
      await until(() => begun > before)
      await still()
      const { streams, bufferedBytes } = server.stats()
      if (streams === 0 && bufferedBytes > 0) full++
      socket.resetAndDestroy()
      await nothingHeld()
    }
    expect(full).toBe(3)
  })

  test('nothing is left: an embedder cancels the body', async () => {
    await serve(200 * KIB)
    const responses = await Promise.all(Array.from({ length: 5 }, () => server.fetch('demo', `https://${HOST}/`)))
    await eventually(() => expect(server.stats().streams).toBe(0))
    for (const { body } of responses) await body?.cancel()
    await nothingHeld()
  })

  test('nothing is left: HTTP/2, the streams are reset', async () => {
    const port = await serve(200 * KIB)
    await http2(port, async session => {
      const streams = Array.from({ length: 10 }, () => get(session).on('error', () => {}))
      await Promise.all(streams.map(stream => once(stream, 'response')))
      await eventually(() => expect(server.stats().streams).toBe(0))
      for (const stream of streams) stream.close(8)
      await nothingHeld()
    })
  })
})
