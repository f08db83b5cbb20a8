import { describe, expect, test } from 'vitest'
import {
  getAllHeaders,
  hasTwin,
  isAuthority,
  isClaim,
  isFieldValue,
  isForwardedName,
  isMountName,
  isPath,
  isPathName,
  isToken,
  removeClaims,
  removeHeader,
  setHeader,
  stripHopByHop,
  stripRequestTrailers,
  stripResponseTrailers,
} from '../../../protocol/http/headers.ts'
import { Random } from '../../fuzz/random.ts'
import { firstSeed } from '../../support/seed.ts'

describe('grammar', () => {
  test('tokens', () => {
    for (const good of ['GET', 'FOO', "x!#$%&'*+-.^_`|~9"]) expect(isToken(good)).toBe(true)
    for (const bad of ['', 'a b', 'a:b', 'a\n', 'é', 'a\0', '(x)']) expect(isToken(bad)).toBe(false)
  })
  test('field values', () => {
    for (const good of ['', 'a b\tc', '\xe9\xff']) expect(isFieldValue(good)).toBe(true)
    for (const bad of ['a\r', 'a\n', 'a\0', '\x7f', '\u0100']) expect(isFieldValue(bad)).toBe(false)
  })
  test('long field values are checked differently, by the same rule', () => {
    for (let code = 0; code <= 0x200; code++) {
      const character = String.fromCharCode(code)
      expect(isFieldValue('x'.repeat(100) + character)).toBe(isFieldValue(character))
    }
  })
  test('paths and authorities', () => {
    for (const good of ['/', '/a?b=c|{}', '//x/../%2e']) expect(isPath(good)).toBe(true)
    for (const bad of ['', '*', 'a', '/a b', '/a#b', '/\xe9', '/a\r\n']) expect(isPath(bad)).toBe(false)
    for (const good of ['a.example', 'A.example.', 'a:80', '[::1]:8080', '1.2.3.4', 'a_b.c'])
      expect(isAuthority(good)).toBe(true)
    for (const bad of [
      '',
      'a b',
      'u@h',
      'a:x',
      'a/b',
      '[::1',
      'a:123456',
      'a,\n',
      '%61.example',
      'a%2eb',
      'a..b',
      '.a',
      '.',
      ...Array.from("!$&'()*+,;=~", sign => `a${sign}b`),
      '[fe80::1%25eth0]',
    ]) {
      expect(isAuthority(bad)).toBe(false)
    }
  })
  test('a host is one that URL reads as it is written', () => {
    const labels = [
      'a',
      'B',
      '_',
      '-',
      '0',
      '7',
      '10',
      '010',
      '255',
      '256',
      '999',
      '65536',
      '167772167',
      '0x',
      '0xA',
      '0xg',
      '1x',
    ]
    const groups = ['', '', '0', '00', '1', '7', 'fd00', 'FD00', 'ffff', '10000', 'g', '10.0.0.7', '10.7']
    const random = new Random(String(firstSeed()))
    const some = (most: number, parts: readonly string[], sign: string) =>
      Array.from({ length: 1 + random.int(most) }, () => random.pick(parts)).join(sign)
    const isAsRead = (host: string) => URL.parse(`http://${host}`)?.hostname === host.toLowerCase()
    const hosts = [
      '[fd00::7]',
      '[FD00::7]',
      '10.0.0.7',
      '10.0.0.7.',
      '[fd00:0::7]',
      '[::ffff:1.2.3.4]',
      '[:::::]',
      '1.2.3.999',
    ]
    for (let i = 0; i < 20_000; i++) {
      hosts.push(random.oneIn(2) ? `[${some(9, groups, ':')}]` : some(5, labels, '.') + random.pick(['', '.']))
    }
    expect(hosts.filter(host => isAuthority(host) !== isAsRead(host))).toEqual([])
    expect(hosts.slice(0, 8).map(isAuthority)).toEqual([true, true, true, ...Array(5).fill(false)])
  })
  test('a port is one that exists', () => {
    const ports = Array.from({ length: 100_000 }, (_, port) => port)
    expect(ports.filter(port => isAuthority(`a:${port}`))).toEqual(ports.slice(0, 65_536))
    for (const good of ['a:', 'a:00080', '[::1]:65535']) expect(isAuthority(good)).toBe(true)
    for (const bad of ['a:000080', '[::1]:65536']) expect(isAuthority(bad)).toBe(false)
  })
})

