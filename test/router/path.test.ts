import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { decodeSegment, isPlainPath, NO_NAME, pathEnd, readPath, segmentOffset } from '../../router/path.ts'

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

describe('the readings of a path', () => {
  it('refuse every overlong form of an ASCII character, and no other UTF-8', () => {
    const hex = (...bytes: number[]) => bytes.map(byte => `%${byte.toString(16)}`).join('')
    for (const code of [0, 0x2e, 0x2f, 0x5c, 0x7f]) {
      const [high, low] = [0x80 | (code >> 6), 0x80 | (code & 0x3f)]
      const forms = [hex(0xc0 | (code >> 6), low), hex(0xe0, high, low), hex(0xf0, 0x80, high, low)]
      for (const form of [...forms, hex(0xf8, 0x80, 0x80, high, low), hex(0xfc, 0x80, 0x80, 0x80, high, low)]) {
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
    for (const path of [
      ...refused,
      '/a\\b',
      '/a%5cb',
      '/a%5Cb',
      '/a%00',
      '/a#b',
      '/a/%c0%ae%c0%ae/b',
      '/%u0061',
      '/a%uFF0fb',
      '/a%uFf0Fb',
      '/.../a',
      '/a/%2e%2e%2e',
      '/a%0ab',
      '/a%0D%0A',
      '/a%09b',
      '/a%7f',
      '/a%c2%85b',
      '/a%e2%80%a8',
      '/a%E2%80%A9',
      '*',
      'x',
    ]) {
      expect(read(path), path).toBeUndefined()
    }
  })

  it('differ if a slash is encoded or doubled, or a segment has parameters', () => {
    expect(read('/a%2Fb')).toEqual([['a/b'], ['a', 'b']])
    expect(read('/a//b')).toEqual([
      ['a', '', 'b'],
      ['a', NO_NAME, 'b'],
      ['a', 'b'],
    ])
    expect(read('/a;x=1/b')).toEqual([['a;x=1', 'b'], ['a', 'b'], ['a']])
    expect(read('/a;b%3bc')).toEqual([['a;b;c'], ['a;b%3bc'], ['a;b;c'], ['a']])
    expect(read('//a/b')).toEqual([['', 'a', 'b'], [NO_NAME, 'a', 'b'], ['a', 'b'], ['b']])
  })

  it('differ without a session of ASP.NET', () => {
    for (const path of ['/(S(x))/admin', '/%28S(x)%29/admin', '/(A(x)S(y))/admin']) {
      expect(plain(path), path).toBe(false)
      expect(
        read(path)!.map(each => each.join('/')),
        path,
      ).toContain('admin')
    }
    expect(read('/(a)/f(1).txt')).toHaveLength(1)
    expect(plain('/f(1).txt')).toBe(true)
  })

  it('differ without what is no UTF-8', () => {
    expect(read('/adm%ffin')).toEqual([['adm\xffin'], ['adm%ffin'], ['adm\xc3\xbfin'], ['admin']])
    expect(read('/%c3admin%80')).toContainEqual(['admin'])
    // GBK and Shift-JIS.
    for (const path of ['/%d6%d0%ce%c4', '/%93%fa%96%7b']) expect(read(path), path).toBeDefined()
    expect(read('/caf%E9')).toEqual([['caf\xe9'], ['caf\xc3\xa9'], ['caf']])
    expect(read('/%E2%82%AC%F0%9F%98%80')).toHaveLength(1)
    expect(read('/%ff./.%ff')).toBeUndefined()
  })

  it('differ if an escape need not be', () => {
    expect(read('/a%41')).toEqual([['aA'], ['a%41']])
    expect(read('/%40scope%2fa')).toEqual([['@scope/a'], ['%40scope/a'], ['@scope', 'a'], ['%40scope', 'a']])
    expect(read('/%e2%82%ac')).toHaveLength(2)
    expect(read('/%E2%82%AC%20%25')).toHaveLength(1)
    for (const sign of '"<>[]^`{|}') expect(read(`/a${encodeURIComponent(sign)}`), sign).toHaveLength(2)
    for (const end of ['%', '%?', '%3?', '%F?x', '%6=', '%2>/x', '%6@', '%zz', '%u00e9', '%25u0061', '%256='])
      expect(read(`/a${end}`), end).toBeUndefined()
    expect(read('/100%25:/%25zz')).toHaveLength(1)
  })

  it('are all orders in which servers split, drop parameters and merge slashes', () => {
    const found = read('/;%2fx/admin')!.map(segments => segments.join(' '))
    // As they are; without the parameter, before or after the split; without all behind it; and then with merged slashes, or a host.
    const names = [...new Set(found.filter(each => !each.includes(NO_NAME)))]
    expect(names).toEqual([';/x admin', '; x admin', ' admin', '', ' x admin', 'admin', 'x admin'])
  })

  it('keep the trailing slash, which routes may require', () => {
    expect(read('//admin/')).toEqual([['', 'admin', ''], [NO_NAME, 'admin', ''], ['admin', ''], ['']])
    expect(read('/admin//')).toEqual([
      ['admin', '', ''],
      ['admin', NO_NAME, ''],
      ['admin', ''],
    ])
    expect(read('/admin/;x')).toEqual([
      ['admin', ';x'],
      ['admin', ''],
    ])
  })

  it('decode once and twice, and leave what is not an escape', () => {
    expect(decodeSegment('%61%zz%4')).toBe('a%zz%4')
    expect(read('/%2561')).toEqual([['%61'], ['a'], ['%61']])
    expect(read('/100%25%20off')).toEqual([['100% off']])
    expect(read('/.well-known/x')).toEqual([['.well-known', 'x']])
    for (const path of ['/a/%252e%252e/b', '/a%255cb', '/%25252e/b']) expect(read(path), path).toBeUndefined()
  })

  it('are few, or the path is refused', () => {
    expect(read(`/${'a%2f%2f'.repeat(1000)}`)).toHaveLength(4)
    expect(read(`/${'a;x=1/'.repeat(1000)}`)).toHaveLength(3)
    const address = encodeURIComponent(`https://a.test/b?c=${'d%20e'.repeat(300)}`)
    expect(read(`/proxy/${address}`)!.length).toBeGreaterThan(4)
    expect(read(`/%${'25'.repeat(40)}41`)).toEqual([])
    expect(read(`/${'a;x//b%2fc%3bd'.repeat(500)}`)).toEqual([])
  })

  it('never contain a dot segment, whatever the path', () => {
    const parts = fc.constantFrom('/', '.', '..', '%2e', '%2f', '%5c', ';', 'a', '%', '//', '%2E', '%c0%ae', '%00')
    fc.assert(
      fc.property(fc.array(parts, { maxLength: 12 }), list => {
        for (const segment of read(`/${list.join('')}`)?.flat() ?? []) {
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
