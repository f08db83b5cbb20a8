/** What waits keeps no more memory than is counted, whatever it was cut from. */
import { once } from 'node:events'
import { connect as connectHttp2, createServer as createHttp2Server, type ServerHttp2Stream } from 'node:http2'
import { type AddressInfo, connect, createServer, Socket } from 'node:net'
import { connect as connectTls, createServer as createTlsServer } from 'node:tls'
import { expect, test } from 'vitest'
import { collectGarbage, liveBytes } from '../../../load-tests/lib/garbage.ts'
import { ownBytes } from '../../../protocol/base/own-bytes.ts'
import { type BodyOwner, SocketWriter } from '../../../protocol/http/http1/socket-writer.ts'
import { HeldPieces } from '../../../protocol/http/http2/held-pieces.ts'
import { StreamWriter } from '../../../protocol/http/http2/stream-body.ts'
import { SendQueue } from '../../../protocol/wire/yamux/send-queue.ts'
import { makeSecrets } from '../../support/secrets.ts'

const SLAB_BYTES = 64 * 1024
const CHUNKS = 500

/** A hundred bytes of a slab that other readers have used up. */
function cut(value: number): Uint8Array {
  return Buffer.alloc(SLAB_BYTES, value & 0xff).subarray(1000, 1100)
}

async function arrayBufferBytes(): Promise<number> {
  await collectGarbage()
  return process.memoryUsage().arrayBuffers
}

test('bytes that are a small part of their memory get their own memory, others stay', () => {
  const small = cut(7)
  expect(ownBytes(small)).toEqual(Buffer.alloc(100, 7))
  expect(ownBytes(small).buffer.byteLength).toBe(100)
  const large = Buffer.alloc(SLAB_BYTES).subarray(0, SLAB_BYTES / 4)
  expect(ownBytes(large)).toBe(large)
})

test('chunks that wait for a stream', async () => {
  const queue = new SendQueue()
  const before = await arrayBufferBytes()
  for (let i = 0; i < CHUNKS; i++) queue.push(cut(i))
  expect(queue.bytes).toBe(CHUNKS * 100)
  expect((await arrayBufferBytes()) - before).toBeLessThan(8 * SLAB_BYTES)
  const out = Buffer.alloc(queue.bytes)
  for (let at = 0; queue.bytes > 0; ) {
    const bytes = queue.run(queue.bytes)
    queue.copy(out.subarray(at), 0, bytes)
    at += bytes
  }
  for (let i = 0; i < CHUNKS; i++) expect(out[i * 100]).toBe(i & 0xff)
})

test.each([
  ['alone', (writer: SocketWriter, bytes: Uint8Array) => writer.body(bytes, OWNER)],
  [
    'with text around them',
    (writer: SocketWriter, bytes: Uint8Array) => {
      writer.text('64\r\n')
      writer.body(bytes, OWNER)
      writer.text('\r\n')
    },
  ],
])('chunks that wait for a socket, %s', async (_, write) => {
  const { near, far, close } = await socketPair()
  try {
    far.pause()
    const writer = new SocketWriter(near, { writeWaits() {}, wrote() {}, threw() {} })
    // Until the kernel accepts no more.
    while (near.writableLength === 0) {
      writer.body(Buffer.alloc(100_000), OWNER)
      writer.flush()
      await new Promise(setImmediate)
    }
    const before = await arrayBufferBytes()
    for (let i = 0; i < CHUNKS; i++) {
      write(writer, cut(i))
      // Others cut their buffers from the same pool.
      for (let other = 0; other < 3; other++) Buffer.allocUnsafe(Buffer.poolSize / 3)
      // Each in its own turn, as they arrive.
      await new Promise(setImmediate)
    }
    expect(writer.held).toBeGreaterThan(CHUNKS * 100)
    expect((await arrayBufferBytes()) - before).toBeLessThan(8 * SLAB_BYTES)
  } finally {
    close()
  }
})

