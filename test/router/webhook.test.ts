/** Routes that accept only signed webhooks: what their upstream sees of a forgery, and what it receives of the rest. */
import { createHash, createHmac, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { createServer as createHttp2 } from 'node:http2'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Transform } from 'node:stream'
import fc from 'fast-check'
import { afterAll, afterEach, describe, expect, it } from 'vitest'
import { SallyportError } from '../../protocol/base/errors.ts'
import { discarding } from '../../protocol/base/guard.ts'
import {
  BODY_UNKNOWN,
  type Handler,
  type HttpRequest,
  type RequestSink,
  type ResponseSink,
} from '../../protocol/exchange.ts'
import { getHeader } from '../../protocol/http/headers.ts'
import { readSecret } from '../../protocol/webhook/secret.ts'
import { createSigner } from '../../protocol/webhook/sign.ts'
import { createVerifier } from '../../protocol/webhook/verify.ts'
import { resigning } from '../../router/handler/resigned.ts'
import { BodyRoom, TAILS_BYTES } from '../../router/handler/room.ts'
import { verifying } from '../../router/handler/verified.ts'
import { createRouter, type Route, type RouterService, serveRouter } from '../../router/index.ts'
import { type Ends, EXCHANGE, ends } from '../support/ends.ts'
import { OK, RawUpstream, rawCall, recordingLogger } from './support.ts'

const KIB = 1024
const MIB = 1024 * KIB
const folder = mkdtempSync(join(tmpdir(), 'sallyport-verified-'))
afterAll(() => rmSync(folder, { recursive: true }))
const SECRET = join(folder, 'secret')
writeFileSync(SECRET, 's3cret\n')

const stops: (() => unknown)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop()
})

const sign = (body: string | Buffer, secret = 's3cret') =>
  `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`

async function serve(target: string, more: Partial<Route> = {}): Promise<RouterService> {
  const verify = { scheme: 'github' as const, secrets: [{ file: SECRET }] }
  const service = await serveRouter({
    port: 0,
    routes: { routes: [{ name: 'a', match: {}, target, verify, ...more }] },
  })
  stops.push(() => service.close({ graceMs: 0 }))
  return service
}

async function raw(onData?: Parameters<typeof RawUpstream.start>[0]): Promise<RawUpstream> {
  const upstream = await RawUpstream.start(onData)
  stops.push(() => upstream.stop())
  return upstream
}

