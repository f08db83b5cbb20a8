/**
 * Connections at the control endpoint, from their acceptance to the request that they carry: bounded by their real
 * networks, paced, and from the moment that they are let in under one deadline, which ends with the client's `hello`.
 */

import type { Socket } from 'node:net'
import { ConnectionSlots, type SlotHolder } from '../../protocol/base/connection-slots.ts'
import { type Guard, ignore, logGuard } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { type Cidrs, canonicalAddress, cidrsContain } from '../../protocol/http/forwarded.ts'
import { connectionKey } from '../../protocol/http/pending-connections.ts'
import type { ResolvedLimits } from '../limits.ts'
import { within } from '../pause.ts'
import { lookAtFirstBytes } from '../socket/first-bytes.ts'
import { readProxyHeader } from '../socket/proxy-protocol.ts'
import { Admission } from './admission.ts'
import { WaitingSocket } from './waiting-socket.ts'

interface AcceptQueueOptions {
  readonly limits: ResolvedLimits
  /** Proxies that must send a PROXY header. */
  readonly proxies: Cidrs
  readonly logger: Logger
  /** Begins TLS, or reads the request: its first bytes are there. */
  readonly onAdmitted: (socket: Socket) => void
  /** A connection was closed because too many wait, or are under way. */
  readonly onFull: (address: string) => void
}

/** A handshake under way. The oldest is given up first: it had the most time, and an honest one needs few round trips. */
interface PendingUpgrade extends SlotHolder {
  /** It took so much of the event loop's time. */
  charge(costMs: number): void
  /** Its deadline has no meaning any more. */
  settle(): void
  /** It ends with its connection. */
  end(): void
}

const PROXY_HEADER_BYTES = 4096

export class AcceptQueue {
  readonly #options: AcceptQueueOptions
  readonly #admission: Admission
  readonly #proxied: ConnectionSlots
  readonly #underWay: ConnectionSlots
  readonly #pending = new Map<string, PendingUpgrade>()
  readonly #sockets = new Set<Socket>()
  readonly #guard: Guard
  #onEmpty: (() => void) | undefined

  constructor(options: AcceptQueueOptions) {
    const { limits } = options
    this.#options = options
    this.#guard = logGuard(options.logger, 'a handshake failed')
    this.#proxied = new ConnectionSlots(limits.handshakesWaiting)
    this.#underWay = new ConnectionSlots(limits.handshakesUnderWay)
    this.#admission = new Admission({
      share: Math.max(0.01, limits.handshakeBudget),
      maxWaiting: limits.handshakesWaiting,
      maxPerAddress: limits.handshakesWaitingPerAddress,
      now: () => performance.now(),
      guard: this.#guard,
    })
  }

  get waiting(): number {
    return this.#admission.waiting
  }

  /** Takes an accepted connection before any TLS byte is read. `behindFront`: no PROXY header precedes TLS. */
  accept(socket: Socket, behindFront: boolean): void {
    socket.on('error', ignore)
    this.#sockets.add(socket)
    const gone = this.#guard(() => {
      this.#sockets.delete(socket)
      if (this.#sockets.size === 0) this.#onEmpty?.()
    })
    socket.once('close', gone)
    const peer = canonicalAddress(socket.remoteAddress ?? '')
    if (!behindFront && cidrsContain(this.#options.proxies, peer)) this.#readProxyHeader(socket, peer)
    else this.#wait(socket, peer)
  }

  #readProxyHeader(socket: Socket, peer: string): void {
    let address: string | undefined = peer
    lookAtFirstBytes(socket, {
      places: this.#proxied,
      logger: this.#options.logger,
      deadlineMs: this.#options.limits.handshakeMs,
      maxBytes: PROXY_HEADER_BYTES,
      look: bytes => {
        const result = readProxyHeader(bytes)
        if (!result.done) return -1
        if ('error' in result) {
          this.#options.logger.warn({ peer, err: { message: result.error } }, 'a proxy sent a bad PROXY header')
          socket.destroy()
          return -1
        }
        address = result.address ?? peer
        return result.length
      },
      done: () => this.#wait(socket, address ?? peer),
    })
  }

  #wait(socket: Socket, address: string): void {
    const waiting = new WaitingSocket(socket, {
      address,
      silentMs: this.#options.limits.handshakeMs,
      onReady: candidate => this.#admission.ready(candidate),
      onAdmitted: () => this.#begin(socket, address),
      onRefused: () => this.#options.onFull(address),
      onGone: candidate => this.#admission.remove(candidate),
      logger: this.#options.logger,
    })
    if (this.#admission.add(waiting)) waiting.listen()
    else waiting.destroy()
  }

  /** From here on the deadline runs. The first bytes are there, so that the work they cause can be measured. */
  #begin(socket: Socket, address: string): void {
    let charged = false
    const pending = this.#track(socket, address, costMs => {
      const first = !charged
      charged = true
      if (first || costMs > 0) this.#admission.charge(costMs, first)
    })
    if (socket.destroyed) {
      pending.settle()
      pending.charge(0)
      return
    }
    const startedAt = performance.now()
    this.#options.onAdmitted(socket)
    // TLS takes the ClientHello that lies in the socket in the next tick, before this one.
    process.nextTick(this.#guard(() => pending.charge(performance.now() - startedAt)))
  }

  /** The handshake that a request belongs to; one on an embedder's server has its deadline from here on, and costs it. */
  pendingOf(socket: Socket): PendingUpgrade {
    const known = this.#pending.get(connectionKey(socket))
    return known ?? this.#track(socket, canonicalAddress(socket.remoteAddress ?? ''), ignore)
  }

  /** One deadline from here to `hello`. */
  #track(socket: Socket, address: string, charge: (costMs: number) => void): PendingUpgrade {
    this.#underWay.makeRoom(address)
    const key = connectionKey(socket)
    const cut = this.#guard(() => socket.destroy())
    const timer = setTimeout(cut, this.#options.limits.handshakeMs)
    // What a session does not need any more must not hang on its socket as long as it lives.
    const settle = () => {
      clearTimeout(timer)
      socket.off('close', onClose)
      this.#underWay.delete(pending)
      if (this.#pending.get(key) === pending) this.#pending.delete(key)
    }
    const leave = () => {
      settle()
      charge(0)
    }
    const onClose = this.#guard(leave)
    const end = () => {
      leave()
      socket.destroy()
    }
    const destroy = () => {
      end()
      this.#options.onFull(address)
    }
    const pending: PendingUpgrade = { address, idle: true, charge, settle, end, destroy }
    this.#underWay.add(pending)
    this.#pending.set(key, pending)
    socket.on('close', onClose)
    return pending
  }

  /** Accepts nobody any more. Handshakes under way keep their deadline. */
  stop(): void {
    this.#admission.close()
  }

  /** Resolves when nobody is connected any more, at the latest after `ms`. */
  async emptied(ms: number): Promise<void> {
    if (this.#sockets.size === 0) return
    const { promise: emptied, resolve } = Promise.withResolvers<void>()
    this.#onEmpty = resolve
    await within(ms, emptied)
  }

  /** Ends what is still connected. */
  close(): void {
    for (const socket of this.#sockets) socket.destroy()
    // One on an embedder's server is none of our sockets, and would stay without a deadline.
    for (const pending of [...this.#pending.values()]) pending.end()
  }
}
