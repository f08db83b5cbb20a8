/**
 * security.md, "Edge, HTTP/1.1". The oracle is an upstream that records raw bytes, and a canary request behind each
 * attack, on the same connection and on another caller's: nothing crosses over.
 */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, onTestFinished, test } from 'vitest'
import { noLogger } from '../../protocol/base/log.ts'
import type { ExchangeRecord } from '../../protocol/exchange.ts'
import { mount } from '../../protocol/http/http1/mount.ts'
import { webSocketAccept } from '../../protocol/http/http1/websocket.ts'
import { call, ok, type RawPeer, recorder } from '../protocol/http/http1/raw.ts'
import { eventually } from '../support/until.ts'
import { answering, CANARY, HOST, OTHER_CANARY, OTHER_HOST, startEdge, stopEdges } from './edge.ts'

afterEach(stopEdges)

async function startHttp1Edge(onPeer?: (peer: RawPeer) => void) {
  const edge = await startEdge(onPeer)
  return { ...edge, caller: await edge.call() }
}

/** The attack is refused with the status, its connection closes, and nothing of it or behind it reaches an upstream. */
async function refused(attack: string, status: number): Promise<void> {
  const { upstream, caller, call, othersUnhurt } = await startHttp1Edge()
  // Then one request to its own runtime, and one to another tenant.
  caller.send(`${attack}${CANARY}${OTHER_CANARY}`)
  const text = await caller.end()
  expect(text).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `))
  expect(text).toContain('connection: close\r\n')
  expect(text.split('HTTP/1.1 ').length).toBe(2)
  expect(upstream.text).toBe('')
  await othersUnhurt()
  const other = await call()
  other.send(CANARY)
  expect(await other.saying('canary')).toContain('answer to /canary')
  expect(upstream.text.match(/^\S+ \S+ HTTP\/1\.1\r$/gm)).toEqual(['GET /canary HTTP/1.1\r'])
}

const post = (fields: string, body = '') => `POST /attack HTTP/1.1\r\nHost: ${HOST}\r\n${fields}\r\n${body}`
const get = (fields: string) => `GET /attack HTTP/1.1\r\nHost: ${HOST}\r\n${fields}\r\n`

const LENGTHS: readonly (readonly [name: string, attack: string])[] = [
  ['content-length with transfer-encoding', post('Content-Length: 5\r\nTransfer-Encoding: chunked\r\n', '0\r\n\r\n')],
  ['transfer-encoding with content-length', post('Transfer-Encoding: chunked\r\nContent-Length: 5\r\n', '0\r\n\r\n')],
  ['two content-length', post('Content-Length: 5\r\nContent-Length: 6\r\n', 'abcde')],
  ['the same twice', post('Content-Length: 5\r\nContent-Length: 5\r\n', 'abcde')],
  ['a list', post('Content-Length: 5, 5\r\n', 'abcde')],
  ['a plus', post('Content-Length: +5\r\n', 'abcde')],
  ['a minus', post('Content-Length: -5\r\n', 'abcde')],
  ['hexadecimal', post('Content-Length: 0x5\r\n', 'abcde')],
  ['a fraction', post('Content-Length: 5.0\r\n', 'abcde')],
  ['empty', post('Content-Length:\r\n', 'abcde')],
  ['a space within', post('Content-Length: 5 0\r\n', 'abcde')],
  ['too large to count', post('Content-Length: 99999999999999999999\r\n', 'abcde')],
  ['an underscore twin is no length', post('Content-Length : 5\r\n', 'abcde')],
  ['chunked before another one', post('Transfer-Encoding: chunked, gzip\r\n', '0\r\n\r\n')],
  ['chunked, gzip, chunked', post('Transfer-Encoding: chunked, gzip, chunked\r\n', '0\r\n\r\n')],
  ['nothing before chunked', post('Transfer-Encoding: , chunked\r\n', '0\r\n\r\n')],
  ['chunked, chunked', post('Transfer-Encoding: chunked, chunked\r\n', '0\r\n\r\n')],
  ['chunked twice', post('Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n', '0\r\n\r\n')],
  ['identity', post('Transfer-Encoding: identity\r\n', 'abcde')],
  ['xchunked', post('Transfer-Encoding: xchunked\r\n', '0\r\n\r\n')],
  ['chunked with a vertical tab', post('Transfer-Encoding: \x0bchunked\r\n', '0\r\n\r\n')],
  ['quoted chunked', post('Transfer-Encoding: "chunked"\r\n', '0\r\n\r\n')],
  ['empty transfer-encoding', post('Transfer-Encoding:\r\n', '0\r\n\r\n')],
  ['transfer-encoding on HTTP/1.0', post('Transfer-Encoding: chunked\r\n', '0\r\n\r\n').replace('1.1', '1.0')],
]
const CODINGS = ['gzip, chunked', 'deflate , x-own,chunked', 'GZIP,CHUNKED']
const coded = (coding: string) => post(`Transfer-Encoding: ${coding}\r\n`, '0\r\n\r\n')

describe('E1: lengths that could be read in two ways', () => {
  test.each(LENGTHS)('E1: %s', (_name, attack) => refused(attack, 400))

  test.each(CODINGS)('E1: Transfer-Encoding: %s is not understood', coding => refused(coded(coding), 501))

  test.each([
    ["the embedder's server", {}],
    ["the embedder's server with a lenient parser", { insecureHTTPParser: true }],
  ])('E1: %s ends the connection behind each of them, too', async (_name, options) => {
    const { handler, seen } = recorder(({ response }) => ok(response))
    const theirs: unknown[] = []
    const server = createServer(options, ({ url }, response) => {
      theirs.push(url)
      response.end('not ours')
    })
    onTestFinished(() => void server.close().closeAllConnections())
    const isOurs = (authority: string) => authority === HOST
    mount(server, { handler, serves: isOurs, logger: noLogger })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const rows = [...LENGTHS, ...CODINGS.map(coding => [coding, coded(coding)] as const)]
    // Node answers an expectation itself if nothing listens for it.
    const expecting = ['100-continue', 'banana'].flatMap(expect =>
      rows.map(
        ([name, attack]) => [`${name}, ${expect}`, attack.replace('\r\n', `\r\nExpect: ${expect}\r\n`)] as const,
      ),
    )
    for (const [name, attack] of [...rows, ...expecting]) {
      const caller = await call((server.address() as AddressInfo).port)
      // What follows at once may be part of the attack, and so is nobody's request.
      caller.send(`${attack}GET /theirs HTTP/1.1\r\nHost: theirs\r\n\r\n`)
      await caller.until(text => text.includes('\r\n\r\n'))
      caller.send(CANARY)
      const text = await caller.end()
      const statuses = [...text.matchAll(/^HTTP\/1\.1 (400|501) /gm)].length
      expect({ name, statuses, closes: /connection: close\r\n/i.test(text), seen, theirs }).toEqual({
        name,
        statuses: 1,
        closes: true,
        seen: [],
        theirs: [],
      })
      caller.socket.destroy()
    }
  })
})

describe('E2: bytes that some parsers would read as a line end', () => {
  test.each([
    ['bare LF in the request line', get('').replace('1.1\r\n', '1.1\n')],
    ['bare LF behind a field', get('X: y\nZ: w\r\n')],
    ['bare LF at the end', `GET /attack HTTP/1.1\r\nHost: ${HOST}\r\n\n`],
    ['bare CR in a value', get('X: y\rZ: w\r\n')],
    ['bare CR behind a name', get('X\r: y\r\n')],
    ['NUL in a value', get('X: y\0z\r\n')],
    ['NUL in a name', get('X\0: y\r\n')],
    ['NUL in the target', get('').replace('/attack', '/att\0ack')],
    ['a folded line', get('X: y\r\n z\r\n')],
    ['a folded line with a tab', get('X: y\r\n\tz\r\n')],
    ['a folded first line', `GET /attack HTTP/1.1\r\n Host: ${HOST}\r\n\r\n`],
    ['space before the colon', get('X : y\r\n')],
    ['tab before the colon', get('X\t: y\r\n')],
    ['no colon', get('XY\r\n')],
    ['an empty name', get(': y\r\n')],
    ['DEL in a value', get('X: \x7f\r\n')],
    ['a byte above ASCII in a name', get('X\xe9: y\r\n')],
    ['two spaces in the request line', get('').replace('GET ', 'GET  ')],
    ['a tab in the request line', get('').replace('GET ', 'GET\t')],
    ['a space behind the version', get('').replace('1.1\r', '1.1 \r')],
    ['no version', `GET /attack\r\nHost: ${HOST}\r\n\r\n`],
    ['HTTP/0.9', 'GET /attack\r\n'],
    ['HTTP/1.2', get('').replace('1.1', '1.2')],
    ['HTTP/3.0', get('').replace('1.1', '3.0')],
    ['http/1.1', get('').replace('HTTP/1.1', 'http/1.1')],
    ['a method that is no token', get('').replace('GET', 'G(T')],
    ['two empty lines before', `\r\n\r\n${get('')}`],
    ['a fragment in the target', get('').replace('/attack', '/attack#x')],
    ['a byte above ASCII in the target', get('').replace('/attack', '/\xe9')],
  ])('E2: %s', (_name, attack) => refused(attack, 400))

  test('E2: one empty line before a request is skipped', async () => {
    const { caller } = await startHttp1Edge()
    caller.send(`\r\n${CANARY}`)
    expect(await caller.saying('canary')).toMatch(/^HTTP\/1.1 200/)
  })
})

describe('E3: chunks', () => {
  const chunked = (body: string) => post('Transfer-Encoding: chunked\r\n', body)
  test.each([
    ['a size that is no number', chunked('zz\r\n')],
    ['a size with a sign', chunked('+5\r\nabcde\r\n0\r\n\r\n')],
    ['an endless size', chunked('0'.repeat(5000))],
    ['a size of 2^64', chunked('10000000000000000\r\n')],
    ['bare LF behind a size', chunked('5\nabcde\r\n0\r\n\r\n')],
    ['a chunk longer than its size', chunked('5\r\nabcdefgh\r\n0\r\n\r\n')],
    ['an endless extension', chunked(`5;${'x'.repeat(100_000)}`)],
    ['a long extension', chunked(`5;${'x'.repeat(20_000)}\r\nabcde\r\n0\r\n\r\n`)],
    ['a flood of extensions', chunked(`${`1;${'x'.repeat(500)}\r\na\r\n`.repeat(100)}0\r\n\r\n`)],
    ['bare CR in an extension', chunked('5;a\rb\r\nabcde\r\n0\r\n\r\n')],
  ])('E3: %s: 400, and the upstream never receives a whole request', async (_name, attack) => {
    // An upstream that waits for the whole request, as upstreams do.
    const { upstream, caller, call, othersUnhurt } = await startHttp1Edge(peer => {
      peer.socket.on('data', () => {
        if (peer.text.includes('/canary')) peer.send('HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\ncanary')
      })
    })
    caller.send(`${attack}${CANARY}${OTHER_CANARY}`)
    expect(await caller.end()).toMatch(/^HTTP\/1\.1 400 .*connection: close\r\n/s)
    expect(upstream.text).not.toContain('canary')
    expect(upstream.text).not.toContain('0\r\n\r\n')
    expect(upstream.text.length).toBeLessThan(8192)
    await othersUnhurt()
    const other = await call()
    other.send(CANARY)
    await other.saying('canary')
  })
})

describe('E4: an early answer', () => {
  test.each([401, 413, 502])(
    'E4: after an early %i the rest of the body never becomes the next request',
    async status => {
      const { upstream, caller } = await startHttp1Edge(peer => {
        peer.socket.once('data', () => peer.send(`HTTP/1.1 ${status} No\r\nContent-Length: 2\r\n\r\nno`))
      })
      caller.send(post(`Content-Length: ${CANARY.length + 10}\r\n`, '0123456789'))
      await caller.saying(`HTTP/1.1 ${status}`)
      caller.send(CANARY)
      caller.socket.end()
      const text = await caller.close()
      expect(text.split('HTTP/1.1 ').length).toBe(2)
      expect(upstream.peers.length).toBe(1)
    },
  )
})

describe('E4: an early answer to a large upload', () => {
  const MIB = 1024 * 1024
  test.each([
    ['of known length', `Content-Length: ${24 * MIB}\r\n`, ''],
    ['in chunks', 'Transfer-Encoding: chunked\r\n', `${(24 * MIB).toString(16)}\r\n`],
  ])(
    'E4: a caller with a body %s that reads only after sending all of it finds the answer',
    async (_name, fields, chunk) => {
      const { caller } = await startHttp1Edge(peer => {
        peer.socket.once('data', () => peer.send('HTTP/1.1 400 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno'))
      })
      caller.socket.pause()
      caller.send(`${post(fields)}${chunk}begun`)
      const piece = Buffer.alloc(MIB)
      for (let sent = 0; sent < 23; sent++) {
        await new Promise((resolve, reject) =>
          caller.socket.write(piece, error => (error ? reject(error) : resolve(0))),
        )
      }
      caller.socket.resume()
      expect(await caller.saying('\r\n\r\nno')).toMatch(/^HTTP\/1\.1 400 /)
      expect(caller.error).toBeUndefined()
    },
  )
})

const KEY = 'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n'
const UPGRADE = get(`Connection: Upgrade\r\nUpgrade: websocket\r\n${KEY}`)

describe('E5, E6, E7: upgrades', () => {
  test('E5: bytes behind an Upgrade request do not reach an upstream that declines', async () => {
    const { upstream, caller } = await startHttp1Edge(peer => {
      peer.socket.once('data', () => peer.send('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno'))
    })
    caller.send(`${UPGRADE}${CANARY}`)
    expect(await caller.end()).toContain('connection: close')
    expect(upstream.text).not.toContain('canary')
  })

  test('E5: they wait for the 101 and follow it', async () => {
    const { upstream, caller } = await startHttp1Edge(peer => {
      peer.socket.once('data', () => {
        expect(peer.text).toMatch(/\r\n\r\n$/)
        const key = /^sec-websocket-key: (.*)\r$/m.exec(peer.text)![1]!
        const fields = `Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ${webSocketAccept(key)}\r\n`
        peer.send(`HTTP/1.1 101 X\r\n${fields}\r\n`)
      })
    })
    caller.send(`${UPGRADE}EARLY`)
    await caller.saying('HTTP/1.1 101')
    await upstream.peers[0]!.saying('EARLY')
  })

  test.each([
    ['h2c', 'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n'],
    ['a WebSocket of version 8', `Connection: Upgrade\r\nUpgrade: websocket\r\n${KEY.replace('13', '8')}`],
    ['a short key', `Connection: Upgrade\r\nUpgrade: websocket\r\n${KEY.replace('dGhl', '')}`],
    ['a WebSocket without Connection', `Upgrade: websocket\r\n${KEY}`],
    ['TLS/1.0', 'Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n'],
  ])('E6: %s is stripped', async (_name, fields) => {
    const { upstream, caller } = await startHttp1Edge()
    caller.send(get(fields))
    await caller.saying('answer to /attack')
    expect(upstream.text.toLowerCase()).not.toMatch(/upgrade|http2-settings|sec-websocket-key/)
  })

  test('E6: a WebSocket handshake with another method is a plain request', async () => {
    const { upstream, caller } = await startHttp1Edge()
    caller.send(UPGRADE.replace('GET', 'PUT'))
    await caller.saying('answer to /attack')
    expect(upstream.text).not.toContain('upgrade')
  })

  test.each([
    ['to a plain request', get(''), 'HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n'],
    [
      'with a wrong accept',
      UPGRADE,
      'HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n',
    ],
    ['to h2c', UPGRADE, 'HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n'],
    ['without headers', UPGRADE, 'HTTP/1.1 101 X\r\n\r\n'],
  ])('E7: a 101 %s becomes 502', async (_name, attack, answer) => {
    const { caller, upstream } = await startHttp1Edge(peer => {
      peer.socket.once('data', () => peer.send(`${answer}stolen`))
    })
    caller.send(attack)
    const text = await caller.saying('}')
    expect(text).toMatch(/^HTTP\/1\.1 502 /)
    expect(text).not.toContain('stolen')
    await upstream.peers[0]!.end()
  })
})

describe('E8: expectations', () => {
  test.each(['200-ok', '100-continue, 100-continue', '\x80', 'x'.repeat(200)])(
    'E8: Expect: %s does not desynchronise the connection',
    async value => {
      const { upstream, caller } = await startHttp1Edge()
      caller.send(post(`Expect: ${value}\r\nContent-Length: 5\r\n`, 'abcde') + CANARY)
      const text = await caller.saying('answer to /canary')
      expect(text.indexOf('answer to /attack')).toBeGreaterThan(0)
      expect(upstream.text).not.toContain('expect')
    },
  )

  test("E8: on the embedder's server, an odd Expect reaches the upstream as on our own listener", async () => {
    const { handler, seen } = recorder(({ response }) => ok(response))
    const server = createServer((_, response) => void response.end('not ours'))
    onTestFinished(() => void server.close().closeAllConnections())
    mount(server, { handler, serves: authority => authority === HOST, logger: noLogger })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const caller = await call((server.address() as AddressInfo).port)
    caller.send(post('Expect: banana\r\nContent-Length: 5\r\n', 'abcde') + CANARY)
    await caller.until(text => text.split('HTTP/1.1 200 OK').length === 3)
    expect(seen.map(({ request, body }) => [request.path, body])).toEqual([
      ['/attack', 'abcde'],
      ['/canary', ''],
    ])
    expect(caller.text).not.toMatch(/ 417 /)
  })

  test('E8: a refused expectation never becomes a request', async () => {
    const { upstream, caller } = await startHttp1Edge(peer => {
      peer.socket.once('data', () => peer.send('HTTP/1.1 417 No\r\nContent-Length: 2\r\n\r\nno'))
    })
    caller.send(post(`Expect: 100-continue\r\nContent-Length: ${CANARY.length}\r\n`))
    await caller.saying('417')
    caller.send(CANARY)
    caller.socket.end()
    expect((await caller.close()).split('HTTP/1.1 ').length).toBe(2)
    expect(upstream.text).not.toContain('canary')
  })
})

describe('E9: exactly one host', () => {
  test.each([
    ['none', 'GET /attack HTTP/1.1\r\n\r\n'],
    ['two', get('Host: b\r\n')],
    ['the same twice', get(`Host: ${HOST}\r\n`)],
    ['empty', 'GET /attack HTTP/1.1\r\nHost:\r\n\r\n'],
    ['with user info', 'GET /attack HTTP/1.1\r\nHost: a@b\r\n\r\n'],
    ['with a path', 'GET /attack HTTP/1.1\r\nHost: a/b\r\n\r\n'],
    ['with a space', 'GET /attack HTTP/1.1\r\nHost: a b\r\n\r\n'],
    ['half an address', 'GET /attack HTTP/1.1\r\nHost: [a\r\n\r\n'],
    ['a list', `GET /attack HTTP/1.1\r\nHost: ${HOST},b\r\n\r\n`],
    ['a parameter', `GET /attack HTTP/1.1\r\nHost: ${HOST};proto=https\r\n\r\n`],
    ['absolute form with a list', `GET http://${HOST},b/ HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`],
    ['too long', `GET /attack HTTP/1.1\r\nHost: ${'a'.repeat(300)}\r\n\r\n`],
    ['an escape', `GET /attack HTTP/1.1\r\nHost: %61${HOST.slice(1)}\r\n\r\n`],
    ['absolute form with an escape', `GET http://%61${HOST.slice(1)}/ HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`],
    ['an IPv6 zone', 'GET /attack HTTP/1.1\r\nHost: [fe80::1%25lo]\r\n\r\n'],
    ['another spelling of an address', 'GET /attack HTTP/1.1\r\nHost: 0x7f.1\r\n\r\n'],
    ['an address as a number', 'GET /attack HTTP/1.1\r\nHost: 2130706433\r\n\r\n'],
    ['another spelling of an IPv6 address', 'GET /attack HTTP/1.1\r\nHost: [0::1]:80\r\n\r\n'],
    ['no address', 'GET /attack HTTP/1.1\r\nHost: 1.2.3.999\r\n\r\n'],
    ['absolute form with no address', `GET http://[:::::]/ HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`],
    ['a port that cannot be', `GET /attack HTTP/1.1\r\nHost: ${HOST}:65536\r\n\r\n`],
    ['absolute form with such a port', `GET http://${HOST}:65536/ HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`],
    ['absolute form with user info', `GET http://x@a/ HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`],
    ['absolute form of another scheme', `GET ftp://a/ HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`],
    ['absolute form without a host', `GET http:///x HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`],
  ])('E9: %s', (_name, attack) => refused(attack, 400))

  test.each([
    ['Host', `GET /x HTTP/1.1\r\nHost: ${HOST}:\r\n\r\n`],
    ['absolute form', `GET http://${HOST}:/x HTTP/1.1\r\nHost: a\r\n\r\n`],
  ])('E9: an empty port in %s means no port', async (_name, request) => {
    const { upstream, caller } = await startHttp1Edge()
    caller.send(request)
    await caller.saying('answer to /x')
    expect(upstream.text).toContain(`\r\nhost: ${HOST}\r\n`)
  })

  test('E9: the host of the absolute form counts everywhere', async () => {
    const records: ExchangeRecord[] = []
    const { upstream, others, call } = await startEdge(answering, { onExchange: record => records.push(record) })
    const caller = await call()
    caller.send(`GET http://${HOST}:81/x HTTP/1.1\r\nHost: ${OTHER_HOST}\r\n\r\n`)
    await caller.saying('answer to /x')
    expect(upstream.text).toMatch(/^GET \/x HTTP\/1\.1\r\n/)
    expect(upstream.text).toContain(`\r\nhost: ${HOST}:81\r\n`)
    expect(upstream.text).not.toContain(OTHER_HOST)
    expect(others.text).toBe('')
    await eventually(() => expect(records).toHaveLength(1))
    expect(records[0]).toMatchObject({ runtime: 'demo', host: `${HOST}:81` })
  })
})