describe('R1: fields of one hop', () => {
  test('are removed with those that Connection names, except content-length', () => {
    const headers = ['connection', 'X-Gone, content-length', 'x-gone', '1', 'keep-alive', 't', 'content-length', '3']
    headers.push(
      'x-kept',
      '1',
      'connection',
      'x-too',
      'x-too',
      '2',
      'upgrade',
      'h2c',
      'te',
      'trailers',
      '__proto__',
      'p',
    )
    stripHopByHop(headers)
    expect(headers).toEqual(['content-length', '3', 'x-kept', '1', '__proto__', 'p'])
  })
  test('te: trailers stays where it is allowed', () => {
    const headers = ['te', 'Trailers']
    stripHopByHop(headers, true)
    expect(headers).toEqual(['te', 'trailers'])
    const other = ['te', 'gzip']
    stripHopByHop(other, true)
    expect(other).toEqual([])
  })
  test('trailers lose framing fields', () => {
    const trailers = ['content-length', '1', 'grpc-status', '0', 'host', 'x', 'set_cookie', 'y', 'x.request_id', 'z']
    expect(stripRequestTrailers([...trailers])).toEqual(['grpc-status', '0'])
    expect(stripResponseTrailers(trailers)).toEqual(['grpc-status', '0'])
  })
})

test('R2: names that describe the caller, in every spelling', () => {
  for (const name of [
    'x-forwarded-for',
    'x_forwarded_for',
    'x.forwarded-host',
    'forwarded',
    'x_real_ip',
    'x-real-ip',
    'x!real+ip',
    'x~forwarded-for',
  ]) {
    expect(isForwardedName(name)).toBe(true)
  }
  for (const name of ['x-request', 'from', 'host', 'x-hub-signature-256', 'x-gitlab-token', 'x_real']) {
    expect(isForwardedName(name)).toBe(false)
  }
  const headers = ['a', '1', 'x_forwarded_for', '2', 'b', '3', 'true-client-ip', '4', 'script_name', '5']
  removeClaims(headers)
  expect(headers).toEqual(['a', '1', 'b', '3'])
})

test('R2: names by which a caller says where the request is mounted, in every spelling', () => {
  const path = ['script_name', 'script-name', 'path~info', 'daphne-root-path', 'x_vhm.root', 'x-original-url']
  for (const name of [...path, '$wssn', '-wssn', '_wssp', 'x-envoy-original-host']) {
    expect(isMountName(name)).toBe(true)
    expect(stripRequestTrailers([name, '/x'])).toEqual([])
    expect(stripResponseTrailers([name, '/x'])).toEqual([name, '/x'])
  }
  for (const name of ['', 'script', 'user-agent', 'x-request-id', 'x-original-file', 'x-correlation-id', 'é']) {
    expect(isMountName(name)).toBe(false)
  }
})

test('R1, R2, E18: what is behind grpc-metadata- counts as a name, since grpc-gateway reads it so', () => {
  const names = new Set(['x-user', 'authorization'])
  const twins = [
    'x-user',
    'x_user',
    'grpc-metadata-x-user',
    'Grpc_Metadata.X!User',
    'grpc-metadata-grpcgateway-authorization',
  ]
  for (const name of twins) expect(hasTwin(names, name.toLowerCase()), name).toBe(true)
  for (const name of ['x-users', 'grpc-metadata-', 'grpc-metadata-user', 'x-grpc-metadata-x-user', 'grpc-timeout']) {
    expect(hasTwin(names, name), name).toBe(false)
  }
  for (const name of [
    'grpc-metadata-x-forwarded-for',
    'grpc_metadata_forwarded',
    'grpc-metadata-grpcgateway-x-real-ip',
  ]) {
    expect(isForwardedName(name), name).toBe(true)
  }
  expect(stripRequestTrailers(['grpc-metadata-client-ip', '1', 'grpc-metadata-a', '2'])).toEqual([
    'grpc-metadata-a',
    '2',
  ])
  expect(isForwardedName('grpc-metadata-a')).toBe(false)
})