function post(body: string | Buffer, signature: string | undefined, ...fields: string[]): Buffer {
  const head = [
    'POST /hook HTTP/1.1',
    'host: a',
    'connection: close',
    ...(signature === undefined ? [] : [`x-hub-signature-256: ${signature}`]),
    ...(fields.some(field => field.startsWith('transfer-encoding')) ? [] : [`content-length: ${body.length}`]),
    ...fields,
  ]
  return Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`), Buffer.from(body)])
}

function chunked(body: Buffer, size: number): Buffer {
  const parts: Buffer[] = []
  for (let at = 0; at < body.length; at += size) {
    const part = body.subarray(at, at + size)
    parts.push(Buffer.from(`${part.length.toString(16)}\r\n`), part, Buffer.from('\r\n'))
  }
  return Buffer.concat([...parts, Buffer.from('0\r\n\r\n')])
}

/** Answers with a digest of the body once it is whole, and reports how each request ended. */
async function digesting(): Promise<{ url: string; outcomes: string[]; ended: () => Promise<void> }> {
  const outcomes: string[] = []
  let wake = () => {}
  const server = createServer((request, response) => {
    const hash = createHash('sha256')
    let bytes = 0
    request.on('data', chunk => {
      hash.update(chunk)
      bytes += chunk.length
    })
    request.on('end', () => {
      outcomes.push(`whole ${bytes}`)
      response.end(hash.digest('hex'))
      wake()
    })
    request.on('error', () => {
      outcomes.push(`broken ${bytes}`)
      wake()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  stops.push(() => {
    server.closeAllConnections()
    server.close()
  })
  const ended = async () => {
    if (outcomes.length === 0) await new Promise<void>(resolve => (wake = resolve))
  }
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, outcomes, ended }
}

/** Whether nobody holds any of it. */
function isFree(room: BodyRoom): boolean {
  const all = room.enter(EXCHANGE, true, () => {})
  const tails = room.tails.enter(EXCHANGE, true, () => {})
  const free = all.hold(32 * MIB) && tails.hold(TAILS_BYTES)
  all.hold(0)
  tails.hold(0)
  return free
}

const hex = (body: Buffer) => createHash('sha256').update(body).digest('hex')

describe('R8 over HTTP/1.1', () => {
  it.each([0, 1, 1000, 64 * KIB, 64 * KIB + 1, 300 * KIB, 25 * MIB])(
    'a signed body of %i bytes arrives',
    async bytes => {
      const upstream = await digesting()
      const { address } = await serve(upstream.url)
      const body = randomBytes(bytes)
      expect(await rawCall(address.port, post(body, sign(body)))).toMatch(new RegExp(`200 OK[\\s\\S]*${hex(body)}`))
      const lumps = post(chunked(body, 1 + Math.ceil(bytes / 50)), sign(body), 'transfer-encoding: chunked')
      expect(await rawCall(address.port, lumps)).toMatch(new RegExp(`200 OK[\\s\\S]*${hex(body)}`))
      expect(upstream.outcomes).toEqual([`whole ${bytes}`, `whole ${bytes}`])
    },
  )

  it.each([
    ['reads', 1, [200 * KIB, MIB, 25 * MIB]],
    ['reads, twice as much', 2, [200 * KIB, 12 * MIB]],
  ])('a target that answers while it %s: all of it arrives', async (_, times, sizes) => {
    const echo = createServer((request, response) => {
      request
        .on('error', () => {})
        .pipe(
          new Transform({
            transform(chunk: Buffer, _encoding, done) {
              done(null, Buffer.concat(Array<Buffer>(times).fill(chunk)))
            },
          }),
        )
        .pipe(response)
    })
    echo.listen(0, '127.0.0.1')
    await once(echo, 'listening')
    stops.push(() => {
      echo.closeAllConnections()
      echo.close()
    })
    const { address, router } = await serve(`http://127.0.0.1:${(echo.address() as AddressInfo).port}`)
    for (const bytes of sizes) {
      const body = Buffer.alloc(bytes, 'x')
      const answer = await rawCall(address.port, post(body, sign(body)))
      expect(answer).toMatch(/^HTTP\/1\.1 200 /)
      expect(answer.replace(/[^x]/g, '')).toHaveLength(bytes * times)
      const forged = await rawCall(address.port, post(body, sign('other')))
      expect(forged).toMatch(/^HTTP\/1\.1 401 /)
      expect(forged).not.toContain('xx')
    }
    expect(router.stats().active).toBe(0)
  })

  it.each([
    ['no signature', undefined],
    ['one made with another secret', sign('{"a":1}', 'other')],
    ['one made for another body', sign('{"a":2}')],
    ['a malformed one', 'sha256=00'],
  ])('%s: 401, and the upstream sees nothing', async (_, signature) => {
    const upstream = await raw()
    const { address, router } = await serve(upstream.url)
    const answer = await rawCall(address.port, post('{"a":1}', signature))
    expect(answer).toMatch(/^HTTP\/1\.1 401 [\s\S]*sallyport-error: webhook-signature\r\n/)
    expect(answer).toContain('The signature of the webhook is missing or wrong.')
    expect(answer).not.toMatch(/x-hub|another|malformed/)
    expect(upstream.received).toEqual([])
    expect(router.stats().active).toBe(0)
  })

  it('the log says why', async () => {
    const { logger, lines, fields } = recordingLogger()
    const routes = {
      routes: [
        {
          name: 'a',
          match: {},
          target: 'http://127.0.0.1:1',
          verify: { scheme: 'github' as const, secrets: [{ file: SECRET }] },
        },
      ],
    }
    const service = await serveRouter({ port: 0, routes, logger })
    stops.push(() => service.close({ graceMs: 0 }))
    await rawCall(service.address.port, post('{}', undefined))
    await rawCall(service.address.port, post('{}', sign('x')))
    expect(lines).toEqual(Array(2).fill('info a webhook was refused'))
    const reasons = fields.map(field => (field as { err: Error }).err.message)
    expect(reasons).toEqual(['x-hub-signature-256 is missing', 'signed with another secret, or changed on the way'])
    expect(fields[0]).toMatchObject({ route: 'a', code: 'webhook-signature', requestId: expect.any(String) })
  })

  it('whatever the method, and for a WebSocket, too', async () => {
    const upstream = await raw()
    const { address } = await serve(upstream.url)
    for (const head of [
      'GET / HTTP/1.1',
      'OPTIONS / HTTP/1.1\r\norigin: https://u.test\r\naccess-control-request-method: POST',
      'GET / HTTP/1.1\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nx-hub-signature-256: ' +
        sign(''),
    ]) {
      const connection = head.includes('websocket') ? 'upgrade' : 'close'
      const answer = await rawCall(address.port, `${head}\r\nhost: a\r\nconnection: ${connection}\r\n\r\n`)
      expect(answer).toMatch(/^HTTP\/1\.1 401 /)
    }
    expect(upstream.received).toEqual([])
    const body = await rawCall(
      address.port,
      `GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-hub-signature-256: ${sign('')}\r\n\r\n`,
    )
    expect(body).toMatch(/^HTTP\/1\.1 200 /)
  })

  it.each(['length', 'chunks'])('a large forgery, with %s, never completes at the upstream', async how => {
    const upstream = await digesting()
    const { address } = await serve(upstream.url)
    const body = randomBytes(MIB)
    body[body.length - 1] = 0
    const signature = sign(body)
    body[body.length - 1] = 1
    const bytes =
      how === 'length' ? post(body, signature) : post(chunked(body, 5000), signature, 'transfer-encoding: chunked')
    expect(await rawCall(address.port, bytes)).toMatch(/^HTTP\/1\.1 401 /)
    await upstream.ended()
    expect(upstream.outcomes).toHaveLength(1)
    expect(upstream.outcomes[0]).toMatch(/^broken /)
    const seen = Number(upstream.outcomes[0]!.split(' ')[1])
    expect(seen).toBeLessThanOrEqual(MIB - 64 * KIB)
  })

  it.each(['GET', 'POST', 'DELETE'])(
    'if an upstream answers %s before the end, a forger reads nothing',
    async method => {
      const early =
        'HTTP/1.1 103 Early Hints\r\nlink: </private>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nprivate'
      const upstream = await raw((socket, text) => text.length < 1024 || socket.bytesWritten > 0 || socket.write(early))
      const { address, router } = await serve(upstream.url)
      const body = Buffer.alloc(MIB, 'x')
      const send = (signature: string) =>
        rawCall(address.port, Buffer.from(post(body, signature).toString('latin1').replace('POST', method), 'latin1'))
      const answer = await send(sign('y'))
      expect(answer).toMatch(/^HTTP\/1\.1 401 /)
      expect(answer).not.toContain('private')
      expect(upstream.received[0]!.length).toBeLessThan(MIB)
      // A sender with a valid signature reads it once the body is whole.
      expect(await send(sign(body))).toMatch(/^HTTP\/1\.1 200 OK\r\n[\s\S]*\r\n\r\nprivate$/)
      expect(router.stats().active).toBe(0)
    },
  )

  it('a caller that expects 100 gets it from us, and the upstream sees no Expect', async () => {
    const upstream = await raw((socket, text) => text.endsWith('{"a":1}') && socket.write(OK))
    const { address } = await serve(upstream.url)
    const answer = await rawCall(address.port, post('{"a":1}', sign('{"a":1}'), 'expect: 100-continue'))
    expect(answer).toMatch(/^HTTP\/1\.1 100 Continue\r\n[\s\S]*HTTP\/1\.1 200 OK/)
    expect(answer.match(/ 100 /g)).toHaveLength(1)
    expect(upstream.received[0]).not.toContain('expect')
    // Nobody asks for a body that cannot be valid.
    expect(await rawCall(address.port, post('', 'x', 'expect: 100-continue'))).toMatch(/^HTTP\/1\.1 401 /)
  })

  it('limits and failures behind it stay the same', async () => {
    const body = Buffer.alloc(200 * KIB)
    const { address } = await serve('http://127.0.0.1:1', { limits: { bodyBytes: 100 * KIB } })
    expect(await rawCall(address.port, post(body, sign(body)))).toMatch(/^HTTP\/1\.1 413 /)
    const lumps = post(chunked(body, 5000), sign(body), 'transfer-encoding: chunked')
    expect(await rawCall(address.port, lumps)).toMatch(/^HTTP\/1\.1 413 |^HTTP\/1\.1 502 /)
    expect(await rawCall(address.port, post('{}', sign('{}')))).toMatch(/^HTTP\/1\.1 502 [\s\S]*upstream-refused/)
  })

  it('a secret is rotated through its file', async () => {
    const upstream = await raw()
    const secret = join(folder, 'rotated')
    const file = join(folder, 'routes.yaml')
    writeFileSync(secret, 'old')
    writeFileSync(
      file,
      `routes:\n  - name: a\n    match: { methods: [POST] }\n    target: ${upstream.url}\n    verify: { scheme: github, secrets: [{ file: rotated }] }\n`,
    )
    const { logger, lines } = recordingLogger()
    const service = await serveRouter({ port: 0, routes: { file }, logger })
    stops.push(() => service.close({ graceMs: 0 }))
    const status = async (key: string) => (await rawCall(service.address.port, post('', sign('', key)))).slice(9, 12)
    expect([await status('old'), await status('new')]).toEqual(['200', '401'])
    const put = (text: string) => {
      writeFileSync(`${secret}.next`, text)
      renameSync(`${secret}.next`, secret)
    }
    put('\n')
    await expect
      .poll(() => lines.filter(line => line === 'error bad routes file; the old routes stay in force').length)
      .toBe(1)
    expect([await status('old'), await status('new')]).toEqual(['200', '401'])
    put('new\n')
    await expect.poll(() => status('new')).toBe('200')
    expect(await status('old')).toBe('401')
  })
})

