/**
 * One session with a server, from `hello` to `bye`. protocol/wire/yamux moves the bytes; this file handles the control
 * messages about the session itself.
 *
 *     hello -> welcome -> ready -> (draining ->) closed
 */

import { SallyportError, toSallyportError } from '../protocol/base/errors.ts'
import { type Guard, guardWith, logDefect } from '../protocol/base/guard.ts'
import type { Logger } from '../protocol/base/log.ts'
import { TokenBucket } from '../protocol/base/token-bucket.ts'
import type { Tracing } from '../protocol/trace/sampling.ts'
import {
  type CheckAnswered,
  CONTROL_RATE,
  type ControlMessage,
  type Drain,
  FEATURE,
  type Hello,
  type Notice,
  parseControl,
  type Ready,
  type Welcome,
} from '../protocol/wire/control.ts'
import type { Preamble } from '../protocol/wire/preamble.ts'
import { CLOSE, type Transport } from '../protocol/wire/transport.ts'
import { SPEC_WINDOW_BYTES } from '../protocol/wire/yamux/frame.ts'
import { RESETS_OF_STRANGERS } from '../protocol/wire/yamux/limits.ts'
import type { Session, SessionOptions } from '../protocol/wire/yamux/session.ts'
import type { Stream } from '../protocol/wire/yamux/stream.ts'
import { createSession } from '../protocol/wire/yamux/yamux-session.ts'
import type { SessionView } from './exchanges.ts'
import { SpanReturn } from './span-return.ts'
import type { SessionStats } from './tunnel.ts'

/** The rest of the client, as a session sees it. */
export interface SessionOwner {
  readonly logger: Logger
  /** Limits of the yamux session. */
  readonly session: Partial<SessionOptions>
  /** Undefined if no exchange is traced. `server`: the spans go back to the server. */
  readonly tracing: Tracing | 'server' | undefined
  accept(stream: Stream, session: SessionView): void
  /** Called once, when the server has identified itself. Returns false to leave it at once. */
  onWelcome(session: ClientSession): boolean
  /** Called once, when the server takes the session into service. */
  onReady(session: ClientSession): void
  /** Called with the epoch of the instance and whether it is active. */
  onStanding(epoch: number, active: boolean): void
  /** Another session should replace this one. Called at most once, and never after `onClosed`. */
  onLeave(session: ClientSession, reason: string): void
  /** The server sent a notice for a person. */
  onNotice(session: ClientSession, notice: Notice): void
  /** The server asks which targets accept connections. */
  onCheck(session: ClientSession, id: number): void
  onReauth(session: ClientSession, token: string, accepted: boolean, requestId: string | undefined): void
  /** Called once, as the last callback. */
  onClosed(session: ClientSession, reason: string): void
}

export type SessionState = 'hello' | 'welcome' | 'ready' | 'draining' | 'closed'

/** Time for the server to answer `hello` and then a ping. */
const HELLO_MS = 10_000
/** Time for the server to take the session into service. */
const READY_MS = 10_000
/** Time for a ping to be answered after the network has changed. */
const TEST_MS = 5000
/** If a server has not ended a session this long after its own deadline, it never will, so we end it. */
const LATE_END_MS = 5000
/**
 * Epochs above this are not accepted from a server. One new instance per millisecond would take 34 years to reach it. Servers
 * accept epochs up to 2^48 from clients, so whatever one server makes us present to another leaves the other room to count.
 */
const MAX_EPOCH = 2 ** 40
const BEFORE_WELCOME: ReadonlySet<string> = new Set(['welcome', 'notice', 'bye'])

