import { once } from 'node:events'
import { createServer, type Server as HttpServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { LOOK_MS } from '../../../../protocol/base/deadline-watch.ts'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import { discarding } from '../../../../protocol/base/guard.ts'
import { noLogger } from '../../../../protocol/base/log.ts'
import { BODY_UNKNOWN, type Handler, type ResponseSink } from '../../../../protocol/exchange.ts'
import { mount } from '../../../../protocol/http/http1/mount.ts'
import type { HttpLimits } from '../../../../protocol/http/limits.ts'
import { DEAF } from '../../../support/ends.ts'
import { makeSecrets, type Secrets } from '../../../support/secrets.ts'
import { eventually } from '../../../support/until.ts'

const closers: (() => void)[] = []
afterEach(() => {
  for (const close of closers.splice(0)) close()
})

/** Serves the embedder's server until the end of the test, and connects a caller, over TLS if there are secrets. */
async function call(server: HttpServer, secrets?: Secrets): Promise<Socket> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const place = { port: (server.address() as AddressInfo).port, host: '127.0.0.1' }
  const caller = secrets === undefined ? connect(place) : connectTls({ ...place, ca: secrets.ca })
  caller.on('error', () => {})
  closers.push(
    () => server.closeAllConnections(),
    () => server.close(),
    () => caller.destroy(),
  )
  return caller
}

/**
 * An embedder's server with a handler of ours that reads a body, and a caller that sends its head and `bytes` of it.
 */
async function post(bytes: number, { takes, limits }: { takes: boolean; limits?: Partial<HttpLimits> }) {
  const heard: { begun: boolean; aborted: SallyportError | undefined } = { begun: false, aborted: undefined }
  const handler: Handler = (_request, response) => {
    heard.begun = true
    return {
      requestData: chunk => takes && response.requestConsumed(chunk.length),
      requestEnd: () => {},
      requestAbort: error => {
        heard.aborted = error
      },
      responseConsumed: () => {},
    }
  }
  const server = createServer()
  mount(server, { handler, serves: () => true, limits, logger: noLogger })
  const caller = await call(server)
  caller.write(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n${'x'.repeat(bytes)}`)
  await eventually(() => expect(heard.begun).toBe(true))
  return { caller, heard }
}

describe("a body on an embedder's server", () => {
  test('E16: a caller that leaves while nobody reads its body is noticed', async () => {
    const { caller, heard } = await post(16 * 1024 * 1024, { takes: false })
    // It cannot send more: what it sends is not read.
    await eventually(() => expect(caller.writableLength).toBeGreaterThan(0))
    caller.resetAndDestroy()
    await eventually(() => expect(heard.aborted?.reason).toBe('cancelled'))
  })

  test('a body that never arrives gets 408, and both ends are told', async () => {
    const { caller, heard } = await post(10, { takes: true, limits: { bodyIdleMs: 100 } })
    let text = ''
    caller.on('data', chunk => (text += chunk))
    await once(caller, 'end')
    expect(text).toMatch(/^HTTP\/1\.1 408 [\s\S]*\r\nconnection: close\r\n[\s\S]*request-timeout/i)
    expect(heard.aborted?.reason).toBe('request-timeout')
  })
})

describe('the rest of a body whose upstream fails is discarded, and the connection goes on', () => {
  const failing = (response: ResponseSink) => response.responseAbort(new SallyportError('session-lost'))
  const answering = (response: ResponseSink) => {
    response.responseHead({ status: 200, headers: [], bodyBytes: 3 })
    response.responseData(Buffer.from('abc'))
  }
  test.each<[string, string[], (response: ResponseSink) => void]>([
    ['at once', ['502', '200'], failing],
    ['before its answer', ['502', '200'], response => setTimeout(failing, 50, response)],
    [
      'after its answer',
      ['200', '200'],
      response => {
        answering(response)
        setTimeout(failing, 50, response)
      },
    ],
  ])('%s', async (_, statuses, act) => {
    const handler: Handler = ({ method }, response) => {
      if (method === 'POST') act(response)
      else {
        answering(response)
        response.responseEnd([])
      }
      // Gives no credit, like the end of a lost session.
      return { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
    }
    const server = createServer({ keepAliveTimeout: 0 })
    mount(server, { handler, serves: () => true, logger: noLogger })
    const caller = await call(server)
    let text = ''
    caller.on('data', chunk => (text += chunk))
    caller.write(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n${'x'.repeat(8_000_000)}`)
    caller.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
    await eventually(() => expect(text.match(/(?<=HTTP\/1\.1 )\d+/g)).toEqual(statuses))
  })
})

