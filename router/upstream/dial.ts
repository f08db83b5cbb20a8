/** One new connection to an upstream: name, TCP and TLS within one deadline. */
import { connect as connectTcp, type LookupFunction, type Socket } from 'node:net'
import {
  type ConnectionOptions,
  checkServerIdentity,
  connect as connectTls,
  createSecureContext,
  type SecureContext,
} from 'node:tls'
import { SallyportError, toSallyportError } from '../../protocol/base/errors.ts'
import { guardWith, ignore } from '../../protocol/base/guard.ts'
import { tlsName } from '../../protocol/base/host-port.ts'
import { isReserved } from '../../protocol/base/reserved-addresses.ts'
import { resetSocket } from '../../protocol/base/reset-socket.ts'
import { heardFirst } from '../../protocol/base/socket-turns.ts'
import { leadingTo, unanswered } from '../../protocol/base/unanswered.ts'
import type { TlsIdentity, UpstreamTarget } from '../target.ts'
import { elsewhere } from './elsewhere.ts'
import { dialError, type UpstreamDialPhase } from './errors.ts'
import { namesFor } from './name-lookups.ts'

/** Called once, with either the error or the socket. */
type UpstreamSocket = (error: SallyportError | undefined, socket: Socket | undefined) => void

const KEEP_ALIVE_MS = 30_000

/** Starts a connection for `caller`. The returned function abandons it; `done` is then not called. `onTls`: TCP is there, and TLS begins. */
export function dialUpstream(
  target: UpstreamTarget,
  caller: string,
  connectMs: number,
  contexts: SecureContexts,
  done: UpstreamSocket,
  onTls?: () => void,
): () => void {
  let phase: UpstreamDialPhase = 'connect'
  const name = namesFor(target).forConnection(caller)
  const lookup = target.captured ? elsewhere(name.lookup) : name.lookup
  let socket: Socket
  const guard = guardWith(error => {
    socket.destroy()
    finish(toSallyportError(error))
  })
  const onLate = guard(() => {
    const message = `no connection to ${target.host}:${target.port} within ${connectMs} ms`
    finish(new SallyportError('upstream-timeout', message))
  })
  const timer = setTimeout(heardFirst(onLate), connectMs)
  let over = false
  const finish = (error: SallyportError | undefined): void => {
    if (over) return
    over = true
    clearTimeout(timer)
    name.leave()
    release(socket)
    if (error !== undefined) resetSocket(socket)
    done(error, error === undefined ? socket : undefined)
  }
  const onError = guard((error: Error) => {
    const left = unanswered(error)
    if (left.length > 0) open(leadingTo(left))
    else finish(dialError(error, phase, target))
  })
  const onConnect = guard(() => {
    phase = 'tls'
    if (isReserved(socket)) finish(new SallyportError('upstream-refused', 'the target is the admin listener'))
    else if (target.protocol !== 'https') finish(undefined)
    else onTls?.()
  })
  const onSecure = guard(() => finish(undefined))
  const open = (lookup: LookupFunction) => {
    socket = target.protocol === 'https' ? openTls(target, contexts, lookup) : openTcp(target, lookup)
    socket.on('error', onError)
    socket.once('connect', onConnect)
    socket.once('secureConnect', onSecure)
  }
  open(lookup)
  return () => {
    over = true
    clearTimeout(timer)
    name.leave()
    release(socket)
    resetSocket(socket)
  }
}

/** A listener of the dial would keep the first exchange alive as long as the pooled connection lives. */
function release(socket: Socket): void {
  for (const event of ['connect', 'secureConnect', 'error']) socket.removeAllListeners(event)
  // A late error of an abandoned socket must not end the process.
  socket.on('error', ignore)
}

function openTcp(target: UpstreamTarget, lookup: LookupFunction): Socket {
  return connectTcp({
    host: target.dialHost,
    port: target.dialPort,
    lookup,
    allowHalfOpen: true,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: KEEP_ALIVE_MS,
  })
}

function openTls(target: UpstreamTarget, contexts: SecureContexts, lookup: LookupFunction): Socket {
  const identity = target.tls!
  const name = identity.serverName ?? target.host
  const options: ConnectionOptions & { allowHalfOpen: boolean } = {
    host: target.dialHost,
    port: target.dialPort,
    lookup,
    allowHalfOpen: true,
    secureContext: contexts.get(identity),
    servername: tlsName(name),
    rejectUnauthorized: !identity.insecure,
    checkServerIdentity: (_, certificate) => checkServerIdentity(name, certificate),
    ALPNProtocols: identity.http2 ? ['h2', 'http/1.1'] : ['http/1.1'],
  }
  const socket = connectTls(options)
  socket.setNoDelay(true)
  socket.setKeepAlive(true, KEEP_ALIVE_MS)
  return socket
}

const MAX_CONTEXTS = 256

/** Secure contexts by CA. Each is made once, since parsing CAs is slow. */
export class SecureContexts {
  readonly #contexts = new Map<string | undefined, SecureContext>()

  get({ ca }: TlsIdentity): SecureContext {
    let context = this.#contexts.get(ca)
    if (context === undefined) {
      context = createSecureContext(ca === undefined ? {} : { ca })
      if (this.#contexts.size >= MAX_CONTEXTS) this.#contexts.clear()
      this.#contexts.set(ca, context)
    }
    return context
  }
}
