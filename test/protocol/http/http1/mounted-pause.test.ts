/** A body that is not read on an embedder's server: what Node holds of it, and that its connection goes on behind every end of it. */
import { once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { SallyportError } from '../../../../protocol/base/errors.ts'
import { discarding } from '../../../../protocol/base/guard.ts'
import { noLogger } from '../../../../protocol/base/log.ts'
import { ReadPause } from '../../../../protocol/base/read-pause.ts'
import { resetSocket } from '../../../../protocol/base/reset-socket.ts'
import { BODY_UNKNOWN, type Handler, type ResponseSink } from '../../../../protocol/exchange.ts'
import { mount } from '../../../../protocol/http/http1/mount.ts'
import { makeSecrets } from '../../../support/secrets.ts'
import { eventually } from '../../../support/until.ts'

const secrets = await makeSecrets()
const closers: (() => void)[] = []
afterEach(() => {
  vi.restoreAllMocks()
  for (const close of closers.splice(0)) close()
})

const OVER = ['TCP', 'TLS'] as const
/** Enough for a pause. */
const AHEAD_BYTES = 70_000
const ONE_BYTE_CHUNKS = '1\r\nx\r\n'.repeat(90_000)
/** What one read may bring. */
const READ_BYTES = 64 * 1024
const BODY_BYTES = 150_000

/** An exchange of the embedder's server, whose upstream end takes nothing by itself. */
interface Exchange {
  readonly response: ResponseSink
  received: number
  pieces: number
  taken: number
  ended: boolean
  /** Bytes of its answer that have left. */
  left: number
  aborted?: string
}

/** Hosts other than `a` are the embedder's. */
async function open(over: (typeof OVER)[number]) {
  const exchanges: Exchange[] = []
  const handler: Handler = ({ path }, response) => {
    const exchange: Exchange = { response, received: 0, pieces: 0, taken: 0, ended: false, left: 0 }
    exchanges.push(exchange)
    if (path === '/next') answer(response)
    return {
      ...discarding(response),
      requestData({ length }) {
        exchange.received += length
        exchange.pieces++
      },
      requestEnd() {
        exchange.ended = true
      },
      responseConsumed(bytes) {
        exchange.left += bytes
      },
      requestAbort({ reason }) {
        exchange.aborted = reason
      },
    }
  }
  const server = over === 'TCP' ? createServer() : createHttpsServer(secrets.server)
  server.keepAliveTimeout = 0
  server.on('request', (_request, response) => response.end('theirs'))
  mount(server, { handler, serves: host => host === 'a', limits: { drainMs: 200 }, logger: noLogger })
  const requests: IncomingMessage[] = []
  server.on('request', request => requests.push(request))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const place = { port: (server.address() as AddressInfo).port, host: '127.0.0.1' }
  const caller = over === 'TCP' ? connect(place) : connectTls({ ...place, ca: secrets.ca })
  caller.setNoDelay()
  caller.on('error', () => {})
  const accepting = once(server, over === 'TCP' ? 'connection' : 'secureConnection')
  closers.push(
    () => server.closeAllConnections(),
    () => server.close(),
    () => caller.destroy(),
  )
  let heard = ''
  caller.on('data', chunk => (heard += chunk))
  const [accepted] = (await accepting) as [Socket]
  const statuses = () => heard.match(/(?<=HTTP\/1\.1 )\d+/g) ?? []
  return { caller, accepted, exchanges, requests, statuses }
}

function answer(response: ResponseSink): void {
  response.responseHead({ status: 200, headers: [], bodyBytes: 2 })
  response.responseData(Buffer.from('ok'))
  response.responseEnd([])
}

/** Takes what is there. Upstream ends do so even behind their answer. */
function take(exchange: Exchange): void {
  const more = exchange.received - exchange.taken
  exchange.taken += more
  if (more > 0) exchange.response.requestConsumed(more)
}

function takeAll(exchange: Exchange): void {
  const takes = setInterval(take, 1, exchange)
  closers.push(() => clearInterval(takes))
}

const head = (path: string, length: number | 'chunked', host = 'a') => {
  const form = length === 'chunked' ? 'Transfer-Encoding: chunked' : `Content-Length: ${length}`
  return `POST ${path} HTTP/1.1\r\nHost: ${host}\r\n${form}\r\n\r\n`
}

/** Resolves after what was sent has had several turns of the event loop to be read in. */
async function sent(caller: Socket, text: string): Promise<void> {
  await new Promise(resolve => caller.write(text, resolve))
  for (let i = 0; i < 20; i++) await new Promise(resolve => setTimeout(resolve, 1))
}

const waiting = (request: IncomingMessage | Socket) =>
  (request as unknown as { _readableState: { buffer: unknown[] } })._readableState.buffer.length

describe.each(OVER)('B1 over %s', over => {
  test('of chunks of one byte that nobody takes, none waits in a buffer of its own, and none is lost', async () => {
    const { caller, accepted, exchanges, requests } = await open(over)
    caller.write(`${head('/', 'chunked')}${AHEAD_BYTES.toString(16)}\r\n${'x'.repeat(AHEAD_BYTES)}\r\n`)
    await eventually(() => expect(exchanges[0]?.received).toBe(AHEAD_BYTES))
    const before = accepted.bytesRead
    await sent(caller, ONE_BYTE_CHUNKS)
    expect([waiting(requests[0]!), accepted.bytesRead - before <= READ_BYTES]).toEqual([0, true])
    takeAll(exchanges[0]!)
    caller.write('0\r\n\r\n')
    await eventually(() => expect(exchanges[0]!.ended).toBe(true))
    expect(exchanges[0]!.received).toBe(AHEAD_BYTES + ONE_BYTE_CHUNKS.length / 6)
  })

  test('nor do those of a body whose request waits for its turn', async () => {
    const { caller, accepted, exchanges, requests } = await open(over)
    caller.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
    await eventually(() => expect(exchanges).toHaveLength(1))
    await sent(caller, head('/second', 'chunked') + ONE_BYTE_CHUNKS)
    expect(waiting(requests[1]!)).toBeLessThanOrEqual(1)
    expect(accepted.bytesRead).toBeLessThan(3 * READ_BYTES)
    answer(exchanges[0]!.response)
    await eventually(() => expect(exchanges).toHaveLength(2))
    takeAll(exchanges[1]!)
    caller.write('0\r\n\r\n')
    await eventually(() => expect(exchanges[1]!.ended).toBe(true))
    expect(exchanges[1]!.received).toBe(ONE_BYTE_CHUNKS.length / 6)
  })

  test('nor if Node resumes its socket meanwhile, since the answer before has left', async () => {
    const { caller, accepted, exchanges, requests } = await open(over)
    caller.pause()
    caller.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
    await eventually(() => expect(exchanges).toHaveLength(1))
    exchanges[0]!.response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
    exchanges[0]!.response.responseData(Buffer.alloc(32 * 1024 * 1024))
    await eventually(() => expect(accepted.writableNeedDrain).toBe(true))
    await sent(caller, head('/second', 'chunked'))
    await eventually(() => expect(requests).toHaveLength(2))
    await sent(caller, ONE_BYTE_CHUNKS.slice(0, READ_BYTES))
    const resumed = once(accepted, 'resume')
    caller.resume()
    await resumed
    await sent(caller, ONE_BYTE_CHUNKS.slice(0, READ_BYTES))
    expect(waiting(requests[1]!)).toBeLessThanOrEqual(1)
  })
})

test('B1 of TLS records of one byte that nobody takes, none waits in a buffer of its own', async () => {
  const { caller, accepted, exchanges, requests } = await open('TLS')
  caller.write(head('/', 1_000_000) + 'x'.repeat(AHEAD_BYTES))
  await eventually(() => expect(exchanges[0]?.received).toBe(AHEAD_BYTES))
  const before = accepted.bytesRead
  for (let left = 20_000; left > 0; left--) {
    caller.write('x')
    await new Promise(setImmediate)
  }
  expect([waiting(requests[0]!), accepted.bytesRead - before <= READ_BYTES]).toEqual([0, true])
  takeAll(exchanges[0]!)
  await eventually(() => expect(exchanges[0]!.received).toBe(AHEAD_BYTES + 20_000))
})

/** Each ends a pause of the exchange. `status`: of what the caller reads. */
const ENDS: Record<string, { status: string; ends: (exchange: Exchange) => void }> = {
  'its upstream takes it': {
    status: '200',
    ends: exchange => {
      takeAll(exchange)
      void eventually(() => expect(exchange.ended).toBe(true)).then(() => answer(exchange.response))
    },
  },
  'its upstream fails': { status: '502', ends: ({ response }) => response.responseAbort(failure()) },
  'its upstream answers early, and takes the rest': {
    status: '200',
    ends: exchange => {
      answer(exchange.response)
      takeAll(exchange)
    },
  },
  'its upstream answers early, does not end that, and takes nothing': {
    status: '200',
    ends: ({ response }) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: 2 })
      response.responseData(Buffer.from('ok'))
    },
  },
  'its upstream fails behind its answer': {
    status: '200',
    ends: ({ response }) => {
      response.responseHead({ status: 200, headers: [], bodyBytes: 2 })
      response.responseData(Buffer.from('ok'))
      response.responseAbort(failure())
    },
  },
  'its upstream fails behind the end of its answer': {
    status: '200',
    ends: exchange => {
      answer(exchange.response)
      const hasLeft = eventually(() => expect(exchange.left).toBe(2))
      void hasLeft.then(() => exchange.response.responseAbort(failure()))
    },
  },
  'its answer cannot be sent': {
    status: '502',
    ends: ({ response }) => response.responseHead({ status: 600, headers: [], bodyBytes: 0 }),
  },
}

