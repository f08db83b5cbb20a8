import { Buffer } from 'node:buffer'

/** What was read of a connection and is not yet used; it may lie in the reader's buffer, which the next read changes. */
export class Unread {
  bytes: Buffer | undefined
  #lent = false

  /** Adds what was read. */
  add(bytes: Buffer, lent: boolean): void {
    this.#lent = lent && this.bytes === undefined
    this.bytes = this.bytes === undefined ? bytes : Buffer.concat([this.bytes, bytes])
  }

  /** Of the bytes, those from `from` on are still unused. */
  keep(bytes: Buffer, from: number): void {
    this.bytes = from >= bytes.length ? undefined : from === 0 ? bytes : bytes.subarray(from)
  }

  /** A part of the bytes for somebody who keeps it. */
  own(part: Uint8Array): Uint8Array {
    return this.#lent ? Buffer.from(part) : part
  }

  /** The read is over: what is left will be used later. */
  settle(): void {
    if (this.#lent && this.bytes !== undefined) this.bytes = Buffer.from(this.bytes)
    this.#lent = false
  }

  clear(): void {
    this.bytes = undefined
  }
}
