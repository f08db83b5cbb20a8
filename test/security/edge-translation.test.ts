/**
 * security.md, "Edge, HTTP/2", H4 and H5, and the statements of "Edge, HTTP/1.1" that hold for any request: raw frames
 * at the edge of a real tunnel, with HTTP/1.1 behind it.
 */
import { afterEach, describe, expect, test } from 'vitest'
import { webSocketAccept } from '../../protocol/http/http1/websocket.ts'
import type { RawPeer } from '../protocol/http/http1/raw.ts'
import { END_HEADERS, END_STREAM, field, frame, framesOf, PREFACE, TYPE } from '../support/http2-frames.ts'
import { type Outcome, outcomeOf, statusOf } from '../support/http2-outcome.ts'
import { answering, answeringWith, HOST, OTHER_HOST, startEdge, stopEdges } from './edge.ts'

afterEach(stopEdges)

type Fields = readonly (readonly [string, string])[]

const ENDS = END_STREAM | END_HEADERS
const HELLO = Buffer.concat([PREFACE, frame(TYPE.settings, 0, 0), frame(TYPE.settings, 1, 0)])
const block = (fields: Fields) => Buffer.concat(fields.map(([name, value]) => field(name, value)))

/** A request's pseudo-fields, with some replaced, or left out if undefined. */
function pseudo(changes: Record<string, string | undefined> = {}): Fields {
  const all = { ':method': 'GET', ':scheme': 'http', ':path': '/attack', ':authority': HOST, ...changes }
  return Object.entries(all).filter((entry): entry is [string, string] => entry[1] !== undefined)
}

const headers = (stream: number, fields: Fields, flags = ENDS) => frame(TYPE.headers, flags, stream, block(fields))
const data = (stream: number, text: string, flags = END_STREAM) => frame(TYPE.data, flags, stream, Buffer.from(text))
const canary = (stream: number, host = HOST) => headers(stream, pseudo({ ':path': '/canary', ':authority': host }))

async function startHttp2Edge(onPeer?: (peer: RawPeer) => void) {
  const edge = await startEdge(onPeer)
  const caller = await edge.call()
  caller.send(HELLO)
  return { ...edge, caller }
}

const PROTOCOL_ERROR = 1
const REFUSED_STREAM = 7

/** Refused with a status or a reset; nothing of it reached an upstream; the canaries behind it fare as they should. */
async function refused(frames: Buffer | Buffer[], status?: number): Promise<Outcome> {
  const { upstream, others, caller, call, othersUnhurt } = await startHttp2Edge()
  caller.send(Buffer.concat([[frames].flat(), canary(3)].flat()))
  const outcome = await outcomeOf(caller, 1)
  if (status !== undefined) expect(outcome.status).toBe(status)
  else if (outcome.status !== undefined) expect(outcome.status).toBe(400)
  else expect([outcome.reset, outcome.goaway]).toContain(PROTOCOL_ERROR)
  // On the same connection: served, unless the session has ended because of it.
  const behind = await outcomeOf(caller, 3)
  if (behind.status !== undefined) expect(behind).toMatchObject({ status: 200, body: 'answer to /canary' })
  expect(others.text).toBe('')
  await othersUnhurt()
  const other = await call()
  other.send(Buffer.concat([HELLO, canary(1)]))
  expect(await outcomeOf(other, 1)).toEqual({ status: 200, body: 'answer to /canary' })
  expect(requestLines(upstream.text)).toEqual(requestLines(upstream.text).map(() => 'GET /canary'))
  return outcome
}

const requestLines = (text: string) => [...text.matchAll(/^(\S+ \S+) HTTP\/1\.1\r$/gm)].map(([, line]) => line)