test('R3: names of fields with a second path, in every spelling', () => {
  const copies = ['amz', 'ms', 'goog', 'oss', 'cos'].map(who => `x-${who}-copy-source`)
  for (const name of [
    ...copies,
    'destination',
    'x_copy.from',
    'destination_account',
    'x!object!manifest',
    'x_amz_rename.source',
  ]) {
    expect(isPathName(name), name).toBe(true)
    expect(stripRequestTrailers([name, '/x'])).toEqual([])
    expect(stripResponseTrailers([name, '/x'])).toEqual([name, '/x'])
  }
  for (const name of [
    '',
    'n',
    'source',
    'authorization',
    'x-destination',
    'copy-source',
    'x-source',
    'sec-fetch-dest',
    'x-copy-fromm',
  ]) {
    expect(isPathName(name), name).toBe(false)
  }
})

test('R2: names by which only a trusted proxy describes the caller, in every spelling', () => {
  const names =
    `true-client-ip client-ip proxy-client-ip wl-proxy-client-ip wl-proxy-client-cert forwarded-for remote-addr x-remote-addr x-remote-ip
  x-originating-ip cf-connecting-ip cf-connecting-ipv6 cf-pseudo-ipv4 fastly-client-ip fly-client-ip do-connecting-ip
  x-envoy-external-address x-azure-clientip x-azure-socketip x-appengine-user-ip x-proxyuser-ip client-cert client-cert-chain
  x-client-cert x-client-cert-chain ssl-client-cert ssl-client-verify x-ssl-cert x-ssl-client-verify x-ssl-client-s-dn
  x-arr-clientcert x-amzn-mtls-clientcert cf-client-cert-sha256 cf-cert-verified wl-proxy-ssl ssl-cipher
  ssl-cipher-usekeysize ssl-session-id proxy-auth-cert proxy-ssl-id x-proxied-https front-end-https
  x-client-verify x-client-dn cloudfront-viewer-cert-subject cloudfront-viewer-address x-appengine-remote-addr`.split(
      /\s+/,
    )
  const spellings = names.flatMap(name => ['-', '_', '.', '!', '|'].map(sign => name.replaceAll('-', sign)))
  expect(spellings.filter(name => !isClaim(name))).toEqual([])
  expect(spellings.filter(isForwardedName)).toEqual([])
  expect(spellings.flatMap(name => stripRequestTrailers([name, 'x']))).toEqual([])
  expect(spellings.flatMap(name => stripResponseTrailers([name, 'x']))).toHaveLength(2 * spellings.length)
  expect(stripResponseTrailers(['x_real_ip', '1', 'x-sallyport-a', '2', 'sallyport-b', '3'])).toEqual([])
  const others = ['te', 'x', 'client', 'client-id', 'x-client-id', 'x-remote-user', 'cf-ray', 'ssl', 'true-client-ip-x']
  expect(others.filter(isClaim)).toEqual([])
})

test('look-up and changes keep the order', () => {
  const headers = ['a', '1', 'b', '2', 'a', '3']
  expect(getAllHeaders(headers, 'a')).toEqual(['1', '3'])
  setHeader(headers, 'a', '9')
  expect(headers).toEqual(['a', '9', 'b', '2'])
  setHeader(headers, 'c', '4')
  removeHeader(headers, 'b')
  expect(headers).toEqual(['a', '9', 'c', '4'])
})
