/** Chooses the server, token and trust of each dial, and explains failures in words. */

import type { SecureContext } from 'node:tls'
import { messageOf } from '../../protocol/base/errors.ts'
import { formatAddress } from '../../protocol/base/host-port.ts'
import { checkMembers, type Members } from '../../protocol/base/members.ts'
import type { ClientOptions, ResolvedClientOptions } from '../options.ts'
import type { TokenKeeper } from '../token.ts'
import { type Dialled, type DialOptions, dialServer } from './dial.ts'
import { DialError } from './dial-failure.ts'
import { type DialContext, explain, isRefusal } from './explain.ts'
import { chooseProxy, type OutboundProxy } from './proxy.ts'
import { Resolver } from './resolve.ts'
import { createTrust } from './trust.ts'

type NewTrust = Pick<ClientOptions, 'ca' | 'tls'>

const TRUST: Members<NewTrust> = { ca: 'content', tls: 'object' }

/** A failed dial. The message says why, in words. */
export class Unreachable extends Error {
  override readonly name = 'Unreachable'
  /** Set if the server refused the client, so that trying again soon is pointless. */
  readonly refused: { readonly status: number; readonly requestId: string | undefined } | undefined
  /** True if nothing answered at all, so that trying again costs nobody anything. */
  readonly silent: boolean
  /** True if a proxy refused our credentials. Trying again soon is pointless, and may lock the account. */
  readonly wrongLogin: boolean

  constructor(
    message: string,
    why: Partial<Pick<Unreachable, 'refused' | 'silent' | 'wrongLogin'>>,
    options?: { cause?: unknown },
  ) {
    super(message, options)
    this.refused = why.refused
    this.silent = why.silent ?? false
    this.wrongLogin = why.wrongLogin ?? false
  }
}

export class Dialler {
  readonly #options: ClientOptions
  readonly #settings: ResolvedClientOptions
  readonly #tokens: TokenKeeper
  readonly #resolver: Resolver
  #trust: SecureContext

  /** Throws TypeError for a PEM that cannot be read. */
  constructor(options: ClientOptions, settings: ResolvedClientOptions, tokens: TokenKeeper) {
    this.#options = options
    this.#settings = settings
    this.#tokens = tokens
    this.#resolver = new Resolver(options.lookup)
    this.#trust = trustOf(options, settings)
  }

  /** Applies to every dial from now on. Throws if a PEM cannot be read, and keeps the old trust. */
  setTrust(trust: NewTrust): void {
    checkMembers('', trust, TRUST)
    this.#trust = trustOf({ ...this.#options, ca: trust.ca, tls: trust.tls }, this.#settings)
  }

  /** How many machines may serve us, by the number of servers and of addresses of their names. */
  get machines(): number {
    const { connectTo } = this.#options
    const hosts = connectTo ? [connectTo.host] : this.#settings.servers.map(({ hostname }) => hostname)
    return hosts.reduce((sum, host) => sum + this.#resolver.machines(host), 0)
  }

  /** Dials the server and address whose turn it is. Rejects with {@link Unreachable}. */
  async dial(turn: number, signal: AbortSignal, more: Pick<DialOptions, 'onStep' | 'eachStep'> = {}): Promise<Dialled> {
    const { servers, handshakeTimeoutMs } = this.#settings
    const server = servers[turn % servers.length]!
    const token = await this.#token()
    const proxy = chooseProxy(server, this.#options.proxy, process.env)
    const trust = this.#trust
    try {
      const dialled = await dialServer({
        server,
        connectTo: this.#options.connectTo,
        token,
        trust,
        proxy,
        timeoutMs: handshakeTimeoutMs,
        turn: Math.floor(turn / servers.length),
        resolver: this.#resolver,
        signal,
        ...more,
      })
      this.#tokens.accepted(token)
      // A refusal does not count: any machine on the path may send one, and its clock would affect the tokens of all sessions.
      if (dialled.dateMs !== undefined) this.#tokens.serverTime(dialled.dateMs)
      return dialled
    } catch (error) {
      // A certificate that came meanwhile may be the one that the token is bound to.
      if (trust !== this.#trust && !signal.aborted) return await this.dial(turn, signal, more)
      throw this.#unreachable(error, this.#context(server, token, proxy))
    }
  }

  async #token(): Promise<string> {
    try {
      return await this.#tokens.get()
    } catch (cause) {
      throw new Unreachable(`there is no token: ${messageOf(cause)}`, {}, { cause })
    }
  }

  #context(server: URL, token: string, proxy: OutboundProxy | undefined): DialContext {
    return {
      server,
      connectTo: this.#options.connectTo && formatAddress(this.#options.connectTo),
      token,
      audience: this.#settings.audience,
      nowMs: Date.now(),
      proxy: proxy && { address: formatAddress(proxy), credentials: proxy.authorization !== undefined },
      clientCertificate: this.#options.tls !== undefined,
    }
  }

  #unreachable(error: unknown, context: DialContext): Unreachable {
    if (!(error instanceof DialError)) return new Unreachable(messageOf(error), {}, { cause: error })
    const { failure } = error
    const reason = explain(failure, context)
    const silent = failure.kind === 'timeout' && (failure.phase === 'resolve' || failure.phase === 'connect')
    const wrongLogin = failure.kind === 'proxy' && failure.status === 407 && context.proxy?.credentials === true
    if (!isRefusal(failure)) return new Unreachable(reason, { silent, wrongLogin }, { cause: error })
    const answer = failure.kind === 'answer' ? failure : { status: 101, requestId: undefined }
    if (answer.status === 401) this.#tokens.refused(context.token)
    return new Unreachable(
      reason,
      { refused: { status: answer.status, requestId: answer.requestId } },
      { cause: error },
    )
  }
}

function trustOf({ ca, caOnly, tls, tlsMin }: ClientOptions, { servers }: ResolvedClientOptions): SecureContext {
  const isEncrypted = servers.some(({ protocol }) => protocol === 'wss:')
  return createTrust({ ca, caOnly, tls, minVersion: tlsMin }, isEncrypted)
}
