import { once } from 'node:events'
import { connect, constants, createServer, type ServerHttp2Stream } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import { asObject, outgoingBlock } from '../../../../protocol/http/http2/headers.ts'

/** Every field that Node knows, except hop-by-hop ones. */
const HOP = new Set([
  'connection',
  'upgrade',
  'http2-settings',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'te',
])
const NAMES = Object.entries(constants)
  .filter(([key]) => key.startsWith('HTTP2_HEADER_'))
  .map(([, name]) => String(name))
  .filter(name => !name.startsWith(':') && !HOP.has(name))

test('a field that arrived twice can be sent as an object: joined, or the first one, or both', async () => {
  expect(asObject(['date', 'a', 'date', 'b', 'set-cookie', '1', 'set-cookie', '2'])).toEqual({
    __proto__: null,
    date: 'a',
    'set-cookie': ['1', '2'],
  })
  expect(asObject(['content-encoding', 'gzip', 'content-encoding', 'br'])['content-encoding']).toBe('gzip, br')
})

test('Node accepts every field that arrived twice', async () => {
  const refused: string[] = []
  const server = createServer()
  server.on('stream', (stream: ServerHttp2Stream) => {
    for (const name of NAMES) {
      try {
        stream.additionalHeaders(asObject([':status', '103', name, '1', name, '2']))
      } catch {
        refused.push(name)
      }
    }
    stream.respond({ ':status': 204 }, { endStream: true })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  // What the caller makes of it does not matter here.
  const stream = session.request().on('error', () => {})
  await new Promise(resolve => stream.resume().once('close', resolve))
  session.destroy()
  server.close()
  expect(NAMES.length).toBeGreaterThan(50)
  expect(refused).toEqual([])
})

test.each([
  ['a name that is no token', 'a b', 'c'],
  ['a name with a colon', 'a:b', 'c'],
  ['an empty name', '', 'c'],
  ['a value with a line end', 'a', 'b\r\nc: d'],
  ['a value with NUL', 'a', 'b\0'],
])('H4 not sent: %s', (_, name, value) => {
  expect(() => outgoingBlock([':status', '200'], [name, value])).toThrow(
    expect.objectContaining({ reason: 'upstream-broken', message: expect.stringContaining('field cannot be sent') }),
  )
})
