/** The layers of the edge, each in front of a test's next one. */
import { describe, expect, test } from 'vitest'
import { parseCidrs } from '../../../protocol/base/address.ts'
import { SallyportError } from '../../../protocol/base/errors.ts'
import type { HttpRequest, ResponseHead } from '../../../protocol/exchange.ts'
import { callers } from '../../../protocol/http/forwarded.ts'
import { loopGuard } from '../../../protocol/http/loop-guard.ts'
import { refusing, reportedError } from '../../../protocol/http/problem.ts'
import type { Layer } from '../../../protocol/layer.ts'
import { health } from '../../../server/edge/health.ts'
import { byHost, Hosts } from '../../../server/edge/hosts.ts'
import { quota } from '../../../server/edge/quota.ts'
import { QuotaBook } from '../../../server/edge/quotas.ts'
import { DEFAULT_SERVER_LIMITS } from '../../../server/limits.ts'
import { ASK_DIRECTORY, type OwnHosts } from '../../../server/own-hosts.ts'
import { EXCHANGE, ends } from '../../support/ends.ts'
import { until } from '../../support/until.ts'

const refuse = refusing(() => undefined)

/** Sends a request into a layer: returns the status with which it answers, or the request that it passes on. */
function send(layer: Layer, given: Partial<HttpRequest>) {
  const both = ends()
  const codes: (string | undefined)[] = []
  const front = {
    ...both.front,
    responseHead: (head: ResponseHead) => void codes.push(reportedError(head.headers) ?? String(head.status)),
  }
  const sink = layer(both.next)({ ...EXCHANGE, headers: [], ...given }, front)
  return { answered: codes[0], passed: both.request, both, codes, sink }
}

test("callers: the caller is named once, and a stranger's forgery is removed", () => {
  const layer = callers(parseCidrs([]))
  const fresh = send(layer, { caller: undefined, headers: ['x-forwarded-for', '203.0.113.9'] })
  expect(fresh.passed).toMatchObject({ caller: { address: '127.0.0.1' } })
  expect(fresh.passed!.headers).not.toContain('x-forwarded-for')
  expect(send(layer, {}).passed!.caller).toEqual(EXCHANGE.caller)
})

describe('health', () => {
  let ready = true
  const layer = health('/lb', () => ready, refuse)
  test.each([
    ['GET', '/lb', true, '200'],
    ['HEAD', '/lb', false, '503'],
    ['POST', '/lb', true, 'method-not-allowed'],
    ['GET', '/lb/', true, undefined],
  ])('%s %s, ready: %s', (method, path, isReady, answered) => {
    ready = isReady
    const sent = send(layer, { method, path })
    expect(sent.answered).toBe(answered)
    expect(sent.passed === undefined).toBe(answered !== undefined)
  })
  test('without a path there is no layer at all', () => {
    const { next } = ends()
    expect(health(undefined, () => true, refuse)(next)).toBe(next)
  })
})

describe('loop guard', () => {
  const layer = loopGuard(refuse)
  test.each([
    ['OPTIONS', '*', [], '204'],
    ['OPTIONS', '/', ['max-forwards', '0'], '204'],
    ['OPTIONS', '/', ['max-forwards', '1'], undefined],
    ['GET', '/', ['cdn-loop', `${'sallyport, '.repeat(9)}sallyport`], 'loop-detected'],
    ['GET', '/', ['cdn-loop', 'other'], undefined],
  ])('%s %s %j', (method, path, headers, answered) => {
    expect(send(layer, { method, path, headers }).answered).toBe(answered)
  })
  test('what it passes on is marked', () => {
    expect(send(layer, {}).passed!.headers).toEqual(['cdn-loop', 'sallyport'])
  })
})