describe('E10: methods and forms that are not forwarded', () => {
  test.each([
    ['CONNECT', 'CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n', 405],
    ['CONNECT with a path', `CONNECT /attack HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`, 405],
    ['TRACE', `TRACE /attack HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`, 405],
    ['PRI', `PRI /attack HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`, 405],
    ['a method in lower case', `delete /attack HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`, 400],
    ['a method partly in lower case', `DELETe /attack HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`, 400],
    ['TRACE in lower case', `trace /attack HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`, 400],
    ['a method with other signs', `DELETE' /attack HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`, 400],
    ['asterisk form', `GET * HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`, 400],
    ['asterisk form with more', `OPTIONS */attack HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`, 400],
    ['authority form', `GET a:80 HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`, 400],
    ['a path without a slash', `GET attack HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`, 400],
  ])('E10: %s', (_name, attack, status) => refused(attack, status))

  test.each([
    ['of the server', 'OPTIONS * HTTP/1.1\r\n'],
    ['of the server, in absolute form', `OPTIONS http://${HOST} HTTP/1.1\r\n`],
    ['with no hop to go', 'OPTIONS /attack HTTP/1.1\r\nMax-Forwards: 0\r\n'],
  ])('E10: OPTIONS %s is answered here', async (_name, line) => {
    const { upstream, caller } = await startHttp1Edge()
    caller.send(`${line}Host: ${HOST}\r\n\r\n${CANARY}`)
    const text = await caller.saying('answer to /canary')
    expect(text).toMatch(/^HTTP\/1\.1 204 No Content\r\nallow: GET, HEAD,/)
    expect(upstream.text).not.toContain('OPTIONS')
  })

  test('E10: OPTIONS loses one Max-Forwards hop here, and other methods keep the field', async () => {
    const { upstream, caller } = await startHttp1Edge()
    for (const method of ['OPTIONS', 'GET']) {
      caller.send(`${method} /${method} HTTP/1.1\r\nHost: ${HOST}\r\nMax-Forwards: 7\r\n\r\n`)
      await caller.saying(`answer to /${method}`)
    }
    expect(upstream.text.match(/^max-forwards: \d+/gm)).toEqual(['max-forwards: 6', 'max-forwards: 7'])
  })

  test('E10: any other upper-case method is accepted', async () => {
    const { upstream, caller } = await startHttp1Edge()
    caller.send(`M-SEARCH_2 /x HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`)
    await eventually(() => expect(upstream.text).toContain('M-SEARCH_2 /x HTTP/1.1'))
  })
})