const failure = () => new SallyportError('session-lost')

const FORMS = ['of known length', 'in chunks of one byte'] as const

function bodyOf(form: (typeof FORMS)[number]): string {
  if (form === 'of known length') return head('/', BODY_BYTES) + 'x'.repeat(BODY_BYTES)
  return `${head('/', 'chunked')}${'1\r\nx\r\n'.repeat(BODY_BYTES)}0\r\n\r\n`
}

const cases = OVER.flatMap(over => FORMS.flatMap(form => Object.keys(ENDS).map(end => [over, form, end] as const)))

test.each(cases)('B3: over %s, behind a body %s that nobody took, requests are served: %s', async (over, form, end) => {
  const begins = vi.spyOn(ReadPause.prototype, 'begin')
  const { caller, exchanges, statuses } = await open(over)
  const { status, ends } = ENDS[end]!
  caller.write(bodyOf(form))
  await eventually(() => expect(begins).toHaveBeenCalled())
  expect(exchanges[0]!.ended).toBe(false)
  ends(exchanges[0]!)
  await eventually(() => expect(statuses()).toEqual([status]))
  caller.write(`${head('/', 1, 'theirs')}x`)
  await eventually(() => expect(statuses()).toEqual([status, '200']))
  caller.write(`${head('/next', 1)}x`)
  await eventually(() => expect(statuses()).toEqual([status, '200', '200']))
})

