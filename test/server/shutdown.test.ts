/** The end of a server under steady callers: what was accepted is answered, and the rest ends in order. */

import { Agent, request as httpRequest } from 'node:http'
import { connect as connectHttp2 } from 'node:http2'
import { setTimeout } from 'node:timers/promises'
import { afterEach, describe, expect, test } from 'vitest'
import type { Hello } from '../../protocol/wire/control.ts'
import type { ExchangeHandler } from '../../protocol/wire/exchange/accept.ts'
import { MemoryDirectory } from '../../server/directory/memory.ts'
import type { Server } from '../../server/server.ts'
import { unhurried } from '../support/busy.ts'
import { until } from '../support/until.ts'
import { call, dial, echo, HOST, hanging, openWebSocket, startServer, type TestClient } from './fixture.ts'

/** Callers think between requests, for longer than a client needs to leave. */
const PACE_MS = 30

let server: Server
afterEach(() => server.close({ graceMs: 0 }))

/** Paths of requests that the server accepted. */
const taken = new Set<string>()
const noting: ExchangeHandler = (preamble, request, response) => {
  taken.add(request.path)
  return echo(preamble, request, response)
}

/** A connection that the kernel accepted, and that the server had not seen when it stopped listening. */
const nobodyTook = (path: string, code: string | undefined) => code === 'ECONNRESET' && !taken.has(path)

/** A client that leaves when told to, like ours, but has nowhere to go. */
async function leaver(hello: Partial<Hello> = {}): Promise<TestClient> {
  const client = await dial(server, { hello, handler: noting })
  void client.message('drain').then(() => client.session.control({ type: 'drained', lastStream: 0 }))
  return client
}

interface Tally {
  answered: number
  /** Everything but the upstream's own answer; a refused connection ends the caller, and is not a loss. */
  readonly lost: string[]
}

/** One request after the other on a kept connection, until nothing listens any more. */
async function callOverHttp1(tally: Tally, method: string, number: number): Promise<void> {
  const { host, port } = server.publicAddress!
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  for (let i = 0; ; i++) {
    const path = `/${method}/${number}/${i}`
    const outcome = await new Promise<string>(resolve => {
      const request = httpRequest({ host, port, path, method, agent, headers: { host: HOST } }, response => {
        let text = ''
        response.on('data', chunk => {
          text += chunk
        })
        response.on('error', error => resolve(`cut: ${error.message}`))
        response.on('end', () =>
          resolve(text.startsWith(`${method} ${path} `) ? 'ok' : `${response.statusCode} ${text}`),
        )
      })
      request.on('error', (error: NodeJS.ErrnoException) => {
        resolve(
          error.code === 'ECONNREFUSED' || nobodyTook(path, error.code) ? 'over' : `${error.code} ${error.message}`,
        )
      })
      request.end(method === 'POST' ? 'body' : undefined)
    })
    if (outcome === 'over') break
    if (outcome === 'ok') tally.answered++
    else tally.lost.push(outcome)
    await setTimeout(PACE_MS)
  }
  agent.destroy()
}

/** The same over HTTP/2: after a go-away, the next request uses a new connection. */
async function callOverHttp2(tally: Tally, number: number): Promise<void> {
  const { port } = server.publicAddress!
  for (let i = 0; ; ) {
    const session = connectHttp2(`http://127.0.0.1:${port}`)
    const refused = new Promise<boolean>(resolve => {
      session.once('error', () => resolve(true))
      session.once('connect', () => resolve(false))
    })
    if (await refused) return
    while (!session.closed && !session.destroyed) {
      const path = `/h2/${number}/${i++}`
      const stream = session.request({ ':path': path, ':authority': HOST })
      const outcome = await new Promise<string>(resolve => {
        let text = ''
        stream.on('data', chunk => {
          text += chunk
        })
        stream.on('error', (error: NodeJS.ErrnoException) => {
          resolve(nobodyTook(path, error.code) ? 'over' : error.message)
        })
        stream.on('end', () => resolve(text.startsWith(`GET ${path} `) ? 'ok' : text))
      })
      if (outcome === 'over') return
      if (outcome === 'ok') tally.answered++
      // Not processed, says RFC 9113, section 8.7: it crossed the go-away, and is sent again on a new connection.
      else if (!outcome.includes('NGHTTP2_REFUSED_STREAM')) tally.lost.push(outcome)
    }
  }
}

