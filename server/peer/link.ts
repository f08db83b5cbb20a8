/** The connection that this replica keeps to another one. It carries exchanges there, and asks what the other was granted. */
import { connect, type TLSSocket } from 'node:tls'
import { errorOf, SallyportError } from '../../protocol/base/errors.ts'
import { endFor, guardWith } from '../../protocol/base/guard.ts'
import { formatAddress, type HostPort } from '../../protocol/base/host-port.ts'
import type { Logger } from '../../protocol/base/log.ts'
import type { Session, SessionOptions } from '../../protocol/wire/yamux/session.ts'
import type { Stream } from '../../protocol/wire/yamux/stream.ts'
import { createSession } from '../../protocol/wire/yamux/yamux-session.ts'
import type { SpanReport } from '../control/returned-spans.ts'
import { type PeerMessage, parsePeerMessage } from './messages.ts'
import { isReplica, PEER_NAME, type PeerTls, peerTlsOptions } from './tls.ts'
import { PeerTransport } from './transport.ts'

interface LinkOptions {
  /** Name of this replica, and where it is reached. */
  readonly replica: string
  readonly address: () => string
  readonly tls: () => PeerTls
  readonly session: Partial<SessionOptions>
  readonly logger: Logger
  readonly now: () => number
  /** A state that the other replica tells, as text. */
  readonly onStanding: (text: string) => void
  /** What a session there tells of attempts that were sent over this link. */
  readonly onSpans: (report: SpanReport) => void
  /** Exchanges can be sent there from now on. */
  readonly onUp: () => void
  /** It is up, or down, or has told. */
  readonly onChange: () => void
}

/** Until the other end has said its name. */
const CONNECT_MS = 3000
const RETRY_MS = 1000
/** For one that is probably dead. */
const RETRY_SOUGHT_MS = 10_000
/** Questions on their way. */
const MAX_ASKED = 8
/** Clocks of replicas agree on how long ago something was, but for the time that messages take. */
const MARGIN_MS = 1000
/** A link whose ping is unanswered for this long gets no exchanges while another link is well. */
const STALE_MS = 1500

export class PeerLink {
  readonly name: string
  readonly address: string
  readonly #to: HostPort
  readonly #options: LinkOptions
  /** In use: the other end has said its name. */
  #session: Session | undefined
  #socket: TLSSocket | undefined
  /** Is to take its place: it is being dialled, or has not said its name. */
  #next: TLSSocket | undefined
  /** Its stream ids are used up. Open streams go on. */
  #spent: Session | undefined
  #timer: NodeJS.Timeout | undefined
  #closed = false
  /** It said that it stops: it is granted nothing any more. */
  departed = false
  /** When it was last called, nobody listened at its address. */
  refused = false
  /** It has told all that changed since the directory was there last, and tells what it hears; or it was asked to. */
  #caughtUp: boolean | 'asked' = false
  /** When the last question that it answered was sent. */
  #toldMs = Number.NEGATIVE_INFINITY
  /** Its lease had ended before it was called, and it has not answered: nobody waits for its word. */
  isSought = false
  /** Since when the directory does not know it. */
  missedMs: number | undefined
  exchanges = 0
  #number = 0
  /** When each question was sent that waits for its answer. */
  readonly #asked = new Map<number, number>()
  #pingedMs = 0

  constructor(name: string, to: HostPort, options: LinkOptions) {
    this.name = name
    this.address = formatAddress(to)
    this.#to = to
    this.#options = options
    this.#dialNow()
  }

  get up(): boolean {
    return this.#session !== undefined
  }

  get usable(): boolean {
    return !this.departed && !this.stale && this.#session?.canOpen === true
  }

  /** It has not answered for a while. */
  get stale(): boolean {
    return this.#pingedMs > 0 && this.#options.now() - this.#pingedMs > STALE_MS
  }

  get rttMs(): number {
    return this.#session?.rttMs ?? 0
  }

