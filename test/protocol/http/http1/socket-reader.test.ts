import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { PassThrough } from 'node:stream'
import {
  connect as connectTls,
  createServer as createTlsServer,
  type TLSSocket,
  type Server as TlsServer,
} from 'node:tls'
import { afterEach, describe, expect, it } from 'vitest'
import { SocketReader } from '../../../../protocol/http/http1/socket-reader.ts'
import { makeSecrets } from '../../../support/secrets.ts'

const secrets = await makeSecrets()
const open: { destroy(): void }[] = []
afterEach(() => {
  for (const each of open.splice(0)) each.destroy()
})

/** Both ends of a connection over loopback; the second was accepted. */
async function pair(): Promise<[Socket, Socket]> {
  const server = createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const dialled = connect((server.address() as AddressInfo).port, '127.0.0.1')
  const [accepted] = (await once(server, 'connection')) as [Socket]
  server.close()
  open.push(dialled, accepted)
  return [dialled, accepted]
}

/** Everything that arrives, as its receiver should treat it: what is lent is copied. */
function collect(reader: SocketReader, socket: Socket | PassThrough, goesOn = true) {
  const seen = { bytes: [] as Buffer[], lent: 0, given: 0 }
  const owner = { threw: () => socket.destroy() }
  const take = (bytes: Buffer, lent: boolean) => {
    if (lent) seen.lent++
    else seen.given++
    seen.bytes.push(lent ? Buffer.from(bytes) : bytes)
    return goesOn
  }
  reader.read(socket, take, owner)
  return seen
}

describe('reading into one buffer', () => {
  it('lends small reads, on dialled and on accepted sockets', async () => {
    for (const [from, to] of [await pair(), (await pair()).reverse() as [Socket, Socket]]) {
      const seen = collect(new SocketReader(), to)
      for (const text of ['one', 'two']) {
        const before = seen.bytes.length
        from.write(text)
        await expect.poll(() => seen.bytes.length).toBe(before + 1)
      }
      expect(Buffer.concat(seen.bytes).toString()).toBe('onetwo')
      expect(seen).toMatchObject({ lent: 2, given: 0 })
    }
  })

  it("gives a body's buffers away: they keep their bytes", async () => {
    const [from, to] = await pair()
    const seen = collect(new SocketReader(), to)
    const body = Buffer.alloc(4 * 1024 * 1024)
    for (let at = 0; at < body.length; at += 4) body.writeUInt32BE(at, at)
    from.end(body)
    await once(to, 'end')
    expect(seen.given).toBeGreaterThan(0)
    expect(Buffer.concat(seen.bytes).equals(body)).toBe(true)
  })

  it('gives none away where no body goes on', async () => {
    const [from, to] = await pair()
    const seen = collect(new SocketReader(), to, false)
    from.end(Buffer.alloc(4 * 1024 * 1024))
    await once(to, 'end')
    expect(Buffer.concat(seen.bytes).length).toBe(4 * 1024 * 1024)
    expect(seen.given).toBe(0)
  })

  it('gives none away of which most is unused', async () => {
    const [from, to] = await pair()
    const seen = collect(new SocketReader(), to)
    // Then the next read has a buffer of its own.
    from.write(Buffer.alloc(64 * 1024))
    await expect.poll(() => Buffer.concat(seen.bytes).length).toBe(64 * 1024)
    from.write(Buffer.alloc(64 * 1024 - 1))
    await expect.poll(() => Buffer.concat(seen.bytes).length).toBe(128 * 1024 - 1)
    for (let i = 1; i <= 10; i++) {
      from.write(Buffer.alloc(16 * 1024))
      await expect.poll(() => Buffer.concat(seen.bytes).length).toBe(128 * 1024 - 1 + i * 16 * 1024)
    }
    const given = seen.bytes.filter(({ buffer }) => buffer.byteLength === 64 * 1024)
    for (const { length } of given) expect(length).toBeGreaterThanOrEqual(32 * 1024)
  })

  it('keeps connections that share it apart', async () => {
    const reader = new SocketReader()
    const [[a, first], [b, second]] = [await pair(), await pair()]
    const [seenFirst, seenSecond] = [collect(reader, first), collect(reader, second)]
    a.end('a'.repeat(200_000))
    b.end('b'.repeat(200_000))
    await Promise.all([once(first, 'end'), once(second, 'end')])
    expect(Buffer.concat(seenFirst.bytes).toString()).toBe('a'.repeat(200_000))
    expect(Buffer.concat(seenSecond.bytes).toString()).toBe('b'.repeat(200_000))
  })

  it('pauses and resumes', async () => {
    const [from, to] = await pair()
    const seen = collect(new SocketReader(), to)
    to.pause()
    from.write('waits')
    const [echo] = await Promise.all([once(from, 'data'), to.write('a round trip later')])
    expect(String(echo)).toBe('a round trip later')
    expect(seen.bytes).toEqual([])
    to.resume()
    await expect.poll(() => Buffer.concat(seen.bytes).toString()).toBe('waits')
  })

  it('stays paused, even if the stream was about to ask for more', async () => {
    const [from, to] = await pair()
    from.write(Buffer.alloc(1024 * 1024))
    const seen = await new Promise<ReturnType<typeof collect>>(resolve => {
      to.once('data', () => {
        resolve(collect(new SocketReader(), to))
        to.pause()
      })
    })
    const [echo] = await Promise.all([once(from, 'data'), to.write('a round trip later')])
    expect(String(echo)).toBe('a round trip later')
    expect(seen.bytes).toEqual([])
  })

  it('reads any other stream as Node does', async () => {
    const stream = new PassThrough()
    const seen = collect(new SocketReader(), stream)
    stream.end('text')
    await once(stream, 'end')
    expect(Buffer.concat(seen.bytes).toString()).toBe('text')
    expect(seen.lent).toBe(0)
  })
})

