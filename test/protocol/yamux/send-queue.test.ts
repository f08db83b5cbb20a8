import { Buffer } from 'node:buffer'
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import { SendQueue } from '../../../protocol/yamux/send-queue.ts'

const chunk = fc.oneof(
  fc.uint8Array({ minLength: 1, maxLength: 100 }),
  fc.uint8Array({ minLength: 1, maxLength: 100 }).map(bytes => Buffer.from(bytes).toString('latin1')),
  fc.integer({ min: 15_000, max: 70_000 }).map(length => Buffer.alloc(length, length)),
)

it('gives back the bytes of text and chunks in order, however it is cut', () => {
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
