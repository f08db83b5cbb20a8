/**
 * One of the client's connections: a loop that keeps one session in service. Each step dials, and lasts until the session
 * ends or should be replaced.
 */
import { messageOf } from '../protocol/base/errors.ts'
import { detached, type Guard } from '../protocol/base/guard.ts'
import type { Logger } from '../protocol/base/log.ts'
import { CLOSE } from '../protocol/wire/transport.ts'
import type { Backoff } from './dial/backoff.ts'
import type { Dialled } from './dial/dial.ts'
import { Unreachable } from './dial/dialler.ts'
import type { ClientSession, SessionOwner } from './session.ts'

/** The rest of the client, as a connection sees it. */
export interface SessionKeeperOwner {
  /** Aborted when the client closes. */
  readonly signal: AbortSignal
  /** Guards work whose failure must end nothing. The loop goes on with its next step. */
  readonly guard: Guard
  readonly logger: Logger
  /** How many machines may serve us, as far as we know. */
  readonly machines: number
  /** Opens a WebSocket to the server and address whose turn it is. Rejects with {@link Unreachable}. */
  dial(turn: number): Promise<Dialled>
  /** Whether another connection has a session with this replica. */
  hasReplica(replica: string, connection: number): boolean
  /** Whether it is the only open session of its connection. */
  isAlone(session: ClientSession): boolean
  /** Why a new session is needed in place of this one, in words; `undefined` if it is not. */
  outdated(session: ClientSession): string | undefined
  openSession(dialled: Dialled, connection: number, listener: SessionListener): ClientSession
  onConnected(session: ClientSession, connection: number): void
  /** A session that was in service has ended. */
  onDisconnected(session: ClientSession, connection: number, reason: string): void
  onReconnecting(connection: number, inMs: number, reason: string): void
  /** `status` is 0 if the server ended an open session. */
  onRefused(connection: number, reason: string, status: number, requestId: string | undefined): void
}

export type SessionListener = Pick<SessionOwner, 'onWelcome' | 'onReady' | 'onLeave' | 'onClosed'>

/** The outcome of one dial and its session. */
type Outcome =
  | {
      readonly kind: 'failed'
      readonly reason: string
      readonly refused: boolean
      readonly silent: boolean
      readonly wrongLogin?: boolean
    }
  | { readonly kind: 'lost'; readonly reason: string; readonly livedMs: number }
  /** The server asked us to leave, after a delay. The old session lives on until the server says `bye`. */
  | { readonly kind: 'replace'; readonly waitMs: number }
  /** Another connection already has this replica, so we try for another one. */
  | { readonly kind: 'elsewhere' }

/** Most sessions in a row that are left in search of another replica. */
const MAX_PASSED = 3
/** Most sessions of one connection that were left and have not ended. */
const MAX_LEAVING = 8
/** How long open exchanges may continue on a session that is outdated. */
const OUTDATED_GRACE_MS = 60_000
/** The same on one that is left for another replica: as long as the protocol allows, since nobody stops. */
const MOVE_GRACE_MS = 86_400_000

/** Another session has replaced the one in service, which ends by itself. */
interface Move {
  readonly to: Promise<Outcome>
}

/** What a session is opened for. */
interface SessionRole {
  /** Called when the server has identified itself. Returns whether to keep the session. */
  accepts(session: ClientSession): boolean
  onReady(session: ClientSession): void
  onOpen(session: ClientSession): void
}

