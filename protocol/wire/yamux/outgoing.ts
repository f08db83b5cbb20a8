import { Buffer } from 'node:buffer'
import process from 'node:process'
import { HEADROOM_BYTES, type Transport } from '../transport.ts'
import { type Clock, ZERO } from './clock.ts'
import { Delivery, type DeliveryMark } from './delivery.ts'
import { Flag, FrameType, HEADER_BYTES, writeHeader } from './frame.ts'
import { type BufferPool, POOL_BUFFER_BYTES } from './pool.ts'
import { LARGE_CHUNK_BYTES } from './send-queue.ts'
import { SendTurns } from './send-turns.ts'
import { Unsent } from './unsent.ts'
import type { YamuxStream } from './yamux-stream.ts'

/** The most that one frame carries: alone, and while other streams wait. */
const ALONE_BYTES = 64 * 1024
const SHARED_BYTES = LARGE_CHUNK_BYTES
/** The part of the limit on bytes in flight that bodies leave to heads. */
const HEADS_BYTES = 32 * 1024
/** While bodies wait, one of them may send after this much of heads and small messages, which could otherwise keep all of them out. */
const FRESH_BYTES = 64 * 1024
/** Room for the headers around a last frame: its own, the SYN of an older stream, FIN, and the ping after it. */
const OVERHEAD_BYTES = 4 * HEADER_BYTES
/**
 * Frames without payload, most often a single ping, begin a buffer of this size. If thousands of idle sessions are pinged in
 * one turn and each took a large buffer, the pool could not keep them.
 */
const SMALL_BYTES = 256
/** After this many small messages, they are sent before the end of the turn, so that the peer can work on them meanwhile. */
const EARLY_STREAMS = 8
/**
 * Most bytes that the transport may hold. A peer that stops reading ties up this much of our memory, however fast its path is.
 * Everything else waits at its sender, within limits of its own.
 */
const MAX_UNSENT_BYTES = 512 * 1024
/** What a control message costs the transport while it waits there, beyond its own bytes. */
const MESSAGE_BYTES = 512
/** The transport gets more when it has this little left, which keeps the kernel busy until then. */
const RESUME_BYTES = MAX_UNSENT_BYTES / 2
/** While the transport is busy, it gets no buffer with less than this in it, since each waits there as a whole. */
const WORTHWHILE_BYTES = POOL_BUFFER_BYTES / 2
/** A frame is not cut smaller than this to fit the limit. */
const LEAST_ROOM_BYTES = 4 * 1024
/** As many control frames may come while the transport is clogged. They fill one buffer. */
const LEAST_CONTROLS = Math.floor(POOL_BUFFER_BYTES / HEADER_BYTES)
/** At least this many streams must end before the queues are searched for streams that are over. */
const LEAST_ENDS = 64

/** The session, as its writer sees it. */
export interface OutgoingOwner {
  /** A ping must follow what was sent so far. */
  placePing(mark: DeliveryMark): void
  finSent(stream: YamuxStream): void
  /** Takes the credit that the stream's receiver owes its peer. */
  takeCredit(stream: YamuxStream): number
  /** The peer makes us send more answers than it reads. */
  clogged(): void
  /** The transport has something to take from now on. */
  writing(now: number): void
  failed(error: unknown): void
}

/**
 * The writer of a session. Everything from one turn of the event loop leaves at the end of the turn, in one buffer or a few:
 * first control frames, then streams that sent nothing in the round before (heads, small messages), then bodies, each in turn.
 */
