/**
 * One of the client's connections: a loop that keeps one session in service, around a step that dials and stays until
 * the session ends or is to be replaced.
 */
import type { WebSocket } from 'ws'
import type { Backoff } from './backoff.ts'
import type { ClientSession, SessionOwner } from './session.ts'

/** A dial that came to nothing; the message says why, in words. */
export class Unreachable extends Error {
  override readonly name = 'Unreachable'
  /** The server's answer was no: trying again soon is of no use. */
  readonly refused: { readonly status: number; readonly requestId: string | undefined } | undefined

  constructor(message: string, refused: Unreachable['refused'], options?: { cause?: unknown }) {
    super(message, options)
    this.refused = refused
  }
}

/** The rest of the client, as a connection sees it. */
export interface ConnectionOwner {
  /** The client closes. */
  readonly signal: AbortSignal
  /** Opens a WebSocket to the server whose turn it is; rejects with {@link Unreachable}. */
  dial(connection: number, attempt: number): Promise<WebSocket>
  openSession(socket: WebSocket, connection: number, listener: SessionListener): ClientSession
  onConnected(session: ClientSession, connection: number): void
  /** A session that was in service has ended. */
  onDisconnected(session: ClientSession, connection: number, reason: string): void
  onReconnecting(connection: number, inMs: number, reason: string): void
  /** `status` is 0 where the server closed a session for it. */
  onRefused(connection: number, reason: string, status: number, requestId: string | undefined): void
}

export type SessionListener = Pick<SessionOwner, 'onReady' | 'onLeave' | 'onClosed'>

/** What came of one dial and its session. */
type Outcome =
  | { readonly kind: 'failed'; readonly reason: string; readonly refused: boolean }
  | { readonly kind: 'lost'; readonly reason: string; readonly livedMs: number }
  /** The server asked us to go elsewhere; the old session lives on until it says bye. */
  | { readonly kind: 'replace' }

/** No Close frame came (RFC 6455 section 7.1.5). */
const CLOSE_ABNORMAL = 1006
/** WebSocket close code with which a server ends a session whose token it takes no more. */
const CLOSE_REFUSED = 4401

export class Connection {
  readonly index: number
  /** The session in service, or on its way there. */
  current: ClientSession | undefined
  /** Why there is none, in words. */
  lastError: string | undefined
  /** Dials so far. */
  attempts = 0
  readonly #owner: ConnectionOwner
  readonly #backoff: Backoff
  /** Told to go, and waiting for its replacement. */
  #leaving: ClientSession | undefined
  #wake: (() => void) | undefined

  constructor(index: number, owner: ConnectionOwner, backoff: Backoff) {
    this.index = index
    this.#owner = owner
    this.#backoff = backoff
  }

  /** Keeps a session in service until the owner's signal. Never rejects. */
  async run(): Promise<void> {
    while (!this.#owner.signal.aborted) {
      const outcome = await this.#once()
      if (this.#owner.signal.aborted) return
      if (outcome.kind === 'replace') continue
      this.#released()
      this.lastError = outcome.reason
      const waitMs = this.#waitFor(outcome)
      this.#owner.onReconnecting(this.index, waitMs, outcome.reason)
      await this.#sleep(waitMs)
    }
  }

  /** Tries again at once, if it waits. */
  retry(): void {
    this.#wake?.()
  }

  #waitFor(outcome: Exclude<Outcome, { kind: 'replace' }>): number {
    if (outcome.kind === 'lost') return this.#backoff.lost(outcome.livedMs)
    return outcome.refused ? this.#backoff.refused() : this.#backoff.failed()
  }

  async #once(): Promise<Outcome> {
    let socket: WebSocket
    try {
      socket = await this.#owner.dial(this.index, this.attempts++)
    } catch (error) {
      return this.#failed(error)
    }
    if (!this.#owner.signal.aborted) return await this.#serve(socket)
    socket.terminate()
    return { kind: 'failed', reason: 'closed', refused: false }
  }

  #failed(error: unknown): Outcome {
    const reason = error instanceof Error ? error.message : String(error)
    const refused = error instanceof Unreachable ? error.refused : undefined
    if (refused !== undefined) this.#owner.onRefused(this.index, reason, refused.status, refused.requestId)
    return { kind: 'failed', reason, refused: refused !== undefined }
  }

  /** Settles when the session has ended, or another should be opened beside it. */
  #serve(socket: WebSocket): Promise<Outcome> {
    const { promise, resolve } = Promise.withResolvers<Outcome>()
    let closeCode = 0
    let served = false
    socket.once('close', code => {
      closeCode = code
    })
    this.current = this.#owner.openSession(socket, this.index, {
      onReady: session => {
        served = true
        this.lastError = undefined
        this.#released()
        this.#owner.onConnected(session, this.index)
      },
      onLeave: session => {
        this.#leaving = session
        this.current = undefined
        resolve({ kind: 'replace' })
      },
      onClosed: (session, told) => {
        const cut = closeCode === CLOSE_ABNORMAL && session.farewell === undefined
        const reason = cut ? 'the network cut the connection' : told
        if (this.current === session) this.current = undefined
        if (this.#leaving === session) this.#leaving = undefined
        const refused = closeCode === CLOSE_REFUSED
        if (refused) this.#owner.onRefused(this.index, `the server ended the session: ${reason}`, 0, undefined)
        if (served) this.#owner.onDisconnected(session, this.index, reason)
        resolve(served ? { kind: 'lost', reason, livedMs: session.livedMs } : { kind: 'failed', reason, refused })
      },
    })
    return promise
  }

  /** The session that was to be replaced need not be kept in service any longer. */
  #released(): void {
    this.#leaving?.left()
    this.#leaving = undefined
  }

  #sleep(ms: number): Promise<void> {
    return new Promise(resolve => {
      const { signal } = this.#owner
      const done = () => {
        clearTimeout(timer)
        signal.removeEventListener('abort', done)
        this.#wake = undefined
        resolve()
      }
      const timer = setTimeout(done, ms)
      this.#wake = done
      if (signal.aborted) done()
      else signal.addEventListener('abort', done)
    })
  }
}
