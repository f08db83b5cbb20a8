/** What a hostile peer can put on a stream: it ends that stream, and the session goes on. */
import fc from 'fast-check'
import { describe, expect, test, vi } from 'vitest'
import { noLogger } from '../../../../protocol/base/log.ts'
import {
  messageEndText,
  RESPONSE_START,
  requestHeadText,
  responseHeadText,
} from '../../../../protocol/wire/bhttp/encode.ts'
import type { ExchangeHandler } from '../../../../protocol/wire/exchange/accept.ts'
import { REFUSALS } from '../../../../protocol/wire/exchange/refusal.ts'
import { type Preamble, preambleText } from '../../../../protocol/wire/preamble.ts'
import { memoryPair } from '../../../../protocol/wire/transport-memory.ts'
import type { Session } from '../../../../protocol/wire/yamux/session.ts'
import type { Stream } from '../../../../protocol/wire/yamux/stream.ts'
import { createSession } from '../../../../protocol/wire/yamux/yamux-session.ts'
import { request, send, tunnel, upstreams } from './support.ts'

const bytes = (text: string) => Buffer.from(text, 'latin1')
const preamble = (given: Partial<Preamble> = {}) =>
  preambleText({
    kind: 1,
    exchangeId: '\0'.repeat(16),
    attempt: 0,
    runtime: 'rt',
    epoch: 1,
    timeLeftMs: 0,
    callerAddress: '192.0.2.1',
    callerScheme: 'https',
    hops: 0,
    bodyBytes: 0,
    ...given,
  })
const head = (given: Partial<Record<'method' | 'authority' | 'path', string>> = {}, headers: string[] = []) =>
  requestHeadText(given.method ?? 'GET', 'https', given.authority ?? 'a.example', given.path ?? '/', headers)

/** Writes raw bytes to a client; returns what comes back, and how it ended. */
async function speak(session: Session, text: string, end = true): Promise<{ answer: string; ended: string }> {
  const stream = session.open()
  let answer = ''
  return new Promise(resolve => {
    stream.handler = {
      data: chunk => {
        answer += Buffer.from(chunk).toString('latin1')
        stream.consumed(chunk.length)
      },
      end: () => resolve({ answer, ended: 'end' }),
      reset: code => resolve({ answer, ended: code }),
      consumed() {},
    }
    stream.write(bytes(text))
    if (end) stream.end()
  })
}

const refused = (code: keyof typeof REFUSALS) => ({
  answer: `\x02${String.fromCharCode(REFUSALS[code])}`,
  ended: 'end',
})

