/**
 * One session of one client: hello, welcome, ready, reauth, drain, and its end. The data path opens streams on it; everything else
 * here happens only a few times in a session's life.
 *
 *     hello -> open -> (draining ->) closed
 */
import { performance } from 'node:perf_hooks'
import type { Cidrs } from '../../protocol/base/address.ts'
import { messageOf, SallyportError } from '../../protocol/base/errors.ts'
import { type Guard, guardWith, hook } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { TokenBucket } from '../../protocol/base/token-bucket.ts'
import { softwareName } from '../../protocol/base/version.ts'
import type { Span } from '../../protocol/trace/span.ts'
import {
  CONTROL_RATE,
  type ControlMessage,
  commonFeatures,
  FEATURE,
  type Hello,
  MINOR_VERSION,
  type Notice,
  type PeerLimits,
  parseControl,
} from '../../protocol/wire/control.ts'
import { CLOSE, type Transport } from '../../protocol/wire/transport.ts'
import { ZERO } from '../../protocol/wire/yamux/clock.ts'
import { clampWindow } from '../../protocol/wire/yamux/limits.ts'
import type { Session, SessionOptions } from '../../protocol/wire/yamux/session.ts'
import type { Stream } from '../../protocol/wire/yamux/stream.ts'
import { createSession } from '../../protocol/wire/yamux/yamux-session.ts'
import type { Identity } from '../auth/claims.ts'
import { TokenRefused } from '../auth/refusal.ts'
import type { Grant } from '../directory/directory.ts'
import type { Carrier, RegisteredSession } from '../registry.ts'
import { Credentials, type CredentialsOwner } from './credentials.ts'
import type { ReturnedSpans, TellReplica } from './returned-spans.ts'
import { SessionDrain, type SessionDrainOwner, type Stay } from './session-drain.ts'
import { TargetQuestions, type TargetsAnswer } from './target-questions.ts'

/** A session whose token has expired drains for this long, then is cut. With all delays that is within the promised 60 s. */
const EXPIRY_GRACE_MS = 50_000
/** For this long, a session that refused an exchange gets no others while another session is healthy, and none that wait. */
const REFUSAL_PAUSE_MS = 1000
/** How many notices are logged in a burst, and per second in the long run. */
const NOTICE_BURST = 20
const NOTICES_PER_SECOND = 0.5

/** What a session needs from the rest of the server. */
export interface RuntimeSessionContext {
  readonly replica: string
  readonly logger: Logger
  readonly clockToleranceS: number
  readonly session: Partial<SessionOptions>
  readonly now: () => number
  /** Features that are offered to clients. */
  readonly features: readonly string[]
  /** Receives spans from clients. Absent without tracing. */
  readonly returned?: ReturnedSpans | undefined
  /** Where callers reach a runtime. */
  readonly urlOf: (runtime: string) => string | undefined
  /** Verifies a fresh token. Rejects with {@link TokenRefused}. */
  reauthenticate(token: string, session: RuntimeSession): Promise<Identity>
  /** The client has sent `hello`. */
  onHello(session: RuntimeSession, hello: Hello): void
  onReady(session: RuntimeSession): void
  /** Its instance is active. May be called again. */
  onActive(session: RuntimeSession): void
  /** It is ready and has a fresh token. */
  onRenewed(session: RuntimeSession): void
  onDrain(session: RuntimeSession): void
  /** It was full, and can take another exchange. */
  onRoom(session: RuntimeSession): void
  onClosed(session: RuntimeSession, reason: string): void
}

type State = 'hello' | 'open' | 'draining' | 'closed'

export class RuntimeSession implements RegisteredSession, Carrier {
  readonly hops = 0
  readonly id: string
  readonly runtime: string
  readonly address: string
  readonly thumbprint: string | undefined
  readonly connectedAt: number
  instance = ''
  connection = 0
  software = ''
  lastEpoch = 0
  epoch = 0
  active = false
  exchanges = 0
  readonly #context: RuntimeSessionContext
  readonly #session: Session
  #state: State = 'hello'
  #settled: (() => void) | undefined
  #clientReady = false
  #echoed = false
  #notices: TokenBucket | undefined
  readonly #controls = new TokenBucket(CONTROL_RATE.burst, CONTROL_RATE.perSecond)
  #lastStream = 0
  /** `undefined` if the client returns no spans, or tracing is off. */
  #returned: ReturnedSpans | undefined
  #tellsOfTargets = false
  /** Created when an operator asks. */
  #questions: TargetQuestions | undefined
  #pausedUntil = ZERO
  #roomTimer: NodeJS.Timeout | undefined
  readonly #credentials: Credentials
  /** Created when the session begins to drain, to save memory: there are many sessions, and most never do. */
  #sessionDrain: SessionDrain | undefined
  #endReason = ''