  get streams(): number {
    return (this.#session?.streams ?? 0) + (this.#spent?.streams ?? 0)
  }

  /** Throws `overloaded` when it takes no more. */
  open(): Stream {
    if (this.#session === undefined) throw new SallyportError('overloaded', 'the replica is not connected')
    return this.#session.open()
  }

  /** Whatever goes wrong at once, as with a certificate that cannot be used, it is tried again. */
  readonly #dialNow = (): void => {
    try {
      this.#dial()
    } catch (error) {
      endFor(error, this.#options.logger, 'another replica could not be dialled', () => this.#dialLater())
    }
  }

  #dial(): void {
    const socket = connect({ ...peerTlsOptions(this.#options.tls()), ...this.#to, servername: PEER_NAME })
    this.#next = socket
    socket.setNoDelay(true)
    const guard = guardWith(error => this.#broke(socket, error))
    const late = guard(() => {
      if (socket === this.#next) socket.destroy(new Error('the replica does not answer'))
    })
    const timer = setTimeout(late, CONNECT_MS).unref()
    const secured = guard(() => {
      this.refused = false
      socket.removeAllListeners('error')
      socket.removeAllListeners('close')
      if (isReplica(socket)) this.#begin(socket)
      else this.#failed(socket, new Error('who listens there is no replica'))
    })
    const failed = guard((error: NodeJS.ErrnoException) => {
      this.refused = error.code === 'ECONNREFUSED'
      this.#failed(socket, error)
    })
    const closed = guard(() => {
      clearTimeout(timer)
      this.#failed(socket, new Error('the connection was closed'))
    })
    socket.once('secureConnect', secured)
    socket.on('error', failed)
    socket.on('close', closed)
  }

  /** What goes wrong in an event or a timer ends the connection, and another one is tried. */
  #broke(socket: TLSSocket, error: unknown): void {
    const lost = () => this.#failed(socket, errorOf(error))
    endFor(error, this.#options.logger, 'the link to another replica failed', lost, () => socket.destroy())
  }

  #begin(socket: TLSSocket): void {
    const session: Session = createSession(new PeerTransport(socket), {
      ...this.#options.session,
      role: 'client',
      logger: this.#options.logger,
      onControl: text => this.#message(session, socket, parsePeerMessage(text)),
      // Another connection takes over while there are ids left.
      onIdsLow: () => this.#dialLater(),
      onIdle: () => this.#closeSpent(),
      onClose: (error, reason) => this.#failed(socket, error ?? new Error(reason)),
    })
    session.control({ type: 'replica', name: this.#options.replica, address: this.#options.address() })
  }

  #closeSpent(): void {
    if (this.#spent?.streams !== 0) return
    this.#spent.close('its stream ids came to their end')
    this.#spent = undefined
  }

  #say(message: PeerMessage): void {
    this.#session?.control(message)
  }

  #message(session: Session, socket: TLSSocket, message: PeerMessage | undefined): void {
    switch (message?.type) {
      case 'replica':
        this.#isNamed(session, socket, message.name)
        return
      case 'standing':
        this.#options.onStanding(message.standing)
        return
      case 'spans':
        this.#options.onSpans({ ...message, rttMs: message.rttMs + this.rttMs })
        return
      case 'told':
        this.#told(message.number)
        return
      case 'leave':
        session.leaveStream(message.stream)
        return
      case 'bye':
        this.departed = true
        // Behind all streams that it was given: it need not wait for more.
        session.control({ type: 'bye' })
        this.#options.onChange()
        return
      default:
        return
    }
  }

  #isNamed(session: Session, socket: TLSSocket, name: string): void {
    if (socket !== this.#next) return
    if (name !== this.name) {
      // If somebody else answers there, that says nothing about the replica we look for, which may have another connection to us.
      session.close('another replica was looked for')
      return
    }
    this.departed = false
    this.isSought = false
    this.#next = undefined
    this.#spent?.close('another has taken its place')
    this.#spent = this.#session
    this.#session = session
    this.#socket = socket
    // What was asked there is answered there, if at all.
    this.#pingedMs = 0
    this.#forgetTold()
    this.#closeSpent()
    this.#options.logger.info({ replica: this.name, address: this.address }, 'connected to another replica')
    this.#options.onChange()
    this.#options.onUp()
  }

  /** Asks whether it has told all; `sinceMs`: when the directory was there last. */
  ask(sinceMs: number): void {
    if (!this.up || this.#asked.size > MAX_ASKED || this.#caughtUp === 'asked') return
    const number = ++this.#number
    const sentMs = this.#options.now()
    const catchUp = !this.#caughtUp
    if (catchUp) this.#caughtUp = 'asked'
    this.#asked.set(number, sentMs)
    const agoMs = Number.isFinite(sinceMs) ? sentMs - sinceMs + MARGIN_MS : -1
    this.#say({ type: 'ask', number, ...(catchUp ? { agoMs } : {}) })
  }

  #told(number: number): void {
    const sentMs = this.#asked.get(number)
    if (sentMs === undefined) return
    this.#asked.delete(number)
    this.#caughtUp = true
    this.#toldMs = Math.max(this.#toldMs, sentMs)
    this.#options.onChange()
  }

  /** The directory is there, so nobody needs to be asked. */
  enough(): void {
    this.#forgetTold()
    this.#say({ type: 'enough' })
  }

  #forgetTold(): void {
    this.#caughtUp = false
    this.#toldMs = Number.NEGATIVE_INFINITY
    this.#asked.clear()
  }

  /** When all that it knew was told here; never, if it was not. */
  get vouchedMs(): number {
    return this.up && this.#caughtUp === true ? this.#toldMs : Number.NEGATIVE_INFINITY
  }

  /** Called often, so that a link that does not answer is noticed before it is dead. */
  probe(): void {
    if (this.#session === undefined || this.#pingedMs > 0) return
    this.#pingedMs = this.#options.now()
    this.#session.ping(() => {
      const wasStale = this.stale
      this.#pingedMs = 0
      if (wasStale) this.#options.onUp()
    })
  }

  #failed(socket: TLSSocket, error: Error): void {
    if (socket === this.#next) this.#next = undefined
    else if (socket === this.#socket) this.#lost(error)
    else return
    socket.on('error', () => {})
    socket.destroy()
    this.#dialLater()
    if (!this.#closed) this.#options.onChange()
  }

  /** Unless it is being dialled, or closed. */
  #dialLater(): void {
    if (this.#closed || this.#next !== undefined) return
    clearTimeout(this.#timer)
    const retryMs = this.isSought ? RETRY_SOUGHT_MS : RETRY_MS
    this.#timer = setTimeout(this.#dialNow, retryMs * (0.5 + Math.random() / 2)).unref()
  }

  #lost(error: Error): void {
    this.#options.logger.warn({ replica: this.name, err: error }, 'lost another replica')
    this.#socket = undefined
    this.#session = undefined
    this.#pingedMs = 0
    this.#forgetTold()
  }

  /** Finishes streams that would go on for ever. */
  leave(): void {
    this.#session?.leave()
    this.#spent?.leave()
  }

  close(): void {
    this.#closed = true
    clearTimeout(this.#timer)
    this.#session?.close('the replica stops')
    this.#spent?.close('the replica stops')
    this.#next?.destroy()
  }
}