test.each([199, 600, Number.NaN])('an answer of status %d becomes 502, and the upstream is told why', async status => {
  const told: string[] = []
  const handler: Handler = (_request, response) => {
    queueMicrotask(() => response.responseHead({ status, headers: [], bodyBytes: 0 }))
    return { requestData() {}, requestEnd() {}, requestAbort: error => told.push(error.message), responseConsumed() {} }
  }
  const server = createServer()
  mount(server, { handler, serves: () => true, logger: noLogger })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  closers.push(() => server.close())
  const answer = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`)
  expect([answer.status, await answer.json()]).toMatchObject([502, { code: 'upstream-broken' }])
  expect(told).toEqual([`status ${status}`])
})

test.each([
  ['GET', 'abc'],
  ['HEAD', ''],
])('an answer to %s whose upstream fails after its last byte is whole', async (method, body) => {
  const handler: Handler = (_request, response) => {
    response.responseHead({ status: 200, headers: ['content-length', '3'], bodyBytes: body.length })
    if (body !== '') response.responseData(Buffer.from(body))
    response.responseAbort(new SallyportError('session-lost'))
    return discarding(response)
  }
  const server = createServer()
  mount(server, { handler, serves: () => true, logger: noLogger })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  closers.push(() => server.close())
  const answer = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`, { method })
  expect([answer.status, answer.headers.get('content-length'), await answer.text()]).toEqual([200, '3', body])
})

describe("an answer on an embedder's server", () => {
  /** A handler that answers with `bytes`, and a caller that reads nothing until told to. */
  async function get(bytes: number, stalledMs: number, requests = 1) {
    const aborted: string[] = []
    let begun = 0
    const handler: Handler = (_request, response) => {
      begun++
      response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
      response.responseData(Buffer.alloc(bytes))
      return {
        requestData: () => {},
        requestEnd: () => {},
        requestAbort: error => aborted.push(error.reason),
        responseConsumed: () => {},
      }
    }
    const server = createServer()
    mount(server, { handler, serves: () => true, limits: { stalledMs }, logger: noLogger })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const caller = connect({ port: (server.address() as AddressInfo).port, host: '127.0.0.1' }).pause()
    caller.on('error', () => {})
    closers.push(
      () => server.closeAllConnections(),
      () => server.close(),
      () => caller.destroy(),
    )
    caller.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(requests))
    await eventually(() => expect(begun).toBeGreaterThan(0))
    return { caller, aborted, begun: () => begun }
  }

  test.each([1, 3])(
    'E15: ends with a caller that reads nothing of it, and no other one begins (%i in its pipeline)',
    async requests => {
      const { aborted, begun } = await get(32 * 1024 * 1024, 300, requests)
      await eventually(() => expect(aborted).toEqual(['cancelled']))
      expect(begun()).toBe(1)
    },
  )

  test.each([
    ['bodies', { status: 200, headers: [], bodyBytes: 8000 }],
    ['heads', { status: 204, headers: ['x', 'x'.repeat(8000)], bodyBytes: 0 }],
  ])('E15: ends with a caller that reads none of many small ones, which are %s', async (_, head) => {
    const handler: Handler = (_request, response) => {
      response.responseHead(head)
      if (head.bodyBytes > 0) response.responseData(Buffer.alloc(head.bodyBytes))
      response.responseEnd([])
      return discarding(response)
    }
    const server = createServer()
    mount(server, { handler, serves: () => true, limits: { stalledMs: 300 }, logger: noLogger })
    const caller = await call(server)
    const connected = once(server, 'connection')
    caller.pause().write('GET / HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(3000))
    const [accepted] = await connected
    await once(accepted, 'close')
  })

  test('is whole for a caller that reads it', async () => {
    const bytes = 8 * 1024 * 1024
    const { caller, aborted } = await get(bytes, 300)
    let read = 0
    caller.on('data', chunk => (read += chunk.length)).resume()
    await eventually(() => expect(read).toBeGreaterThan(bytes))
    expect(aborted).toEqual([])
  })
})

