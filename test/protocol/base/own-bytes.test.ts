/** What waits keeps no more memory than is counted, whatever it was cut from. */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { connect as connectTls, createServer as createTlsServer } from 'node:tls'
import { expect, test } from 'vitest'
import { collectGarbage, liveBytes } from '../../../load-tests/lib/garbage.ts'
import { ownBytes } from '../../../protocol/base/own-bytes.ts'
import { type BodyOwner, SocketWriter } from '../../../protocol/http/http1/socket-writer.ts'
import { Http2Stream, type StreamSender } from '../../../protocol/http/http2/stream.ts'
import { SendQueue } from '../../../protocol/wire/yamux/send-queue.ts'
import { contentOf } from '../../support/http1-wire.ts'
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
  ['in a body in chunks', (writer: SocketWriter, bytes: Uint8Array) => writer.chunk(bytes, OWNER)],
])('chunks that wait for a socket, %s', async (_, write) => {
  const { near, far, close } = await socketPair()
  try {
    far.pause()
    const { writer } = await clogged(near)
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
      const { writer, filled } = await clogged(near, 8_000_000)
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
      const got = Buffer.concat(await far.toArray()).subarray(filled)
      expect(got.equals(Buffer.concat(pieces))).toBe(true)
      expect([one.bytes, two.bytes, writer.held]).toEqual([count + 5_000, 40_003, 0])
    } finally {
      close()
    }
  },
)

test.each([
  ['in one turn', 'plain', 20_000],
  ['in one turn', 'TLS', 20_000],
  ['one by one', 'plain', 1],
  ['one by one', 'TLS', 1],
])(
  'E15 pieces of one byte that come %s for a body in chunks, on a %s socket that nobody reads, keep little more than their size',
  async (_, kind, perTurn) => {
    const { near, far, close } = await (kind === 'TLS' ? tlsPair() : socketPair())
    try {
      far.pause()
      const { writer, filled } = await clogged(near, 8_000_000)
      const owner = counting()
      const count = 100_000
      const before = await liveBytes()
      for (let i = 0; i < count; i++) {
        writer.chunk(Buffer.alloc(1, i % 251), owner)
        if ((i + 1) % perTurn === 0) await new Promise(setImmediate)
      }
      expect((await liveBytes()) - before).toBeLessThan(count * 3)
      writer.text('0\r\n\r\n')
      writer.end()
      const body = await contentOf(Buffer.concat(await far.toArray()).subarray(filled))
      expect(body.equals(Buffer.from(Array.from({ length: count }, (_, i) => i % 251)))).toBe(true)
      expect([owner.bytes, writer.held]).toEqual([count, 0])
    } finally {
      close()
    }
  },
)

test.each(['body', 'chunk'] as const)(
  'what was gathered for a socket by %s is flushed at once if its owner asks, and reported as gone with the socket',
  async how => {
    const { near, far, close } = await socketPair()
    try {
      far.pause()
      const { writer } = await clogged(near)
      const owner = counting()
      const gather = async () => {
        const { waiting } = writer
        for (let i = 0; i < 10; i++) {
          writer[how](Buffer.alloc(1), owner)
          await new Promise(setImmediate)
        }
        expect(writer.waiting).toBe(waiting)
      }
      await gather()
      const { waiting } = writer
      writer.flush()
      expect(writer.waiting).toBe(waiting + (how === 'chunk' ? 'a\r\n..........\r\n'.length : 10))
      await gather()
      near.destroy()
      await once(near, 'close')
      expect([owner.bytes, writer.held]).toEqual([20, 0])
    } finally {
      close()
    }
  },
)

/** A stream that has this much window, and what it writes. */
function streamWith(window: number): { stream: Http2Stream; written: Uint8Array[] } {
  const written: Uint8Array[] = []
  const sender: StreamSender = {
    fieldBytes: 0,
    ready() {},
    isReady: () => false,
    fields() {},
    data: (_stream, piece) => void written.push(piece!),
    windowUpdate() {},
    reset() {},
  }
  const host = { sender, closed() {} }
  return { stream: new Http2Stream(1, true, host, window, 0, 0), written }
}

test('chunks that wait for an HTTP/2 stream', async () => {
  const { stream } = streamWith(0)
  stream.sendData(Buffer.alloc(200_000))
  const before = await arrayBufferBytes()
  for (let i = 0; i < CHUNKS; i++) stream.sendData(cut(i))
  expect(stream.queued).toBe(200_000 + CHUNKS * 100)
  expect((await arrayBufferBytes()) - before).toBeLessThan(8 * SLAB_BYTES)
})

test('E15 one chunk on each of the HTTP/2 streams of a caller that grants no window', async () => {
  const before = await arrayBufferBytes()
  const streams = Array.from({ length: 100 }, (_, i) => {
    const { stream } = streamWith(0)
    stream.sendData(cut(i))
    return stream
  })
  expect((await arrayBufferBytes()) - before).toBeLessThan(8 * SLAB_BYTES)
  expect(streams.map(({ queued }) => queued)).toEqual(streams.map(() => 100))
})

test('frames that arrive on an HTTP/2 stream before they are wanted, each in a read of its own', async () => {
  const { stream } = streamWith(0)
  const before = await arrayBufferBytes()
  for (let i = 0; i < 32; i++) stream.arrived(Buffer.alloc(SLAB_BYTES).subarray(9, 9 + SLAB_BYTES / 4), false)
  expect(stream.heldBytes).toBe(8 * SLAB_BYTES)
  expect((await arrayBufferBytes()) - before).toBeLessThan(9 * SLAB_BYTES)
})

test('H6 bytes that wait for an HTTP/2 stream one by one keep little more than their size, and leave in order', async () => {
  const { stream, written } = streamWith(2 ** 30)
  const count = 500_000
  const before = await liveBytes()
  for (let i = 0; i < count; i++) stream.sendData(Buffer.alloc(1, i % 251))
  stream.sendData(Buffer.alloc(40_000, 255))
  for (let i = 0; i < count; i++) stream.sendData(Buffer.alloc(1, i % 251))
  expect(((await liveBytes()) - before) / stream.queued).toBeLessThan(2)
  while (stream.wants !== 'nothing') stream.sendNext(2 ** 30)
  const part = Buffer.from(Array.from({ length: count }, (_, i) => i % 251))
  expect(Buffer.concat(written).equals(Buffer.concat([part, Buffer.alloc(40_000, 255), part]))).toBe(true)
  expect(stream.queued).toBe(0)
})

const OWNER = { sent() {} }

/** A writer behind `least` bytes and so many that the kernel accepts no more. */
async function clogged(near: Socket, least = 0): Promise<{ writer: SocketWriter; filled: number }> {
  const writer = new SocketWriter(near, { writeWaits() {}, wrote() {}, threw() {} })
  let filled = 0
  while (near.writableLength === 0 || filled < least) {
    filled += 100_000
    writer.body(Buffer.alloc(100_000), OWNER)
    writer.flush()
    await new Promise(setImmediate)
  }
  return { writer, filled }
}

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