describe('an unreadable request is refused unprocessed', () => {
  test.each([
    ['nothing but FIN', '', 'malformed'],
    ['an unknown kind', `\x07\x00`, 'unsupported'],
    ['raw bytes', preamble({ kind: 3 }), 'unsupported'],
    ['a preamble without entries', '\x01\x00', 'malformed'],
    ['a head that ends before its time', preamble() + head().slice(0, -2), 'malformed'],
    ['HTTP/1.1 text', `${preamble()}GET / HTTP/1.1\r\nHost: a\r\n\r\n`, 'malformed'],
    ['another scheme', preamble({ callerScheme: 'http' }) + head(), 'malformed'],
    ['a path without a slash', preamble() + head({ path: 'x' }), 'malformed'],
    ['a space in the path', preamble() + head({ path: '/a b' }), 'malformed'],
    ['CR LF in the path', preamble() + head({ path: '/a\r\nx: y' }), 'malformed'],
    ['two lengths', preamble({ bodyBytes: 5 }) + head({}, ['content-length', '6']), 'malformed'],
    ['a length of its own', preamble({ bodyBytes: -1 }) + head({}, ['content-length', '6']), 'malformed'],
    ['content-length twice', preamble() + head({}, ['content-length', '0', 'content-length', '0']), 'malformed'],
    ['content-length in hex', preamble() + head({}, ['content-length', '0x0']), 'malformed'],
    ['an upgrade with a body', preamble({ kind: 2, bodyBytes: 1 }) + head(), 'malformed'],
    ['an upgrade by POST', preamble({ kind: 2 }) + head({ method: 'POST' }), 'malformed'],
  ] as const)('%s', async (_, text, code) => {
    let begun = 0
    const { server, client } = tunnel((_preamble, _received, response) => {
      begun++
      return {
        requestData: chunk => response.requestConsumed(chunk.length),
        requestEnd() {},
        requestAbort() {},
        responseConsumed() {},
      }
    })
    expect(await speak(server, text)).toEqual(refused(code))
    expect(begun).toBe(0)
    await new Promise(done => server.ping(done))
    expect([server.closed, client.closed, client.streams, client.bufferedBytes]).toEqual([false, false, 0, 0])
  })

  test.each([
    ['no method', preamble() + head({ method: '' }) + messageEndText([])],
    ['a method that is no token', preamble() + head({ method: 'GE T' }) + messageEndText([])],
    ['CONNECT', preamble() + head({ method: 'CONNECT' }) + messageEndText([])],
    ['no authority', preamble() + head({ authority: '' }) + messageEndText([])],
    ['user info in the authority', preamble() + head({ authority: 'u@a' }) + messageEndText([])],
    ['an address that URL reads otherwise', preamble() + head({ authority: '10.7' }) + messageEndText([])],
    ['the same for an upgrade', preamble({ kind: 2 }) + head({ authority: '10.7' })],
  ])('%s, which an older server may take, is answered with 400', async (_, text) => {
    const onExchange = vi.fn<ExchangeHandler>()
    const { server, client } = tunnel(onExchange)
    const { answer, ended } = await speak(server, text)
    expect(answer).toContain('"code":"bad-request"')
    expect([answer[0], ended, onExchange.mock.calls]).toEqual(['\x01', 'end', []])
    await new Promise(done => server.ping(done))
    expect([server.closed, client.closed, client.streams, client.bufferedBytes]).toEqual([false, false, 0, 0])
  })

  test('a handler that throws resets only its stream', async () => {
    const logged: object[] = []
    const logger = { ...noLogger, error: (fields: object) => logged.push(fields) }
    const bug = () => {
      throw new Error('a bug')
    }
    const { server, client } = tunnel(bug, {}, logger)
    expect(await speak(server, preamble() + head() + messageEndText([]))).toEqual({
      answer: '',
      ended: 'upstream-broken',
    })
    expect(client.closed).toBe(false)
    expect(logged).toEqual([{ err: { message: 'a bug', stack: expect.stringContaining('at ') } }])
  })
})

test('a handler that refuses what it has begun to answer resets its stream, and its mistake is named', async () => {
  const logged: object[] = []
  const logger = { ...noLogger, error: (fields: object) => logged.push(fields) }
  const late: ExchangeHandler = (_preamble, _received, response) => {
    response.responseHead({ status: 200, headers: [], bodyBytes: 0 })
    return 'overloaded'
  }
  const { server, client } = tunnel(late, {}, logger)
  expect(await speak(server, preamble() + head() + messageEndText([]))).toMatchObject({ ended: 'upstream-broken' })
  expect(client.closed).toBe(false)
  expect(logged).toEqual([
    { err: expect.objectContaining({ message: expect.stringContaining('refused after an answer had begun') }) },
  ])
})

describe('a request body that breaks the format', () => {
  test.each([
    ['FIN instead of its end', '\x05hello'],
    ['FIN in a chunk', '\x05he'],
    ['FIN instead of trailers', '\x05hello\0'],
    ['bytes behind the end', '\x05hello\0\0x'],
    ['a bad trailer', '\x05hello\0\x01A\x01b\0'],
    ['host as a trailer', '\x05hello\0\x04host\x01b\0'],
  ])('%s: the upstream end hears no clean end', async (_, text) => {
    const { handler, next } = upstreams()
    const { server, client } = tunnel(handler)
    const spoken = speak(server, preamble({ bodyBytes: -1 }) + head({ method: 'POST' }) + text)
    const upstream = await next()
    await upstream.over()
    expect(upstream.error?.reason).toBe('upstream-broken')
    expect(upstream.trailers).toBeUndefined()
    expect((await spoken).ended).toBe('protocol')
    expect([server.streams, client.streams, client.bufferedBytes]).toEqual([0, 0, 0])
  })
})

