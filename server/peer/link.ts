/** The connection that this replica keeps to another one. It carries exchanges there, and asks what the other was granted. */
import { connect, type TLSSocket } from 'node:tls'
import { errorOf, SallyportError } from '../../protocol/base/errors.ts'
import { endFor, guardWith } from '../../protocol/base/guard.ts'
import { formatAddress, type HostPort } from '../../protocol/base/host-port.ts'
import { LastProblem } from '../../protocol/base/last-problem.ts'
import type { Logger } from '../../protocol/base/log.ts'
import type { Session, SessionOptions } from '../../protocol/wire/yamux/session.ts'
import type { Stream } from '../../protocol/wire/yamux/stream.ts'
import { createSession } from '../../protocol/wire/yamux/yamux-session.ts'
import type { SpanReport } from '../control/returned-spans.ts'
import { type PeerMessage, parsePeerMessage } from './messages.ts'
import { retire } from './retire.ts'
import { isReplica, PEER_NAME, type PeerTls, peerTlsOptions } from './tls.ts'
import { PeerTransport } from './transport.ts'

interface LinkOptions {
  /** Name of this replica, and the address at which it can be reached. */
  readonly replica: string
  readonly address: () => string
  readonly tls: () => PeerTls
  readonly session: Partial<SessionOptions>
  readonly logger: Logger
  readonly now: () => number
  /** Called with a state that the other replica tells, as text. `isAnswer`: we asked about this runtime. */
  readonly onStanding: (text: string, isAnswer: boolean) => void
  /** Called with spans that a session there returned for attempts that were sent over this link. */
  readonly onSpans: (report: SpanReport) => void
  /** Called when exchanges can be sent there. */
  readonly onUp: () => void
  /** Called when the link is up or down, or the other replica has answered. */
  readonly onChange: () => void
}

/** How long a connection may take until the other end has told its name. */
const CONNECT_MS = 3000
const RETRY_MS = 1000
/** The same for a replica that is probably dead. */
const RETRY_DEAD_MS = 10_000
/** Most questions without an answer. */
const MAX_ASKED = 8
/** How long an answer about a runtime is waited for. */
const ABOUT_MS = 1000
/** Replicas agree on how long ago something was, except for the time that messages take. */
const MARGIN_MS = 1000
/** A link whose ping has not been answered for this long gets no exchanges while another link is healthy. */
const STALE_MS = 1500

export class PeerLink {
  readonly name: string
  readonly address: string
  readonly #to: HostPort
  readonly #options: LinkOptions
  /** The session in use. The other end has told its name. */
  #session: Session | undefined
  #socket: TLSSocket | undefined
  /** The connection that will replace it: it is being dialled, or the other end has not told its name. */
  #next: TLSSocket | undefined
  /** The session in use, and those before it, whose open streams go on. */
  readonly #sessions = new Set<Session>()
  #timer: NodeJS.Timeout | undefined
  #closed = false
  /** The replica has announced that it stops, so it is granted nothing any more. */
  departed = false
  /** When it was last dialled, nobody listened at its address. */
  refused = false
  /** It has told everything that changed since the directory was last reachable, and tells all news. `asked` while the answer is pending. */
  #caughtUp: boolean | 'asked' = false
  /** When the last answered question was sent. */
  #toldMs = Number.NEGATIVE_INFINITY
  /** Its lease had ended before it was dialled, and it has not answered. Its word is not needed to vouch. */
  isPresumedDead = false
  /** Since when the directory no longer lists it. */
  missedMs: number | undefined
  exchanges = 0
  #number = 0
  /** When each pending question was sent. */
  readonly #asked = new Map<number, number>()
  /** What to call when the other replica has answered about a runtime. */
  readonly #askedAbout = new Map<string, () => void>()
  #pingedMs = 0
  /** Why it was not connected the last time that it was tried. */
  readonly #problem = new LastProblem()

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

  /** Whether it has not answered a ping for a while. */
  get stale(): boolean {
    return this.#pingedMs > 0 && this.#options.now() - this.#pingedMs > STALE_MS
  }

  get rttMs(): number {
    return this.#session?.rttMs ?? 0
  }

