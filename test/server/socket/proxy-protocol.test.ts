import { describe, expect, test } from 'vitest'
import { readProxyHeader } from '../../../server/socket/proxy-protocol.ts'

describe('the PROXY protocol header', () => {
  const signature = '0d0a0d0a000d0a515549540a'
  const v4 = Buffer.from(`${signature}2111000ccb007109${'0a000001'}100001bb`, 'hex')
  const v6 = Buffer.from(`${signature}21210024${'20010db8'.padEnd(32, '0')}${'0'.repeat(32)}100001bb`, 'hex')

  test('is read at every cut', () => {
    for (let i = 0; i < v4.length; i++) expect(readProxyHeader(v4.subarray(0, i))).toEqual({ done: false })
    expect(readProxyHeader(Buffer.concat([v4, Buffer.from('rest')]))).toEqual({
      done: true,
      length: 28,
      address: '203.0.113.9',
    })
    expect(readProxyHeader(v6)).toEqual({ done: true, length: 52, address: '2001:db8::' })
  })

  test("the proxy's own health check has no address", () => {
    expect(readProxyHeader(Buffer.from(`${signature}20000000`, 'hex'))).toEqual({
      done: true,
      length: 16,
      address: undefined,
    })
  })

  const addresses = (bytes: number) => `${bytes.toString(16).padStart(4, '0')}${'01'.repeat(bytes)}`

  test.each([
    '47455420',
    Buffer.from('PROXY UNKNOWN\r\n').toString('hex'),
    Buffer.from('PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n').toString('hex'),
    `${signature}11110000`,
    `${signature}22110000`,
    `${signature}2111ffff`,
    `${signature}21310000`,
    `${signature}2111000400000000`,
    `${signature}2121${addresses(12)}`,
    // Unspecified, UDP, and Unix sockets.
    `${signature}2100${addresses(12)}`,
    `${signature}2110${addresses(12)}`,
    `${signature}2112${addresses(12)}`,
    `${signature}2122${addresses(36)}`,
    `${signature}2131${addresses(216)}`,
    `${signature}2132${addresses(216)}`,
    // What is not defined.
    `${signature}2113${addresses(12)}`,
    `${signature}2141${addresses(36)}`,
  ])('%s is refused', hex => {
    expect(readProxyHeader(Buffer.from(hex, 'hex'))).toMatchObject({ done: true, error: expect.any(String) })
  })
})