describe('R8 over HTTP/2', () => {
  /**
   * Reports how many bytes of each request had arrived when its handler heard of the end; after a reset, Node reports
   * an end as well.
   */
  async function listen() {
    const outcomes: string[] = []
    const server = createHttp2((request, response) => {
      let bytes = 0
      request.on('data', chunk => (bytes += chunk.length))
      request.on('end', () => {
        outcomes.push(`ended ${bytes}`)
        response.end()
      })
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    stops.push(() => server.close())
    return { outcomes, url: `h2c://127.0.0.1:${(server.address() as AddressInfo).port}` }
  }

  // Complete in itself, with only filling behind it.
  const body = Buffer.concat([Buffer.from('{"forged":true}'), Buffer.alloc(200 * KIB, ' ')])
  const lump = Buffer.concat([Buffer.from(`${body.length.toString(16)}\r\n`), body, Buffer.from('\r\n')])
  const half = post(Buffer.concat([body, Buffer.from('x')]), sign('')).subarray(0, -1)
  const open = Buffer.concat([post('', sign(''), 'transfer-encoding: chunked'), lump])

  it.each<[string, Buffer, (socket: Socket) => unknown]>([
    ['leaves', half, socket => socket.destroy()],
    ['resets its connection', half, socket => socket.resetAndDestroy()],
    ['closes its half', half, socket => socket.end()],
    ['sends an invalid chunk', open, socket => socket.write('zz\r\n')],
    ['sends more than the route accepts', open, socket => socket.write(lump)],
    ['ends its body', open, socket => socket.write('0\r\n\r\n')],
  ])('however a forger ends, the target sees nothing: it %s', async (_, bytes, finish) => {
    const { outcomes, url } = await listen()
    const { address, router } = await serve(url, { limits: { bodyBytes: 2 * body.length - 1 } })
    const socket = connect(address.port, '127.0.0.1')
    stops.push(() => socket.destroy())
    socket.on('error', () => {}).resume()
    await new Promise(resolve => socket.write(bytes, resolve))
    await expect.poll(() => router.stats().active).toBe(1)
    finish(socket)
    await expect.poll(() => router.stats().active).toBe(0)
    // What comes after it arrives, and nothing has arrived before.
    const good = randomBytes(200 * KIB)
    expect(await rawCall(address.port, post(good, sign(good)))).toMatch(/^HTTP\/1\.1 200 /)
    expect(outcomes).toEqual([`ended ${good.length}`])
  })

  it('a large body arrives once it is known to be valid, up to 25 MiB', async () => {
    const { outcomes, url } = await listen()
    const { address } = await serve(url)
    for (const bytes of [65 * KIB, 25 * MIB]) {
      const large = randomBytes(bytes)
      expect(await rawCall(address.port, post(large, sign(large)))).toMatch(/^HTTP\/1\.1 200 /)
      expect(outcomes.splice(0)).toEqual([`ended ${bytes}`])
    }
    const more = Buffer.alloc(25 * MIB + 1)
    expect(await rawCall(address.port, post(more, sign(more)))).toMatch(/^HTTP\/1\.1 413 /)
    expect(outcomes).toEqual([])
  })
})

describe('as a layer', () => {
  const secret = readSecret({ scheme: 'github' }, Buffer.from('s3cret'))
  const verifier = createVerifier({ scheme: 'github' }, [secret])

  function begin(body: Buffer, signature = sign(body), room = new BodyRoom()) {
    const both = ends()
    const request: HttpRequest = {
      ...EXCHANGE,
      method: 'POST',
      bodyBytes: BODY_UNKNOWN,
      headers: ['x-hub-signature-256', signature],
    }
    return { both, sink: verifying(verifier, false, room, both.next)(request, both.front) }
  }

  const sum = ({ events }: Ends, what: string) =>
    events
      .filter(event => event.startsWith(`${what} `))
      .reduce((total, event) => total + Number(event.split(' ')[1]), 0)

  it.each([1, 100, 1000, 5000, 100_000])('in parts of %i bytes, 64 KiB wait, and each byte is credited once', size => {
    const body = randomBytes(Math.min(300_000, 70_000 * size))
    const { both, sink } = begin(body)
    let sent = 0
    for (; sent < body.length; sent += size) {
      sink.requestData(body.subarray(sent, sent + size))
      const passed = sum(both, 'requestData')
      const received = Math.min(sent + size, body.length)
      expect(received - passed).toBeGreaterThanOrEqual(Math.min(received, 64 * KIB))
      expect(received - passed).toBeLessThan(68 * KIB)
      // The upstream consumes half of it at once.
      const taken = sum(both, 'taken')
      if (passed > taken + 1) {
        both.events.push(`taken ${Math.floor((passed - taken) / 2)}`)
        both.response.requestConsumed(Math.floor((passed - taken) / 2))
      }
      expect(sum(both, 'requestConsumed')).toBe(Math.min(received, 68 * KIB + sum(both, 'taken')))
      both.events.splice(
        0,
        both.events.length,
        `requestData ${passed}`,
        `taken ${sum(both, 'taken')}`,
        `requestConsumed ${sum(both, 'requestConsumed')}`,
      )
    }
    sink.requestEnd([])
    expect(sum(both, 'requestData')).toBe(body.length)
    expect(both.events.at(-1)).toBe('requestEnd')
    both.response.requestConsumed(body.length - sum(both, 'taken'))
    expect(sum(both, 'requestConsumed')).toBe(body.length)
  })

  it.each([1000, 60_000, 64 * KIB, MIB])(
    "in parts of %i bytes, what waits uses up none of its sender's credit",
    size => {
      const body = randomBytes(3 * MIB)
      const { both, sink } = begin(body)
      for (let sent = 0; sent < body.length; sent += size) {
        const passed = sum(both, 'requestData')
        sink.requestData(body.subarray(sent, sent + size))
        const more = sum(both, 'requestData') - passed
        if (more > 0) both.response.requestConsumed(more)
        expect(sum(both, 'requestConsumed')).toBe(Math.min(sent + size, body.length))
      }
      sink.requestEnd([])
      expect(both.events.at(-1)).toBe('requestEnd')
    },
  )

  it('a token decides at once: the body is passed on as it arrives', () => {
    const both = ends()
    const token = createVerifier({ scheme: 'bearer' }, [readSecret({ scheme: 'bearer' }, Buffer.from('t'))])
    const headers = ['authorization', 'Bearer t', 'expect', '100-continue']
    const sink = verifying(
      token,
      false,
      new BodyRoom(),
      both.next,
    )({ ...EXCHANGE, bodyBytes: BODY_UNKNOWN, headers }, both.front)
    sink.requestData(Buffer.alloc(1))
    expect(both.events).toEqual(['requestData 1'])
    const refused = ends()
    verifying(
      token,
      false,
      new BodyRoom(),
      refused.next,
    )({ ...EXCHANGE, headers: ['authorization', 'Bearer u'] }, refused.front)
    expect(refused.events).toEqual(['responseAbort webhook-signature'])
    expect(refused.request).toBeUndefined()
  })

  /** What happens at either end, in any order that the rules of an exchange allow. */
  const step = fc.oneof(
    { weight: 6, arbitrary: fc.integer({ min: 1, max: 70_000 }).map(bytes => ({ kind: 'chunk' as const, bytes })) },
    { weight: 4, arbitrary: fc.integer({ min: 1, max: 100_000 }).map(bytes => ({ kind: 'taken' as const, bytes })) },
    { weight: 2, arbitrary: fc.integer({ min: 1, max: 5 * MIB }).map(bytes => ({ kind: 'say' as const, bytes })) },
    { weight: 1, arbitrary: fc.constantFrom('head', 'answer', 'fail', 'leave').map(kind => ({ kind, bytes: 0 })) },
  )

  it('R8 in any order: no forgery completes at the upstream, credit adds up, and each end is notified once', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), fc.boolean(), (steps, good) => {
        const body = Buffer.concat(steps.map(({ kind, bytes }) => Buffer.alloc(kind === 'chunk' ? bytes : 0, 7)))
        const room = new BodyRoom()
        const { both, sink } = begin(body, sign(good ? body : Buffer.concat([body, body, Buffer.from('x')])), room)
        const { events } = both
        let at = 0
        let taken = 0
        let answered = ''
        let answeredBytes = 0
        let left = false
        for (const { kind, bytes } of steps) {
          if (left) break
          const passed = sum(both, 'requestData')
          if (kind === 'chunk') {
            at += bytes
            sink.requestData(body.subarray(at - bytes, at))
          } else if (kind === 'taken' && passed > taken && answered !== 'fail') {
            const some = Math.min(bytes, passed - taken)
            taken += some
            both.response.requestConsumed(some)
          } else if (kind === 'leave') {
            left = true
            sink.requestAbort(new SallyportError('cancelled'))
          } else if (both.request !== undefined && kind === 'head' && answered === '') {
            answered = kind
            both.response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
          } else if (both.request !== undefined && kind === 'answer' && answered === '') {
            answered = kind
            both.response.responseHead({ status: 400, headers: [], bodyBytes: 0 })
            both.response.responseEnd([])
          } else if (both.request !== undefined && kind === 'fail' && answered === '') {
            answered = kind
            both.response.responseAbort(new SallyportError('upstream-broken'))
          }
          if (kind === 'say' && answered === 'head' && answeredBytes + bytes <= 25 * MIB) {
            answeredBytes += bytes
            both.response.responseData(Buffer.alloc(bytes))
            expect(sum(both, 'responseConsumed')).toBe(answeredBytes)
          }
          const credit = sum(both, 'requestConsumed')
          expect(credit).toBe(answered === 'fail' ? at : Math.min(at, 68 * KIB + taken))
          expect(at - sum(both, 'requestData')).toBeGreaterThanOrEqual(Math.min(at, 64 * KIB))
        }
        const hasEnded = at === body.length && !left
        if (hasEnded) sink.requestEnd([])
        const count = (event: string) => events.filter(one => one === event).length
        const isWhole = hasEnded && answered !== 'fail'
        expect(count('requestEnd')).toBe(isWhole && good ? 1 : 0)
        const isRefused = hasEnded && !good
        const isEnded = isRefused && sum(both, 'requestData') > 0 && answered !== 'fail'
        expect(count('requestAbort webhook-signature')).toBe(isEnded ? 1 : 0)
        expect(count('responseAbort upstream-broken')).toBe(hasEnded && good && answered === 'fail' ? 1 : 0)
        expect(count('responseAbort webhook-signature')).toBe(isRefused ? 1 : 0)
        const isPassedOn = isWhole && good
        expect(events.filter(event => event.startsWith('head'))).toEqual(
          isPassedOn && answered !== '' ? [answered === 'head' ? 'head 200' : 'head 400'] : [],
        )
        expect(count('responseEnd')).toBe(isPassedOn && answered === 'answer' ? 1 : 0)
        if (isWhole && good) {
          expect(sum(both, 'requestData')).toBe(body.length)
          if (body.length > taken) both.response.requestConsumed(body.length - taken)
          expect(sum(both, 'requestConsumed')).toBe(body.length)
        }
        if (!isPassedOn) expect(sum(both, 'responseData')).toBe(0)
        else {
          // The caller consumes what the upstream already has credit for, and a byte more.
          for (let had = 0; had < answeredBytes; ) {
            expect(isFree(room)).toBe(answeredBytes - had <= 64 * KIB)
            const handed = sum(both, 'responseData')
            expect(handed).toBeGreaterThan(had)
            sink.responseConsumed(handed - had)
            had = handed
          }
          expect(sum(both, 'responseConsumed')).toBe(answeredBytes)
          if (answered === 'head') sink.responseConsumed(1)
          if (answered === 'head') expect(sum(both, 'responseConsumed')).toBe(answeredBytes + 1)
        }
        if (isPassedOn && answered !== 'answer') sink.requestAbort(new SallyportError('cancelled'))
        if (isWhole || left || answered === 'fail') expect(isFree(room)).toBe(true)
        // Without a word from the upstream it was never asked, or has what came before the tail.
        expect(both.request !== undefined).toBe(sum(both, 'requestData') > 0 || count('requestEnd') > 0)
      }),
      { numRuns: 300 },
    )
  })

  it('an early answer waits for the verdict, and what follows queues behind it', () => {
    const body = Buffer.alloc(200_000)
    const { both, sink } = begin(body, sign(body))
    sink.requestData(body.subarray(0, 100_000))
    sink.requestData(body.subarray(100_000))
    both.response.responseInformational(103, [])
    both.response.responseHead({ status: 200, headers: [], bodyBytes: 3 })
    both.response.responseData(Buffer.from('a'))
    expect(both.events.filter(event => /head|informational|response[DE]/.test(event))).toEqual([])
    const received: string[] = []
    both.front.responseData = chunk => {
      received.push(Buffer.from(chunk).toString())
      // Like an upstream that receives credit.
      if (received.length === 1) {
        both.response.responseData(Buffer.from('b'))
        both.response.responseData(Buffer.from('c'))
        both.response.responseEnd([])
      }
    }
    sink.requestEnd([])
    expect(received.join('')).toBe('abc')
    expect(both.events.filter(event => /head|responseE/.test(event))).toEqual(['head 200', 'responseEnd'])
  })

  it.each([false, true])(
    'R8 an answer that waits is bounded, and nothing is kept after the end; forged: %s',
    forged => {
      const body = Buffer.alloc(MIB)
      for (const more of [0, 1]) {
        const room = new BodyRoom()
        const { both, sink } = begin(body, sign(forged ? 'other' : body), room)
        for (let at = 0; at < body.length; at += 64 * KIB) sink.requestData(body.subarray(at, at + 64 * KIB))
        expect(both.request).toBeDefined()
        both.response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
        both.response.responseData(Buffer.alloc(25 * MIB))
        if (more > 0) both.response.responseData(Buffer.alloc(more))
        expect(isFree(room)).toBe(more > 0)
        both.response.requestConsumed(body.length - 64 * KIB)
        sink.requestEnd([])
        const isPassedOn = more === 0 && !forged
        expect(sum(both, 'responseData')).toBe(isPassedOn ? 25 * MIB : 0)
        expect(both.events.filter(event => /Abort/.test(event)).length > 0).toBe(!isPassedOn)
        if (!isPassedOn) expect(both.events).not.toContain('requestEnd')
        if (isPassedOn) {
          both.response.responseEnd([])
          sink.responseConsumed(25 * MIB - 64 * KIB - 1)
          expect(isFree(room)).toBe(false)
          expect(both.events).not.toContain('responseEnd')
          sink.responseConsumed(1)
          expect(both.events).toContain('responseEnd')
        }
        expect(isFree(room)).toBe(true)
      }
    },
  )

  it.each(['takes', 'leaves'])('R8 an answer that ended before the verdict counts until its caller %s it', way => {
    const body = Buffer.alloc(MIB)
    const room = new BodyRoom()
    const { both, sink } = begin(body, sign(body), room)
    for (let at = 0; at < body.length; at += 64 * KIB) sink.requestData(body.subarray(at, at + 64 * KIB))
    both.response.responseHead({ status: 200, headers: [], bodyBytes: 4 * MIB })
    for (let i = 0; i < 64; i++) both.response.responseData(Buffer.alloc(64 * KIB))
    both.response.responseEnd([])
    sink.requestEnd([])
    expect(sum(both, 'responseData')).toBe(64 * KIB)
    expect(isFree(room)).toBe(false)
    if (way === 'leaves') sink.requestAbort(new SallyportError('cancelled'))
    else {
      for (let i = 0; i < 63; i++) sink.responseConsumed(64 * KIB)
      expect(sum(both, 'responseData')).toBe(4 * MIB)
      expect(both.events.at(-1)).toBe('responseEnd')
    }
    expect(isFree(room)).toBe(true)
  })

  it.each([
    ['at once, good', 0, true, 'upstream-refused'],
    ['at once, forged', 0, false, 'webhook-signature'],
    ['later, good', 1, true, 'upstream-refused'],
    ['later, forged', 1, false, 'webhook-signature'],
  ])('a failure of the upstream waits for the verdict: %s', (_, afterChunks, good, expected) => {
    const body = Buffer.alloc(400_000)
    const both = ends()
    const fail = () => both.response.responseAbort(new SallyportError('upstream-refused'))
    const next: typeof both.next = (request, response) => {
      const sink = both.next(request, response)
      if (afterChunks === 0) fail()
      return sink
    }
    const headers = ['x-hub-signature-256', sign(good ? body : Buffer.from('another'))]
    const request = { ...EXCHANGE, method: 'POST', bodyBytes: BODY_UNKNOWN, headers }
    const sink = verifying(verifier, false, new BodyRoom(), next)(request, both.front)
    for (let at = 0; at < body.length; at += 100_000) {
      sink.requestData(body.subarray(at, at + 100_000))
      if (at === afterChunks * 100_000 && at > 0) fail()
    }
    const aborts = () => both.events.filter(event => event.startsWith('responseAbort'))
    expect(aborts()).toEqual([])
    expect(sum(both, 'requestConsumed')).toBe(body.length)
    sink.requestEnd([])
    expect(aborts()).toEqual([`responseAbort ${expected}`])
  })

  it('after a failure of the upstream, a webhook takes no room, nor does its answer', () => {
    const body = Buffer.alloc(3 * MIB)
    const room = new BodyRoom()
    const { both, sink } = begin(body, sign(body), room)
    sink.requestData(body.subarray(0, MIB))
    sink.requestData(body.subarray(MIB, 2 * MIB))
    expect(both.request).toBeDefined()
    both.response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
    both.response.responseData(Buffer.alloc(MIB))
    both.response.responseAbort(new SallyportError('upstream-broken'))
    expect(isFree(room)).toBe(true)
    sink.requestData(body.subarray(2 * MIB))
    expect(isFree(room)).toBe(true)
  })

  it('a caller that leaves: nothing is begun, or it is ended', () => {
    const early = begin(Buffer.alloc(10))
    early.sink.requestData(Buffer.alloc(10))
    early.sink.requestAbort({ reason: 'cancelled' } as never)
    expect(early.both.request).toBeUndefined()
    const late = begin(Buffer.alloc(10))
    late.sink.requestData(Buffer.alloc(100_000))
    late.sink.requestData(Buffer.alloc(100_000))
    late.sink.requestAbort({ reason: 'cancelled' } as never)
    expect(late.both.events.at(-1)).toBe('requestAbort cancelled')
  })

  it('a forgery: the upstream is reset once, and what arrives afterwards is dropped', () => {
    const { both, sink } = begin(Buffer.alloc(1))
    sink.requestData(Buffer.alloc(100_000))
    sink.requestData(Buffer.alloc(100_000))
    sink.requestEnd([])
    expect(both.events.slice(-2)).toEqual(['requestAbort webhook-signature', 'responseAbort webhook-signature'])
    sink.responseConsumed(1)
    sink.requestAbort({ reason: 'cancelled' } as never)
    expect(both.events.slice(-2)).toEqual(['requestAbort webhook-signature', 'responseAbort webhook-signature'])
  })
})

