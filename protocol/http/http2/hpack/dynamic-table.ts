/** The dynamic table (RFC 7541, sections 2.3.2 and 4) as a ring. Strings in it must be flat, since a slice keeps all of its source. */
import { FIRST_DYNAMIC } from './static-table.ts'

/** The size that both ends begin with (RFC 9113 section 6.5.2), and the most that we use. */
export const MOST_TABLE_BYTES = 4096
/** What an entry counts besides its name and value (section 4.1). */
const ENTRY_BYTES = 32
/** As many entries as there can be. */
export const MOST_ENTRIES = MOST_TABLE_BYTES / ENTRY_BYTES

export class DynamicTable {
  readonly #names: string[] = []
  readonly #values: string[] = []
  #bytes = 0
  #mostBytes = MOST_TABLE_BYTES
  /** How many entries were ever added. Each is known by how many were before it. */
  added = 0
  count = 0

  /** The index of an entry (section 2.3.3). The newest has the lowest. */
  index(entry: number): number {
    return FIRST_DYNAMIC + this.added - 1 - entry
  }

  /** The entry with this index, or -1. */
  entry(index: number): number {
    return index < FIRST_DYNAMIC + this.count ? FIRST_DYNAMIC + this.added - 1 - index : -1
  }

  name(entry: number): string {
    return this.#names[entry % MOST_ENTRIES]!
  }

  value(entry: number): string {
    return this.#values[entry % MOST_ENTRIES]!
  }

  get mostBytes(): number {
    return this.#mostBytes
  }

  resize(mostBytes: number): void {
    this.#mostBytes = mostBytes
    this.#evict(mostBytes)
  }

  fits(name: string, value: string): boolean {
    return name.length + value.length + ENTRY_BYTES <= this.#mostBytes
  }

  /** An entry that does not fit empties the table (section 4.4). */
  add(name: string, value: string): void {
    const bytes = name.length + value.length + ENTRY_BYTES
    this.#evict(this.#mostBytes - bytes)
    if (bytes > this.#mostBytes) return
    const slot = this.added++ % MOST_ENTRIES
    this.#names[slot] = name
    this.#values[slot] = value
    this.#bytes += bytes
    this.count++
  }

  #evict(most: number): void {
    while (this.#bytes > most && this.count > 0) {
      const entry = this.added - this.count--
      const slot = entry % MOST_ENTRIES
      const name = this.#names[slot]!
      this.#bytes -= name.length + this.#values[slot]!.length + ENTRY_BYTES
      // An empty slot must not keep them alive.
      this.#names[slot] = this.#values[slot] = ''
      this.evicted(entry, name)
    }
  }

  protected evicted(_entry: number, _name: string): void {}
}
