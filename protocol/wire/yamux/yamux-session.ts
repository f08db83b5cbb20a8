import { Buffer } from 'node:buffer'
import { createBufferBudget } from '../../base/budget.ts'
import { SallyportError } from '../../base/errors.ts'
import { hook, logDefect, logGuard } from '../../base/guard.ts'
import { type Logger, noLogger } from '../../base/log.ts'
import { TokenBucket } from '../../base/token-bucket.ts'
import type { Transport, TransportHandler } from '../transport.ts'
import { CreditAdvance } from './advance.ts'
import { type Clock, systemClock, ZERO } from './clock.ts'
import { type DeadlineOwner, Deadlines } from './deadlines.ts'
import { FrameDecoder } from './decoder.ts'
import type { DeliveryMark } from './delivery.ts'
import { Flag, FrameType, GoAwayCode } from './frame.ts'
import { Held, type HeldOwner } from './held.ts'
import { Incoming, type IncomingOwner } from './incoming.ts'
import { clampWindow, resolveSessionLimits, type SessionLimits } from './limits.ts'
import { Outgoing, type OutgoingOwner } from './outgoing.ts'
import { Pings } from './pings.ts'
import { BufferPool } from './pool.ts'
import { parseReset } from './reset-message.ts'
import type { Session, SessionOptions } from './session.ts'
import type { ResetCode } from './stream.ts'
import { StreamChain } from './stream-chain.ts'
import { StreamTable } from './stream-table.ts'
import { type StreamOwner, YamuxStream } from './yamux-stream.ts'

/** Higher ids are not used, for the sake of peers with signed numbers. */
const LAST_ID = 0x7fff_ffff
/** As many resets counts a stream that is opened where none is accepted. Its refusal is a control message, so few are allowed. */
const VAIN_RESETS = 16
/** How many ids before the last one the session asks for its replacement. */
const IDS_LOW = 1 << 20

/**
 * Starts a session over `transport`, which it owns from now on.
 *
 * @example
 * ```ts
 * import { createSession, memoryPair } from 'sallyport/protocol'
 *
 * const [here, there] = memoryPair()
 * createSession(there, { role: 'server', onStream: stream => stream.reset('refused') })
 * const stream = createSession(here, { role: 'client' }).open()
 * stream.write('hello')
 * ```
 */
export function createSession(transport: Transport, options: SessionOptions): Session {
  return new YamuxSession(transport, options)
}

/** The implementation of {@link Session}. */
export class YamuxSession implements StreamOwner {
  readonly #transport: Transport
  readonly #options: SessionOptions
  readonly #limits: SessionLimits
  readonly #logger: Logger
  readonly #clock: Clock
  readonly #pool: BufferPool
  readonly #out: Outgoing
  readonly #decoder: FrameDecoder
  readonly #deadlines: Deadlines
  #resets: TokenBucket | undefined
  readonly #streams = new StreamTable()
  readonly #unacknowledged = new StreamChain()
  readonly #held: Held
  readonly #pings: Pings
  readonly #advance: CreditAdvance
  #windowBytes: number
  /** How many streams may be open at once. */
  #mostStreams: number
  /** How many of them may be unacknowledged. */
  #backlog: number
  #nextId: number
  #lastPeerId = 0
  #bytesIn = ZERO
  #goAwaySent = false
  #goAwayReceived = false
  #idsLow = false
  /** `ending`: the last frames are being written; `closing`: waiting for the peer to close the transport. */
  #state: 'open' | 'ending' | 'closing' | 'closed' = 'open'
  #settled = false