describe('R9 a delivery from the inbox', () => {
  const standard = { scheme: 'standard-webhooks' } as const
  const secret = readSecret(standard, Buffer.from('whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'))
  const signer = createSigner(standard, secret)
  const verifier = createVerifier(standard, [secret])
  const body = Buffer.from('{"a":1}')
  const sentMs = Date.now() - 3_600_000

  function late(more: Partial<HttpRequest> = {}): HttpRequest {
    const signed = signer.sign([body], { id: 'msg_1', timestamp: Math.floor(sentMs / 1000) })
    const inbox = ['sallyport-inbox-id', 'i-1', 'sallyport-inbox-attempt', '2']
    const received = ['sallyport-inbox-received', new Date(sentMs + 1500).toISOString()]
    const headers = [...signed, ...inbox, ...received]
    return { ...EXCHANGE, method: 'POST', bodyBytes: body.length, session: 's-1', headers, ...more }
  }

  function run(request: HttpRequest) {
    const both = ends()
    const sink = verifying(verifier, false, new BodyRoom(), both.next)(request, both.front)
    sink.requestData(body)
    sink.requestEnd([])
    return both
  }

  it('its signed time is checked against its arrival at the server', () => {
    expect(run(late()).events).toContain('requestEnd')
    const headers = late().headers.map(text => (text.endsWith('Z') ? new Date().toISOString() : text))
    expect(run(late({ headers })).events).toContain('responseAbort webhook-signature')
  })

  it('its fields are trusted only on a session', () => {
    expect(run(late({ session: undefined })).events).toContain('responseAbort webhook-signature')
  })

  it("its fields reach the upstream, and others' do not", async () => {
    const upstream = await raw((socket, text) => text.endsWith('{"a":1}') && socket.write(OK))
    const router = createRouter({ routes: { routes: [{ name: 'a', match: {}, target: upstream.url }] } })
    for (const session of ['s-1', undefined]) {
      const both = ends()
      const answered = new Promise<void>(resolve => {
        const { responseEnd } = both.front
        both.front.responseEnd = trailers => {
          responseEnd(trailers)
          resolve()
        }
      })
      const sink = router.handler(late({ session, headers: [...late().headers, 'sallyport-other', '1'] }), both.front)
      sink.requestData(body)
      sink.requestEnd([])
      await answered
    }
    const [first, second] = upstream.received.join('').split('{"a":1}')
    for (const name of ['id: i-1', 'attempt: 2', 'received: 2']) {
      expect(first).toContain(`sallyport-inbox-${name}`)
      expect(second).not.toContain(`sallyport-inbox-${name}`)
    }
    expect(upstream.received.join('')).not.toContain('sallyport-other')
    await router.close()
  })

  it('keeps no other spelling of the fields that are signed again, in its head or as trailers', () => {
    const own = { scheme: 'hmac', header: 'X_Sig' } as const
    for (const [next, twin] of [
      [signer, 'webhook_signature'],
      [createSigner(own, readSecret(own, Buffer.from('other'))), 'x!sig'],
    ] as const) {
      const both = ends()
      const twins = [twin, 'evil', `grpc-metadata-${twin}`, 'evil']
      const trailers: string[] = []
      const forward: Handler = (request, response) => {
        const sink = both.next(request, response)
        return {
          ...discarding(response),
          requestData: chunk => sink.requestData(chunk),
          requestEnd: all => void trailers.push(...all),
        }
      }
      const request = { ...late(), headers: [...late().headers, ...twins] }
      const sink = resigning(next, new BodyRoom(), forward)(request, both.front)
      sink.requestData(body)
      sink.requestEnd([...twins, 'x-kept', '1'])
      expect(both.request!.headers).not.toContain('evil')
      expect(trailers).toEqual(['x-kept', '1'])
    }
  })

  it('is signed again at each attempt', () => {
    const fresh = createSigner({ scheme: 'stripe' }, readSecret({ scheme: 'stripe' }, Buffer.from('other')))
    for (const next of [signer, fresh]) {
      const both = ends()
      const room = new BodyRoom()
      const sink = verifying(verifier, false, room, resigning(next, room, both.next))(late(), both.front)
      sink.requestData(body.subarray(0, 3))
      sink.requestData(body.subarray(3))
      expect(both.request).toBeUndefined()
      sink.requestEnd([])
      expect(both.events.filter(event => event.startsWith('request'))).toEqual([
        ...['requestConsumed 3', 'requestConsumed 4', 'requestData 7', 'requestEnd'],
      ])
      const { headers } = both.request!
      const options = { scheme: next === fresh ? ('stripe' as const) : standard.scheme }
      const text = next === fresh ? 'other' : 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'
      const again = createVerifier(options, [readSecret(options, Buffer.from(text))]).begin(headers, Date.now())
      again.update(body)
      expect(again.refusal ?? again.verdict()).toBeUndefined()
      expect(getHeader(headers, 'sallyport-inbox-id')).toBe('i-1')
      expect(headers.filter(name => name === 'webhook-signature')).toHaveLength(1)
      expect(getHeader(headers, 'webhook-id')).toBe('msg_1')
      both.response.requestConsumed(7)
      both.response.responseHead({ status: 200, headers: [], bodyBytes: 0 })
      both.response.responseEnd([])
      expect(isFree(room)).toBe(true)
    }
  })

  it('bodies that wait for a signature are bounded, and their room is freed', () => {
    const room = new BodyRoom()
    const start = () => {
      const both = ends()
      return { both, sink: resigning(signer, room, both.next)({ ...late(), bodyBytes: BODY_UNKNOWN }, both.front) }
    }
    const large = start()
    for (let sent = 0; sent < 25; sent++) large.sink.requestData(Buffer.alloc(MIB))
    const second = start()
    for (let sent = 0; sent < 4; sent++) second.sink.requestData(Buffer.alloc(MIB))
    expect(second.both.events.at(-1)).toBe('responseAbort overloaded')
    large.sink.requestData(Buffer.alloc(1))
    expect(large.both.events.at(-1)).toBe('responseAbort body-too-large')
    expect(isFree(room)).toBe(true)
    const third = start()
    third.sink.requestData(Buffer.alloc(MIB))
    third.sink.requestAbort({ reason: 'cancelled' } as never)
    expect(isFree(room)).toBe(true)
  })

  it('forgeries that never end leave room for small webhooks', () => {
    const github = { scheme: 'github' as const }
    const checked = createVerifier(github, [readSecret(github, Buffer.from('s3cret'))])
    const room = new BodyRoom()
    const start = (bodyBytes: number, signature: string, ...fields: string[]) => {
      const both = ends()
      const headers = ['x-hub-signature-256', signature, ...fields]
      const request = { ...EXCHANGE, method: 'POST', bodyBytes, headers }
      return { both, sink: verifying(checked, false, room, resigning(signer, room, both.next))(request, both.front) }
    }
    // One after the other takes what it gets.
    for (const bytes of [24 * MIB, ...Array(9).fill(MIB), ...Array(80).fill(80 * KIB)]) {
      const forger = start(BODY_UNKNOWN, sign('x'))
      for (let sent = 0; sent < bytes; sent += 16 * KIB) forger.sink.requestData(Buffer.alloc(16 * KIB))
    }
    // A caller without a name gets one.
    const good = start(64 * KIB, sign(Buffer.alloc(64 * KIB)), 'webhook-id', '')
    good.sink.requestData(Buffer.alloc(64 * KIB))
    good.sink.requestEnd([])
    expect(good.both.events.at(-1)).toBe('requestEnd')
    expect(getHeader(good.both.request!.headers, 'webhook-id')).toBe(EXCHANGE.requestId)
  })
})

