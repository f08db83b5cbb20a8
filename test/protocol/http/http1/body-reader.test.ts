import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { BodyReader } from '../../../../protocol/http/http1/body-reader.ts'

const limits = { headBytes: 1024, headFields: 10, uriBytes: 256 }

function read(pieces: Buffer[], begin: (reader: BodyReader) => void = reader => reader.startChunked()) {
  const result = { body: Buffer.alloc(0), trailers: undefined as string[] | undefined, left: '' }
  const reader = new BodyReader(
    {
      bodyData: chunk => {
        expect(chunk.length).toBeGreaterThan(0)
        result.body = Buffer.concat([result.body, chunk])
      },
      bodyEnd: trailers => {
        result.trailers = trailers
      },
    },
    limits,
    'bad-request',
  )
  begin(reader)
  for (const piece of pieces) {
    const at = reader.feed(piece, 0)
    result.left += piece.toString('latin1', at)
  }
  return result
}

const bytes = (text: string) => Buffer.from(text, 'latin1')
const whole = bytes('4;a=b\r\nwiki\r\n5\r\npedia\r\n0\r\nx-sum: 1\r\nX-Other:  2 \r\n\r\nGET / ')

describe('chunked', () => {
  test('the same at every split point', () => {
    for (let at = 0; at <= whole.length; at++) {
      const result = read([whole.subarray(0, at), whole.subarray(at)])
      expect(result.body.toString()).toBe('wikipedia')
      expect(result.trailers).toEqual(['x-sum', '1', 'x-other', '2'])
      expect(result.left).toBe('GET / ')
    }
  })

  test('byte by byte', () => {
    const result = read([...whole].map(byte => Buffer.from([byte])))
    expect([result.body.toString(), result.left]).toEqual(['wikipedia', 'GET / '])
  })

  test('small chunks of one read are passed on together, in their order among large ones', () => {
    const parts = [...'abc', 'd'.repeat(1024), 'e', 'f', 'g'.repeat(5000), 'h']
    const framed = parts.map(part => `${part.length.toString(16)}\r\n${part}\r\n`).join('')
    const given: string[] = []
    const receiver = { bodyData: (chunk: Uint8Array) => given.push(Buffer.from(chunk).toString()), bodyEnd: () => {} }
    const reader = new BodyReader(receiver, limits, 'bad-request')
    reader.startChunked()
    reader.feed(bytes(framed), 0)
    expect(given).toEqual(['abc', parts[3], 'ef', parts[6], 'h'])
  })

  test.each(['1\r\na\r\n1\r\nb\r\n0\r\n\r\n', `1\r\na\r\n401\r\n${'b'.repeat(1025)}\r\n0\r\n\r\n`])(
    'a receiver that gives up at the first hears nothing more',
    text => {
      const given: string[] = []
      const receiver = {
        bodyData: (chunk: Uint8Array) => {
          given.push(Buffer.from(chunk).toString())
          reader.stop()
        },
        bodyEnd: () => given.push('end'),
      }
      const reader = new BodyReader(receiver, limits, 'bad-request')
      reader.startChunked()
      reader.feed(bytes(text), 0)
      expect(given).toHaveLength(1)
    },
  )

  test.each([1, 65, 1023])('chunks of %i bytes between large ones keep little more memory than their size', size => {
    const unit = Buffer.from(`${size.toString(16)}\r\n${'a'.repeat(size)}\r\n400\r\n${'b'.repeat(1024)}\r\n`)
    const one = Buffer.concat(Array.from({ length: 30 }, () => unit))
    const memory = new Set<ArrayBufferLike>()
    const bodyData = (chunk: Uint8Array) => void memory.add(chunk.buffer)
    const reader = new BodyReader({ bodyData, bodyEnd() {} }, limits, 'bad-request')
    reader.startChunked()
    reader.feed(one, 0)
    const kept = [...memory].reduce((sum, { byteLength }) => sum + byteLength, 0)
    // The read itself, and Node's slabs, from which small buffers are cut.
    expect(kept).toBeLessThanOrEqual(one.buffer.byteLength + 4 * 65_536)
  })

  test('any body in any chunks, split anywhere', () => {
    const chunks = fc.array(fc.uint8Array({ minLength: 1, maxLength: 300 }), { maxLength: 8 })
    const cuts = fc.array(fc.nat(2000), { maxLength: 10 })
    fc.assert(
      fc.property(chunks, cuts, (parts, at) => {
        const framed = Buffer.concat([
          ...parts.map(part => Buffer.concat([bytes(`${part.length.toString(16)}\r\n`), part, bytes('\r\n')])),
          bytes('0\r\n\r\n'),
        ])
        const sorted = [0, ...at.map(cut => cut % framed.length), framed.length].sort((a, b) => a - b)
        const pieces = sorted.slice(1).map((end, i) => framed.subarray(sorted[i], end))
        const result = read(pieces)
        expect(result.body.equals(Buffer.concat(parts))).toBe(true)
        expect(result.trailers).toEqual([])
      }),
    )
  })

  test.each([
    ['no digits', '\r\n'],
    ['a sign', '+4\r\nwiki\r\n'],
    ['0x', '0x4\r\nwiki\r\n'],
    ['a space before', ' 4\r\nwiki\r\n'],
    ['a space behind', '4 \r\nwiki\r\n'],
    ['an underscore', '1_0\r\n'],
    ['bare LF', '4\nwiki\r\n'],
    ['bare CR', '4\rwiki\r\n'],
    ['too many digits', '000000000004\r\nwiki\r\n'],
    ['a chunk too long', '4\r\nwikis\r\n'],
    ['LF behind a chunk', '4\r\nwiki\n0\r\n\r\n'],
    ['CR alone behind a chunk', '4\r\nwiki\rX'],
    ['LF in an extension', '4;a\nb\r\nwiki\r\n'],
    ['NUL in an extension', '4;a\0b\r\nwiki\r\n'],
    ['a folded trailer', '0\r\na: b\r\n c\r\n\r\n'],
    ['a bad trailer', '0\r\na b: c\r\n\r\n'],
    ['CR in the end', '0\r\n\rX'],
    ['bare LF in trailers', '0\r\na: b\n\r\n'],
    ['too many trailers', `0\r\n${'a: b\r\n'.repeat(11)}\r\n`],
    ['endless trailers', `0\r\na: ${'b'.repeat(2000)}`],
  ])('E3: %s is refused', (_name, text) => {
    expect(() => read([bytes(text)])).toThrow(
      expect.objectContaining({ reason: expect.stringMatching(/bad-request|head-too-large/) }),
    )
    expect(() => read([...bytes(text)].map(byte => Buffer.from([byte])))).toThrow()
  })

  const FRAMING: Record<string, [text: string, at: number, reason: string]> = {
    'CR behind a size': ['4\r\nwiki\r\n0\r\n\r\n', 1, 'chunk size'],
    'LF behind a size': ['4\r\nwiki\r\n0\r\n\r\n', 2, 'chunk size'],
    'CR behind a chunk': ['4\r\nwiki\r\n0\r\n\r\n', 7, 'chunk end'],
    'LF behind a chunk': ['4\r\nwiki\r\n0\r\n\r\n', 8, 'chunk end'],
    'LF behind an extension': ['4;a\r\nwiki\r\n0\r\n\r\n', 4, 'chunk size'],
  }
  test.each(Object.entries(FRAMING))('E3: nothing may take the place of %s', (_place, [text, at, reason]) => {
    for (const other of ['X', ' ', '\0', '\r', '\n']) {
      if (other === text[at]) continue
      const odd = bytes(text.slice(0, at) + other + text.slice(at + 1))
      expect(() => read([odd]), JSON.stringify(other)).toThrow(reason)
    }
  })

  test('E3: extensions are bounded over the whole body', () => {
    const flood = bytes(`1;${'x'.repeat(100)}\r\na\r\n`.repeat(50))
    expect(() => read([flood])).toThrow('chunk extensions')
  })

  test('trailers lose what frames a message', () => {
    const result = read([bytes('0\r\ncontent-length: 5\r\ntransfer-encoding: x\r\nhost: y\r\nok: 1\r\n\r\n')])
    expect(result.trailers).toEqual(['ok', '1'])
  })

  test.each([
    ['a request lose', 'bad-request', ['ok', '1']],
    ['an answer keep', 'upstream-broken', ['client-ip', '1', 'script-name', '/x', 'ok', '1']],
  ] as const)('trailers of %s names that are claims of a caller', (_whose, fault, left) => {
    let trailers: string[] | undefined
    const bodyEnd = (given: string[]) => {
      trailers = given
    }
    const reader = new BodyReader({ bodyData() {}, bodyEnd }, limits, fault)
    reader.startChunked()
    const text = bytes('0\r\nclient-ip: 1\r\nscript-name: /x\r\nx-real-ip: 2\r\nok: 1\r\n\r\n')
    reader.feed(text, 0)
    expect(trailers).toEqual(left)
  })
})

test('a body of known length ends where it should', () => {
  const result = read([bytes('wiki'), bytes('pediaGET')], reader => reader.startLength(9))
  expect([result.body.toString(), result.left, result.trailers]).toEqual(['wikipedia', 'GET', []])
})