describe('H4 on the way to HTTP/1.1', () => {
  test.each<[string, Fields]>([
    ['transfer-encoding', [['transfer-encoding', 'chunked']]],
    ['connection', [['connection', 'x']]],
    ['keep-alive', [['keep-alive', 'timeout=9']]],
    ['proxy-connection', [['proxy-connection', 'keep-alive']]],
    ['upgrade', [['upgrade', 'websocket']]],
    ['te other than trailers', [['te', 'gzip']]],
    ['upper case in a name', [['Transfer-Encoding', 'chunked']]],
    ['CR and LF in a value', [['x', 'y\r\nz: w']]],
    ['LF in a value', [['x', 'y\nz: w']]],
    ['CR in a value', [['x', 'y\rz']]],
    ['NUL in a value', [['x', 'y\0z']]],
    ['CR and LF in a name', [['x\r\nz', 'w']]],
    ['a request in a name', [[`x: y\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: ${OTHER_HOST}\r\nz`, 'w']]],
    ['a colon in a name', [['x: y', 'z']]],
    ['a space in a name', [['x y', 'z']]],
    ['an empty name', [['', 'x']]],
    [
      'two content-length',
      [
        ['content-length', '0'],
        ['content-length', '0'],
      ],
    ],
    ['content-length with a sign', [['content-length', '+0']]],
    ['content-length that is a list', [['content-length', '0, 0']]],
    ['an unknown pseudo field', [[':path2', '/canary']]],
    [':status', [[':status', '200']]],
    [':protocol without CONNECT', [[':protocol', 'websocket']]],
  ])('H4 %s is not forwarded', async (_name, fields) => {
    await refused(headers(1, [...pseudo(), ...fields]))
  })

  test.each<[string, Fields]>([
    ['no :path', pseudo({ ':path': undefined })],
    ['an empty :path', pseudo({ ':path': '' })],
    [':path without a slash', pseudo({ ':path': 'attack' })],
    [':path with a space', pseudo({ ':path': '/attack HTTP/1.1' })],
    [':path with CR and LF', pseudo({ ':path': '/attack HTTP/1.1\r\nx: y' })],
    [':path with NUL', pseudo({ ':path': '/att\0ack' })],
    [':path with a tab', pseudo({ ':path': '/att\tack' })],
    [':path with a fragment', pseudo({ ':path': '/attack#x' })],
    [':path twice', [...pseudo(), [':path', '/canary']]],
    ['no :method', pseudo({ ':method': undefined })],
    ['a :method in lower case', pseudo({ ':method': 'delete' })],
    ['a :method with a space', pseudo({ ':method': 'GET /x' })],
    ['a :method with CR and LF', pseudo({ ':method': 'GET /x HTTP/1.1\r\nHost: a\r\n\r\nGET' })],
    ['a :method twice', [...pseudo(), [':method', 'POST']]],
    ['no :scheme', pseudo({ ':scheme': undefined })],
    [':authority with an escape', pseudo({ ':authority': `%61${HOST.slice(1)}` })],
    [':authority with a list', pseudo({ ':authority': `${HOST},b` })],
    [':authority with a port that cannot be', pseudo({ ':authority': `${HOST}:65536` })],
    ['host with a port that cannot be', [...pseudo({ ':authority': undefined }), ['host', `${HOST}:65536`]]],
    ['a pseudo field behind others', [['x', 'y'], ...pseudo()]],
  ])('H4 %s is not forwarded', async (_name, fields) => {
    await refused(headers(1, fields))
  })

  test.each<[string, string, string[]]>([
    ['less data than content-length', '10', ['abc']],
    ['more data than content-length', '3', ['abcdef']],
    ['more data in a later frame', '3', ['abc', `GET /canary HTTP/1.1\r\nHost: ${OTHER_HOST}\r\n\r\n`]],
    ['data behind a content-length of 0', '0', ['abc']],
  ])('H4 %s: the request is cut, and its rest is no request', async (_name, length, parts) => {
    const { upstream, caller, othersUnhurt } = await startHttp2Edge(peer => peer.socket.resume())
    const fields: Fields = [...pseudo({ ':method': 'POST' }), ['content-length', length]]
    const last = parts.length - 1
    const frames = parts.map((part, i) => data(1, part, i === last ? END_STREAM : 0))
    caller.send(Buffer.concat([headers(1, fields, END_HEADERS), ...frames]))
    const outcome = await outcomeOf(caller, 1)
    expect(outcome.status ?? 400).toBe(400)
    // What reached the upstream is not a whole request, and its connection has ended.
    for (const peer of upstream.peers) {
      const text = await peer.end()
      expect(text.split('\r\n\r\n')[1] ?? '').not.toHaveLength(Number(length) || 1)
      expect(requestLines(text)).toEqual(['POST /attack'])
    }
    await othersUnhurt()
  })

  test('H4 a content-length without a body is not forwarded', async () => {
    await refused(headers(1, [...pseudo({ ':method': 'POST' }), ['content-length', '5']]))
  })
})

const MAX_CONCURRENT_STREAMS = 3
const hundred = Array.from({ length: 100 }, (_, i) => 2 * i + 1)

