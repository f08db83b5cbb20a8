/**
 * One session of one client: hello, welcome, ready, reauth, drain, and its end. The data path takes streams from it; all
 * else here happens a few times in a session's life.
 *
 *     hello -> open -> (draining ->) closed
 */
import { performance } from 'node:perf_hooks'
import {
  type ControlMessage,
  commonFeatures,
  type Drain,
  type Hello,
  MINOR_VERSION,
  type Notice,
  type PeerLimits,
  parseControl,
} from '../../protocol/control.ts'
import { SallyportError } from '../../protocol/errors.ts'
import { type Cidrs, parseCidrs } from '../../protocol/forwarded.ts'
import type { Logger } from '../../protocol/log.ts'
import type { Transport } from '../../protocol/transport.ts'
import type { BufferBudget } from '../../protocol/yamux/budget.ts'
import { clampWindow, TokenBucket } from '../../protocol/yamux/limits.ts'
import { Session, type SessionOptions } from '../../protocol/yamux/session.ts'
import type { Stream } from '../../protocol/yamux/stream.ts'
import type { Identity } from '../auth/claims.ts'
import { TokenRefused } from '../auth/refusal.ts'
import type { Grant } from '../directory/directory.ts'
import type { Member, Route } from '../registry.ts'
import { Alarm } from './alarm.ts'

/** WebSocket close codes (RFC 6455 section 7.4). */
export const CLOSE = { goingAway: 1001, protocolError: 1002, tryLater: 1013, refused: 4401 } as const

const SOFTWARE = 'sallyport/0.1.0'
const FEATURES: readonly string[] = []
/** A session whose token has ended drains for this long, then is cut: within 60 s, as promised. */
const EXPIRY_GRACE_MS = 50_000
/** How long a client that was asked to leave has to open another session, before this one gets no new exchanges. */
const MOVE_MS = 5000
/** Before a session ends, WebSockets that are told to close have so long to answer. */
const FAREWELL_MS = 1000
/** So long a session that refused an exchange gets none while another is well. */
const TIRED_MS = 1000
const MAX_REASON = 120
/** Messages that are a line in our log: so many at once, and per second in the long run. */
const NOTICE_BURST = 20
const NOTICES_PER_SECOND = 0.5
/** The same for tokens, each of which costs a check of its signature. */
const REAUTH_BURST = 100
const REAUTHS_PER_SECOND = 1

/** The rest of the server, as a session sees it. */
export interface SessionContext {
  readonly replica: string
  readonly logger: Logger
  readonly clockToleranceS: number
  readonly session: Partial<SessionOptions>
  readonly now: () => number
  /** Checks a token that came in band; throws {@link TokenRefused}. */
  reauthenticate(token: string, session: RuntimeSession): Promise<Identity>
  /** The client said hello: false if it may not stay, which was then said to it. */
  onHello(session: RuntimeSession, hello: Hello): boolean
  onReady(session: RuntimeSession): void
  onDrain(session: RuntimeSession): void
  onClosed(session: RuntimeSession, reason: string): void
}

type State = 'hello' | 'open' | 'draining' | 'closed'

export class RuntimeSession implements Member, Route {
  readonly hops = 0
  readonly id: string
  readonly runtime: string
  readonly address: string
  readonly thumbprint: string | undefined
  readonly connectedAt: number
  instance = ''
  connection = 0
  software = ''
  startedMs = 0
  lastEpoch = 0
  epoch = 0
  active = false
  identity: Identity
  exchanges = 0
  /** Who may call, by token or hello; undefined: everybody. */
  callers: Cidrs | undefined
  readonly #context: SessionContext
  readonly #session: Session
  #state: State = 'hello'
  #settled: (() => void) | undefined
  #announcedCallers: readonly string[] | undefined
  #clientReady = false
  #echoed = false
  #reauthenticating = false
  readonly #notices = new TokenBucket(NOTICE_BURST, NOTICES_PER_SECOND)
  readonly #reauths = new TokenBucket(REAUTH_BURST, REAUTHS_PER_SECOND)
  #lastStream = 0
  #tiredUntil = 0
  /** It still takes exchanges, but none that would go on for ever. */
  #leaving = false
  readonly #expiry: Alarm
  #timers: { moved?: NodeJS.Timeout; farewell?: NodeJS.Timeout; deadline?: NodeJS.Timeout } = {}
  #endReason = ''