describe('E11: sizes', () => {
  test.each([
    ['101 fields', get('X: y\r\n'.repeat(100)), 431],
    ['a head over 16 KiB', get(`X: ${'y'.repeat(17_000)}\r\n`), 431],
    ['a head that does not end', `GET /attack HTTP/1.1\r\nHost: ${HOST}\r\nX: ${'y'.repeat(100_000)}`, 431],
    ['a name that does not end', `GET /attack HTTP/1.1\r\nHost: ${HOST}\r\n${'y'.repeat(100_000)}`, 431],
    ['a method that does not end', 'G'.repeat(100_000), 431],
    ['a URI over 8 KiB', get('').replace('/attack', `/${'a'.repeat(8192)}`), 414],
    ['a URI that does not end', `GET /${'a'.repeat(100_000)}`, 414],
  ])('E11: %s', (_name, attack, status) => refused(attack, status))

  test('E11: 100 fields, 8 KiB of URI and names such as __proto__ pass', async () => {
    const { upstream, caller } = await startHttp1Edge()
    const fields = '__proto__: a\r\nconstructor: b\r\nhasOwnProperty: c\r\n'
    caller.send(get(`${fields}${'X: y\r\n'.repeat(96)}`).replace('/attack', `/${'a'.repeat(8191)}`))
    await caller.saying('answer to')
    expect(upstream.text).toContain('__proto__: a\r\nconstructor: b\r\nhasownproperty: c\r\n')
    expect(upstream.text.match(/x: y\r\n/g)).toHaveLength(96)
  })
})

