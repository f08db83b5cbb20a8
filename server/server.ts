/** The handle of a running server, and how its sessions are asked to leave. */
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
  /** What the client is told. */
  readonly reason?: string | undefined
  /** When the client should open its new session. Default 0. */
  readonly afterMs?: number | undefined
  /** How long open exchanges may continue after that. Default 30,000. */
  readonly graceMs?: number | undefined
}

/** What one instance of a runtime says of the targets of its routes. Nobody else vouches for it. */
export type InstanceTargets = {
  readonly instance: string
  /** Whether it gets the requests. */
  readonly active: boolean
  readonly software: string
  /** The session that it was asked over. */
  readonly session: string
} & TargetsAnswer

/** A running tunnel server. Made by `createServer`. */
export interface Server {
  /** Address for callers; undefined without a listener of its own. */
  readonly publicAddress: Address | undefined
  /** Address for tunnel clients; the same as `publicAddress` if they share one; undefined if it is off. */
  readonly controlAddress: Address | undefined
  /** See {@link ServerEvents}. A listener that throws is logged, and ends nothing. */
  on<Name extends keyof ServerEvents>(name: Name, listener: (event: ServerEvents[Name]) => void): this
  off<Name extends keyof ServerEvents>(name: Name, listener: (event: ServerEvents[Name]) => void): this
  /**
   * Calls into a runtime, at a URL whose host the runtime sees, or at a path (`/x`). Redirects are not followed; our own
   * refusals are answers too (see the header `sallyport-error`). Rejects only with TypeError for what is no request, when
   * an answer broke off before its head, or on an aborted signal.
   */
  fetch(runtime: string, request: Request | string | URL, options?: CallOptions): Promise<Response>
  /** An undici Dispatcher whose requests all go to `runtime`, whatever their origin. */
  dispatcher(runtime: string, options?: CallOptions): Dispatcher
  /**
   * Serves our hosts, and the control endpoint's path where `control` is not off, on a server of the embedder's. What
   * is not ours goes to the listeners that the server has now; before Node 24.9, what offers an upgrade (`h2c`) is closed
   * where there is no listener for `upgrade`. Returns a function that takes it back, in any order with other ones.
   */
  attach(httpServer: HttpServer): () => void
  /** Whether it can serve: it listens, has a key set, may route, and is not closing. */
  ready(): boolean
  /** Every live session, of all runtimes. */
  sessions(): SessionInfo[]
  /** Counters since the start, and what is so now. */
  stats(): ServerStats
  /**
   * Refuses tokens that `rule` covers from now on, and ends their sessions at once: `ended` of them. A rule that names a
   * runtime alone covers what is issued later, too. Resolves once the rule is written to `auth.revocations.file` and the
   * directory; `kept` is false where there is neither, and the rule ends with the process. Rejects if one of them could not
   * be written, or is full; the rule holds here all the same.
   */
  revoke(rule: Revocation): Promise<{ ended: number; kept: boolean }>
  /**
   * Asks each instance of a runtime that has a session here which targets of its routes take connections. An instance dials what its
   * routes name, at most 20 and no more often than every 5 s, and says nothing of addresses. Resolves within 3 s to at most 16 answers;
   * `problem` stands in the place of one that did not come (`no-answer`), or whose client is too old (`unsupported`).
   */
  checkTargets(runtime: string): Promise<InstanceTargets[]>
  /**
   * Asks all other replicas that share the directory, where there is one; resolves to what those say that answer in time,
   * and `{ problem }`, a text, where one could not answer, or some did not. Rejects if they cannot be asked.
   */
  askOthers(what: string, body?: object): Promise<unknown[]>
  /** What this server does, and says, when another replica asks. */
  answerOthers(answer: (what: string, body: object, by: string) => Promise<unknown>): void
  /** All rules in force, from all sources, each once. */
  revocations(): readonly ListedRevocation[]
  /**
   * Takes a rule of `revocations()` back, from memory, `auth.revocations.file` and the directory; its tokens are let in
   * again as far as nothing else is against it. Resolves to false if there is no such rule; rejects if a place could not be
   * written, or the rule is one of `auth.revocations.url`.
   */
  removeRevocation(id: string): Promise<boolean>
  /** What operators do with the webhooks that are kept here; undefined without an inbox. */
  readonly inbox: InboxOperations | undefined
  /** Asks the client of a session to open another session and leave this one. False if there is no such session. */
  drainSession(id: string, options?: DrainOptions): boolean
  /** The same for all sessions of a runtime. Returns how many were asked. */
  drainRuntime(runtime: string, options?: DrainOptions): number
  /** Ends a session at once; its client reconnects if it may. False if there is no such session. */
  closeSession(id: string, reason?: string): boolean
  /**
   * As `close` begins: not ready any more, and after `drainDelayMs` takes no new connections, asks the clients to leave, and
   * resolves when all of them and all callers have gone, at the latest after `graceMs` more (default 30,000). Callers who
   * keep their connections are told that these end; every request that still comes on them is answered.
   */
  drain(options?: { readonly graceMs?: number | undefined }): Promise<void>
  /**
   * Reads the certificates again, or takes new ones, for connections from now on. Resolves to false if any was bad:
   * then the old one stays.
   */
  reload(fresh?: { publicTls?: TlsFiles; controlTls?: TlsFiles }): Promise<boolean>
  /**
   * Drains, and closes: what is left after `graceMs` (default 30,000) is cut; with 0, all at once. A later call may make that sooner.
   * Throws TypeError for more than a day.
   */
  close(options?: { readonly graceMs?: number | undefined }): Promise<void>
  /** As `close()`. */
  [Symbol.asyncDispose](): Promise<void>
}
