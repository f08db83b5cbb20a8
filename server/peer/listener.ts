/** Where other replicas connect: they hand over exchanges, and ask what this one was granted. */
import type { TLSSocket, Server as TlsServer } from 'node:tls'
import { createServer } from 'node:tls'
import type { Logger } from '../../protocol/log.ts'
import { Session, type SessionOptions } from '../../protocol/yamux/session.ts'
import type { Stream } from '../../protocol/yamux/stream.ts'
import { listenOn } from '../socket/listen.ts'
import { type PeerMessage, parsePeerMessage } from './messages.ts'
import { type SplicedSession, splice } from './splice.ts'
import { isReplica, type PeerTls, peerTlsOptions } from './tls.ts'
import { PeerTransport } from './transport.ts'

export interface PeerListenerOptions {
  readonly replica: string
  readonly tls: PeerTls
  readonly session: Partial<SessionOptions>
  readonly logger: Logger
  readonly pick: (runtime: string, epoch: number) => SplicedSession | undefined
  /** What has changed in so many milliseconds, or all that this replica knows (-1), as texts. */
  readonly standings: (agoMs: number) => Iterable<string>
  /** Another replica says who it is: the directory may not have told us yet. */
  readonly onReplica: (name: string, address: string) => void
}

const HANDSHAKE_MS = 5000
const MAX_LINKS = 1000
/** What other replicas had sent before they heard that this one stops is refused in this time. */
const GOODBYE_MS = 500

export class PeerListener {
  readonly #options: PeerListenerOptions
  readonly #server: TlsServer
  /** With whether the other end asks: then it cannot reach the directory. */
  readonly #sessions = new Map<Session, boolean>()
  /** Exchanges that other replicas handed over, since the start. */
  taken = 0

  constructor(options: PeerListenerOptions) {
    this.#options = options
    this.#server = createServer(
      { ...peerTlsOptions(options.tls), requestCert: true, rejectUnauthorized: true, handshakeTimeout: HANDSHAKE_MS },
      socket => this.#accept(socket),
    )
    this.#server.maxConnections = MAX_LINKS
    this.#server.on('tlsClientError', (error, socket) => {
      options.logger.warn({ err: error, peer: socket.remoteAddress }, 'who asked for this replica was not let in')
      socket.destroy()
    })
  }

  get links(): number {
    return this.#sessions.size
  }

  async listen(host: string, port: number): Promise<{ host: string; port: number }> {
    return listenOn(this.#server, host, port, this.#options.logger)
  }

  /** For connections from now on. */
  setTls(tls: PeerTls): void {
    this.#server.setSecureContext(peerTlsOptions(tls))
  }

  #accept(socket: TLSSocket): void {
    socket.on('error', () => {})
    if (!isReplica(socket)) {
      this.#options.logger.warn({ peer: socket.remoteAddress }, 'a certificate of no replica was not let in')
      socket.destroy()
      return
    }
    socket.setNoDelay(true)
    const session: Session = new Session(new PeerTransport(socket), {
      ...this.#options.session,
      role: 'server',
      logger: this.#options.logger,
      onStream: stream => this.#take(stream, session),
      onControl: text => this.#message(session, parsePeerMessage(text)),
      onClose: () => this.#sessions.delete(session),
    })
    this.#sessions.set(session, false)
    say(session, { type: 'replica', name: this.#options.replica, address: '' })
  }

  #take(stream: Stream, session: Session): void {
    this.taken++
    splice(stream, {
      pick: this.#options.pick,
      leave: left => say(session, { type: 'leave', stream: left.id }),
    })
  }

  #message(session: Session, message: PeerMessage | undefined): void {
    switch (message?.type) {
      case 'replica':
        this.#options.onReplica(message.name, message.address)
        return
      case 'ask':
        this.#sessions.set(session, true)
        if (message.agoMs !== undefined) this.#tellAll(session, message.agoMs)
        say(session, { type: 'told', number: message.number })
        return
      case 'enough':
        this.#sessions.set(session, false)
        return
      default:
        return
    }
  }

  #tellAll(session: Session, agoMs: number): void {
    for (const standing of this.#options.standings(agoMs)) say(session, { type: 'standing', standing })
  }

  /** `all`: what this replica was granted; else what it heard, for those who have no other way to learn it. */
  tell(standing: () => string, all: boolean): void {
    for (const [session, asks] of this.#sessions) {
      if (all || asks) say(session, { type: 'standing', standing: standing() })
    }
  }

  /** Nothing is granted to this replica any more. */
  bye(): void {
    for (const session of this.#sessions.keys()) say(session, { type: 'bye' })
  }

  /** Takes no more exchanges, lets those end that are open, for a moment, and closes. */
  async close(): Promise<void> {
    this.#server.close()
    const sessions = [...this.#sessions.keys()]
    for (const session of sessions) session.goAway()
    await Promise.all(sessions.map(session => idle(session)))
    for (const session of sessions) session.close('the replica stops')
  }
}

/** Resolves when no stream is open, or it has taken too long. */
async function idle(session: Session): Promise<void> {
  const untilMs = performance.now() + GOODBYE_MS
  do await new Promise(resolve => setTimeout(resolve, GOODBYE_MS / 10))
  while (session.streams > 0 && !session.closed && performance.now() < untilMs)
}

function say(session: Session, message: PeerMessage): void {
  session.control(message)
}
