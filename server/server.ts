/** The handle of a running server. */
import type { Server as HttpServer } from 'node:http'
import type { Dispatcher } from 'undici'
import type { ListedRevocation } from './auth/revocation-store.ts'
import type { Revocation } from './auth/revocations.ts'
import type { TargetsAnswer } from './control/target-questions.ts'
import type { CallOptions } from './embed/request.ts'
import type { ServerEvents } from './events.ts'
import type { InboxOperations } from './inbox/operations.ts'
import type { Address } from './listeners.ts'
import type { ServerStats, SessionInfo } from './stats.ts'
import type { TlsFiles } from './tls.ts'

/** How a session is asked to leave. */
export interface DrainOptions {
  /** The reason that the client is given. */
  readonly reason?: string | undefined
  /** When the client should open its new session. Default 0. */
  readonly afterMs?: number | undefined
  /** How long open exchanges may continue after that. Default 30,000. */
  readonly graceMs?: number | undefined
}

/** What one instance of a runtime reports about the targets of its routes. The server cannot verify it. */
export type InstanceTargets = {
  readonly instance: string
  /** Whether it is the instance that gets requests. */
  readonly active: boolean
  readonly software: string
  /** The session over which it was asked. */
  readonly session: string
} & TargetsAnswer

/** A running tunnel server. Made by `createServer`. */
export interface Server {
  /** Address for callers. `undefined` if there is no public listener. */
  readonly publicAddress: Address | undefined
  /** Address for tunnel clients. The same as `publicAddress` if they share one, `undefined` if `control` is off. */
  readonly controlAddress: Address | undefined
  /** See {@link ServerEvents}. A listener that throws is logged, and ends nothing. */
  on<Name extends keyof ServerEvents>(name: Name, listener: (event: ServerEvents[Name]) => void): this
  off<Name extends keyof ServerEvents>(name: Name, listener: (event: ServerEvents[Name]) => void): this
  /**
   * Sends a request to a runtime: to a URL, whose host the runtime sees, or to a path (`/x`). Redirects are not followed. Our own
   * refusals are responses, too (see the header `sallyport-error`). Rejects only with a TypeError for an invalid request, if the
   * response breaks off before its head, or if the signal is aborted. The runtime learns the length of a body beforehand only if the
   * request has `content-length`.
   */
  fetch(runtime: string, request: Request | string | URL, options?: CallOptions): Promise<Response>
  /**
   * An undici Dispatcher whose requests all go to `runtime`, whatever their origin. It has no timeouts: `headersTimeout` and
   * `bodyTimeout` do nothing, but a signal works. After `close` or `destroy` it takes no more requests; those in progress go on. It
   * needs undici 8. The `fetch` of Node 22 and 24 has an older one, so import that of undici.
   */
  dispatcher(runtime: string, options?: CallOptions): Dispatcher
  /**
   * Serves our hosts on an `http.Server` or `https.Server` of the embedder's, and the control endpoint's path unless `control` is off.
   * Everything else goes to the listeners that the server has at this moment. Before Node 24.9, requests that offer an upgrade (`h2c`)
   * are closed if there is no listener for `upgrade`. A pipeline is answered up to the first request of ours that has to wait, and then the connection
   * ends. A peer on a Unix socket counts as 127.0.0.1. Call it last: listeners that are added later get the requests for our hosts, too.
   * Fastify listens on `localhost` by default, with a server of its own for each further address: tell it a single one.
   * Returns a function that undoes this. Several of these may be called in any order.
   * `drain` and `close` do not wait for the callers of that server, and requests that it takes meanwhile get 503, so close it first.
   *
   * @throws {TypeError} for a server of `node:http2`, even with `allowHTTP1`, and for one without TLS that would have the control endpoint.
   */
  attach(httpServer: HttpServer): () => void
  /** Whether it can serve: it has a key set, has not lost its directory, and is not draining or closed. */
  ready(): boolean
  /** Every live session, of all runtimes. */
  sessions(): SessionInfo[]
  /** Counters since the start, and current values. */
  stats(): ServerStats
  /**
   * Refuses tokens that `rule` covers from now on, and ends their sessions at once; `ended` is their number. A rule that names only
   * a runtime also covers tokens that are issued later. A member that is `undefined` is refused. Resolves once the rule is written to
   * `auth.revocations.file` and the directory. `kept` is false if there is neither, in which case the rule ends with the process. Rejects
   * if one of them could not be written or is full; the rule is in force at this server all the same.
   */
  revoke(rule: Revocation): Promise<{ ended: number; kept: boolean }>
  /**
   * Asks each instance of a runtime that has a session here which targets of its routes accept connections. An instance dials the
   * targets that its routes name, at most 20 and at most every 5 s, and reveals no addresses. Resolves within 3 s to at most 16
   * answers. Instead of an answer, there is a `problem`: `no-answer`, or `unsupported` if the client is too old.
   */
  checkTargets(runtime: string): Promise<InstanceTargets[]>
  /**
   * Asks all other replicas that share the directory, if there is one. Resolves to the answers that came in time, and
   * `{ problem }`, a text, for a replica that could not answer, or if some did not. Rejects if they cannot be asked.
   */
  askOthers(what: string, body?: object): Promise<unknown[]>
  /** Sets what answers the questions of other replicas (`askOthers`). */
  answerOthers(answer: (what: string, body: object, by: string) => Promise<unknown>): void
  /** All rules in force, from all sources, without duplicates. */
  revocations(): readonly ListedRevocation[]
  /**
   * Removes a rule of `revocations()` from memory, `auth.revocations.file` and the directory. Its tokens are accepted again, unless
   * another rule covers them. Resolves to false if there is no such rule. Rejects if one of these places could not be written, or the
   * rule comes from `auth.revocations.url`.
   */
  removeRevocation(id: string): Promise<boolean>
  /** What operators can do with the webhooks that are kept here. `undefined` without an inbox. */
  readonly inbox: InboxOperations | undefined
  /** Asks the client of a session to open another session and leave this one. False if there is no such session. */
  drainSession(id: string, options?: DrainOptions): boolean
  /** The same for all sessions of a runtime. Returns how many were asked. */
  drainRuntime(runtime: string, options?: DrainOptions): number
  /** Ends a session at once; its client reconnects if it may. False if there is no such session. */
  closeSession(id: string, reason?: string): boolean
  /**
   * The first half of `close`. The server is no longer ready. After `drainDelayMs` it accepts no new connections and asks the clients
   * to leave. Resolves when all clients and callers have gone, at the latest after another `graceMs` (default 30,000). Callers with
   * open connections are told that these will end; every request that still arrives on them is answered.
   */
  drain(options?: { readonly graceMs?: number | undefined }): Promise<void>
  /**
   * Reads the certificates again, or uses new ones, for connections from now on. Resolves to false if any was invalid, in which case
   * the old one stays. Rejects with a TypeError for certificates where there is no TLS, and for `publicTls.ca` without `access.clientCa`.
   */
  reload(fresh?: { publicTls?: TlsFiles; controlTls?: TlsFiles }): Promise<boolean>
  /**
   * Drains, then closes. What is left after `graceMs` (default 30,000) is cut; with 0, everything is cut at once. Another call may
   * shorten the time. Throws a TypeError for more than a day.
   */
  close(options?: { readonly graceMs?: number | undefined }): Promise<void>
  /** The same as `close()`. */
  [Symbol.asyncDispose](): Promise<void>
}
