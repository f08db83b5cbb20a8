/**
 * What is mounted on an embedder's server. Mounts come before the listeners that the server had, several can coexist, and they
 * can be removed in any order.
 */
import type { Server as HttpServer, IncomingMessage, ServerResponse } from 'node:http'
import process from 'node:process'
import type { Duplex } from 'node:stream'
import { guardWith, ignore } from '../../base/guard.ts'
import { ReadPause } from '../../base/read-pause.ts'
import { keepProbing } from '../../base/tcp.ts'
import { listTokens } from '../headers.ts'
import { DEFAULT_HTTP_LIMITS } from '../limits.ts'
import { ignoreRest, type NodeSocket } from './ignore-rest.ts'

export interface Mounted {
  serves(request: IncomingMessage): boolean
  request(request: IncomingMessage, response: ServerResponse): void
  /** Whether it accepts the request, if that is an upgrade. */
  upgrades(request: IncomingMessage): boolean
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void
  /** Called when it threw. The connection has ended. */
  failed(error: unknown): void
}

type Event = 'request' | 'checkContinue' | 'checkExpectation' | 'upgrade'
type Listener = (...args: unknown[]) => unknown

/** Emitted on a request once the next one of its connection has arrived. By then it has arrived in full itself, even if it is paused. */
export const FOLLOWED = Symbol('followed')

/** Without a listener for `checkContinue`, Node sends the 100 and then emits `request`. Any other expectation it would answer itself. */
const ALWAYS_ATTACHED: readonly Event[] = ['request', 'checkExpectation', 'upgrade']

interface Host extends HttpServer {
  /** Since Node 24.9: whether an offered upgrade is accepted. */
  shouldUpgradeCallback?: (request: IncomingMessage) => boolean
  /** The option of that name: it probes all callers by itself. */
  readonly keepAlive?: boolean
}

const servers = new WeakMap<HttpServer, Mounts>()

/** Node destroys the socket of a CONNECT, and TLS may report an error of what came with it even then. Not every Node listens for it. */
const ignoreErrors = guardWith(ignore)((socket: Duplex) => {
  socket.on('error', ignore)
})

/** Puts `mounted` before everything else on `server`. The returned function removes it, once. */
export function addMount(server: HttpServer, mounted: Mounted): () => void {
  const known = servers.get(server)
  const mounts = known?.isAttached() ? known : new Mounts(server)
  servers.set(server, mounts)
  mounts.add(mounted)
  return () => mounts.delete(mounted)
}

/** A caller may have all of an answer a little before it has ended, and then send its next request. */
const MOMENT_MS = 1000

/**
 * Begins a request when its response is the next to be sent. Node emits all requests of a pipeline at once, so one connection could
 * otherwise begin any number of exchanges. If that takes longer, the connection ends in place of the answer, and the caller has to repeat
 * the request (RFC 9112, section 9.3.2).
 */
function atTurn(request: IncomingMessage, response: ServerResponse, begin: () => void): void {
  const { socket } = request
  let next = begin
  const pause = new ReadPause(socket, request)
  // A caller without a body that leaves is noticed.
  if (hasBody(request)) pause.begin()
  const wait = setTimeout(() => {
    next = () => socket.destroySoon()
    // While its body is not read, Node would not notice a caller that leaves.
    pause.end()
  }, MOMENT_MS).unref()
  response.once('socket', () => {
    clearTimeout(wait)
    // Node sends a 100 first.
    process.nextTick(() => {
      pause.end()
      if (!socket.destroyed) next()
    })
  })
}

/**
 * Node ends a connection with `destroySoon`, which would reset a caller that still sends, and the caller could lose the end of its answer.
 * So only our half is closed, until the caller is silent. A request after that could not be answered.
 */
function endSoftly(this: NodeSocket): void {
  this.setTimeout?.(DEFAULT_HTTP_LIMITS.drainMs)
  this.end()
  if (this.parser) ignoreRest(this)
}

