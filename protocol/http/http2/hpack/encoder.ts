/**
 * Encoder of header blocks (RFC 7541), as latin1 strings: one character per byte. Strings are not Huffman-coded: at the edge,
 * the time that it takes is worth more than a fifth of the bytes.
 */
import { Buffer } from 'node:buffer'
import { latin1, writeLatin1 } from '../../../base/latin1.ts'
import { DynamicTable, INITIAL_TABLE_BYTES } from './dynamic-table.ts'
import { FIRST_DYNAMIC, STATIC_NAMES, STATIC_VALUES } from './static-table.ts'

/** An integer whose first byte has other bits than those of `prefix` (section 5.1). */
function integer(bits: number, prefix: number, value: number): string {
  if (value < prefix) return String.fromCharCode(bits | value)
  let text = String.fromCharCode(bits | prefix)
  let rest = value - prefix
  for (; rest >= 0x80; rest >>>= 7) text += String.fromCharCode(0x80 | (rest & 0x7f))
  return text + String.fromCharCode(rest)
}

// The representations (section 6).
const indexed = (index: number) => integer(0x80, 0x7f, index)
const incremental = (index: number) => integer(0x40, 0x3f, index)
const sizeUpdate = (bytes: number) => integer(0x20, 0x1f, bytes)
const neverIndexed = (index: number) => integer(0x10, 0x0f, index)
const withoutIndexing = (index: number) => integer(0, 0x0f, index)

const LENGTHS = Array.from({ length: 512 }, (_, length) => integer(0, 0x7f, length))
const string = (text: string) => (LENGTHS[text.length] ?? integer(0, 0x7f, text.length)) + text

/** Longer fields would take too much of the table from others. */
const MOST_INDEXED_CHARS = 512

/** Secrets. What is compressed together with text of others can be guessed by the size of the result (section 7.1.3). */
const NEVER = ['authorization', 'cookie', 'proxy-authorization', 'set-cookie']
/** Their values rarely repeat. */
const SELDOM_SAME = (
  ':path age content-length content-range etag expires if-modified-since if-none-match if-range last-modified ' +
  'location range traceparent x-request-id'
).split(' ')

/** How fields of a certain name are encoded. */
interface KnownName {
  readonly name: string
  /** By value: entries of the static table. */
  readonly entries: Map<string, string>
  /** The beginning of a literal. */
  readonly literal: string
  /** The beginning of a literal that is added to the table; empty if none is to be. */
  readonly added: string
}

const KNOWN = new Map<string, KnownName>()
for (const name of new Set([...STATIC_NAMES.slice(1), ...SELDOM_SAME])) {
  const index = Math.max(STATIC_NAMES.indexOf(name), 0)
  const secret = NEVER.includes(name)
  const literal = (secret ? neverIndexed(index) : withoutIndexing(index)) + (index === 0 ? string(name) : '')
  const added = secret || SELDOM_SAME.includes(name) ? '' : incremental(index)
  KNOWN.set(name, { name, entries: new Map(), literal, added })
}
STATIC_VALUES.forEach((value, index) => {
  if (value !== '') KNOWN.get(STATIC_NAMES[index]!)!.entries.set(value, indexed(index))
})

/** The entries of one name in the dynamic table. */
interface Entries {
  /** By value: how many entries were added to the table before. */
  readonly values: Map<string, number>
  newest: number
}

class SearchableTable extends DynamicTable {
  readonly #names = new Map<string, Entries>()

  entries(name: string): Entries | undefined {
    return this.#names.get(name)
  }

  override add(name: string, value: string): void {
    super.add(name, value)
    const newest = this.added - 1
    const entries = this.#names.get(name)
    if (entries === undefined) this.#names.set(name, { values: new Map([[value, newest]]), newest })
    else {
      entries.values.set(value, newest)
      entries.newest = newest
    }
  }

  protected override evicted(name: string, value: string): void {
    const { values } = this.#names.get(name)!
    values.delete(value)
    if (values.size === 0) this.#names.delete(name)
  }
}

/** Every index that there can be, encoded. */
const INDEXED = Array.from({ length: FIRST_DYNAMIC + INITIAL_TABLE_BYTES / 32 }, (_, index) => indexed(index))

export class HpackEncoder {
  readonly #table = new SearchableTable(INITIAL_TABLE_BYTES)
  /** Of the sizes set since the previous block, the smallest and the last. */
  #smallestBytes = INITIAL_TABLE_BYTES
  #lastBytes = INITIAL_TABLE_BYTES

  /**
   * Sets the peer's SETTINGS_HEADER_TABLE_SIZE, of which we use at most 4096 bytes. The next block begins with the change, and if it
   * was set several times, also with the smallest size (section 4.2).
   */
  setTableBytes(bytes: number): void {
    this.#lastBytes = Math.min(bytes, INITIAL_TABLE_BYTES)
    this.#smallestBytes = Math.min(this.#smallestBytes, this.#lastBytes)
  }

  /** Encodes a flat list of latin1 strings, names in lower case and pseudo-fields first, as one header block. */
  encode(fields: readonly string[]): string {
    let block = this.#sizeUpdates()
    for (let i = 0; i < fields.length; i += 2) {
      const name = fields[i]!
      const value = fields[i + 1]!
      const known = KNOWN.get(name)
      block +=
        known?.entries.get(value) ??
        (known?.added === '' ? known.literal + string(value) : this.#field(name, value, known))
    }
    return block
  }

  #sizeUpdates(): string {
    const smallest = this.#smallestBytes
    const last = this.#lastBytes
    let updates = ''
    if (smallest < this.#table.mostBytes && smallest < last) updates += this.#resize(smallest)
    if (last !== this.#table.mostBytes) updates += this.#resize(last)
    this.#smallestBytes = last
    return updates
  }

  #resize(bytes: number): string {
    this.#table.resize(bytes)
    return sizeUpdate(bytes)
  }

  /** A field that may be in the dynamic table, or is added to it. */
  #field(name: string, value: string, known: KnownName | undefined): string {
    const table = this.#table
    const entries = table.entries(name)
    const before = entries?.values.get(value)
    if (before !== undefined) return INDEXED[FIRST_DYNAMIC + table.added - 1 - before]!
    const added = name.length + value.length <= MOST_INDEXED_CHARS && table.fits(name, value)
    let start: string
    if (known !== undefined) start = added ? known.added : known.literal
    else {
      const index = entries === undefined ? 0 : FIRST_DYNAMIC + table.added - 1 - entries.newest
      start = (added ? incremental(index) : withoutIndexing(index)) + (index === 0 ? string(name) : '')
    }
    if (added) table.add(known?.name ?? flat(name), flat(value))
    return start + string(value)
  }
}

/** V8 makes slices only of at least this length. */
const LEAST_SLICE_CHARS = 13
const scratch = Buffer.allocUnsafeSlow(MOST_INDEXED_CHARS)

/** A copy, since a slice of a head would keep all of the head. */
function flat(text: string): string {
  if (text.length < LEAST_SLICE_CHARS) return text
  writeLatin1(scratch, text, 0)
  return latin1(scratch, 0, text.length)
}
