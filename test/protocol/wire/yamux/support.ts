import type { Transport, TransportHandler } from '../../../../protocol/wire/transport.ts'
import { type MemoryTransport, memoryPair } from '../../../../protocol/wire/transport-memory.ts'
import type { Clock } from '../../../../protocol/wire/yamux/clock.ts'
import { FrameDecoder } from '../../../../protocol/wire/yamux/decoder.ts'
import { Flag, type FrameType, HEADER_BYTES, writeHeader } from '../../../../protocol/wire/yamux/frame.ts'
import type { Session, SessionOptions } from '../../../../protocol/wire/yamux/session.ts'
import type { ResetCode, Stream, StreamHandler } from '../../../../protocol/wire/yamux/stream.ts'
import { createSession } from '../../../../protocol/wire/yamux/yamux-session.ts'
import type { YamuxStream } from '../../../../protocol/wire/yamux/yamux-stream.ts'

interface FakeTimer {
  at: number
  readonly ms: number
  readonly callback: () => void
}

/** Time that stops until it is moved. */
export class FakeClock implements Clock {
  #now = 1_000
  readonly #timers = new Set<FakeTimer>()
  /** Timers requested so far. */
  made = 0

  now(): number {
    return this.#now
  }

  setTimeout(callback: () => void, ms: number): unknown {
    this.made++
    const timer = { at: this.#now + ms, ms, callback }
    this.#timers.add(timer)
    return timer
  }

  clearTimeout(handle: unknown): void {
    this.#timers.delete(handle as FakeTimer)
  }

  refresh(handle: unknown): void {
    const timer = handle as FakeTimer
    timer.at = this.#now + timer.ms
    this.#timers.add(timer)
  }

  get timers(): number {
    return this.#timers.size
  }

  /** Moves time; what falls due runs at its own time, and the event loop turns after each. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms
    for (;;) {
      await turns(3)
      let first: FakeTimer | undefined
      for (const timer of this.#timers) if (first === undefined || timer.at < first.at) first = timer
      if (first === undefined || first.at > end) break
      this.#timers.delete(first)
      this.#now = Math.max(this.#now, first.at)
      first.callback()
    }
    this.#now = end
    await turns()
  }

  /** Moves time as a suspended process sees it: all at once. What is due runs before anything is read. */
  jump(ms: number): void {
    this.#now += ms
    for (const timer of [...this.#timers]) if (timer.at <= this.#now && this.#timers.delete(timer)) timer.callback()
  }
}

/** Lets the event loop turn. */
export async function turns(count = 6): Promise<void> {
  for (let i = 0; i < count; i++) await new Promise(resolve => setImmediate(resolve))
}

export interface Frame {
  readonly type: FrameType
  readonly flags: number
  readonly id: number
  readonly length: number
  readonly payload: Buffer
}

export function frame(type: FrameType, flags: number, id: number, lengthOrPayload: number | Uint8Array): Buffer {
  const payload = typeof lengthOrPayload === 'number' ? new Uint8Array(0) : lengthOrPayload
  const bytes = Buffer.alloc(HEADER_BYTES + payload.length)
  writeHeader(bytes, 0, type, flags, id, typeof lengthOrPayload === 'number' ? lengthOrPayload : payload.length)
  bytes.set(payload, HEADER_BYTES)
  return bytes
}

/** Reads whole frames out of a byte stream; for tests only, it collects. */
export class FrameReader {
  readonly frames: Frame[] = []
  broken: string | undefined
  readonly #decoder: FrameDecoder

  constructor() {
    let head: Omit<Frame, 'payload'> | undefined
    let parts: Uint8Array[] = []
    this.#decoder = new FrameDecoder({
      frame: (type, flags, id, length) => {
        head = { type, flags, id, length }
        parts = []
        if (type !== 0) this.frames.push({ ...head, payload: Buffer.alloc(0) })
      },
      payload: chunk => parts.push(chunk),
      payloadEnd: () => this.frames.push({ ...head!, payload: Buffer.concat(parts) }),
      broken: reason => {
        this.broken = reason
      },
    })
  }

  push(chunk: Uint8Array): void {
    this.#decoder.push(chunk)
  }
}

/** A peer that sends exactly what a test tells it to, and records what it receives. */
export class RawPeer implements TransportHandler {
  readonly transport: MemoryTransport
  readonly reader = new FrameReader()
  readonly controls: string[] = []
  /** Sizes of the transport writes that arrived. */
  readonly writes: number[] = []
  /** What arrived, in order: `bytes` or the control text. */
  readonly order: string[] = []
  closedWith: { code: number; reason: string } | undefined
  /** Answers pings, as every yamux peer does. */
  answersPings = true