export class SessionKeeper {
  readonly index: number
  /** The session in service, or the one being opened. */
  current: ClientSession | undefined
  /** Why the last attempt or session failed, in words, and when (ms since 1970). */
  lastError: string | undefined
  lastErrorMs: number | undefined
  /** Connection attempts so far. */
  attempts = 0
  readonly #owner: SessionKeeperOwner
  readonly #backoff: Backoff
  /** Sessions that the server asked us to leave, oldest first. They wait for a replacement, or for their open exchanges to end. */
  readonly #leaving = new Set<ClientSession>()
  /** Sessions left for another replica since the last one in service. Infinity: any replica will do. */
  #passed = 0
  /** Whether it has ever had a session in service. */
  #served = false
  /** Whether it waits for a person or a new token rather than for the network. */
  #refused = false
  /** Whether it waits since a proxy refused its credentials. Another network may have another proxy. */
  #wrongLogin = false
  #wake: (() => void) | undefined
  /** Shortens the current wait to at most this many milliseconds. */
  #hurry: ((ms: number) => void) | undefined
  #moveTimer: NodeJS.Timeout | undefined
  /** Whether that timer is for an outdated session. One that is for another replica may be set to a much later time. */
  #renews = false
  /** Whether it dials for a session that is to replace the one in service. */
  #isDialling = false
  #onMoved: ((move: Move) => void) | undefined

  constructor(index: number, owner: SessionKeeperOwner, backoff: Backoff) {
    this.index = index
    this.#owner = owner
    this.#backoff = backoff
  }

  /** Keeps a session in service until the owner's signal. Never rejects. */
  async run(): Promise<void> {
    while (!this.#owner.signal.aborted) {
      const outcome = await this.#next()
      if (this.#owner.signal.aborted) return
      if (outcome.kind === 'elsewhere') continue
      if (outcome.kind === 'replace') {
        if (outcome.waitMs > 0) await this.#sleep(outcome.waitMs)
        continue
      }
      if (outcome.kind === 'failed' && this.#settles()) continue
      this.#released()
      this.lastError = outcome.reason
      this.lastErrorMs = Date.now()
      const waitMs = this.#waitFor(outcome)
      this.#owner.onReconnecting(this.index, waitMs, outcome.reason)
      await this.#sleep(waitMs)
    }
  }

  /** Resolves with the outcome of the session in service, or of the one that has replaced it. */
  async #next(): Promise<Outcome> {
    let outcome = this.#once()
    for (;;) {
      const move = new Promise<Move>(resolve => {
        this.#onMoved = resolve
      })
      const first = await Promise.race([outcome, move])
      if (!('to' in first)) return first
      outcome = first.to
    }
  }

  /** Ends a wait, so that it tries again at once. */
  retry(): void {
    this.#wake?.()
  }

  /** Ends a wait for the network, so that it tries again at once. */
  networkChanged(): void {
    if (!this.#refused) this.#wake?.()
  }

  #waitFor(outcome: Extract<Outcome, { kind: 'failed' | 'lost' }>): number {
    const { refused = false, wrongLogin = false } = outcome.kind === 'failed' ? outcome : {}
    this.#refused = refused
    this.#wrongLogin = wrongLogin
    if (outcome.kind === 'lost') return this.#backoff.lost(outcome.livedMs)
    if (refused || wrongLogin) return this.#backoff.refused()
    return outcome.silent && this.#served ? this.#backoff.silent() : this.#backoff.failed()
  }

  /** Whether we passed over a replica that we should now settle for. */
  #settles(): boolean {
    const hadChoice = this.#passed > 0 && this.#passed < Number.POSITIVE_INFINITY
    if (hadChoice) this.#passed = Number.POSITIVE_INFINITY
    return hadChoice
  }

  /** Only at the start. Later it matters more to be connected again, and there is time to move afterwards. */
  #passesOver(session: ClientSession): boolean {
    const { machines } = this.#owner
    const mayPass = !this.#served && this.#passed < Math.min(MAX_PASSED, machines - 1)
    if (!mayPass || !this.#owner.hasReplica(session.replica, this.index)) return false
    this.#passed++
    return true
  }

  async #once(): Promise<Outcome> {
    let dialled: Dialled
    try {
      dialled = await this.#owner.dial(this.index + this.attempts++)
    } catch (error) {
      return this.#failed(error)
    }
    if (!this.#owner.signal.aborted) return await this.#serve(dialled)
    dialled.socket.terminate()
    return { kind: 'failed', reason: 'closed', refused: false, silent: false }
  }

