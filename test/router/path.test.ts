import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { decodeSegment, isPlainPath, pathEnd, readPath, segmentOffset } from '../../router/path.ts'

const plain = (path: string) => isPlainPath(path, pathEnd(path))
const read = (path: string) => readPath(path, pathEnd(path))

describe('a plain path', () => {
  it('can be read in one way only', () => {
    for (const path of ['/', '/a', '/a/b', '/a/', '/a.b/c', "/!$&'()*+,=:@-_~", '/a?x=%2f//..;#', '/A9z']) {
      expect(plain(path), path).toBe(true)
    }
    for (const path of [
      '',
      'a',
      '*',
      '//',
      '/a//b',
      '/.',
      '/a/.b',
      '/%41',
      '/a;b',
      '/a\\b',
      '/a#b',
      '/\u00e9',
      '/a b',
    ]) {
      expect(plain(path), path).toBe(false)
    }
  })
})

describe('the two readings', () => {
  it('refuse every overlong form of an ASCII character, and no other UTF-8', () => {
    const hex = (...bytes: number[]) => bytes.map(byte => `%${byte.toString(16)}`).join('')
    for (const code of [0, 0x2e, 0x2f, 0x5c, 0x7f]) {
      const [high, low] = [0x80 | (code >> 6), 0x80 | (code & 0x3f)]
      for (const form of [hex(0xc0 | (code >> 6), low), hex(0xe0, high, low), hex(0xf0, 0x80, high, low)]) {
        expect(read(`/a/${form}/b`), form).toBeUndefined()
        expect(read(`/a/${form.toUpperCase()}/b`), form).toBeUndefined()
      }
    }
    for (const text of ['\u00e9', '\u0800', '\u0939', '\u20ac', '\u{10000}', '\u{1f600}']) {
      expect(read(`/a/${encodeURIComponent(text)}`), text).toBeDefined()
    }
  })

  it('refuse what upstreams may resolve to another path', () => {
    const refused = [
      '/..',
      '/a/../b',
      '/a/.',
      '/%2e%2e/b',
      '/a/.%2E/b',
      '/a/..%2fb',
      '/a%2f..',
      '/a/..;x=1/b',
      '/%2e;/b',
    ]
    for (const path of [...refused, '/a\\b', '/a%5cb', '/a%5Cb', '/a%00', '/a#b', '/a/%c0%ae%c0%ae/b', '*', 'x']) {
      expect(read(path), path).toBeUndefined()
    }
  })

  it('differ if a slash is encoded or doubled, or a segment has parameters', () => {
    expect(read('/a%2Fb')).toEqual({ strict: ['a/b'], loose: ['a', 'b'] })
    expect(read('/a//b')).toEqual({ strict: ['a', '', 'b'], loose: ['a', 'b'] })
    expect(read('/a;x=1/b')).toEqual({ strict: ['a;x=1', 'b'], loose: ['a', 'b'] })
  })

  it('keep the trailing slash, which routes may require', () => {
    expect(read('//admin/')).toEqual({ strict: ['', 'admin', ''], loose: ['admin', ''] })
    expect(read('/admin//')).toEqual({ strict: ['admin', '', ''], loose: ['admin', ''] })
    expect(read('/admin/;x')).toEqual({ strict: ['admin', ';x'], loose: ['admin', ''] })
    expect(read('//')).toEqual({ strict: ['', ''], loose: [] })
  })

  it('decode once, and leave what is not an escape', () => {
    expect(decodeSegment('%61%zz%4')).toBe('a%zz%4')
    expect(read('/%2561')).toEqual({ strict: ['%61'], loose: ['%61'] })
    expect(read('/.well-known/x')).toEqual({ strict: ['.well-known', 'x'], loose: ['.well-known', 'x'] })
  })

  it('never contain a dot segment, whatever the path', () => {
    const parts = fc.constantFrom('/', '.', '..', '%2e', '%2f', '%5c', ';', 'a', '%', '//', '%2E', '%c0%ae', '%00')
    fc.assert(
      fc.property(fc.array(parts, { maxLength: 12 }), list => {
        const readings = read(`/${list.join('')}`)
        for (const segment of [...(readings?.strict ?? []), ...(readings?.loose ?? [])]) {
          expect(['.', '..']).not.toContain(segment)
          expect(segment).not.toContain('\\')
          expect(segment).not.toContain('\0')
        }
      }),
    )
  })
})

describe('the offset behind segments', () => {
  it('counts whole segments and stops at the query', () => {
    expect(segmentOffset('/a/b/c?d/e', 2, 6)).toBe(4)
    expect(segmentOffset('/a', 1, 2)).toBe(2)
    expect(segmentOffset('/a?b/c', 1, 2)).toBe(2)
    expect(segmentOffset('/a/b', 0, 4)).toBe(0)
  })
})
