/** The listener for other replicas, which hand over exchanges and ask what this replica was granted. */

import type { Socket } from 'node:net'
import type { TLSSocket, Server as TlsServer } from 'node:tls'
import { createServer } from 'node:tls'
import { canonicalAddress } from '../../protocol/base/address.ts'
import { errorOf } from '../../protocol/base/errors.ts'
import { detached, endFor, ignore, logGuard } from '../../protocol/base/guard.ts'
import { LastProblem } from '../../protocol/base/last-problem.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { KEEP_ALIVE } from '../../protocol/base/tcp.ts'
import { ConnectionSet } from '../../protocol/http/connection-set.ts'
import { type BoundAddress, type ListenAddress, listenOn, stopListening } from '../../protocol/http/listen-on.ts'
import { PendingConnections } from '../../protocol/http/pending-connections.ts'
import type { Session, SessionOptions } from '../../protocol/wire/yamux/session.ts'
import { createSession } from '../../protocol/wire/yamux/yamux-session.ts'
import { type PeerMessage, parsePeerMessage } from './messages.ts'
import { retire } from './retire.ts'
import { type SpliceOwner, splice } from './splice.ts'
import { isReplica, type PeerTls, peerTlsOptions } from './tls.ts'
import { PeerTransport } from './transport.ts'

interface PeerListenerOptions {
  readonly replica: string
  readonly tls: PeerTls
  readonly session: Partial<SessionOptions>
  readonly logger: Logger
  readonly pick: SpliceOwner['pick']
  /** The states that have changed in this many milliseconds, or all states (-1), as text. */
  readonly states: (agoMs: number) => Iterable<string>
  /** The state of the runtime as text, if it may be acted on. */
  readonly stateOf: (runtime: string) => string | undefined
  /** Another replica has told its name and address. We may not know it from the directory yet. */
  readonly onReplica: (name: string, address: string) => void
}

const HANDSHAKE_MS = 5000
const MAX_HANDSHAKES = 1000
const MAX_LINKS = 1000
/** How long a stopping replica waits for the others' answers, and for their exchanges to end. */
const GOODBYE_MS = 2000
/** Most answers that wait for a replica to read: about runtimes, and with all that has changed. It has fewer questions at a time. */
const MAX_WAITING_ABOUT = 10_000
const MAX_WAITING = 16
/** How many states are sent in one turn of the event loop. */
const SLICE = 256

export class PeerListener {
  readonly #options: PeerListenerOptions
  readonly #server: TlsServer
  readonly #handshakes = new ConnectionSet(MAX_HANDSHAKES)
  readonly #pending = new PendingConnections(this.#handshakes)
  readonly #guests = new Map<Session, Guest>()
  /** Why the last connection from an address was refused. */
  readonly #problems = new Map<string, LastProblem>()
  #place: ListenAddress = { port: 0 }
  #opening: Promise<BoundAddress> | undefined
  #closing = false
  /** Exchanges that other replicas handed over, since the start. */
  taken = 0

