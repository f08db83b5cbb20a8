/** Changes to bytes that break parsers, and the ways in which a network may split them. */
import type { Random } from './random.ts'

type Change = (bytes: Buffer, at: number, random: Random) => Buffer

const CHANGES: readonly Change[] = [
  (bytes, at, random) => splice(bytes, at, 1, random.bytes(1)),
  (bytes, at, random) => splice(bytes, at, 1, Buffer.from([bytes[at]! ^ (1 << random.int(8))])),
  (bytes, at, random) => splice(bytes, at, random.size(64), Buffer.alloc(0)),
  (bytes, at, random) => splice(bytes, at, 0, bytes.subarray(at, at + random.size(64))),
  (bytes, at, random) => splice(bytes, at, 0, random.bytes(random.size(8))),
  (bytes, at, random) => splice(bytes, at, 1, Buffer.from([random.pick([0, 9, 10, 13, 32, 0x7f, 0x80, 0xff])])),
  (bytes, at) => bytes.subarray(0, at),
  (bytes, at, random) => {
    const from = random.int(bytes.length)
    return splice(bytes, at, 0, bytes.subarray(from, from + random.size(64)))
  },
]

function splice(bytes: Buffer, at: number, removed: number, added: Uint8Array): Buffer {
  return Buffer.concat([bytes.subarray(0, at), added, bytes.subarray(at + removed)])
}

/** `bytes` with a few changes. Words of `dictionary` may be inserted. */
export function mutate(bytes: Buffer, random: Random, dictionary: readonly string[] = []): Buffer {
  let made = bytes
  for (let left = random.between(1, 4); left > 0; left--) {
    const at = random.int(made.length + 1)
    if (dictionary.length > 0 && random.oneIn(3)) {
      made = splice(made, at, random.oneIn(2) ? 0 : random.size(8), Buffer.from(random.pick(dictionary), 'latin1'))
    } else if (made.length > 0) {
      made = random.pick(CHANGES)(made, Math.min(at, made.length - 1), random)
    }
  }
  return made
}

/** `bytes` in pieces: byte by byte, at every line end, or anywhere. */
export function cut(bytes: Buffer, random: Random): Buffer[] {
  const every = random.oneIn(3) && bytes.length <= 512 ? 1 : random.pick([2, 7, 64, 1000])
  const pieces: Buffer[] = []
  for (let at = 0; at < bytes.length; ) {
    const end = Math.min(bytes.length, at + (every === 1 ? 1 : random.between(1, every)))
    pieces.push(bytes.subarray(at, end))
    at = end
  }
  return pieces
}
