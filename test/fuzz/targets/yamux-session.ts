import { createBufferBudget } from '../../../protocol/base/budget.ts'
import { memoryPair } from '../../../protocol/wire/transport-memory.ts'
import { Flag, FrameType } from '../../../protocol/wire/yamux/frame.ts'
import type { Session } from '../../../protocol/wire/yamux/session.ts'
import type { Stream, StreamHandler } from '../../../protocol/wire/yamux/stream.ts'
import { createSession } from '../../../protocol/wire/yamux/yamux-session.ts'
import { FakeClock, type Frame, frame, RawPeer, turns } from '../../protocol/wire/yamux/support.ts'
import { holds, same } from '../holds.ts'
import { mutate } from '../mutate.ts'
import { Random } from '../random.ts'
import { FuzzScript } from '../script.ts'
import type { FuzzTarget } from '../target.ts'
import { anyControl } from './control.ts'

const SESSION_BUFFER_BYTES = 64 * 1024
const MAX_STREAMS = 20
/** Small, so that a few frames exceed it. */
const WINDOW_BYTES = 4096

/** Records the events of a stream, and checks their order. */
class Watcher implements StreamHandler {
  readonly stream: Stream
  unread = 0
  /** Everything that was delivered. */
  bytes = 0
  ended = false
  over = false

  constructor(stream: Stream) {
    this.stream = stream
    stream.handler = this
  }

  data(chunk: Uint8Array): void {
    holds(chunk.length > 0, 'data is never empty')
    holds(!this.ended && !this.over, 'nothing comes behind the end of a stream')
    this.unread += chunk.length
    this.bytes += chunk.length
  }

  end(): void {
    holds(!this.ended && !this.over, 'one end')
    this.ended = true
  }

  reset(): void {
    holds(!this.over, 'one reset')
    this.over = true
  }

  consumed(bytes: number): void {
    holds(bytes > 0, 'something was consumed')
  }
}

/** What our end may send: SYN first, nothing after FIN or RST, never more than the credit of the peer. */
class Conduct {
  readonly #credit = new Map<number, number>()
  readonly #ended = new Set<number>()
  readonly #gone = new Set<number>()
  /** Credit that our end has given, by stream. */
  readonly #given = new Map<number, number>()
  #seen = 0

