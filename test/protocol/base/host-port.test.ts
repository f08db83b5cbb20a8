import { expect, test } from 'vitest'
import { tlsName } from '../../../protocol/base/host-port.ts'

test.each([
  ['a.test', 'a.test'],
  ['a.test.', 'a.test'],
  ['127.0.0.1', ''],
  ['127.0.0.1.', ''],
  ['::1', ''],
])('the name for TLS of %s is "%s"', (host, name) => {
  expect(tlsName(host)).toBe(name)
})