  constructor(transport: MemoryTransport) {
    this.transport = transport
    transport.handler = this
  }

  get frames(): readonly Frame[] {
    return this.reader.frames
  }

  /** Frames other than pings. */
  get streamFrames(): Frame[] {
    return this.reader.frames.filter(({ type }) => type < 2)
  }

  send(...frames: Uint8Array[]): void {
    this.transport.bytes(Buffer.concat(frames), () => {})
  }

  bytes(chunk: Uint8Array): void {
    this.writes.push(chunk.length)
    this.order.push('bytes')
    const before = this.reader.frames.length
    this.reader.push(chunk)
    if (!this.answersPings) return
    for (const { type, flags, length } of this.reader.frames.slice(before)) {
      if (type === 2 && flags === Flag.syn) this.send(frame(2, Flag.ack, 0, length))
    }
  }

  control(text: string): void {
    this.controls.push(text)
    this.order.push(text)
  }

  closed(code: number, reason: string): void {
    this.closedWith = { code, reason }
  }
}

/** Records a stream's events. `consume`: gives credit as bytes arrive. */
export class StreamRecorder implements StreamHandler {
  readonly chunks: Uint8Array[] = []
  receivedBytes = 0
  sentBytes = 0
  ended = false
  resetWith: ResetCode | undefined
  readonly stream: YamuxStream
  consumes: boolean

  constructor(stream: Stream, consumes = true) {
    this.stream = stream as YamuxStream
    this.consumes = consumes
    stream.handler = this
  }

  data(chunk: Uint8Array): void {
    this.chunks.push(chunk)
    this.receivedBytes += chunk.length
    if (this.consumes) this.stream.consumed(chunk.length)
  }

  end(): void {
    this.ended = true
  }

  reset(code: ResetCode): void {
    this.resetWith = code
  }

  consumed(bytes: number): void {
    this.sentBytes += bytes
  }

  get text(): string {
    return Buffer.concat(this.chunks).toString('latin1')
  }
}

export interface Closing {
  error: Error | undefined
  reason: string
}

/** A session whose peer is a {@link RawPeer}. */
export function sessionWithRawPeer(options: SessionOptions): {
  session: Session
  peer: RawPeer
  transport: MemoryTransport
  closings: Closing[]
} {
  const [ours, theirs] = memoryPair()
  const peer = new RawPeer(theirs)
  const closings: Closing[] = []
  const session = createSession(ours, {
    ...options,
    onClose: (error, reason) => {
      closings.push({ error, reason })
      options.onClose?.(error, reason)
    },
  })
  return { session, peer, transport: ours, closings }
}

/** Two sessions over a memory pair; the client's end echoes unless told otherwise. */
export function sessionPair(
  server: Partial<SessionOptions> = {},
  client: Partial<SessionOptions> = {},
): { server: Session; client: Session; serverTransport: MemoryTransport; clientTransport: MemoryTransport } {
  const [serverTransport, clientTransport] = memoryPair()
  return {
    server: createSession(serverTransport, { role: 'server', ...server }),
    client: createSession(clientTransport, { role: 'client', onStream: echo, ...client }),
    serverTransport,
    clientTransport,
  }
}

/** Sends back what arrives, and gives credit once it has left. */
export function echo(stream: Stream): void {
  stream.handler = {
    data: chunk => stream.write(chunk),
    end: () => stream.end(),
    reset: () => {},
    consumed: bytes => stream.consumed(bytes),
  }
}

/** Delivers a transport's bytes in pieces of the sizes that `next` returns. */
export function cutArrivals(transport: Transport, next: () => number): void {
  const handler = transport.handler!
  transport.handler = {
    bytes: chunk => {
      for (let offset = 0; offset < chunk.length; ) {
        const end = Math.min(chunk.length, offset + Math.max(1, next()))
        handler.bytes(chunk.subarray(offset, end))
        offset = end
      }
    },
    control: text => handler.control(text),
    closed: (code, reason, error) => handler.closed(code, reason, error),
  }
}

/** Bytes that show their position in a stream. */
export function pattern(length: number, seed = 0): Buffer {
  const bytes = Buffer.allocUnsafe(length)
  for (let i = 0; i < length; i++) bytes[i] = (i * 31 + (i >>> 8) * 7 + seed) & 0xff
  return bytes
}
