import { FrameFollower } from '../../../protocol/wire/websocket-frames.ts'
import { holds, same } from '../holds.ts'
import { cut } from '../mutate.ts'
import { Random } from '../random.ts'
import type { FuzzTarget } from '../target.ts'

function anyFrame(random: Random): Buffer {
  const payload = random.bytes(random.pick([0, 1, 5, 125, 126, 200, 70_000].slice(0, random.oneIn(30) ? 7 : 6)))
  const masked = random.oneIn(2) ? 0x80 : 0
  const first = random.pick([0x81, 0x82, 0x01, 0x80, 0x88, 0x89, 0xf1])
  const { length } = payload
  const head = length < 126 ? [first, masked | length] : length < 65_536 ? [first, masked | 126] : [first, masked | 127]
  const size = Buffer.alloc(length < 126 ? 0 : length < 65_536 ? 2 : 8)
  if (size.length > 0) size.writeUIntBE(length, Math.max(0, size.length - 6), Math.min(6, size.length))
  return Buffer.concat([Buffer.from(head), size, masked === 0 ? Buffer.alloc(0) : random.bytes(4), payload])
}

function follow(pieces: readonly Uint8Array[]): { atBoundary: boolean; closed: boolean } {
  const follower = new FrameFollower()
  for (const piece of pieces) holds(follower.push(piece) === piece.length, 'it follows all')
  return { atBoundary: follower.atBoundary, closed: follower.closed }
}

export const websocketFrames: FuzzTarget = {
  name: 'websocket-frames',

  generate(random) {
    const whole = Buffer.concat(Array.from({ length: random.between(1, 5) }, () => anyFrame(random)))
    return random.oneIn(4) ? whole : whole.subarray(0, random.int(whole.length + 1))
  },

  execute(input) {
    const random = new Random(input)
    const whole = follow([input])
    same(follow(cut(input, random)), whole, 'any cut is read alike')
    const follower = new FrameFollower()
    let at = 0
    while (at < input.length) {
      const taken = follower.push(input.subarray(at), true)
      holds(taken > 0, 'it gets on')
      at += taken
      if (at < input.length) holds(follower.atBoundary, 'it stops at boundaries alone')
    }
    same({ atBoundary: follower.atBoundary, closed: follower.closed }, whole, 'frame by frame, it is the same')
  },
}
