/**
 * SPEC.md must agree with the code: its examples byte by byte, its tables row by row, its Go lines with the client that
 * runs.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { SallyportError } from '../../protocol/base/errors.ts'
import { BODY_UNKNOWN, type HttpRequest } from '../../protocol/exchange.ts'
import { MAX_INFORMATIONAL } from '../../protocol/wire/bhttp/decoder.ts'
import { MAX_FIELDS, MAX_HEAD_BYTES } from '../../protocol/wire/bhttp/fields.ts'
import { CONNECT_PATH, controlMembers, MAX_CONTROL_BYTES, SUBPROTOCOL } from '../../protocol/wire/control.ts'
import { acceptExchange } from '../../protocol/wire/exchange/accept.ts'
import { EARLY_ANSWER_MS } from '../../protocol/wire/exchange/answer.ts'
import { REFUSALS } from '../../protocol/wire/exchange/refusal.ts'
import { ENTRY, MAX_PREAMBLE_BYTES } from '../../protocol/wire/preamble.ts'
import { STREAM_KIND, STREAM_RULES, type StreamKind } from '../../protocol/wire/stream-kinds.ts'
import type { Transport, TransportHandler } from '../../protocol/wire/transport.ts'
import { CLOSE, MAX_MESSAGE_BYTES } from '../../protocol/wire/transport.ts'
import { memoryPair } from '../../protocol/wire/transport-memory.ts'
import { DEFAULT_SESSION_LIMITS, MAX_WINDOW_BYTES } from '../../protocol/wire/yamux/limits.ts'
import { RESET_CODES } from '../../protocol/wire/yamux/stream.ts'
import { createSession } from '../../protocol/wire/yamux/yamux-session.ts'
import { openOptions, request, send, upstreams } from './wire/exchange/support.ts'

const read = (path: string) => readFileSync(join(import.meta.dirname, '../..', path), 'utf8')
const spec = read('protocol/wire/SPEC.md')

/** The bytes of the block ```hex name: each line's hex, up to two spaces and the remark. */
function example(name: string): string {
  const block = new RegExp(`\`\`\`hex ${name}\n([^\`]*)\`\`\``).exec(spec)
  if (block === null) throw new Error(`SPEC.md has no example "${name}"`)
  const hex = block[1]!.split('\n').map(line => line.split(/ {2,}/)[0]!.replaceAll(' ', ''))
  return hex.join('')
}

/** Rows of the first table behind `heading`, cells without their backquotes. */
function table(heading: string, columns: string): string[][] {
  const section = spec.slice(spec.indexOf(`\n## ${heading}`))
  const rows = section
    .slice(section.indexOf(`\n| ${columns}`))
    .trimStart()
    .split('\n')
  const end = rows.findIndex(row => !row.startsWith('|'))
  return rows.slice(2, end).map(row =>
    row
      .split('|')
      .slice(1, -1)
      .map(cell => cell.trim().replaceAll('`', '')),
  )
}

/** Records what a transport sends. */
class Tap implements Transport {
  readonly sent: Buffer[] = []
  readonly texts: string[] = []
  readonly #inner: Transport

  constructor(inner: Transport) {
    this.#inner = inner
  }

  get peer(): string {
    return this.#inner.peer
  }

  get handler(): TransportHandler | undefined {
    return this.#inner.handler
  }

  set handler(handler: TransportHandler | undefined) {
    this.#inner.handler = handler
  }

  bytes(chunk: Uint8Array, sent: () => void): void {
    this.sent.push(Buffer.from(chunk))
    this.#inner.bytes(chunk, sent)
  }

  control(text: string): void {
    this.texts.push(text)
    this.#inner.control(text)
  }

  close(code: number, reason: string): void {
    this.#inner.close(code, reason)
  }

  terminate(): void {
    this.#inner.terminate()
  }

  /** Everything sent since the last call, as hex. */
  take(): string {
    return Buffer.concat(this.sent.splice(0)).toString('hex')
  }
}