  constructor(
    context: RuntimeSessionContext,
    transport: Transport,
    client: {
      id: string
      identity: Identity
      address: string
      thumbprint: string | undefined
      /** In ms since 1970. */
      connectedAt: number
      /** The limits on buffered bytes that it shares with other sessions. */
      budgets: Pick<SessionOptions, 'processBudget' | 'runtimeCeilings'>
      settled: () => void
    },
  ) {
    this.#context = context
    this.id = client.id
    this.runtime = client.identity.runtime
    this.address = client.address
    this.thumbprint = client.thumbprint
    this.#settled = client.settled
    this.connectedAt = client.connectedAt
    this.#credentials = new Credentials(this.#credentialsOwner(), client.identity)
    this.#session = createSession(transport, {
      ...context.session,
      ...client.budgets,
      role: 'server',
      logger: context.logger,
      onControl: text => this.#control(text),
      onGoAway: () => this.#stopOpening(),
      onRoom: () => this.#hasRoom(),
      onIdsLow: () => this.drain('the session has used up its stream ids', 5000, 60_000),
      onClose: (error, reason) => this.#closed(error?.message ?? reason),
    })
  }

  #credentialsOwner(): CredentialsOwner {
    const { clockToleranceS, now, logger } = this.#context
    const about = { session: this.id, runtime: this.runtime }
    return {
      clockToleranceS,
      now,
      guard: this.#guard,
      check: token => this.#context.reauthenticate(token, this),
      say: message => this.#say(message),
      refused: error => {
        const check = error instanceof TokenRefused ? `${error.check}: ${error.message}` : messageOf(error)
        logger.warn({ ...about, check }, 'a new token was refused')
        this.#say({ type: 'reauth-refused', requestId: this.id })
      },
      renewed: () => {
        if (this.#isReady) this.#context.onRenewed(this)
      },
      ended: () => {
        logger.warn(about, 'the token has expired; the session drains')
        if (this.#state === 'hello') this.end('the token has expired', CLOSE.refused)
        else this.#departing().begin('the token has expired', EXPIRY_GRACE_MS, CLOSE.refused)
      },
    }
  }

  #departing(): SessionDrain {
    this.#sessionDrain ??= new SessionDrain(this.#sessionDrainOwner())
    return this.#sessionDrain
  }

  #sessionDrainOwner(): SessionDrainOwner {
    const session = this
    return {
      get exchanges() {
        return session.exchanges
      },
      guard: this.#guard,
      say: message => this.#say(message),
      stopOpening: () => this.#stopOpening(),
      leave: () => this.#session.leave(),
      end: (reason, code) => this.end(reason, code),
    }
  }

  #say(message: object): void {
    if (this.#state !== 'closed') this.#session.control(message)
  }

  get identity(): Identity {
    return this.#credentials.identity
  }

  get callers(): Cidrs | undefined {
    return this.#credentials.callers
  }

  get rttMs(): number {
    return this.#session.rttMs
  }

  get full(): boolean {
    return this.#state === 'open' && !this.#session.closed && !this.#session.canOpen
  }

  get heardAt(): number {
    return this.usable && !this.full ? this.#session.heardAt : 0
  }

  get overdue(): boolean {
    return (
      !this.usable ||
      this.full ||
      this.#session.overdue ||
      (this.#pausedUntil > 0 && performance.now() < this.#pausedUntil)
    )
  }

  /** A session that has just refused an exchange may refuse those that wait, too, as fast as they come. They are woken once a pause. */
  #hasRoom(): void {
    const waitMs = this.#pausedUntil - performance.now()
    if (waitMs <= 0) {
      this.#context.onRoom(this)
      return
    }
    const due = this.#guard(() => {
      this.#roomTimer = undefined
      this.#context.onRoom(this)
    })
    this.#roomTimer ??= setTimeout(due, waitMs).unref()
  }

  claims(host: string): boolean {
    return this.identity.hosts.includes(host)
  }

  refused(): void {
    this.#pausedUntil = performance.now() + REFUSAL_PAUSE_MS
  }

  get state(): State {
    return this.#state
  }

  get session(): Session {
    return this.#session
  }

  gave(span: Span): void {
    this.#returned?.give(this.id, span)
  }

  /** Called for a recorded attempt of another replica, which gets the spans. */
  gaveFor(of: string, tell: TellReplica): void {
    this.#returned?.giveFor(this.id, of, tell)
  }

  /** Opens a stream for an exchange. Throws `overloaded` if the session can take no more. */
  open(): Stream {
    const stream = this.#session.open()
    this.#lastStream = stream.id
    // The stream's handler is set in this turn of the event loop.
    if (this.#sessionDrain?.leaving) queueMicrotask(hook('leave', () => stream.handler.leave?.(), this.#context.logger))
    return stream
  }

  /** Whether new exchanges may go here: the token is valid, and neither end drains. */
  get usable(): boolean {
    return this.#state === 'open' && !this.#session.closed && this.#credentials.hold
  }

  #control(text: string): void {
    if (!this.#controls.take()) {
      this.end('too many control messages', CLOSE.protocolError)
      return
    }
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
      this.end('hello must come first', CLOSE.protocolError)
      return
    }
    switch (message.type) {
      case 'ready':
        if (this.#clientReady) return
        this.#clientReady = true
        this.#becomeReady()
        return
      case 'reauth':
        this.#credentials.renew(message.token)
        return
      case 'drain':
        // The client waits for the streams that it knows of.
        this.#session.announce()
        this.#departing().follow(message, this.#lastStream, CLOSE.goingAway)
        return
      case 'drained':
        this.#sessionDrain?.moved()
        return
      case 'spans':
        this.#returned?.take(this.id, {
          session: this.id,
          runtime: this.runtime,
          rttMs: this.rttMs,
          requests: message.requests,
        })
        return
      case 'checked':
        this.#questions?.answered(message)
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
    this.lastEpoch = hello.lastEpoch
    if (!this.#credentials.announce(hello.allowCallers)) {
      this.end('allowCallers is malformed', CLOSE.protocolError)
      return
    }
    this.#settled?.()
    this.#settled = undefined
    this.#state = 'open'
    this.#context.onHello(this, hello)
    const limits = this.#agree(hello)
    const features = commonFeatures(hello.features, this.#context.features)
    if (features.includes(FEATURE.spans)) this.#returned = this.#context.returned
    this.#tellsOfTargets = features.includes(FEATURE.checks)
    const url = this.#context.urlOf(this.runtime)
    this.#session.control({
      type: 'welcome',
      minor: MINOR_VERSION,
      software: softwareName(),
      session: this.id,
      replica: this.#context.replica,
      runtime: this.runtime,
      epoch: this.epoch,
      limits,
      features,
      ...(url !== undefined && { url }),
    })
    this.#session.ping(() => {
      this.#echoed = true
      this.#becomeReady()
    })
  }

  /**
   * Uses the window that the client asks for, at both ends. Without one, it stays at yamux's 256 KiB. Also respects the client's limit
   * of streams.
   */
  #agree(hello: Hello): PeerLimits {
    const { windowBytes, streams } = hello.limits ?? {}
    this.#session.setPeerLimits({ windowBytes, streams })
    return windowBytes === undefined ? {} : { windowBytes: clampWindow(windowBytes) }
  }

  #becomeReady(): void {
    if (this.#isServing) this.#context.onReady(this)
  }

  get #isReady(): boolean {
    return this.#clientReady && this.#echoed && this.#state !== 'closed'
  }

  get #isServing(): boolean {
    return this.#isReady && this.#state === 'open'
  }

  granted(grant: Grant): void {
    this.epoch = grant.epoch
    this.active = grant.active
    if (!this.#isServing) return
    this.#say({ type: 'ready', epoch: grant.epoch, active: grant.active })
    if (grant.active) this.#context.onActive(this)
  }

  /** Asks the client which targets of its routes accept connections. See {@link TargetQuestions.ask}. */
  async askTargets(): Promise<TargetsAnswer> {
    if (!this.#tellsOfTargets) return { problem: 'unsupported' }
    if (this.#state === 'closed') return { problem: 'no-answer' }
    this.#questions ??= new TargetQuestions({ guard: this.#guard, say: message => this.#say(message) })
    return await this.#questions.ask()
  }

  /** Sends a notice to the client's operator. */
  tell(code: string, message: string): void {
    this.#say({ type: 'notice', code, message: message.slice(0, 256) })
  }

  #notice({ message }: Notice): void {
    this.#notices ??= new TokenBucket(NOTICE_BURST, NOTICES_PER_SECOND)
    if (!this.#notices.take()) return
    this.#context.logger.info({ session: this.id, runtime: this.runtime, notice: message }, 'the client says')
  }

  /**
   * Asks the client to open another session after `afterMs`, and to leave this one. This session takes new exchanges until the client
   * has done so or a while has passed, and as long as `stay` says. Exchanges that are open then may continue until `deadlineMs` from
   * now.
   */
  drain(reason: string, afterMs: number, deadlineMs: number, stay?: Stay): void {
    if (this.#state === 'closed') return
    if (this.#state === 'hello') {
      this.end(reason, CLOSE.goingAway)
      return
    }
    this.#departing().ask(reason, afterMs, deadlineMs, CLOSE.goingAway, stay)
  }

  /** An exchange of this session is over. */
  released(): void {
    this.exchanges--
    this.#sessionDrain?.released()
  }

  #stopOpening(): void {
    if (this.#state !== 'open') return
    this.#state = 'draining'
    this.#context.onDrain(this)
  }

  /** An error in a timer or a promise of this session ends only this session. */
  readonly #guard: Guard = guardWith(error => {
    this.#session.destroy(new SallyportError('internal', 'a session failed', { cause: error }))
    this.#context.logger.error({ session: this.id, runtime: this.runtime, err: error }, 'a session failed')
  })

  /** Call it often; see {@link Credentials.check}. */
  readonly checkToken = this.#guard(() => this.#credentials.check())

  /** Closes after sending what is queued, with a deadline. Exchanges that are still open are lost. */
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
    clearTimeout(this.#roomTimer)
    this.#sessionDrain?.stop()
    this.#questions?.stop()
    this.#context.onClosed(this, this.#endReason || reason)
  }
}
