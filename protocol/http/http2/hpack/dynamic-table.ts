/** The dynamic table (RFC 7541, sections 2.3.2 and 4) as a ring. Strings in it must be flat, since a slice keeps all of its source. */

/** The size that both ends begin with (RFC 9113 section 6.5.2). */
export const INITIAL_TABLE_BYTES = 4096
/** What an entry counts besides its name and value (section 4.1). */
const ENTRY_BYTES = 32

export class DynamicTable {
  readonly #names: string[] = []
  readonly #values: string[] = []
  readonly #mask: number
  #bytes = 0
  #mostBytes = INITIAL_TABLE_BYTES
  /** How many entries were ever added. */
  added = 0
  count = 0

  /** `mostBytes` is the largest size that it will be given. */
  constructor(mostBytes: number) {
    this.#mask = 2 ** Math.ceil(Math.log2(mostBytes / ENTRY_BYTES)) - 1
  }

  /** The name of an entry. The newest has age 0. */
  name(age: number): string {
    return this.#names[(this.added - 1 - age) & this.#mask]!
  }

  value(age: number): string {
    return this.#values[(this.added - 1 - age) & this.#mask]!
  }

  get mostBytes(): number {
    return this.#mostBytes
  }

  resize(mostBytes: number): void {
    this.#mostBytes = mostBytes
    this.#evict(mostBytes)
  }

  /** Whether an entry of this size would not empty the table only (section 4.4). */
  fits(name: string, value: string): boolean {
    return name.length + value.length + ENTRY_BYTES <= this.#mostBytes
  }

  add(name: string, value: string): void {
    const bytes = name.length + value.length + ENTRY_BYTES
    this.#evict(this.#mostBytes - bytes)
    if (bytes > this.#mostBytes) return
    const slot = this.added++ & this.#mask
    this.#names[slot] = name
    this.#values[slot] = value
    this.#bytes += bytes
    this.count++
  }

  #evict(most: number): void {
    while (this.#bytes > most && this.count > 0) {
      const slot = (this.added - this.count--) & this.#mask
      const name = this.#names[slot]!
      const value = this.#values[slot]!
      this.#bytes -= name.length + value.length + ENTRY_BYTES
      // An empty slot must not keep them alive.
      this.#names[slot] = this.#values[slot] = ''
      this.evicted(name, value)
    }
  }

  protected evicted(_name: string, _value: string): void {}
}