  /** How much the peer may send on a stream, as far as it knows. */
  allowed(id: number): number {
    return WINDOW_BYTES + (this.#given.get(id) ?? 0)
  }

  gave(id: number, bytes: number): void {
    this.#credit.set(id, (this.#credit.get(id) ?? WINDOW_BYTES) + bytes)
  }

  check(frames: readonly Frame[]): void {
    for (; this.#seen < frames.length; this.#seen++) this.#check(frames[this.#seen]!)
  }

  #check({ type, flags, id, length, payload }: Frame): void {
    if (type === FrameType.goAway || type === FrameType.ping) {
      holds(id === 0, 'frames of the session have no stream')
      return
    }
    holds(id !== 0 && (flags & ~15) === 0, 'a stream and known flags')
    holds(!this.#gone.has(id) || (flags & Flag.rst) !== 0, 'nothing is sent behind RST')
    if (flags & Flag.rst) this.#gone.add(id)
    if (type === FrameType.windowUpdate) this.#given.set(id, (this.#given.get(id) ?? 0) + length)
    if (type !== FrameType.data) return
    holds(payload.length <= 65_536, 'frames of at most 64 KiB')
    holds(payload.length === 0 || !this.#ended.has(id), 'nothing is sent behind FIN')
    if (flags & Flag.fin) this.#ended.add(id)
    const left = (this.#credit.get(id) ?? WINDOW_BYTES) - payload.length
    holds(left >= 0, 'never more than the peer allows')
    this.#credit.set(id, left)
  }
}

const LENGTHS = [0, 1, 5, 100, 1000, 4096, 4097, 65_536, 262_145, 0x1_000_001, 0xffff_ffff]

class Play {
  readonly #clock = new FakeClock()
  readonly #budget = createBufferBudget(SESSION_BUFFER_BYTES)
  readonly #watchers: Watcher[] = []
  readonly #conduct = new Conduct()
  readonly #peer: RawPeer
  readonly #session: Session
  readonly #script: FuzzScript
  #closings = 0
  readonly #faults: unknown[] = []

  constructor(input: Buffer) {
    this.#script = new FuzzScript(input)
    const [ours, theirs] = memoryPair()
    this.#peer = new RawPeer(theirs)
    this.#session = createSession(ours, {
      role: this.#script.next() & 1 ? 'client' : 'server',
      clock: this.#clock,
      processBudget: this.#budget,
      sessionBufferBytes: SESSION_BUFFER_BYTES,
      maxStreams: MAX_STREAMS,
      initialWindowBytes: WINDOW_BYTES,
      maxWindowBytes: 4 * WINDOW_BYTES,
      onStream: stream => void this.#watchers.push(new Watcher(stream)),
      onControl: () => {},
      onClose: () => this.#closings++,
      logger: {
        debug: ignore,
        info: ignore,
        warn: ignore,
        error: (...said) => void this.#faults.push(said),
      },
    })
  }

  async run(): Promise<void> {
    for (let steps = 0; steps < 200 && !this.#script.over; steps++) {
      await this.#step()
      this.#check()
    }
    this.#peer.transport.resume()
    await turns(4)
    this.#check()
    // A session that has closed drops credit that it had not sent yet, so the peer knows of less than it was allowed.
    for (const { stream, bytes } of this.#session.closed ? [] : this.#watchers) {
      holds(bytes <= this.#conduct.allowed(stream.id), 'nothing is taken over the window')
    }
    this.#session.close('done')
    await this.#clock.advance(60_000)
    this.#check()
    for (const { stream } of this.#watchers) stream.discard()
    holds(this.#closings === 1, 'closed once')
    holds(this.#session.streams === 0 && this.#session.bufferedBytes === 0, 'nothing is left of the session')
    holds(this.#budget.usedBytes === 0, 'nothing is left in the budget')
    holds(this.#clock.timers === 0, 'no timer is left')
  }

  #check(): void {
    same(this.#faults, [], 'no error of ours')
    holds(this.#peer.reader.broken === undefined, 'what we send is yamux')
    this.#conduct.check(this.#peer.frames)
    holds(this.#session.streams <= MAX_STREAMS, 'streams are bounded')
    const { bufferedBytes } = this.#session
    holds(bufferedBytes >= 0 && bufferedBytes <= SESSION_BUFFER_BYTES, 'buffers are bounded')
    holds(this.#budget.usedBytes === bufferedBytes, 'the budget knows what is buffered')
    holds(this.#closings === (this.#session.closed ? 1 : 0), 'whoever waits is told once')
  }

  async #step(): Promise<void> {
    const script = this.#script
    const operation = script.next() % 16
    const stream = this.#watchers[script.next() % Math.max(1, this.#watchers.length)]
    switch (operation) {
      case 0:
        if (this.#session.canOpen) this.#watchers.push(new Watcher(this.#session.open()))
        return
      case 1:
        stream?.stream.write(Buffer.alloc((script.next() + 1) * (script.next() & 1 ? 1000 : 1)))
        return
      case 2:
        stream?.stream.end()
        return
      case 3:
        // The handler is not notified of our own reset.
        if (stream !== undefined && !stream.stream.closed) stream.over = true
        stream?.stream.reset((['cancelled', 'limit', 'timeout'] as const)[script.next() % 3]!)
        return
      case 4:
      case 5:
        if (stream === undefined) return
        stream.stream.consumed(stream.unread)
        stream.unread = 0
        return
      case 6:
        await this.#clock.advance((script.next() + 1) * (script.next() & 1 ? 100 : 1))
        return
      case 7:
        this.#peer.transport.control(anyControl(new Random(script.take(4))))
        return
      case 8:
        if (script.next() & 1) this.#peer.transport.pause()
        else this.#peer.transport.resume()
        return
      case 9:
        this.#peer.send(script.take(script.next() % 32))
        await turns(1)
        return
      case 10:
        await turns(2)
        return
      default:
        await this.#say()
    }
  }

  /** Mostly that of an existing stream, or the next one that the peer may open. */
  #anId(byte: number): number {
    const known = this.#watchers.map(({ stream }) => stream.id)
    if (byte < 64) return byte
    if (byte < 192 && known.length > 0) return known[byte % known.length]!
    return Math.max(0, ...known) + 1 + (byte & 1)
  }

  /** A frame of the peer, in which every number may be wrong. */
  async #say(): Promise<void> {
    const script = this.#script
    const kind = script.next()
    const type = (kind & 4 ? 0 : kind & 3) as FrameType
    const flags = kind & 64 ? script.next() : kind & 32 ? [1, 2, 4, 8, 5][script.next() % 5]! : 0
    const id = this.#anId(script.next())
    const length = LENGTHS[script.next() % LENGTHS.length]!
    if (type === FrameType.windowUpdate) this.#conduct.gave(id, length)
    const exact = type === FrameType.data && length <= 65_536
    this.#peer.send(frame(type, flags, id, exact ? Buffer.alloc(length) : length))
    await turns(1)
  }
}

/** Operations of our end and frames of the peer, in the order that the bytes of the input determine. */
export const yamuxSession: FuzzTarget = {
  name: 'yamux-session',

  generate(random) {
    const script = random.bytes(random.between(4, 160))
    return random.oneIn(2) ? script : mutate(script, random)
  },

  execute: input => new Play(input).run(),
}

function ignore(): void {}
