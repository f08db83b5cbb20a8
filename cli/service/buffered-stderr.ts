/**
 * Writes lines to stderr in batches, asynchronously. If the reader is slower than the log, or the disk is full for a while, lines
 * are dropped, and a line says how many once there is room again. A reader that has gone gets nothing. Neither holds up the
 * process or its end.
 */
import { write, writeSync } from 'node:fs'
import { guardWith } from '../../protocol/base/guard.ts'

const STDERR = 2
const MAX_BYTES = 4 * 1024 * 1024
/** A full pipe is retried after the first time; other temporary errors, such as a full disk, after the second. */
const PAUSE_MS = 50
const LONG_PAUSE_MS = 1000
/** Errors that mean that the reader is gone for good. */
const GONE: ReadonlySet<string | undefined> = new Set(['EPIPE', 'ECONNRESET', 'ENOTCONN', 'EBADF'])
/** How long the process may wait at its end for a reader to take what is left. */
const MAX_FLUSH_MS = 500
/** How long a write in flight may take to precede the rest. */
const IN_FLIGHT_MS = 10
/** A write that takes this long is stuck at a stopped terminal or a full pipe, and the rest would get stuck, too. */
const STUCK_MS = 100

export class BufferedStderr {
  #lines: string[] = []
  #length = 0
  /** Number of lines that were dropped for lack of room. */
  #dropped = 0
  readonly #onDropped: (lines: number) => void
  /** The write in progress. Whatever is not accepted is written again. */
  #text: Uint8Array | undefined
  #gone = false
  #inFlight = false
  #inFlightSince = 0
  readonly #guard = guardWith(() => this.#giveUp())

  /** `onDropped` must write a line about the dropped lines. */
  constructor(onDropped: (lines: number) => void = () => {}) {
    this.#onDropped = onDropped
  }

  write(line: string): void {
    if (this.#gone) return
    if (this.#length + line.length > MAX_BYTES) {
      this.#dropped++
      return
    }
    this.#lines.push(line)
    this.#length += line.length
    if (this.#text === undefined) this.#next()
  }

  #next(): void {
    this.#text = this.#take()
    if (this.#text !== undefined) this.#write()
  }

  #take(): Uint8Array | undefined {
    if (this.#lines.length === 0) return undefined
    const text = Buffer.from(this.#lines.join(''))
    this.#lines = []
    this.#length = 0
    this.#reportDropped()
    return text
  }

  /** Writes the line about dropped lines in their place, once there is room again. */
  #reportDropped(): void {
    const dropped = this.#dropped
    this.#dropped = 0
    if (dropped > 0) this.#onDropped(dropped)
  }

  #write(): void {
    if (this.#text === undefined) return
    this.#inFlight = true
    this.#inFlightSince = performance.now()
    write(STDERR, this.#text, this.#onWritten)
  }

  readonly #onWritten = this.#guard((error: NodeJS.ErrnoException | null, bytes: number): void => {
    this.#inFlight = false
    if (error !== null) this.#onError(error)
    else if (bytes < this.#text!.length) {
      this.#text = this.#text!.subarray(bytes)
      this.#write()
    } else this.#next()
  })

  #onError(error: NodeJS.ErrnoException): void {
    if (GONE.has(error.code)) this.#giveUp()
    else setTimeout(this.#retry, error.code === 'EAGAIN' ? PAUSE_MS : LONG_PAUSE_MS).unref()
  }

  readonly #retry = this.#guard(() => this.#write())

  #giveUp(): void {
    this.#gone = true
    this.#lines = []
    this.#text = undefined
  }

  /** Writes what is left at the end of the process, as long as it is accepted. */
  flushSync(): void {
    if (this.#inFlight && performance.now() - this.#inFlightSince > STUCK_MS) return
    const deadline = performance.now() + MAX_FLUSH_MS
    // A write in flight already belongs to the system.
    if (this.#inFlight && this.#lines.length > 0) pause(IN_FLIGHT_MS)
    let text = this.#inFlight ? undefined : this.#text
    for (text ??= this.#take(); text !== undefined; text = this.#take()) {
      while (text.length > 0) {
        try {
          text = text.subarray(writeSync(STDERR, text))
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== 'EAGAIN' || performance.now() > deadline) return
        }
      }
    }
  }
}

/** The event loop has ended, so no timer can wait. */
function pause(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}
