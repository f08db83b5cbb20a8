/** One exchange with an upstream, over connections that the test plays. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { SallyportError } from '../../../protocol/base/errors.ts'
import { ReplayBudget } from '../../../protocol/base/replay-budget.ts'
import type { RequestSink, ResponseSink } from '../../../protocol/exchange.ts'
import { fillTarget, parseTarget } from '../../../router/target.ts'
import { UpstreamExchange } from '../../../router/upstream/exchange.ts'
import type { OnOpened, Pool, PooledUpstream } from '../../../router/upstream/pool.ts'
import type { ForwardOptions, UpstreamRequest } from '../../../router/upstream/types.ts'
import { UPSTREAM_REQUEST } from '../../support/ends.ts'

/** A connection that records what it is sent, and answers when the test says so. */
class PlayedConnection implements PooledUpstream {
  responseStarted = false
  readonly calls: string[] = []
  readonly chunks: Uint8Array[] = []
  response!: ResponseSink

  send(request: UpstreamRequest, response: ResponseSink): RequestSink {
    this.calls.push(request.method)
    this.response = response
    return {
      requestData: chunk => {
        this.chunks.push(chunk)
        this.calls.push(Buffer.from(chunk).toString())
      },
      requestEnd: () => this.calls.push('end'),
      requestAbort: error => this.calls.push(`abort ${error.reason}`),
      responseConsumed: () => {},
    }
  }
}

class PlayedPool implements Pool {
  readonly size = 0
  readonly idle = 0
  /** Used in order; after them `open` is called. */
  readonly ready: PlayedConnection[] = []
  readonly opening: OnOpened[] = []
  givenUp = 0

  take(): PooledUpstream | undefined {
    return this.ready.shift()
  }

  open(_caller: string, _connectMs: number, done: OnOpened): () => void {
    this.opening.push(done)
    return () => this.givenUp++
  }

  sweep(): boolean {
    return false
  }

  close(): void {}
}

const target = fillTarget(parseTarget('http://played'), {}, new Map(), undefined)!
const broken = new SallyportError('upstream-broken')
const refused = new SallyportError('upstream-refused')

let replayBudget: ReplayBudget

function play(request: Partial<UpstreamRequest> = {}, options: Partial<ForwardOptions> = {}) {
  const pool = new PlayedPool()
  const events: string[] = []
  const response: ResponseSink = {
    responseInformational: status => events.push(`${status}`),
    responseHead: head => events.push(`${head.status}`),
    responseData: chunk => events.push(Buffer.from(chunk).toString()),
    responseEnd: () => events.push('end'),
    responseAbort: error => events.push(error.reason),
    requestConsumed: bytes => events.push(`+${bytes}`),
  }
  const whole = { ...UPSTREAM_REQUEST, ...request }
  const exchange = new UpstreamExchange(
    { replayBudget, poolFor: () => pool },
    target,
    whole,
    { connectMs: 1000, headMs: 1000, attempts: 0, ...options },
    response,
  )
  return { pool, events, exchange }
}

const bytes = (text: string) => Buffer.from(text)

beforeEach(() => {
  replayBudget = new ReplayBudget(64 * 1024, 1024 * 1024)
  vi.useFakeTimers()
})
afterEach(() => vi.useRealTimers())

describe('while there is no connection yet', () => {
  it('the body waits without credit, and goes out in order', () => {
    const { pool, events, exchange } = play({ method: 'POST', bodyBytes: 2 })
    exchange.start()
    exchange.requestData(bytes('a'))
    exchange.requestData(bytes('b'))
    exchange.requestEnd([])
    expect(events).toEqual([])
    const connection = new PlayedConnection()
    pool.opening[0]!(undefined, connection)
    expect(connection.calls.join(' ')).toBe('POST ab end')
  })

  it.each([false, true])('a body of small pieces costs about its bytes (kept for a retry: %s)', idempotent => {
    const { pool, exchange } = play({ method: 'POST', bodyBytes: 60_000, idempotent })
    exchange.start()
    // As they are read: each is part of one large buffer.
    const read = Buffer.alloc(65_536, 'x')
    for (let i = 0; i < 60_000; i++) exchange.requestData(read.subarray(i, i + 1))
    exchange.requestEnd([])
    const connection = new PlayedConnection()
    pool.opening[0]!(undefined, connection)
    expect(connection.calls.length).toBeLessThan(40)
    expect(connection.calls.join('')).toBe(`POST${'x'.repeat(60_000)}end`)
  })

  it('an abort stops waiting and reports nothing more', () => {
    const { pool, events, exchange } = play()
    exchange.start()
    exchange.requestAbort(new SallyportError('cancelled'))
    expect(pool.givenUp).toBe(1)
    exchange.requestData(bytes('abc'))
    expect(events).toEqual(['+3'])
  })

  it('a failure is reported once', () => {
    const { pool, events, exchange } = play({ method: 'POST', bodyBytes: 1 })
    exchange.start()
    pool.opening[0]!(refused, undefined)
    expect(events).toEqual(['upstream-refused'])
  })
})