describe('under steady callers', () => {
  test('the upstream answers every accepted request', async () => {
    server = await startServer()
    await Promise.all([leaver(), leaver({ connection: 1 })])
    const tally: Tally = { answered: 0, lost: [] }
    const callers = ['GET', 'POST', 'GET', 'POST'].map((method, i) => callOverHttp1(tally, method, i))
    callers.push(callOverHttp2(tally, 1), callOverHttp2(tally, 2))
    await until(() => tally.answered >= 100)
    const before = tally.answered
    await Promise.all([server.close({ graceMs: 150_000 }), ...callers])
    expect(tally.lost).toEqual([])
    expect(tally.answered).toBeGreaterThan(before)
  })
})

test('it goes on serving during the delay, not ready, and then accepts nobody', async () => {
  server = await startServer({ drainDelayMs: unhurried(1000), healthPath: '/lb' })
  await leaver()
  expect((await call(server, HOST, '/lb')).status).toBe(200)
  const draining = server.drain()
  expect(server.ready()).toBe(false)
  expect((await call(server, HOST, '/lb')).status).toBe(503)
  expect((await call(server, HOST)).status).toBe(200)
  await draining
  await expect(call(server, HOST)).rejects.toMatchObject({ code: 'ECONNREFUSED' })
  await expect(openWebSocket(server, {})).rejects.toMatchObject({ code: 'ECONNREFUSED' })
})

test('where there is a directory, clients are asked to leave one after the other over a time', async () => {
  server = await startServer({ drainSpreadMs: 10_000, directory: new MemoryDirectory() })
  const clients = await Promise.all(Array.from({ length: 8 }, (_, i) => dial(server, { runtime: `r${i}` })))
  void server.drain({ graceMs: 30_000 })
  const told = await Promise.all(clients.map(async client => (await client.message('drain')).afterMs))
  expect(new Set(told).size).toBeGreaterThan(4)
  expect(Math.max(...told)).toBeLessThanOrEqual(10_000)
})

test('alone, it serves new callers until the earlier ones have finished, and then asks all its clients at once', async () => {
  server = await startServer({ drainSpreadMs: 60_000 })
  const { handler, begun } = hanging()
  const client = await dial(server, {
    handler: (preamble, request, response) => (request.path === '/slow' ? handler : echo)(preamble, request, response),
  })
  const slow = call(server, HOST, '/slow')
  const response = await begun
  const draining = server.drain({ graceMs: 60_000 })
  for (let i = 0; i < 3; i++) expect((await call(server, HOST, `/${i}`)).status).toBe(200)
  expect(client.messages.some(({ type }) => type === 'drain')).toBe(false)
  response.responseHead({ status: 200, headers: [], bodyBytes: 0 })
  response.responseEnd([])
  expect((await slow).status).toBe(200)
  expect((await client.message('drain')).afterMs).toBe(0)
  await draining
  expect((await client.closed).code).toBe(1001)
})

test('a response announces that its connection ends', async () => {
  server = await startServer()
  const { handler, begun } = hanging()
  await dial(server, { handler })
  const agent = new Agent({ keepAlive: true })
  const calling = call(server, HOST, '/', { agent })
  const response = await begun
  void server.drain()
  response.responseHead({ status: 200, headers: ['content-length', '0'], bodyBytes: 0 })
  response.responseEnd([])
  expect((await calling).headers.connection).toBe('close')
  agent.destroy()
})

test('a request that waits for a session is answered before the end', async () => {
  server = await startServer({ hold: { holdMs: unhurried(1000) } })
  const calling = call(server, HOST)
  await until(() => server.stats().held > 0)
  await server.close({ graceMs: 10_000 })
  expect((await calling).status).toBe(503)
})