export class Outgoing {
  readonly delivery = new Delivery()
  readonly #transport: Transport
  readonly #pool: BufferPool
  readonly #clock: Clock
  readonly #owner: OutgoingOwner
  readonly #fresh = new SendTurns()
  readonly #bulk = new SendTurns()
  /** What the streams in `#fresh` have sent since the last body, while bodies wait. */
  #freshBytes = 0
  /** How many streams were added to `#fresh` since the last flush. */
  #freshStreams = 0
  /** Streams that joined one of the two since then. */
  readonly #joined: YamuxStream[] = []
  readonly #acks: YamuxStream[] = []
  /** Streams whose receivers have consumed enough for a credit. */
  readonly #credits: YamuxStream[] = []
  /** Streams whose SYN has not left, in the order of their ids. */
  readonly #unopened: YamuxStream[] = []
  /** Streams that have ended since the queues were last searched, and after how many that is done again. */
  #ends = 0
  #mostEnds = LEAST_ENDS
  #buffer: Buffer | undefined
  #used = 0
  /** Whether the buffer has frames of streams, which no control message may overtake. */
  #hasStreams = false
  #round = 0
  #scheduled = false
  /** Whether bodies wait for the pace of the path. */
  #pacing = false
  #stopped = false
  readonly #unsent: Unsent
  #pingsOut = 0
  #markedBytes = ZERO
  #messageBytes = 0
  /** How many control frames have come since the transport is clogged, and the most that may. */
  #controls = 0
  readonly #mostControls: number
  bytesOut = ZERO

  /** All of `maxStreams` may be reset in one turn, which is not the peer's doing. */
  constructor(transport: Transport, pool: BufferPool, clock: Clock, maxStreams: number, owner: OutgoingOwner) {
    this.#mostControls = Math.max(LEAST_CONTROLS, maxStreams)
    this.#transport = transport
    this.#pool = pool
    this.#clock = clock
    this.#owner = owner
    this.#unsent = new Unsent(pool, clock)
  }

  /** See {@link Unsent.stalledSince}. */
  get stalledSince(): number | undefined {
    return this.#unsent.stalledSince
  }

  /** Adds a stream of ours. Its SYN leaves with its first frame, or before that of a later stream. */
  opened(stream: YamuxStream): void {
    this.#unopened.push(stream)
  }

