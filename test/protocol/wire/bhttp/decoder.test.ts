import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ProtocolError } from '../../../../protocol/base/protocol-error.ts'
import { BODY_UNKNOWN, type HeaderList } from '../../../../protocol/exchange.ts'
import { MAX_INFORMATIONAL, MessageDecoder, type MessageVisitor } from '../../../../protocol/wire/bhttp/decoder.ts'
import {
  messageEndText,
  RESPONSE_START,
  requestHeadText,
  responseHeadText,
} from '../../../../protocol/wire/bhttp/encode.ts'
import { MAX_FIELDS, MAX_HEAD_BYTES } from '../../../../protocol/wire/bhttp/fields.ts'
import { varintText } from '../../../../protocol/wire/varint.ts'

/** Everything that the decoder reports, in order; content is joined. */
class Recorder implements MessageVisitor {
  readonly events: unknown[] = []
  readonly pieces: number[] = []
  bodyBytes = BODY_UNKNOWN
  raw = false
  decoder!: MessageDecoder

  prefix(_bytes: Uint8Array, at: number): number {
    return at + 1
  }

  request(method: string, scheme: string, authority: string, path: string, headers: HeaderList): number {
    this.events.push({ method, scheme, authority, path, headers })
    if (this.raw) this.decoder.raw()
    return this.bodyBytes
  }

  informational(status: number, headers: HeaderList): void {
    this.events.push({ informational: status, headers })
  }

  response(status: number, headers: HeaderList): number {
    this.events.push({ status, headers })
    return this.bodyBytes
  }

  content(chunk: Uint8Array): void {
    this.pieces.push(chunk.length)
    const last = this.events.at(-1)
    const text = Buffer.from(chunk).toString('latin1')
    if (typeof last === 'string') this.events[this.events.length - 1] = last + text
    else this.events.push(text)
  }
}

interface Result {
  events: unknown[]
  complete: boolean
  overhead: number
  pieces: number[]
}

function decode(
  side: 'request' | 'response',
  chunks: readonly Uint8Array[],
  set: Partial<Pick<Recorder, 'bodyBytes' | 'raw'>> & { upgrade?: boolean } = {},
): Result {
  const recorder = new Recorder()
  const decoder = new MessageDecoder(recorder, side)
  recorder.decoder = decoder
  recorder.bodyBytes = set.bodyBytes ?? BODY_UNKNOWN
  recorder.raw = set.raw ?? false
  decoder.upgrade = set.upgrade ?? false
  let overhead = 0
  for (const chunk of chunks) overhead += decoder.push(chunk)
  if (decoder.complete) recorder.events.push({ trailers: decoder.trailers })
  return { events: recorder.events, complete: decoder.complete, overhead, pieces: recorder.pieces }
}

const bytes = (text: string) => Buffer.from(text, 'latin1')
/** One byte of prefix before each message, as the decoder's visitor here wants it. */
const PREFIX = 'P'

const name = fc
  .stringMatching(/^[a-z0-9!#$%&'*+.^_`|~-]{1,12}$/)
  .filter(text => !['host', 'te', 'upgrade'].includes(text))
const value = fc
  .string({ unit: fc.constantFrom(...'aZ09 \t"\\;=,\x80\xff~!'), maxLength: 90 })
  .map(text => text.replace(/^[ \t]+|[ \t]+$/g, ''))
const fields = fc.array(fc.tuple(name, value), { maxLength: 6 }).map(pairs => pairs.flat())
const content = fc.array(
  fc.uint8Array({ minLength: 1, maxLength: 120 }).map(chunk => Buffer.from(chunk).toString('latin1')),
  { maxLength: 5 },
)
const contentText = (chunks: string[]) => chunks.map(chunk => varintText(chunk.length) + chunk).join('')

const request = fc.record({
  method: fc.constantFrom('GET', 'POST', 'FOO', "!#$%&'*+"),
  scheme: fc.constantFrom('http' as const, 'https' as const),
  authority: fc.constantFrom('a.example.com', 'a.example.com:8443', '[::1]:80'),
  path: fc.constantFrom('/', '/a/b?c=d&e', '/%2e%2e//x'),
  headers: fields,
  content,
  trailers: fields,
})
const response = fc.record({
  informational: fc.array(fc.tuple(fc.constantFrom(100, 102, 103, 199), fields), { maxLength: 3 }),
  status: fc.integer({ min: 200, max: 599 }),
  headers: fields,
  content,
  trailers: fields,
})

/** Cuts `encoded` at the given places, each as a fraction of its length. */
function cut(encoded: Uint8Array, at: readonly number[]): Uint8Array[] {
  const places = [...new Set(at.map(part => Math.floor(part * encoded.length)))].sort((a, b) => a - b)
  return [0, ...places].map((start, i) => encoded.subarray(start, places[i] ?? encoded.length))
}
const cuts = fc.array(fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }), { maxLength: 12 })

