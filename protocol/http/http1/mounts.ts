/**
 * What is mounted on an embedder's server. Mounts come before the listeners that the server had, several can coexist, and they
 * can be removed in any order.
 */
import type { Server as HttpServer, IncomingMessage, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import { DeadlineWatch, LOOK_MS } from '../../base/deadline-watch.ts'
import { guardWith, ignore } from '../../base/guard.ts'
import { isBroken, keepProbing } from '../../base/tcp.ts'
import { listTokens } from '../headers.ts'

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

/** Without a listener for the other two, Node handles the expectation itself and then emits `request`. */
const ALWAYS_ATTACHED: readonly Event[] = ['request', 'upgrade']

interface Host extends HttpServer {
  /** Since Node 24.9: whether an offered upgrade is accepted. */
  shouldUpgradeCallback?: (request: IncomingMessage) => boolean
  /** The option of that name: it probes all callers by itself. */
  readonly keepAlive?: boolean
}

/**
 * The request of each connection whose offer we refused. Node discards what it has read behind it, so what it emits later on that
 * connection could begin in the middle of another request.
 */
const refused = new WeakMap<Duplex, IncomingMessage>()

const servers = new WeakMap<HttpServer, Mounts>()

/** Puts `mounted` before everything else on `server`. The returned function removes it, once. */
export function addMount(server: HttpServer, mounted: Mounted): () => void {
  const mounts = servers.get(server) ?? new Mounts(server)
  servers.set(server, mounts)
  mounts.add(mounted)
  return () => mounts.delete(mounted)
}

/**
 * Calls `begin` when no other response of the connection is in progress. Node emits all requests of a pipeline at once, so a single
 * connection could start any number of exchanges.
 */
function atTurn({ socket }: IncomingMessage, response: ServerResponse, begin: () => void): void {
  if (response.socket !== null) {
    begin()
    return
  }
  holdBack(socket)
  const assign = response.assignSocket
  response.assignSocket = assigned => {
    assign.call(response, assigned)
    readOn(socket)
    begin()
  }
}

/** What Node keeps at a connection. */
interface NodeState {
  /** It reads no further, because answers wait to be sent. */
  readonly _paused?: boolean
  readonly parser?: unknown
}

/** While this many requests of a connection wait for their turn, no more are read, since each takes memory. */
const MOST_WAITING = 5

/** A connection on which requests wait for their turn. */
interface Held {
  /** How many wait. */
  count: number
  /** Stops reading. */
  readonly stop: () => void
  readonly watch: DeadlineWatch
}

const waiting = new WeakMap<Duplex, Held>()

function holdBack(socket: Duplex): void {
  const held = waiting.get(socket) ?? heldOn(socket)
  held.watch.within(LOOK_MS)
  if (++held.count !== MOST_WAITING) return
  // Node reads on by itself at the end of each request.
  socket.on('resume', held.stop)
  held.stop()
}

function heldOn(socket: Duplex): Held {
  const threw = () => socket.destroy()
  const guard = guardWith(threw)
  // The embedder may have made Node read it as a stream.
  guardStream(socket)
  const stop = guard(() => {
    socket.pause()
    // Otherwise Node would not hear of it if the stream was paused already.
    socket.emit('pause')
  })
  // While Node does not read, it does not notice a caller that leaves.
  const look = () => {
    if (isBroken(socket)) socket.destroy()
    return held.count === 0 || socket.destroyed ? Number.POSITIVE_INFINITY : LOOK_MS
  }
  const held = { count: 0, stop, watch: new DeadlineWatch(look, { threw }) }
  waiting.set(socket, held)
  return held
}

function readOn(socket: Duplex): void {
  const held = waiting.get(socket)!
  if (held.count-- !== MOST_WAITING) return
  socket.off('resume', held.stop)
  socket.resume()
}

/**
 * With a listener for `data`, Node reads a connection as a stream, and parses what the stream emits. Otherwise its parser takes the bytes
 * of a TLS connection directly, and fails with HPE_PAUSED if it is paused in the middle of what has been decrypted.
 */
function readAsStream(socket: Duplex): void {
  socket.on('data', ignore).off('data', ignore)
  guardStream(socket)
}

/**
 * If a connection that Node has paused emits bytes, Node throws, which would end the process.
 *
 * A destroyed stream cannot be paused, and goes on emitting what it has, piece by piece. `ws` reads the rest of a destroyed connection as
 * a whole. An embedder's upgrade whose request has a body resumes its connection although Node has paused it. Node prevents that only if
 * it does not read it as a stream.
 */
function guardStream(socket: Duplex & NodeState): void {
  const read = socket.read.bind(socket)
  const resume = socket.resume.bind(socket)
  socket.read = size => (size === undefined && socket.destroyed ? null : read(size))
  // Node forgets that it has paused it before it reads on. Without a parser, the connection is no longer Node's.
  socket.resume = () => (socket._paused === true && (socket.parser ?? null) !== null ? socket : resume())
}

class Mounts {
  readonly #server: Host
  /** Newest first. */
  #mounted: Mounted[] = []
  /** The embedder's listeners. */
  readonly #theirs: Record<Event, Listener[]> = { request: [], checkContinue: [], checkExpectation: [], upgrade: [] }
  readonly #ours: Record<Event, (...args: never[]) => unknown> = {
    request: (request, response) => this.#onRequest('request', request, response),
    checkContinue: (request: IncomingMessage, response: ServerResponse) => {
      if (this.#serving(request) !== undefined) response.writeContinue()
      return this.#onRequest('checkContinue', request, response)
    },
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
      theirs.push(...(this.#server.listeners(event) as Listener[]).filter(listener => listener !== ours))
      this.#server.removeAllListeners(event)
      if (theirs.length > 0 || ALWAYS_ATTACHED.includes(event)) this.#server.on(event, ours)
    }
    // `http` has its own listener, which comes first.
    this.#server.off('secureConnection', readAsStream).on('secureConnection', readAsStream)
    // Before Node 24.9, once there is an `upgrade` listener, every request that offers an upgrade is emitted as `upgrade`.
    if (this.#shouldUpgrade !== undefined) this.#server.shouldUpgradeCallback = this.#isUpgrade
  }

  delete(mounted: Mounted): void {
    this.#mounted = this.#mounted.filter(one => one !== mounted)
    if (this.#mounted.length > 0 || servers.get(this.#server) !== this) return
    servers.delete(this.#server)
    this.#server.off('secureConnection', readAsStream)
    for (const [event, ours] of this.#events()) {
      this.#server.off(event, ours)
      for (const listener of this.#theirs[event]) this.#server.on(event, listener)
    }
    if (this.#shouldUpgrade !== undefined) this.#server.shouldUpgradeCallback = this.#shouldUpgrade
  }

  #events(): Array<[Event, Listener]> {
    return Object.entries(this.#ours) as Array<[Event, Listener]>
  }

  #serving(request: IncomingMessage): Mounted | undefined {
    for (const one of this.#mounted) if (one.serves(request)) return one
    return undefined
  }

  #onRequest(event: Event, request: IncomingMessage, response: ServerResponse): unknown {
    const last = refused.get(request.socket)
    if (last === request) response.shouldKeepAlive = false
    else if (last !== undefined) {
      // It is never answered: the connection ends with the answer before it.
      return atTurn(request, response, ignore)
    }
    const one = this.#serving(request)
    if (one === undefined) return this.#pass(event, request, response)
    this.#probe(request.socket)
    return atTurn(request, response, () => {
      try {
        one.request(request, response)
      } catch (error) {
        response.destroy()
        one.failed(error)
      }
    })
  }

  #probe(socket: Duplex): void {
    if (this.#server.keepAlive !== true) keepProbing(socket)
  }

  /** A request whose offer nobody accepts remains an ordinary request. */
  readonly #isUpgrade = (request: IncomingMessage): boolean => {
    if (refused.has(request.socket)) return false
    if (this.#mounted.some(one => one.upgrades(request))) {
      const accepted = isWebSocket(request) && !hasBody(request) && !isBusy(request)
      if (!accepted) refused.set(request.socket, request)
      return accepted
    }
    return this.#theirs.upgrade.length > 0 && this.#shouldUpgrade!.call(this.#server, request)
  }

  #onUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): unknown {
    const one = this.#mounted.find(mounted => mounted.upgrades(request))
    if (one === undefined && this.#theirs.upgrade.length > 0) return this.#pass('upgrade', request, socket, head)
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
  return ((socket as { _httpMessage?: ServerResponse | null })._httpMessage ?? null) !== null
}