  /**
   * Call it when a stream is over. It leaves the queues soon. If it stayed until its turn to send, a peer that takes nothing would
   * make us keep every stream that its callers begin and cancel.
   */
  over(): void {
    if (++this.#ends < this.#mostEnds) return
    let left = this.#fresh.dropClosed() + this.#bulk.dropClosed()
    for (const streams of [this.#acks, this.#credits, this.#unopened]) left += dropClosed(streams)
    this.#ends = 0
    this.#mostEnds = Math.max(LEAST_ENDS, left)
  }

  /** Queues the stream, unless it is queued already or may not send now. */
  wants(stream: YamuxStream): void {
    const may = canSend(stream)
    if (!may || stream.waits) stream.queue.waits()
    if (!may || stream.listed) return
    this.#join(stream)
    if (stream.lastRound < this.#round - 1) {
      this.#fresh.push(stream)
      if (++this.#freshStreams === EARLY_STREAMS) process.nextTick(this.#early)
    } else this.#bulk.push(stream)
    this.schedule()
  }

  #join(stream: YamuxStream): void {
    stream.listed = true
    this.#joined.push(stream)
  }

  /** Sends a frame without payload, before all bodies. */
  control(type: FrameType, flags: number, id: number, length: number): void {
    if (this.#stopped) return
    if (this.#clogged() && ++this.#controls > this.#mostControls) {
      this.#owner.clogged()
      return
    }
    if (this.#buffer === undefined) this.#begin(Buffer.allocUnsafe(SMALL_BYTES))
    this.#header(type, flags, id, length)
    this.schedule()
  }

  /** Sends the ACK of a stream, after a moment in which a frame may carry it. Returns true if too many wait already. */
  acknowledgeSoon(stream: YamuxStream): boolean {
    this.#acks.push(stream)
    return this.#acks.length >= 64
  }

  /** Sends the stream's credit at the end of this turn, with all that is owed by then. */
  credit(stream: YamuxStream): void {
    if (stream.creditListed || this.#stopped) return
    stream.creditListed = true
    this.#credits.push(stream)
    this.schedule()
  }

  get hasAcks(): boolean {
    return this.#acks.length > 0
  }

  /** Sends at the end of this turn of the event loop. */
  schedule(): void {
    if (this.#scheduled || this.#stopped) return
    this.#scheduled = true
    setImmediate(this.#turn)
  }

  readonly #turn = (): void => {
    try {
      this.#scheduled = false
      this.flush(false)
    } catch (error) {
      this.#owner.failed(error)
    }
  }

  readonly #early = (): void => {
    try {
      this.flush(false)
    } catch (error) {
      this.#owner.failed(error)
    }
  }

  readonly #goOn = (): void => {
    try {
      this.#pacing = false
      this.schedule()
    } catch (error) {
      this.#owner.failed(error)
    }
  }

  /** Sends now what may be sent. Unless it should be `all`, a mostly empty buffer waits for more while the transport is busy. */
  flush(all = true): void {
    if (this.#stopped) return
    if (!this.#clogged()) this.#flush(all)
    for (const stream of this.#joined) {
      stream.waits = stream.listed
      if (stream.waits) stream.queue.waits()
    }
    this.#joined.length = 0
  }

  #flush(all: boolean): void {
    this.#round++
    this.#freshStreams = 0
    this.#controls = 0
    this.#giveCredit()
    this.#sendStreams()
    if (this.#stopped) return
    this.#acknowledge()
    this.#markDelivery()
    if (all || this.#unsent.bytes === 0 || this.#used >= WORTHWHILE_BYTES) this.#handOver()
  }

  /** Call it before a control message, which counts with the frames that follow it. Resets alone stay, so that too many of them are noticed. */
  catchUp(bytes: number): void {
    if (this.#hasStreams) this.#handOver()
    this.#messageBytes += MESSAGE_BYTES + bytes
  }

  /** Sends only the frames without payload, for the end of a session. */
  flushControl(): void {
    if (!this.#stopped) this.#handOver()
  }

  /** Sends the SYN of all streams, and of each what may leave now. */
  announce(): void {
    this.flush()
    // A peer that reads no answers must not have them handed over again and again, beyond all limits.
    if (this.#unopened.length === 0) return
    this.#openOlder()
    this.#handOver()
  }

  /**
   * For a graceful end: sends all that the windows allow, whatever is in flight. Streams that had no room to begin do not begin any
   * more, since nobody would hear the peer's answer.
   */
  flushAll(): void {
    this.flush()
    for (const streams of [this.#fresh, this.#bulk]) {
      for (let stream = streams.shift(); stream !== undefined; stream = streams.shift()) {
        if (!stream.unsent) this.#send(stream, ALONE_BYTES)
      }
    }
    this.#acknowledge()
    this.#handOver()
  }

  stop(): void {
    this.#stopped = true
    this.#unsent.forget()
    this.#acks.length = 0
    this.#credits.length = 0
    this.#unopened.length = 0
    this.#joined.length = 0
    this.#buffer = undefined
  }

  /** A ping that was placed after bytes has been answered. */
  answered(mark: DeliveryMark, now: number): void {
    this.#pingsOut--
    this.delivery.answered(mark, now)
    if (!this.#fresh.isEmpty || !this.#bulk.isEmpty) this.schedule()
  }

  /** What a ping that leaves now will measure. */
  mark(limited: boolean): DeliveryMark {
    this.#pingsOut++
    const now = this.#clock.now()
    this.#markedBytes = this.delivery.sentBytes
    return this.delivery.place(now, limited)
  }

  #sendStreams(): void {
    const { delivery } = this
    if (this.#pingsOut === 0) delivery.begin(this.#clock.now())
    for (;;) {
      const path = delivery.limitBytes - delivery.undeliveredBytes
      const room = Math.min(path, MAX_UNSENT_BYTES - this.#unsent.bytes) - OVERHEAD_BYTES
      if (room <= 0) return
      if (!this.#sendNext(room > HEADS_BYTES && !this.#isPaced(), Math.max(room, LEAST_ROOM_BYTES))) return
      if (this.#stopped) return
      if (delivery.sentBytes - this.#markedBytes >= delivery.markEveryBytes) this.#markDelivery()
    }
  }

  /** Whether bodies wait until the path has taken what was sent. They then continue by themselves. */
  #isPaced(): boolean {
    if (this.#pacing || this.#bulk.isEmpty) return this.#pacing
    const waitMs = this.delivery.waitMs(this.#clock.now())
    if (waitMs === 0) return false
    this.#pacing = true
    this.#clock.setTimeout(this.#goOn, Math.ceil(waitMs))
    return true
  }

  /** Returns false if nothing may be sent now. */
  #sendNext(bodies: boolean, roomBytes: number): boolean {
    const bodiesWait = !this.#bulk.isEmpty
    const isBodyDue = bodiesWait && this.#freshBytes >= FRESH_BYTES
    const fresh = isBodyDue ? undefined : this.#fresh.shift()
    const stream = fresh ?? (bodies || isBodyDue ? this.#bulk.shift() : undefined)
    if (stream === undefined) return false
    const before = this.delivery.sentBytes
    this.#send(stream, roomBytes)
    if (fresh === undefined) this.#freshBytes = 0
    else if (bodiesWait) this.#freshBytes += this.delivery.sentBytes - before
    return true
  }

  /** Sends one frame of the stream, with or without payload. The stream then goes to the end of the queue. */
  #send(stream: YamuxStream, roomBytes: number): void {
    stream.listed = false
    stream.waits = false
    if (stream.closed) return
    stream.lastRound = this.#round
    const sent = this.#sendData(stream, roomBytes)
    if (stream.ended && !stream.finSent && stream.queue.bytes === 0) this.#sendFin(stream)
    if (canSend(stream)) {
      this.#join(stream)
      this.#bulk.push(stream)
    } else stream.queue.waits()
    if (sent > 0) stream.handler.consumed(sent)
  }

  #sendData(stream: YamuxStream, roomBytes: number): number {
    const { queue } = stream
    const most = Math.min(queue.bytes, stream.sendWindowBytes, roomBytes)
    if (most <= 0) return 0
    const alone = this.#bulk.isEmpty && this.#fresh.isEmpty
    const bytes = queue.run(Math.min(most, alone ? ALONE_BYTES : SHARED_BYTES))
    stream.sendWindowBytes -= bytes
    stream.unsent = false
    const flags = this.#takeFlags(stream)
    if (bytes > LARGE_CHUNK_BYTES && this.#transport.copies !== true) {
      this.#header(FrameType.data, flags, stream.id, bytes)
      this.#handOver()
      this.#transfer(queue.slice(bytes))
    } else {
      this.#room(HEADER_BYTES + bytes)
      this.#header(FrameType.data, flags, stream.id, bytes)
      queue.copy(this.#buffer!, this.#used, bytes)
      this.#used += bytes
      this.delivery.sentBytes += bytes
    }
    return bytes
  }

  #sendFin(stream: YamuxStream): void {
    // FIN is a frame of its own, and then so is SYN: Go's implementation can lose data that shares a frame with FIN.
    const flags = this.#takeFlags(stream)
    if (flags & Flag.syn) this.#header(FrameType.windowUpdate, flags, stream.id, 0)
    this.#header(FrameType.windowUpdate, flags & Flag.syn ? Flag.fin : flags | Flag.fin, stream.id, 0)
    stream.finSent = true
    this.#owner.finSent(stream)
  }

  #takeFlags(stream: YamuxStream): number {
    this.#hasStreams = true
    if (stream.synDue) this.#openOlder(stream)
    const flags = (stream.synDue ? Flag.syn : 0) | (stream.ackDue ? Flag.ack : 0)
    stream.synDue = false
    stream.ackDue = false
    return flags
  }

  /** Ids must rise on the wire, so older streams that are still silent send their SYN alone first. */
  #openOlder(stream?: YamuxStream): void {
    for (;;) {
      const older = this.#unopened.shift()
      if (older === undefined || older === stream) return
      if (older.closed) continue
      older.synDue = false
      this.#header(FrameType.windowUpdate, Flag.syn, older.id, 0)
    }
  }

  #giveCredit(): void {
    if (this.#credits.length === 0) return
    for (const stream of this.#credits) {
      stream.creditListed = false
      if (stream.closed || stream.finReceived) continue
      const bytes = this.#owner.takeCredit(stream)
      if (bytes > 0) this.#header(FrameType.windowUpdate, this.#takeFlags(stream), stream.id, bytes)
    }
    this.#credits.length = 0
  }

  #acknowledge(): void {
    if (this.#acks.length === 0) return
    for (const stream of this.#acks) {
      if (!stream.ackDue || stream.closed) continue
      this.#header(FrameType.windowUpdate, this.#takeFlags(stream), stream.id, 0)
    }
    this.#acks.length = 0
  }

  /**
   * Places a ping after what was sent, once that is enough. At the limit, half is enough, since bytes that no ping covers count
   * as in flight until a later ping is answered.
   */
  #markDelivery(): void {
    const { delivery } = this
    const unmarked = delivery.sentBytes - this.#markedBytes
    const waiting = !this.#fresh.isEmpty || !this.#bulk.isEmpty
    const enough = waiting ? delivery.markEveryBytes / 2 : delivery.markEveryBytes
    if (unmarked >= enough || (waiting && unmarked > 0 && this.#pingsOut === 0)) {
      this.#owner.placePing(this.mark(waiting))
    }
  }

  #header(type: FrameType, flags: number, id: number, length: number): void {
    this.#room(HEADER_BYTES)
    writeHeader(this.#buffer!, this.#used, type, flags, id, length)
    this.#used += HEADER_BYTES
    this.delivery.sentBytes += HEADER_BYTES
  }

  /** Makes room for `bytes`, which fit into a buffer with its headroom. */
  #room(bytes: number): void {
    const begun = this.#buffer
    if (begun !== undefined && this.#used + bytes <= begun.length) return
    if (begun?.length === SMALL_BYTES && this.#used + bytes <= POOL_BUFFER_BYTES) {
      this.#buffer = this.#pool.take()
      begun.copy(this.#buffer, 0, 0, this.#used)
      return
    }
    this.#handOver()
    this.#begin(this.#pool.take())
  }

  #begin(buffer: Buffer): void {
    this.#buffer = buffer
    this.#used = HEADROOM_BYTES
  }

  /** Whether the transport has taken so little that even control frames must wait. */
  #clogged(): boolean {
    return this.#unsent.bytes > Math.min(this.delivery.limitBytes, MAX_UNSENT_BYTES) + 4 * POOL_BUFFER_BYTES
  }

  #handOver(): void {
    const begun = this.#buffer
    if (begun === undefined) return
    const end = this.#used
    this.#buffer = undefined
    this.#used = 0
    this.#hasStreams = false
    const pooled = begun.length !== SMALL_BYTES
    const copied = pooled && this.#unsent.bytes > 0 && end < WORTHWHILE_BYTES
    const buffer = copied ? Buffer.from(begun.subarray(0, end)) : begun
    if (copied) this.#pool.give(begun)
    this.#handedOver(pooled && !copied ? buffer : undefined, end - HEADROOM_BYTES)
    if (this.#transport.pooled === undefined) this.#transport.bytes(buffer.subarray(HEADROOM_BYTES, end), this.#sent)
    else this.#transport.pooled(buffer, end, this.#sent)
  }

  #transfer(chunk: Uint8Array): void {
    this.delivery.sentBytes += chunk.length
    this.#handedOver(undefined, chunk.length)
    this.#transport.bytes(chunk, this.#sent)
  }

  #handedOver(buffer: Buffer | undefined, bytes: number): void {
    const isFirst = this.#unsent.bytes === 0
    this.#unsent.add(buffer, bytes + this.#messageBytes)
    this.#messageBytes = 0
    this.bytesOut += bytes
    if (isFirst) this.#owner.writing(this.#unsent.stalledSince!)
  }

  /** The transport calls this once for each chunk, in order. */
  readonly #sent = (): void => {
    const bytes = this.#unsent.taken()
    const left = this.#unsent.bytes
    const resumes = left <= RESUME_BYTES && left + bytes > RESUME_BYTES
    if (resumes || (left === 0 && this.#buffer !== undefined)) this.schedule()
  }
}

/** Returns how many are left. */
function dropClosed(streams: YamuxStream[]): number {
  let left = 0
  for (const stream of streams) if (!stream.closed) streams[left++] = stream
  streams.length = left
  return left
}

function canSend(stream: YamuxStream): boolean {
  if (stream.closed) return false
  if (stream.queue.bytes > 0) return stream.sendWindowBytes > 0
  return stream.ended && !stream.finSent
}
