import fc from 'fast-check'
import { expect, test } from 'vitest'
import { ByteCache } from '../../../protocol/base/byte-cache.ts'

/** Few texts, so that many are equal or of the same length, and some are too long to be kept. */
const text = fc.constantFrom('', 'a', 'b', 'ab', 'ba', 'y'.repeat(512), `${'y'.repeat(511)}z`, 'y'.repeat(513))

test('finds what was kept for the same bytes, wherever they are, and nothing else', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(text, fc.nat(3)), { maxLength: 40 }), texts => {
      const seen = new ByteCache<string>()
      for (const [value, before] of texts) {
        const bytes = Buffer.from(`${'?'.repeat(before)}${value}!`)
        const end = bytes.length - 1
        const found = seen.find(bytes, before, end)
        expect(found === undefined || found === value).toBe(true)
        seen.keep(bytes, before, end, value)
        expect(seen.find(bytes, before, end)).toBe(value.length > 512 ? undefined : value)
        bytes.fill(0)
      }
    }),
  )
})
