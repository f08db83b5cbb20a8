import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { connect as connectHttp2 } from 'node:http2'
import net, { type AddressInfo, connect as connectTcp, createServer as createNetServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from 'node:tls'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { parseCidrs } from '../../../protocol/base/address.ts'
import { discarding } from '../../../protocol/base/guard.ts'
import type { Handler } from '../../../protocol/exchange.ts'
import { patienceOf } from '../../../protocol/http/connection-set.ts'
import { stopListening } from '../../../protocol/http/listen-on.ts'
import { type Listener, type ListenerOptions, listen } from '../../../protocol/http/listener.ts'
import { work } from '../../support/busy.ts'
import { makeSecrets } from '../../support/secrets.ts'
import { callBadly, withoutNodesListener } from '../../support/tls-faults.ts'
import { until } from '../../support/until.ts'
import { call, ok, RawPeer, recorder } from './http1/raw.ts'

const secrets = await makeSecrets()
const open: (() => unknown)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
  vi.restoreAllMocks()
})

async function startListener(handler: Handler, options: Partial<ListenerOptions> = {}): Promise<Listener> {
  const listener = await listen({ port: 0, handler, ...options })
  open.push(() => listener.close({ graceMs: 0 }))
  return listener
}

async function tls(listener: Listener, options: ConnectionOptions = {}): Promise<TLSSocket> {
  const socket = connectTls({
    host: '127.0.0.1',
    port: listener.address.port,
    ca: secrets.ca,
    servername: 'localhost',
    ...options,
  })
  open.push(() => socket.destroy())
  await once(socket, 'secureConnect')
  return socket
}

async function portOf(server: Server): Promise<number> {
  await once(server.listen(0, '127.0.0.1'), 'listening')
  return (server.address() as AddressInfo).port
}

/** The first bytes of a TLS caller. */
async function helloOf(options: ConnectionOptions): Promise<Buffer> {
  const server = createNetServer()
  open.push(() => server.close())
  const port = await portOf(server)
  const caller = connectTls({ ...options, port, host: '127.0.0.1' }).on('error', () => {})
  open.push(() => caller.destroy())
  const [socket] = await once(server, 'connection')
  const [hello] = await once(socket, 'data')
  return hello
}

/** Node's own: a socket that is bound, and no more. */
interface Given {
  _createServerHandle(address: string, port: number, family: number): { readonly fd: number; close(): void }
}

const GET = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n'