test.each(['plain', 'TLS'])(
  'bytes that arrive one by one for a %s socket that nobody reads keep little more than their size, and leave in order',
  async kind => {
    const { near, far, close } = await (kind === 'TLS' ? tlsPair() : socketPair())
    try {
      far.pause()
      const writer = new SocketWriter(near, { writeWaits() {}, wrote() {}, threw() {} })
      let first = 0
      while (near.writableLength === 0 || first < 8_000_000) {
        first += 100_000
        writer.body(Buffer.alloc(100_000), OWNER)
        writer.flush()
        await new Promise(setImmediate)
      }
      const { waiting } = writer
      const [one, two] = [counting(), counting()]
      const pieces: Buffer[] = []
      const turn = async (piece: Buffer, owner: BodyOwner) => {
        writer.body(piece, owner)
        writer.text('-')
        pieces.push(piece, Buffer.from('-'))
        await new Promise(setImmediate)
      }
      const count = 20_000
      const before = await liveBytes()
      for (let i = 0; i < count; i++) {
        writer.body(Buffer.alloc(1, i % 251), one)
        await new Promise(setImmediate)
      }
      expect((await liveBytes()) - before).toBeLessThan(count * 8)
      pieces.push(Buffer.from(Array.from({ length: count }, (_, i) => i % 251)))
      // Another owner, large ones between small ones, and an end behind small ones.
      await turn(Buffer.alloc(1, 1), two)
      await turn(Buffer.alloc(40_000, 2), two)
      await turn(Buffer.alloc(1, 3), two)
      await turn(Buffer.alloc(5_000, 4), one)
      await turn(Buffer.alloc(1, 5), two)
      expect([one.bytes, two.bytes]).toEqual([0, 0])
      expect(writer.held).toBe(waiting + Buffer.concat(pieces).length)
      writer.end()
      const got = Buffer.concat(await far.toArray()).subarray(first)
      expect(got.equals(Buffer.concat(pieces))).toBe(true)
      expect([one.bytes, two.bytes, writer.held]).toEqual([count + 5_000, 40_003, 0])
    } finally {
      close()
    }
  },
)

test.each(['plain', 'TLS'])(
  'E15 chunks of one byte that come in one turn for a %s socket that nobody reads keep little more than their size',
  async kind => {
    const { near, far, close } = await (kind === 'TLS' ? tlsPair() : socketPair())
    try {
      far.pause()
      const writer = new SocketWriter(near, { writeWaits() {}, wrote() {}, threw() {} })
      const fill = 8_000_000
      writer.body(Buffer.alloc(fill), OWNER)
      writer.flush()
      await new Promise(setImmediate)
      const owner = counting()
      const [turns, count] = [5, 20_000]
      const before = await liveBytes()
      for (let turn = 0; turn < turns; turn++) {
        for (let i = 0; i < count; i++) {
          writer.text('1\r\n')
          writer.body(Buffer.alloc(1, 65 + (i % 26)), owner)
          writer.text('\r\n')
        }
        await new Promise(setImmediate)
      }
      expect((await liveBytes()) - before).toBeLessThan(turns * count * 6 * 2)
      writer.end()
      const got = Buffer.concat(await far.toArray()).subarray(fill)
      const once = Array.from({ length: count }, (_, i) => `1\r\n${String.fromCharCode(65 + (i % 26))}\r\n`).join('')
      expect(got.equals(Buffer.from(once.repeat(turns)))).toBe(true)
      expect([owner.bytes, writer.held]).toEqual([turns * count, 0])
    } finally {
      close()
    }
  },
)

test('what was gathered for a socket is flushed at once if its owner asks, and reported as gone with the socket', async () => {
  const { near, far, close } = await socketPair()
  try {
    far.pause()
    const writer = new SocketWriter(near, { writeWaits() {}, wrote() {}, threw() {} })
    while (near.writableLength === 0) {
      writer.body(Buffer.alloc(100_000), OWNER)
      writer.flush()
      await new Promise(setImmediate)
    }
    const owner = counting()
    const gather = async () => {
      const { waiting } = writer
      for (let i = 0; i < 10; i++) {
        writer.body(Buffer.alloc(1), owner)
        await new Promise(setImmediate)
      }
      expect(writer.waiting).toBe(waiting)
    }
    await gather()
    const { waiting } = writer
    writer.flush()
    expect(writer.waiting).toBe(waiting + 10)
    await gather()
    near.destroy()
    await once(near, 'close')
    expect([owner.bytes, writer.held]).toEqual([20, 0])
  } finally {
    close()
  }
})

