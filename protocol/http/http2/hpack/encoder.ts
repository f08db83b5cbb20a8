/**
 * Encoder of header blocks (RFC 7541), as latin1 strings: one character per byte. Strings are not Huffman-coded: at the edge,
 * the time that it takes is worth more than a fifth of the bytes.
 */
import { Buffer } from 'node:buffer'
import { latin1, writeLatin1 } from '../../../base/latin1.ts'
import { DynamicTable, MOST_ENTRIES, MOST_TABLE_BYTES } from './dynamic-table.ts'
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

/** Secrets. Whoever can add fields to a block could guess what else is in the table by its size (section 7.1.3). */
const NEVER = ['authorization', 'cookie', 'proxy-authorization', 'set-cookie']
/** Their values rarely repeat. */
const SELDOM_SAME = (
  ':path age content-length content-range etag expires if-modified-since if-none-match if-range last-modified ' +
  'location range traceparent x-request-id'
).split(' ')

/** How fields of a certain name are encoded. */
interface KnownName {
  readonly name: string
  /** Those that the static table has, and their encoded entries. */
  readonly values: string[]
  readonly entries: string[]
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
  KNOWN.set(name, { name, values: [], entries: [], literal, added })
}
STATIC_VALUES.forEach((value, index) => {
  if (value === '') return
  const { values, entries } = KNOWN.get(STATIC_NAMES[index]!)!
  values.push(value)
  entries.push(indexed(index))
})

/** So many entries with one name are compared, the newest first. */
const MOST_COMPARED = 16

/** Values are compared rather than hashed, which would cost far more: most are new strings, and equal to the newest of their name. */
class SearchableTable extends DynamicTable {
  /** The newest entry with each name. */
  readonly #newest = new Map<string, number>()
  /** By slot: the entry with the same name before this one, or -1. */
  readonly #previous: number[] = []

  /** The newest entry with this name, or -1. */
  newest(name: string): number {
    return this.#newest.get(name) ?? -1
  }

  /** The newest entry with this value, from `newest` of its name on, or -1. */
  find(newest: number, value: string): number {
    const oldest = this.added - this.count
    for (let entry = newest, compared = 0; entry >= oldest && compared < MOST_COMPARED; compared++) {
      if (this.value(entry) === value) return entry
      entry = this.#previous[entry % MOST_ENTRIES]!
    }
    return -1
  }

  override add(name: string, value: string): void {
    super.add(name, value)
    const entry = this.added - 1
    this.#previous[entry % MOST_ENTRIES] = this.newest(name)
    this.#newest.set(name, entry)
  }

  protected override evicted(entry: number, name: string): void {
    if (this.#newest.get(name) === entry) this.#newest.delete(name)
  }
}

/** Every index that there can be, encoded. */
const INDEXED = Array.from({ length: FIRST_DYNAMIC + MOST_ENTRIES }, (_, index) => indexed(index))

export class HpackEncoder {
  readonly #table = new SearchableTable()
  /** Of the sizes set since the previous block, the smallest and the last. */
  #smallestBytes = MOST_TABLE_BYTES
  #lastBytes = MOST_TABLE_BYTES

  /**
   * Sets the peer's SETTINGS_HEADER_TABLE_SIZE, of which we use at most 4096 bytes. The next block begins with the change, and if it
   * was set several times, also with the smallest size (section 4.2).
   */
  setTableBytes(bytes: number): void {
    this.#lastBytes = Math.min(bytes, MOST_TABLE_BYTES)
    this.#smallestBytes = Math.min(this.#smallestBytes, this.#lastBytes)
  }

  /** Encodes a flat list of latin1 strings, names in lower case and pseudo-fields first, as one header block. */
  encode(fields: readonly string[]): string {
    let block = this.#sizeUpdates()
    for (let i = 0; i < fields.length; i += 2) {
      const name = fields[i]!
      const value = fields[i + 1]!
      const known = KNOWN.get(name)
      if (known === undefined) block += this.#field(name, value, known)
      else {
        const at = known.values.indexOf(value)
        if (at >= 0) block += known.entries[at]!
        else if (known.added === '') block += known.literal + string(value)
        else block += this.#field(name, value, known)
      }
    }
    return block
  }

  #sizeUpdates(): string {
    let updates = ''
    if (this.#smallestBytes < this.#table.mostBytes) updates += this.#resize(this.#smallestBytes)
    if (this.#lastBytes !== this.#table.mostBytes) updates += this.#resize(this.#lastBytes)
    this.#smallestBytes = this.#lastBytes
    return updates
  }

  #resize(bytes: number): string {
    this.#table.resize(bytes)
    return sizeUpdate(bytes)
  }

  /** A field that may be in the dynamic table, or is added to it. */
  #field(name: string, value: string, known: KnownName | undefined): string {
    const table = this.#table
    const newest = table.newest(name)
    const entry = table.find(newest, value)
    if (entry >= 0) return INDEXED[table.index(entry)]!
    const added = name.length + value.length <= MOST_INDEXED_CHARS && table.fits(name, value)
    let start: string
    if (known !== undefined) start = added ? known.added : known.literal
    else {
      const index = newest < 0 ? 0 : table.index(newest)
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
