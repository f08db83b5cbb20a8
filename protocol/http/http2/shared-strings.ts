/**
 * Stores equal strings of a session's large heads only once. With compression, one byte can stand for kilobytes, and
 * `node:http2` makes a new string each time.
 */

import { textBytes } from '../headers.ts'

/** Smaller heads are left alone, since they use no more memory than any request costs. */
const LARGE_BYTES = 2048
/** Twice the size of the compression table. References are found in it, and strings that are sent in full cost the sender their bytes. */
const KEPT_BYTES = 8192

export class SharedStrings {
  readonly #known = new Map<string, string>()
  #bytes = 0

  /** Replaces the strings of a flat block that are already known. Returns the block. */
  share(block: string[]): string[] {
    if (textBytes(block) > LARGE_BYTES) for (let i = 0; i < block.length; i++) block[i] = this.#of(block[i]!)
    return block
  }

  #of(text: string): string {
    const known = this.#known.get(text)
    if (known !== undefined) return known
    this.#bytes += text.length
    if (this.#bytes > KEPT_BYTES) {
      this.#known.clear()
      this.#bytes = text.length
    }
    if (text.length <= KEPT_BYTES) this.#known.set(text, text)
    return text
  }
}
