/** A stranger who spreads unread downloads or paused uploads over many runtimes pays for them, and not the callers of a busy one. */
import { type ClientHttp2Session, connect } from 'node:http2'
import { connect as connectNet } from 'node:net'
import { afterEach, expect, test } from 'vitest'
import { discarding } from '../../protocol/base/guard.ts'
import type { ExchangeHandler } from '../../protocol/wire/exchange/accept.ts'
import type { Server } from '../../server/server.ts'
import { answer, call, DOMAIN, dial, startServer } from '../server/fixture.ts'
import { until } from '../support/until.ts'

const MIB = 1024 * 1024

let server: Server
const callers: ClientHttp2Session[] = []
afterEach(async () => {
  for (const caller of callers.splice(0)) caller.destroy()
  await server.close({ graceMs: 0 })
})

const long: ExchangeHandler = (_properties, _request, response) => {
  answer(response, 200, 'x'.repeat(2 * MIB))
  return discarding(response)
}

/** Takes no bodies. */
function caller(localAddress: string): ClientHttp2Session {
  const { port } = server.publicAddress!
  const createConnection = () => connectNet({ port, host: '127.0.0.1', localAddress })
  const session = connect('http://any', { createConnection, settings: { initialWindowSize: 0 } })
  session.on('error', () => {})
  callers.push(session)
  return session
}

/** Resolves when the answer has begun or failed. */
function ask(caller: ClientHttp2Session, runtime: string, counts: { cut: number }): Promise<void> {
  return new Promise(resolve => {
    const request = caller.request({ ':path': '/', ':authority': `${runtime}.${DOMAIN}` })
    request.on('error', () => {})
    request.once('response', () => resolve())
    request.once('close', () => {
      counts.cut++
      resolve()
    })
  })
}

test.each([1, 10])(
  'at the ceiling of the process, a stranger with downloads at %i runtimes pays',
  { timeout: 60_000 },
  async spread => {
    server = await startServer({ limits: { processBufferBytes: 32 * MIB } })
    await dial(server, { handler: long, runtime: 'busy' })
    for (let i = 0; i < spread; i++) await dial(server, { handler: long, runtime: `r${i}` })
    const [honest, stranger] = [{ cut: 0 }, { cut: 0 }]
    for (let i = 0; i < 24; i++) await ask(caller(`127.0.1.${i + 1}`), 'busy', honest)
    const connections = Array.from({ length: 4 }, () => caller('127.0.0.2'))
    for (let i = 0; i < 200; i++) await ask(connections[i % 4]!, `r${i % spread}`, stranger)
    await expect.poll(() => server.stats().bufferedBytes).toBeLessThanOrEqual(32 * MIB)
    expect(honest.cut).toBe(0)
    expect(stranger.cut).toBeGreaterThan(0)
  },
)

test('B3 a stranger with uploads that pause at ten runtimes keeps no callers of a busy one from being retried', async () => {
  server = await startServer({ limits: { replayTotalBytes: 50_000 } })
  let asked = 0
  const silent: ExchangeHandler = (_properties, _request, response) => {
    asked++
    return discarding(response)
  }
  const first = await dial(server, { handler: silent, runtime: 'busy' })
  for (let i = 0; i < 10; i++) await dial(server, { handler: silent, runtime: `r${i}` })
  const body = 'x'.repeat(1000)
  const calling = Array.from({ length: 20 }, (_, i) =>
    call(server, `busy.${DOMAIN}`, '/', { method: 'POST', body, localAddress: `127.0.1.${i + 1}` }),
  )
  await until(() => asked === 20)
  const { host, port } = server.publicAddress!
  const uploads = Array.from({ length: 50 }, () => connectNet({ host, port, localAddress: '127.0.0.2' }))
  for (const [i, upload] of uploads.entries()) {
    const head = `POST / HTTP/1.1\r\nHost: r${i % 10}.${DOMAIN}\r\nContent-Length: 2000\r\n\r\n`
    upload.on('error', () => {}).write(head + body)
  }
  await until(() => asked === 70)
  const handler: ExchangeHandler = (_properties, _request, response) => {
    answer(response, 200, '')
    return discarding(response)
  }
  await dial(server, { handler, runtime: 'busy', hello: { connection: 1 } })
  first.ws.terminate()
  const answers = await Promise.all(calling)
  expect(answers.map(({ status }) => status)).toEqual(calling.map(() => 200))
  for (const upload of uploads) upload.destroy()
  await until(() => server.stats().exchanges === 0)
  expect(server.stats().replayBytes).toBe(0)
})