describe('the examples', () => {
  const { handler, next } = upstreams()
  const [left, right] = memoryPair()
  const [fromServer, fromClient] = [new Tap(left), new Tap(right)]
  let refusing = false
  const server = createSession(fromServer, { role: 'server' })
  createSession(fromClient, {
    role: 'client',
    onStream: stream =>
      acceptExchange(stream, (preamble, received, response) =>
        refusing ? 'overloaded' : handler(preamble, received, response),
      ),
  })
  const exchangeId = String.fromCharCode(...Array(16).keys())
  const authority = 'demo.example.com'
  const ask = (address: string, given: Partial<HttpRequest>): HttpRequest =>
    request({ authority, exchangeId, caller: { address, scheme: 'https', host: authority }, ...given })

  // One after the other: the examples contain the streams' ids.
  test('request and response', async () => {
    const headers = ['content-length', '5']
    const sent = ask('192.0.2.1', { method: 'POST', path: '/hi', headers, bodyBytes: 5 })
    const caller = send(server, sent, { ...openOptions, runtime: 'demo' })
    caller.sink.requestData(Buffer.from('hello'))
    caller.sink.requestEnd([])
    const upstream = await next()
    await upstream.over()
    expect(fromServer.take()).toBe(example('request'))
    upstream.response.responseInformational(103, ['link', '</a.css>'])
    upstream.response.responseHead({ status: 200, headers: ['content-type', 'text/plain'], bodyBytes: BODY_UNKNOWN })
    upstream.response.responseData(Buffer.from('hi'))
    upstream.response.responseEnd(['x-sum', '1'])
    await caller.over()
    expect(fromClient.take()).toBe(example('response'))
  })

  test('upgrade', async () => {
    const headers = ['sec-websocket-protocol', 'a']
    const sent = ask('2001:db8::1', { path: '/ws', headers, upgrade: true })
    const caller = send(server, sent, { runtime: 'demo', epoch: 1, attempt: 1, hops: 0, timeLeftMs: 0 })
    const upstream = await next()
    expect(fromServer.take()).toBe(example('upgrade'))
    upstream.response.responseHead({ status: 101, headers, bodyBytes: 0 })
    upstream.response.responseData(Buffer.from('raw'))
    await caller.until(self => self.bytes === 3)
    expect(fromClient.take()).toBe(example('switching'))
  })

  test('refusal', async () => {
    refusing = true
    const caller = send(server)
    await caller.over()
    refusing = false
    await new Promise(done => server.ping(done))
    expect(fromClient.take().slice(0, example('refusal').length)).toBe(example('refusal'))
  })

  test('reset', async () => {
    const caller = send(server)
    const upstream = await next()
    upstream.response.responseAbort(new SallyportError('upstream-timeout'))
    await caller.over()
    expect(fromClient.take()).toBe(example('reset'))
    expect(fromClient.texts).toEqual(['{"type":"reset","stream":8,"code":"timeout"}'])
    expect(spec).toContain(fromClient.texts[0])
  })
})

describe('the tables', () => {
  test('preamble', () => {
    const rows = table('5. Preamble', 'type').map(([type, name]) => [name, Number(type)])
    expect(Object.fromEntries(rows)).toEqual(ENTRY)
  })

  test('kinds of streams', () => {
    const rows = table('5. Preamble', 'kind')
    expect(Object.fromEntries(rows.map(([kind, name]) => [name, Number(kind)]))).toEqual(STREAM_KIND)
    for (const [kind, , , request, switched] of rows) {
      const { answered, method, body, switches } = STREAM_RULES[Number(kind) as StreamKind]
      const allowed = `${method ?? 'any method but CONNECT'}${body ? ', with or without a body' : ' without a body'}`
      expect([request, switched]).toEqual(
        answered ? [allowed, switches ? 'raw bytes' : 'not allowed'] : ['reserved: refused as unsupported', ''],
      )
    }
  })

  test('refusals', () => {
    const rows = table('6. Answer', 'code').map(([code, name]) => [name, Number(code)])
    expect(Object.fromEntries(rows)).toEqual(REFUSALS)
  })

  test('resets', () => {
    expect(table('9. Resets', 'code').map(([code]) => code)).toEqual([...RESET_CODES])
  })

  test('close codes', () => {
    const codes = table('10. Ready, epochs and drain', 'close code').flatMap(([code]) => code!.split(', ').map(Number))
    for (const [name, code] of Object.entries(CLOSE)) if (name !== 'abnormal') expect(codes, name).toContain(code)
  })

  test('control messages and their members', () => {
    const members: Record<string, string[]> = {}
    for (const [type] of table('3. Control messages', 'type | sent by')) members[type!] = []
    for (const [type, member] of table('3. Control messages', 'type | member')) members[type!]!.push(member!)
    expect(members).toEqual(controlMembers())
  })

  test('limits', () => {
    const rows = table('12. Limits', 'limit').map(([limit, value]) => [
      limit,
      Number.parseInt(value!.replaceAll(',', ''), 10),
    ])
    expect(Object.fromEntries(rows)).toEqual({
      'WebSocket message': MAX_MESSAGE_BYTES,
      'fragments of a message': 16,
      'control message': MAX_CONTROL_BYTES,
      token: 8_192,
      preamble: MAX_PREAMBLE_BYTES,
      'head, and trailer section': MAX_HEAD_BYTES,
      'fields of either': MAX_FIELDS,
      'informational responses': MAX_INFORMATIONAL,
      'initial window': DEFAULT_SESSION_LIMITS.initialWindowBytes,
      window: MAX_WINDOW_BYTES,
      streams: DEFAULT_SESSION_LIMITS.maxStreams,
      'streams not acknowledged': DEFAULT_SESSION_LIMITS.backlog,
      'ping interval': DEFAULT_SESSION_LIMITS.pingIntervalMs,
      'silence after a ping': DEFAULT_SESSION_LIMITS.pingTimeoutMs,
      'stream not acknowledged for': DEFAULT_SESSION_LIMITS.openDeadlineMs,
      'early answer: rest of the request': EARLY_ANSWER_MS,
    })
  })

  test('names', () => {
    expect(spec).toContain(`GET ${CONNECT_PATH} HTTP/1.1`)
    expect(spec).toContain(`Sec-WebSocket-Protocol: ${SUBPROTOCOL}\n`)
  })
})

test('the Go lines are those of the client that runs', () => {
  const lines = /```go\n([^`]*)```/.exec(spec)![1]!
  expect(read('test/interop/go/conn.go')).toContain(lines)
})
