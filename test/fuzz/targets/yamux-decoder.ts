import { readUint32 } from '../../../protocol/wire/varint.ts'
import { FrameDecoder } from '../../../protocol/wire/yamux/decoder.ts'
import { FrameType, HEADER_BYTES, writeHeader } from '../../../protocol/wire/yamux/frame.ts'
import { holds, same } from '../holds.ts'
import { cut, mutate } from '../mutate.ts'
import { Random } from '../random.ts'
import type { FuzzTarget } from '../target.ts'

/** Frames with valid and invalid numbers. */
export function anyFrame(random: Random): Buffer {
  const type = random.int(4) as FrameType
  const isData = type === FrameType.data
  const payload = isData ? random.bytes(random.size(200)) : Buffer.alloc(0)
  const length = isData && !random.oneIn(20) ? payload.length : random.pick([0, 1, 100, 65_536, 262_144, 0xffff_ffff])
  const frame = Buffer.alloc(HEADER_BYTES + payload.length)
  writeHeader(frame, 0, type, random.oneIn(8) ? random.int(65_536) : random.int(16), random.int(12), length)
  frame.set(payload, HEADER_BYTES)
  return frame
}

interface Read {
  readonly frames: number[][]
  readonly payloads: Buffer[]
  readonly broken: string | undefined
}

function read(pieces: readonly Uint8Array[]): Read {
  const frames: number[][] = []
  const payloads: Buffer[] = []
  let broken: string | undefined
  let parts: Uint8Array[] = []
  const decoder = new FrameDecoder({
    frame: (type, flags, id, length) => {
      holds(broken === undefined, 'nothing is read behind broken bytes')
      frames.push([type, flags, id, length])
      parts = []
    },
    payload: chunk => {
      holds(chunk.length > 0, 'payload is never empty')
      parts.push(chunk)
    },
    payloadEnd: () => payloads.push(Buffer.concat(parts)),
    broken: reason => {
      broken = reason
    },
  })
  for (const piece of pieces) decoder.push(piece)
  return { frames, payloads, broken }
}

export const yamuxDecoder: FuzzTarget = {
  name: 'yamux-decoder',

  generate(random) {
    const bytes = Buffer.concat(Array.from({ length: random.between(1, 6) }, () => anyFrame(random)))
    return random.oneIn(2) ? bytes : mutate(bytes, random)
  },

  execute(input) {
    const whole = read([input])
    same(read(cut(input, new Random(input))), whole, 'any cut is read alike')
    let at = 0
    for (const [type, flags, id, length] of whole.frames) {
      const header = Buffer.alloc(HEADER_BYTES)
      writeHeader(header, 0, type as FrameType, flags!, id!, length!)
      same(header, input.subarray(at, at + HEADER_BYTES), 'a header is written as it was read')
      at += HEADER_BYTES + (type === FrameType.data ? readUint32(header, 8) : 0)
    }
    for (const payload of whole.payloads) holds(input.includes(payload), 'payload is what came')
  },
}
