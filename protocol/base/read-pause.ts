import type { Duplex, Readable } from 'node:stream'
import { type Failing, guardWith, stepOf } from './guard.ts'
import { SocketTurns } from './socket-turns.ts'

/**
 * Stops what Node reads from a socket by itself, at once. If only the stream were paused, Node would go on until 64 KiB wait in it. Each
 * read, each TLS record and each chunk of a body waits in a buffer of its own, which takes hundreds of times the byte that may be in it.
 */
export class ReadPause implements Failing {
  static readonly #joinDue = stepOf<ReadPause>(pause => pause.#join())
  readonly #socket: Duplex
  readonly #stream: Readable
  readonly #turns: SocketTurns
  readonly #guard = guardWith(error => this.threw(error))
  readonly #onResume = this.#guard(() => this.#turns.pause())

  /** `stream`: where the bytes go, if the socket has no readers itself. It is paused only if its socket cannot be stopped. */
  constructor(socket: Duplex, stream: Readable = socket) {
    this.#socket = socket
    this.#stream = stream
    this.#turns = new SocketTurns(socket)
  }

  threw(error: unknown): void {
    this.#socket.destroy(error as Error)
  }

  begin(): void {
    if (!this.#turns.canPause) {
      this.#stream.pause()
      return
    }
    if (this.#turns.isPaused) return
    this.#turns.pause()
    // `node:http` resumes its sockets by itself.
    this.#socket.on('resume', this.#onResume)
    if (this.#stream.readableFlowing !== true) setImmediate(ReadPause.#joinDue, this)
  }

  /** The rest of the last read has arrived in the stream. It takes one buffer from here on. */
  #join(): void {
    const { readableLength } = this.#stream
    if (!this.#turns.isPaused || readableLength === 0) return
    // Without a length, Node 26 returns a single piece.
    const bytes: Buffer | null = this.#stream.read(readableLength)
    if (bytes !== null) this.#stream.unshift(bytes)
  }

  /** The stream flows, whether or not it was paused. */
  end(): void {
    if (this.#turns.isPaused) {
      this.#socket.off('resume', this.#onResume)
      this.#turns.resume()
    }
    this.#stream.resume()
  }
}
