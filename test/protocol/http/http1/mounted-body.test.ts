import { once } from 'node:events'
import {
  createServer,
  type Server as HttpServer,
  type IncomingMessage,
  type ServerOptions,
  ServerResponse,
} from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { afterEach, describe, expect, test } from 'vitest'
import { liveBytes } from '../../../../load-tests/lib/garbage.ts'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import { discarding } from '../../../../protocol/base/guard.ts'
import { noLogger } from '../../../../protocol/base/log.ts'
import { BODY_UNKNOWN, type Handler, type ResponseSink } from '../../../../protocol/exchange.ts'
import { mount } from '../../../../protocol/http/http1/mount.ts'
import type { HttpLimits } from '../../../../protocol/http/limits.ts'
import { makeSecrets, type Secrets } from '../../../support/secrets.ts'
import { eventually } from '../../../support/until.ts'

/** More than one window. */
const SENT_BYTES = 300_000
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

  test.each(['requestData', 'requestEnd'] as const)(
    'P1 a handler that throws in %s ends its connection',
    async method => {
      let aborted: SallyportError | undefined
      const handler: Handler = (_request, response) => ({
        ...discarding(response),
        requestAbort: error => {
          aborted = error
        },
        [method]() {
          throw new Error('a defect')
        },
      })
      const server = createServer()
      mount(server, { handler, serves: () => true, logger: noLogger })
      const caller = await call(server)
      caller.resume().write('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx')
      await once(caller, 'close')
      expect(aborted?.reason).toBe('internal')
    },
  )

  test('a body that stops behind the begin of its answer is waited for', async () => {
    const seen = new Map<string, { response: ResponseSink; body: string; aborted?: SallyportError }>()
    const handler: Handler = ({ path }, response) => {
      const one = { response, body: '' } as NonNullable<ReturnType<typeof seen.get>>
      seen.set(path, one)
      if (path === '/both') response.responseHead({ status: 200, headers: [], bodyBytes: 5 })
      return {
        requestData(chunk) {
          one.body += chunk
          response.requestConsumed(chunk.length)
        },
        requestEnd: () => response.responseEnd([]),
        requestAbort: error => {
          one.aborted = error
        },
        responseConsumed() {},
      }
    }
    const server = createServer()
    mount(server, { handler, serves: () => true, limits: { bodyIdleMs: 50 }, logger: noLogger })
    const caller = await call(server)
    let text = ''
    caller.on('data', chunk => (text += chunk))
    const head = (path: string) => `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx`
    caller.write(head('/both'))
    await eventually(() => expect(seen.get('/both')?.body).toBe('x'))
    const later = connect((server.address() as AddressInfo).port, '127.0.0.1')
    later.on('error', () => {}).write(head('/'))
    await once(later.resume(), 'end')
    expect(seen.get('/')!.aborted?.reason).toBe('request-timeout')
    expect(seen.get('/both')!.aborted).toBeUndefined()
    seen.get('/both')!.response.responseData(Buffer.from('still'))
    caller.write('y')
    await eventually(() => expect(text).toMatch(/still$/))
    expect(seen.get('/both')!.body).toBe('xy')
  })
})

test.each([
  ['of known length', 'GET', 200, 2],
  ['of no length', 'GET', 200, 0],
  ['to HEAD', 'HEAD', 200, BODY_UNKNOWN],
  ['204', 'POST', 204, BODY_UNKNOWN],
])('B3: a complete answer that its upstream does not end keeps no next request waiting: %s', async (...given) => {
  const [, method, status, bodyBytes] = given
  const aborted: (string | undefined)[] = []
  const responses: ResponseSink[] = []
  const handler: Handler = (_request, response) => {
    const n = responses.push(response) - 1
    response.responseHead({ status, headers: [], bodyBytes })
    if (bodyBytes > 0) response.responseData(Buffer.from('ok'))
    return {
      ...discarding(response),
      requestAbort: ({ reason }) => {
        aborted[n] = reason
      },
    }
  }
  const server = createServer()
  mount(server, { handler, serves: () => true, logger: noLogger })
  const caller = await call(server)
  let text = ''
  caller.on('data', chunk => (text += chunk))
  const body = method === 'POST' ? 'Content-Length: 1\r\n\r\nx' : '\r\n'
  for (const answers of [1, 2, 3]) {
    caller.write(`${method} / HTTP/1.1\r\nHost: a\r\n${body}`)
    await eventually(() => expect(text.match(/HTTP\/1\.1 /g)).toHaveLength(answers))
  }
  responses[1]!.responseEnd([])
  caller.destroy()
  await eventually(() => expect(aborted).toEqual(['cancelled', undefined, 'cancelled']))
})