  constructor(
    context: SessionContext,
    transport: Transport,
    client: {
      id: string
      identity: Identity
      address: string
      thumbprint: string | undefined
      /** The ceiling on bytes that this session and others hold. */
      budget: BufferBudget
      settled: () => void
    },
  ) {
    this.#context = context
    this.id = client.id
    this.identity = client.identity
    this.runtime = client.identity.runtime
    this.address = client.address
    this.thumbprint = client.thumbprint
    this.#settled = client.settled
    this.connectedAt = context.now()
    this.#expiry = new Alarm(
      context.now,
      this.#guarded(() => this.#expire()),
    )
    this.#session = new Session(transport, {
      ...context.session,
      processBudget: client.budget,
      role: 'server',
      logger: context.logger,
      onStream: stream => stream.reset('refused'),
      onControl: text => this.#control(text),
      onGoAway: () => this.#stopOpening(),
      onIdsLow: () => this.drain('the session has used up its stream ids', 5000, 60_000),
      onClose: (error, reason) => this.#closed(error?.message ?? reason),
    })
    this.#expiry.at(this.#endsAt())
  }

  get rttMs(): number {
    return this.#session.rttMs
  }

  get overdue(): boolean {
    return this.#session.overdue || performance.now() < this.#tiredUntil
  }

  refused(): void {
    this.#tiredUntil = performance.now() + TIRED_MS
  }

  get state(): State {
    return this.#state
  }

  get session(): Session {
    return this.#session
  }

  /** A stream for an exchange; throws `overloaded` when the session takes no more. */
  open(): Stream {
    const stream = this.#session.open()
    this.#lastStream = stream.id
    // Its handler is set in this turn.
    if (this.#leaving) queueMicrotask(() => stream.handler.leave?.())
    return stream
  }

  /** Whether new exchanges may go here: the token holds, and nobody drains. */
  get usable(): boolean {
    return this.#state === 'open' && !this.#session.closed && this.#context.now() < this.#endsAt()
  }

  #control(text: string): void {
    try {
      const message = parseControl(text)
      if (message !== undefined) this.#dispatch(message)
    } catch (error) {
      if (!(error instanceof SallyportError)) throw error
      this.#context.logger.warn({ session: this.id, runtime: this.runtime, err: error }, 'a client broke the protocol')
      this.end('protocol error', CLOSE.protocolError)
    }
  }

  #dispatch(message: ControlMessage): void {
    if (message.type === 'hello') {
      this.#hello(message)
      return
    }
    if (this.#state === 'hello') {
      this.end('hello comes first', CLOSE.protocolError)
      return
    }
    switch (message.type) {
      case 'ready':
        this.#clientReady = true
        this.#becomeReady()
        return
      case 'reauth':
        this.#reauth(message.token)
        return
      case 'drain':
        this.#drainedByClient(message)
        return
      case 'drained':
        this.#moved?.()
        return
      case 'notice':
        this.#notice(message)
        return
      case 'bye':
        this.end(message.reason ?? 'the client said bye', CLOSE.goingAway)
        return
      default:
        return
    }
  }

  #hello(hello: Hello): void {
    if (this.#state !== 'hello') {
      this.end('a second hello', CLOSE.protocolError)
      return
    }
    this.instance = hello.instance
    this.connection = hello.connection
    this.software = hello.software
    this.startedMs = hello.startedMs
    this.lastEpoch = hello.lastEpoch
    this.#announcedCallers = hello.allowCallers
    if (!this.#readCallers()) {
      this.end('allowCallers is malformed', CLOSE.protocolError)
      return
    }
    this.#settled?.()
    this.#settled = undefined
    this.#state = 'open'
    if (!this.#context.onHello(this, hello)) return
    const limits = this.#agree(hello)
    this.#session.control({
      type: 'welcome',
      minor: MINOR_VERSION,
      software: SOFTWARE,
      session: this.id,
      replica: this.#context.replica,
      runtime: this.runtime,
      epoch: this.epoch,
      limits,
      features: commonFeatures(hello.features, FEATURES),
    })
    this.#session.ping(() => {
      this.#echoed = true
      this.#becomeReady()
    })
  }

  /** One window for both ends, as the client wishes; a peer that names none keeps yamux's 256 KiB. */
  #agree(hello: Hello): PeerLimits {
    const windowBytes = hello.limits?.windowBytes
    if (windowBytes === undefined) return {}
    this.#session.setPeerLimits({ windowBytes })
    return { windowBytes: clampWindow(windowBytes) }
  }

  /** The token's list wins over the client's. */
  #readCallers(): boolean {
    const list = this.identity.allowCallers ?? this.#announcedCallers
    try {
      this.callers = list === undefined ? undefined : parseCidrs(list)
      return true
    } catch {
      return false
    }
  }

  #becomeReady(): void {
    if (this.#clientReady && this.#echoed && this.#state === 'open') this.#context.onReady(this)
  }

  granted(grant: Grant): void {
    this.epoch = grant.epoch
    this.active = grant.active
    if (this.#state !== 'closed') this.#session.control({ type: 'ready', epoch: grant.epoch, active: grant.active })
  }

  #notice({ message }: Notice): void {
    if (!this.#notices.take(this.#context.now())) return
    this.#context.logger.info({ session: this.id, runtime: this.runtime, notice: message }, 'the client says')
  }

  #reauth(token: string): void {
    if (this.#reauthenticating || !this.#reauths.take(this.#context.now())) {
      this.#session.control({ type: 'reauth-refused' })
      return
    }
    this.#reauthenticating = true
    this.#context.reauthenticate(token, this).then(
      this.#guarded(identity => this.#reauthenticated(identity)),
      this.#guarded(error => this.#reauthRefused(error)),
    )
  }

  #reauthenticated(identity: Identity): void {
    this.#reauthenticating = false
    if (this.#state === 'closed') return
    const before = this.identity
    this.identity = identity
    if (!this.#readCallers()) {
      this.identity = before
      this.#session.control({ type: 'reauth-refused' })
      return
    }
    this.#expiry.at(this.#endsAt())
    this.#session.control({ type: 'reauth-ok', expiresMs: Math.floor(identity.expiresAt * 1000) })
  }

  #reauthRefused(error: unknown): void {
    this.#reauthenticating = false
    const check = error instanceof TokenRefused ? `${error.check}: ${error.message}` : String(error)
    this.#context.logger.warn({ session: this.id, runtime: this.runtime, check }, 'a new token was refused')
    if (this.#state !== 'closed') this.#session.control({ type: 'reauth-refused', requestId: this.id })
  }

  #endsAt(): number {
    return (this.identity.expiresAt + this.#context.clockToleranceS) * 1000
  }

  /**
   * Asks the client to open another session after `afterMs`, and to leave this one. New exchanges come until it says that
   * it has (or does not within a while) and `until` resolves; what is open then may go on until `deadlineMs` from now.
   */
  drain(reason: string, afterMs: number, deadlineMs: number, until?: Promise<unknown>): void {
    if (this.#state === 'closed') return
    if (this.#state === 'hello') {
      this.end(reason, CLOSE.goingAway)
      return
    }
    this.#sayDrain(reason, afterMs, deadlineMs)
    this.#moved = this.#guarded(() => {
      clearTimeout(this.#timers.moved)
      this.#moved = undefined
      if (until === undefined) {
        this.#finish(CLOSE.goingAway)
        return
      }
      void until.then(this.#guarded(() => this.#finish(CLOSE.goingAway)))
    })
    clearTimeout(this.#timers.moved)
    this.#timers.moved = setTimeout(this.#moved, afterMs + MOVE_MS).unref()
    this.#endBy(deadlineMs, CLOSE.goingAway)
  }

  #expire(): void {
    this.#context.logger.warn({ session: this.id, runtime: this.runtime }, 'the token has ended; the session drains')
    if (this.#state !== 'hello') this.#sayDrain('the token has ended', 0, EXPIRY_GRACE_MS)
    this.#endBy(EXPIRY_GRACE_MS, CLOSE.refused)
    this.#finish(CLOSE.refused)
  }

  #sayDrain(reason: string, afterMs: number, deadlineMs: number): void {
    this.#endReason = reason.replace(/\p{Cc}/gu, ' ').slice(0, MAX_REASON)
    this.#session.control({ type: 'drain', reason: this.#endReason, afterMs, deadlineMs })
  }

  #drainedByClient({ reason, deadlineMs }: Drain): void {
    this.#endReason = `the client drains: ${reason}`
    this.#endBy(deadlineMs, CLOSE.goingAway)
    this.#stopOpening()
    this.#session.control({ type: 'drained', lastStream: this.#lastStream })
  }

  /** What would go on for ever is finished shortly before the session ends: what ends by itself is not disturbed. */
  #endBy(deadlineMs: number, code: number): void {
    clearTimeout(this.#timers.farewell)
    this.#timers.farewell = setTimeout(() => this.#leave(), untilFarewell(deadlineMs)).unref()
    clearTimeout(this.#timers.deadline)
    this.#timers.deadline = setTimeout(
      this.#guarded(() => this.end(this.#endReason, code)),
      deadlineMs,
    ).unref()
  }

  #leave(): void {
    this.#leaving = true
    this.#session.leave()
  }

  /** Takes nothing new, and ends when its last exchange does. */
  #finish(code: number): void {
    if (this.#state === 'closed') return
    this.#stopOpening()
    this.#endCode = code
    this.#endWhenIdle()
  }

  /** Set while we wait for the client to have its new session: it says so by `drained`. */
  #moved: (() => void) | undefined

  /** Set when the session ends by itself as soon as its last exchange does. */
  #endCode = 0

  /** An exchange of this session is over. */
  released(): void {
    this.exchanges--
    if (this.#endCode !== 0) this.#endWhenIdle()
  }

  #endWhenIdle(): void {
    if (this.exchanges > 0 || this.#state === 'closed') return
    this.#session.control({ type: 'bye', reason: this.#endReason.slice(0, MAX_REASON) })
    this.end(this.#endReason, this.#endCode)
  }

  #stopOpening(): void {
    if (this.#state !== 'open') return
    this.#state = 'draining'
    this.#context.onDrain(this)
  }

  /** What goes wrong in a timer or a promise of this session ends this session, and nothing else. */
  #guarded<T = void>(step: (value: T) => void): (value: T) => void {
    return value => {
      try {
        step(value)
      } catch (error) {
        this.#session.destroy(new SallyportError('internal', 'a session failed', { cause: error }))
        this.#context.logger.error({ session: this.id, runtime: this.runtime, err: error }, 'a session failed')
      }
    }
  }

  /** Closes after what was sent, with a deadline; exchanges that are still open are lost. */
  end(reason: string, code: number): void {
    if (this.#session.closed) return
    this.#stopOpening()
    this.#endReason = reason
    this.#session.leave()
    this.#session.close(reason.slice(0, 100), code)
  }

  /** Ends at once. */
  destroy(reason: string): void {
    this.#endReason = reason
    this.#session.destroy(new SallyportError('session-lost', reason))
  }

  #closed(reason: string): void {
    if (this.#state === 'closed') return
    this.#state = 'closed'
    this.#settled?.()
    this.#expiry.stop()
    for (const timer of Object.values(this.#timers)) clearTimeout(timer)
    this.#context.onClosed(this, this.#endReason || reason)
  }
}

/** How long what would go on for ever may do so, where all must end in `deadlineMs`. */
export function untilFarewell(deadlineMs: number): number {
  return deadlineMs - Math.min(FAREWELL_MS, deadlineMs / 5)
}
