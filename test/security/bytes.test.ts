/** B1, B3: who holds bytes, how long they count, and who pays at a ceiling. */

import { type ClientHttp2Session, connect } from 'node:http2'
import { connect as connectNet } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { discarding } from '../../protocol/base/guard.ts'
import type { ExchangeHandler } from '../../protocol/wire/exchange/accept.ts'
import type { Server } from '../../server/server.ts'
import { answer, call, DOMAIN, dial, startServer } from '../server/fixture.ts'
import { until } from '../support/until.ts'

const KIB = 1024
const HOST = `demo.${DOMAIN}`
const LONG = 'x'.repeat(60 * KIB)

/** Answers at once, however much of the request has arrived. */
const long: ExchangeHandler = (_preamble, _request, response) => {
  answer(response, 200, LONG)
  return discarding(response)
}

let server: Server
const callers: ClientHttp2Session[] = []
afterEach(async () => {
  for (const caller of callers.splice(0)) caller.destroy()
  await server.close({ graceMs: 0 })
})

/** A caller that reads no byte of any body, from its own address. */
function caller(localAddress: string, initialWindowSize = 0): ClientHttp2Session {
  const { port } = server.publicAddress!
  const session = connect(`http://${HOST}`, {
    createConnection: () => connectNet({ port, host: '127.0.0.1', localAddress }),
    settings: { initialWindowSize },
  })
  session.on('error', () => {})
  callers.push(session)
  return session
}

async function asks(session: ClientHttp2Session, count: number, host = HOST, endStream = true): Promise<void> {
  const heads = Array.from({ length: count }, async () => {
    const head = endStream ? {} : { ':method': 'POST' }
    const request = session.request({ ':path': '/', ':authority': host, ...head }, { endStream })
    request.on('error', () => {})
    await new Promise(resolve => request.once('response', resolve).once('close', resolve))
  })
  await Promise.all(heads)
}

async function isWhole(host: string): Promise<void> {
  const { status, text } = await call(server, host)
  expect([status, text.length]).toEqual([200, LONG.length])
}

describe('B1 bytes that wait for a caller', () => {
  test.each([true, false])('count until they have left or the caller has gone (request whole: %s)', async whole => {
    server = await startServer()
    await dial(server, { handler: long })
    const slow = caller('127.0.0.2')
    await asks(slow, 20, HOST, whole)
    await until(() => server.stats().streams === 0)
    // Less what HTTP/2 has already taken to frame it.
    expect(server.stats().bufferedBytes).toBeGreaterThan(20 * 20 * KIB)
    slow.destroy()
    await until(() => server.stats().bufferedBytes === 0)
  })

  test('still count towards the ceilings after their session has ended', async () => {
    server = await startServer()
    const client = await dial(server, { handler: long })
    await asks(caller('127.0.0.2'), 20)
    await until(() => server.stats().streams === 0)
    const held = server.stats().bufferedBytes
    client.ws.terminate()
    await until(() => server.stats().sessions === 0)
    expect([held > 0, server.stats().bufferedBytes]).toEqual([true, held])
    for (const one of callers) one.destroy()
    await until(() => server.stats().bufferedBytes === 0)
  })
})

describe('B3 a caller that reads nothing', () => {
  test("fills a session's ceiling, and other callers' answers still arrive whole", async () => {
    server = await startServer({ limits: { sessionBufferBytes: 1024 * KIB } })
    await dial(server, { handler: long })
    for (let i = 0; i < 3; i++) {
      const greedy = caller('127.0.0.2')
      await asks(greedy, 40)
      for (let n = 0; n < 5; n++) await isWhole(HOST)
    }
    expect(server.stats().bufferedBytes).toBeLessThanOrEqual(1024 * KIB)
    expect(server.stats().bufferedBytes).toBeGreaterThan(512 * KIB)
  })

  test("fills the process's ceiling, and callers of another runtime do not notice", async () => {
    server = await startServer({ limits: { processBufferBytes: 1024 * KIB } })
    await dial(server, { handler: long })
    await dial(server, { handler: long, runtime: 'other' })
    for (let i = 0; i < 3; i++) {
      // From the same address as the other caller: the runtime pays.
      await asks(caller('127.0.0.1'), 40)
      for (let n = 0; n < 5; n++) await isWhole(`other.${DOMAIN}`)
    }
    expect(server.stats().bufferedBytes).toBeLessThanOrEqual(1024 * KIB)
  })
})