describe('E12, E13: responses', () => {
  test.each([
    ['both lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc'],
    ['33 informational ones', 'HTTP/1.1 103 X\r\n\r\n'.repeat(33)],
    ['CR in a header', 'HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 0\r\n\r\n'],
    ['a status of 999', 'HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n'],
    ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd'],
    ['a list of lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\nabc'],
    ['a length with a sign', 'HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc'],
    ['gzip as transfer-encoding', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n'],
    ['bare LF', 'HTTP/1.1 200 OK\nContent-Length: 0\n\n'],
    ['NUL in a header', 'HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n'],
    ['a folded header', 'HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n'],
    ['a space before the colon', 'HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n'],
    ['no HTTP', 'SSH-2.0-OpenSSH\r\n\r\n'],
    ['a head that does not end', `HTTP/1.1 200 OK\r\nX: ${'y'.repeat(100_000)}`],
  ])('E12: %s: 502, and that connection is not used again', async (_name, answer) => {
    const { upstream, caller } = await startHttp1Edge(peer => {
      peer.socket.on('data', () => {
        peer.send(peer.text.includes('/attack') ? answer : 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
      })
    })
    caller.send(get(''))
    const text = await caller.saying('}')
    expect(text).toMatch(/^(HTTP\/1\.1 103 Early Hints\r\n\r\n){0,32}HTTP\/1\.1 502 /)
    caller.send(CANARY)
    await caller.saying('HTTP/1.1 200 OK')
    expect(upstream.peers.length).toBe(2)
  })

  test.each([
    ['extra bytes', 'GET', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'],
    ['HEAD with a body', 'HEAD', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n'],
    ['204 with a body', 'GET', 'HTTP/1.1 204 No Content\r\n\r\n'],
    ['304 with a body', 'GET', 'HTTP/1.1 304 Not Modified\r\nContent-Length: 20\r\n\r\n'],
  ])('E13: %s does not poison the next response', async (_name, method, answer) => {
    const poison = 'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison'
    const { upstream, caller } = await startHttp1Edge(peer => {
      peer.socket.on('data', () => {
        if (peer.text.includes('/attack')) peer.send(answer + poison)
        else peer.send('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nno poison')
      })
    })
    caller.send(get('').replace('GET', method))
    await caller.saying('\r\n\r\n')
    caller.send(CANARY)
    const text = await caller.saying('poison')
    expect(text).toContain('no poison')
    expect(upstream.peers.length).toBe(2)
  })
})

test.each([
  ['a target', 'GET <script>alert(1)</script> HTTP/1.1\r\nHost: a\r\n\r\n'],
  ['a host', 'GET / HTTP/1.1\r\nHost: <b>\r\n\r\n'],
  ['a host of nobody', 'GET /"><script> HTTP/1.1\r\nHost: zzz.example.com\r\nConnection: close\r\n\r\n'],
  ['a method', `<b> / HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`],
  ['a field', `GET / HTTP/1.1\r\nHost: ${HOST}\r\n<script>: x\r\n\r\n`],
  ['a request id', 'GET / HTTP/1.1\r\nHost: zzz\r\nX-Request-Id: <script>\r\nConnection: close\r\n\r\n'],
])('E14: %s does not appear in the error that its caller gets', async (_name, attack) => {
  const { caller } = await startHttp1Edge()
  caller.send(attack)
  const text = await caller.end()
  expect(text).toContain('content-type: application/problem+json\r\n')
  expect(text).not.toMatch(/[<>]|zzz/)
})
