import { describe, expect, test } from 'vitest'
import * as kinds from '../../../cli/config/kinds.ts'

describe.each<[string, kinds.Kind<unknown>, [unknown, unknown][], unknown[]]>([
  [
    'address',
    kinds.address,
    [
      ['127.0.0.1:8080', { host: '127.0.0.1', port: 8080 }],
      ['[::1]:0', { host: '::1', port: 0 }],
      ['localhost:1', { host: 'localhost', port: 1 }],
      [':443', { host: '0.0.0.0', port: 443 }],
    ],
    ['8080', '127.0.0.1', '127.0.0.1:65536', '::1:80', 'a b:1', '', true],
  ],
  [
    'address or off',
    kinds.addressOrOff,
    [
      ['off', 'off'],
      [false, 'off'],
      ['[::]:1', { host: '::', port: 1 }],
    ],
    ['on', true],
  ],
  [
    'toggle',
    kinds.toggle,
    [
      ['true', true],
      ['1', true],
      [true, true],
      ['false', false],
      [false, false],
    ],
    ['yes', '', 1],
  ],
  [
    'integer',
    kinds.integer(1, 16),
    [
      ['1', 1],
      [16, 16],
    ],
    ['0', '17', '1.5', '-1', '1e1', ''],
  ],
  [
    'bytes',
    kinds.bytesFrom('0', '65536GiB'),
    [
      ['65536', 65_536],
      ['64KiB', 65_536],
      ['4 MiB', 4_194_304],
      [10, 10],
    ],
    ['64kb', '-1', 'x', '65537GiB', '999999999999GiB'],
  ],
  [
    'duration',
    kinds.duration,
    [
      ['500ms', 500],
      ['90s', 90_000],
      ['1h', 3_600_000],
    ],
    ['90', '1h30m', ''],
  ],
  [
    'label',
    kinds.label,
    [
      ['argo-events', 'argo-events'],
      [7, '7'],
    ],
    ['*', 'a b', 'Argo', '-a', 'a.b', '', 'a'.repeat(64), true],
  ],
  [
    'host name',
    kinds.hostName,
    [['Tunnels.Example.com.', 'tunnels.example.com']],
    ['*.example.com', 'a..b', 'a/b', ''],
  ],
  ['path', kinds.path, [['/healthz', '/healthz']], ['healthz', '/a b', '']],
  [
    'origin',
    kinds.origin,
    [
      ['https://ui.example.com', 'https://ui.example.com'],
      ['http://a:1/', 'http://a:1'],
      ['*', '*'],
    ],
    ['ui.example.com', 'https://a/b'],
  ],
  ['url', kinds.url(['wss:']), [['wss://a:1', 'wss://a:1']], ['https://a', 'wss://u:p@a', 'wss:', 'a']],
  ['choice', kinds.oneOf('a', 'b'), [['a', 'a']], ['c', 'A', '']],
  [
    'list',
    kinds.list(kinds.cidr),
    [
      ['10.0.0.0/8, ::1', ['10.0.0.0/8', '::1']],
      ['', []],
      [['1.1.1.1'], ['1.1.1.1']],
    ],
    ['x y', ['a b'], '::ffff:0:0/90'],
  ],
])('%s', (_, kind, good, bad) => {
  test.each(good)('%j is %j', (given, value) => {
    expect(kind.read(given)).toEqual(value)
  })

  test.each(bad)('%j is refused', given => {
    expect(() => kind.read(given)).toThrow(/^expected /)
  })
})