describe('Binary HTTP', () => {
  test('a request survives encoding and decoding, however it is cut', () => {
    fc.assert(
      fc.property(request, cuts, (message, at) => {
        const { method, scheme, authority, path, headers, trailers } = message
        const head = requestHeadText(method, scheme, authority, path, headers)
        const encoded = bytes(PREFIX + head + contentText(message.content) + messageEndText(trailers))
        const result = decode('request', cut(encoded, at))
        const joined = message.content.join('')
        const expected = [{ method, scheme, authority, path, headers }, ...(joined ? [joined] : []), { trailers }]
        expect(result.events).toEqual(expected)
        expect(result.overhead).toBe(encoded.length - joined.length)
      }),
      { numRuns: 500 },
    )
  })

  test('a response survives encoding and decoding, however it is cut', () => {
    fc.assert(
      fc.property(response, cuts, (message, at) => {
        const { status, headers, trailers } = message
        const early = message.informational.map(([code, list]) => responseHeadText(code, list)).join('')
        const text = PREFIX + RESPONSE_START + early + responseHeadText(status, headers)
        const encoded = bytes(text + contentText(message.content) + messageEndText(trailers))
        const result = decode('response', cut(encoded, at))
        const joined = message.content.join('')
        expect(result.events).toEqual([
          ...message.informational.map(([code, list]) => ({ informational: code, headers: list })),
          { status, headers },
          ...(joined ? [joined] : []),
          { trailers },
        ])
        expect(result.overhead).toBe(encoded.length - joined.length)
      }),
      { numRuns: 500 },
    )
  })

  test('every single cut, and byte by byte, gives the same', () => {
    const head = requestHeadText('POST', 'https', 'a.example.com', '/x', ['accept', '*/*', 'x-long', 'v'.repeat(70)])
    const encoded = bytes(PREFIX + head + contentText(['hello', 'w'.repeat(70)]) + messageEndText(['t', '1']))
    const whole = decode('request', [encoded]).events
    for (let at = 1; at < encoded.length; at++) {
      expect(decode('request', [encoded.subarray(0, at), encoded.subarray(at)]).events).toEqual(whole)
    }
    expect(
      decode(
        'request',
        Array.from(encoded, (_, i) => encoded.subarray(i, i + 1)),
      ).events,
    ).toEqual(whole)
  })

  test('repeated heads come out unchanged, whatever was done to the lists', () => {
    const one = ['x-a', 'one']
    const two = ['x-a', 'two']
    for (const headers of [one, two, one, one]) {
      for (const [side, head] of [
        ['response', RESPONSE_START + responseHeadText(200, headers)],
        ['request', requestHeadText('GET', 'https', 'a.example.com', `/${headers[1]}`, headers)],
      ] as const) {
        const { events } = decode(side, [bytes(`${PREFIX}${head}\0\0`)])
        const about = side === 'response' ? { status: 200 } : { method: 'GET', path: `/${headers[1]}` }
        expect(events[0]).toMatchObject({ ...about, headers })
        ;(events[0] as { headers: string[] }).headers.push('mine', 'alone')
      }
      const bad = `${PREFIX}${RESPONSE_START}${responseHeadText(200, headers).replace('x-a', 'x-A')}`
      expect(() => decode('response', [bytes(bad)])).toThrow('malformed field name')
    }
  })

  test('no prefix of a message is complete', () => {
    const head = requestHeadText('POST', 'https', 'a.example.com', '/x', ['accept', '*/*'])
    const encoded = bytes(PREFIX + head + contentText(['hello']) + messageEndText(['t', '1']))
    for (let at = 0; at < encoded.length; at++) {
      expect(decode('request', [encoded.subarray(0, at)]).complete).toBe(false)
    }
    expect(decode('request', [encoded]).complete).toBe(true)
  })

  test('the form is that of RFC 9292', () => {
    // The request in its section 5.1 in the indeterminate-length form, with the host in the control data.
    const headers = ['user-agent', 'curl/7.16.3 libcurl/7.16.3 OpenSSL/0.9.7l zlib/1.2.3', 'accept-language', 'en, mi']
    const text = requestHeadText('GET', 'https', 'www.example.com', '/hello.txt', headers) + messageEndText([])
    const hex = [
      '02034745540568747470730f7777772e6578616d706c652e636f6d0a2f68656c6c6f2e747874',
      '0a757365722d6167656e74',
      '346375726c2f372e31362e33206c69626375726c2f372e31362e33204f70656e53534c2f302e392e376c207a6c69622f312e322e33',
      '0f6163636570742d6c616e6775616765',
      '06656e2c206d69',
      '000000',
    ].join('')
    expect(bytes(text).toString('hex')).toBe(hex)
  })

  test('content passes as it arrives and is not collected; large pieces are not copied', () => {
    const head = requestHeadText('POST', 'https', 'a', '/', [])
    const first = bytes(`${PREFIX}${head}${varintText(100_000)}${'x'.repeat(5_000)}`)
    const recorder = new Recorder()
    const decoder = new MessageDecoder(recorder, 'request')
    recorder.decoder = decoder
    const seen: Uint8Array[] = []
    recorder.content = chunk => seen.push(chunk)
    decoder.push(first)
    const second = Buffer.alloc(50_000)
    expect(decoder.push(second)).toBe(0)
    expect(seen.map(chunk => chunk.length)).toEqual([5_000, 50_000])
    expect(seen[0]!.buffer).toBe(first.buffer)
    expect(seen[1]).toBe(second)
  })

  test('many small pieces in one chunk come out as one', () => {
    const head = requestHeadText('POST', 'https', 'a', '/', [])
    const encoded = bytes(PREFIX + head + contentText(Array(500).fill('ab')) + messageEndText([]))
    const { pieces } = decode('request', [encoded])
    expect(pieces).toEqual([1_000])
    const mixed = bytes(PREFIX + head + contentText(['ab', 'c'.repeat(2_000), 'd', 'e']) + messageEndText([]))
    expect(decode('request', [mixed]).pieces).toEqual([2, 2_000, 2])
  })

  test.each([1, 65, 1023])('pieces of %i bytes between large ones keep little more memory than their size', size => {
    const head = requestHeadText('POST', 'https', 'a', '/', [])
    const content = Array.from({ length: 30 }, () => ['a'.repeat(size), 'b'.repeat(1024)]).flat()
    const encoded = bytes(PREFIX + head + contentText(content) + messageEndText([]))
    const memory = new Set<ArrayBufferLike>()
    const recorder = new Recorder()
    recorder.content = chunk => void memory.add(chunk.buffer)
    new MessageDecoder(recorder, 'request').push(encoded)
    const kept = [...memory].reduce((sum, { byteLength }) => sum + byteLength, 0)
    // What arrived itself, and Node's slabs, from which small buffers are cut.
    expect(kept).toBeLessThanOrEqual(encoded.buffer.byteLength + 4 * 65_536)
  })
})

