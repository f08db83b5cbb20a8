import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { END_HEADERS, END_STREAM, field, frame, framesOf, PREFACE, TYPE, uint32 } from '../../support/http2-frames.ts'
import { DOMAIN } from '../../support/secrets.ts'
import { leaveByReset, type PlayedCaller, playCaller } from '../live/calls.ts'
import { liveTarget } from '../live/target.ts'
import { PATHS } from '../live/upstreams.ts'
import { World } from '../live/world.ts'
import type { FuzzScript } from '../script.ts'

const SIZES = [0, 1, 100, 5_000, 16_384]
const METHODS = ['GET', 'POST', 'POST', 'POST', 'POST', 'HEAD', 'OPTIONS', 'PUT', 'CONNECT', 'TRACE', 'B REW']
const HOSTS = [
  `demo.${DOMAIN}`,
  `demo.${DOMAIN}`,
  `demo.${DOMAIN}`,
  `away.${DOMAIN}`,
  'nobody.example',
  `gone.${DOMAIN}`,
]
const ODD: readonly (readonly [string, string])[] = [
  ['te', 'trailers'],
  ['expect', '100-continue'],
  ['content-length', '5'],
  ['content-length', '100'],
  ['transfer-encoding', 'chunked'],
  ['connection', 'close'],
  ['x bad', '1'],
  ['x-bad', 'a\r\nb: c'],
  ['X-Upper', '1'],
  ['', 'empty'],
  [':late', 'pseudo'],
  ['cookie', 'a=b'],
  ['host', 'other.example'],
]

/** What the caller knows about one of its streams. */
interface CallerStream {
  readonly id: number
  windowBytes: number
  /** Neither end has closed it, and we have not closed our half. */
  open: boolean
}

/** One caller's connection, played frame by frame. Most frames are allowed in their state; a few are not. */
class Caller implements PlayedCaller {
  readonly #socket: Socket
  readonly #world: World
  readonly #script: FuzzScript
  readonly #streams: CallerStream[] = []
  #windowBytes = 65_535
  #unread: Buffer = Buffer.alloc(0)

  constructor(world: World, script: FuzzScript) {
    this.#world = world
    this.#script = script
    this.#socket = world.dial()
    this.#socket.on('data', (chunk: Buffer) => this.#onRead(chunk))
    this.#socket.write(Buffer.concat([PREFACE, frame(TYPE.settings, 0, 0)]))
  }

  get over(): boolean {
    return this.#socket.destroyed
  }

  #onRead(chunk: Buffer): void {
    this.#unread = Buffer.concat([this.#unread, chunk])
    for (const { type, stream: id, payload } of framesOf(this.#unread)) {
      this.#unread = this.#unread.subarray(9 + payload.length)
      const stream = this.#streams[(id - 1) / 2]
      if (type === TYPE.reset && stream !== undefined) stream.open = false
      if (type !== TYPE.window) continue
      if (id === 0) this.#windowBytes += payload.readUInt32BE()
      else if (stream !== undefined) stream.windowBytes += payload.readUInt32BE()
    }
  }

  #send(...frames: Buffer[]): void {
    if (!this.#socket.destroyed && !this.#socket.writableEnded) this.#socket.write(Buffer.concat(frames))
  }

