import { Buffer } from 'node:buffer'
import type { Duplex } from 'node:stream'
import { KEPT_SHARE, ownBytes } from '../../base/own-bytes.ts'

/** The connection that an intake reads for. */
export interface IntakeOwner {
  /** Uses some of the bytes (`keep`, `clear`). Returns whether there may be more to do at once. */
  step(bytes: Buffer): boolean
  /** A step threw. */
  stepFailed(error: unknown): void
  /** Called when everything usable has been used. */
  parsed(): void
  /** Whether the connection itself has a reason to stop reading. */
  holdsBack?(): boolean
  /** Reading has stopped or resumed. */
  paced?(paused: boolean): void
}

/**
 * What has been read from a connection but not yet used, and what its receiver has not yet consumed. Reading stops while that is
 * too much. Unused bytes may be in the reader's buffer, which the next read overwrites.
 */
export class Intake {
  bytes: Buffer | undefined
  parsing = false
  paused = false
  /** What the receiver holds. */
  unconsumed = 0
  readonly #socket: Duplex
  readonly #bufferBytes: number
  readonly #owner: IntakeOwner
  #lent = false
  #stopped = false

  /** `bufferBytes` is how much the receiver may hold without having consumed it. */
  constructor(socket: Duplex, bufferBytes: number, owner: IntakeOwner) {
    this.#socket = socket
    this.#bufferBytes = bufferBytes
    this.#owner = owner
  }

  /** Accepts what was read, and uses as much of it as possible now. */
  add(bytes: Buffer, lent: boolean): void {
    this.#lent = lent && this.bytes === undefined
    this.bytes = this.bytes === undefined ? bytes : Buffer.concat([this.bytes, bytes])
    this.parse()
    this.#lent = false
  }

  /** Bytes that wait here, or while nothing is read, in the socket. */
  get heldBytes(): number {
    return (this.bytes?.length ?? 0) + (this.paused ? this.#socket.readableLength : 0)
  }

  /** Uses the bytes at hand, as far as the owner's state allows. */
  parse(): void {
    if (this.parsing) return
    this.parsing = true
    try {
      while (this.bytes !== undefined && this.#owner.step(this.bytes));
    } catch (error) {
      this.#owner.stepFailed(error)
    }
    this.parsing = false
    if (this.bytes !== undefined) this.bytes = ownBytes(this.bytes, this.#lent ? Number.POSITIVE_INFINITY : KEPT_SHARE)
    this.#owner.parsed()
  }

  /** The bytes from `from` on are still unused. */
  keep(bytes: Buffer, from: number): void {
    this.bytes = from >= bytes.length ? undefined : from === 0 ? bytes : bytes.subarray(from)
  }

  clear(): void {
    this.bytes = undefined
  }

  /** Some of the bytes go to the receiver, which holds them until they are `consumed`. */
  give(part: Uint8Array): Uint8Array {
    this.unconsumed += part.length
    return this.#lent ? Buffer.from(part) : part
  }

  /** What was forgotten may still be consumed later. */
  consumed(bytes: number): void {
    this.unconsumed = Math.max(0, this.unconsumed - bytes)
    if (this.paused) this.regulate()
  }

  /** The receiver is gone, so what it has not consumed no longer counts. */
  forget(): void {
    this.unconsumed = 0
  }

  /** Stops or resumes reading. */
  regulate(): void {
    const pause = this.unconsumed > this.#bufferBytes || this.#owner.holdsBack?.() === true
    if (pause === this.paused || this.#stopped) return
    this.paused = pause
    if (pause) this.#socket.pause()
    else this.#socket.resume()
    this.#owner.paced?.(pause)
  }

  /** The connection is over. */
  stop(): void {
    this.#stopped = true
    this.bytes = undefined
  }
}