/** The settings in the server's first frame. */
async function settingsOf(peer: RawPeer): Promise<Map<number, number>> {
  const frames = () => framesOf(Buffer.from(peer.text, 'latin1'))
  await peer.until(() => frames().length > 0)
  const { payload } = frames()[0]!
  const settings = new Map<number, number>()
  for (let at = 0; at < payload.length; at += 6) settings.set(payload.readUInt16BE(at), payload.readUInt32BE(at + 2))
  return settings
}

describe('H5 streams and trailers', () => {
  test('H5 100 streams at once are announced and served', async () => {
    const held = Promise.withResolvers<void>()
    const answerFromNowOn = held.resolve
    const { upstream, caller } = await startHttp2Edge(peer => {
      peer.socket.pause()
      void held.promise.then(() => {
        answering(peer)
        peer.socket.resume()
      })
    })
    await settingsOf(caller).then(settings => expect(settings.get(MAX_CONCURRENT_STREAMS)).toBe(100))
    caller.send(Buffer.concat(hundred.map(id => headers(id, pseudo()))))
    // The answer to a ping shows that all of them were accepted.
    caller.send(frame(TYPE.ping, 0, 0, Buffer.from('12345678')))
    await caller.saying('12345678')
    answerFromNowOn()
    for (const id of hundred) expect(await outcomeOf(caller, id)).toEqual({ status: 200, body: 'answer to /attack' })
    expect(requestLines(upstream.text)).toHaveLength(100)
  })

  test('H5 one more is refused, and may be sent again', async () => {
    const { upstream, caller, othersUnhurt } = await startHttp2Edge(peer => peer.socket.resume())
    await settingsOf(caller)
    caller.send(Buffer.concat([...hundred, 201].map(id => headers(id, pseudo()))))
    expect(await outcomeOf(caller, 201)).toEqual({ body: '', reset: REFUSED_STREAM })
    expect(requestLines(upstream.text).length).toBeLessThanOrEqual(100)
    await othersUnhurt()
  })

  test('H5 trailers never merge into the head, in either direction', async () => {
    const answer =
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-after\r\n\r\n2\r\nok\r\n0\r\nx-after: 1\r\ncontent-length: 9\r\n\r\n'
    const { upstream, caller } = await startHttp2Edge(answeringWith(answer, /0\r\n.*\r\n\r\n$/s))
    const trailers: Fields = [
      ['x-late', '1'],
      ['host', OTHER_HOST],
      ['content-length', '3'],
      ['x-forwarded-for', '6.6.6.6'],
      ['expect', '100-continue'],
    ]
    caller.send(
      Buffer.concat([headers(1, pseudo({ ':method': 'POST' }), END_HEADERS), data(1, 'abc', 0), headers(1, trailers)]),
    )
    expect(await outcomeOf(caller, 1)).toMatchObject({ status: 200, body: 'ok' })
    const [head, ...rest] = upstream.text.split('\r\n\r\n')
    expect(head).not.toMatch(/x-late|6\.6\.6\.6|^content-length/im)
    expect(head).toContain(`host: ${HOST}`)
    expect(rest.join('\r\n\r\n')).toMatch(/^3\r\nabc\r\n0\r\nx-late: 1\r\n/)
    expect(rest.join('\r\n\r\n')).not.toMatch(/6\.6\.6\.6|content-length|host:/)
    const heads = framesOf(Buffer.from(caller.text, 'latin1')).filter(
      one => one.stream === 1 && one.type === TYPE.headers,
    )
    expect(heads).toHaveLength(2)
    expect(heads[1]!.flags & END_STREAM).toBe(END_STREAM)
  })
})

describe('E4 over HTTP/2', () => {
  test.each([401, 413, 502])(
    'E4 over HTTP/2: after an early %i the rest of the body never becomes a request',
    async status => {
      const { upstream, caller, othersUnhurt } = await startHttp2Edge(
        answeringWith(`HTTP/1.1 ${status} No\r\nContent-Length: 2\r\n\r\nno`),
      )
      const rest = `GET /canary HTTP/1.1\r\nHost: ${OTHER_HOST}\r\n\r\n`
      const fields: Fields = [...pseudo({ ':method': 'POST' }), ['content-length', String(rest.length + 10)]]
      caller.send(Buffer.concat([headers(1, fields, END_HEADERS), data(1, '0123456789', 0)]))
      expect((await outcomeOf(caller, 1)).status).toBe(status)
      caller.send(Buffer.concat([data(1, rest), canary(3)]))
      expect(await outcomeOf(caller, 3)).toMatchObject({ status: 200, body: 'answer to /canary' })
      expect(upstream.peers.map(peer => requestLines(peer.text))).toEqual([['POST /attack'], ['GET /canary']])
      await othersUnhurt()
    },
  )
})