describe('retries', () => {
  it('a stale connection is replaced once, by a fresh one', () => {
    const { pool, events, exchange } = play()
    const [stale, fresh] = [new PlayedConnection(), new PlayedConnection()]
    pool.ready.push(stale, new PlayedConnection())
    exchange.start()
    exchange.requestEnd([])
    stale.response.responseAbort(broken)
    expect(pool.ready).toHaveLength(1)
    pool.opening[0]!(undefined, fresh)
    expect(fresh.calls).toEqual(['GET', 'end'])
    fresh.response.responseAbort(broken)
    expect(events).toEqual(['upstream-broken'])
    expect(pool.opening).toHaveLength(1)
  })

  it('a WebSocket handshake, too: before its 101 it is a GET without a body', () => {
    const { pool, events, exchange } = play({ upgrade: true })
    const [stale, fresh] = [new PlayedConnection(), new PlayedConnection()]
    pool.ready.push(stale)
    exchange.start()
    stale.response.responseAbort(broken)
    pool.opening[0]!(undefined, fresh)
    fresh.response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
    exchange.requestData(bytes('frame'))
    exchange.requestEnd([])
    expect(fresh.calls).toEqual(['GET', 'frame', 'end'])
    fresh.response.responseAbort(broken)
    expect(events).toEqual(['101', 'upstream-broken'])
  })

  it('what a replaced attempt still reports is ignored', () => {
    const { pool, events, exchange } = play()
    const [stale, fresh] = [new PlayedConnection(), new PlayedConnection()]
    pool.ready.push(stale)
    exchange.start()
    stale.response.responseAbort(broken)
    stale.response.responseHead({ status: 200, headers: [], bodyBytes: 0 })
    stale.response.requestConsumed(5)
    pool.opening[0]!(undefined, fresh)
    stale.response.responseAbort(broken)
    fresh.response.responseHead({ status: 204, headers: [], bodyBytes: 0 })
    fresh.response.responseEnd([])
    expect(events).toEqual(['204', 'end'])
  })

  it.each([
    ['an unsafe method', { method: 'POST' }, {}],
    ['a body', { bodyBytes: 1 }, {}],
    ['an unsafe method, although attempts are left', { method: 'DELETE' }, { attempts: 3 }],
  ])('never: %s', (_, request, options) => {
    const { pool, events, exchange } = play(request, options)
    const connection = new PlayedConnection()
    pool.ready.push(connection)
    exchange.start()
    connection.response.responseAbort(broken)
    vi.runAllTimers()
    expect(events).toEqual(['upstream-broken'])
    expect(pool.opening).toEqual([])
  })

  it('never after a byte of an answer, an informational one, or a deadline', () => {
    for (const spoil of ['started', 'informational', 'deadline']) {
      const { pool, events, exchange } = play({}, { attempts: 3 })
      const connection = new PlayedConnection()
      pool.ready.push(connection)
      exchange.start()
      if (spoil === 'started') connection.responseStarted = true
      if (spoil === 'informational') connection.response.responseInformational(103, [])
      connection.response.responseAbort(spoil === 'deadline' ? new SallyportError('upstream-timeout') : broken)
      vi.runAllTimers()
      expect(pool.opening, spoil).toEqual([])
      expect(events.at(-1)).toMatch(/^upstream-/)
    }
  })

  it('after a failed connection any method, as often as the route says, with growing pauses', () => {
    const { pool, events, exchange } = play({ method: 'POST', bodyBytes: 2 }, { attempts: 2 })
    exchange.start()
    exchange.requestData(bytes('hi'))
    pool.opening[0]!(refused, undefined)
    vi.advanceTimersByTime(99)
    expect(pool.opening).toHaveLength(1)
    vi.advanceTimersByTime(1)
    expect(pool.opening).toHaveLength(2)
    pool.opening[1]!(refused, undefined)
    vi.advanceTimersByTime(200)
    const connection = new PlayedConnection()
    pool.opening[2]!(undefined, connection)
    expect(connection.calls).toEqual(['POST', 'hi'])
    connection.response.responseAbort(broken)
    expect(events).toEqual(['upstream-broken'])
  })

  it('P1 an exception after a pause ends it', () => {
    const { pool, events, exchange } = play({}, { attempts: 1 })
    exchange.start()
    pool.opening[0]!(refused, undefined)
    pool.open = () => {
      throw new Error('thrown on purpose')
    }
    vi.runAllTimers()
    expect(events).toEqual(['internal'])
  })

  it('an abort in a pause leaves no timer', () => {
    const { pool, exchange } = play({}, { attempts: 1 })
    exchange.start()
    pool.opening[0]!(refused, undefined)
    expect(vi.getTimerCount()).toBe(1)
    exchange.requestAbort(new SallyportError('cancelled'))
    expect(vi.getTimerCount()).toBe(0)
  })

  it('with an Idempotency-Key the body is sent again, and credit for it is given once', () => {
    const { pool, events, exchange } = play({ method: 'POST', bodyBytes: 6, idempotent: true }, { attempts: 1 })
    const [first, second] = [new PlayedConnection(), new PlayedConnection()]
    pool.ready.push(first)
    exchange.start()
    exchange.requestData(bytes('abc'))
    first.response.requestConsumed(3)
    first.response.responseAbort(broken)
    exchange.requestData(bytes('def'))
    exchange.requestEnd([])
    pool.opening[0]!(undefined, second)
    expect(second.calls.join(' ')).toBe('POST abcdef end')
    second.response.requestConsumed(6)
    second.response.responseHead({ status: 200, headers: [], bodyBytes: 0 })
    second.response.responseEnd([])
    expect(events).toEqual(['+3', '+3', '200', 'end'])
  })

  it('a body that outgrows what is kept is sent only once', () => {
    const { pool, events, exchange } = play({ method: 'POST', bodyBytes: -1, idempotent: true }, { attempts: 1 })
    const connection = new PlayedConnection()
    pool.ready.push(connection)
    exchange.start()
    exchange.requestData(Buffer.alloc(64 * 1024))
    exchange.requestData(bytes('x'))
    connection.response.responseAbort(broken)
    expect(events).toEqual(['upstream-broken'])
    expect(pool.opening).toEqual([])
  })
})

