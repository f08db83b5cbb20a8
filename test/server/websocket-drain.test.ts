import { once } from 'node:events'
import { afterEach, expect, test } from 'vitest'
import { WebSocket } from 'ws'
import { discarding } from '../../protocol/base/guard.ts'
import type { RequestSink } from '../../protocol/exchange.ts'
import type { ExchangeHandler } from '../../protocol/wire/exchange/accept.ts'
import type { Server } from '../../server/server.ts'
import { DOMAIN, dial, startServer } from './fixture.ts'

let server: Server | undefined

afterEach(async () => {
  await server?.close({ graceMs: 0 })
  server = undefined
})

/** An upstream that accepts, says `hi`, and records what it hears. */
function greeter() {
  const heard: Buffer[] = []
  const ended = Promise.withResolvers<void>()
  const handler: ExchangeHandler = (_preamble, _request, response): RequestSink => {
    response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
    response.responseData(Buffer.from('\x81\x02hi', 'latin1'))
    return {
      ...discarding(response),
      requestData(chunk) {
        heard.push(Buffer.from(chunk))
        response.requestConsumed(chunk.length)
      },
      requestEnd() {
        response.responseEnd([])
        ended.resolve()
      },
      requestAbort: () => ended.reject(new Error('cut')),
    }
  }
  return { handler, heard, ended: ended.promise }
}

async function open(handler: ExchangeHandler) {
  server = await startServer()
  const client = await dial(server, { handler })
  const { host, port } = server.publicAddress!
  const ws = new WebSocket(`ws://${host}:${port}/`, { headers: { host: `demo.${DOMAIN}` }, perMessageDeflate: false })
  const greeting = once(ws, 'message')
  await greeting
  return { ws, client, server }
}

test('a drain whose time is nearly up closes WebSockets with 1001 at both ends, and then the session ends', async () => {
  const { handler, heard, ended } = greeter()
  const { ws, client, server } = await open(handler)
  const closed = once(ws, 'close')
  server.drainRuntime('demo', { reason: 'somewhere else', graceMs: 1000 })
  client.session.control({ type: 'drained', lastStream: 0 })
  expect((await closed)[0]).toBe(1001)
  await ended
  const frame = Buffer.concat(heard)
  expect([frame[0], frame[1]! & 0x80]).toEqual([0x88, 0x80])
  expect((frame.readUInt16BE(6) ^ frame.readUInt16BE(2)) & 0xffff).toBe(1001)
  // Before the deadline: nothing is open any more.
  expect((await client.closed).reason).toBe('somewhere else')
})

test("a client's drain does so, too", async () => {
  const { handler, ended } = greeter()
  const { ws, client } = await open(handler)
  const closed = once(ws, 'close')
  client.session.control({ type: 'drain', reason: 'update', afterMs: 0, deadlineMs: 200 })
  expect((await closed)[0]).toBe(1001)
  await ended
  expect((await client.message('drained')).lastStream).toBe(2)
})