describe('E5, E6, E7 over HTTP/2', () => {
  const connect = (changes: Record<string, string | undefined> = {}, ...more: Fields): Fields => [
    ...pseudo({ ':method': 'CONNECT', ':protocol': 'websocket', ...changes }),
    ['sec-websocket-version', '13'],
    ...more,
  ]

  test('E5 over HTTP/2: bytes behind the head wait for the 101', async () => {
    const { upstream, caller } = await startHttp2Edge(peer => {
      peer.socket.once('data', () => {
        expect(peer.text).toMatch(/\r\n\r\n$/)
        const key = /^sec-websocket-key: (.*)\r$/m.exec(peer.text)![1]!
        const fields = `Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ${webSocketAccept(key)}\r\n`
        peer.send(`HTTP/1.1 101 X\r\n${fields}\r\n`)
      })
    })
    caller.send(Buffer.concat([headers(1, connect(), END_HEADERS), data(1, 'EARLY', 0)]))
    const peer = upstream.peers[0] ?? (await upstream.next())
    await peer.saying('EARLY')
  })

  test('E5 over HTTP/2: and are discarded on any other answer', async () => {
    const { upstream, caller } = await startHttp2Edge(answeringWith('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno'))
    caller.send(Buffer.concat([headers(1, connect(), END_HEADERS), data(1, 'EARLY', 0)]))
    // On an extended CONNECT, a 200 would accept it.
    expect((await outcomeOf(caller, 1)).status).not.toBe(200)
    caller.send(canary(3))
    expect(await outcomeOf(caller, 3)).toMatchObject({ status: 200 })
    expect(upstream.text).not.toContain('EARLY')
  })

  test.each<[string, Fields]>([
    ['another protocol', connect({ ':protocol': 'connect-udp' })],
    ['h2c as a protocol', connect({ ':protocol': 'h2c' })],
    ['version 8', [...pseudo({ ':method': 'CONNECT', ':protocol': 'websocket' }), ['sec-websocket-version', '8']]],
    ['no version', pseudo({ ':method': 'CONNECT', ':protocol': 'websocket' })],
  ])('E6 over HTTP/2: %s is refused', async (_name, fields) => {
    await refused(headers(1, fields), 405)
  })

  test.each([
    ['to a plain request', pseudo(), 'Connection: upgrade\r\nUpgrade: websocket\r\n'],
    ['with a wrong accept', connect(), 'Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n'],
    ['to h2c', connect(), 'Connection: upgrade\r\nUpgrade: h2c\r\n'],
    ['without headers', connect(), ''],
  ])('E7 over HTTP/2: a 101 %s becomes 502', async (_name, fields, answer) => {
    const { caller, upstream } = await startHttp2Edge(answeringWith(`HTTP/1.1 101 X\r\n${answer}\r\nstolen`))
    const isUpgrade = fields.some(([name]) => name === ':protocol')
    caller.send(headers(1, fields, isUpgrade ? END_HEADERS : ENDS))
    const outcome = await outcomeOf(caller, 1)
    expect(outcome.status).toBe(502)
    expect(outcome.body).not.toContain('stolen')
    await upstream.peers[0]!.end()
  })
})

test.each(['200-ok', '100-continue, 100-continue', 'x'.repeat(200)])(
  'E8 over HTTP/2: expect: %s changes nothing',
  async value => {
    const { upstream, caller } = await startHttp2Edge()
    const fields: Fields = [...pseudo({ ':method': 'POST' }), ['expect', value], ['content-length', '5']]
    caller.send(Buffer.concat([headers(1, fields, END_HEADERS), data(1, 'abcde'), canary(3)]))
    expect(await outcomeOf(caller, 1)).toMatchObject({ status: 200, body: 'answer to /attack' })
    expect(await outcomeOf(caller, 3)).toMatchObject({ status: 200, body: 'answer to /canary' })
    expect(upstream.text).not.toContain('expect')
  },
)