  constructor(transport: Transport, options: SessionOptions) {
    this.#transport = transport
    this.#options = options
    this.#limits = resolveSessionLimits(options)
    this.#logger = options.logger ?? noLogger
    this.#clock = options.clock ?? systemClock
    this.#pool = options.pool ?? new BufferPool()
    this.#windowBytes = this.#limits.initialWindowBytes
    this.#mostStreams = this.#limits.maxStreams
    this.#backlog = this.#limits.backlog
    this.#nextId = options.firstId ?? (options.role === 'client' ? 1 : 2)
    this.#advance = new CreditAdvance(this.#limits.sessionBufferBytes / 4)
    const inside = new YamuxSession.#Inside(this)
    this.#out = new Outgoing(transport, this.#pool, this.#clock, this.#limits.maxStreams, inside)
    this.#decoder = new FrameDecoder(new Incoming(inside))
    this.#pings = new Pings(this.#limits, this.#clock.now())
    const parts = { pings: this.#pings, unacknowledged: this.#unacknowledged, out: this.#out }
    this.#deadlines = new Deadlines(this.#clock, this.#limits, parts, inside)
    const { processBudget = createBufferBudget(), runtimeCeilings } = options
    this.#held = new Held(this.#limits.sessionBufferBytes, processBudget, runtimeCeilings, inside)
    transport.handler = inside
  }

  get streams(): number {
    return this.#streams.size
  }

  get rttMs(): number {
    return this.#out.delivery.rttMs
  }

  get streamsOver(): number {
    return this.#held.streamsOver
  }

  get bufferedBytes(): number {
    return this.#held.usedBytes
  }

  get bytesIn(): number {
    return this.#bytesIn
  }

  get bytesOut(): number {
    return this.#out.bytesOut
  }

  get closed(): boolean {
    return this.#state !== 'open'
  }

  get canOpen(): boolean {
    return this.#refusal() === undefined
  }

  get peer(): string {
    return this.#transport.peer
  }

  get overdue(): boolean {
    return this.#deadlines.overdue
  }

  get heardAt(): number {
    return this.#pings.heardAt
  }

  open(): YamuxStream {
    const refusal = this.#refusal()
    if (refusal !== undefined) throw new SallyportError('overloaded', refusal)
    const id = this.#nextId
    this.#nextId += 2
    if (id >= LAST_ID - IDS_LOW && !this.#idsLow) {
      this.#idsLow = true
      this.#options.onIdsLow?.()
    }
    const now = this.#clock.now()
    const stream = new YamuxStream(this, id, this.#windowBytes, true, now)
    this.#streams.add(stream)
    this.#unacknowledged.add(stream)
    this.#out.opened(stream)
    if (this.#advance.isWorthwhile(this.#windowBytes, this.rttMs, now)) this.#out.credit(stream)
    this.#deadlines.opened(now)
    return stream
  }

  control(message: object): void {
    if (this.#state !== 'open') return
    this.#out.flush()
    this.#sendControl(message)
  }

  ping(callback: (rttMs: number) => void): void {
    if (this.#state !== 'open') return
    if (this.#pings.full) this.#pings.share(callback)
    else this.#sendPing(this.#out.mark(false), callback)
  }

  announce(): void {
    if (this.#state === 'open') this.#out.announce()
  }

  goAway(): void {
    if (this.#goAwaySent || this.#state !== 'open') return
    this.#goAwaySent = true
    this.#out.control(FrameType.goAway, 0, 0, GoAwayCode.normal)
  }

  leave(): void {
    for (const stream of this.#streams.all()) this.#leave(stream)
  }

  leaveStream(id: number): void {
    const stream = this.#streams.get(id)
    if (stream !== undefined) this.#leave(stream)
  }

  #leave({ handler }: YamuxStream): void {
    if (handler.leave !== undefined) this.#guarded(() => handler.leave!())
  }

  setPeerLimits({ windowBytes, streams }: { windowBytes?: number | undefined; streams?: number | undefined }): void {
    if (windowBytes !== undefined) this.#windowBytes = clampWindow(windowBytes)
    if (streams === undefined) return
    this.#mostStreams = Math.min(streams, this.#limits.maxStreams)
    this.#backlog = Math.max(this.#limits.backlog, this.#mostStreams)
  }

  close(reason: string, code = 1000): void {
    if (this.#state !== 'open') return
    this.#state = 'ending'
    this.#guarded(() => this.#out.flushAll())
    this.#shut(code, reason, undefined)
  }

  destroy(error: SallyportError): void {
    if (this.#state === 'closed') return
    this.#end()
    this.#transport.terminate()
    this.#settle(error, error.message)
  }

  wantsToSend(stream: YamuxStream): void {
    if (this.#state === 'open' || this.#state === 'ending') this.#out.wants(stream)
  }

  acknowledge(stream: YamuxStream): void {
    if (stream.closed || this.#state !== 'open') return
    stream.ackDue = true
    this.#acknowledgeSoon(stream)
  }

  consumed(stream: YamuxStream, bytes: number): void {
    const taken = this.#held.release(stream, bytes)
    if (taken > 0 && !stream.closed && !stream.finReceived && stream.receive.creditDue) this.#out.credit(stream)
  }

  keep(stream: YamuxStream, bytes: number): void {
    this.#held.keep(stream, bytes)
  }

  /** Never throws: callers reset streams in the middle of other work. */
  resetStream(stream: YamuxStream, code: ResetCode): void {
    const silent = stream.synDue
    this.#forget(stream)
    this.#dropUnlessKept(stream)
    if (!silent && this.#state === 'open') this.#sendReset(stream.id, code)
  }

  handOver(stream: YamuxStream, runtime: string): void {
    this.#held.handOver(stream, runtime)
  }

  shedStream(stream: YamuxStream): void {
    this.#logger.warn({ stream: stream.id, unreadBytes: stream.unreadBytes }, 'buffers are full: stream reset')
    const { handler } = stream
    if (!stream.closed) this.resetStream(stream, handler.unbegun === true ? 'refused' : 'limit')
    this.#held.drop(stream)
    this.#guarded(() => (handler.shed === undefined ? handler.reset('limit') : handler.shed()))
  }

  /** Above three quarters of a ceiling, no window grows, and a stream that is not read gets no credit. */
  #takeCredit(stream: YamuxStream): number {
    const { receive } = stream
    const pressed = this.#held.pressed(stream)
    if (pressed && receive.unreadBytes * 2 >= receive.sizeBytes) return 0
    const now = this.#clock.now()
    // A receiver sends no bodies, so nothing else would measure the round trip that its windows grow by.
    if (this.#pings.stale(now)) this.#sendPing(this.#out.mark(false), undefined)
    const { maxWindowBytes } = this.#limits
    const growth = receive.growth(now, this.rttMs, maxWindowBytes)
    this.#advance.learn(receive, now)
    if (pressed) return receive.credit(0)
    return receive.credit(growth + this.#advance.grant(receive, growth, maxWindowBytes, this.rttMs, now))
  }

  #refusal(): string | undefined {
    if (this.#state !== 'open') return 'the session is closed'
    if (this.#goAwayReceived) return 'the peer accepts no new streams'
    if (this.#fullOf !== undefined) return `too many streams ${this.#fullOf}`
    if (this.#nextId > LAST_ID) return 'the session has no stream ids left'
    return undefined
  }

  #received(chunk: Uint8Array): void {
    this.#bytesIn += chunk.length
    if (this.#state !== 'open') return
    this.#pings.heard(this.#clock.now())
    try {
      this.#decoder.push(chunk)
    } catch (error) {
      this.#failed(error)
    }
  }

  #opened(id: number): YamuxStream | undefined {
    if ((id & 1) === (this.#nextId & 1) || id <= this.#lastPeerId) {
      this.#fail('bad-request', 'a stream id of the wrong parity, or used before')
      return undefined
    }
    this.#lastPeerId = id
    const { onStream } = this.#options
    if (onStream === undefined || this.#goAwaySent || this.#streams.size >= this.#limits.maxStreams) {
      this.#sendReset(id, 'refused')
      this.#countReset(undefined, onStream === undefined ? VAIN_RESETS : 1)
      return undefined
    }
    const stream = new YamuxStream(this, id, this.#windowBytes, false, 0)
    this.#streams.add(stream)
    this.#acknowledgeSoon(stream)
    onStream(stream)
    if (stream.closed) this.#countReset()
    return stream
  }

  /** The ACK goes with the stream's first frame, or after a moment together with others. */
  #acknowledgeSoon(stream: YamuxStream): void {
    if (this.#out.acknowledgeSoon(stream)) this.#out.schedule()
    this.#deadlines.acknowledging()
  }

  #payload(stream: YamuxStream, chunk: Uint8Array): void {
    this.#held.take(stream, chunk.length)
    stream.handler.data(chunk)
    this.#held.enforce(stream)
  }

  #finReceived(stream: YamuxStream): void {
    if (stream.finReceived) return
    stream.finReceived = true
    stream.handler.end()
    this.#closeIfDone(stream)
  }

  #closeIfDone(stream: YamuxStream): void {
    if (!stream.finReceived || !stream.finSent || stream.closed) return
    this.#forget(stream)
  }

  #resetReceived(stream: YamuxStream): void {
    this.#forget(stream)
    this.#dropUnlessKept(stream)
    stream.handler.reset(stream.resetCode ?? 'cancelled')
    if ((stream.id & 1) !== (this.#nextId & 1)) this.#countReset()
  }

  #countReset(excess = 'too many streams opened and reset', resets = 1): void {
    this.#resets ??= new TokenBucket(this.#limits.resetBurst, this.#limits.resetsPerSecond)
    if (!this.#resets.take(this.#clock.now(), resets)) this.#fail('too-many-requests', excess)
  }

  /** The code precedes its RST. A bare RST means `cancelled`. */
  #sendReset(id: number, code: ResetCode): void {
    if (code !== 'cancelled') this.#sendControl({ type: 'reset', stream: id, code })
    this.#out.control(FrameType.windowUpdate, Flag.rst, id, 0)
  }

  /** The stream is over, whatever ended it. What arrived on it still waits for its receiver. */
  #forget(stream: YamuxStream): void {
    stream.closed = true
    stream.queue.clear()
    this.#out.over()
    this.#remove(stream)
    this.#held.streamOver(stream)
    const { onIdle } = this.#options
    if (onIdle !== undefined && this.#streams.size === 0 && this.#state === 'open') this.#guarded(onIdle)
  }

  /** After a reset, the receiver drops what it was given, unless it keeps it. */
  #dropUnlessKept(stream: YamuxStream): void {
    if (stream.handler.keeps !== true) this.#held.drop(stream)
  }

  #remove(stream: YamuxStream): void {
    const wasFull = this.#fullOf !== undefined
    this.#streams.delete(stream.id)
    this.#unacknowledged.delete(stream)
    this.#advance.release(stream.receive)
    if (wasFull) this.#tellRoom()
  }

  /** Which limit on streams is reached; undefined if none is. */
  get #fullOf(): string | undefined {
    if (this.#streams.size >= this.#mostStreams) return 'in the session'
    if (this.#unacknowledged.size >= this.#backlog) return 'that the peer has not acknowledged'
    return undefined
  }

  #tellRoom(): void {
    const { onRoom } = this.#options
    if (onRoom !== undefined && this.canOpen) queueMicrotask(hook('onRoom', onRoom, this.#logger))
  }

  #sendPing(mark: DeliveryMark, callback: ((rttMs: number) => void) | undefined): void {
    const value = this.#pings.place(mark, callback)
    this.#out.control(FrameType.ping, Flag.syn, 0, value)
    this.#deadlines.pinging()
  }

  #pinged(value: number): void {
    this.#out.control(FrameType.ping, Flag.ack, 0, value)
    if (this.#options.awaitsPings === true) this.#deadlines.pinged()
  }

  #ponged(value: number): void {
    const now = this.#clock.now()
    const ping = this.#pings.answered(value, now)
    if (ping === undefined) {
      this.#countReset('too many answers to pings that were never sent')
      return
    }
    this.#out.answered(ping.mark, now)
    for (const callback of ping.callbacks) callback(now - ping.mark.placedAt)
  }

  #goneAway(code: number): void {
    if (this.#goAwayReceived) return
    this.#goAwayReceived = true
    if (code !== GoAwayCode.normal) this.#logger.warn({ code }, 'the peer sent go-away because of an error on our side')
    this.#options.onGoAway?.()
  }

  #sendControl(message: object): void {
    const text = JSON.stringify(message)
    const { controlBytes } = this.#limits
    const bytes = Buffer.byteLength(text)
    if (bytes > controlBytes) throw new TypeError(`a control message has at most ${controlBytes} bytes`)
    this.#out.catchUp(bytes)
    this.#transport.control(text)
  }

  #controlReceived(text: string): void {
    this.#bytesIn += text.length
    if (this.#state !== 'open') return
    this.#pings.heard(this.#clock.now())
    if (Buffer.byteLength(text) > this.#limits.controlBytes) {
      this.#fail('bad-request', 'a control message is too large')
      return
    }
    try {
      if (!this.#takeReset(text)) this.#options.onControl?.(text)
    } catch (error) {
      this.#failed(error)
    }
  }

  /** Handles `{"type":"reset"}`, which has the code of the RST that follows. Returns false for any other message. */
  #takeReset(text: string): boolean {
    const message = parseReset(text)
    if (message === undefined) return false
    const stream = this.#streams.get(message.stream)
    // The first message of a stream costs the peer that stream. Further ones cost it nothing, so they are counted.
    if (stream === undefined || stream.resetCode !== undefined) this.#countReset()
    // Only a server may tell of the loss of another session. A client would have it that its own is lost, which is still there.
    else
      stream.resetCode = message.code === 'session-lost' && this.#options.role === 'server' ? 'cancelled' : message.code
    return true
  }

  #keepAlive(): void {
    if (!this.#pings.full) this.#sendPing(this.#out.mark(false), undefined)
    if (this.#streams.size === 0 && this.#options.pool === undefined) this.#pool.trim()
  }

  /** The peer violated a rule or a limit. We send go-away, and the session ends. */
  #fail(reason: 'bad-request' | 'overloaded' | 'too-many-requests', message: string): void {
    if (this.#state !== 'open') return
    this.#state = 'ending'
    this.#logger.warn({ peer: this.peer, reason: message }, 'yamux: the session ends')
    this.#out.control(FrameType.goAway, 0, 0, GoAwayCode.protocolError)
    this.#out.flushControl()
    this.#shut(1002, message, new SallyportError('session-lost', `yamux: ${message}`, { cause: reason }))
  }

  /** A handler threw. That is a bug of ours, and ends only this session. */
  #failed(error: unknown): void {
    logDefect(this.#logger, 'yamux: internal error', error)
    this.destroy(new SallyportError('internal', 'yamux: internal error', { cause: error }))
  }

  #transportClosed(code: number, reason: string, error: Error | undefined): void {
    const text = reason || error?.message || `closed with code ${code}`
    this.#lost(error && new SallyportError('session-lost', text, { cause: error }), text)
  }

  /**
   * Settles in the next turn. Whoever tries something elsewhere should first know of all sessions that end together, as those of one
   * peer do.
   */
  #lost(error: SallyportError | undefined, reason: string): void {
    if (this.#state === 'closed') return
    this.#end()
    const guard = logGuard(this.#logger, 'yamux: a session did not end')
    const settle = guard(() => {
      this.#settle(error, reason)
      // Only then, so that the transport's own end is not taken for the cause.
      this.#transport.terminate()
    })
    setImmediate(settle)
  }

  /** Closes the transport after what was sent, unless sending that has ended it. */
  #shut(code: number, reason: string, error: SallyportError | undefined): void {
    if (this.#state !== 'ending') return
    this.#state = 'closing'
    this.#decoder.stop()
    this.#deadlines.closing()
    this.#transport.close(code, reason)
    this.#settle(error, reason)
  }

  #end(): void {
    this.#state = 'closed'
    this.#decoder.stop()
    this.#deadlines.stop()
    this.#out.stop()
  }

  /** Notifies everyone who waits for something from this session, once. */
  #settle(error: SallyportError | undefined, reason: string): void {
    if (this.#settled) return
    this.#settled = true
    this.#pings.clear()
    // Oldest first, since their exchanges may queue up for another session.
    for (const stream of this.#streams.all().sort((a, b) => a.id - b.id)) {
      if (stream.closed) continue
      this.#forget(stream)
      this.#dropUnlessKept(stream)
      this.#guarded(() => stream.handler.reset('session-lost'))
    }
    this.#held.close()
    this.#guarded(() => this.#options.onClose?.(error, reason))
  }

  /** If a handler throws while no bytes of the peer are handled, that is logged and ends nothing. */
  #guarded(tell: () => void): void {
    try {
      tell()
    } catch (thrown) {
      logDefect(this.#logger, 'yamux: a handler threw', thrown)
    }
  }

  /**
   * The session, as its parts see it. It is one object with methods, since twenty closures for each of many idle sessions would
   * cost memory.
   */
  static readonly #Inside = class implements TransportHandler, IncomingOwner, OutgoingOwner, DeadlineOwner, HeldOwner {
    readonly #session: YamuxSession

    constructor(session: YamuxSession) {
      this.#session = session
    }

    bytes(chunk: Uint8Array): void {
      this.#session.#received(chunk)
    }

    control(text: string): void {
      this.#session.#controlReceived(text)
    }

    closed(code: number, reason: string, error: Error | undefined): void {
      this.#session.#transportClosed(code, reason, error)
    }

    find(id: number): YamuxStream | undefined {
      return this.#session.#streams.get(id)
    }

    wasUsed(id: number): boolean {
      const session = this.#session
      return (id & 1) === (session.#nextId & 1) ? id < session.#nextId : id <= session.#lastPeerId
    }

    opened(id: number): YamuxStream | undefined {
      return this.#session.#opened(id)
    }

    acknowledged(stream: YamuxStream): void {
      const wasFull = this.#session.#fullOf !== undefined
      stream.acknowledged = true
      this.#session.#unacknowledged.delete(stream)
      stream.handler.acknowledged?.()
      if (wasFull) this.#session.#tellRoom()
    }

    credited(stream: YamuxStream, bytes: number): void {
      stream.sendWindowBytes += bytes
      this.#session.#out.wants(stream)
    }

    received(stream: YamuxStream, chunk: Uint8Array): void {
      this.#session.#payload(stream, chunk)
    }

    finReceived(stream: YamuxStream): void {
      this.#session.#finReceived(stream)
    }

    resetReceived(stream: YamuxStream): void {
      this.#session.#resetReceived(stream)
    }

    pinged(value: number): void {
      this.#session.#pinged(value)
    }

    ponged(value: number): void {
      this.#session.#ponged(value)
    }

    goneAway(code: number): void {
      this.#session.#goneAway(code)
    }

    violated(reason: string): void {
      this.#session.#fail('bad-request', reason)
    }

    placePing(mark: DeliveryMark): void {
      this.#session.#sendPing(mark, undefined)
    }

    finSent(stream: YamuxStream): void {
      this.#session.#closeIfDone(stream)
    }

    takeCredit(stream: YamuxStream): number {
      return this.#session.#takeCredit(stream)
    }

    clogged(): void {
      this.#session.#fail('overloaded', 'the peer causes more answers than it reads')
    }

    writing(now: number): void {
      this.#session.#deadlines.writing(now)
    }

    keepAlive(): void {
      this.#session.#keepAlive()
    }

    knock(): void {
      this.#session.#sendPing(this.#session.#out.mark(false), undefined)
    }

    open(): Iterable<YamuxStream> {
      return this.#session.#streams.all()
    }

    expired(stream: YamuxStream): void {
      this.#session.resetStream(stream, 'timeout')
      // The owner must treat it as lost, since nobody knows whether the peer has begun it.
      stream.handler.reset('session-lost')
    }

    lost(reason: string): void {
      this.#session.#lost(new SallyportError('session-lost', reason), reason)
    }

    failed(error: unknown): void {
      this.#session.#failed(error)
    }
  }
}
