import { once } from 'node:events'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { resetSocket } from '../../../protocol/base/reset-socket.ts'
import { END_HEADERS, END_STREAM, field, frame, framesOf, TYPE, uint32 } from '../../support/http2-frames.ts'
import { DOMAIN } from '../../support/secrets.ts'
import { Calls } from '../live/calls.ts'
import { liveTarget } from '../live/target.ts'
import { World } from '../live/world.ts'
import { FuzzScript } from '../script.ts'

const MAX_STEPS = 80
const SIZES = [0, 1, 100, 5_000, 16_384]

/** An upstream that follows the script, over whichever connections our client end has opened. */
abstract class EvilUpstream {
  readonly #server: Server
  protected readonly sockets: Socket[] = []
  script = new FuzzScript(Buffer.alloc(0))

  constructor() {
    this.#server = createServer({ allowHalfOpen: true }, socket => {
      this.sockets.push(socket)
      socket.on('error', () => {})
      socket.on('close', () => this.sockets.splice(this.sockets.indexOf(socket), 1))
      this.greet(socket)
    })
  }

  protected abstract greet(socket: Socket): void
  abstract step(): void | Promise<void>

  async listen(): Promise<number> {
    this.#server.listen(0, '127.0.0.1')
    await once(this.#server, 'listening')
    return (this.#server.address() as AddressInfo).port
  }

  protected aSocket(): Socket | undefined {
    return this.sockets[this.script.next() % Math.max(1, this.sockets.length)]
  }

  protected send(socket: Socket | undefined, bytes: Buffer | string): void {
    if (socket !== undefined && !socket.destroyed && !socket.writableEnded) socket.write(bytes, 'latin1')
  }

  /** What any TCP peer may do. */
  protected async disturb(): Promise<void> {
    const socket = this.aSocket()
    const which = this.script.next() % 24
    if (which === 0) socket?.end()
    else if (which === 1 && socket !== undefined) resetSocket(socket)
    else if (which === 2) socket?.destroy()
    else if (which < 6) socket?.pause()
    else if (which < 10) socket?.resume()
    else await sleep(this.script.pick([0, 0, 0, 1, 2, 5, 30]))
  }

  /** Closes everything that is still open after a script. */
  leave(): void {
    for (const socket of [...this.sockets]) socket.destroy()
  }

  close(): void {
    this.leave()
    this.#server.close()
  }
}

class EvilHttp2 extends EvilUpstream {
  readonly #ids = new Map<Socket, number[]>()

  protected greet(socket: Socket): void {
    const ids: number[] = []
    this.#ids.set(socket, ids)
    let unread: Buffer = Buffer.alloc(0)
    let begun = false
    socket.on('close', () => this.#ids.delete(socket))
    socket.on('data', (chunk: Buffer) => {
      unread = Buffer.concat([unread, chunk])
      if (!begun && unread.length < 24) return
      if (!begun) unread = unread.subarray(24)
      begun = true
      for (const { type, stream, payload, flags } of framesOf(unread)) {
        unread = unread.subarray(9 + payload.length)
        if (type === TYPE.headers && !ids.includes(stream)) ids.push(stream)
        if (type === TYPE.settings && (flags & 1) === 0) this.send(socket, frame(TYPE.settings, 1, 0))
        if (type === TYPE.ping && (flags & 1) === 0) this.send(socket, frame(TYPE.ping, 1, 0, payload))
        if (type === TYPE.data && payload.length > 0)
          this.send(socket, frame(TYPE.window, 0, 0, uint32(payload.length)))
      }
    })
    this.send(socket, frame(TYPE.settings, 0, 0))
  }

  async step(): Promise<void> {
    const { script } = this
    const operation = script.next() % 16
    if (operation > 10) return this.disturb()
    const socket = this.aSocket()
    const ids = (socket && this.#ids.get(socket)) ?? []
    const byte = script.next()
    const id = byte > 250 ? byte - 248 : ids.at(-1 - (byte % Math.max(1, Math.min(4, ids.length))))
    if (id === undefined) return
    const ended = script.next() % 3 === 0 ? END_STREAM : 0
    if (operation < 4) {
      const fields = [
        field(':status', script.pick(['200', '200', '200', '204', '304', '404', '100', '103', '101', '999', ''])),
        ...(script.next() % 4 === 0 ? [field('content-length', script.pick(['0', '5', '100', 'x']))] : []),
        ...(script.next() % 16 === 0 ? [field(script.pick(['x y', 'Upper', 'connection', ':path']), 'a')] : []),
      ]
      this.send(socket, frame(TYPE.headers, END_HEADERS | ended, id, Buffer.concat(fields)))
    } else if (operation < 7) this.send(socket, frame(TYPE.data, ended, id, Buffer.alloc(script.pick(SIZES), 'e')))
    else if (operation === 7) this.send(socket, frame(TYPE.reset, 0, id, uint32(script.next() % 15)))
    else if (operation === 8) {
      this.send(
        socket,
        frame(TYPE.headers, END_HEADERS | END_STREAM, id, field(script.pick(['x-end', ':status', 'x y']), '1')),
      )
    } else if (operation === 9) {
      const goaway = Buffer.concat([uint32(script.pick([0, id, 0x7fff_ffff])), uint32(script.next() % 14)])
      if (script.next() % 4 === 0) this.send(socket, frame(TYPE.goaway, 0, 0, goaway))
    } else {
      const raw = script.next() % 8
      if (raw === 0)
        this.send(socket, frame(script.next() % 12, script.next(), script.next() & 1 ? 0 : id, script.take(16)))
      else this.send(socket, frame(TYPE.window, 0, raw & 1 ? 0 : id, uint32(script.pick([1, 65_535, 1_000_000]))))
    }
  }
}

const HEADS = [
  'HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n',
  'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n',
  'HTTP/1.1 200 OK\r\n\r\n',
  'HTTP/1.1 204 No\r\n\r\n',
  'HTTP/1.1 304 No\r\ncontent-length: 9\r\n\r\n',
  'HTTP/1.1 100 Go on\r\n\r\n',
  'HTTP/1.1 103 Hints\r\nlink: </a>\r\n\r\n',
  'HTTP/1.1 101 Switch\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: QV3I5XUXU2CdhtjixE7QCkCcMZM=\r\n\r\n',
  'HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n',
  'HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n',
]
const PIECES = [
  'hello',
  'ok',
  '5\r\nhello\r\n',
  '0\r\n\r\n',
  '0\r\nx-end: 1\r\n\r\n',
  'x'.repeat(20_000),
  'ffff\r\n',
  '\r\n',
]

class EvilHttp1 extends EvilUpstream {
  protected greet(socket: Socket): void {
    socket.resume()
  }

  async step(): Promise<void> {
    const { script } = this
    const operation = script.next() % 8
    if (operation < 3) this.send(this.aSocket(), script.pick(HEADS))
    else if (operation < 6) this.send(this.aSocket(), script.pick(PIECES))
    else await this.disturb()
  }
}

/** A live pair, and an upstream of its router that the script plays. */
class EvilWorld {
  readonly world: World
  readonly upstream: EvilUpstream

  constructor(world: World, upstream: EvilUpstream) {
    this.world = world
    this.upstream = upstream
  }

  check(): Promise<void> {
    return this.world.check()
  }

  async stop(): Promise<void> {
    await this.world.stop()
    this.upstream.close()
  }
}

async function play({ world, upstream }: EvilWorld, script: FuzzScript, path: string): Promise<void> {
  upstream.script = script
  const calls = new Calls(world, `demo.${DOMAIN}`)
  for (let steps = 0; steps < MAX_STEPS && !script.over; steps++) {
    const turn = script.next() % 6
    if (turn === 0) calls.begin(script, path)
    else if (turn === 1) calls.disturb(script)
    else await upstream.step()
  }
  if (script.next() & 1) calls.leave()
  upstream.leave()
  calls.leave()
}

async function startHttp1(): Promise<EvilWorld> {
  const upstream = new EvilHttp1()
  return new EvilWorld(await World.start({ evil: { http1: await upstream.listen() } }), upstream)
}

async function startHttp2(): Promise<EvilWorld> {
  const upstream = new EvilHttp2()
  return new EvilWorld(await World.start({ evil: { h2c: await upstream.listen() } }), upstream)
}

/** A hostile HTTP/1.1 upstream of a live pair. */
export const liveHttp1Upstream = liveTarget('live-http1-upstream', startHttp1, (world, script) =>
  play(world, script, '/evil-one'),
)

/** A hostile h2c upstream of a live pair. */
export const liveHttp2Upstream = liveTarget('live-http2-upstream', startHttp2, (world, script) =>
  play(world, script, '/evil-two'),
)