describe('what is kept of bodies', () => {
  const body = { method: 'POST', bodyBytes: -1, idempotent: true }
  const begin = (caller: string, text: string) => {
    const played = play({ ...body, caller }, { attempts: 1 })
    const connection = new PlayedConnection()
    played.pool.ready.push(connection)
    played.exchange.start()
    played.exchange.requestData(bytes(text))
    return { ...played, connection }
  }

  const ends: Record<string, (played: ReturnType<typeof begin>) => void> = {
    'the answer begins': ({ connection }) =>
      connection.response.responseHead({ status: 200, headers: [], bodyBytes: 0 }),
    'the caller leaves': ({ exchange }) => exchange.requestAbort(new SallyportError('cancelled')),
    'the upstream fails': ({ connection }) => connection.response.responseAbort(refused),
    'it is too much': ({ exchange }) => exchange.requestData(Buffer.alloc(64 * 1024)),
  }
  it.each(Object.entries(ends))('counts until %s', (_, end) => {
    const played = begin('192.0.2.1', 'abc')
    played.exchange.requestData(bytes('def'))
    expect(replayBudget.used).toBe(6)
    end(played)
    played.exchange.requestData(bytes('ghi'))
    expect(replayBudget.used).toBe(0)
  })

  it('keeps little more memory than what counts', () => {
    const { pool, connection, exchange } = begin('192.0.2.1', 'abc')
    exchange.requestData(Buffer.allocUnsafeSlow(64 * 1024).subarray(0, 16 * 1024))
    connection.response.responseAbort(broken)
    const next = new PlayedConnection()
    pool.opening[0]!(undefined, next)
    const memory = next.chunks.reduce((sum, { buffer }) => sum + buffer.byteLength, 0)
    expect(memory).toBeLessThan(2 * replayBudget.used)
  })

  it('counts once, however often it is sent', () => {
    const { pool, connection } = begin('192.0.2.1', 'abc')
    connection.response.responseAbort(broken)
    pool.opening[0]!(undefined, new PlayedConnection())
    expect(replayBudget.used).toBe(3)
  })

  it('gives way, the oldest of the network with the most first: then it is sent only once', () => {
    replayBudget = new ReplayBudget(64 * 1024, 10)
    const callers = ['2001:db8::1', '192.0.2.1', '2001:db8::2', '192.0.2.2']
    const played = callers.map(caller => begin(caller, 'abc'))
    for (const { connection } of played) connection.response.responseAbort(broken)
    expect(played.map(({ events, pool }) => [events, pool.opening.length])).toEqual([
      [['upstream-broken'], 0],
      [[], 1],
      [[], 1],
      [[], 1],
    ])
  })

  it('gives way between two attempts: then it is still sent whole', () => {
    replayBudget = new ReplayBudget(64 * 1024, 5)
    const { pool, exchange, connection } = begin('192.0.2.1', 'abc')
    connection.response.requestConsumed(3)
    connection.response.responseAbort(broken)
    begin('192.0.2.1', 'def')
    exchange.requestData(bytes('ghi'))
    const next = new PlayedConnection()
    pool.opening[0]!(undefined, next)
    expect(next.calls.join(' ')).toBe('POST abcghi')
  })

  it('may give way before there is a connection: then it is sent only once', () => {
    replayBudget = new ReplayBudget(64 * 1024, 0)
    const { pool, events, exchange } = play(body, { attempts: 1 })
    exchange.start()
    exchange.requestData(bytes('abc'))
    exchange.requestData(bytes('def'))
    exchange.requestEnd([])
    const connection = new PlayedConnection()
    pool.opening[0]!(undefined, connection)
    expect(connection.calls.join(' ')).toBe('POST abcdef end')
    connection.response.responseAbort(broken)
    expect(events).toEqual(['upstream-broken'])
  })
})
