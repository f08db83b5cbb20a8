/** What anybody can do at the edge over HTTP/1.1: read slowly, send too much, wait for an answer that never comes. */
import { once } from 'node:events'
import type { Socket } from 'node:net'
import { gzipSync } from 'node:zlib'
import type { ClientOptions, Tunnel } from '../../../client/index.ts'
import { dial, Http1Caller } from '../../support/caller-http1.ts'
import { type Attack, each, scaled } from '../attack.ts'
import type { World } from '../world.ts'

/** The attacker's runtime, served by one of our clients. */
async function runtime(world: World, name: string, target: ClientOptions['target']): Promise<() => Promise<void>> {
  const tunnel: Tunnel = await world.connect(name, target)
  return () => tunnel.close({ graceMs: 0 })
}

const BIG = Buffer.alloc(4 * 1024 * 1024)

const slowReaders: Attack = {
  name: 'slow readers',
  prepare: world => runtime(world, 'bulk', () => new Response(BIG)),
  async round(world, share) {
    const sockets: Socket[] = []
    const { authority } = world.place('bulk')
    await each(scaled(1_000, share), 20, async () => {
      const socket = await dial(world.place('bulk'))
      sockets.push(socket)
      socket.write(`GET / HTTP/1.1\r\nHost: ${authority}\r\n\r\n`)
      // The answer has begun, and we read no more of it.
      await once(socket, 'readable')
    })
    for (const socket of sockets) socket.destroy()
  },
}

const long = (bytes: number) => 'x'.repeat(bytes)
const BOMBS: readonly string[] = [
  `GET /${long(1024 * 1024)} HTTP/1.1\r\nHost: a\r\n\r\n`,
  `GET / HTTP/1.1\r\nHost: a\r\nX: ${long(1024 * 1024)}\r\n\r\n`,
  `GET / HTTP/1.1\r\nHost: a\r\n${'X: y\r\n'.repeat(10_000)}\r\n`,
  `${long(1024 * 1024)} / HTTP/1.1\r\n\r\n`,
  `POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;${long(1024 * 1024)}\r\n`,
  `POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n${'X: y\r\n'.repeat(10_000)}\r\n`,
  'GET / HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(2_000),
]

const bombs: Attack = {
  name: 'header and URI bombs',
  round: (world, share) =>
    each(scaled(700, share), 16, async n => {
      const socket = await dial(world.place('nobody'))
      const bomb = Buffer.from(BOMBS[n % BOMBS.length]!, 'latin1')
      socket.resume()
      const over = new Promise<void>(resolve => socket.on('end', resolve).on('close', resolve))
      socket.end(bomb)
      await over
      socket.destroy()
    }),
}

/** 16 MiB of zeros, compressed to 16 KB. */
const PACKED = gzipSync(Buffer.alloc(16 * 1024 * 1024))

const compressed: Attack = {
  name: 'compressed bodies',
  prepare: world =>
    runtime(world, 'echo', async request => {
      const body = await request.arrayBuffer()
      return new Response(body, { headers: { 'content-encoding': 'gzip' } })
    }),
  round: (world, share) =>
    each(scaled(800, share), 8, async () => {
      const caller = await Http1Caller.connect(world.place('echo'))
      const fields = ['content-encoding', 'gzip', 'accept-encoding', 'gzip']
      const { content } = await caller.ask({ method: 'POST', path: '/', fields, body: PACKED })
      if (!content.equals(PACKED)) throw new Error('a compressed body was touched')
      caller.close()
    }),
}

/** Bodies are kept for a retry until an answer begins. Here none ever does. */
const unanswered: Attack = {
  name: 'requests that nobody answers',
  prepare: world => runtime(world, 'silent', () => new Promise<Response>(() => {})),
  async round(world, share) {
    const body = Buffer.alloc(64 * 1024)
    const sockets: Socket[] = []
    const { authority } = world.place('silent')
    const head = `POST / HTTP/1.1\r\nHost: ${authority}\r\nContent-Length: ${body.length}\r\n\r\n`
    await each(scaled(900, share), 20, async () => {
      const socket = await dial(world.place('silent'))
      sockets.push(socket)
      await new Promise(resolve => socket.write(Buffer.concat([Buffer.from(head), body]), resolve))
    })
    const { replayBytes } = await world.stats()
    if (replayBytes > 67_108_864) throw new Error(`${replayBytes} bytes are kept to be sent again`)
    for (const socket of sockets) socket.destroy()
  },
}

/** Requests for a runtime that was connected a moment ago are held for its return. */
const held: Attack = {
  name: 'requests for a runtime that left',
  async prepare(world) {
    await (await runtime(world, 'gone', () => new Response('')))()
    return async () => {}
  },
  async round(world, share) {
    const sockets: Socket[] = []
    const { authority } = world.place('gone')
    const head = `POST / HTTP/1.1\r\nHost: ${authority}\r\nContent-Length: 1000000\r\n\r\n`
    await each(scaled(1_500, share), 20, async () => {
      const socket = await dial(world.place('gone'))
      sockets.push(socket)
      socket.resume()
      await new Promise(resolve => socket.write(head + long(30_000), resolve))
    })
    for (const socket of sockets) socket.destroy()
  },
}

const noisy: Attack = {
  name: 'a noisy neighbour',
  prepare: world => runtime(world, 'noisy', () => new Response('x')),
  round: (world, share) =>
    each(32, 32, async () => {
      const caller = await Http1Caller.connect(world.place('noisy'))
      for (let n = scaled(300, share); n > 0; n--) await caller.ask({ path: '/' })
      caller.close()
    }),
}

const bulk: Attack = {
  name: 'a neighbour with large bodies',
  prepare: world => runtime(world, 'bulk', () => new Response(BIG)),
  round: (world, share) =>
    each(scaled(100, share), 8, async () => {
      const caller = await Http1Caller.connect(world.place('bulk'))
      await caller.ask({ path: '/' })
      caller.close()
    }),
}

export const CALLER_ATTACKS: readonly Attack[] = [slowReaders, bombs, compressed, unanswered, held, noisy, bulk]