  #failed(error: unknown): Outcome {
    const reason = messageOf(error)
    const { refused, silent = false, wrongLogin = false } = error instanceof Unreachable ? error : {}
    if (refused !== undefined) this.#owner.onRefused(this.index, reason, refused.status, refused.requestId)
    return { kind: 'failed', reason, refused: refused !== undefined, wrongLogin, silent }
  }

  /** Resolves when the session has ended, or another should be opened beside it. */
  #serve(dialled: Dialled): Promise<Outcome> {
    return this.#open(dialled, {
      accepts: session => !this.#passesOver(session),
      onReady: () => this.#released(),
      onOpen: session => {
        this.current = session
      },
    })
  }

  /**
   * If the session is outdated, replaces it at once, unless it has replaced another one that has not ended: if the rules keep changing,
   * the server would get more and more sessions. One that is still being opened is replaced some time after it is ready.
   */
  renew(): void {
    const { current } = this
    if (current?.state !== 'ready' || this.#owner.outdated(current) === undefined) return
    if (!this.#isDialling && this.#owner.isAlone(current)) this.#moveNow(current)
    else if (!this.#renews) this.#moveLater(current)
  }

  /**
   * If the session is outdated, or another connection has the same replica and there are more replicas, tries to move to
   * another one after a while.
   */
  #moveLater(session: ClientSession, again = false): void {
    clearTimeout(this.#moveTimer)
    this.#renews = this.#owner.outdated(session) !== undefined
    if (!this.#shouldMove(session)) return
    const due = this.#owner.guard(() => {
      this.#renews = false
      this.#moveNow(session)
    })
    this.#moveTimer = setTimeout(due, this.#backoff.move(again))
    this.#moveTimer.unref()
  }

  #shouldMove(session: ClientSession): boolean {
    const { machines } = this.#owner
    const isOutdated = this.#owner.outdated(session) !== undefined
    return isOutdated || (machines > 1 && this.#owner.hasReplica(session.replica, this.index))
  }

  #moveNow(session: ClientSession): void {
    detached(this.#owner.logger, 'moving to another session failed', this.#move(session))
  }

  /**
   * Opens another session and leaves `old` for it. Unless `old` is outdated, the other one must be with another replica;
   * if there is none, keeps `old`.
   */
  async #move(old: ClientSession): Promise<void> {
    if (this.#isDialling || this.current !== old || !this.#shouldMove(old)) return
    const stays = () => this.current === old && !this.#owner.signal.aborted
    this.#isDialling = true
    const dialled = await this.#owner.dial(this.index + this.attempts++).catch(messageOf)
    this.#isDialling = false
    if (typeof dialled === 'string') {
      if (stays()) this.#moveAgain(old, dialled)
      return
    }
    if (!stays()) {
      dialled.socket.terminate()
      return
    }
    const outdated = this.#owner.outdated(old)
    const reason = outdated ?? 'moved to another replica'
    const graceMs = outdated === undefined ? MOVE_GRACE_MS : OUTDATED_GRACE_MS
    const isOther = ({ replica }: ClientSession) =>
      replica !== old.replica && !this.#owner.hasReplica(replica, this.index)
    const outcome = this.#open(dialled, {
      accepts: session => stays() && (this.#owner.outdated(old) !== undefined || isOther(session)),
      onReady: session => {
        const left = stays() ? old : session
        if (left === old) {
          this.current = session
          this.#onMoved?.({ to: outcome })
        }
        this.#leaves(left)
        const drained = left.drain(reason, graceMs)
        detached(this.#owner.logger, 'leaving a session failed', drained)
      },
      onOpen: () => {},
    })
    const result = await outcome
    if (stays()) this.#moveAgain(old, 'reason' in result ? result.reason : 'the server opened no session')
  }

  /** A move has failed. The operator needs to know only if an outdated session stays in service because of it. */
  #moveAgain(old: ClientSession, reason: string): void {
    const cause = this.#owner.outdated(old)
    if (cause !== undefined)
      this.#owner.logger.warn({ connection: this.index, reason }, `${cause}, but no new session was opened: ${reason}`)
    this.#moveLater(old, true)
  }

  #open(dialled: Dialled, role: SessionRole): Promise<Outcome> {
    const { promise, resolve } = Promise.withResolvers<Outcome>()
    let closeCode = 0
    let served = false
    let mustLeave = false
    // It is dropped once the session is ready, since it knows the session that this one replaces, which would keep all earlier ones.
    let pending: SessionRole | undefined = role
    const closed = this.#owner.guard((code: number) => {
      closeCode = code
    })
    dialled.socket.once('close', closed)
    const listener: SessionListener = {
      onWelcome: session => {
        const accepted = pending!.accepts(session)
        if (!accepted) resolve({ kind: 'elsewhere' })
        return accepted
      },
      onReady: session => {
        served = true
        this.#served = true
        this.#passed = 0
        pending!.onReady(session)
        pending = undefined
        this.#owner.onConnected(session, this.index)
        if (this.current === session) this.#moveLater(session)
      },
      onLeave: session => {
        mustLeave = true
        if (this.current === session) this.current = undefined
        else session.left()
        this.#leaves(session)
        resolve({ kind: 'replace', waitMs: this.#backoff.left(session.livedMs) })
      },
      onClosed: (session, given) => {
        const cut = closeCode === CLOSE.abnormal && session.farewell === undefined
        const reason = cut ? 'the network cut the connection' : given
        if (this.current === session) this.current = undefined
        this.#leaving.delete(session)
        if (served && mustLeave && this.current === undefined) this.#serverGone(session)
        const refused = closeCode === CLOSE.refused
        const cause = refused ? `the server ended the session: ${reason}` : reason
        if (refused) this.#owner.onRefused(this.index, cause, 0, undefined)
        if (served) this.#owner.onDisconnected(session, this.index, reason)
        resolve(
          served
            ? { kind: 'lost', reason: cause, livedMs: session.livedMs }
            : { kind: 'failed', reason: cause, refused, silent: false },
        )
      },
    }
    try {
      role.onOpen(this.#owner.openSession(dialled, this.index, listener))
    } catch (error) {
      dialled.socket.terminate()
      resolve(this.#failed(error))
    }
    return promise
  }

  /** The session that we were asked to leave has ended, and we have no other. The server may be restarting, so we retry soon. */
  #serverGone({ livedMs }: ClientSession): void {
    const inMs = this.#backoff.gone(livedMs)
    if (!this.#refused && !this.#wrongLogin) this.#hurry?.(inMs)
  }

  /** Bounds the sessions that we keep if we leave again and again, such as for a server that asks us to, but none ends. */
  #leaves(session: ClientSession): void {
    this.#leaving.add(session)
    if (this.#leaving.size <= MAX_LEAVING) return
    const idle = [...this.#leaving].find(one => one !== session && one.streams === 0)
    const [oldest] = this.#leaving
    ;(idle ?? oldest)?.end('too many sessions were left and have not ended')
  }

  /** Tells the servers that the sessions to be replaced are no longer needed. */
  #released(): void {
    for (const session of this.#leaving) session.left()
  }

  #sleep(ms: number): Promise<void> {
    return new Promise(resolve => {
      const { signal, guard } = this.#owner
      const done = guard(() => {
        clearTimeout(timer)
        signal.removeEventListener('abort', done)
        this.#wake = undefined
        this.#hurry = undefined
        resolve()
      })
      const endMs = performance.now() + ms
      let timer = setTimeout(done, ms)
      this.#wake = done
      this.#hurry = inMs => {
        if (performance.now() + inMs >= endMs) return
        clearTimeout(timer)
        timer = setTimeout(done, inMs)
      }
      if (signal.aborted) done()
      else signal.addEventListener('abort', done)
    })
  }
}
