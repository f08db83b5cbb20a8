/** What an embedder's request may be: what could not be sent as HTTP is refused when it is passed in. */
import { expect, test } from 'vitest'
import { buildRequest } from '../../../server/embed/request.ts'

const build = (over: Partial<Parameters<typeof buildRequest>[0]> = {}, options = {}) =>
  buildRequest(
    { method: 'GET', url: new URL('https://demo.example/a'), path: '/a', headers: [], bodyBytes: 0, ...over },
    options,
  )

test.each([
  ['a method with a space', { method: 'G T' }, 'method G T is not supported'],
  ['CONNECT', { method: 'CONNECT' }, 'method CONNECT is not supported'],
  ['TRACE', { method: 'TRACE' }, 'method TRACE is not supported'],
  ['PRI', { method: 'PRI' }, 'method PRI is not supported'],
  ['a path with a space', { path: '/a b' }, 'the path is not valid'],
  ['a path with a line end', { path: '/a\r\nb' }, 'the path is not valid'],
  ['a host with a slash', { headers: ['host', 'a/b'] }, 'the host is not valid'],
  ['a name with a colon', { headers: ['a:b', 'c'] }, 'header a:b is not valid'],
  ['a value with a line end', { headers: ['a', 'b\r\nc: d'] }, 'header a is not valid'],
  ['a value with NUL', { headers: ['a', 'b\0'] }, 'header a is not valid'],
])('not %s', (_, over, reason) => expect(() => build(over)).toThrow(new TypeError(reason)))

test('not a caller that is no address', () => {
  expect(() => build({}, { caller: 'somebody' })).toThrow(new TypeError('caller is not an IP address'))
})

test('valid requests are accepted', () => {
  expect(build()).toMatchObject({ method: 'GET', authority: 'demo.example', path: '/a' })
})

test('fields of one hop stay out, except te: trailers', () => {
  const headers = ['te', 'Trailers', 'connection', 'x-gone, te', 'x-gone', '1', 'keep-alive', 'x']
  expect(build({ headers }).headers).toEqual(['te', 'trailers', 'x-request-id', expect.any(String)])
})