describe('room for bodies that are held whole', () => {
  const from = (address: string): HttpRequest => ({
    ...EXCHANGE,
    method: 'POST',
    bodyBytes: BODY_UNKNOWN,
    caller: { ...EXCHANGE.caller!, address },
  })
  const github = { scheme: 'github' as const }
  const secret = readSecret(github, Buffer.from('s3cret'))
  const ed25519 = { scheme: 'standard-webhooks' as const }
  const pair = readSecret(ed25519, Buffer.from(`whsk_${randomBytes(32).toString('base64')}`))

  /** Each way in which a body waits whole before its signature is known. */
  const ways: Record<string, (room: BodyRoom, both: Ends) => (request: HttpRequest, body: Buffer) => RequestSink> = {
    'for a new signature': (room, both) => (request, body) => {
      const next = resigning(createSigner(ed25519, pair), room, both.next)
      const headers = ['x-hub-signature-256', sign(body)]
      return verifying(createVerifier(github, [secret]), false, room, next)({ ...request, headers }, both.front)
    },
    'for an HTTP/2 target': (room, both) => (request, body) => {
      const headers = ['x-hub-signature-256', sign(body)]
      return verifying(createVerifier(github, [secret]), true, room, both.next)({ ...request, headers }, both.front)
    },
    'for Ed25519': (room, both) => (request, body) => {
      const signing = { id: 'a', timestamp: Math.floor(Date.now() / 1000) }
      const headers = createSigner(ed25519, pair).sign([body], signing)
      return verifying(createVerifier(ed25519, [pair]), false, room, both.next)({ ...request, headers }, both.front)
    },
  }

  describe.each(Object.entries(ways))('%s', (_, way) => {
    const begin = (room: BodyRoom, address: string, body: Buffer) => {
      const both = ends()
      return { both, sink: way(room, both)(from(address), body) }
    }
    const lumps = (sink: RequestSink, bytes: number) => {
      for (let sent = 0; sent < bytes; sent += 64 * KIB) sink.requestData(Buffer.alloc(64 * KIB))
    }

    it('forgers in one network keep nobody out of another, and all the room is freed', () => {
      const room = new BodyRoom()
      const forgers = Array.from({ length: 64 }, () => begin(room, '198.51.100.9', Buffer.alloc(0)))
      for (const { sink } of forgers) lumps(sink, 896 * KIB)
      const refused = () => forgers.filter(({ both }) => both.events.includes('responseAbort overloaded')).length
      expect(refused()).toBeGreaterThan(0)
      const before = refused()
      const body = randomBytes(MIB)
      const good = begin(room, '192.0.2.1', body)
      good.sink.requestData(body)
      good.sink.requestEnd([])
      expect(good.both.events.at(-1)).toBe('requestEnd')
      expect(refused()).toBeGreaterThan(before)
      for (const { both, sink } of forgers) {
        const abort = 'responseAbort overloaded'
        if (!both.events.includes(abort)) sink.requestAbort(new SallyportError('cancelled'))
        else expect(both.events.filter(event => event === abort)).toHaveLength(1)
        expect(both.events).not.toContain('requestEnd')
      }
      good.both.response.requestConsumed(body.length)
      expect(isFree(room)).toBe(true)
    })
  })

  it.each(['as it passes', ...Object.keys(ways)])('what waits of small ones is bounded, too: %s', name => {
    const room = new BodyRoom()
    const begin = (address: string, body: Buffer) => {
      const both = ends()
      const headers = ['x-hub-signature-256', sign(body)]
      const passing = (request: HttpRequest) =>
        verifying(createVerifier(github, [secret]), false, room, both.next)({ ...request, headers }, both.front)
      return { both, sink: (ways[name]?.(room, both) ?? passing)(from(address), body) }
    }
    const piece = Buffer.alloc(60 * KIB)
    const forgers = Array.from({ length: 1_100 }, () => begin('198.51.100.9', Buffer.alloc(0)))
    for (const { sink } of forgers) sink.requestData(piece)
    const refused = () => forgers.filter(({ both }) => both.events.includes('responseAbort overloaded')).length
    const before = refused()
    expect((forgers.length - before) * piece.length).toBeLessThanOrEqual(TAILS_BYTES)
    const good = begin('192.0.2.1', piece)
    good.sink.requestData(piece)
    good.sink.requestEnd([])
    expect(good.both.events.at(-1)).toBe('requestEnd')
    expect(refused()).toBeGreaterThan(before)
    good.both.response.requestConsumed(piece.length)
    for (const { sink } of forgers) sink.requestAbort(new SallyportError('cancelled'))
    expect(isFree(room)).toBe(true)
  })

  it.each<[string, Partial<Route>, forgers: number, forged: number, bytes: number]>([
    ['as it passes', {}, 4000, 17 * KIB, 60 * KIB],
    [
      'for a new signature',
      { inbox: { mode: 'always', resign: { ...github, secret: { file: SECRET } } } },
      500,
      150 * KIB,
      MIB,
    ],
  ])('forgers in many networks keep no known sender out: %s', async (_, more, count, forged, bytes) => {
    const { url } = await digesting()
    const verify = { ...github, secrets: [{ file: SECRET }] }
    const routes = ['/a', '/b'].map(path => ({
      name: path.slice(1),
      match: { path, methods: ['POST'] },
      target: url,
      verify,
      ...more,
    }))
    const router = createRouter({ routes: { routes } })
    stops.push(() => router.close())
    const begin = (address: string, path: string, signature: string, front: ResponseSink) =>
      router.handler({ ...from(address), path, headers: ['x-hub-signature-256', signature] }, front)
    const forgers = Array.from({ length: count }, (_, i) => {
      const both = ends()
      return { both, sink: begin(`2001:db8:${i.toString(16)}::1`, '/a', sign('another'), both.front) }
    })
    const body = Buffer.alloc(bytes)
    /** The forgers come while it is under way. */
    const send = async (address: string, path: string, others: typeof forgers) => {
      const { promise, resolve } = Promise.withResolvers<number>()
      const front: ResponseSink = { ...ends().front, responseHead: ({ status }) => resolve(status) }
      const sink = begin(address, path, sign(body), front)
      sink.requestData(body.subarray(bytes / 2))
      for (const forger of others) forger.sink.requestData(Buffer.alloc(forged))
      sink.requestData(body.subarray(bytes / 2))
      sink.requestEnd([])
      return await promise
    }
    expect(await send('192.0.2.1', '/a', [])).toBe(200)
    expect(await send('192.0.2.1', '/a', forgers)).toBe(200)
    for (let i = 0; i < 10; i++) expect(await send('192.0.2.1', '/a', [])).toBe(200)
    expect(await send('192.0.2.1', '/b', [])).toBe(503)
    expect(await send('198.51.100.1', '/a', [])).toBe(503)
    for (const { both, sink } of forgers)
      if (!both.events.includes('head 503')) sink.requestAbort(new SallyportError('cancelled'))
    expect(await send('198.51.100.1', '/a', [])).toBe(200)
  })

  it.each([false, true])('valid small ones wait for their target in any number; over HTTP/2: %s', waitsWhole => {
    const room = new BodyRoom()
    const piece = Buffer.alloc(60 * KIB)
    const headers = ['x-hub-signature-256', sign(piece)]
    for (let i = 0; i < 1_200; i++) {
      const both = ends()
      const verifier = createVerifier(github, [secret])
      const sink = verifying(verifier, waitsWhole, room, both.next)({ ...from('192.0.2.1'), headers }, both.front)
      sink.requestData(piece)
      sink.requestEnd([])
      expect(both.events.at(-1)).toBe('requestEnd')
    }
    expect(isFree(room)).toBe(true)
  })

  it('a valid body is never evicted', () => {
    const room = new BodyRoom()
    const both = ends()
    const body = Buffer.alloc(20 * MIB)
    const sink = ways['for an HTTP/2 target']!(room, both)(from('192.0.2.1'), body)
    sink.requestData(body)
    sink.requestEnd([])
    const share = room.enter(from('198.51.100.9'), false, () => {})
    expect(share.hold(9 * MIB)).toBe(false)
    expect(both.events.at(-1)).toBe('requestEnd')
    both.response.requestConsumed(MIB)
    both.response.requestConsumed(MIB)
    expect(share.hold(9 * MIB)).toBe(true)
    share.hold(0)
    sink.requestAbort(new SallyportError('cancelled'))
    expect(isFree(room)).toBe(true)
  })

  it('in any order it is never more than full, and the one that gives way has more than the newcomer', () => {
    const step = fc.record({
      at: fc.integer({ min: 0, max: 11 }),
      bytes: fc.integer({ min: 0, max: 20 * MIB }),
      good: fc.boolean(),
    })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), steps => {
        const room = new BodyRoom()
        const sumOf = (network: number, unknown: boolean) =>
          shares.reduce(
            (sum, { bytes, isVerified }, i) => sum + (i % 4 === network && !(unknown && isVerified) ? bytes : 0),
            0,
          )
        let asking = 0
        let wanted = 0
        const shares = Array.from({ length: 12 }, (_, i) =>
          room.enter(from(`192.0.2.${i % 4}`), i < 4, () => {
            expect(shares[i]!.isVerified).toBe(false)
            expect(sumOf(i % 4, true)).toBeGreaterThan(wanted)
            expect(i % 4).not.toBe(asking % 4)
            shares[i]!.hold(0)
          }),
        )
        for (const { at, bytes, good } of steps) {
          ;[asking, wanted] = [at, bytes]
          const share = shares[at]!
          const before = share.bytes
          const isTaken = share.hold(bytes)
          expect(share.bytes).toBe(isTaken ? bytes : before)
          if (good && share.bytes > 0) share.markVerified()
          expect([0, 1, 2, 3].reduce((sum, network) => sum + sumOf(network, false), 0)).toBeLessThanOrEqual(32 * MIB)
        }
        for (const share of shares) share.hold(0)
        expect(isFree(room)).toBe(true)
      }),
    )
  })
})
