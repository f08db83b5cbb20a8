import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { MAX_VARINT, readVarint, varintLength, varintSize, varintText } from '../../../protocol/wire/varint.ts'

const bytesOf = (value: number) => Buffer.from(varintText(value), 'latin1')
const anyValue = fc.oneof(
  fc.integer({ min: 0, max: 70 }),
  fc.integer({ min: 0x3f00, max: 0x4100 }),
  fc.integer({ min: 0x3fffff00, max: 0x40000100 }),
  fc.maxSafeNat(),
)

describe('varint', () => {
  test('the examples of RFC 9000 appendix A.1', () => {
    expect(readVarint(Buffer.from('9d7f3e7d', 'hex'), 0)).toBe(494_878_333)
    expect(readVarint(Buffer.from('7bbd', 'hex'), 0)).toBe(15_293)
    expect(readVarint(Buffer.from('25', 'hex'), 0)).toBe(37)
    expect(readVarint(Buffer.from('4025', 'hex'), 0)).toBe(37)
    expect(readVarint(Buffer.from('c2197c5eff14e88c', 'hex'), 0)).toBe(Number.POSITIVE_INFINITY)
    expect(bytesOf(494_878_333).toString('hex')).toBe('9d7f3e7d')
    expect(bytesOf(15_293).toString('hex')).toBe('7bbd')
  })

  test('what was written is read back, in the shortest form', () => {
    fc.assert(
      fc.property(anyValue, fc.nat(9), (value, offset) => {
        const encoded = bytesOf(value)
        expect(encoded.length).toBe(varintLength(value))
        expect(varintSize(encoded[0]!)).toBe(encoded.length)
        expect(readVarint(Buffer.concat([Buffer.alloc(offset), encoded]), offset)).toBe(value)
        const shorter = encoded.length / 2
        if (shorter >= 1) expect(value).toBeGreaterThanOrEqual(2 ** (8 * shorter - 2))
      }),
    )
  })

  test('numbers above 2^53 - 1 read as Infinity and are never written', () => {
    expect(readVarint(Buffer.from('ffffffffffffffff', 'hex'), 0)).toBe(Number.POSITIVE_INFINITY)
    expect(readVarint(Buffer.from('c020000000000000', 'hex'), 0)).toBe(Number.POSITIVE_INFINITY)
    expect(readVarint(Buffer.from('c01fffffffffffff', 'hex'), 0)).toBe(MAX_VARINT)
    expect(() => varintText(2 ** 53)).toThrow(TypeError)
    expect(() => varintText(Number.NaN)).toThrow(TypeError)
    expect(() => varintText(-1)).toThrow(TypeError)
    expect(() => varintText(1.5)).toThrow(TypeError)
  })
})