describe('E9 over HTTP/2: exactly one host', () => {
  test.each<[string, Fields]>([
    ['none', pseudo({ ':authority': undefined })],
    ['an empty one', pseudo({ ':authority': '' })],
    [':authority and another host', [...pseudo(), ['host', OTHER_HOST]]],
    ['two hosts', [...pseudo({ ':authority': undefined }), ['host', HOST], ['host', OTHER_HOST]]],
    ['the same twice', [...pseudo({ ':authority': undefined }), ['host', HOST], ['host', HOST]]],
    [':authority twice', [...pseudo(), [':authority', OTHER_HOST]]],
    ['user info', pseudo({ ':authority': `x@${HOST}` })],
    ['a path', pseudo({ ':authority': `${HOST}/x` })],
    ['a space', pseudo({ ':authority': `${HOST} x` })],
    ['CR and LF', pseudo({ ':authority': `${HOST}\r\nx: y` })],
    ['too long', pseudo({ ':authority': 'a'.repeat(300) })],
  ])('E9 over HTTP/2: %s', async (_name, fields) => {
    await refused(headers(1, fields))
  })

  test('E9 over HTTP/2: a host that agrees with the authority is accepted', async () => {
    const { upstream, caller } = await startHttp2Edge()
    caller.send(headers(1, [...pseudo(), ['host', HOST]]))
    expect((await outcomeOf(caller, 1)).status).toBe(200)
    expect(upstream.text.match(/^host: /gm)).toHaveLength(1)
  })
})

describe('E10 over HTTP/2: methods and forms that are not forwarded', () => {
  test.each<[string, Fields, number | undefined]>([
    ['CONNECT', pseudo({ ':method': 'CONNECT', ':scheme': undefined, ':path': undefined }), 405],
    ['TRACE', pseudo({ ':method': 'TRACE' }), 405],
    ['PRI', pseudo({ ':method': 'PRI' }), 405],
    ['asterisk form', pseudo({ ':path': '*' }), undefined],
    ['absolute form', pseudo({ ':path': `http://${OTHER_HOST}/attack` }), undefined],
  ])('E10 over HTTP/2: %s', async (_name, fields, status) => {
    await refused(headers(1, fields), status)
  })
})

test.each<[string, Fields]>([
  ['of the server', pseudo({ ':method': 'OPTIONS', ':path': '*' })],
  ['with no hop to go', [...pseudo({ ':method': 'OPTIONS' }), ['max-forwards', '0']]],
])('E10 over HTTP/2: OPTIONS %s is answered here', async (_name, fields) => {
  const { upstream, caller } = await startHttp2Edge()
  caller.send(headers(1, fields))
  expect((await outcomeOf(caller, 1)).status).toBe(204)
  expect(upstream.text).toBe('')
})

test.each(['transfer_encoding', 'transfer.encoding', 'content_length', 'proxy_authorization'])(
  'H4: %s reaches no upstream',
  async name => {
    const { upstream, caller } = await startHttp2Edge()
    caller.send(headers(1, [...pseudo(), [name, 'chunked']]))
    expect((await outcomeOf(caller, 1)).status).toBe(200)
    expect(upstream.text.toLowerCase()).not.toContain(name)
  },
)

describe('E11 over HTTP/2: sizes', () => {
  const many = (count: number): Fields => Array.from({ length: count }, () => ['x', 'y'])
  test.each<[string, Fields, number]>([
    ['101 fields', [...pseudo(), ...many(102)], 431],
    ['a head over 16 KiB', [...pseudo(), ['x', 'y'.repeat(15_000)], ['z', 'y'.repeat(1_500)]], 431],
    ['cookies that are over 16 KiB together', [...pseudo(), ...cookies(60, 300)], 431],
    ['a URI over 8 KiB', pseudo({ ':path': `/${'a'.repeat(8192)}` }), 414],
  ])('E11 over HTTP/2: %s', async (_name, fields, status) => {
    await refused(inPieces(1, fields), status)
  })

  test('E11 over HTTP/2: 100 fields, 8 KiB of URI and names such as __proto__ pass', async () => {
    const { upstream, caller } = await startHttp2Edge()
    const names: Fields = [['__proto__', 'a'], ['constructor', 'b'], ['hasownproperty', 'c'], ...many(90)]
    caller.send(inPieces(1, [...pseudo({ ':path': `/${'a'.repeat(8191)}` }), ...names]))
    expect((await outcomeOf(caller, 1)).status).toBe(200)
    expect(upstream.text).toContain('__proto__: a\r\nconstructor: b\r\nhasownproperty: c\r\n')
    expect(upstream.text.match(/x: y\r\n/g)).toHaveLength(90)
  })

  test('E11 over HTTP/2: cookies count as the one field that they are over HTTP/1.1', async () => {
    const { upstream, caller } = await startHttp2Edge()
    caller.send(inPieces(1, [...pseudo(), ...cookies(250, 10), ...many(90)]))
    expect((await outcomeOf(caller, 1)).status).toBe(200)
    expect(upstream.text.match(/cookie: .*\r\n/g)).toHaveLength(1)
  })
})