describe('host', () => {
  const layer = byHost(new Hosts(['example'], 'connect.example'), refuse)
  test.each([
    ['demo.example', 'demo', undefined],
    ['DEMO.Example:443', 'demo', undefined],
    ['a.b.example', undefined, 'unknown-host'],
    ['connect.example', undefined, 'misdirected'],
  ])('%s', (authority, runtime, answered) => {
    const sent = send(layer, { authority })
    expect([sent.passed?.runtime, sent.answered]).toEqual([runtime, answered])
  })

  test.each<[answer: string | undefined, offline: boolean, answered: string | undefined]>([
    ['demo', false, undefined],
    [undefined, false, 'unknown-host'],
    [undefined, true, 'runtime-offline'],
  ])('a host of its own, of which the directory says %s (%s)', async (answer, offline, answered) => {
    let known: string | typeof ASK_DIRECTORY | undefined = ASK_DIRECTORY
    const ask = async () => {
      known = answer
    }
    const own = { runtimeOf: () => known, ask, mayBeServed: () => offline } as unknown as OwnHosts
    const layer = byHost(new Hosts(['example'], 'connect.example', own), refuse)
    const sent = send(layer, { authority: 'shop.test' })
    expect([sent.both.request, sent.codes]).toEqual([undefined, []])
    await until(() => sent.both.request !== undefined || sent.codes.length > 0)
    expect([sent.both.request?.runtime, sent.codes[0]]).toEqual([answer, answered])
  })
})

describe('quota', () => {
  const limits = { ...DEFAULT_SERVER_LIMITS, exchangesPerRuntime: 1, exchangesPerAddress: 1 }
  test('what is too much for the runtime, or for the caller, is refused; each exchange counts until it is over', () => {
    const book = new QuotaBook(limits)
    const layer = quota(book, refuse, request => request.caller!.address)
    const first = send(layer, { runtime: 'a' })
    expect([first.answered, book.exchanges]).toEqual([undefined, 2])
    const elsewhere = { caller: { ...EXCHANGE.caller!, address: '192.0.2.8' } }
    expect(send(layer, { runtime: 'a', ...elsewhere }).answered).toBe('too-many-requests')
    expect(send(layer, { runtime: 'b' }).answered).toBe('too-many-requests')
    expect(book.exchanges).toBe(2)
    first.both.response.responseHead({ status: 200, headers: [], bodyBytes: 0 })
    first.both.response.responseEnd([])
    expect(book.exchanges).toBe(0)
    expect(send(layer, { runtime: 'a' }).answered).toBeUndefined()
  })
  test('each counts for its caller until it has all of the answer, if that is before its end', () => {
    const book = new QuotaBook(limits)
    const layer = quota(book, refuse, request => request.caller!.address)
    const counted: number[] = []
    const count = () => void counted.push(book.exchanges)
    const { sink, both } = send(layer, { runtime: 'a' })
    both.response.responseHead({ status: 200, headers: [], bodyBytes: 2 })
    sink.responseConsumed(1)
    sink.requestEnd([])
    count()
    sink.responseConsumed(1)
    count()
    expect(send(layer, { runtime: 'b' }).answered).toBeUndefined()
    count()
    both.response.responseEnd([])
    count()
    expect(counted).toEqual([2, 1, 3, 2])
  })
  test.each<[what: string, status: number, bodyBytes: number, ended: boolean, left: number]>([
    ['an answer without a body', 204, 0, true, 1],
    ['one that comes before the end of the request', 200, 0, false, 2],
    ['one of unknown length', 200, -1, true, 2],
    ['a WebSocket', 101, 0, true, 2],
  ])('%s', (_what, status, bodyBytes, ended, left) => {
    const book = new QuotaBook(limits)
    const { sink, both } = send(
      quota(book, refuse, () => '192.0.2.7'),
      { runtime: 'a' },
    )
    if (ended) sink.requestEnd([])
    both.response.responseHead({ status, headers: [], bodyBytes })
    expect(book.exchanges).toBe(left)
    both.response.responseAbort(new SallyportError('upstream-broken'))
    expect(book.exchanges).toBe(0)
  })
  test('P1 if credit that was held back cannot be given, both ends hear it', async () => {
    const book = new QuotaBook({ ...DEFAULT_SERVER_LIMITS, byteRatePerRuntime: 1000 })
    const both = ends()
    const requestConsumed = () => {
      throw new Error('thrown on purpose')
    }
    const front = { ...both.front, requestConsumed }
    const sink = quota(book, refuse)(both.next)({ ...EXCHANGE, runtime: 'a' }, front)
    sink.requestData(Buffer.alloc(300))
    both.response.requestConsumed(300)
    await until(() => both.events.length === 3)
    expect(both.events).toEqual(['requestData 300', 'requestAbort internal', 'responseAbort internal'])
  })
  test("an embedder's exchanges count against the runtime only", () => {
    const book = new QuotaBook(limits)
    send(quota(book, refuse), { runtime: 'a' })
    expect(book.exchanges).toBe(1)
    expect(send(quota(book, refuse), { runtime: 'b' }).answered).toBeUndefined()
  })
})
