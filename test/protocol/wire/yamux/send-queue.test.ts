import { Buffer } from 'node:buffer'
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import { liveBytes } from '../../../../load-tests/lib/garbage.ts'
import { SendQueue } from '../../../../protocol/wire/yamux/send-queue.ts'

const chunk = fc.oneof(
  fc.uint8Array({ minLength: 1, maxLength: 100 }),
  fc.uint8Array({ minLength: 1, maxLength: 100 }).map(bytes => Buffer.from(bytes).toString('latin1')),
  fc.uint8Array({ minLength: 900, maxLength: 1100 }),
  fc.integer({ min: 15_000, max: 70_000 }).map(length => Buffer.alloc(length, length)),
)

it('returns the bytes of text and chunks in order, however it is cut', () => {
  fc.assert(
    fc.property(fc.array(chunk, { maxLength: 40 }), fc.array(fc.integer({ min: 1, max: 66_000 })), (chunks, cuts) => {
      const queue = new SendQueue()
      for (const each of chunks) queue.push(each)
      const out: Buffer[] = []
      for (let i = 0; queue.bytes > 0; i++) {
        const bytes = queue.run(Math.min(queue.bytes, cuts[i] ?? 66_000))
        const target = Buffer.alloc(bytes)
        if (bytes > 16 * 1024) target.set(queue.slice(bytes))
        else queue.copy(target, 0, bytes)
        out.push(target)
      }
      const all = chunks.map(each => (typeof each === 'string' ? Buffer.from(each, 'latin1') : each))
      expect(Buffer.concat(out).equals(Buffer.concat(all))).toBe(true)
    }),
  )
})

/** As a session's DATA frames and messages bring them: each piece of content behind its length. */
const FLOODS: readonly (readonly [string, readonly number[]])[] = [
  ['of 1 byte', [1]],
  ['of 64 bytes', [64]],
  ['of 65 bytes', [65]],
  ['of 1000 bytes', [1000]],
  ['of 1 byte and of 1 KiB in turn', [1, 1024]],
  ['of 1 byte and of 1000 bytes in turn', [1, 1000]],
]

it.each(
  FLOODS.flatMap(([name, sizes]) => [[`bytes ${name}`, sizes, false] as const, [`text ${name}`, sizes, true] as const]),
)('H6 pieces that wait keep about twice their bytes at most: %s', async (_, sizes, isText) => {
  const pieces = sizes.map(bytes => Buffer.alloc(bytes, 'x'))
  const push = (queue: SendQueue) => {
    for (let i = 0; queue.bytes < FLOOD_BYTES; i++) {
      const piece = pieces[i % pieces.length]!
      queue.push('\x01')
      // Every piece is cut from its own memory, or is its own text.
      queue.push(isText ? piece.toString('latin1') : Buffer.from(piece))
    }
  }
  push(new SendQueue())
  const before = await liveBytes()
  const queue = new SendQueue()
  push(queue)
  expect(((await liveBytes()) - before) / queue.bytes).toBeLessThan(2)
  expect(queue.bytes).toBeGreaterThanOrEqual(FLOOD_BYTES)
})

it('H6 they still do while as much leaves as arrives', async () => {
  const out = Buffer.alloc(2)
  const one = Buffer.alloc(1)
  const before = await liveBytes()
  const queue = new SendQueue()
  for (let i = 0; i < FLOOD_BYTES; i++) queue.push(one)
  for (let i = 0; i < 2 * FLOOD_BYTES; i++) {
    queue.push('\x01')
    queue.push(one)
    queue.copy(out, 0, queue.run(2))
  }
  expect(queue.bytes).toBe(FLOOD_BYTES)
  expect(((await liveBytes()) - before) / queue.bytes).toBeLessThan(2)
})

/** Enough for the rest of the process to make no difference. */
const FLOOD_BYTES = 1024 * 1024
