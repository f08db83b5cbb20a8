import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { canonicalAddress } from '../../../protocol/base/address.ts'
import { ProtocolError } from '../../../protocol/base/protocol-error.ts'
import { BODY_UNKNOWN } from '../../../protocol/exchange.ts'
import {
  decodePreamble,
  MAX_PREAMBLE_BYTES,
  type Preamble,
  preambleEnd,
  preambleText,
  UnsupportedError,
} from '../../../protocol/wire/preamble.ts'
import { STREAM_KIND } from '../../../protocol/wire/stream-kinds.ts'
import { varintText } from '../../../protocol/wire/varint.ts'

const label = fc.stringMatching(/^[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?$/)
const anyPreamble: fc.Arbitrary<Preamble> = fc
  .record({
    kind: fc.constantFrom(...Object.values(STREAM_KIND)),
    exchangeId: fc.uint8Array({ minLength: 16, maxLength: 16 }).map(bytes => String.fromCharCode(...bytes)),
    attempt: fc.nat(9),
    runtime: label,
    epoch: fc.maxSafeNat(),
    timeLeftMs: fc.nat(10_000_000),
    callerAddress: fc.oneof(fc.ipV4(), fc.ipV6().map(canonicalAddress)),
    callerScheme: fc.constantFrom('http' as const, 'https' as const),
    callerHost: fc.option(fc.domain(), { nil: undefined }),
    hops: fc.nat(1),
    bodyBytes: fc.oneof(fc.constant(0), fc.constant(BODY_UNKNOWN), fc.maxSafeNat()),
    traced: fc.boolean(),
    span: fc.option(fc.stringMatching(/^[0-9a-f]{16}$/), { nil: undefined }),
    ownHost: fc.option(fc.stringMatching(/^[a-z]{1,30}\.[a-z]{2,30}$/), { nil: undefined }),
    heldMs: fc.option(fc.nat(10_000), { nil: undefined }),
  })
  .map(({ callerHost, traced, span, ownHost, heldMs, ...rest }) => ({
    ...rest,
    ...(callerHost === undefined ? {} : { callerHost }),
    ...(traced && { traced }),
    ...(span && { span }),
    ...(ownHost && { ownHost }),
    ...(heldMs !== undefined && { heldMs }),
  }))

const sample: Preamble = {
  kind: 1,
  exchangeId: String.fromCharCode(...Array(16).keys()),
  attempt: 0,
  runtime: 'r1',
  epoch: 7,
  timeLeftMs: 0,
  callerAddress: '192.0.2.1',
  callerScheme: 'https',
  hops: 0,
  bodyBytes: 0,
}

const encode = (preamble: Preamble) => Buffer.from(preambleText(preamble), 'latin1')
const decode = (bytes: Uint8Array) => {
  expect(preambleEnd(bytes, 0, bytes.length)).toBe(bytes.length)
  return decodePreamble(bytes, 0, bytes.length)
}

/** The sample's entries, one by one, to be assembled wrongly. */
function entries(): string[] {
  const text = preambleText(sample).slice(2)
  const list: string[] = []
  for (let at = 0; at < text.length; ) {
    const end = at + 2 + text.charCodeAt(at + 1)
    list.push(text.slice(at, end))
    at = end
  }
  return list
}
const assemble = (list: string[], kind = 1) => {
  const body = list.join('')
  return Buffer.from(varintText(kind) + varintText(body.length) + body, 'latin1')
}

describe('preamble', () => {
  test('what was encoded is decoded, wherever it is in the buffer', () => {
    fc.assert(
      fc.property(anyPreamble, fc.nat(5), (preamble, offset) => {
        const encoded = encode(preamble)
        const bytes = Buffer.concat([Buffer.alloc(offset), encoded, Buffer.from('rest')])
        const end = preambleEnd(bytes, offset, bytes.length)
        expect(end).toBe(offset + encoded.length)
        expect(decodePreamble(bytes, offset, end)).toEqual(preamble)
      }),
    )
  })

  test('no prefix of it passes for the whole', () => {
    const encoded = encode(sample)
    for (let length = 0; length < encoded.length; length++) expect(preambleEnd(encoded, 0, length)).toBe(-1)
  })

  test('an unknown odd entry and an unknown kind are unsupported, an unknown even entry is skipped', () => {
    expect(decode(assemble([...entries(), '\x1c\x03abc', '\x80\x00\x10\x00\x01x']))).toEqual(sample)
    expect(() => decode(assemble([...entries(), '\x15\x00']))).toThrow(UnsupportedError)
    expect(() => decode(assemble([...entries(), '\x80\x00\x10\x01\x00']))).toThrow(UnsupportedError)
    expect(() => decode(assemble(entries(), 63))).toThrow(UnsupportedError)
    expect(() => decode(assemble(entries(), 0))).toThrow(UnsupportedError)
  })

  test('each entry appears once', () => {
    const all = entries()
    expect(all).toHaveLength(9)
    for (const entry of all) {
      expect(() => decode(assemble(all.filter(other => other !== entry)))).toThrow(ProtocolError)
      expect(() => decode(assemble([...all, entry]))).toThrow(ProtocolError)
    }
  })

  test.each([
    ['an exchange id of 15 bytes', '\x01\x0fabcdefghijklmno'],
    ['a runtime in capitals', '\x05\x02R1'],
    ['no runtime', '\x05\x00'],
    ['a runtime that ends with a hyphen', '\x05\x02r-'],
    ['an address that is none', '\x0b\x07a.b.c.d'],
    ['an address with a zone', '\x0b\x0afe80::1%lo'],
    ['an address in capitals', '\x0b\x0b2001:DB8::1'],
    ['an address with a leading zero', '\x0b\x0c2001:0db8::1'],
    ['an IPv4 address as IPv6', '\x0b\x10::ffff:192.0.2.1'],
    ['an unknown scheme', '\x0d\x01\x02'],
    ['a number that does not fill its entry', '\x0f\x02\x00\x00'],
    ['a number that is longer than its entry', '\x0f\x01\x40'],
    ['a number over 2^53 - 1', '\x07\x08\xff\xff\xff\xff\xff\xff\xff\xff'],
    ['an unknown body form', '\x11\x01\x03'],
    ['a body form with bytes behind it', '\x11\x02\x00\x00'],
    ['an exact body without a length', '\x11\x01\x01'],
    ['a host with a space', '\x12\x03a b'],
    ['a word of traces that is not empty', '\x14\x01\x01'],
    ['a span id of 7 bytes', '\x16\x071234567'],
    ['a host of its own that is none', '\x18\x04a..b'],
  ])('refuses %s', (_, entry) => {
    const others = entries().filter(other => other[0] !== entry[0])
    expect(() => decode(assemble([...others, entry]))).toThrow(ProtocolError)
  })

  test('an entry never extends beyond the end', () => {
    expect(() => decode(assemble([...entries(), '\x14\x05abc']))).toThrow(ProtocolError)
    expect(() => decode(assemble([...entries(), '\x3e\x05abc']))).toThrow(ProtocolError)
    expect(() => decode(assemble([...entries(), '\x14']))).toThrow(ProtocolError)
    expect(() => decode(assemble([...entries(), '\x40']))).toThrow(ProtocolError)
  })

  test('a long one is refused as soon as its length is seen', () => {
    const bytes = Buffer.from(varintText(1) + varintText(MAX_PREAMBLE_BYTES + 1), 'latin1')
    expect(() => preambleEnd(bytes, 0, bytes.length)).toThrow(ProtocolError)
  })

  test('any bytes decode or give a ProtocolError', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 80 }), bytes => {
        try {
          const end = preambleEnd(bytes, 0, bytes.length)
          if (end >= 0) decodePreamble(bytes, 0, end)
        } catch (error) {
          expect(error).toBeInstanceOf(ProtocolError)
        }
      }),
      { numRuns: 2_000 },
    )
  })
})