describe('over TLS', () => {
  let server: TlsServer
  afterEach(() => void server.close())

  /** As `pair`. Each byte that is sent is a TLS record. */
  async function tlsPair(): Promise<[from: TLSSocket, to: TLSSocket, send: (bytes: number) => Promise<void>]> {
    server = createTlsServer(secrets.server).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const from = connectTls({ port, host: '127.0.0.1', ca: secrets.ca, servername: 'localhost' })
    const [accepted] = await Promise.all([once(server, 'secureConnection'), once(from, 'secureConnect')])
    const [to] = accepted as [TLSSocket]
    from.setNoDelay()
    open.push(from, to)
    const send = async (bytes: number) => {
      for (let left = bytes; left > 0; left--) {
        from.write('x')
        await new Promise(setImmediate)
      }
    }
    return [from, to, send]
  }

  const waiting = (socket: TLSSocket) =>
    (socket as unknown as { _readableState: { buffer: unknown[] } })._readableState.buffer.length

  it('a pause stops reading, and nothing waits in pieces', async () => {
    const [, to, send] = await tlsPair()
    const seen = collect(new SocketReader(), to)
    await send(10)
    await expect.poll(() => Buffer.concat(seen.bytes).length).toBe(10)
    to.pause()
    const before = to.bytesRead
    await send(20_000)
    // Of what was read before the pause, some may have been decrypted after it.
    expect([to.bytesRead - before <= 64 * 1024, waiting(to)]).toEqual([true, 0])
    expect(seen.bytes.length).toBeLessThan(4_000)
    to.resume()
    await expect.poll(() => Buffer.concat(seen.bytes).length).toBe(20_010)
  })

  it('a pause before the first read stops reading after it', async () => {
    const [from, to, send] = await tlsPair()
    const seen = collect(new SocketReader(), to)
    to.pause()
    await send(20_000)
    expect(seen.bytes.length).toBeLessThan(4_000)
    expect(waiting(to)).toBe(0)
    to.resume()
    from.end()
    await once(to, 'end')
    expect(Buffer.concat(seen.bytes).length).toBe(20_000)
  })

  it('a pause in the middle of a turn, again and again, loses nothing', async () => {
    const [from, to] = await tlsPair()
    const seen: Buffer[] = []
    const take = (bytes: Buffer) => {
      seen.push(bytes)
      to.pause()
      setTimeout(() => to.resume(), 1)
      return true
    }
    new SocketReader().read(to, take, { threw: () => to.destroy() })
    from.end(Buffer.alloc(1024 * 1024, 'x'))
    await once(to, 'end')
    expect(Buffer.concat(seen).length).toBe(1024 * 1024)
  })
})
