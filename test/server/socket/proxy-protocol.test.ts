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

  test.each([
    '47455420',
    `${signature}11110000`,
    `${signature}22110000`,
    `${signature}2111ffff`,
    `${signature}21310000`,
    `${signature}2111000400000000`,
  ])('%s is refused', hex => {
    expect(readProxyHeader(Buffer.from(hex, 'hex'))).toMatchObject({ done: true, error: expect.any(String) })
  })
})
