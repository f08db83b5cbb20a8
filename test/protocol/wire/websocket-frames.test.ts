import fc from 'fast-check'
import { expect, test } from 'vitest'
import * as ws from 'ws'
import { closeFrame, FrameFollower } from '../../../protocol/wire/websocket-frames.ts'

const { Receiver, Sender } = ws as unknown as {
  Receiver: new (options: object) => import('node:stream').Writable
  Sender: { frame(data: Buffer, options: object): Buffer[] }
}

/** Frames as `ws` writes them. */
function frame(opcode: number, length: number, mask: boolean, fin = true): Buffer {
  return Buffer.concat(Sender.frame(Buffer.alloc(length, 7), { fin, mask, opcode, rsv1: false, readOnly: true }))
}

const sizes = fc.oneof(fc.constantFrom(0, 1, 125, 126, 127, 65_535, 65_536, 70_000), fc.nat(300))
const frames = fc.array(fc.tuple(sizes, fc.boolean()), { minLength: 1, maxLength: 6 })

test('knows each boundary, however the bytes are cut', () => {
  fc.assert(
    fc.property(frames, fc.array(fc.nat(1_000), { maxLength: 20 }), (list, cuts) => {
      const all = list.map(([length, mask]) => frame(2, length, mask))
      const bytes = Buffer.concat(all)
      const ends = new Set(all.map((_, i) => all.slice(0, i + 1).reduce((sum, part) => sum + part.length, 0)))
      const follower = new FrameFollower()
      let at = 0
      for (const size of [...cuts, bytes.length]) {
        const chunk = bytes.subarray(at, at + size)
        expect(follower.push(chunk)).toBe(chunk.length)
        at += chunk.length
        expect(follower.atBoundary).toBe(at === 0 || ends.has(at))
      }
    }),
  )
})

test('stops at the first boundary when asked', () => {
  const [first, second] = [frame(1, 300, true, false), frame(0, 5, true)]
  const bytes = Buffer.concat([first, second])
  const follower = new FrameFollower()
  expect(follower.push(bytes.subarray(0, 10))).toBe(10)
  expect(follower.atBoundary).toBe(false)
  expect(follower.push(bytes.subarray(10), true)).toBe(first.length - 10)
  expect(follower.atBoundary).toBe(true)
})

test('notices a Close', () => {
  const follower = new FrameFollower()
  follower.push(frame(9, 4, false))
  expect(follower.closed).toBe(false)
  follower.push(frame(8, 2, false).subarray(0, 1))
  expect(follower.closed).toBe(true)
})

test.each([true, false])('the Close frame is one that ws understands (masked: %s)', async masked => {
  const receiver = new Receiver({ isServer: masked })
  const concluded = new Promise<[number, string]>(resolve => {
    receiver.on('conclude', (code, reason) => resolve([code, reason.toString()]))
  })
  receiver.write(closeFrame(1001, masked, 'come again'))
  expect(await concluded).toEqual([1001, 'come again'])
})
