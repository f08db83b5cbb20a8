/** The latest lines of a log, for `sallyport diag`. */
const MAX_CHARACTERS = 256 * 1024

export class RecentLines {
  readonly #lines: string[] = []
  #length = 0

  add(line: string): void {
    this.#lines.push(line)
    this.#length += line.length
    while (this.#length > MAX_CHARACTERS) this.#length -= this.#lines.shift()!.length
  }

  /** Each line includes its line break. */
  get all(): readonly string[] {
    return this.#lines
  }
}
