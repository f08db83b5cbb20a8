import { describe, expect, test } from 'vitest'
import { canonicalAddress, cidrsContain, parseCidrs } from '../../../protocol/base/address.ts'
import type { HttpRequest } from '../../../protocol/exchange.ts'
import { appendForwarded, resolveCaller } from '../../../protocol/http/forwarded.ts'
import { getAllHeaders } from '../../../protocol/http/headers.ts'

function request(headers: string[], peerAddress = '10.0.0.1'): HttpRequest {
  return {
    method: 'GET',
    authority: 'inner.example',
    path: '/',
    headers,
    bodyBytes: 0,
    upgrade: false,
    peerAddress,
    encrypted: false,
    caller: undefined,
    requestId: '',
    exchangeId: undefined,
  }
}

const trusted = parseCidrs(['10.0.0.0/8', '::1'])

describe('addresses', () => {
  test.each([
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['::FFFF:c000:0201', '192.0.2.1'],
    ['2001:DB8:0:0:1:0:0:1', '2001:db8::1:0:0:1'],
    ['0:0:0:0:0:0:0:0', '::'],
    ['::1', '::1'],
    ['1:0:2:0:0:0:0:3', '1:0:2::3'],
    ['1:2:3:4:5:6:0:8', '1:2:3:4:5:6:0:8'],
    ['fe80::1%eth0', 'fe80::1'],
    ['64:ff9b::192.0.2.33', '64:ff9b::c000:221'],
    ['010.0.0.1', ''],
    ['2130706433', ''],
    ['host', ''],
    ['', ''],
  ])('%s is %s', (text, canonical) => expect(canonicalAddress(text)).toBe(canonical))

  test('networks', () => {
    const list = parseCidrs(['192.0.2.0/25', '2001:db8::/33', '::ffff:198.51.100.0/120'])
    for (const inside of ['192.0.2.127', '::ffff:192.0.2.1', '2001:db8:7fff::', '198.51.100.7']) {
      expect(cidrsContain(list, inside)).toBe(true)
    }
    for (const outside of ['192.0.2.128', '2001:db8:8000::', '198.51.101.1', '', 'x']) {
      expect(cidrsContain(list, outside)).toBe(false)
    }
    expect(cidrsContain(parseCidrs(['0.0.0.0/0']), '::1')).toBe(false)
    expect(cidrsContain(parseCidrs(['::/0']), '::1')).toBe(true)
    for (const bad of [
      '10.0.0.0/33',
      '10.0.0.0/',
      'x/8',
      '10.0.0.0/8/8',
      '::/129',
      '10.0.0.0/-1',
      '::ffff:1.2.3.4/95',
    ]) {
      expect(() => parseCidrs([bad])).toThrow(TypeError)
    }
  })
})

describe('R2: who the caller is', () => {
  test('an untrusted peer is the caller itself; what it claims is removed', () => {
    const asked = request(
      ['x-forwarded-for', '1.1.1.1', 'X'.toLowerCase(), 'y', 'x_forwarded_proto', 'https', 'forwarded', 'for=2.2.2.2'],
      '192.0.2.9',
    )
    asked.headers.push('x-request-id', 'mine', 'x_request.id', 'mine', 'x-real-ip', '3.3.3.3')
    resolveCaller(asked, trusted)
    expect(asked.caller).toEqual({ address: '192.0.2.9', scheme: 'http', host: 'inner.example' })
    expect(asked.headers).toEqual(['x', 'y', 'x-request-id', asked.requestId])
    expect(asked.requestId).not.toBe('mine')
  })

  test('counted from the right through trusted proxies only', () => {
    const asked = request(['x-forwarded-for', '6.6.6.6, 192.0.2.7', 'x-forwarded-for', '10.1.1.1'])
    asked.headers.push(
      'x-forwarded-proto',
      'ftp, https, http',
      'x-forwarded-host',
      'outer.example',
      'x-request-id',
      'id-1',
    )
    resolveCaller(asked, trusted)
    expect(asked.caller).toEqual({ address: '192.0.2.7', scheme: 'https', host: 'outer.example' })
    expect(asked.requestId).toBe('id-1')
    expect(asked.headers).toEqual(['x-request-id', 'id-1'])
  })

  test('garbage in the list ends the search at the last good address', () => {
    const asked = request(['x-forwarded-for', '192.0.2.7, unknown, 10.2.2.2'])
    resolveCaller(asked, trusted)
    expect(asked.caller?.address).toBe('10.2.2.2')
  })

  test('ports and brackets; an invalid id; an invalid host', () => {
    const asked = request(['x-forwarded-for', '[2001:DB8::1]:443', 'x-request-id', 'a b<', 'x-forwarded-host', 'a b'])
    resolveCaller(asked, trusted)
    expect(asked.caller).toEqual({ address: '2001:db8::1', scheme: 'http', host: 'inner.example' })
    expect(asked.requestId).toMatch(/^[0-9a-f-]{36}$/)
  })

  test("a trusted proxy's Forwarded field is ignored", () => {
    const asked = request(['forwarded', 'for=6.6.6.6;proto=https'])
    resolveCaller(asked, trusted)
    expect(asked.caller).toEqual({ address: '10.0.0.1', scheme: 'http', host: 'inner.example' })
  })
})

test('R2: an upstream is told of exactly one caller', () => {
  const headers: string[] = []
  appendForwarded(headers, { address: '2001:db8::1', scheme: 'https', host: 'a.example:8443' })
  expect(headers).toEqual([
    'x-forwarded-for',
    '2001:db8::1',
    'x-forwarded-proto',
    'https',
    'x-forwarded-host',
    'a.example:8443',
    'forwarded',
    'for="[2001:db8::1]";host="a.example:8443";proto=https',
  ])
  const plain: string[] = []
  appendForwarded(plain, { address: '192.0.2.1', scheme: 'http', host: 'a.example' })
  expect(getAllHeaders(plain, 'forwarded')).toEqual(['for=192.0.2.1;host=a.example;proto=http'])
})
