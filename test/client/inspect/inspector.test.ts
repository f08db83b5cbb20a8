import { createHash } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { brotliCompressSync, constants, deflateRawSync, gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import type { InspectedDetail, ReplayOptions } from '../../../client/index.ts'
import { RingInspector } from '../../../client/inspect/inspector.ts'
import { RING_BYTES, RING_EXCHANGES } from '../../../client/inspect/ring.ts'
import { SallyportError } from '../../../protocol/base/errors.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import type { Handler, HeaderList, HttpRequest, RequestSink, ResponseSink } from '../../../protocol/exchange.ts'
import { record } from '../../../protocol/http/record.ts'
import { shieldedTarget } from '../../../protocol/shield.ts'
import { recordingLogger } from '../../router/support.ts'
import { randomOf } from '../../support/random.ts'

const CANARY = 'c4n4ry-S3cret-value'
const JWT = `eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.${'s'.repeat(43)}`

/** No work of an inspector takes time here, however busy the machine is. */
const standing = () => 0

function requestOf(more: Partial<HttpRequest> = {}): HttpRequest {
  return {
    ...{ method: 'GET', authority: 'demo.example.com', path: '/', headers: [], bodyBytes: 0, upgrade: false },
    ...{ peerAddress: '127.0.0.1', encrypted: true, requestId: 'r1', runtime: 'demo', session: 's1' },
    ...{ caller: { address: '192.0.2.1', scheme: 'https', host: 'demo.example.com' } as const, exchangeId: undefined },
    ...more,
  }
}

interface Answer {
  readonly status?: number
  readonly headers?: HeaderList
  readonly body?: Uint8Array | string
}

/** The caller's end: it consumes everything. */
class CallerEnd implements ResponseSink {
  body = Buffer.alloc(0)
  credit = 0
  error: SallyportError | undefined
  sink: RequestSink | undefined

  responseInformational(): void {}
  responseHead(): void {}
  responseData(chunk: Uint8Array): void {
    this.body = Buffer.concat([this.body, chunk])
  }
  responseEnd(): void {}
  responseAbort(error: SallyportError): void {
    this.error = error
  }
  requestConsumed(bytes: number): void {
    this.credit += bytes
  }
}

/** It keeps nothing of it. */
class CarelessEnd extends CallerEnd {
  override responseData(): void {}
}

/** It never answers. */
class SilentTarget implements RequestSink {
  requestData(): void {}
  requestEnd(): void {}
  requestAbort(): void {}
  responseConsumed(): void {}
}

function bytesOf(body: Uint8Array | string): Buffer {
  return Buffer.from(body as string)
}

/** A target that answers each request once it is complete, and remembers what it received. */
function ground(mode: 'heads' | 'bodies' = 'bodies', answer: Answer = {}, now = standing) {
  const got: { request: HttpRequest; body: string }[] = []
  const target: Handler = (request, response) => {
    const body: Uint8Array[] = []
    return {
      requestData(chunk) {
        body.push(chunk)
        response.requestConsumed(chunk.length)
      },
      requestEnd() {
        got.push({ request, body: Buffer.concat(body).toString('latin1') })
        response.responseHead({ status: answer.status ?? 200, headers: [...(answer.headers ?? [])], bodyBytes: -1 })
        const content = bytesOf(answer.body ?? '')
        if (content.length > 0) response.responseData(content)
        response.responseEnd([])
      },
      requestAbort() {},
      responseConsumed() {},
    }
  }
  const inspector = new RingInspector(mode, noLogger, now)
  const handler = inspector.layer(target)
  const send = (request: Partial<HttpRequest> = {}, body: Uint8Array | string = '', pieces = 1): InspectedDetail => {
    const content = bytesOf(body)
    const sink = handler(requestOf({ bodyBytes: content.length, ...request }), new CallerEnd())
    const size = Math.max(1, Math.ceil(content.length / pieces))
    for (let at = 0; at < content.length; at += size) sink.requestData(content.subarray(at, at + size))
    sink.requestEnd([])
    return inspector.get(inspector.list().at(-1)!.id)!
  }
  return { inspector, handler, got, send }
}

const json = ['content-type', 'application/json']
const form = ['content-type', 'application/x-www-form-urlencoded']

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

/** Memory in use when nothing more can be collected. */
function usedBytes(): number {
  collect()
  collect()
  const { arrayBuffers, heapUsed } = process.memoryUsage()
  return arrayBuffers + heapUsed
}

/** A WebSocket frame; a client's is masked. */
function frame(text: string, masked: boolean, first = 0x81): Buffer {
  const payload = Buffer.from(text, 'latin1')
  const head = payload.length < 126 ? [payload.length] : [126, payload.length >> 8, payload.length & 0xff]
  if (!masked) return Buffer.concat([Buffer.from([first, ...head]), payload])
  const mask = [1, 2, 3, 4]
  return Buffer.concat([
    Buffer.from([first, head[0]! | 0x80, ...head.slice(1), ...mask]),
    payload.map((byte, at) => byte ^ mask[at & 3]!),
  ])
}

describe('a secret is never shown', () => {
  const places: Record<string, { headers?: HeaderList; path?: string; body?: string | Uint8Array }> = {
    'in authorization': { headers: ['authorization', `Bearer ${CANARY}`] },
    'in basic credentials': { headers: ['authorization', `Basic ${CANARY}`] },
    'in authorization without a scheme': { headers: ['authorization', CANARY] },
    'in a cookie': { headers: ['cookie', `a=${CANARY}; b=2`] },
    'in set-cookie': { headers: ['set-cookie', `sid=${CANARY}; Path=/`] },
    'in x-access-token': { headers: ['x-access-token', CANARY] },
    'in x-gitlab-token': { headers: ['x-gitlab-token', CANARY] },
    'in a field that ends in -token': { headers: ['x-my-own-token', CANARY] },
    'in a field that ends in -secret': { headers: ['x-my-secret', CANARY] },
    'in x-api-key': { headers: ['x-api-key', CANARY] },
    'in a subprotocol of Kubernetes': {
      headers: ['sec-websocket-protocol', `base64url.bearer.authorization.k8s.io.${CANARY}`],
    },
    'in a URL in a parameter of location': {
      headers: [
        'location',
        `https://idp.example/?redirect_uri=${encodeURIComponent(`https://a.example/?token=${CANARY}`)}`,
      ],
    },
    'in a path in a parameter of referer': { headers: ['referer', `https://a.example/?next=/b?token=${CANARY}`] },
    'in a URL in a URL in a parameter': {
      path: `/?next=${encodeURIComponent(`/b?next=${encodeURIComponent(`/c?code=${CANARY}`)}`)}`,
    },
    'in a URL in a parameter of a URL in JSON': {
      headers: json,
      body: JSON.stringify({ url: `https://a.example/?next=${encodeURIComponent(`/b?code=${CANARY}`)}` }),
    },
    'after an @ in the password of a URL': { headers: ['referer', `https://user:p@${CANARY}@a.example/`] },
    'in a part whose file name comes first': {
      headers: ['content-type', 'multipart/form-data; boundary=b'],
      body: `--b\r\ncontent-disposition: form-data; filename="name=x"; name="token"\r\n\r\n${CANARY}\r\n--b--`,
    },
    'in the query of referer': { headers: ['referer', `https://a.example/b?x=1&access_token=${CANARY}`] },
    'as a user in a URL': { headers: ['location', `https://user:${CANARY}@a.example/`] },
    'as a JWT in any field': { headers: ['x-anything', `see ${JWT} there`] },
    'in the path, as a JWT': { path: `/login/${JWT}/x` },
    'in the query': { path: `/a?b=1&token=${CANARY}&c=2` },
    'in the query, behind a semicolon in it': { path: `/a?b=1;token=x;${CANARY}&c=2` },
    'in the query, behind a semicolon, and with =': { path: `/a?token=x;${CANARY}=;y=1` },
    'in a form, behind a semicolon in it': { headers: form, body: `a=1&password=x;${CANARY}` },
    'in the query of referer, behind signs in it': { headers: ['referer', `https://a.example/b?token=x,y;${CANARY};`] },
    'in a path in the query, behind a semicolon': { path: `/a?next=/cb?token=x;${CANARY}` },
    'in an encoded path in the query, behind a semicolon': { path: `/a?next=%2Fcb%3Ftoken%3Dx;b;${CANARY}` },
    'in a path in the query of referer, behind signs': {
      headers: ['referer', `https://a.example/a?next=/cb?token=x;,${CANARY}`],
    },
    'in a path in a form, behind a semicolon': { headers: form, body: `a=1;next=/cb?token=x;${CANARY}&b=2` },
    'in the query, with a space behind its name': { path: `/a?token%20=${CANARY}&+password+=${CANARY}` },
    'in the query of referer, with a space behind its name': {
      headers: ['referer', `https://a.example/b?token+=${CANARY}`],
    },
    'in a path in the query, with a space behind its name': { path: `/a?next=/cb?token%20=${CANARY}` },
    'in JSON, with a space behind its name': { headers: json, body: JSON.stringify({ 'token ': CANARY }) },
    'in a parameter behind an empty one': { headers: ['referer', `https://a.example/b?a=;b=c,;token=${CANARY}`] },
    'in the query, with its name encoded': { path: `/a?to%6ben=${CANARY}` },
    'in a signed URL': { path: `/a?X-Goog-Signature=${CANARY}&sig=${CANARY}&Signature=${CANARY}` },
    'in a URL in the query': { path: `/a?next=${encodeURIComponent(`https://b.example/?code=${CANARY}`)}` },
    'in a URL in the query, encoded twice': {
      path: `/a?next=${encodeURIComponent(encodeURIComponent(`https://b.example/?code=${CANARY}`))}`,
    },
    'in JSON': { headers: json, body: JSON.stringify({ a: 1, password: CANARY }) },
    'in JSON without a content type': { body: JSON.stringify({ access_token: CANARY }) },
    'in JSON, camel case': { headers: json, body: JSON.stringify({ accessToken: CANARY, clientSecret: CANARY }) },
    'in nested JSON': { headers: json, body: JSON.stringify({ a: [{ b: { token: [CANARY, { x: CANARY }] } }] }) },
    'in JSON, with its name escaped': { headers: json, body: `{"pass\\u0077ord" : "${CANARY}"}` },
    'in JSON in JSON': { headers: json, body: JSON.stringify({ a: JSON.stringify({ id_token: `"${CANARY}` }) }) },
    'in JSON in JSON six times': {
      body: Array.from({ length: 6 }).reduce<string>(text => JSON.stringify({ a: text }), `{"token":"\\"${CANARY}"}`),
    },
    'in JSON that ends early': { headers: json, body: `{"a":1,"token":"${CANARY}` },
    'in JSON after an unbalanced quote': {
      headers: ['content-type', 'text/plain'],
      body: `6" of {"token": "${CANARY}"}`,
    },
    'in JSON as UTF-16': { headers: json, body: Buffer.from(JSON.stringify({ token: CANARY }), 'utf16le') },
    'in JSON, compressed': {
      headers: [...json, 'content-encoding', 'gzip'],
      body: gzipSync(JSON.stringify({ token: CANARY })),
    },
    'in JSON, compressed twice': {
      headers: [...json, 'content-encoding', 'gzip, br'],
      body: brotliCompressSync(gzipSync(JSON.stringify({ token: CANARY }))),
    },
    'in a form': { headers: form, body: `a=1&password=${CANARY}` },
    'in a form without a content type': { body: `password=${CANARY}&a=1` },
    'in a form, in brackets': { headers: form, body: `user%5Bpassword%5D=${CANARY}` },
    'in JSON in a form': { headers: form, body: `payload=${encodeURIComponent(JSON.stringify({ token: CANARY }))}` },
    'in a part of a form': {
      headers: ['content-type', 'multipart/form-data; boundary=xx'],
      body: `--xx\r\ncontent-disposition: form-data; name="password"\r\n\r\n${CANARY}\r\n--yy\r\n${CANARY}\r\n--xx--\r\n`,
    },
    'as a JWT in a text': { headers: ['content-type', 'text/plain'], body: `Here: ${JWT}.` },
    'in a fragment': { headers: ['location', `https://a/cb#access_token=${CANARY}&token_type=bearer`] },
    'in a fragment of a URL in JSON': { body: `{"next":"https://a/cb#access_token=${CANARY}"}` },
    'in a fragment of a URL in a query': { path: `/?next=https%3A%2F%2Fa%2Fcb%23access_token%3D${CANARY}` },
    'as a JWT in bytes': { body: Buffer.concat([Buffer.from([0xff, 0xfe, 1]), Buffer.from(JWT)]) },
    'as a JWT that is cut off by the limit': { body: `${'x'.repeat(128 * 1024 - 12)}${JWT}` },
  }

  const secrets = [CANARY, 'eyJhbGci', Buffer.from(CANARY).toString('base64').slice(0, -4), CANARY.slice(0, 8)]
  const shows = (detail: unknown) => {
    const text = JSON.stringify(detail)
    return secrets.filter(secret => text.includes(secret))
  }

  it.each(Object.entries(places))('%s', async (_, { headers = [], path = '/', body = '' }) => {
    const { inspector, send, got } = ground('bodies', { headers, body })
    const seen: unknown[] = []
    inspector.subscribe(exchange => seen.push(exchange))
    const detail = send({ method: 'POST', headers: [...headers], path }, body)
    expect(shows([detail, inspector.list(), seen])).toEqual([])
    // The target still received it, and receives it again.
    const replayed = await inspector.replay(detail.id, { unsafe: true }).catch((error: Error) => error)
    if (detail.request.body?.truncated === true) {
      expect(String(replayed)).toMatch('not kept in full')
      return
    }
    expect(shows(replayed)).toEqual([])
    expect(got[1]!.body).toBe(got[0]!.body)
    expect(got[1]!.request.path).toBe(path)
    for (const text of headers) expect(got[1]!.request.headers).toContain(text)
  })

  it.each(['text', 'deflated'])('in a message of a WebSocket, %s', kind => {
    const inspector = new RingInspector('bodies', noLogger, standing)
    const isDeflated = kind === 'deflated'
    let response: ResponseSink | undefined
    const handler = inspector.layer((_, sink) => {
      response = sink
      return { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
    })
    const sink = handler(requestOf({ upgrade: true }), new CallerEnd())
    const extensions = isDeflated ? ['sec-websocket-extensions', 'permessage-deflate'] : []
    response!.responseHead({ status: 101, headers: extensions, bodyBytes: 0 })
    const text = JSON.stringify({ type: 'connection_init', payload: { token: CANARY } })
    const payload = isDeflated ? deflateRawSync(text, { finishFlush: 2 }).subarray(0, -4).toString('latin1') : text
    // Byte by byte, and in one piece.
    for (const byte of frame(payload, true, isDeflated ? 0xc1 : 0x81)) sink.requestData(Buffer.from([byte]))
    response!.responseData(
      Buffer.concat([frame('{"to', false, 1), frame('', false, 0x89), frame(`ken":"${CANARY}"}`, false, 0x80)]),
    )
    const detail = inspector.get(inspector.list()[0]!.id)!
    expect(shows(detail)).toEqual([])
    expect(detail.messages).toMatchObject([{ direction: 'in' }, { direction: 'out', kind: 'text' }])
    expect(detail.messages[0]?.text).toMatch(
      /^{"type":"connection_init","payload":{"token":"\[redacted:[0-9a-f]{12}\]"}}$/,
    )
  })

  it('in an event', () => {
    const body = `data: {"token":"${CANARY}"}\r\n\r\n: ping\n\ndata: two\n\n`
    const detail = ground('bodies', { headers: ['content-type', 'text/event-stream'], body }).send()
    expect(shows(detail)).toEqual([])
    expect(detail.messages.map(({ text }) => text?.slice(0, 8))).toEqual(['data: {"', ': ping', 'data: tw'])
    expect(detail.response?.body).toBeUndefined()
  })

  it('and equal ones look equal, within a process', () => {
    const { send } = ground()
    const detail = send({ headers: ['authorization', `Bearer ${CANARY}`], path: `/?token=${CANARY}&key=other` })
    const [tag] = /\[redacted:[^\]]+\]/.exec(detail.request.headers[0]![1]) ?? []
    expect(detail.path).toMatch(`token=${tag}&key=[redacted:`)
    expect(detail.path.endsWith(tag!)).toBe(false)
    expect(tag).not.toContain(createHash('sha256').update(CANARY).digest('hex').slice(0, 12))
    expect(ground().send({ path: `/?token=${CANARY}` }).path).not.toContain(tag)
  })

  it('and what is not secret stays byte for byte', () => {
    const body = '{"a": "\u00fc \\u00e9 \u{1f600}", "n": 1.50, "list": [true, null, "\\/"], "token": null}\n'
    const { send } = ground()
    const detail = send({ path: '/a%20b?x=%2F+&y&=z;q', headers: ['accept', '*/*;q=0.8, text/html'] }, body)
    expect(detail.request.body?.text).toBe(body)
    expect(detail.path).toBe('/a%20b?x=%2F+&y&=z;q')
    expect(detail.request.headers).toEqual([['accept', '*/*;q=0.8, text/html']])
  })
})

describe('the ring', () => {
  it('keeps the newest exchanges', () => {
    const { inspector, send } = ground()
    for (let i = 0; i < RING_EXCHANGES + 20; i++) send({ path: `/${i}` })
    const list = inspector.list()
    expect([list.length, list[0]?.path, list.at(-1)?.path]).toEqual([500, '/20', '/519'])
    expect(inspector.stats()).toMatchObject({ exchanges: 500, droppedExchanges: 20 })
  })

  it('keeps no more bytes than its ceiling, by its count and in memory', () => {
    const { inspector, send, got } = ground('bodies', { body: Buffer.alloc(200_000, 'b') })
    const body = Buffer.alloc(300_000, 'a')
    const before = usedBytes()
    // Small pieces, so that each would keep a larger buffer alive.
    for (let i = 0; i < 300; i++) {
      send({ method: 'POST' }, body, i % 3 === 0 ? 3000 : 1)
      got.length = 0
    }
    const after = usedBytes()
    const stats = inspector.stats()
    expect(stats.bytes).toBeLessThanOrEqual(RING_BYTES)
    expect(stats.bytes).toBeGreaterThan(RING_BYTES / 2)
    expect(stats.droppedBytes).toBeGreaterThan(300 * 200_000)
    expect(after - before).toBeLessThan(2 * RING_BYTES)
    const [first] = inspector.list()
    expect(inspector.get(first!.id)?.request.body).toMatchObject({
      bytes: 300_000,
      decodedBytes: 300_000,
      truncated: true,
    })
    expect(inspector.get(first!.id)?.request.body?.text?.length).toBe(128 * 1024)
  })

  it('counts nothing once it is closed, whatever has happened', async () => {
    const random = randomOf(7)
    const { inspector, handler } = ground()
    for (let i = 0; i < 400; i++) {
      const caller = new CallerEnd()
      const size = Math.floor(random() * random() * 100_000)
      const sink = handler(requestOf({ method: 'POST', path: `/${i}?token=${i}` }), caller)
      for (let step = 0; step < 3; step++) sink.requestData(Buffer.alloc(1 + size / 3, `{"token":"${i}"}`))
      if (random() < 0.6) sink.requestEnd([])
      else if (random() < 0.7) sink.requestAbort(new SallyportError('cancelled'))
      const stats = inspector.stats()
      expect(stats.bytes).toBeLessThanOrEqual(RING_BYTES)
      expect(stats.bytes).toBeGreaterThanOrEqual(0)
      if (random() > 0.01) continue
      const { id } = inspector.list()[Math.floor(random() * stats.exchanges)]!
      await inspector.replay(id, { unsafe: true }).catch(() => {})
    }
    inspector.close()
    expect(inspector.stats()).toMatchObject({ exchanges: 0, bytes: 0, replays: 0 })
  })

  it('passes on every byte and all credit, even of exchanges that it has dropped', () => {
    const { inspector, handler, got, send } = ground()
    const caller = new CallerEnd()
    const sink = handler(requestOf({ method: 'POST', path: '/old', bodyBytes: 6 }), caller)
    sink.requestData(Buffer.from('abc'))
    for (let i = 0; i < RING_EXCHANGES; i++) send()
    sink.requestData(Buffer.from('def'))
    sink.requestEnd([])
    expect(got.at(-1)?.body).toBe('abcdef')
    expect(caller.credit).toBe(6)
    expect(inspector.list().some(({ path }) => path === '/old')).toBe(false)
  })

  it('keeps no more memory than its ceiling if text is not latin1', () => {
    const { inspector, send } = ground('bodies', { body: `\u{1f600}${'a'.repeat(131_000)}` })
    const before = usedBytes()
    for (let i = 0; i < 300; i++) send()
    expect(inspector.stats().bytes).toBeGreaterThan(RING_BYTES / 2)
    expect(usedBytes() - before).toBeLessThan(1.2 * RING_BYTES)
  })

  it('counts what it needs to read WebSocket messages, until they end', () => {
    const plain = Buffer.alloc(255 * 1024, 'a')
    const compressed = deflateRawSync(plain, { finishFlush: constants.Z_SYNC_FLUSH }).subarray(0, -4).toString('latin1')
    const inspector = new RingInspector('bodies', noLogger, standing)
    const handler = inspector.layer((_, response) => {
      response.responseHead({
        status: 101,
        headers: ['sec-websocket-extensions', 'permessage-deflate'],
        bodyBytes: -1,
      })
      // The first leaves a window, the second is incomplete.
      response.responseData(frame(compressed, false, 0xc1))
      response.responseData(frame('b'.repeat(40_000), false, 0x01))
      return { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
    })
    const before = usedBytes()
    const sinks = Array.from({ length: 400 }, () => {
      const sink = handler(requestOf({ upgrade: true }), new CarelessEnd())
      sink.requestData(frame(compressed, true, 0xc1))
      sink.requestData(frame('c'.repeat(40_000), true, 0x01))
      return sink
    })
    const { bytes, exchanges } = inspector.stats()
    expect([bytes > RING_BYTES / 2, bytes <= RING_BYTES]).toEqual([true, true])
    const used = usedBytes() - before
    expect(used).toBeLessThan(1.2 * RING_BYTES)
    for (const sink of sinks) sink.requestAbort(new SallyportError('cancelled'))
    expect(inspector.stats().exchanges).toBe(exchanges)
    expect(inspector.stats().bytes).toBeLessThan(exchanges * 4096)
  })

  it('keeps the first 50 messages', () => {
    const body = Array.from({ length: 60 }, (_, i) => `data: ${i}\n\n`).join('')
    const detail = ground('bodies', { headers: ['content-type', 'text/event-stream'], body }).send()
    expect([detail.messages.length, detail.messagesDropped, detail.messages.at(-1)?.text]).toEqual([
      50,
      true,
      'data: 49',
    ])
    expect(detail.bytesOut).toBe(body.length)
    expect(detail.messages.filter(({ truncated }) => truncated)).toEqual([])
  })

  it('marks an event of which only the beginning is kept', () => {
    const body = `data: ${'x'.repeat(100_000)}\n\n`
    const detail = ground('bodies', { headers: ['content-type', 'text/event-stream'], body }).send()
    expect(detail.messages).toMatchObject([{ truncated: true, bytes: body.length - 1 }])
  })

  it('keeps no bodies or messages if it keeps heads only', () => {
    const { send } = ground('heads', { body: 'secret' })
    const detail = send({ method: 'POST' }, 'private')
    expect(detail.request.body).toEqual({ bytes: 7, truncated: true, omitted: 'bodies are not kept' })
    expect(JSON.stringify(detail)).not.toMatch('private')
    expect(detail.replayable).toBe(false)
  })

  it('takes no more than its share of the time: what exceeds it is not shown, and that is stated', async () => {
    let now = 0
    const { inspector, send, got } = ground('bodies', { headers: ['x-answer', CANARY], body: CANARY }, () => now)
    const { redactor } = inspector
    const fields = redactor.fields.bind(redactor)
    redactor.fields = headers => {
      now += 5000
      return fields(headers)
    }
    const request = { method: 'POST', path: `/${CANARY}`, headers: ['x-asked', 'shown'] }
    const first = send(request, CANARY)
    redactor.fields = fields
    expect(first.request.headers).toEqual([['x-asked', 'shown']])
    expect(first.response?.headers).toEqual([['x-answer', '[not shown]']])
    const omitted = { bytes: CANARY.length, truncated: true, omitted: 'the inspector had no time for it' }
    expect([first.path, first.request.body, first.response?.body]).toEqual(['/[not shown]', omitted, omitted])
    expect(JSON.stringify(first)).not.toContain(CANARY)
    expect(inspector.stats().droppedBytes).toBe(2 * CANARY.length)
    const replay = await inspector.replay(first.id, { unsafe: true })
    expect([replay.state, got[1]!.request.path, got[1]!.body]).toEqual(['done', `/${CANARY}`, CANARY])
    // 5 s of work: a second was saved up, and a quarter of 16 s makes up for the rest.
    now += 11_000
    expect(send(request).path).toBe('/[not shown]')
    now += 1
    expect(send(request).path).toBe(`/${CANARY}`)
  })

  it('reads no further messages when it is out of time for them', () => {
    let now = 0
    const inspector = new RingInspector('bodies', noLogger, () => now)
    const handler = inspector.layer((_, response) => {
      response.responseHead({ status: 200, headers: ['content-type', 'text/event-stream'], bodyBytes: -1 })
      response.responseData(Buffer.from('data: one\n\n'))
      const { body } = inspector.redactor
      inspector.redactor.body = function slow(...given) {
        now += 5000
        return body.apply(this, given)
      }
      for (const word of ['two', 'three']) response.responseData(Buffer.from(`data: ${word}\n\n`))
      response.responseEnd([])
      return { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
    })
    handler(requestOf(), new CarelessEnd())
    const { messages, messagesDropped, bytesOut } = inspector.get(inspector.list()[0]!.id)!
    expect(messages.map(({ text }) => text)).toEqual(['data: one', 'data: two'])
    expect([messagesDropped, bytesOut, inspector.stats().droppedBytes]).toEqual([true, 35, 13])
  })

  it('counts what it keeps of a head for replays, however short it is shown', () => {
    const { inspector, send } = ground('heads')
    send({ headers: ['cookie', 'x'.repeat(16_000)] })
    expect(inspector.stats().bytes).toBeGreaterThan(16_000)
  })

  it('reports what does not decode, and counts what does', () => {
    const plain = 'x'.repeat(5000)
    const { send } = ground('bodies', { headers: ['content-encoding', 'gzip'], body: gzipSync(plain) })
    const detail = send({ method: 'POST', headers: ['content-encoding', 'gzip'] }, 'no gzip')
    expect(detail.request.body?.omitted).toBe('it is not gzip, or too long when decoded')
    expect(detail.response?.body).toMatchObject({ bytes: gzipSync(plain).length, decodedBytes: 5000, text: plain })
    const bomb = gzipSync(Buffer.alloc(64 * 1024 * 1024))
    expect(bomb.length).toBeLessThan(128 * 1024)
    expect(send({ method: 'POST', headers: ['content-encoding', 'gzip'] }, bomb).request.body?.omitted).toMatch(
      'too long',
    )
  })

  it('decodes at most four encodings', () => {
    const { send } = ground()
    let body: Buffer = Buffer.from('plain')
    for (let encodings = 1; encodings <= 5; encodings++) {
      body = gzipSync(body)
      const headers = ['content-encoding', Array(encodings).fill('gzip').join(', ')]
      const shown = send({ method: 'POST', headers }, body).request.body
      expect([shown?.text, shown?.omitted]).toEqual(
        encodings <= 4 ? ['plain', undefined] : [undefined, 'it has more than 4 encodings'],
      )
    }
  })

  it.each([
    '\\',
    '"',
    '\\"',
    '"a":',
    `'a':'`,
    '{"',
    ';=',
    ';',
    ',',
    ';token=',
    '?token=;',
    '?a=',
    '%25',
    'eyJ',
    'bearer ',
    'basic ',
    '//a@',
    ' a=',
    "'a",
    '%3D',
    'a: ',
    '://',
    ' ',
    '\n',
  ])('redacts 64 KiB of %j in time that grows only with their number', text => {
    const { send } = ground('bodies')
    const body = text.repeat((64 * 1024) / text.length)
    for (const headers of [[], form, ['content-type', 'multipart/form-data; boundary=b']]) {
      const start = process.threadCpuUsage()
      send({ method: 'POST', headers }, body)
      // A search from each character takes 5 s and more.
      expect(process.threadCpuUsage(start).user).toBeLessThan(2_000_000)
    }
  })

  it('shows what is behind a secret, and the code of an answer of ours, but no other code', () => {
    const { send } = ground('bodies')
    const body = '{"status":502,"code":"upstream-refused"}'
    const detail = send(
      { method: 'POST', path: '/?a=b;c&token=x;y&d=e;f', headers: ['content-type', 'text/plain'] },
      body,
    )
    expect(detail.path).toMatch(/^\/\?a=b;c&token=\[redacted:[0-9a-f]{12}\]&d=e;f$/)
    expect(detail.request.body?.text).toBe(body)
    const other = send({ method: 'POST' }, '{"code":"upstream-refused-1","state":"upstream-refused"}')
    expect(other.request.body?.text).toMatch(/^{"code":"\[redacted:\w+\]","state":"\[redacted:\w+\]"}$/)
  })

  it("shows a target's failure, and where its time went", () => {
    const inspector = new RingInspector('heads', noLogger, standing)
    const handler = inspector.layer((_, response) => {
      response.responseAbort(new SallyportError('upstream-refused'))
      return { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
    })
    handler(
      requestOf({
        attempt: 2,
        headers: ['sallyport-inbox-id', 'm1', 'sallyport-inbox-received', '2020-01-01T00:00:00Z'],
      }),
      new CallerEnd(),
    )
    const [exchange] = inspector.list()
    expect(exchange).toMatchObject({ state: 'done', code: 'upstream-refused', status: 502, attempt: 2, inboxId: 'm1' })
    expect(exchange?.timings.hold).toBeGreaterThan(1e9)
  })

  it('whose target answers first took no longer than its times together', async () => {
    let response: ResponseSink | undefined
    const inspector = new RingInspector('heads', noLogger, standing)
    const handler = inspector.layer((_, sink) => {
      response = sink
      return { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
    })
    const request = handler(requestOf({ bodyBytes: 1 }), new CallerEnd())
    response!.responseHead({ status: 200, headers: [], bodyBytes: 0 })
    await setTimeout(5)
    request.requestData(Buffer.from('x'))
    request.requestEnd([])
    response!.responseEnd([])
    const { send, wait, receive, total } = inspector.list()[0]!.timings
    expect(send).toBeUndefined()
    expect(wait! + receive!).toBeCloseTo(total!, 1)
  })

  it.each<[string, (sink: RequestSink) => void, 'send' | 'wait']>([
    ['an answer', sink => sink.requestEnd([]), 'wait'],
    ['the rest of the request', sink => sink.requestData(Buffer.from('x')), 'send'],
  ])('whose caller leaves while it waits for %s tells where the time went', async (_name, step, long) => {
    const inspector = new RingInspector('heads', noLogger, standing)
    const handler = inspector.layer(() => new SilentTarget())
    const request = handler(requestOf({ bodyBytes: 2 }), new CallerEnd())
    step(request)
    await setTimeout(20)
    request.requestAbort(new SallyportError('cancelled'))
    const { send, wait, receive, total, [long]: longest } = inspector.list()[0]!.timings
    expect(send! + wait!).toBeCloseTo(total!, 1)
    expect(longest).toBeGreaterThan(0)
    expect(receive).toBeUndefined()
  })

  it('holds nothing of the session that it came on, once it is over', async () => {
    const inspector = new RingInspector('heads', noLogger, standing)
    const handler = record(() => {})(inspector.layer(() => new SilentTarget()))
    const begin = (): WeakRef<object> => {
      const caller = new CallerEnd()
      handler(requestOf(), caller).requestAbort(new SallyportError('cancelled'))
      return new WeakRef(caller)
    }
    const caller = begin()
    await setTimeout(0)
    collect()
    expect(caller.deref()).toBeUndefined()
    expect(inspector.list()).toHaveLength(1)
  })

  it.each<[keyof RequestSink, (sink: RequestSink) => void, number, boolean]>([
    ['requestData', sink => sink.requestData(Buffer.from('x')), 0, false],
    ['requestEnd', sink => sink.requestEnd([]), 0, false],
    ['responseConsumed', sink => sink.responseConsumed(1), 200, true],
  ])('shows that the target has failed, if it throws in %s', (name, step, status, cut) => {
    const throwing = () => {
      throw new Error('thrown on purpose')
    }
    const inspector = new RingInspector('bodies', noLogger, standing)
    const target: Handler = (_, response) => {
      if (status > 0) response.responseHead({ status, headers: [], bodyBytes: 1 })
      const sink = { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
      return { ...sink, [name]: throwing }
    }
    const handler = inspector.layer(shieldedTarget(target, noLogger))
    step(handler(requestOf({ bodyBytes: 1 }), new CallerEnd()))
    expect(inspector.list()).toMatchObject([{ state: 'done', code: 'upstream-broken', status: status || 502, cut }])
  })

  it('lets an exchange pass that it fails to keep', () => {
    const { logger, fields } = recordingLogger()
    const inspector = new RingInspector('heads', logger, standing)
    inspector.redactor.fields = () => {
      throw new Error('thrown on purpose')
    }
    const response = new CallerEnd()
    const sink = new SilentTarget()
    expect(inspector.layer(() => sink)(requestOf(), response)).toBe(sink)
    expect([inspector.list(), fields.length]).toEqual([[], 1])
  })

  it('has a bounded number of listeners', () => {
    const { inspector } = ground()
    const [leave] = Array.from({ length: 64 }, () => inspector.subscribe(() => {}))
    expect(() => inspector.subscribe(() => {})).toThrow(expect.objectContaining({ reason: 'overloaded' }))
    leave!()
    inspector.subscribe(() => {})
  })
})

describe('a replay', () => {
  it('is marked, and names the exchange that it repeats', async () => {
    const { inspector, send, got } = ground()
    const { id } = send({ path: '/a?token=x', headers: ['x-request-id', 'r1', 'expect', '100-continue'] })
    const replayed = await inspector.replay(id)
    expect(replayed).toMatchObject({
      state: 'done',
      status: 200,
      replayOf: id,
      path: expect.stringMatching(/^\/a\?token=\[/),
    })
    expect(got[1]?.request).toMatchObject({ path: '/a?token=x', replay: { of: id, edited: false } })
    expect(got[1]?.request.headers).toEqual(['x-request-id', replayed.requestId, 'sallyport-replay', id])
  })

  it('is logged with what was edited, and with nothing else', async () => {
    const { logger, fields } = recordingLogger()
    const inspector = new RingInspector('heads', logger, standing)
    const handler = inspector.layer((_, response) => {
      response.responseHead({ status: 204, headers: [], bodyBytes: 0 })
      response.responseEnd([])
      return { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
    })
    handler(requestOf(), new CallerEnd()).requestEnd([])
    const { id } = inspector.list()[0]!
    const none = { method: undefined, path: undefined, headers: undefined, body: undefined }
    await inspector.replay(id, { edits: none })
    await inspector.replay(id, { edits: { ...none, path: '/new' } })
    expect(fields).toMatchObject([
      { audit: true, replayOf: id, edited: [] },
      { audit: true, replayOf: id, edited: ['path'] },
    ])
  })

  it('applies the edits', async () => {
    const { inspector, send, got } = ground()
    const { id } = send({ method: 'POST', headers: ['x-a', '1', 'x-b', '2'] }, 'old')
    const edits = { method: 'PUT', path: '/new?q', headers: { 'X-A': '3', 'x-b': null }, body: 'n\u00fc' }
    await inspector.replay(id, { edits, unsafe: true })
    expect(got[1]).toMatchObject({
      body: 'n\u00c3\u00bc',
      request: { method: 'PUT', path: '/new?q', replay: { edited: true } },
    })
    expect(got[1]?.request.headers).toEqual(expect.arrayContaining(['x-a', '3', 'content-length', '3']))
    expect(got[1]?.request.headers).not.toContain('x-b')
  })

  const bad: Record<string, ReplayOptions> = {
    'an unsafe method without consent': {},
    'another method in a field': { edits: { method: 'GET', headers: { 'X-HTTP-Method': 'PUT' }, body: '' } },
    'an invalid method': { unsafe: true, edits: { method: 'A B' } },
    CONNECT: { unsafe: true, edits: { method: 'CONNECT' } },
    'a path that names another target': { unsafe: true, edits: { path: 'http://169.254.169.254/' } },
    'a path with a line break': { unsafe: true, edits: { path: '/ HTTP/1.1\r\nx: y' } },
    'a host': { unsafe: true, edits: { headers: { Host: 'other' } } },
    'a length': { unsafe: true, edits: { headers: { 'content-length': '1' } } },
    'a hop-by-hop field': { unsafe: true, edits: { headers: { 'transfer-encoding': 'chunked' } } },
    'a forwarding field': { unsafe: true, edits: { headers: { 'x-forwarded-for': '::1' } } },
    'the mark of a replay': { unsafe: true, edits: { headers: { 'sallyport-replay': 'x' } } },
    'more than 100 fields': {
      unsafe: true,
      edits: { headers: Object.fromEntries(Array.from({ length: 101 }, (_, i) => [`x-${i}`, ''])) },
    },
    'a value with a line break': { unsafe: true, edits: { headers: { 'x-a': 'b\r\nc: d' } } },
    'a body that is too long': { unsafe: true, edits: { body: 'x'.repeat(128 * 1024 + 1) } },
  }
  it.each(Object.entries(bad))('is refused with %s', async (_, options) => {
    const { inspector, send, got } = ground()
    const { id } = send({ method: 'POST' }, 'body')
    await expect(inspector.replay(id, options)).rejects.toThrow(TypeError)
    expect(got.length).toBe(1)
  })

  it('is refused of an exchange that is not there', async () => {
    const { inspector } = ground()
    await expect(inspector.replay('x')).rejects.toThrow(new TypeError('there is no exchange "x"'))
  })

  it('is paced', async () => {
    const { inspector, send } = ground()
    const { id } = send()
    for (let i = 0; i < 5; i++) await inspector.replay(id)
    await expect(inspector.replay(id)).rejects.toMatchObject({ reason: 'overloaded' })
  })

  it('ends with its client', async () => {
    const inspector = new RingInspector('heads', noLogger, standing)
    let aborted = 0
    let answers = true
    const handler = inspector.layer((_, response) => {
      if (answers) response.responseEnd([])
      return { requestData() {}, requestEnd() {}, requestAbort: () => void aborted++, responseConsumed() {} }
    })
    handler(requestOf(), new CallerEnd()).requestEnd([])
    answers = false
    const replay = inspector.replay(inspector.list()[0]!.id)
    expect(inspector.stats().replays).toBe(1)
    inspector.close()
    await replay
    expect([aborted, inspector.stats().replays]).toEqual([1, 0])
  })
})
