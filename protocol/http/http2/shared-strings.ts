/**
 * Keeps the equal strings of a session's large heads once. Compression lets one byte stand for kilobytes, `node:http2`
 * makes a string of its own of each, and V8 counts every one of them in full.
 */

/** Smaller heads are left alone: what they hold is of the size of what any request costs. */
const LARGE_BYTES = 2048
/** Twice the compression's table: what is referred to is found, what is said in full is paid for by its bytes. */
const KEPT_BYTES = 8192

export class SharedStrings {
  readonly #known = new Map<string, string>()
  #bytes = 0

  /** Replaces strings of a flat block that are known already, and returns the block. */
  share(block: string[]): string[] {
    let bytes = 0
    for (const text of block) bytes += text.length
    if (bytes > LARGE_BYTES) for (let i = 0; i < block.length; i++) block[i] = this.#of(block[i]!)
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