describe('TLS', () => {
  test('ALPN decides; without it HTTP/1.1; the request says that it was encrypted', async () => {
    const { handler, seen } = recorder(({ response }) => ok(response))
    const listener = await startListener(handler, { tls: secrets.server })
    for (const options of [{ ALPNProtocols: ['http/1.1'] }, {}]) {
      const peer = new RawPeer(await tls(listener, options))
      peer.send(GET)
      await peer.saying('ok')
    }
    const session = connectHttp2(`https://127.0.0.1:${listener.address.port}`, {
      ca: secrets.ca,
      servername: 'localhost',
    })
    open.push(() => session.destroy())
    const stream = session.request({ ':path': '/' })
    const [headers] = await once(stream, 'response')
    expect(headers[':status']).toBe(200)
    expect(seen.map(({ request }) => request.encrypted)).toEqual([true, true, true])
  })

  test('a caller that drops its TLS session aborts its HTTP/2 requests', async () => {
    const { handler, seen } = recorder(() => {})
    const listener = await startListener(handler, { tls: secrets.server })
    const session = connectHttp2(`https://127.0.0.1:${listener.address.port}`, {
      ca: secrets.ca,
      servername: 'localhost',
    })
    session.on('error', () => {})
    session.request({ ':path': '/' }).on('error', () => {})
    await until(() => seen.length === 1)
    session.destroy()
    await until(() => seen[0]!.aborted === 'cancelled')
  })

  test('a caller that stops reading its TLS connection is reset, so that the kernel holds nothing for it', async () => {
    const { handler, seen } = recorder(({ response }) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
      response.responseData(Buffer.alloc(32 * 1024 * 1024))
    })
    const listener = await startListener(handler, { tls: secrets.server, limits: { stalledMs: 100 } })
    const socket = await tls(listener)
    const broken = once(socket, 'error')
    socket.pause()
    socket.write(GET)
    await until(() => seen[0]?.aborted === 'request-timeout')
    socket.resume()
    expect(await broken).toMatchObject([{ code: 'ECONNRESET' }])
  })

  test('TLS 1.1 is refused', async () => {
    const { handler } = recorder(({ response }) => ok(response))
    const listener = await startListener(handler, { tls: secrets.server })
    const socket = connectTls({
      port: listener.address.port,
      ca: secrets.ca,
      servername: 'localhost',
      maxVersion: 'TLSv1.1',
      minVersion: 'TLSv1',
      ciphers: 'DEFAULT@SECLEVEL=0',
    })
    const [error] = await once(socket, 'error')
    expect(error.code).toMatch(/PROTOCOL|ECONNRESET/)
  })

  test('C4: new connections use a new certificate; a bad one keeps the old one', async () => {
    const { handler } = recorder(({ response }) => ok(response))
    const listener = await startListener(handler, { tls: secrets.server })
    const before = (await tls(listener)).getPeerX509Certificate()!.fingerprint256
    const other = await makeSecrets()
    expect(() => listener.setTls({ key: other.server.key, cert: secrets.server.cert })).toThrow()
    expect((await tls(listener)).getPeerX509Certificate()!.fingerprint256).toBe(before)
    listener.setTls(other.server)
    expect((await tls(listener, { ca: other.ca })).getPeerX509Certificate()!.fingerprint256).not.toBe(before)
  })

  test('C6: garbage in place of a handshake affects nobody', async () => {
    const { handler } = recorder(({ response }) => ok(response))
    const listener = await startListener(handler, { tls: secrets.server })
    const garbage = await call(listener.address.port)
    garbage.send(GET)
    await garbage.close()
    const peer = new RawPeer(await tls(listener))
    peer.send(GET)
    await peer.saying('ok')
  })

  test.each([
    ['its own', false],
    ['that of a socket accepted elsewhere', true],
  ])(
    'C6: a caller that leaves in the middle of its handshake leaves its place at once: %s',
    async (_whose, elsewhere) => {
      const { handler } = recorder(() => {})
      const listener = await startListener(handler, { tls: secrets.server })
      let { port } = listener.address
      if (elsewhere) {
        const front = createNetServer({ pauseOnConnect: true, allowHalfOpen: true }, socket => listener.accept(socket))
        open.push(() => front.close())
        port = await portOf(front)
      }
      const hello = await helloOf({ servername: 'localhost' })
      for (const bytes of [0, 100, hello.length]) {
        const caller = connectTcp({ port, host: '127.0.0.1', allowHalfOpen: true }).on('error', () => {})
        open.push(() => caller.destroy())
        caller.write(hello.subarray(0, bytes))
        await until(() => listener.connections === 1)
        caller.end()
        const since = performance.now()
        caller.resume()
        await until(() => listener.connections === 0)
        expect(performance.now() - since).toBeLessThan(5_000)
      }
    },
  )

  test('a request that comes with the end of the handshake and that of the connection is answered', async () => {
    const { handler } = recorder(({ response }) => void setTimeout(ok, 100, response))
    const listener = await startListener(handler, { tls: secrets.server })
    /** Passes on the ClientHello, and everything else at once. */
    const hold = createNetServer({ allowHalfOpen: true }, caller => {
      const server = connectTcp({ port: listener.address.port, host: '127.0.0.1', allowHalfOpen: true })
      open.push(() => server.destroy())
      const held: Buffer[] = []
      caller.once('data', (hello: Buffer) => {
        server.write(hello)
        caller.on('data', (chunk: Buffer) => held.push(chunk)).on('end', () => server.end(Buffer.concat(held)))
      })
      server.pipe(caller)
    })
    open.push(() => hold.close())
    const options = { port: await portOf(hold), host: '127.0.0.1', ca: secrets.ca, servername: 'localhost' }
    const caller = connectTls({ ...options, minVersion: 'TLSv1.3' })
    open.push(() => caller.destroy())
    await once(caller, 'secureConnect')
    caller.end(GET)
    expect(await text(caller)).toMatch(/^HTTP\/1\.1 200 .*ok$/s)
  })

  test('C6: garbage behind the handshake of a caller that has left affects nobody', async () => {
    const listeners = withoutNodesListener()
    const { handler } = recorder(({ response }) => ok(response))
    const listener = await startListener(handler, { tls: secrets.server })
    await callBadly(listener.address.port)
    await until(() => listeners.length > 0)
    expect(listeners).toEqual([1])
  })
})