test('B3: nor does such an answer wait for a body that its upstream does not take', async () => {
  const heard: string[] = []
  const handler: Handler = (_request, response) => {
    response.responseHead({ status: 200, headers: [], bodyBytes: 2 })
    response.responseData(Buffer.from('ok'))
    return {
      ...discarding(response),
      requestData() {},
      requestEnd: () => heard.push('end'),
      requestAbort: ({ reason }) => heard.push(reason),
    }
  }
  const server = createServer()
  mount(server, { handler, serves: () => true, limits: { drainMs: 50 }, logger: noLogger })
  const caller = await call(server)
  let text = ''
  caller.on('data', chunk => (text += chunk))
  caller.write(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n${'x'.repeat(1_000_000)}`)
  caller.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
  await eventually(() => expect(text.match(/HTTP\/1\.1 /g)).toHaveLength(2))
  expect(heard).toEqual(['cancelled', 'end'])
})

test.each([70_000, 100_000, 131_000])('B3: nor for the end of one that Node has read: %i bytes', async bytes => {
  const heard: (string | number)[] = []
  const handler: Handler = (_request, response) => {
    let received = 0
    response.responseHead({ status: 200, headers: [], bodyBytes: 2 })
    response.responseData(Buffer.from('ok'))
    return {
      ...discarding(response),
      requestData: ({ length }) => (received += length),
      requestEnd: () => heard.push(received),
      requestAbort: ({ reason }) => heard.push(reason),
    }
  }
  const server = createServer()
  mount(server, { handler, serves: () => true, logger: noLogger })
  const caller = await call(server)
  let text = ''
  caller.on('data', chunk => (text += chunk))
  caller.write(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ${bytes}\r\n\r\n${'x'.repeat(bytes)}`)
  await eventually(() => expect(text).toMatch(/ok$/))
  caller.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
  await eventually(() => expect(text.match(/HTTP\/1\.1 /g)).toHaveLength(2))
  expect(heard.slice(0, 2)).toEqual([bytes, 0])
})

test.each([
  [204, 0],
  [304, BODY_UNKNOWN],
  [200, 0],
  [200, 2],
])('an answer that has no end yet leaves before the end of its request: %i, %i bytes', async (status, bodyBytes) => {
  const handler: Handler = (_request, response) => {
    response.responseHead({ status, headers: [], bodyBytes })
    if (bodyBytes > 0) response.responseData(Buffer.from('ok'))
    return discarding(response)
  }
  const server = createServer()
  mount(server, { handler, serves: () => true, logger: noLogger })
  const caller = await call(server)
  caller.write('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf')
  const [answer] = await once(caller, 'data')
  expect(String(answer)).toContain(`HTTP/1.1 ${status} `)
})