  get streams(): number {
    let streams = 0
    for (const session of this.#sessions) streams += session.streams
    return streams
  }

  /** Throws `overloaded` if the link can take no more streams. */
  open(): Stream {
    if (this.#session === undefined) throw new SallyportError('overloaded', 'the replica is not connected')
    return this.#session.open()
  }

  /** If dialling fails immediately, as with an unusable certificate, it is tried again later. */
  readonly #dialNow = (): void => {
    try {
      clearTimeout(this.#timer)
      this.#dial()
    } catch (error) {
      endFor(error, this.#options.logger, 'dialling another replica failed', () => this.#dialLater())
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
      else this.#failed(socket, new Error('the other end is not a replica'))
    })
    let problem = new Error('the connection was closed')
    const failed = guard((error: NodeJS.ErrnoException) => {
      this.refused = error.code === 'ECONNREFUSED'
      problem = error
    })
    const closed = guard(() => {
      clearTimeout(timer)
      this.#failed(socket, problem)
    })
    socket.once('secureConnect', secured)
    socket.on('error', failed)
    socket.on('close', closed)
  }

  /** An error in an event handler or a timer ends the connection, and another one is tried. */
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
      // Dials another connection to take over while there are ids left.
      onIdsLow: () => this.#dialLater(),
      onIdle: () => this.#closeIdle(),
      onGoAway: () => this.#sentAway(session),
      onClose: (error, reason) => {
        this.#sessions.delete(session)
        this.#failed(socket, error ?? new Error(reason))
      },
    })
    session.control({ type: 'replica', name: this.#options.replica, address: this.#options.address() })
  }

  #closeIdle(): void {
    for (const session of this.#sessions) {
      if (session !== this.#session && session.streams === 0) session.close('replaced by another connection')
    }
  }

  /** The other replica wants our certificate anew, unless it stops. */
  #sentAway(session: Session): void {
    if (this.departed || session !== this.#session) return
    this.#retire()
    this.#dialLater()
  }

  /** An authority was dropped, so the other replica's certificate is needed anew. */
  renew(): void {
    this.#next?.destroy()
    this.#retire()
    this.#dialNow()
  }

  /** No more exchanges on this connection. Those in progress get a while to end. */
  #retire(): void {
    this.#forget()
    for (const session of this.#sessions) {
      session.leave()
      retire(session, this.#options.logger)
    }
    this.#closeIdle()
    this.#options.onChange()
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
        this.#options.onStanding(message.standing, false)
        return
      case 'about':
        if (message.standing !== undefined) this.#options.onStanding(message.standing, true)
        this.#askedAbout.get(message.runtime)?.()
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
        // Comes after all streams that the replica was given, so it need not wait for more.
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
      // That another replica answers there says nothing about the one we look for, which may still be connected to us.
      session.close('expected another replica')
      return
    }
    this.departed = false
    this.isPresumedDead = false
    this.#next = undefined
    this.#problem.clear()
    // Pending questions were sent on the old connection, and can only be answered there.
    this.#forget()
    this.#sessions.add(session)
    this.#session = session
    this.#socket = socket
    this.#closeIdle()
    this.#options.logger.info({ replica: this.name, address: this.address }, 'connected to another replica')
    this.#options.onChange()
    this.#options.onUp()
  }

  /** Asks whether it has told everything. `sinceMs` is when the directory was last reachable. */
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

  /** Asks what it knows about the runtime. Resolves once it has answered, is no longer connected, or takes too long. */
  async askAbout(runtime: string): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#askedAbout.set(runtime, resolve)
    this.#say({ type: 'about', runtime })
    const timer = setTimeout(resolve, ABOUT_MS).unref()
    await promise
    clearTimeout(timer)
    this.#askedAbout.delete(runtime)
  }

  /** The directory can be reached, so the other replica need not be asked. */
  enough(): void {
    this.#forgetTold()
    this.#say({ type: 'enough' })
  }

  #forgetTold(): void {
    this.#caughtUp = false
    this.#toldMs = Number.NEGATIVE_INFINITY
    this.#asked.clear()
  }

  /** Until when the other replica vouches to have told everything. `-Infinity` if it does not. */
  get vouchedMs(): number {
    return this.up && this.#caughtUp === true ? this.#toldMs : Number.NEGATIVE_INFINITY
  }

  /** Call it often, so that a link that does not answer is noticed before it is closed. */
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
    if (socket === this.#next) this.#notConnected(error)
    else if (socket === this.#socket) this.#lost(error)
    else return
    socket.on('error', () => {})
    socket.destroy()
    this.#dialLater()
    if (!this.#closed) this.#options.onChange()
  }

  /** Of a replica that stops, or is probably dead, nobody expects a connection. */
  #notConnected(error: Error): void {
    this.#next = undefined
    if (this.#closed || this.departed || this.isPresumedDead || !this.#problem.isNew(error)) return
    const { name, address } = this
    this.#options.logger.warn({ replica: name, address, err: error }, 'cannot connect to another replica')
  }

  /** Does nothing if a connection is being dialled, or the link is closed. */
  #dialLater(): void {
    if (this.#closed || this.#next !== undefined) return
    clearTimeout(this.#timer)
    const retryMs = this.isPresumedDead ? RETRY_DEAD_MS : RETRY_MS
    this.#timer = setTimeout(this.#dialNow, retryMs * (0.5 + Math.random() / 2)).unref()
  }

  #lost(error: Error): void {
    this.#options.logger.warn({ replica: this.name, err: error }, 'lost another replica')
    this.#forget()
  }

  /** The session is no longer in use. */
  #forget(): void {
    this.#socket = undefined
    this.#session = undefined
    this.#pingedMs = 0
    this.#forgetTold()
    for (const answered of this.#askedAbout.values()) answered()
  }

  /** Tells exchanges that would go on forever to end. */
  leave(): void {
    for (const session of this.#sessions) session.leave()
  }

  close(): void {
    this.#closed = true
    clearTimeout(this.#timer)
    for (const session of this.#sessions) session.close('the replica stops')
    this.#next?.destroy()
  }
}