describe('plain', () => {
  test('HTTP/2 with prior knowledge, its preface in any pieces', async () => {
    const { handler, seen } = recorder(({ response }) => ok(response))
    const listener = await startListener(handler)
    const peer = await call(listener.address.port)
    const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
    for (const byte of preface) {
      peer.send(Buffer.from([byte]))
      await new Promise(resolve => setImmediate(resolve))
    }
    peer.send(Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    // GET / over http, all from the static table.
    peer.send(Buffer.from([0, 0, 6, 1, 5, 0, 0, 0, 1, 0x82, 0x84, 0x86, 0x41, 0x01, 0x61]))
    await until(() => seen.length === 1 || peer.closed)
    expect(seen[0]?.request).toMatchObject({ method: 'GET', path: '/', encrypted: false, peerAddress: '127.0.0.1' })
  })

  test('a request that begins with P is HTTP/1.1; without http2 the preface is unknown', async () => {
    const { handler } = recorder(({ response }) => ok(response))
    const listener = await startListener(handler)
    const peer = await call(listener.address.port)
    for (const byte of 'PRIVATE / HTTP/1.1\r\nHost: a\r\n\r\n') {
      peer.send(byte)
      await new Promise(resolve => setImmediate(resolve))
    }
    await peer.saying('ok')
    const other = await call((await startListener(handler, { http2: false })).address.port)
    other.send('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
    expect(await other.end()).toMatch(/^HTTP\/1.1 400/)
  })

  test('a silent connection is closed at the head deadline', async () => {
    const { handler } = recorder(() => {})
    const listener = await startListener(handler, { limits: { headMs: 30 } })
    const peer = await call(listener.address.port)
    expect(await peer.end()).toBe('')
  })

  test('trusted proxies are believed', async () => {
    const { handler, seen } = recorder(({ response }) => ok(response))
    const listener = await startListener(handler, { trustedProxies: parseCidrs(['127.0.0.1']) })
    const peer = await call(listener.address.port)
    peer.send(
      'GET / HTTP/1.1\r\nHost: in\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: out\r\n\r\n',
    )
    await peer.saying('ok')
    expect(seen[0]!.request.caller).toEqual({ address: '192.0.2.1', scheme: 'https', host: 'out' })
  })

  test('over the bound an idle connection gives way, otherwise the new one; and some are not admitted', async () => {
    const { handler, seen } = recorder(({ request, response }) => request.path === '/' && ok(response))
    const bounded = await startListener(handler, { maxConnections: 1 })
    const first = await call(bounded.address.port)
    first.send(GET)
    await first.saying('ok')
    expect(bounded.connections).toBe(1)
    const second = await call(bounded.address.port)
    await first.end()
    second.send(GET)
    await second.saying('ok')
    second.send('GET /waits HTTP/1.1\r\nHost: x\r\n\r\n')
    await until(() => seen.length === 3)
    expect(await (await call(bounded.address.port)).close()).toBe('')
    const closed = await startListener(handler, { onConnection: () => false })
    expect(await (await call(closed.address.port)).close()).toBe('')
  })

  test('C7: a limit of 0 is no limit', async () => {
    const { handler } = recorder(({ response }) => ok(response))
    const limits = {
      headMs: 0,
      bodyIdleMs: 0,
      stalledMs: 0,
      keepAliveMs: 0,
      drainMs: 0,
      halfCloseMs: 0,
      http2PingMs: 0,
    }
    for (const http2 of [true, false]) {
      const listener = await startListener(handler, { http2, limits })
      const first = await call(listener.address.port)
      // Others come and go meanwhile.
      for (let i = 0; i < 3; i++) {
        const other = await call(listener.address.port)
        other.send(GET)
        await other.saying('ok')
      }
      first.send(GET.slice(0, 5))
      first.send(GET.slice(5))
      await first.saying('ok')
      first.send(GET)
      await first.saying('ok')
    }
    const listener = await startListener(handler, { limits })
    const session = connectHttp2(`http://127.0.0.1:${listener.address.port}`)
    open.push(() => session.destroy())
    for (let i = 0; i < 3; i++) {
      const [headers] = await once(session.request({ ':path': '/' }), 'response')
      expect(headers[':status']).toBe(200)
      // A ping's answer comes after whatever the server has said.
      await new Promise<void>((resolve, reject) => session.ping(error => (error === null ? resolve() : reject(error))))
    }
    expect(session.closed).toBe(false)
  })

  test('sockets that were accepted elsewhere', async () => {
    const { handler } = recorder(({ response }) => ok(response))
    const listener = await listen({ handler })
    const front = createNetServer(socket => listener.handleSocket(socket)).listen(0, '127.0.0.1')
    await once(front, 'listening')
    open.push(
      () => front.close(),
      () => listener.close({ graceMs: 0 }),
    )
    const peer = await call((front.address() as { port: number }).port)
    peer.send(GET)
    await peer.saying('ok')
  })

  test('closing, it answers what arrives on open connections, announces that they end, and ends those that stay idle', async () => {
    const { handler, seen } = recorder(({ response }) => ok(response))
    const listener = await startListener(handler)
    const [late, idle] = await Promise.all([call(listener.address.port), call(listener.address.port)])
    for (const peer of [late, idle]) {
      peer.send(GET)
      expect(await peer.saying('ok')).not.toMatch(/connection: close/i)
    }
    const closed = listener.close({ graceMs: 200 })
    late.send(GET)
    expect(await late.end()).toMatch(/ok.*connection: close.*ok/is)
    await idle.end()
    await closed
    expect(seen).toHaveLength(3)
  })

  test.each(['plain', 'TLS'])('closing, it resets no earlier connection: %s', async kind => {
    const { handler } = recorder(({ response }) => ok(response))
    const material = kind === 'TLS' ? { tls: secrets.server } : {}
    const listener = await startListener(handler, material)
    const { port } = listener.address
    // The kernel has accepted the connection, and we have not looked yet.
    const raw = connectTcp({ host: '127.0.0.1', port })
    open.push(() => raw.destroy())
    const connected = once(raw, 'connect')
    await new Promise(resolve => process.nextTick(resolve))
    const closed = listener.close({ graceMs: 5000 })
    await connected
    const socket = kind === 'TLS' ? connectTls({ socket: raw, ca: secrets.ca, servername: 'localhost' }) : raw
    socket.write(GET)
    const [answer] = await once(socket, 'data')
    expect(answer.toString()).toMatch(/^HTTP\/1\.1 200 .*connection: close/is)
    await closed
  })

  test('closing, it leaves earlier connections to the next process if a supervisor keeps the socket', async () => {
    const bound = (net as unknown as Given)._createServerHandle('127.0.0.1', 0, 4)
    let taken = 0
    const { handler } = recorder(({ response }) => ok(response))
    const onConnection = () => ++taken > 0
    const listener = await startListener(handler, { fd: bound.fd, onConnection })
    const raw = connectTcp({ host: '127.0.0.1', port: listener.address.port })
    open.push(() => raw.destroy())
    raw.on('error', () => {})
    await new Promise(resolve => process.nextTick(resolve))
    await listener.close({ graceMs: 5000 })
    expect(taken).toBe(0)
  })

  test('closing, it is not held up by callers that connect faster than they can be accepted', async () => {
    const server = createNetServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    let came = 0
    // One in each turn of the event loop, and each turn is long.
    server.on('newListener', name => name === 'connection' && setImmediate(comes))
    const comes = () => {
      work(20)
      came++
      server.emit('connection', undefined)
      if (server.listening && came < 100) setImmediate(comes)
    }
    await stopListening(server, {})
    expect(server.listening).toBe(false)
    expect(came).toBeLessThan(100)
  })

  test('closing, it accepts who connected before, however long it stands still itself', async () => {
    let accepted = 0
    const server = createNetServer(() => accepted++).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const stopped = stopListening(server, {})
    for (let i = 0; i < 5; i++) {
      const caller = connectTcp({ host: '127.0.0.1', port })
      caller.on('error', () => {})
      open.push(() => caller.destroy())
    }
    work(600)
    await stopped
    expect(accepted).toBe(5)
  })

  test.each([['h2'], ['http/1.1']])('a connection counts once, whatever it turns out to speak: %s', async alpn => {
    const listener = await startListener(recorder(({ response }) => ok(response)).handler, { tls: secrets.server })
    await tls(listener, { ALPNProtocols: [alpn] })
    // Anyone who connects after it is accepted after it.
    await tls(listener, { ALPNProtocols: [alpn] })
    const raw = connectTcp({ host: '127.0.0.1', port: listener.address.port })
    open.push(() => raw.destroy())
    await until(() => listener.connections >= 3)
    await new Promise<void>(resolve => setImmediate(setImmediate, resolve))
    expect(listener.connections).toBe(3)
  })

  test('closing, it hears the handshake and the request of a caller, however long it stood still itself', async () => {
    const { handler } = recorder(({ response }) => ok(response))
    const listener = await startListener(handler, { tls: secrets.server })
    const raw = connectTcp({ host: '127.0.0.1', port: listener.address.port })
    open.push(() => raw.destroy())
    await until(() => listener.connections === 1)
    const closed = listener.close({ graceMs: 4000 })
    const socket = connectTls({ socket: raw, ca: secrets.ca, servername: 'localhost' })
    socket.once('secureConnect', () => {
      socket.write(GET)
      // The kernel has it all, and the connection was given this time.
      work(patienceOf(4000) + 50)
    })
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 200 .*connection: close.*ok/is)
    await closed
  })

  test('closing, it gives up a TLS connection that stays silent, and not one that has begun its handshake', async () => {
    const listener = await startListener(recorder(() => {}).handler, { tls: secrets.server })
    const [begun, silent] = [0, 1].map(() => connectTcp({ host: '127.0.0.1', port: listener.address.port }))
    open.push(() => begun!.destroy())
    begun!.write(await helloOf({ servername: 'localhost' }))
    await once(begun!, 'data')
    await until(() => listener.connections === 2)
    const closed = listener.close({ graceMs: 4000 })
    await once(silent!.resume(), 'close')
    expect(listener.connections).toBe(1)
    begun!.destroy()
    await closed
  })

  test('closing, it gives up a connection that stays silent', async () => {
    const listener = await startListener(recorder(() => {}).handler)
    const raw = connectTcp({ host: '127.0.0.1', port: listener.address.port })
    await until(() => listener.connections === 1)
    await Promise.all([once(raw.resume(), 'close'), listener.close({ graceMs: 400 })])
    expect(listener.connections).toBe(0)
  })

  test('a plain one accepts no certificate', async () => {
    const listener = await startListener(recorder(() => {}).handler)
    expect(() => listener.setTls(secrets.server)).toThrow(new TypeError('this listener has no TLS'))
  })

  test('says what is wrong with a socket that it is given', async () => {
    const { handler } = recorder(() => {})
    const missing = new TypeError('the socket 9999 that was given cannot be listened on')
    await expect(listen({ port: 0, fd: 9999, handler })).rejects.toThrow(missing)
    // Bound, and not yet known to the event loop, like an inherited one.
    const folder = await mkdtemp(join(tmpdir(), 'sallyport-'))
    open.push(() => rm(folder, { recursive: true }))
    const given = (net as unknown as Given)._createServerHandle(join(folder, 'socket'), -1, -1)
    open.push(() => given.close())
    const { fd } = given
    const local = new TypeError(`the socket ${fd} that was given is not one of TCP`)
    await expect(listen({ port: 0, fd, handler })).rejects.toThrow(local)
  })

  test('a port in use is an error with its code', async () => {
    const { handler } = recorder(() => {})
    const listener = await startListener(handler)
    await expect(listen({ port: listener.address.port, handler })).rejects.toMatchObject({ code: 'EADDRINUSE' })
  })
})

test('E16 a caller that reset its connection before anything was read is no longer served', async () => {
  const seen: string[] = []
  const listener = await startListener((request, response) => {
    seen.push(request.peerAddress)
    ok(response)
    return discarding(response)
  })
  const asked = 50
  let over = 0
  for (let i = 0; i < asked; i++) {
    const socket = connectTcp(listener.address.port, '127.0.0.1', () => {
      socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n', () => {
        socket.resetAndDestroy()
        over++
      })
    })
  }
  await until(() => over === asked)
  const last = connectTcp(listener.address.port, '127.0.0.1')
  last.write('GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n')
  last.resume()
  await once(last, 'close')
  expect(new Set(seen)).toEqual(new Set(['127.0.0.1']))
})
