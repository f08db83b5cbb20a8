/** What a peer that knows the wire format, but obeys none of its rules, may send in a session. */
import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocket } from 'ws'
import { newExchangeId } from '../../../protocol/base/ids.ts'
import {
  messageEndText,
  RESPONSE_START,
  requestHeadText,
  responseHeadText,
} from '../../../protocol/wire/bhttp/encode.ts'
import { ANSWER } from '../../../protocol/wire/exchange/answer.ts'
import { preambleText } from '../../../protocol/wire/preamble.ts'
import { STREAM_KIND } from '../../../protocol/wire/stream-kinds.ts'
import { varintText } from '../../../protocol/wire/varint.ts'
import { Flag, FrameType } from '../../../protocol/wire/yamux/frame.ts'
import { FrameReader, frame } from '../../protocol/wire/yamux/support.ts'
import { Random } from '../random.ts'
import type { FuzzScript } from '../script.ts'
import { anyControl } from '../targets/control.ts'
import { PATHS } from './upstreams.ts'

const STATUSES = [200, 200, 200, 204, 304, 404, 101, 103, 100, 700]
const SIZES = [1, 100, 5_000, 60_000]

/** One end of a session, over a WebSocket that the script controls. */
export class HostileEnd {
  readonly #ws: WebSocket
  readonly #script: FuzzScript
  readonly #reader = new FrameReader()
  readonly #runtime: string
  /** Streams that either end has opened. */
  readonly #ids: number[] = []
  #nextId: number
  #seen = 0
  #silent = false

  constructor(ws: WebSocket, role: 'client' | 'server', runtime: string, script: FuzzScript) {
    this.#ws = ws
    this.#runtime = runtime
    this.#script = script
    this.#nextId = role === 'client' ? 1 : 2
    ws.on('error', ignore)
    ws.on('message', (data: Buffer, binary) => {
      if (binary) this.#onBytes(data)
    })
  }

  get over(): boolean {
    return this.#ws.readyState !== WebSocket.OPEN
  }

  #onBytes(bytes: Buffer): void {
    this.#reader.push(bytes)
    for (; this.#seen < this.#reader.frames.length; this.#seen++) {
      const { type, flags, id, length } = this.#reader.frames[this.#seen]!
      if (flags & Flag.syn && type < FrameType.ping) this.#ids.push(id)
      if (type === FrameType.ping && flags & Flag.syn && !this.#silent) this.#send(frame(type, Flag.ack, 0, length))
    }
  }

  #send(...frames: Buffer[]): void {
    if (!this.over) this.#ws.send(Buffer.concat(frames))
  }

  #anId(): number {
    const byte = this.#script.next()
    if (byte > 252) return byte - 250
    return this.#ids[byte % Math.max(1, this.#ids.length)] ?? 1
  }

  async step(): Promise<void> {
    await this[OPERATIONS[this.#script.next() % OPERATIONS.length]!]()
  }

  /** Opens a stream with a preamble and a request, as the other end expects them, or nearly. */
  open(): void {
    const script = this.#script
    const id = this.#nextId
    this.#nextId += 2
    this.#ids.push(id)
    const odd = script.next()
    const text =
      preambleText({
        kind: odd % 16 === 0 ? STREAM_KIND.upgrade : odd % 16 === 1 ? STREAM_KIND.raw : STREAM_KIND.exchange,
        exchangeId: newExchangeId(),
        attempt: odd % 16 === 2 ? 99 : 0,
        runtime: odd % 16 === 3 ? 'another' : this.#runtime,
        epoch: odd % 16 === 4 ? 77 : 1,
        timeLeftMs: odd % 16 === 5 ? 1 : 0,
        callerAddress: '192.0.2.9',
        callerScheme: 'http',
        hops: odd % 16 === 6 ? 1 : 0,
        bodyBytes: script.pick([0, -1, -1, 5]),
      }) +
      requestHeadText(
        script.pick(['GET', 'POST', 'POST', 'HEAD']),
        'http',
        'rogue.tunnels.test',
        `${script.pick(['/one', '/two', '/gone'])}${script.pick(PATHS)}`,
        ['x-request-id', 'r'],
      )
    const cut = script.next() % 8 === 0 ? text.slice(0, script.next()) : text
    const fin = script.next() % 4 === 0 ? Flag.fin : 0
    this.#send(frame(FrameType.data, Flag.syn | fin, id, Buffer.from(cut, 'latin1')))
  }

  /** A part of an answer, or of a request's body. */
  say(): void {
    const script = this.#script
    const id = this.#anId()
    const part = script.next() % 7
    const flags = script.next()
    const text =
      part < 2
        ? varintText(ANSWER.message) + RESPONSE_START + responseHeadText(script.pick(STATUSES), ['x-a', 'b'])
        : part === 2
          ? varintText(ANSWER.refused) + varintText(script.next() % 10)
          : part === 3
            ? messageEndText(script.next() & 1 ? ['x-end', '1'] : [])
            : this.#content(script.pick(SIZES))
    const fin = part === 3 || flags % 8 === 0 ? Flag.fin : 0
    this.#send(frame(FrameType.data, Flag.ack | fin, id, Buffer.from(text, 'latin1')))
  }

  #content(size: number): string {
    return varintText(size) + 'x'.repeat(size)
  }

  end(): void {
    const flag = this.#script.next() & 1 ? Flag.rst : Flag.fin
    this.#send(frame(FrameType.windowUpdate, flag, this.#anId(), 0))
  }

  credit(): void {
    this.#send(frame(FrameType.windowUpdate, Flag.ack, this.#anId(), this.#script.pick([0, 1, 65_536, 262_144])))
  }

  ping(): void {
    this.#silent = this.#script.next() % 4 === 0
    const pings = this.#script.next()
    for (let i = 0; i < pings; i++) this.#send(frame(FrameType.ping, Flag.syn, 0, i))
  }

  control(): void {
    if (!this.over) this.#ws.send(anyControl(new Random(this.#script.take(4))))
  }

  drain(): void {
    if (this.over) return
    const script = this.#script
    const afterMs = script.pick([0, 0, 5, 86_400_000])
    const deadlineMs = script.pick([0, 10, 1_000, 86_400_000])
    this.#ws.send(JSON.stringify({ type: 'drain', reason: 'x', afterMs, deadlineMs }))
  }

  /** A frame in which every number may be wrong. */
  wild(): void {
    const script = this.#script
    if (script.next() % 16 !== 0) return
    const length = script.pick([0, 1, 100, 262_145, 0xffff_ffff])
    this.#send(frame((script.next() % 5) as FrameType, script.next() & 31, this.#anId(), length))
  }

  reading(): void {
    if (this.#script.next() & 1) this.#ws.pause()
    else this.#ws.resume()
  }

  leave(): void {
    const which = this.#script.next() % 16
    if (which === 0) this.#ws.close(1000)
    else if (which === 1) this.#ws.terminate()
  }

  async wait(): Promise<void> {
    await sleep(this.#script.pick([0, 0, 0, 1, 2, 5, 30]))
  }

  stop(): void {
    this.#ws.terminate()
  }
}

const OPERATIONS = [
  ...(['open', 'open', 'say', 'say', 'say', 'say', 'say', 'say', 'end', 'end', 'credit', 'credit', 'ping'] as const),
  ...(['control', 'drain', 'wild', 'reading', 'leave', 'wait', 'wait', 'wait'] as const),
]

function ignore(): void {}
