import { once } from 'node:events'
import { connect as connectTcp } from 'node:net'
import { Duplex } from 'node:stream'
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from 'node:tls'
import { afterEach, describe, expect, test, vi } from 'vitest'
import type { Server } from '../../server/server.ts'
import { SniFront } from '../../server/sni-front.ts'
import { readServerName } from '../../server/socket/client-hello.ts'
import { work } from '../support/busy.ts'
import { clientHello } from '../support/client-hello.ts'
import { until } from '../support/until.ts'
import {
  always,
  CONTROL_NAME,
  call,
  clientCertificate,
  DOMAIN,
  dial,
  makeWorld,
  openWebSocket,
  startServer,
} from './fixture.ts'

const EDGE_NAME = `demo.${DOMAIN}`

let server: Server
afterEach(() => server.close({ graceMs: 0 }))

async function startShared(clientCa?: string): Promise<void> {
  const made = await makeWorld()
  const tls = { cert: made.server.certificate, key: made.server.key }
  server = await startServer({ public: { port: 0, tls }, control: { tls, hostName: CONTROL_NAME, clientCa } })
}

async function connect(options: ConnectionOptions): Promise<TLSSocket> {
  const { authority } = await makeWorld()
  const { host, port } = server.publicAddress!
  const socket = connectTls({ host, port, ca: authority.certificate, ...options })
  return new Promise((resolve, reject) => {
    socket.once('secureConnect', () => resolve(socket))
    socket.once('error', reject)
  })
}

const edge = async (host: string, options: object = {}) =>
  call(server, host, '/', { ca: (await makeWorld()).authority.certificate, servername: EDGE_NAME, ...options })

describe('one address for the edge and the control endpoint', () => {
  test('both are reached by their names, and the addresses are the same', async () => {
    await startShared()
    expect(server.controlAddress).toEqual(server.publicAddress)
    await dial(server, { handler: always('through') })
    expect((await edge(EDGE_NAME)).text).toBe('through')
  })

  test("TLS 1.2 works for the edge's name and fails for the control name", async () => {
    await startShared()
    const socket = await connect({ servername: EDGE_NAME, maxVersion: 'TLSv1.2' })
    expect(socket.getProtocol()).toBe('TLSv1.2')
    socket.destroy()
    await expect(connect({ servername: CONTROL_NAME, maxVersion: 'TLSv1.2' })).rejects.toThrow(/version|alert/i)
    const modern = await connect({ servername: CONTROL_NAME })
    expect(modern.getProtocol()).toBe('TLSv1.3')
    modern.destroy()
  })

  test('a client certificate is requested on the control name only', async () => {
    const made = await makeWorld()
    await startShared(made.authority.certificate)
    await dial(server, { certificate: await clientCertificate('demo'), handler: always('mutual') })
    expect((await edge(EDGE_NAME)).text).toBe('mutual')
    // With TLS 1.3 the client learns of the refusal after it has finished the handshake.
    await expect(openWebSocket(server, {})).rejects.toThrow()
  })

  test('a request for the control host on another name gets 421', async () => {
    await startShared()
    const answer = await edge(CONTROL_NAME)
    expect([answer.status, answer.headers['sallyport-error']]).toEqual([421, 'misdirected'])
  })

  test('no server name, and upper case', async () => {
    await startShared()
    await dial(server, { servername: CONTROL_NAME.toUpperCase(), handler: always('upper') })
    expect((await edge(EDGE_NAME, { servername: '' })).text).toBe('upper')
  })

  test('a ClientHello that arrives byte by byte is served', async () => {
    await startShared()
    await dial(server, { handler: always('slow') })
    const { host, port } = server.publicAddress!
    const raw = connectTcp({ host, port, noDelay: true })
    let first = true
    const wire = new Duplex({
      read() {},
      write(chunk: Buffer, _encoding, done) {
        if (first) for (const byte of chunk) raw.write(Buffer.from([byte]))
        else raw.write(chunk)
        first = false
        done()
      },
    })
    raw.on('data', chunk => wire.push(chunk))
    const { authority } = await makeWorld()
    const socket = connectTls({ socket: wire, ca: authority.certificate, servername: EDGE_NAME })
    const text = new Promise<string>(resolve => socket.once('data', data => resolve(data.toString())))
    socket.write(`GET / HTTP/1.1\r\nhost: ${EDGE_NAME}\r\n\r\n`)
    expect(await text).toMatch(/^HTTP\/1\.1 200 /)
    socket.destroy()
    raw.destroy()
  })

  test('a connection that has sent nothing ends with the server', async () => {
    const accepted = vi.spyOn(SniFront.prototype, 'accept')
    await startShared()
    const { host, port } = server.publicAddress!
    const raw = connectTcp({ host, port })
    raw.on('error', () => {})
    await until(() => accepted.mock.calls.length === 1)
    await server.close({ graceMs: 0 })
    expect(accepted.mock.calls[0]![0].destroyed).toBe(true)
    accepted.mockRestore()
    raw.destroy()
  })

  test('a caller that connected before the server stops is answered, although its first bytes come later', async () => {
    const accepted = vi.spyOn(SniFront.prototype, 'accept')
    await startShared()
    await dial(server, { handler: always('late') })
    const { host, port } = server.publicAddress!
    const before = accepted.mock.calls.length
    const raw = connectTcp({ host, port })
    await until(() => accepted.mock.calls.length === before + 1)
    accepted.mockRestore()
    const stopped = vi.spyOn(SniFront.prototype, 'emptied')
    const closing = server.close({ graceMs: 60_000 })
    await until(() => stopped.mock.calls.length === 1)
    stopped.mockRestore()
    const { authority } = await makeWorld()
    const socket = connectTls({ socket: raw, ca: authority.certificate, servername: EDGE_NAME })
    const text = new Promise<string>((resolve, reject) => {
      socket.once('data', data => resolve(data.toString()))
      raw.once('close', reject)
    })
    socket.write(`GET / HTTP/1.1\r\nhost: ${EDGE_NAME}\r\n\r\n`)
    expect(await text).toMatch(/^HTTP\/1\.1 200 /)
    socket.destroy()
    await closing
  })

  test('a server that stops hears a ClientHello that came while it stood still', async () => {
    const accepted = vi.spyOn(SniFront.prototype, 'accept')
    await startShared()
    const hello = await clientHello(EDGE_NAME)
    const { host, port } = server.publicAddress!
    const raw = connectTcp({ host, port })
    const answered = new Promise((resolve, reject) => raw.once('data', resolve).once('close', reject))
    await until(() => accepted.mock.calls.length === 1)
    accepted.mockRestore()
    const stopped = vi.spyOn(SniFront.prototype, 'emptied')
    const closing = server.close({ graceMs: 4000 })
    await until(() => stopped.mock.calls.length === 1)
    const [patienceMs] = stopped.mock.calls[0]!
    stopped.mockRestore()
    raw.write(hello)
    work(patienceMs + 50)
    await answered
    raw.destroy()
    await closing
  })

  test.each([EDGE_NAME, CONTROL_NAME])('who leaves in the middle of a handshake leaves at once: %s', async name => {
    await startShared()
    const { host, port } = server.publicAddress!
    const raw = connectTcp({ host, port, allowHalfOpen: true })
    raw.write(await clientHello(name))
    await once(raw, 'data')
    const since = performance.now()
    raw.resume().end()
    await once(raw, 'end')
    expect(performance.now() - since).toBeLessThan(5_000)
    raw.destroy()
  })

  test('anything but TLS is closed', async () => {
    await startShared()
    const { host, port } = server.publicAddress!
    const raw = connectTcp({ host, port })
    raw.on('error', () => {})
    const closed = new Promise(resolve => raw.once('close', resolve))
    raw.resume().write(`GET / HTTP/1.1\r\nhost: ${CONTROL_NAME}\r\n\r\n`)
    await closed
  })
})

