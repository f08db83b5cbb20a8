/** Decoder of header blocks (RFC 7541). */
import { latin1 } from '../../../base/latin1.ts'
import { DynamicTable, MOST_TABLE_BYTES } from './dynamic-table.ts'
import { huffmanText } from './huffman.ts'
import { FIRST_DYNAMIC, STATIC_NAMES, STATIC_VALUES } from './static-table.ts'

/** A block breaks RFC 7541. The table is not the peer's any more, so the connection has to end with COMPRESSION_ERROR. */
export class HpackError extends Error {}

export interface DecodedBlock {
  /** `[name, value, ...]`, latin1. */
  readonly fields: string[]
  readonly tooLarge: boolean
}

/** The first bits of each representation (section 6), and the rest as the prefix of an integer. */
const INDEXED = 0x80
const INDEXED_PREFIX = 0x7f
const INCREMENTAL = 0x40
const INCREMENTAL_PREFIX = 0x3f
const SIZE_UPDATE = 0x20
const SIZE_UPDATE_PREFIX = 0x1f
/** Without indexing, or never indexed. */
const LITERAL_PREFIX = 0x0f
/** Strings (section 5.2). */
const HUFFMAN = 0x80
const LENGTH_PREFIX = 0x7f

/** The smallest and the last size since the previous block (section 4.2). */
const MOST_SIZE_UPDATES = 2
/** 32 bits. */
const MOST_CONTINUATION_BYTES = 5

export class HpackDecoder {
  readonly #mostTableBytes: number
  readonly #table = new DynamicTable()
  /** Where in the block we are. */
  #at = 0

  /** `mostTableBytes` is our SETTINGS_HEADER_TABLE_SIZE, at most 4096. A size update above it is an error. */
  constructor(mostTableBytes: number = MOST_TABLE_BYTES) {
    this.#mostTableBytes = Math.min(mostTableBytes, MOST_TABLE_BYTES)
  }

  /**
   * Decodes a whole header block. Once its names and values exceed `mostBytes`, or its fields `mostFields`, it collects no more,
   * keeps decoding so that the table stays right, and sets `tooLarge`. A reference gives the same string each time, so that
   * many to a long one cost no memory.
   *
   * @throws HpackError if the block breaks RFC 7541.
   */
  decode(block: Uint8Array, mostBytes: number, mostFields: number): DecodedBlock {
    const fields: string[] = []
    let bytesLeft = mostBytes
    let fieldsLeft = mostFields
    this.#at = 0
    this.#sizeUpdates(block)
    while (this.#at < block.length) {
      const first = block[this.#at++]!
      let name: string
      let value: string
      if (first >= INDEXED) {
        const index = this.#integer(block, first, INDEXED_PREFIX)
        name = this.#nameAt(index)
        value = index < FIRST_DYNAMIC ? STATIC_VALUES[index]! : this.#table.value(this.#table.entry(index))
      } else if (first >= INCREMENTAL) {
        name = this.#literalName(block, first, INCREMENTAL_PREFIX)
        value = this.#string(block)
        this.#table.add(name, value)
      } else if (first >= SIZE_UPDATE) {
        throw new HpackError('size update behind a field')
      } else {
        name = this.#literalName(block, first, LITERAL_PREFIX)
        value = this.#string(block)
      }
      bytesLeft -= name.length + value.length
      fieldsLeft--
      if (bytesLeft >= 0 && fieldsLeft >= 0) fields.push(name, value)
    }
    return { fields, tooLarge: bytesLeft < 0 || fieldsLeft < 0 }
  }

  #sizeUpdates(block: Uint8Array): void {
    for (let updates = 0; (block[this.#at]! & ~SIZE_UPDATE_PREFIX) === SIZE_UPDATE; ) {
      if (++updates > MOST_SIZE_UPDATES) throw new HpackError('too many size updates')
      const bytes = this.#integer(block, block[this.#at++]!, SIZE_UPDATE_PREFIX)
      if (bytes > this.#mostTableBytes) throw new HpackError('size update above our setting')
      this.#table.resize(bytes)
    }
  }

  /** An integer that begins in the low bits of `first` (section 5.1). */
  #integer(block: Uint8Array, first: number, prefix: number): number {
    let value = first & prefix
    if (value < prefix) return value
    for (let i = 0; i < MOST_CONTINUATION_BYTES; i++) {
      const byte = block[this.#at++]
      if (byte === undefined) throw new HpackError('block ends in an integer')
      value += (byte & 0x7f) * 2 ** (7 * i)
      if (byte < 0x80) return value
    }
    throw new HpackError('integer too large')
  }

  #nameAt(index: number): string {
    if (index < FIRST_DYNAMIC) {
      if (index === 0) throw new HpackError('index 0')
      return STATIC_NAMES[index]!
    }
    const entry = this.#table.entry(index)
    if (entry < 0) throw new HpackError('index beyond the table')
    return this.#table.name(entry)
  }

  #literalName(block: Uint8Array, first: number, prefix: number): string {
    const index = this.#integer(block, first, prefix)
    return index === 0 ? this.#string(block) : this.#nameAt(index)
  }

  #string(block: Uint8Array): string {
    const first = block[this.#at++]
    if (first === undefined) throw new HpackError('block ends before a string')
    const length = this.#integer(block, first, LENGTH_PREFIX)
    const at = this.#at
    const end = at + length
    if (end > block.length) throw new HpackError('block ends in a string')
    this.#at = end
    if (first < HUFFMAN) return latin1(block, at, end)
    const text = huffmanText(block, at, end)
    if (text === undefined) throw new HpackError('Huffman code not valid')
    return text
  }
}
