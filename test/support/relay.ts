/**
 * A TCP relay with the faults of a network: it delays, limits, falls silent and cuts. What it holds is bounded, so a
 * stopped receiver stops the sender, as on a real path.
 */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'

export interface RelayOptions {
  /** Where it leads, on loopback; 0: nowhere yet, every connection is reset. */
  readonly port: number
  /** From one end to the other and back. Default 0. */
  readonly roundTripMs?: number
  /** In each direction of each connection. Default: no limit. */
  readonly bytesPerSecond?: number
}

/** Bytes on their way in one direction: more than a fast path holds in 50 ms. */
const HELD_BYTES = 16 * 1024 * 1024

export class Relay {
  readonly port: number
  /** Where new connections lead. */
  target: number
  /** One way, for bytes that come from now on. */
  delayMs: number
  readonly bytesPerSecond: number
  readonly connections = new Set<RelayedConnection>()
  readonly #server: Server
  #silent = false

  private constructor(server: Server, options: RelayOptions) {
    this.#server = server
    this.port = (server.address() as AddressInfo).port
    this.target = options.port
    this.delayMs = (options.roundTripMs ?? 0) / 2
    this.bytesPerSecond = options.bytesPerSecond ?? Number.POSITIVE_INFINITY
    server.on('connection', socket => this.#accept(socket))
  }

  static async start(options: RelayOptions): Promise<Relay> {
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    return new Relay(server, options)
  }

  /** Whether the path is a black hole: nothing crosses, ends and resets neither; nobody is told. */
  get silent(): boolean {
    return this.#silent
  }

  /** What was on its way when the path fell silent arrives when it returns, as TCP would send it again. */
  set silent(silent: boolean) {
    this.#silent = silent
    for (const connection of this.connections) connection.silent = silent
  }

  /** Resets every connection, at both ends. Returns how many. */
  cut(): number {
    const { size } = this.connections
    for (const connection of this.connections) connection.cut()
    return size
  }

  async stop(): Promise<void> {
    this.#server.close()
    this.cut()
    await once(this.#server, 'close')
  }

  #accept(socket: Socket): void {
    if (this.target === 0) {
      socket.resetAndDestroy()
      return
    }
    const connection = new RelayedConnection(this, socket, connect({ port: this.target, allowHalfOpen: true }))
    connection.silent = this.#silent
    this.connections.add(connection)
  }
}

/** One connection through the relay: two directions. */
export class RelayedConnection {
  readonly #relay: Relay
  readonly #ends: readonly [Socket, Socket]
  readonly #directions: readonly [Direction, Direction]

  /** @internal */
  constructor(relay: Relay, near: Socket, far: Socket) {
    this.#relay = relay
    this.#ends = [near, far]
    this.#directions = [new Direction(relay, near, far), new Direction(relay, far, near)]
    for (const end of this.#ends) {
      end.setNoDelay()
      end.on('error', () => {})
      end.on('close', () => this.#closed(end))
    }
  }

  set silent(silent: boolean) {
    for (const direction of this.#directions) direction.silent = silent
    if (!silent && this.#ends.some(end => end.destroyed)) this.cut()
  }

  /** RST to both ends. */
  cut(): void {
    this.#relay.connections.delete(this)
    for (const direction of this.#directions) direction.stop()
    for (const end of this.#ends) end.resetAndDestroy()
  }

  /** Where both ends said that they end, both are closed; where one broke, the other is reset, unless nobody may know. */
  #closed(end: Socket): void {
    if (this.#relay.silent) return
    if (end.errored || this.#ends.every(one => one.destroyed)) this.cut()
  }
}

/** Bytes of one direction, each chunk with the moment at which it is due at the other end. */
class Direction {
  readonly #relay: Relay
  readonly #from: Socket
  readonly #to: Socket
  readonly #line: Array<{ readonly dueMs: number; readonly bytes: Buffer | undefined }> = []
  #heldBytes = 0
  #lastDueMs = 0
  #timer: NodeJS.Timeout | undefined
  #silent = false
  #blocked = false

  constructor(relay: Relay, from: Socket, to: Socket) {
    this.#relay = relay
    this.#from = from
    this.#to = to
    from.on('data', (chunk: Buffer) => this.#take(chunk))
    from.on('end', () => this.#take(undefined))
    to.on('drain', () => {
      this.#blocked = false
      this.#pump()
    })
  }

  set silent(silent: boolean) {
    this.#silent = silent
    if (silent) {
      clearTimeout(this.#timer)
      this.#timer = undefined
      this.#from.pause()
    } else {
      this.#pump()
    }
  }

  stop(): void {
    clearTimeout(this.#timer)
    this.#line.length = 0
    this.#silent = true
  }

  /** `undefined` is the end. */
  #take(bytes: Buffer | undefined): void {
    const length = bytes?.length ?? 0
    const sentMs = Math.max(performance.now(), this.#lastDueMs - this.#relay.delayMs)
    this.#lastDueMs = sentMs + (length * 1000) / this.#relay.bytesPerSecond + this.#relay.delayMs
    this.#line.push({ dueMs: this.#lastDueMs, bytes })
    this.#heldBytes += length
    this.#pump()
  }

  #pump(): void {
    if (this.#silent) return
    while (this.#line.length > 0 && !this.#blocked) {
      const waitMs = this.#line[0]!.dueMs - performance.now()
      if (waitMs > 0) {
        this.#timer ??= setTimeout(() => {
          this.#timer = undefined
          this.#pump()
        }, waitMs)
        break
      }
      const { bytes } = this.#line.shift()!
      this.#heldBytes -= bytes?.length ?? 0
      if (bytes === undefined) this.#to.end()
      else this.#blocked = !this.#to.write(bytes)
    }
    if (this.#heldBytes < HELD_BYTES && !this.#blocked) this.#from.resume()
    else this.#from.pause()
  }
}