describe('a response that breaks the format', () => {
  /** A peer that answers with these bytes. */
  function answering(text: string, end = true): Session {
    const [left, right] = memoryPair()
    createSession(right, {
      role: 'client',
      onStream: (stream: Stream) => {
        stream.handler = { data: chunk => stream.consumed(chunk.length), end() {}, reset() {}, consumed() {} }
        stream.write(bytes(text))
        if (end) stream.end()
      },
    })
    return createSession(left, { role: 'server' })
  }
  const ok = `\x01${RESPONSE_START}${responseHeadText(200, [])}`

  test.each([
    ['nothing', '', []],
    ['an unknown answer', '\x03', []],
    ['half a refusal', '\x02', []],
    ['no framing indicator', '\x01', []],
    ['a request', `\x01${head()}`, []],
    ['an unasked 101', `\x01${responseHeadText(101, [])}`, []],
    ['a status of 600', `\x01${RESPONSE_START}${responseHeadText(600, [])}`, []],
    ['CR in a field', `\x01${RESPONSE_START}${responseHeadText(200, ['a', 'b-c']).replace('-', '\r')}`, []],
    [
      'two lengths',
      `\x01${RESPONSE_START}${responseHeadText(200, ['content-length', '1', 'content-length', '1'])}`,
      [],
    ],
    ['an early hint and no more', `\x01${RESPONSE_START}${responseHeadText(103, [])}`, ['informational 103']],
    ['FIN behind the head', ok, ['head 200']],
    ['FIN in the content', `${ok}\x05he`, ['head 200', 'data']],
    ['FIN behind the content', `${ok}\x02he\0`, ['head 200', 'data']],
    ['bytes behind the end', `${ok}\x02he\0\0\0`, ['head 200']],
    [
      'too little content',
      `\x01${RESPONSE_START}${responseHeadText(200, ['content-length', '3'])}\x02he\0\0`,
      ['head 200'],
    ],
    [
      'too much content',
      `\x01${RESPONSE_START}${responseHeadText(200, ['content-length', '1'])}\x02he\0\0`,
      ['head 200'],
    ],
    ['content behind a 204', `\x01${RESPONSE_START}${responseHeadText(204, [])}\x02he\0\0`, ['head 204']],
  ])('%s is cut, never ended', async (_, text, before) => {
    const server = answering(text)
    const caller = send(server)
    await caller.over()
    expect(caller.events).toEqual([...before, 'abort upstream-broken'])
    expect([server.closed, server.streams, server.bufferedBytes]).toEqual([false, 0, 0])
  })

  test('an unknown answer is not a refusal', async () => {
    const caller = send(answering('\x03\x01'))
    await caller.over()
    expect([caller.error?.reason, caller.error?.message]).toEqual(['upstream-broken', 'answer 3'])
  })

  test('an unknown refusal code means that nothing was forwarded', async () => {
    const caller = send(answering('\x02\x3f'))
    await caller.over()
    expect(caller.error).toMatchObject({ refusal: 'not-here', unprocessed: true })
  })

  test('any bytes end in one clean end or one abort', async () => {
    const start = fc.constantFrom('', '\x01', '\x01\x03', ok, `${ok}\x02he`)
    const noise = fc.uint8Array({ maxLength: 40 }).map(array => Buffer.from(array).toString('latin1'))
    await fc.assert(
      fc.asyncProperty(start, noise, fc.boolean(), async (text, tail, upgrade) => {
        const server = answering(text + tail)
        const caller = send(server, request({ upgrade }))
        await caller.over()
        const last = caller.events.filter(event => event === 'end' || event.startsWith('abort'))
        expect(last).toHaveLength(1)
        expect(server.closed).toBe(false)
      }),
      { numRuns: 300 },
    )
  })
})