class Mounts {
  readonly #server: Host
  /** Newest first. */
  #mounted: Mounted[] = []
  /** The embedder's listeners. */
  readonly #theirs: Record<Event, Listener[]> = { request: [], checkContinue: [], checkExpectation: [], upgrade: [] }
  readonly #ours: Record<Event, (...args: never[]) => unknown> = {
    request: (request, response) => this.#onRequest('request', request, response),
    checkContinue: (request, response) => this.#onRequest('checkContinue', request, response),
    checkExpectation: (request, response) => this.#onRequest('checkExpectation', request, response),
    upgrade: (request, socket, head) => this.#onUpgrade(request, socket, head),
  }
  readonly #shouldUpgrade: Host['shouldUpgradeCallback']

  constructor(server: Host) {
    this.#server = server
    this.#shouldUpgrade = server.shouldUpgradeCallback
  }

  add(mounted: Mounted): void {
    this.#mounted.unshift(mounted)
    for (const [event, ours] of this.#events()) {
      const theirs = this.#theirs[event]
      theirs.push(...(this.#server.rawListeners(event) as Listener[]).filter(listener => listener !== ours))
      this.#server.removeAllListeners(event)
      if (theirs.length > 0 || ALWAYS_ATTACHED.includes(event)) this.#server.on(event, ours)
    }
    // Before Node 24.9, once there is an `upgrade` listener, every request that offers an upgrade is emitted as `upgrade`.
    if (this.#shouldUpgrade !== undefined) this.#server.shouldUpgradeCallback = this.#isUpgrade
    if (this.#mounted.length === 1) this.#server.on('secureConnection', ignoreErrors)
  }

  delete(mounted: Mounted): void {
    this.#mounted = this.#mounted.filter(one => one !== mounted)
    if (this.#mounted.length > 0) return
    if (servers.get(this.#server) === this) servers.delete(this.#server)
    this.#server.off('secureConnection', ignoreErrors)
    for (const [event, ours] of this.#events()) {
      if (!this.#has(event)) continue
      this.#server.off(event, ours)
      for (const listener of this.#theirs[event]) this.#server.on(event, listener)
    }
    if (this.#server.shouldUpgradeCallback === this.#isUpgrade)
      this.#server.shouldUpgradeCallback = this.#shouldUpgrade!
  }

  /** False once somebody has put a listener in front of ours that calls it, as Socket.IO does. Then ours stays there, and passes on. */
  isAttached(): boolean {
    return ALWAYS_ATTACHED.every(event => this.#has(event))
  }

  #has(event: Event): boolean {
    const attached: readonly unknown[] = this.#server.listeners(event)
    return attached.includes(this.#ours[event])
  }

  #events(): Array<[Event, Listener]> {
    return Object.entries(this.#ours) as Array<[Event, Listener]>
  }

  #serving(request: IncomingMessage): Mounted | undefined {
    for (const one of this.#mounted) if (one.serves(request)) return one
    return undefined
  }

  #onRequest(event: Event, request: IncomingMessage, response: ServerResponse): unknown {
    const { socket } = request
    const one = this.#serving(request)
    const waits = one !== undefined && response.socket === null
    const isRefused = request.headers.upgrade !== undefined && this.#mounted.some(each => each.upgrades(request))
    if (one !== undefined || isRefused) socket.destroySoon = endSoftly
    if (response.socket === null) answering(socket)?.req.emit(FOLLOWED)
    // Node discards what it has read behind an offer that is refused, so the next request could begin in the middle of another.
    if (waits || isRefused) {
      response.shouldKeepAlive = false
      ignoreRest(socket)
    }
    if (one === undefined) {
      // As Node answers it.
      if (event === 'checkExpectation' && !this.#othersHear(event)) return response.writeHead(417).end()
      return this.#pass(event, request, response)
    }
    this.#probe(socket)
    const begin = () => {
      try {
        if (event === 'checkContinue') response.writeContinue()
        one.request(request, response)
      } catch (error) {
        response.destroy()
        one.failed(error)
      }
    }
    return waits ? atTurn(request, response, begin) : begin()
  }

  #probe(socket: Duplex): void {
    if (this.#server.keepAlive !== true) keepProbing(socket)
  }

  /** A request whose offer nobody accepts remains an ordinary request. */
  readonly #isUpgrade = (request: IncomingMessage): boolean => {
    if (this.#mounted.some(one => one.upgrades(request))) {
      return isWebSocket(request) && !hasBody(request) && !isBusy(request)
    }
    return this.#othersHear('upgrade') && this.#shouldUpgrade!.call(this.#server, request)
  }

  /** Whether somebody else decides about what is not ours, even if only since later. */
  #othersHear(event: Event): boolean {
    return this.#theirs[event].length > 0 || this.#server.listenerCount(event) > 1
  }

  #onUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): unknown {
    const one = this.#mounted.find(mounted => mounted.upgrades(request))
    if (one === undefined && this.#othersHear('upgrade')) return this.#pass('upgrade', request, socket, head)
    // Node has removed its own listener. TLS may report an error of what came with the request even after the socket is destroyed.
    socket.on('error', ignore)
    if (one === undefined || isBusy(request)) return socket.destroy()
    this.#probe(socket)
    try {
      return one.upgrade(request, socket, head)
    } catch (error) {
      socket.destroy()
      return one.failed(error)
    }
  }

  /**
   * An error that an embedder's listener throws propagates as it would without us. What is returned has the promises' rejections: Node
   * asks for them with `captureRejections`, and otherwise nobody handles them.
   */
  #pass(event: Event, ...args: unknown[]): unknown {
    const results = this.#theirs[event].map(listener => listener.apply(this.#server, args))
    const then = (_: undefined, failed: (error: unknown) => void) => {
      for (const result of results) if (isThenable(result)) result.then(undefined, failed)
    }
    return { then }
  }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as PromiseLike<unknown> | null | undefined)?.then === 'function'
}

/** No other upgrade is accepted. */
function isWebSocket({ headers }: IncomingMessage): boolean {
  return listTokens(headers.upgrade ?? '').includes('websocket')
}

/** With a body before the upgrade, Node reads the body and would not give us the bytes after it. */
function hasBody({ headers }: IncomingMessage): boolean {
  return headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined
}

/** Whether the answer to an earlier request is still due on its connection. Node would write it into the upgraded stream. */
function isBusy({ socket }: IncomingMessage): boolean {
  return answering(socket) !== undefined
}

/** The response that Node is sending on a connection. */
function answering(socket: Duplex): ServerResponse | undefined {
  return (socket as { _httpMessage?: ServerResponse | null })._httpMessage ?? undefined
}
