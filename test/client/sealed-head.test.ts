/** A server can seal whatever it likes: nothing is passed on that could not have come over the wire. */
import { expect, test } from 'vitest'
import { readSealedHead } from '../../client/sealed-head.ts'

const HEAD = {
  ...{ method: 'POST', authority: 'demo.example', path: '/x?y=1', headers: ['x-a', '1'], trailers: [] as string[] },
  caller: { address: '192.0.2.7', scheme: 'https', host: 'demo.example' },
  ...{ requestId: 'r-1', parts: 1, bodyBytes: 3 },
}
const read = (more: object) => readSealedHead(Buffer.from(JSON.stringify({ ...HEAD, ...more })))

test("a real sender's head is read unchanged", () => {
  expect(read({})).toEqual(HEAD)
})

test.each([
  [{ method: 'GET /x HTTP/1.1\r\nevil: 1' }],
  [{ method: 'CONNECT' }],
  [{ method: 7 }],
  [{ path: '/x HTTP/1.1\r\nevil: 1' }],
  [{ path: 'x' }],
  [{ authority: 'a b' }],
  [{ headers: ['x-a', '1\r\nevil: 1'] }],
  [{ headers: ['x-a: 1\r\nevil', '1'] }],
  [{ headers: ['X-A', '1'] }],
  [{ headers: ['x-a'] }],
  [{ headers: ['x-a', 1] }],
  [{ headers: {} }],
  [{ headers: Array.from({ length: 4000 }, () => 'x') }],
  [{ trailers: ['x-a', '\0'] }],
  [{ caller: { address: '127.0.0.1\r\n', scheme: 'https', host: 'a' } }],
  [{ caller: { address: '127.0.0.1', scheme: 'ftp', host: 'a' } }],
  [{ caller: undefined }],
  [{ requestId: 'r\r\n' }],
  [{ parts: -1 }],
  [{ bodyBytes: 1.5 }],
])('%j is refused', more => {
  expect(() => read(more)).toThrow()
})

test.each([
  'host',
  'content-length',
  'transfer-encoding',
  'expect',
  'connection',
  'upgrade',
  'x-forwarded-for',
  'sallyport-error',
])('%s is not passed on', name => {
  expect(read({ headers: [name, '1', 'x-b', '2'] }).headers).toEqual(['x-b', '2'])
})

test('anything but an object is refused', () => {
  for (const text of ['', 'null', '7', '[]', '{']) expect(() => readSealedHead(Buffer.from(text))).toThrow()
})