function cookies(count: number, bytes: number): Fields {
  return Array.from({ length: count }, (_, i) => ['cookie', `c${i}=${'x'.repeat(bytes)}`] as const)
}

/** A block as HEADERS and CONTINUATION frames of at most 16,384 bytes. */
function inPieces(stream: number, fields: Fields): Buffer {
  const whole = block(fields)
  const pieces: Buffer[] = []
  for (let at = 0; at < whole.length; at += 16_384) {
    const piece = whole.subarray(at, at + 16_384)
    const flags = (at === 0 ? END_STREAM : 0) | (at + 16_384 >= whole.length ? END_HEADERS : 0)
    pieces.push(frame(at === 0 ? TYPE.headers : TYPE.continuation, flags, stream, piece))
  }
  return Buffer.concat(pieces)
}

describe('E12, E13 over HTTP/2: responses', () => {
  test.each([
    ['both lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc'],
    ['33 informational ones', 'HTTP/1.1 103 X\r\n\r\n'.repeat(33)],
    ['CR in a header', 'HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 0\r\n\r\n'],
    ['a status of 999', 'HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n'],
    ['no HTTP', 'SSH-2.0-OpenSSH\r\n\r\n'],
  ])('E12 over HTTP/2: %s: 502, and that connection is not used again', async (_name, answer) => {
    const { upstream, caller } = await startHttp2Edge(answeringWith(answer))
    caller.send(headers(1, pseudo()))
    // Informational heads count, too.
    const outcome = await outcomeOf(caller, 1)
    expect(finalStatus(caller, 1)).toBe(502)
    expect(outcome.body).toContain('upstream-broken')
    caller.send(canary(3))
    expect(await outcomeOf(caller, 3)).toMatchObject({ status: 200, body: 'answer to /canary' })
    expect(upstream.peers).toHaveLength(2)
  })

  test.each([
    ['extra bytes', 'GET', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'],
    ['HEAD with a body', 'HEAD', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n'],
    ['204 with a body', 'GET', 'HTTP/1.1 204 No Content\r\n\r\n'],
    ['304 with a body', 'GET', 'HTTP/1.1 304 Not Modified\r\nContent-Length: 20\r\n\r\n'],
  ])('E13 over HTTP/2: %s does not poison the next response', async (_name, method, answer) => {
    const poison = 'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison'
    const { upstream, caller } = await startHttp2Edge(answeringWith(answer + poison))
    caller.send(headers(1, pseudo({ ':method': method })))
    await outcomeOf(caller, 1)
    caller.send(canary(3))
    expect(await outcomeOf(caller, 3)).toMatchObject({ status: 200, body: 'answer to /canary' })
    expect(upstream.peers).toHaveLength(2)
    expect(caller.text).not.toContain('poison')
  })
})

function finalStatus(peer: RawPeer, stream: number): number {
  const heads = framesOf(Buffer.from(peer.text, 'latin1')).filter(
    one => one.stream === stream && one.type === TYPE.headers,
  )
  return statusOf(heads.at(-1)!.payload)
}

test.each<[string, Fields]>([
  ['a host of nobody', pseudo({ ':authority': '<script>.example.com', ':path': '/<script>' })],
  ['a bad path', pseudo({ ':path': '<script>' })],
  ['a method', pseudo({ ':method': '<script>' })],
])('E14 over HTTP/2: %s does not appear in the error', async (_name, fields) => {
  const { caller } = await startHttp2Edge()
  caller.send(headers(1, [...fields, ['x', '<script>']]))
  expect((await outcomeOf(caller, 1)).body).not.toContain('<')
})

test('E14 over HTTP/2: the canary recognises an answer of our own', async () => {
  const { caller } = await startHttp2Edge(answering)
  caller.send(headers(1, pseudo({ ':authority': 'nobody.example.com' })))
  expect(await outcomeOf(caller, 1)).toMatchObject({ status: 404, body: expect.stringContaining('unknown-host') })
})