  constructor(options: PeerListenerOptions) {
    this.#options = options
    const tls = { ...peerTlsOptions(options.tls), rejectUnauthorized: true }
    this.#server = createServer({ ...tls, ...KEEP_ALIVE, handshakeTimeout: HANDSHAKE_MS })
    const connected = this.#guarded((socket: Socket) => {
      if (this.#handshakes.makeRoom(canonicalAddress(socket.remoteAddress ?? ''))) this.#pending.add(socket)
      else socket.destroy()
    })
    const secured = this.#guarded((socket: TLSSocket) => {
      socket.on('error', ignore)
      if (this.#pending.isOutdated(socket)) socket.destroy()
      else this.#accept(socket)
      this.#pending.settle(socket)
    })
    this.#server.on('connection', connected)
    this.#server.on('secureConnection', secured)
    const guard = logGuard(options.logger, 'closing a refused connection failed')
    const failed = guard((error: Error, socket: TLSSocket & { _parent?: Socket }) => {
      // The TLS socket is destroyed and no longer knows the address. The socket below it remembers what `connected` asked.
      const { remoteAddress } = socket._parent ?? socket
      const cause = errorOf(socket.authorizationError ?? error)
      this.#refused(remoteAddress, 'TLS handshake of another replica failed', cause)
      socket.destroy()
    })
    this.#server.on('tlsClientError', failed)
  }

  /** An error on one connection ends only that connection. */
  #guarded<Of extends Socket>(step: (socket: Of) => void): (socket: Of) => void {
    return socket => {
      try {
        step(socket)
      } catch (error) {
        endFor(error, this.#options.logger, 'the connection of another replica failed', () => socket.destroy())
      }
    }
  }

  get streams(): number {
    let streams = 0
    for (const session of this.#guests.keys()) streams += session.streams
    return streams
  }

  listen(place: ListenAddress): Promise<BoundAddress> {
    this.#place = place
    this.#opening = listenOn(this.#server, place, this.#options.logger)
    return this.#opening
  }

  /** Sets the certificate for new connections. */
  setTls(tls: PeerTls): void {
    this.#server.setSecureContext(peerTlsOptions(tls))
  }

  /** An authority was dropped, so the others have to connect again. Exchanges in progress get a while to end. */
  renew(): void {
    this.#pending.outdate()
    for (const session of this.#guests.keys()) {
      session.goAway()
      retire(session, this.#options.logger)
    }
  }

  /** Another replica tries again every second, so its log line comes once. */
  #refused(peer: string | undefined, message: string, err?: Error): void {
    if (this.#problems.size >= MAX_LINKS) this.#problems.clear()
    const problem = this.#problems.get(peer ?? '') ?? new LastProblem()
    this.#problems.set(peer ?? '', problem)
    if (problem.isNew(err, message)) this.#options.logger.warn({ err, peer }, message)
  }

  #accept(socket: TLSSocket): void {
    if (this.#closing || this.#guests.size >= MAX_LINKS) {
      socket.destroy()
      return
    }
    if (!isReplica(socket)) {
      this.#refused(socket.remoteAddress, "refused a connection: its certificate is not a replica's")
      socket.destroy()
      return
    }
    this.#problems.delete(socket.remoteAddress ?? '')
    socket.setNoDelay(true)
    const transport = new PeerTransport(socket)
    const session: Session = createSession(transport, {
      ...this.#options.session,
      role: 'server',
      logger: this.#options.logger,
      onStream: stream => {
        this.taken++
        splice(stream, owner)
      },
      onControl: text => this.#message(session, guest, parsePeerMessage(text)),
      onIdle: () => guest.check(session),
      onClose: () => {
        this.#guests.delete(session)
        guest.leave()
      },
    })
    const guest = new Guest(transport)
    const owner: SpliceOwner = {
      pick: this.#options.pick,
      leave: stream => say(session, { type: 'leave', stream: stream.id }),
      tell: report => say(session, { type: 'spans', ...report }),
    }
    this.#guests.set(session, guest)
    say(session, { type: 'replica', name: this.#options.replica, address: '' })
  }

  #message(session: Session, guest: Guest, message: PeerMessage | undefined): void {
    switch (message?.type) {
      case 'replica':
        this.#options.onReplica(message.name, message.address)
        return
      case 'ask':
        guest.asks = true
        detached(this.#options.logger, 'answering another replica failed', this.#answer(session, guest, message))
        return
      case 'about':
        detached(this.#options.logger, 'answering another replica failed', this.#answerAbout(session, guest, message))
        return
      case 'enough':
        guest.asks = false
        return
      case 'bye':
        guest.confirmed = true
        guest.check(session)
        return
      default:
        return
    }
  }

  /** Sends in slices, no faster than the other replica reads, since sending everything that a replica knows may take a second or more. */
  async #answer(session: Session, guest: Guest, question: PeerMessage & { type: 'ask' }): Promise<void> {
    const { number, agoMs } = question
    guest.question = question
    let count = 0
    for (const standing of agoMs === undefined ? [] : this.#options.states(agoMs)) {
      if (++count % SLICE === 0 || guest.transport.full) await this.#drained(session, guest, 'asks', MAX_WAITING)
      if (session.closed || guest.question !== question) return
      say(session, { type: 'standing', standing })
    }
    say(session, { type: 'told', number })
  }

  /** Waits until the replica has read. One that has too many answers waiting does not, so its connection ends. */
  async #drained(session: Session, { transport, waiting }: Guest, kind: keyof Guest['waiting'], most: number) {
    if (waiting[kind] >= most) {
      session.close('too many answers wait')
      return
    }
    waiting[kind]++
    await transport.drained()
    waiting[kind]--
  }

  async #answerAbout(session: Session, guest: Guest, { runtime }: PeerMessage & { type: 'about' }) {
    if (guest.transport.full) await this.#drained(session, guest, 'abouts', MAX_WAITING_ABOUT)
    if (session.closed) return
    const standing = this.#options.stateOf(runtime)
    say(session, { type: 'about', runtime, ...(standing === undefined ? {} : { standing }) })
  }

  /** With `all`, this replica was granted the state, and tells everybody. Otherwise it tells only replicas that cannot learn it elsewhere. */
  tell(state: () => string, all: boolean): void {
    for (const [session, { asks }] of this.#guests) {
      if (all || asks) say(session, { type: 'standing', standing: state() })
    }
  }

  /**
   * Announces that this replica will be granted nothing any more and takes no more exchanges. Closes when the others have confirmed and
   * open exchanges have ended, or after a moment.
   */
  async close(): Promise<void> {
    this.#closing = true
    // A start that is aborted may be in the middle of it.
    await this.#opening?.catch(ignore)
    await stopListening(this.#server, this.#place)
    this.#handshakes.destroyAll()
    const guests = [...this.#guests]
    for (const [session] of guests) {
      say(session, { type: 'bye' })
      session.goAway()
    }
    await Promise.all(guests.map(([session, guest]) => guest.gone(session)))
    for (const [session] of guests) session.close('the replica stops')
  }
}

/** The state of another replica that is connected. */
class Guest {
  /** It cannot reach the directory. */
  asks = false
  /** The last question. An answer to an earlier one goes no further. */
  question: PeerMessage | undefined
  readonly transport: PeerTransport
  /** Answers that wait until it has read. */
  readonly waiting = { asks: 0, abouts: 0 }
  /** It has confirmed that this replica stops, and hands over no more exchanges. */
  confirmed = false
  readonly #left = Promise.withResolvers<void>()

  constructor(transport: PeerTransport) {
    this.transport = transport
  }

  /** Resolves when it has confirmed and no stream is open, or after too long a time. */
  async gone(session: Session): Promise<void> {
    const late = setTimeout(this.#left.resolve, GOODBYE_MS)
    this.check(session)
    await this.#left.promise
    clearTimeout(late)
  }

  check({ streams }: Session): void {
    if (this.confirmed && streams === 0) this.leave()
  }

  leave(): void {
    this.#left.resolve()
  }
}

function say(session: Session, message: PeerMessage): void {
  session.control(message)
}
