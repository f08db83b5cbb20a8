/**
 * When a stream ends, Node frees what it was given, even if a write that points to it waits in the socket. The peer would then receive
 * what this process keeps there next. So such pieces are held here until that write has left. Node sends a destroyed stream's reset before
 * anything else of it, so no later write points to them.
 */
import type { Duplex } from 'node:stream'
import { LOOK_MS } from '../../base/deadline-watch.ts'
import { type Failing, guardWith, ignore, stepOf } from '../../base/guard.ts'
import { queuedInHandle } from '../http1/write-progress.ts'

interface Ended {
  readonly pieces: readonly Uint8Array[]
  readonly bytes: number
  readonly startedAt: number
}

const guard = guardWith(ignore)

export class HeldPieces implements Failing {
  static readonly #lookDue = stepOf<HeldPieces>(held => held.#look())
  bytes = 0
  readonly #socket: Duplex & { readonly bytesWritten?: number }
  /** Those of streams that ended since the last look. They may be in a write that Node is about to begin. */
  #fresh: Ended[] = []
  /** Those that may be in the last write. */
  #held: Ended[] = []
  /** What was written to the socket at the last look. */
  #end: number | undefined
  #timer: NodeJS.Timeout | undefined

  constructor(socket: Duplex) {
    this.#socket = socket
    const onClose = guard(this.#onClose)
    socket.once('close', onClose)
  }

  readonly #onClose = (): void => {
    this.#fresh = []
    this.#held = []
    this.bytes = 0
  }

  /** What was not let go of stays until the socket closes. */
  threw(): void {}

  /** Where the writes to the socket are. */
  get written(): number {
    return this.#socket.bytesWritten ?? 0
  }

  /** A stream, which began when `startedAt` had been written, has ended before these pieces, of `bytes` in all, left. */
  hold(pieces: readonly Uint8Array[], bytes: number, startedAt: number): void {
    if (pieces.length === 0 || this.#socket.closed) return
    this.bytes += bytes
    if (this.#fresh.push({ pieces, bytes, startedAt }) === 1) setImmediate(HeldPieces.#lookDue, this)
  }

  /** Never within a call from Node that may be about to write. Node begins a write when the one before has left. */
  #look(): void {
    const end = this.written
    const isSent = queuedInHandle(this.#socket) === 0
    const fresh = this.#fresh.filter(({ startedAt }) => startedAt !== end)
    this.#held = isSent ? [] : end === this.#end ? this.#held.concat(fresh) : fresh
    this.#fresh = []
    this.#end = end
    this.bytes = this.#held.reduce((sum, { bytes }) => sum + bytes, 0)
    clearTimeout(this.#timer)
    if (this.#held.length > 0) this.#timer = setTimeout(HeldPieces.#lookDue, LOOK_MS, this).unref()
  }
}