  /** Mostly the last one, otherwise one that is open. */
  #aStream(): CallerStream {
    const byte = this.#script.next()
    const last = this.#streams.at(-1)
    if (byte < 150 && last?.open) return last
    const open = this.#streams.filter(stream => stream.open)
    const list = byte < 250 && open.length > 0 ? open : this.#streams
    return list[byte % Math.max(1, list.length)] ?? { id: 1, windowBytes: 0, open: false }
  }

  #fields(): Buffer {
    const script = this.#script
    const isWebSocket = script.next() % 12 === 0
    const prefix = script.pick(['/one', '/two', '/one', '/two', '/one', '/two', '/gone', '/nowhere'])
    const path = `${prefix}${script.pick(PATHS)}`
    const pseudo: (readonly [string, string])[] = [
      [':method', isWebSocket ? 'CONNECT' : script.pick(METHODS)],
      [':scheme', 'http'],
      [':path', path],
      [':authority', script.pick(HOSTS)],
      ...(isWebSocket
        ? ([
            [':protocol', 'websocket'],
            ['sec-websocket-version', '13'],
          ] as const)
        : []),
    ]
    const odd = script.next()
    const more = odd < 224 ? [] : [ODD[odd % ODD.length]!]
    return Buffer.concat([...pseudo, ...more].map(([name, value]) => field(name, value)))
  }

  #open(): void {
    const stream = { id: this.#streams.length * 2 + 1, windowBytes: 65_535, open: true }
    this.#streams.push(stream)
    const ended = (this.#script.next() & 3) === 0
    if (ended) stream.open = false
    const head = frame(TYPE.headers, END_HEADERS | (ended ? END_STREAM : 0), stream.id, this.#fields())
    const inOneRead = this.#script.next()
    if (ended || inOneRead < 128) this.#send(head)
    else this.#send(head, this.#data(stream, SIZES[inOneRead % SIZES.length]!, (inOneRead & 1) === 1))
  }

  #data(stream: CallerStream, most: number, ended: boolean): Buffer {
    const size = Math.min(most, stream.windowBytes, this.#windowBytes)
    stream.windowBytes -= size
    this.#windowBytes -= size
    if (ended) stream.open = false
    return frame(TYPE.data, ended ? END_STREAM : 0, stream.id, Buffer.alloc(size, 'd'))
  }

  async step(): Promise<void> {
    await this[OPERATIONS[this.#script.next() % OPERATIONS.length]!]()
  }

  open(): void {
    this.#open()
  }

  /** One piece, or as many as fit into the window. */
  data(): void {
    const stream = this.#aStream()
    if (!stream.open) return
    const size = this.#script.pick(SIZES)
    const times = this.#script.next() % 4 === 0 ? 5 : 1
    for (let i = 1; i < times; i++) this.#send(this.#data(stream, size, false))
    this.#send(this.#data(stream, size, (this.#script.next() & 3) === 0))
  }

  /** A body longer than anything that is held back for a receiver. */
  async flood(): Promise<void> {
    const stream = this.#aStream()
    for (let turns = 0, left = 160 * 1024; left > 0 && turns < 40 && stream.open; turns++) {
      const size = Math.min(left, 16_384, stream.windowBytes, this.#windowBytes)
      left -= size
      if (size > 0) this.#send(this.#data(stream, size, false))
      else await sleep(1)
    }
  }

  reset(): void {
    const stream = this.#aStream()
    stream.open = false
    const code = this.#script.next()
    this.#send(frame(TYPE.reset, 0, stream.id, uint32(code < 128 ? (code & 1 ? 8 : 0) : code % 15)))
  }

  credit(): void {
    const id = this.#script.next() & 1 ? 0 : this.#aStream().id
    this.#send(frame(TYPE.window, 0, id, uint32(this.#script.pick([1, 100, 65_535, 1_000_000]))))
  }

  settings(): void {
    const setting = Buffer.alloc(6)
    setting.writeUInt16BE(this.#script.pick([4, 4, 4, 1]))
    setting.writeUInt32BE(this.#script.pick([0, 1, 65_535, 1_000_000]), 2)
    this.#send(frame(TYPE.settings, 0, 0, setting))
  }

  ping(): void {
    this.#send(frame(TYPE.ping, this.#script.next() & 1, 0, Buffer.alloc(8)))
  }

  trailers(): void {
    const stream = this.#aStream()
    stream.open = false
    const name = this.#script.pick(['x-end', 'x-end', 'x-end', ':status', 'x y', 'content-length'])
    this.#send(frame(TYPE.headers, END_HEADERS | END_STREAM, stream.id, field(name, '1')))
  }

  reading(): void {
    if (this.#script.next() & 1) this.#socket.pause()
    else this.#socket.resume()
  }

  lose(): void {
    if (this.#script.next() % 8 === 0) this.#world.cutSessions()
  }

  /** Frames that end the connection, or are likely to. */
  end(): void {
    const script = this.#script
    const which = script.next() % 32
    if (which === 0) this.#socket.end()
    else if (which === 1) leaveByReset(this.#socket)
    else if (which === 2)
      this.#send(frame(TYPE.goaway, 0, 0, Buffer.concat([uint32(0), uint32(script.pick([0, 2, 13]))])))
    else if (which === 3) this.#send(frame(script.next() % 12, script.next(), this.#aStream().id, script.take(24)))
    else if (which === 4) this.#send(frame(script.next() % 12, script.next(), 0, script.take(24)))
  }

  async wait(): Promise<void> {
    await sleep(this.#script.pick([0, 0, 0, 1, 2, 5, 30]))
  }

  leave(): void {
    leaveByReset(this.#socket)
  }
}

const OPERATIONS = [
  ...([
    'open',
    'open',
    'open',
    'data',
    'data',
    'data',
    'reset',
    'reset',
    'credit',
    'settings',
    'ping',
    'trailers',
  ] as const),
  ...(['reading', 'lose', 'end', 'wait', 'wait', 'wait'] as const),
]

/** A caller's HTTP/2 connection to a live pair: frames of every type and code, in any order, in any state. */
export const liveHttp2 = liveTarget(
  'live-http2',
  () => World.start(),
  async (world, script) => {
    await playCaller(new Caller(world, script), script)
  },
)