test('the server name is read at every cut, and bytes that are not a ClientHello have none', async () => {
  const hello = await clientHello('Name.Example.com')
  for (let i = 0; i < hello.length; i++) expect(readServerName(hello.subarray(0, i))).toEqual({ done: false })
  expect(readServerName(hello)).toEqual({ done: true, name: 'name.example.com' })
  // Two records for one handshake message.
  const cut = 50
  const record = (part: Buffer) => Buffer.concat([Buffer.from([22, 3, 1, part.length >> 8, part.length & 255]), part])
  const split = Buffer.concat([record(hello.subarray(5, cut)), record(hello.subarray(cut))])
  expect(readServerName(split)).toEqual({ done: true, name: 'name.example.com' })
  // A 32nd record is the last one that is examined: whatever follows costs nothing.
  const inRecords = (count: number) =>
    Array.from({ length: count }, (_, i) => record(hello.subarray(5 + i, i === count - 1 ? undefined : 6 + i)))
  expect(readServerName(Buffer.concat(inRecords(32)))).toEqual({ done: true, name: 'name.example.com' })
  expect(readServerName(Buffer.concat(inRecords(33)))).toEqual({ done: true, name: undefined })
  expect(readServerName(Buffer.concat(inRecords(33).slice(0, 31)))).toEqual({ done: false })
  for (const bytes of ['GET / HTTP/1.1', '\x16\x03\x01\x00\x00', '\x16\x03\x01\x00\x04\x02\x00\x00\x00']) {
    expect(readServerName(Buffer.from(bytes, 'latin1'))).toEqual({ done: true, name: undefined })
  }
  for (let i = 5; i < hello.length; i++) {
    const bad = Buffer.from(hello)
    bad[i] = 0xff
    readServerName(bad)
  }
})