test('B3: a body that its upstream takes slowly after a complete answer is not cut', async () => {
  let taken = 0
  let aborted: string | undefined
  const handler: Handler = (_request, response) => {
    response.responseHead({ status: 200, headers: [], bodyBytes: 2 })
    response.responseData(Buffer.from('ok'))
    const chunks: Uint8Array[] = []
    const takes = setInterval(() => {
      const bytes = chunks.shift()?.length ?? 0
      taken += bytes
      response.requestConsumed(bytes)
    }, 20)
    closers.push(() => clearInterval(takes))
    const requestAbort = ({ reason }: SallyportError) => {
      aborted = reason
    }
    return { ...discarding(response), requestData: chunk => chunks.push(chunk), requestAbort }
  }
  const server = createServer()
  mount(server, { handler, serves: () => true, limits: { drainMs: 200 }, logger: noLogger })
  const caller = await call(server)
  caller.resume().write(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n${'x'.repeat(3_000_000)}`)
  await eventually(() => expect(aborted !== undefined || taken === 3_000_000).toBe(true))
  expect(aborted).toBeUndefined()
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

test.each([
  ['TCP', 'HTTP/1.1\r\nConnection: close', undefined],
  ['TCP', 'HTTP/1.0', undefined],
  ['TLS', 'HTTP/1.1\r\nConnection: close', makeSecrets],
])(
  'E4: over %s, a caller that still sends reads an early answer before its connection ends: %j',
  async (_, version, secrets) => {
    const handler: Handler = (_request, response) => {
      response.responseHead({ status: 413, headers: [], bodyBytes: 3 })
      response.responseData(ABC)
      response.responseEnd([])
      return discarding(response)
    }
    const made = await secrets?.()
    const server = made === undefined ? createServer() : createHttpsServer(made.server)
    mount(server, { handler, serves: () => true, logger: noLogger })
    const caller = await call(server, made)
    let text = ''
    caller.on('data', chunk => (text += chunk))
    const ended = once(caller, 'close')
    caller.end(`POST / ${version}\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n${'x'.repeat(8_000_000)}`)
    await ended
    expect(text).toMatch(/^HTTP\/1.1 413 .*\r\n\r\nabc$/s)
    expect(caller.bytesWritten).toBeGreaterThan(8_000_000)
  },
)

test.each([
  ['a request of ours', 'Host: a'],
  ["a request of the embedder's", 'Host: b'],
  ["an upgrade of the embedder's", 'Host: b\r\nConnection: upgrade\r\nUpgrade: other'],
])('E4: behind a response that ends the connection, %s does not begin', async (_, fields) => {
  const begun: unknown[] = []
  const handler: Handler = ({ path }, response) => {
    begun.push(path)
    response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
    response.responseEnd([])
    return discarding(response)
  }
  const server = createServer(({ url }) => begun.push(url))
  server.on('upgrade', ({ url }, socket) => {
    begun.push(url)
    socket.destroy()
  })
  mount(server, { handler, serves: host => host === 'a', logger: noLogger })
  const connected = once(server, 'connection')
  const caller = await call(server)
  caller.allowHalfOpen = true
  caller.resume().write('GET /first HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n')
  await once(caller, 'end')
  caller.end(`GET /second HTTP/1.1\r\n${fields}\r\n\r\n`)
  const [socket] = await connected
  if (!socket.destroyed) await once(socket, 'close')
  expect(begun).toEqual(['/first'])
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
      await eventually(() => expect(aborted).toEqual(['request-timeout']))
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
    caller.pause()
    const [accepted] = (await connected) as [Socket]
    const closed = once(accepted, 'close')
    // One by one, since a request that had to wait for the answer before it would end the connection, too.
    while (accepted.writableLength === 0) {
      const served = once(server, 'request')
      caller.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
      await served
    }
    await closed
  })

  test.each([3, BODY_UNKNOWN])('begins before its body comes (length %i)', async bodyBytes => {
    const handler: Handler = (_request, response) => {
      response.responseHead({ status: 200, headers: [], bodyBytes })
      return discarding(response)
    }
    const server = createServer()
    mount(server, { handler, serves: () => true, logger: noLogger })
    const caller = await call(server)
    caller.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
    const [head] = await once(caller, 'data')
    expect(String(head)).toMatch(/^HTTP\/1\.1 200 OK\r\n[\s\S]*\r\n\r\n$/)
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
  async function send(text: string, secrets?: Secrets, options: ServerOptions = {}) {
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
    const server = secrets === undefined ? createServer(options) : createHttpsServer({ ...secrets.server, ...options })
    mount(server, { handler, serves: () => true, logger: noLogger })
    const caller = await call(server, secrets)
    let heard = ''
    caller.on('data', chunk => (heard += chunk))
    const [accepted] = await once(server, secrets === undefined ? 'connection' : 'secureConnection')
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

  test('E15: do not begin while another is being answered, and the connection ends with the first that waited', async () => {
    const { caller, seen, responses, heard } = await send(get('/1') + post('/2', 100_000) + get('/3'))
    expect(seen).toEqual(['/1', '/1 whole'])
    answer(responses[0])
    await eventually(() => expect(seen.slice(2)).toEqual(['/2', '/2 whole']))
    answer(responses[1])
    await once(caller, 'close')
    expect(heard()).toMatch(/^HTTP[\s\S]+\r\n\r\nabcHTTP[\s\S]+connection: close[\s\S]*\r\n\r\nabc$/i)
    expect(seen).toHaveLength(4)
  })

  test.each(['TCP', 'TLS'])(
    'begin although an answer that their caller has read has not ended, over %s',
    async over => {
      const secrets = over === 'TLS' ? await makeSecrets() : undefined
      const { caller, accepted, responses, heard } = await send(get('/1'), secrets)
      responses[0]!.responseHead({ status: 200, headers: [], bodyBytes: ABC.length })
      responses[0]!.responseData(ABC)
      await eventually(() => expect(heard()).toMatch(/abc$/))
      caller.write(post('/2', 3))
      await eventually(() => expect(accepted.bytesRead).toBe(get('/1').length + post('/2', 3).length))
      responses[0]!.responseEnd([])
      await eventually(() => expect(responses).toHaveLength(2))
      answer(responses[1])
      await once(caller, 'close')
      expect(heard().match(/\r\n\r\nabc/g)).toHaveLength(2)
    },
  )

  test.each(['TCP', 'TLS'])('E15: that wait for long take nothing, however many they are, over %s', async over => {
    const secrets = over === 'TLS' ? await makeSecrets() : undefined
    let made = 0
    class Counted<R extends IncomingMessage> extends ServerResponse<R> {
      constructor(request: R) {
        super(request)
        made++
      }
    }
    const { caller, accepted, responses, heard } = await send(get('/1'), secrets, { ServerResponse: Counted })
    const rest = post('/2', 1_000_000) + get('/3').repeat(5000) + post('/4', 1_000_000)
    await new Promise(resolve => caller.write(rest, resolve))
    await eventually(() => expect(accepted.bytesRead).toBeGreaterThan(rest.length))
    answer(responses[0])
    await once(caller, 'close')
    expect([heard().match(/\r\n\r\nabc/g)?.length, made]).toEqual([1, 2])
  })

  test.each(['TCP', 'TLS'])("go on up to one of ours behind the embedder's own, over %s", async over => {
    const secrets = over === 'TLS' ? await makeSecrets() : undefined
    const page = Buffer.alloc(200_000, 'p')
    const pages = (_request: IncomingMessage, response: ServerResponse) => {
      response.setHeader('content-length', page.length)
      response.end(page)
    }
    const server = secrets === undefined ? createServer(pages) : createHttpsServer(secrets.server, pages)
    const seen: string[] = []
    const handler: Handler = ({ path }, response) => {
      seen.push(path)
      setTimeout(() => answer(response), 5)
      return discarding(response)
    }
    mount(server, { handler, serves: host => host === 'ours', logger: noLogger })
    const caller = await call(server, secrets)
    let heard = ''
    caller.on('data', chunk => (heard += chunk))
    const one = (host: string, path: string) => `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`
    caller.write(
      one('ours', '/1') + one('theirs', '/2') + one('theirs', '/3') + one('ours', '/4') + one('theirs', '/5'),
    )
    await once(caller, 'close')
    expect(heard.match(/\r\n\r\n(?:abc|p+)/g)?.map(body => body.length - 4)).toEqual([3, page.length, page.length, 3])
    expect(seen).toEqual(['/1', '/4'])
  })

  test.each([
    ['an upgrade', 'Connection: upgrade\r\nUpgrade: websocket\r\n'],
    ['an upgrade with a body', 'Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 3\r\n'],
    ['an expectation', 'Expect: 100-continue\r\nContent-Length: 3\r\n'],
    ['a tunnel', '', 'CONNECT a:1'],
  ])('P1: among those that wait, %s is ignored', async (_, fields, method = 'POST /2') => {
    const { caller, seen, responses, heard } = await send(
      `${get('/1')}${get('/1')}${method} HTTP/1.1\r\nHost: a\r\n${fields}\r\nabc${get('/3')}`,
    )
    answer(responses[0])
    await eventually(() => expect(responses).toHaveLength(2))
    answer(responses[1])
    await once(caller, 'close')
    expect(heard().match(/HTTP\/1.1 /g)).toHaveLength(2)
    expect(seen).toEqual(['/1', '/1 whole', '/1', '/1 whole'])
  })

  test.each([
    ['behind one that waited, over TCP', get('/1') + get('/2'), undefined],
    ['behind one that waited, over TLS', get('/1') + get('/2'), makeSecrets],
    ['behind an upgrade offer', get('/1').replace('Host', 'Connection: upgrade\r\nUpgrade: h2c\r\nHost'), undefined],
  ])('%s: are discarded until their caller has read the answer before them', async (_, text, secrets) => {
    const { caller, accepted, responses, heard } = await send(text, await secrets?.())
    if (text.includes('/2')) {
      answer(responses[0])
      await eventually(() => expect(responses).toHaveLength(2))
    }
    // More than the caller's kernel takes, and less than ours.
    const body = Buffer.alloc(300_000)
    caller.pause()
    const last = responses.at(-1)!
    last.responseHead({ status: 200, headers: [], bodyBytes: body.length })
    last.responseData(body)
    last.responseEnd([])
    await once(accepted, 'finish')
    await new Promise(resolve => caller.write(get('/3'), resolve))
    caller.resume()
    await once(caller, 'close')
    expect(heard().length).toBeGreaterThan(body.length)
  })

  test('do not begin behind a response that is cut', async () => {
    const { accepted, seen, responses } = await send(get('/1') + get('/2'))
    responses[0]!.responseHead({ status: 200, headers: [], bodyBytes: 3 })
    responses[0]!.responseAbort(new SallyportError('session-lost'))
    await once(accepted, 'close')
    expect(seen).toEqual(['/1', '/1 whole'])
  })

  test.each(['TCP', 'TLS'])('E16: a caller that closes its half is noticed, over %s', async over => {
    const { caller, seen } = await send(get('/1').repeat(3), over === 'TLS' ? await makeSecrets() : undefined)
    caller.end()
    await eventually(() => expect(seen).toEqual(['/1', '/1 whole', '/1 cancelled']))
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

test('E15 chunks of one byte behind what a caller does not read keep little more than their size', async () => {
  const sink = Promise.withResolvers<ResponseSink>()
  let consumed = 0
  const handler: Handler = (_request, response) => {
    sink.resolve(response)
    return { ...discarding(response), responseConsumed: bytes => (consumed += bytes) }
  }
  const server = createServer()
  mount(server, { handler, serves: () => true, logger: noLogger })
  const caller = await call(server)
  caller.pause()
  caller.write('GET / HTTP/1.1\r\nhost: a.example\r\nconnection: close\r\n\r\n')
  const response = await sink.promise
  const [fill, count] = [8_000_000, 20_000]
  response.responseHead({ status: 200, headers: [], bodyBytes: fill + count })
  response.responseData(Buffer.alloc(fill))
  await new Promise(setImmediate)
  const before = await liveBytes()
  for (let i = 0; i < count; i++) response.responseData(Buffer.alloc(1, 65 + (i % 26)))
  expect((await liveBytes()) - before).toBeLessThan(count * 8)
  response.responseEnd([])
  const got = Buffer.concat(await caller.toArray()).subarray(-count)
  expect(got.equals(Buffer.from(Array.from({ length: count }, (_, i) => 65 + (i % 26))))).toBe(true)
  expect(consumed).toBe(fill + count)
})

describe("a WebSocket on an embedder's server", () => {
  test.each(['TCP', 'TLS'])('whose caller ends its half is passed on to its end, over %s', async over => {
    const secrets = over === 'TLS' ? await makeSecrets() : undefined
    const heard = { bytes: 0, ended: false, aborted: false }
    let answer!: ResponseSink
    const handler: Handler = (_request, response) => {
      answer = response
      response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
      return {
        requestData: ({ length }) => (heard.bytes += length),
        requestEnd: () => (heard.ended = true),
        requestAbort: () => (heard.aborted = true),
        responseConsumed: () => {},
      }
    }
    const server = secrets === undefined ? createServer() : createHttpsServer(secrets.server)
    mount(server, { handler, serves: () => true, logger: noLogger })
    const caller = await call(server, secrets)
    let text = ''
    caller.on('data', chunk => (text += chunk))
    const offer = `Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${'A'.repeat(22)}==`
    caller.write(`GET / HTTP/1.1\r\nHost: a\r\n${offer}\r\n\r\n`)
    await eventually(() => expect(text).toMatch(/^HTTP\/1\.1 101 [\s\S]*\r\n\r\n$/))
    caller.end(Buffer.alloc(SENT_BYTES))
    await eventually(() => expect(heard.bytes).toBeGreaterThan(0))
    // The upstream takes it late, so the end of the caller's half has come long before.
    await new Promise(resolve => setTimeout(resolve, 100))
    for (let taken = 0; taken < SENT_BYTES; ) {
      await eventually(() => expect(heard.aborted || heard.bytes > taken).toBe(true))
      expect(heard.aborted).toBe(false)
      answer.requestConsumed(heard.bytes - taken)
      taken = heard.bytes
    }
    await eventually(() => expect(heard.ended).toBe(true))
    answer.responseData(Buffer.from('the last word'))
    answer.responseEnd([])
    await once(caller, 'end')
    expect(text).toMatch(/the last word$/)
    expect(heard).toEqual({ bytes: SENT_BYTES, ended: true, aborted: false })
  })
})
