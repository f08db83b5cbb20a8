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
  /** All that this replica knows, as texts. */
  readonly standings: () => Iterable<string>
}

const HANDSHAKE_MS = 5000
const MAX_LINKS = 1000
/** Who asked not longer ago than this still asks. */
const ASKING_MS = 5000

export class PeerListener {
  readonly #options: PeerListenerOptions
  readonly #server: TlsServer
  /** With the time of the last question: who asks cannot reach the directory. */
  readonly #sessions = new Map<Session, number>()
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
    this.#sessions.set(session, Number.NEGATIVE_INFINITY)
    say(session, { type: 'replica', name: this.#options.replica })
  }

  #take(stream: Stream, session: Session): void {
    this.taken++
    splice(stream, {
      pick: this.#options.pick,
      leave: left => say(session, { type: 'leave', stream: left.id }),
    })
  }

  #message(session: Session, message: PeerMessage | undefined): void {
    if (message?.type !== 'ask') return
    this.#sessions.set(session, performance.now())
    if (message.whole) for (const standing of this.#options.standings()) say(session, { type: 'standing', standing })
    say(session, { type: 'told', number: message.number })
  }

  /** `all`: what this replica was granted; else what it heard, for those who have no other way to learn it. */
  tell(standing: () => string, all: boolean): void {
    const sinceMs = performance.now() - ASKING_MS
    for (const [session, askedMs] of this.#sessions) {
      if (all || askedMs > sinceMs) say(session, { type: 'standing', standing: standing() })
    }
  }

  /** Nothing is granted to this replica any more. */
  bye(): void {
    for (const session of this.#sessions.keys()) say(session, { type: 'bye' })
  }

  close(): void {
    this.#server.close()
    for (const session of this.#sessions.keys()) session.close('the replica stops')
  }
}

function say(session: Session, message: PeerMessage): void {
  session.control(message)
}