/** What a caller receives that requests `paths` at once, and whose connection ends. */
async function hear(answers: Record<string, (response: ResponseSink) => void>, paths: readonly string[]) {
  const told: string[] = []
  const handler: Handler = (request, response) => {
    queueMicrotask(() => answers[request.path]!(response))
    return { requestData() {}, requestEnd() {}, requestAbort: error => told.push(error.message), responseConsumed() {} }
  }
  const server = createServer()
  mount(server, { handler, serves: () => true, logger: noLogger })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const caller = connect((server.address() as AddressInfo).port, '127.0.0.1')
  closers.push(
    () => server.closeAllConnections(),
    () => server.close(),
    () => caller.destroy(),
  )
  let text = ''
  caller.on('data', chunk => (text += chunk)).on('error', () => {})
  caller.write(paths.map(path => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`).join(''))
  await once(caller, 'close')
  return { text, told }
}

const ABC = Buffer.from('abc')

describe('the requests of a pipeline', () => {
  /** A caller who sends `text`, and the requests that begin, with the ends of those whose caller leaves. */
  async function send(text: string, secrets?: Secrets) {
    const seen: string[] = []
    const responses: ResponseSink[] = []
    let consumed = 0
    const handler: Handler = ({ path }, response) => {
      seen.push(path)
      responses.push(response)
      return {
        requestData: chunk => response.requestConsumed(chunk.length),
        requestEnd: () => seen.push(`${path} whole`),
        requestAbort: error => seen.push(`${path} ${error.reason}`),
        responseConsumed: bytes => {
          consumed += bytes
        },
      }
    }
    const server = secrets === undefined ? createServer() : createHttpsServer(secrets.server)
    mount(server, { handler, serves: () => true, logger: noLogger })
    const caller = await call(server, secrets)
    let heard = ''
    caller.on('data', chunk => (heard += chunk))
    const [accepted] = await once(server, 'connection')
    caller.write(text)
    await eventually(() => expect(seen).toContain('/1 whole'))
    return { caller, accepted, seen, responses, heard: () => heard, consumed: () => consumed }
  }

  const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`
  const post = (path: string, bytes: number) =>
    `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: ${bytes}\r\n\r\n${'x'.repeat(bytes)}`
  const answer = (response: ResponseSink | undefined) => {
    response!.responseHead({ status: 200, headers: [], bodyBytes: ABC.length })
    response!.responseData(ABC)
    response!.responseEnd([])
  }

  test('E15: begin one after the other, and are answered in order', async () => {
    const { seen, responses, heard } = await send(get('/1') + post('/2', 100_000) + get('/3'))
    expect(seen).toEqual(['/1', '/1 whole'])
    answer(responses[0])
    await eventually(() => expect(seen.slice(2)).toEqual(['/2', '/2 whole']))
    answer(responses[1])
    await eventually(() => expect(seen.slice(4)).toEqual(['/3', '/3 whole']))
    answer(responses[2])
    await eventually(() => expect(heard().match(/\r\n\r\nabc/g)).toHaveLength(3))
  })

  test.each(['TCP', 'TLS'])('E15: are read only while few wait, over %s', async over => {
    const large = `GET /2 HTTP/1.1\r\nHost: a\r\nX: ${'x'.repeat(15_000)}\r\n\r\n`
    const secrets = over === 'TLS' ? await makeSecrets() : undefined
    const { caller, accepted, seen, responses, heard } = await send(get('/1'), secrets)
    await new Promise(resolve => caller.write(large.repeat(64), resolve))
    await send(get('/1'))
    expect(accepted.bytesRead).toBeLessThan(256 * 1024)
    for (let i = 0; i <= 64; i++) {
      await eventually(() => expect(responses).toHaveLength(i + 1))
      answer(responses[i])
    }
    await eventually(() => expect(heard().match(/\r\n\r\nabc/g)).toHaveLength(65))
    expect(seen).toHaveLength(2 * 65)
  })

  test.each(['TCP', 'TLS'])(
    "P1: alternate with large pages of the embedder's own, and somebody listens for bytes, over %s",
    async over => {
      const handler: Handler = (_request, response) => {
        setTimeout(() => answer(response), 5)
        return { requestData() {}, requestEnd() {}, requestAbort() {}, responseConsumed() {} }
      }
      const secrets = over === 'TLS' ? await makeSecrets() : undefined
      const page = Buffer.alloc(200_000, 'p')
      const pages = (_request: IncomingMessage, response: ServerResponse) => {
        response.setHeader('content-length', page.length)
        response.end(page)
      }
      const server = secrets === undefined ? createServer(pages) : createHttpsServer(secrets.server, pages)
      mount(server, { handler, serves: host => host === 'ours', logger: noLogger })
      server.on(secrets === undefined ? 'connection' : 'secureConnection', socket => socket.on('data', () => {}))
      const caller = await call(server, secrets)
      let [ours, theirs] = [0, 0]
      caller.on('data', chunk => {
        ours += chunk.toString('latin1').split('abc').length - 1
        theirs += chunk.toString('latin1').split('p').length - 1
      })
      const padded = (host: string) => `GET / HTTP/1.1\r\nHost: ${host}\r\nX: ${'x'.repeat(9000)}\r\n\r\n`
      for (let i = 0; i < 30; i++) caller.write(padded('ours') + padded('theirs'))
      await eventually(() => expect([ours, theirs >= 30 * page.length]).toEqual([30, true]))
    },
  )

  test.each(['TCP', 'TLS'])(
    "P1: end with their connection, which one of the embedder's own ends in the middle of them, over %s",
    async over => {
      const responses: ResponseSink[] = []
      const handler: Handler = (_request, response) => {
        responses.push(response)
        return discarding(response)
      }
      const pages = (request: IncomingMessage, response: ServerResponse) => {
        if (request.url === '/end') request.socket.destroy()
        response.end(Buffer.alloc(200_000))
      }
      const secrets = over === 'TLS' ? await makeSecrets() : undefined
      const server = secrets === undefined ? createServer(pages) : createHttpsServer(secrets.server, pages)
      mount(server, { handler, serves: host => host === 'ours', logger: noLogger })
      // Without a listener for bytes, Node does not read TCP as a stream.
      if (secrets === undefined) server.on('connection', socket => socket.on('data', () => {}))
      const caller = await call(server, secrets)
      const [accepted] = await once(server, secrets === undefined ? 'connection' : 'secureConnection')
      const send = async (host: string, ...paths: string[]) => {
        const text = paths.map(path => `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`).join('')
        await new Promise(resolve => caller.write(text, resolve))
        return text.length
      }
      await send('ours', ...Array(6).fill('/'))
      await eventually(() => expect(responses).toHaveLength(1))
      // They are parsed one after the other once fewer wait.
      const first = await send('theirs', '/end', '/', '/')
      await eventually(() => expect(accepted.readableLength).toBe(first))
      const second = await send('theirs', '/')
      await eventually(() => expect(accepted.readableLength).toBe(first + second))
      answer(responses[0])
      await once(accepted, 'close')
    },
  )

  test.each(['TCP', 'TLS'])(
    "P1: go on after an upgrade of the embedder's own whose body is read while Node has paused them, over %s",
    async over => {
      const seen: string[] = []
      const handler: Handler = ({ path }, response) => {
        seen.push(path)
        answer(response)
        return discarding(response)
      }
      const page = Buffer.alloc(24 * 1024 * 1024)
      const pages = (_request: IncomingMessage, response: ServerResponse) => void response.end(page)
      const secrets = over === 'TLS' ? await makeSecrets() : undefined
      const server = secrets === undefined ? createServer(pages) : createHttpsServer(secrets.server, pages)
      let upgraded = ''
      server.on('upgrade', (_request, socket) => {
        seen.push('upgrade')
        socket.on('data', (chunk: Buffer) => (upgraded += chunk)).on('error', () => {})
      })
      mount(server, { handler, serves: host => host === 'ours', logger: noLogger })
      if (secrets === undefined) server.on('connection', socket => socket.on('data', () => {}))
      const caller = (await call(server, secrets)).pause()
      const [accepted] = await once(server, secrets === undefined ? 'connection' : 'secureConnection')
      caller.write('GET / HTTP/1.1\r\nHost: theirs\r\n\r\n')
      await eventually(() => expect(accepted.writableNeedDrain).toBe(true))
      const offer = 'Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 9'
      caller.write(`GET /ours HTTP/1.1\r\nHost: ours\r\n\r\nGET / HTTP/1.1\r\nHost: theirs\r\n${offer}\r\n\r\nabc`)
      await eventually(() => expect(seen).toEqual(['upgrade']))
      await new Promise(resolve => caller.write('defghiHELLO', resolve))
      // Another caller's request is handled, so these bytes have arrived, too.
      await send(get('/1'))
      caller.resume()
      await eventually(() => expect(seen).toEqual(['upgrade', '/ours']))
      await eventually(() => expect(upgraded).toMatch(/HELLO$/))
    },
  )

  test('P1: `ws` reads what a WebSocket of the embedder over TLS has left when it ends', async () => {
    const secrets = await makeSecrets()
    const server = createHttpsServer(secrets.server)
    server.on('upgrade', (_request, socket) => void socket.pause())
    mount(server, { handler: () => discarding(DEAF), serves: () => false, logger: noLogger })
    const caller = await call(server, secrets)
    const [accepted] = await once(server, 'secureConnection')
    caller.write('GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n')
    await eventually(() => expect(accepted.isPaused()).toBe(true))
    caller.write(ABC)
    await eventually(() => expect(accepted.readableLength).toBe(ABC.length))
    accepted.destroy()
    expect(accepted.read(ABC.length)).toEqual(ABC)
  })

  test('do not begin behind a response that is cut', async () => {
    const { accepted, seen, responses } = await send(get('/1') + get('/2'))
    responses[0]!.responseHead({ status: 200, headers: [], bodyBytes: 3 })
    responses[0]!.responseAbort(new SallyportError('session-lost'))
    await once(accepted, 'close')
    expect(seen).toEqual(['/1', '/1 whole'])
  })

  test('E15: wait with one timer for all of a connection', async () => {
    const timers = vi.spyOn(globalThis, 'setTimeout')
    await send(get('/1') + get('/2').repeat(1000))
    const looks = timers.mock.calls.filter(([, ms]) => ms === LOOK_MS)
    timers.mockRestore()
    expect(looks).toHaveLength(1)
  })

  test.each(['TCP', 'TLS'])('E16: a caller that closes its half while a few wait is noticed, over %s', async over => {
    const { caller, seen } = await send(get('/1').repeat(3), over === 'TLS' ? await makeSecrets() : undefined)
    caller.end()
    await eventually(() => expect(seen).toEqual(['/1', '/1 whole', '/1 cancelled']))
  })

  test('while a few wait, the rest of a head is read, since Node gives it little time', async () => {
    const text = get('/1').repeat(4)
    const { caller, accepted } = await send(text.slice(0, -9))
    caller.write(text.slice(-9))
    await eventually(() => expect(accepted.bytesRead).toBe(text.length))
  })

  test.each([
    ['requests', get('/2').repeat(1000)],
    ['a body', post('/2', 1_000_000)],
  ])('E16: a caller that leaves %s behind is noticed', async (_, rest) => {
    const { caller, seen } = await send(get('/1') + rest)
    caller.resetAndDestroy()
    await eventually(() => expect(seen).toEqual(['/1', '/1 whole', '/1 cancelled']))
  })

  test('B1: a response that comes while its connection is being closed is not held', async () => {
    const { accepted, responses, consumed } = await send(get('/1'))
    accepted.destroy()
    answer(responses[0])
    await eventually(() => expect(consumed()).toBe(ABC.length))
  })
})

describe("an answer that an embedder's layer made invalid", () => {
  const head = (headers: string[], bodyBytes: number, chunks: Buffer[], trailers: string[] = []) => ({
    '/': (response: ResponseSink) => {
      response.responseHead({ status: 200, headers, bodyBytes })
      for (const chunk of chunks) response.responseData(chunk)
      response.responseEnd(trailers)
    },
  })

  test.each([
    ['longer than it says', head(['content-length', '3'], 3, [ABC, ABC]), 'body longer than announced'],
    ['shorter than it says', head(['content-length', '4'], 4, [ABC]), 'body shorter than announced'],
    ['with trailers that are none', head([], BODY_UNKNOWN, [ABC], ['a b', 'c']), 'head'],
  ])('is cut: %s', async (_, answers, why) => {
    const { text, told } = await hear(answers, ['/', '/'])
    expect(text).not.toMatch(/abcabc|abcHTTP|\r\n0\r\n\r\n$/)
    expect(told[0]).toBe(why)
  })

  test.each([
    [['content-length', '3', 'content-length', '4'], 3, 'content-length: 3'],
    [['transfer-encoding', 'chunked', 'content-length', '9', 'connection', 'x-a'], 3, 'content-length: 3'],
    [['content-length', '3', 'keep-alive', 'x'], BODY_UNKNOWN, 'Transfer-Encoding: chunked'],
  ])('announces one length: %j of %d bytes', async (headers, bodyBytes, line) => {
    const cut = { '/cut': (response: ResponseSink) => response.responseAbort(new SallyportError('cancelled')) }
    const { text } = await hear({ ...head(headers, bodyBytes, [ABC]), ...cut }, ['/', '/cut'])
    const [fields = ''] = text.split('\r\n\r\n')
    expect(fields.match(/(?:content-length|transfer-encoding): .*/gi)?.map(one => one.trim())).toEqual([line])
  })
})

test.each(['GET', 'HEAD'])('the name of a file reaches the caller of a %s unchanged', async method => {
  const name = Buffer.from('attachment; filename="\u00e9\u4e2d.txt"').toString('latin1')
  const handler: Handler = (_request, response) => {
    const headers = ['content-length', '3', 'content-disposition', name]
    response.responseHead({ status: 200, headers, bodyBytes: ABC.length })
    if (method === 'GET') response.responseData(ABC)
    response.responseEnd([])
    return discarding(response)
  }
  const server = createServer()
  mount(server, { handler, serves: () => true, logger: noLogger })
  const caller = await call(server)
  let text = ''
  caller.on('data', chunk => (text += chunk.toString('latin1')))
  caller.write(`${method} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`)
  await once(caller, 'end')
  expect(text).toContain(`\r\ncontent-disposition: ${name}\r\n`)
  expect(text).toContain('\r\ncontent-length: 3\r\n')
})

describe('a caller that reads its answer late', () => {
  /** In one piece, so that only the kernel's queue shows its progress. */
  const LARGE = Buffer.alloc(24 * 1024 * 1024)

  /** Answers `/large`, and others when the test does. */
  async function serve(limits: Partial<HttpLimits>) {
    const aborted: string[] = []
    const waiting: ResponseSink[] = []
    const handler: Handler = (request, response) => {
      if (request.path === '/large') {
        response.responseHead({ status: 200, headers: [], bodyBytes: LARGE.length })
        response.responseData(LARGE)
        response.responseEnd([])
      } else waiting.push(response)
      return {
        requestData: () => {},
        requestEnd: () => {},
        requestAbort: error => aborted.push(error.reason),
        responseConsumed: () => {},
      }
    }
    const server = createServer()
    mount(server, { handler, serves: () => true, limits, logger: noLogger })
    const caller = await call(server)
    return { caller, aborted, waiting, server }
  }

  const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`

  test('is not cut off if it reads slowly', async () => {
    const { caller, aborted } = await serve({ stalledMs: 600 })
    caller.pause()
    caller.write(get('/large'))
    const begun = performance.now()
    while (caller.bytesRead < LARGE.length && !caller.destroyed) {
      caller.read(128 * 1024)
      await new Promise(resolve => setTimeout(resolve, 10))
    }
    // All of it took longer than the limit.
    expect(performance.now() - begun).toBeGreaterThan(600)
    expect(caller.bytesRead).toBeGreaterThan(LARGE.length)
    expect(aborted).toEqual([])
  })

  test.each([LARGE.length, BODY_UNKNOWN])('is cut if there is no room for it (%d)', async bodyBytes => {
    const { caller, waiting, server } = await serve({})
    const connected = once(server, 'connection')
    caller.pause().write(get('/waits'))
    const [accepted] = await connected
    await eventually(() => expect(waiting.length).toBe(1))
    const [response] = waiting
    response!.responseHead({ status: 200, headers: [], bodyBytes })
    response!.responseData(LARGE)
    response!.responseEnd([])
    response!.responseAbort(new SallyportError('overloaded'))
    await once(accepted, 'close')
  })
})
