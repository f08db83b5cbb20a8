/** Writes a ZIP archive (PKWARE APPNOTE 6.3.3) of a few small texts: deflated, with names in UTF-8, without ZIP64. */
import { crc32, deflateRawSync } from 'node:zlib'

const VERSION = 20
const BY_UNIX = 3 << 8
const NAMES_ARE_UTF8 = 1 << 11
const DEFLATED = 8
const PLAIN_FILE_0600 = 0o100600 * 2 ** 16

/** `files`: text by path. */
export function zip(files: ReadonlyMap<string, string>, at: Date): Buffer {
  const parts: Buffer[] = []
  const directory: Buffer[] = []
  let offset = 0
  for (const [path, text] of files) {
    const name = Buffer.from(path)
    const plain = Buffer.from(text)
    const packed = deflateRawSync(plain)
    const facts = fields(
      [2, VERSION],
      [2, NAMES_ARE_UTF8],
      [2, DEFLATED],
      ...dosTime(at),
      [4, crc32(plain)],
      [4, packed.length],
      [4, plain.length],
      [2, name.length],
      [2, 0],
    )
    const head = Buffer.concat([fields([4, 0x04034b50]), facts, name])
    // No comment, disk number or internal attributes.
    const rest = fields([2, 0], [2, 0], [2, 0], [4, PLAIN_FILE_0600], [4, offset])
    directory.push(fields([4, 0x02014b50], [2, BY_UNIX | VERSION]), facts, rest, name)
    parts.push(head, packed)
    offset += head.length + packed.length
  }
  const listed = Buffer.concat(directory)
  const end = fields(
    [4, 0x06054b50],
    [2, 0],
    [2, 0],
    [2, files.size],
    [2, files.size],
    [4, listed.length],
    [4, offset],
    [2, 0],
  )
  return Buffer.concat([...parts, listed, end])
}

type Field = readonly [bytes: 2 | 4, value: number]

function fields(...all: readonly Field[]): Buffer {
  const buffer = Buffer.alloc(all.reduce((sum, [bytes]) => sum + bytes, 0))
  let at = 0
  for (const [bytes, value] of all) at = buffer.writeUIntLE(value, at, bytes)
  return buffer
}

/** Time and date, in UTC. */
function dosTime(at: Date): [Field, Field] {
  const time = (at.getUTCHours() << 11) | (at.getUTCMinutes() << 5) | (at.getUTCSeconds() >> 1)
  const date = ((at.getUTCFullYear() - 1980) << 9) | ((at.getUTCMonth() + 1) << 5) | at.getUTCDate()
  return [
    [2, time],
    [2, date],
  ]
}
