/** A socket whose peer is the fuzzer. It receives what the fuzzer pushes, and keeps what is sent. */
import type { Socket } from 'node:net'
import { Duplex } from 'node:stream'
import { type OnRead, SocketReader } from '../../protocol/http/http1/socket-reader.ts'

/** Requests that arrive together begin in later turns. Behind a FIN, a WebSocket would not be begun any more. */
const TURNS_TO_BEGIN = 16

export class FakeSocket extends Duplex {
  readonly remoteAddress = '192.0.2.1'
  readonly sent: Buffer[] = []
  wasReset = false

  constructor() {
    super({ allowHalfOpen: true, readableHighWaterMark: 65_536, writableHighWaterMark: 65_536 })
  }

  override _read(): void {}

  override _write(chunk: Buffer, _encoding: string, callback: () => void): void {
    this.sent.push(chunk)
    callback()
  }

  setNoDelay(): this {
    return this
  }

  resetAndDestroy(): this {
    this.wasReset = true
    return this.destroy()
  }

  /** The socket, with the type that our code expects. */
  get asSocket(): Socket {
    return this as unknown as Socket
  }

  get text(): string {
    return Buffer.concat(this.sent).toString('latin1')
  }

  /** Delivers `pieces`, one per turn of the event loop, and then the peer's FIN. */
  async bring(pieces: readonly Uint8Array[]): Promise<void> {
    for (const piece of pieces) {
      if (this.destroyed) return
      this.push(piece)
      await nextTick()
    }
    for (let turns = 0; turns < TURNS_TO_BEGIN; turns++) await turn()
    if (!this.destroyed) this.push(null)
    await turn()
  }
}

/** Lends out every byte, and overwrites it once the call has returned. That exposes whoever keeps a chunk without copying it. */
export class LendingReader extends SocketReader {
  override read(socket: Duplex, onRead: OnRead): void {
    socket.on('data', (bytes: Buffer) => {
      const lent = Buffer.from(bytes)
      onRead(lent, true, performance.now())
      lent.fill('!')
    })
  }
}

/** Lets work that was deferred in this turn run. */
export function nextTick(): Promise<void> {
  return new Promise(resolve => process.nextTick(resolve))
}

export function turn(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve))
}