export class ClientSession implements SessionView {
  readonly openedMs = Date.now()
  /** Local address of the connection. */
  readonly localAddress: string | undefined
  lastStream = Number.POSITIVE_INFINITY
  #tracing: Tracing | undefined
  #returned: SpanReturn | undefined
  /** Whether the server may ask about the targets. */
  #checks = false
  /** The server's latest reason for ending the session. */
  farewell: string | undefined
  readonly #owner: SessionOwner
  readonly #session: Session
  readonly #controls = new TokenBucket(CONTROL_RATE.burst, CONTROL_RATE.perSecond)
  #state: SessionState = 'hello'
  /** The latest epoch that the server sent on this session. */
  epoch = 0
  /** False while the server has no epoch for the instance, as when its directory is away. */
  hasStanding = false
  #welcome: Welcome | undefined
  #readySinceMs: number | undefined
  #left = false
  /** Whether we have answered the server's drain. */
  #answered = false
  /** The token that was sent in band and not answered yet. */
  #pendingToken: string | undefined
  #nextToken: string | undefined
  /** Resolves when the server has answered our drain, or the session has ended. */
  readonly #drained = Promise.withResolvers<void>()
  /** Resolves when no stream is open, none will be opened, and all answers have arrived. Set by the first drain. */
  #empty: PromiseWithResolvers<void> | undefined
  #timer: NodeJS.Timeout | undefined
  #leaveTimer: NodeJS.Timeout | undefined
  #endTimer: NodeJS.Timeout | undefined
  #testTimer: NodeJS.Timeout | undefined