describe.each(OVER)('B3: over %s, behind a body that has arrived, but is not taken,', over => {
  const whole = head('/', AHEAD_BYTES) + 'x'.repeat(AHEAD_BYTES)
  const next = `${head('/next', 1)}x`

  test('the next request is read', async () => {
    const begins = vi.spyOn(ReadPause.prototype, 'begin')
    const { caller, exchanges, statuses } = await open(over)
    caller.write(whole)
    await eventually(() => expect(exchanges[0]?.ended).toBe(true))
    expect(begins).toHaveBeenCalled()
    answer(exchanges[0]!.response)
    await eventually(() => expect(statuses()).toEqual(['200']))
    caller.write(next)
    await eventually(() => expect(statuses()).toEqual(['200', '200']))
  })

  test('the next request begins, although it came before the answer', async () => {
    const { caller, exchanges, statuses } = await open(over)
    caller.write(whole + next)
    await eventually(() => expect(exchanges[0]?.ended).toBe(true))
    answer(exchanges[0]!.response)
    await eventually(() => expect(statuses()).toEqual(['200', '200']))
  })

  test('what is taken late begins no reading of the next body', async () => {
    const { caller, accepted, exchanges } = await open(over)
    caller.write(whole)
    await eventually(() => expect(exchanges[0]?.ended).toBe(true))
    answer(exchanges[0]!.response)
    caller.write(head('/', 10_000_000) + 'x'.repeat(10_000_000))
    await eventually(() => expect(exchanges[1]?.received).toBeGreaterThan(READ_BYTES))
    const before = accepted.bytesRead
    take(exchanges[0]!)
    for (let i = 0; i < 20; i++) await new Promise(resolve => setTimeout(resolve, 1))
    expect(accepted.bytesRead).toBe(before)
  })
})

const leavings = OVER.flatMap(over => FORMS.map(form => [over, form] as const))

test.each(leavings)(
  'E16: over %s, a caller that leaves behind a body %s that nobody takes is noticed',
  async (over, form) => {
    const begins = vi.spyOn(ReadPause.prototype, 'begin')
    const { caller, exchanges } = await open(over)
    caller.write(bodyOf(form))
    await eventually(() => expect(begins).toHaveBeenCalled())
    resetSocket(caller)
    await eventually(() => expect(exchanges[0]!.aborted).toBe('cancelled'))
  },
)