test('chunks that wait for an HTTP/2 stream', async () => {
  const server = createHttp2Server().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const session = connectHttp2(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  try {
    const came = once(server, 'stream') as Promise<[ServerHttp2Stream]>
    // Nobody reads the answer: only its window leaves.
    session.request().pause().end()
    const [stream] = await came
    const writer = new StreamWriter(stream, () => {}, { threw() {} }, new HeldPieces(new Socket()))
    writer.write(Buffer.alloc(200_000))
    const before = await arrayBufferBytes()
    for (let i = 0; i < CHUNKS; i++) writer.write(cut(i))
    expect(writer.waiting).toBeGreaterThan(CHUNKS * 100)
    expect((await arrayBufferBytes()) - before).toBeLessThan(8 * SLAB_BYTES)
  } finally {
    session.destroy()
    server.close()
  }
})

test('E15 one chunk on each of the HTTP/2 streams of a caller that grants no window', async () => {
  const server = createHttp2Server().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const session = connectHttp2(`http://127.0.0.1:${port}`, { settings: { initialWindowSize: 0 } })
  try {
    const streams: ServerHttp2Stream[] = []
    for (let i = 0; i < 100; i++) {
      session.request().end()
      const [stream] = (await once(server, 'stream')) as [ServerHttp2Stream]
      streams.push(stream)
    }
    const before = await arrayBufferBytes()
    const writers = streams.map((stream, i) => {
      const writer = new StreamWriter(stream, () => {}, { threw() {} }, new HeldPieces(new Socket()))
      writer.write(cut(i))
      return writer
    })
    expect((await arrayBufferBytes()) - before).toBeLessThan(8 * SLAB_BYTES)
    expect(writers.map(({ waiting }) => waiting)).toEqual(writers.map(() => 100))
  } finally {
    session.destroy()
    server.close()
  }
})

test('H6 bytes that wait for an HTTP/2 stream one by one keep little more than their size, and leave in order', async () => {
  const server = createHttp2Server().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const session = connectHttp2(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  try {
    const came = once(server, 'stream') as Promise<[ServerHttp2Stream]>
    const request = session.request()
    request.pause().end()
    const [stream] = await came
    let sent = 0
    const writer = new StreamWriter(stream, bytes => (sent += bytes), { threw() {} }, new HeldPieces(new Socket()))
    const count = 500_000
    const before = await liveBytes()
    for (let i = 0; i < count; i++) writer.write(Buffer.alloc(1, i % 251))
    writer.write(Buffer.alloc(40_000, 255))
    for (let i = 0; i < count; i++) writer.write(Buffer.alloc(1, i % 251))
    writer.end()
    expect(((await liveBytes()) - before) / writer.waiting).toBeLessThan(2)
    const part = Buffer.from(Array.from({ length: count }, (_, i) => i % 251))
    const whole = Buffer.concat([part, Buffer.alloc(40_000, 255), part])
    const got = Buffer.concat(await request.toArray())
    expect(got.equals(whole)).toBe(true)
    expect([sent, writer.waiting]).toEqual([whole.length, 0])
  } finally {
    session.destroy()
    server.close()
  }
})

const OWNER = { sent() {} }

function counting(): BodyOwner & { bytes: number } {
  return {
    bytes: 0,
    sent(bytes) {
      this.bytes += bytes
    },
  }
}

async function socketPair(): Promise<{ near: Socket; far: Socket; close: () => void }> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const near = connect((server.address() as AddressInfo).port, '127.0.0.1')
  const [far] = (await once(server, 'connection')) as [Socket]
  const close = () => {
    near.destroy()
    far.destroy()
    server.close()
  }
  return { near, far, close }
}

async function tlsPair(): Promise<{ near: Socket; far: Socket; close: () => void }> {
  const { server: secrets } = await makeSecrets()
  const server = createTlsServer(secrets).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const near = connectTls({
    port: (server.address() as AddressInfo).port,
    host: '127.0.0.1',
    rejectUnauthorized: false,
  })
  const [far] = (await once(server, 'secureConnection')) as [Socket]
  const close = () => {
    near.destroy()
    far.destroy()
    server.close()
  }
  return { near, far, close }
}
