/**
 * A WebSocket whose upstream has ended its half and then gone: the caller, which may keep its own half open forever,
 * takes no place any more, and has received everything.
 */

import { once } from 'node:events'
import { connect as connectHttp2 } from 'node:http2'
import { connect } from 'node:net'
import { afterEach, expect, test } from 'vitest'
import { SallyportError } from '../../protocol/base/errors.ts'
import { discarding } from '../../protocol/base/guard.ts'
import type { ResponseSink } from '../../protocol/exchange.ts'
import type { Server } from '../../server/server.ts'
import { dial, HOST, startServer } from './fixture.ts'

const SAID = Buffer.alloc(100_000, 's')

let server: Server
const close: (() => void)[] = []

afterEach(async () => {
  for (const step of close.splice(0)) step()
  await server.close({ graceMs: 0 })
})

interface Caller {
  send(text: string): void
  /** Everything that it received, once that has ended. */
  readonly told: Promise<Buffer>
}

async function http1(port: number): Promise<Caller> {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
  close.push(() => socket.destroy())
  socket.on('error', () => {})
  const chunks: Buffer[] = []
  socket.on('data', (chunk: Buffer) => chunks.push(chunk))
  socket.write(
    `GET / HTTP/1.1\r\nHost: ${HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
      'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OTAxMjM0NQ==\r\n\r\n',
  )
  const told = once(socket, 'end').then(() => Buffer.concat(chunks).subarray(-SAID.length))
  return { send: text => socket.write(text), told }
}

async function http2(port: number): Promise<Caller> {
  const session = connectHttp2(`http://127.0.0.1:${port}`)
  close.push(() => session.destroy())
  session.on('error', () => {})
  await once(session, 'remoteSettings')
  const stream = session.request({
    ':method': 'CONNECT',
    ':protocol': 'websocket',
    ':path': '/',
    ':authority': HOST,
    'sec-websocket-version': '13',
  })
  stream.on('error', () => {})
  const chunks: Buffer[] = []
  stream.on('data', (chunk: Buffer) => chunks.push(chunk))
  const told = once(stream, 'end').then(() => Buffer.concat(chunks))
  return { send: text => stream.write(text), told }
}

/** What the upstream does when its half has ended, and the caller has all of it. */
const ENDS: Record<string, (response: ResponseSink, end: () => void) => void> = {
  'resets the rest': response => response.responseAbort(new SallyportError('cancelled')),
  'loses its session': (_response, end) => end(),
}

const CASES = Object.keys(ENDS).flatMap(what => [['HTTP/1.1', what, http1] as const, ['HTTP/2', what, http2] as const])

test.each(CASES)('over %s, where the upstream %s', async (_protocol, what, caller) => {
  server = await startServer({ limits: { exchangesPerRuntime: 1 } })
  const taken = Promise.withResolvers<ResponseSink>()
  const client = await dial(server, {
    handler: (_preamble, _request, response) => {
      taken.resolve(response)
      return discarding(response)
    },
  })
  const { send, told } = await caller(server.publicAddress!.port)
  const response = await taken.promise
  response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
  response.responseData(SAID)
  response.responseEnd([])
  expect((await told).equals(SAID)).toBe(true)
  send('more')
  expect(server.stats().quotaExchanges).toBe(1)
  ENDS[what]!(response, () => client.ws.terminate())
  await expect.poll(() => server.stats().quotaExchanges).toBe(0)
  expect(server.stats().exchanges).toBe(0)
  send('and more')
  await expect.poll(() => server.stats().bufferedBytes).toBe(0)
  if (what === 'loses its session') await client.closed
})
