import { expect, it } from 'vitest'
import { isLoopback } from '../../../protocol/base/address.ts'

it.each([
  ['127.0.0.1', true],
  ['127.255.8.8', true],
  ['::1', true],
  ['[::1]', true],
  ['0:0:0:0:0:0:0:1', true],
  ['::ffff:127.0.0.1', true],
  // As a URL writes the same address.
  ['[::ffff:7f00:1]', true],
  ['localhost', true],
  ['LocalHost', true],
  ['a.b.localhost', true],
  ['', false],
  ['0.0.0.0', false],
  ['::', false],
  ['::2', false],
  ['10.0.0.1', false],
  ['128.0.0.1', false],
  ['127.0.0.999', false],
  ['127.1', false],
  ['::ffff:10.0.0.1', false],
  ['127.0.0.1.example', false],
  ['localhost.example.com', false],
  ['notlocalhost', false],
  ['.localhost', false],
  // We do not resolve it, and the system may return anything.
  ['a.localhost.', false],
])('loopback: %s is %s', (host, expected) => {
  expect(isLoopback(host)).toBe(expected)
})