describe('Binary HTTP refuses', () => {
  const head = requestHeadText('POST', 'https', 'a', '/', [])
  const answer = PREFIX + RESPONSE_START
  const field = (fieldName: string, fieldValue: string) =>
    PREFIX + requestHeadText('GET', 'https', 'a', '/', [fieldName, fieldValue])
  const fails = (side: 'request' | 'response', text: string, set = {}) => {
    const encoded = bytes(text)
    expect(() => decode(side, [encoded], set)).toThrow(ProtocolError)
    // Nor may it depend on how the bytes are cut.
    const single = Array.from(encoded, (_, i) => encoded.subarray(i, i + 1))
    expect(() => decode(side, single, set)).toThrow(ProtocolError)
  }

  test.each([
    ['known-length requests', 'request', `${PREFIX}\x00`],
    ['known-length responses', 'response', `${PREFIX}\x01`],
    ['a response for a request', 'request', `${PREFIX}\x03`],
    ['an unasked 101', 'response', `${PREFIX}\x40\x65`],
    ['a 101 among the informational', 'response', `${answer}\x40\x65\x00`],
    ['a status of 99', 'response', `${answer}\x40\x63`],
    ['a status of 600', 'response', `${answer}\x42\x58`],
    ['padding', 'request', `${PREFIX}${head}\0\0\0`],
    ['bytes behind the end', 'request', `${PREFIX}${head}\0\0x`],
    ['an empty name', 'request', `${PREFIX}${head.slice(0, -1)}\x40\x00\x01a\0`],
    ['capitals in a name', 'request', field('Accept', 'a')],
    ['a space in a name', 'request', field('a b', 'a')],
    ['a colon in a name', 'request', field(':path', 'a')],
    ['CR in a value', 'request', field('a', 'a\rb')],
    ['LF in a value', 'request', field('a', 'a\nb')],
    ['NUL in a value', 'request', field('a', 'a\0b')],
    ['DEL in a value', 'request', field('a', 'a\x7fb')],
    ['a leading space', 'request', field('a', ' b')],
    ['a trailing tab', 'request', field('a', 'b\t')],
    ['connection', 'request', field('connection', 'close')],
    ['keep-alive', 'request', field('keep-alive', '1')],
    ['proxy-connection', 'request', field('proxy-connection', '1')],
    ['transfer-encoding', 'request', field('transfer-encoding', 'chunked')],
    ['upgrade', 'request', field('upgrade', 'h2c')],
    ['http2-settings', 'request', field('http2-settings', 'a')],
    ['host', 'request', field('host', 'a')],
    ['te other than trailers', 'request', field('te', 'gzip')],
    ['a chunk length over 2^53', 'request', `${PREFIX}${head}\xff\xff\xff\xff\xff\xff\xff\xff`],
  ] as const)('%s', (_, side, text) => fails(side, text))

  test('content whose length differs from the announced one', () => {
    fails('request', PREFIX + head + contentText(['abcd']), { bodyBytes: 3 })
    fails('request', PREFIX + head + contentText(['ab', 'cd']), { bodyBytes: 3 })
    fails('request', PREFIX + head + contentText(['ab']) + messageEndText([]), { bodyBytes: 3 })
    fails('request', PREFIX + head + contentText(['ab']), { bodyBytes: 0 })
    const whole = bytes(PREFIX + head + contentText(['ab', 'c']) + messageEndText([]))
    expect(decode('request', [whole], { bodyBytes: 3 }).complete).toBe(true)
  })

  test('more than 128 fields, and accepts 128', () => {
    const many = (count: number) => Array.from({ length: count * 2 }, (_, i) => (i % 2 === 0 ? 'a' : 'b'))
    fails('request', PREFIX + requestHeadText('GET', 'https', 'a', '/', many(MAX_FIELDS + 1)))
    fails('request', PREFIX + head + messageEndText(many(MAX_FIELDS + 1)))
    const fits = PREFIX + requestHeadText('GET', 'https', 'a', '/', many(MAX_FIELDS)) + messageEndText(many(MAX_FIELDS))
    expect(decode('request', [bytes(fits)]).complete).toBe(true)
  })

  test('a head over 32 KiB as soon as a length shows it', () => {
    const long = `${varintText(4)}aaaa${varintText(MAX_HEAD_BYTES)}`
    expect(() => decode('response', [bytes(`${answer}\x40\xc8${long}`)])).toThrow(ProtocolError)
    expect(() => decode('request', [bytes(`${PREFIX}\x02\x03GET\x05https${varintText(MAX_HEAD_BYTES)}`)])).toThrow(
      ProtocolError,
    )
    const path = `/${'p'.repeat(20_000)}`
    const tooLong = PREFIX + requestHeadText('GET', 'https', 'a', path, ['a', 'b'.repeat(13_000)])
    fails('request', tooLong)
    const fits = PREFIX + requestHeadText('GET', 'https', 'a', path, ['a', 'b'.repeat(12_000)]) + messageEndText([])
    expect(decode('request', [bytes(fits)]).complete).toBe(true)
    expect(decode('request', cut(bytes(fits), [0.00001, 0.9])).complete).toBe(true)
  })

  test('more than 32 informational responses', () => {
    const early = responseHeadText(103, [])
    fails('response', answer + early.repeat(MAX_INFORMATIONAL + 1))
    const fits = answer + early.repeat(MAX_INFORMATIONAL) + responseHeadText(200, []) + messageEndText([])
    expect(decode('response', [bytes(fits)]).complete).toBe(true)
  })

  test('any bytes, or gives a ProtocolError, never anything else', () => {
    const noise = fc.uint8Array({ maxLength: 60 }).map(array => Buffer.from(array).toString('latin1'))
    const start = fc.constantFrom(PREFIX, PREFIX + head, `${PREFIX}\x02`, answer, answer + responseHeadText(200, []))
    fc.assert(
      fc.property(
        start,
        noise,
        fc.constantFrom('request' as const, 'response' as const),
        cuts,
        (text, tail, side, at) => {
          try {
            decode(side, cut(bytes(text + tail), at))
          } catch (error) {
            expect(error).toBeInstanceOf(ProtocolError)
          }
        },
      ),
      { numRuns: 3_000 },
    )
  })
})

describe('raw bytes', () => {
  test('follow the head of an upgrade, unchanged, however they are cut', () => {
    const payload = '\x00\x01\x02raw'.repeat(50)
    const head = requestHeadText('GET', 'https', 'a', '/', [])
    const encoded = bytes(PREFIX + head + payload)
    fc.assert(
      fc.property(cuts, at => {
        expect(decode('request', cut(encoded, at), { raw: true }).events.slice(1)).toEqual([payload])
      }),
    )
  })

  test('follow a 101', () => {
    const encoded = bytes(`${PREFIX}${responseHeadText(101, ['a', 'b'])}\x00raw`)
    fc.assert(
      fc.property(cuts, at => {
        expect(decode('response', cut(encoded, at), { upgrade: true }).events).toEqual([
          { status: 101, headers: ['a', 'b'] },
          '\x00raw',
        ])
      }),
    )
  })
})
