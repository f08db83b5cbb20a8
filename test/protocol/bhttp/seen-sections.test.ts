import fc from 'fast-check'
import { expect, test } from 'vitest'
import { decodeSection, fieldsText } from '../../../protocol/bhttp/fields.ts'
import { SeenSections } from '../../../protocol/bhttp/seen-sections.ts'
import type { HeaderList } from '../../../protocol/exchange.ts'

const bytesOf = (headers: HeaderList) => Buffer.from(`${fieldsText(headers)}\0`, 'latin1')

/** Few texts, so that many sections are the same, or of the same length. */
const text = fc.constantFrom('a', 'b', 'ab', 'x-a', 'x-b', 'y'.repeat(300))
const section = fc.array(fc.tuple(text, text), { maxLength: 4 }).map(fields => fields.flat())

test('sections come out as they are, the same ones again and again, whatever is done to the lists', () => {
  fc.assert(
    fc.property(fc.array(section, { maxLength: 40 }), sections => {
      const seen = new SeenSections()
      for (const headers of sections) {
        const bytes = Buffer.concat([Buffer.from('??'), bytesOf(headers), Buffer.from('?')])
        const list = seen.decode(bytes, 2, bytes.length - 1)
        expect(list).toEqual(headers)
        expect(list).toEqual(decodeSection(bytes, 2, bytes.length - 1))
        list.push('mine', 'alone')
        bytes.fill(0)
      }
    }),
  )
})

test('a malformed section is refused each time, beside a good one of its length', () => {
  const seen = new SeenSections()
  const good = bytesOf(['x-a', 'one'])
  const bad = bytesOf(['x-A', 'one'])
  for (let i = 0; i < 3; i++) {
    expect(seen.decode(good, 0, good.length)).toEqual(['x-a', 'one'])
    expect(() => seen.decode(bad, 0, bad.length)).toThrow('malformed field name')
  }
})
