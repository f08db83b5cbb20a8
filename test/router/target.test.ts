/** R4: what a target may be. */
import { expect, test } from 'vitest'
import { parseTarget } from '../../router/target.ts'

test.each([
  ['ftp://a', 'must begin with http://, https:// or h2c://'],
  ['http://user@a', 'must not have a user name or password'],
  ['http://a/path', 'must be only host and port; a path is set with rewrite'],
  ['http://', 'must be a URL such as http://service:8080'],
  ['http://a:0', 'the port must be 1 to 65535'],
  ['http://a:65536', 'the port must be 1 to 65535'],
  ['http://10.0.0.{n}', 'a captured name cannot be part of an IP address'],
  ['http://{1}', 'a capture in the host is written {name}'],
  ['http://{a-b}.example', 'a capture in the host is written {name}'],
  ['http://-a', 'the host is neither a name nor an IP address'],
  ['http://a..b', 'the host is neither a name nor an IP address'],
  ['http://[::g]', 'must be a URL such as http://service:8080'],
  ['http://0x7f000001', 'the host is not an IP address in its usual form'],
  ['http://127.1', 'the host is not an IP address in its usual form'],
])('R4 %s: %s', (target, reason) => {
  expect(() => parseTarget(target)).toThrow(new TypeError(reason))
})

test.each(['http://a', 'https://a.example:8443', 'h2c://[::1]:80', 'http://10.0.0.1', 'http://{name}.svc:80'])(
  'R4 %s is valid',
  target => {
    expect(parseTarget(target).text).toBe(target)
  },
)