  constructor(transport: Transport, localAddress: string | undefined, hello: Hello, owner: SessionOwner) {
    this.localAddress = localAddress
    this.#owner = owner
    this.#session = createSession(transport, {
      initialWindowBytes: hello.limits?.windowBytes ?? SPEC_WINDOW_BYTES,
      ...RESETS_OF_STRANGERS,
      ...owner.session,
      role: 'client',
      awaitsPings: true,
      logger: owner.logger,
      onStream: stream => owner.accept(stream, this),
      onControl: text => this.#control(text),
      onGoAway: () => this.#leave('the server opens no more streams'),
      onIdle: () => this.#idle(),
      onClose: (_error, reason) => this.#closed(reason),
    })
    this.#timer = setTimeout(
      this.#guard(() => this.#fail('the server did not answer hello in time')),
      HELLO_MS,
    )
    this.#session.control(hello)
  }

  get id(): string {
    return this.#welcome?.session ?? ''
  }

  get runtime(): string {
    return this.#welcome?.runtime ?? ''
  }

  get replica(): string {
    return this.#welcome?.replica ?? ''
  }

  /** Where callers reach the runtime, as the server says. */
  get url(): string | undefined {
    return this.#welcome?.url
  }

  get state(): SessionState {
    return this.#state
  }

  /** How long the session has been in service; 0 if it never was. */
  get livedMs(): number {
    return this.#readySinceMs === undefined ? 0 : performance.now() - this.#readySinceMs
  }

  /** Whether the server has sent `welcome` and neither end is draining. */
  get inService(): boolean {
    return this.#state === 'welcome' || this.#state === 'ready'
  }

  /** Ends the session unless a ping is answered soon. */
  test(reason: string): void {
    if (this.#testTimer !== undefined) return
    this.#testTimer = setTimeout(
      this.#guard(() => this.destroy(`${reason}, and a ping was not answered`)),
      TEST_MS,
    )
    this.#session.ping(() => {
      clearTimeout(this.#testTimer)
      this.#testTimer = undefined
    })
  }

  stats(connection: number): SessionStats {
    const { peer, rttMs, streams, bufferedBytes, bytesIn, bytesOut } = this.#session
    return {
      connection,
      session: this.id,
      replica: this.replica,
      peer,
      state: this.#state,
      openedMs: this.openedMs,
      rttMs,
      streams,
      bufferedBytes,
      bytesIn,
      bytesOut,
    }
  }

  /** Sends a fresh token in band. One at a time: while one awaits its answer, only the latest other token is kept for sending next. */
  reauth(token: string): void {
    if (this.#state === 'hello' || this.#state === 'closed') return
    if (this.#pendingToken !== undefined) {
      this.#nextToken = token
      return
    }
    this.#pendingToken = token
    this.#session.control({ type: 'reauth', token })
  }

  /** Answers the server's question about the targets. */
  checked(answer: Omit<CheckAnswered, 'type'>): void {
    this.#send({ type: 'checked', ...answer })
  }

  /** Number of open streams. */
  get streams(): number {
    return this.#session.streams
  }

  /** Answers the server's drain, once: the replacement is up, or is not to be had now. */
  left(): void {
    if (this.#state !== 'draining' || !this.#left || this.#answered) return
    this.#answered = true
    this.#session.control({ type: 'drained', lastStream: 0 })
  }

  /**
   * Ends the session gracefully: no new streams are opened, and open ones are served for `graceMs`. Shortly before that ends,
   * the server closes the WebSockets among them; whatever is still open after that is cut. Of several drains, the one with
   * the earliest end wins.
   */
  async drain(reason: string, graceMs: number): Promise<void> {
    if (this.#state === 'closed') return
    if (this.#state === 'hello') return this.end(reason)
    this.#state = 'draining'
    const over = Promise.withResolvers<void>()
    const grace = setTimeout(over.resolve, graceMs)
    this.#session.control({ type: 'drain', reason, afterMs: 0, deadlineMs: graceMs })
    // A server answers the drain before this, or never.
    this.#session.ping(() => this.#drained.resolve())
    await Promise.race([over.promise, this.#drained.promise])
    await Promise.race([over.promise, this.#emptied()])
    clearTimeout(grace)
    this.end(reason)
  }

  /** Sends `bye` and closes once everything is sent. Streams that are still open are lost. */
  end(reason: string): void {
    if (this.#state === 'closed') return
    this.#returned?.close()
    if (this.#state !== 'hello') this.#session.control({ type: 'bye', reason })
    this.#session.close(reason, CLOSE.normal)
  }

  /** Ends at once, without telling the server. */
  destroy(reason: string): void {
    this.#session.destroy(new SallyportError('session-lost', reason))
  }

  #emptied(): Promise<void> {
    this.#empty ??= Promise.withResolvers<void>()
    if (this.#session.closed) this.#empty.resolve()
    else if (this.#session.streams === 0) this.#idle()
    return this.#empty.promise
  }

  /** The end of the last response may still be on its way, until the server answers a ping that follows it. */
  #idle(): void {
    const empty = this.#empty
    if (empty === undefined) return
    this.#session.ping(() => {
      if (this.#session.streams === 0) empty.resolve()
    })
  }

  #control(text: string): void {
    if (!this.#controls.take(performance.now())) {
      this.#endForProtocolError('too many control messages')
      return
    }
    try {
      const message = parseControl(text)
      if (message !== undefined) this.#dispatch(message)
    } catch (error) {
      this.#owner.logger.warn({ session: this.id, err: toSallyportError(error) }, 'the server broke the protocol')
      this.#endForProtocolError('protocol error')
    }
  }

  /** Ends the session for a protocol error. Whatever farewell the server sent earlier is not the reason. */
  #endForProtocolError(reason: string): void {
    this.farewell = undefined
    this.#session.close(reason, CLOSE.protocolError)
  }

  #dispatch(message: ControlMessage): void {
    if (this.#state === 'hello' && !BEFORE_WELCOME.has(message.type)) {
      this.#fail('the server did not begin with welcome')
      return
    }
    switch (message.type) {
      case 'welcome':
        this.#welcomed(message)
        break
      case 'ready':
        this.#ready(message)
        break
      case 'reauth-ok':
        this.#reauthAnswered(true, undefined)
        break
      case 'reauth-refused':
        this.#reauthAnswered(false, message.requestId)
        break
      case 'drain':
        this.#serverDrains(message)
        break
      case 'drained':
        this.lastStream = message.lastStream
        this.#drained.resolve()
        break
      case 'check':
        if (this.#checks) this.#owner.onCheck(this, message.id)
        break
      case 'notice':
        this.#owner.onNotice(this, message)
        break
      case 'bye':
        this.farewell = message.reason ?? this.farewell
        break
    }
  }

  #welcomed(welcome: Welcome): void {
    if (this.#state !== 'hello') {
      this.#fail('the server sent welcome twice')
      return
    }
    this.#welcome = welcome
    this.#state = 'welcome'
    this.#tracing = this.#tracingBy(welcome.features)
    this.#checks = welcome.features?.includes(FEATURE.checks) === true
    if (!this.#owner.onWelcome(this)) {
      this.end('another connection of this instance already has this replica')
      return
    }
    // A server that names no window uses the default of yamux.
    this.#session.setPeerLimits({ windowBytes: welcome.limits?.windowBytes ?? SPEC_WINDOW_BYTES })
    this.#session.ping(() => {
      clearTimeout(this.#timer)
      this.#timer = setTimeout(
        this.#guard(() => this.#notInService()),
        READY_MS,
      )
      this.#session.control({ type: 'ready' })
    })
  }

  #tracingBy(features: readonly string[] = []): Tracing | undefined {
    const { tracing } = this.#owner
    if (tracing !== 'server') return tracing
    if (!features.includes(FEATURE.spans)) return undefined
    const tracer = new SpanReturn({ guard: this.#guard, send: message => this.#send(message) })
    this.#returned = tracer
    return { tracer, ratio: 0, parentBased: true }
  }

  /** Traces are followed only if the edge vouches for them. */
  tracingOf({ traced }: Preamble): Tracing | undefined {
    return traced ? this.#tracing : undefined
  }

  #send(message: object): void {
    if (this.#state !== 'closed') this.#session.control(message)
  }

  /** If either end has started to drain meanwhile, that drain ends the session instead. */
  #notInService(): void {
    if (this.#state === 'welcome') this.#fail('the server did not take the session into service in time')
  }

  #ready(message: Ready): void {
    clearTimeout(this.#timer)
    const { epoch } = message
    if (epoch !== 0) this.hasStanding = true
    if (epoch !== undefined && epoch > MAX_EPOCH)
      this.#owner.onNotice(this, { type: 'notice', message: `the server sent an impossible epoch: ${epoch}` })
    else if (epoch !== undefined) {
      this.epoch = Math.max(this.epoch, epoch)
      this.#owner.onStanding(epoch, message.active ?? true)
    }
    if (this.#state !== 'welcome') return
    this.#state = 'ready'
    this.#readySinceMs = performance.now()
    this.#owner.onReady(this)
  }

  #reauthAnswered(accepted: boolean, requestId: string | undefined): void {
    const token = this.#pendingToken
    if (token === undefined) return
    const next = this.#nextToken
    this.#pendingToken = undefined
    this.#nextToken = undefined
    this.#owner.onReauth(this, token, accepted, requestId)
    if (next !== undefined) this.reauth(next)
  }

  #serverDrains(drain: Drain): void {
    if (this.#state !== 'ready' && this.#state !== 'welcome') return
    this.farewell = drain.reason
    clearTimeout(this.#leaveTimer)
    clearTimeout(this.#endTimer)
    this.#leaveTimer = setTimeout(
      this.#guard(() => this.#leave(drain.reason)),
      drain.afterMs,
    )
    this.#endTimer = setTimeout(
      this.#guard(() => this.end('the deadline of its drain is over')),
      drain.deadlineMs + LATE_END_MS,
    ).unref()
  }

  #leave(reason: string): void {
    if (this.#left || this.#state === 'closed' || this.#state === 'draining') return
    this.#left = true
    this.#state = 'draining'
    this.#owner.onLeave(this, reason)
  }

  /** An error in a timer of this session ends only this session. */
  readonly #guard: Guard = guardWith(error => {
    logDefect(this.#owner.logger, 'a session failed', error)
    this.#session.destroy(new SallyportError('internal', 'a session failed', { cause: error }))
  })

  #fail(reason: string): void {
    this.#session.destroy(new SallyportError('session-lost', reason))
  }

  #closed(reason: string): void {
    if (this.#state === 'closed') return
    this.#state = 'closed'
    clearTimeout(this.#timer)
    clearTimeout(this.#leaveTimer)
    clearTimeout(this.#endTimer)
    this.#returned?.close()
    clearTimeout(this.#testTimer)
    this.#drained.resolve()
    this.#empty?.resolve()
    this.#owner.onClosed(this, this.farewell ?? reason)
  }
}
