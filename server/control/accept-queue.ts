/**
 * Connections at the control endpoint, from their acceptance to their upgrade request. They are bounded by their real networks, and
 * paced. From the moment that they are admitted, they have one deadline until the client's `hello`.
 */

import type { Socket } from 'node:net'
import { type Cidrs, canonicalAddress, cidrsContain } from '../../protocol/base/address.ts'
import { ConnectionSlots, type SlotHolder } from '../../protocol/base/connection-slots.ts'
import { type Guard, ignore, logGuard } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { heardFirst } from '../../protocol/base/socket-turns.ts'
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
  /** Begins TLS, or reads the request. The first bytes have arrived. */
  readonly onAdmitted: (socket: Socket) => void
  /** Called when a connection was closed because too many wait, or are under way. */
  readonly onFull: (address: string) => void
}

/** A handshake under way. The oldest is dropped first: it had the most time, and an honest one needs only a few round trips. */
interface PendingUpgrade extends SlotHolder {
  /** Charges event-loop time. */
  charge(costMs: number): void
  /** Cancels its deadline. */
  settle(): void
  /** Ends it and its connection. */
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

  /** Handles an accepted connection before any TLS byte is read. `behindFront`: no PROXY header precedes TLS. */
  accept(socket: Socket, behindFront: boolean): void {
    socket.on('error', ignore)
    // A client that sends no more has left. At an address that the edge shares, sockets may be half open.
    socket.allowHalfOpen = false
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
      slots: this.#proxied,
      logger: this.#options.logger,
      deadlineMs: this.#options.limits.handshakeMs,
      maxBytes: PROXY_HEADER_BYTES,
      look: bytes => {
        const result = readProxyHeader(bytes)
        if (!result.done) return -1
        if ('error' in result) {
          this.#options.logger.warn({ peer, err: { message: result.error } }, 'a proxy sent an invalid PROXY header')
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

  /** Starts the deadline. The first bytes have arrived, so the work that they cause can be measured. */
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
    // TLS reads the buffered ClientHello in the next tick, before this callback runs.
    process.nextTick(this.#guard(() => pending.charge(performance.now() - startedAt)))
  }

  /** The handshake that a request belongs to. On an embedder's server, it begins here, with its deadline and without a charge. */
  pendingOf(socket: Socket): PendingUpgrade {
    // The connections of a Unix socket have no addresses that would tell them apart.
    const known = socket.remoteAddress === undefined ? undefined : this.#pending.get(connectionKey(socket))
    return known ?? this.#track(socket, canonicalAddress(socket.remoteAddress ?? ''), ignore)
  }

  /** Tracks a handshake, with one deadline until `hello`. */
  #track(socket: Socket, address: string, charge: (costMs: number) => void): PendingUpgrade {
    this.#underWay.makeRoom(address)
    const key = connectionKey(socket)
    let settled = false
    const cut = this.#guard(() => void (settled || socket.destroy()))
    const timer = setTimeout(heardFirst(cut), this.#options.limits.handshakeMs)
    // Removes everything that would otherwise stay attached to the socket for as long as the session lives.
    const settle = () => {
      settled = true
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

  /** Stops accepting. Handshakes under way keep their deadline. */
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
    // Handshakes on an embedder's server are not among our sockets, and would go on without a deadline.
    this.endPending()
  }

  /** Ends the handshakes under way. Their clients try again. */
  endPending(): void {
    for (const pending of [...this.#pending.values()]) pending.end()
  }
}
