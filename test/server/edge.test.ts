import { Agent } from 'node:http'
import { connect } from 'node:net'
import { importJWK, SignJWT } from 'jose'
import { afterEach, describe, expect, test } from 'vitest'
import { WebSocket } from 'ws'
import { SallyportError } from '../../protocol/base/errors.ts'
import { discarding } from '../../protocol/base/guard.ts'
import type { ExchangeRecord, ResponseSink } from '../../protocol/exchange.ts'
import type { ExchangeHandler } from '../../protocol/wire/exchange/accept.ts'
import type { Server } from '../../server/server.ts'
import { eventually, until } from '../support/until.ts'
import {
  always,
  answer,
  call,
  DOMAIN,
  dial,
  echo,
  HOST,
  hanging,
  leave,
  makeWorld,
  startServer,
  token,
} from './fixture.ts'

const ORIGIN = 'https://ui.example.com'

let server: Server
const startEdge = async (options: Parameters<typeof startServer>[0] = {}) => {
  server = await startServer(options)
  return server
}
afterEach(() => server.close({ graceMs: 0 }))

describe('which runtime', () => {
  test.each(['example.com', DOMAIN, `a.demo.${DOMAIN}`, `demo.${DOMAIN}.evil.com`, `-x.${DOMAIN}`])(
    '%s is an unknown host',
    async host => {
      await startEdge()
      await dial(server)
      const answer = await call(server, host)
      expect(answer.status).toBe(404)
      expect(answer.headers['sallyport-error']).toBe('unknown-host')
      expect(JSON.parse(answer.text)).toMatchObject({
        type: 'urn:sallyport:error:unknown-host',
        status: 404,
        code: 'unknown-host',
        requestId: answer.headers['x-request-id'],
      })
    },
  )

  test.each([HOST, `DEMO.${DOMAIN.toUpperCase()}`, `${HOST}:443`, `${HOST}.`])('%s is the runtime', async host => {
    await startEdge()
    await dial(server)
    expect((await call(server, host)).status).toBe(200)
  })

  test('a runtime without a session is offline, and the answer says when to try again', async () => {
    await startEdge()
    const answer = await call(server, HOST)
    expect(answer.status).toBe(503)
    expect(answer.headers['sallyport-error']).toBe('runtime-offline')
    expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0)
  })

  test('a session that is not ready gets no exchanges', async () => {
    await startEdge()
    await dial(server, { notReady: true })
    expect((await call(server, HOST)).status).toBe(503)
  })

  test('HEAD gets no body with an error', async () => {
    await startEdge()
    const answer = await call(server, HOST, '/', { method: 'HEAD' })
    expect([answer.status, answer.text]).toEqual([503, ''])
  })

  test('the health path answers on any host', async () => {
    await startEdge({ healthPath: '/lb' })
    expect(await call(server, '10.0.0.1', '/lb')).toMatchObject({ status: 200, text: 'ok\n' })
    expect((await call(server, '10.0.0.1', '/lb', { method: 'POST' })).status).toBe(405)
  })
})

describe('CORS on our own errors', () => {
  const preflight = {
    method: 'OPTIONS',
    headers: { origin: ORIGIN, 'access-control-request-method': 'POST' },
  }

  test('comes from what the client published, even after it has left', async () => {
    await startEdge()
    const cors = [
      { path: '/', origins: ['https://other.example.com'] },
      { path: '/app', origins: [ORIGIN], methods: ['POST'], credentials: true },
    ]
    await leave(server, await dial(server, { hello: { cors } }))
    const inside = await call(server, HOST, '/app/x?y', { headers: { origin: ORIGIN } })
    expect(inside.status).toBe(503)
    expect(inside.headers['access-control-allow-origin']).toBe(ORIGIN)
    expect(inside.headers['access-control-allow-credentials']).toBe('true')
    expect(inside.headers.vary).toBe('origin')
    const outside = await call(server, HOST, '/application', { headers: { origin: ORIGIN } })
    expect(outside.headers['access-control-allow-origin']).toBeUndefined()
    const asked = await call(server, HOST, '/app', preflight)
    expect([asked.status, asked.headers['access-control-allow-methods']]).toEqual([204, 'POST'])
    expect((await call(server, HOST, '/', preflight)).status).toBe(503)
  })

  test('is that of the active instance, whichever connected last', async () => {
    await startEdge()
    const join = (instance: string, lastEpoch = 0) =>
      dial(server, {
        hello: { instance, lastEpoch, cors: [{ path: '/', origins: [`https://${instance}.example.com`] }] },
      })
    const tooLong = `/${'x'.repeat(9000)}`
    const allowed = async () => {
      const answers = ['old', 'new'].map(name =>
        call(server, HOST, tooLong, { headers: { origin: `https://${name}.example.com` } }),
      )
      return (await Promise.all(answers)).map(({ headers }) => headers['access-control-allow-origin'])
    }
    await leave(server, await join('old'))
    const active = await join('new')
    const standby = await join('old', 1)
    expect(await allowed()).toEqual([undefined, 'https://new.example.com'])
    await leave(server, active)
    expect(await standby.message('ready')).toMatchObject({ active: true })
    expect(await allowed()).toEqual(['https://old.example.com', undefined])
  })

  test('is forgotten when its time is over', async () => {
    await startEdge({ limits: { corsKeepMs: 1000 } })
    await leave(server, await dial(server, { hello: { cors: [{ path: '/', origins: [ORIGIN] }] } }))
    await eventually(async () => {
      const answer = await call(server, HOST, '/', { headers: { origin: ORIGIN } })
      expect(answer.headers['access-control-allow-origin']).toBeUndefined()
    })
  })

  test('falls back to the server-wide origins', async () => {
    await startEdge({ cors: { origins: [ORIGIN] } })
    const answer = await call(server, HOST, '/', { headers: { origin: ORIGIN } })
    expect(answer.headers['access-control-allow-origin']).toBe(ORIGIN)
    expect((await call(server, HOST, '/', preflight)).status).toBe(204)
  })
})

describe('who may call', () => {
  test('an empty list lets nobody in', async () => {
    await startEdge()
    await dial(server, { hello: { allowCallers: [] } })
    const answer = await call(server, HOST)
    expect([answer.status, answer.headers['sallyport-error']]).toEqual([403, 'caller-not-allowed'])
  })

  test("the address is the socket's unless the peer is a trusted proxy", async () => {
    await startEdge({ trustedProxies: ['10.0.0.0/8'] })
    await dial(server, { hello: { allowCallers: ['203.0.113.0/24'] } })
    const forged = { headers: { 'x-forwarded-for': '203.0.113.7' } }
    expect((await call(server, HOST, '/', forged)).status).toBe(403)
  })

  test('a trusted proxy is believed, counted from the right', async () => {
    await startEdge({ trustedProxies: ['127.0.0.0/8', '10.0.0.0/8'] })
    await dial(server, { hello: { allowCallers: ['203.0.113.0/24'] } })
    const right = { headers: { 'x-forwarded-for': '8.8.8.8, 203.0.113.7, 10.1.1.1' } }
    const left = { headers: { 'x-forwarded-for': '203.0.113.7, 8.8.8.8, 10.1.1.1' } }
    expect((await call(server, HOST, '/', right)).status).toBe(200)
    expect((await call(server, HOST, '/', left)).status).toBe(403)
  })

  test("the token's list wins over the client's", async () => {
    await startEdge()
    const { keys } = await makeWorld()
    const key = await importJWK(keys.privateJwk, keys.privateJwk.alg)
    const bearer = await new SignJWT({ sallyport_allow_callers: ['203.0.113.0/24'] })
      .setProtectedHeader({ alg: 'EdDSA' })
      .setSubject('demo')
      .setAudience('sallyport')
      .setExpirationTime('1h')
      .sign(key)
    await dial(server, { token: bearer, hello: { allowCallers: ['0.0.0.0/0'] } })
    expect((await call(server, HOST)).status).toBe(403)
  })
})

describe('retries', () => {
  const post = { method: 'POST', body: 'payload' }

  test('a request refused unprocessed goes to the other session, body and all', async () => {
    await startEdge()
    let refusals = 0
    const refuse: ExchangeHandler = () => {
      refusals++
      return 'draining'
    }
    await dial(server, { handler: refuse, hello: { connection: 0 } })
    await dial(server, { hello: { connection: 1 } })
    const answers = new Set<string>()
    // One bad round trip at a busy moment keeps requests away from the session for a while.
    await until(async () => {
      const more = await Promise.all(Array.from({ length: 20 }, () => call(server, HOST, '/', post)))
      for (const { text } of more) answers.add(text)
      return refusals > 0
    })
    expect(answers).toEqual(new Set(['POST / payload']))
  })

  test('a GET whose session dies before an answer goes to another session, even of another instance', async () => {
    await startEdge()
    const victim = hanging()
    const first = await dial(server, { handler: victim.handler, hello: { instance: 'one' } })
    const calling = call(server, HOST)
    await victim.begun
    await dial(server, { handler: always('second'), hello: { instance: 'two' } })
    first.ws.terminate()
    expect((await calling).text).toBe('second')
  })

  test('a POST goes to the same instance, which knows what it has begun', async () => {
    await startEdge()
    const victim = hanging()
    const first = await dial(server, { handler: victim.handler })
    const calling = call(server, HOST, '/', post)
    await victim.begun
    const seen: number[] = []
    const begun: ExchangeHandler = preamble => {
      seen.push(preamble.attempt)
      return 'already-begun'
    }
    await dial(server, { handler: begun, hello: { connection: 1 } })
    first.ws.terminate()
    const answer = await calling
    expect([answer.status, answer.headers['sallyport-error']]).toEqual([502, 'session-lost'])
    expect(seen).toEqual([1])
  })

  test('the sender of a POST that may have begun is never told to try again', async () => {
    await startEdge()
    const victim = hanging()
    const first = await dial(server, { handler: victim.handler, hello: { instance: 'one' } })
    const calling = call(server, HOST, '/', post)
    await victim.begun
    await dial(server, { handler: () => 'draining', hello: { instance: 'one', connection: 1 } })
    first.ws.terminate()
    const answer = await calling
    expect([answer.status, answer.headers['retry-after']]).toEqual([502, undefined])
  })

  test('a POST never goes to another instance', async () => {
    await startEdge()
    const victim = hanging()
    const first = await dial(server, { handler: victim.handler, hello: { instance: 'one' } })
    const calling = call(server, HOST, '/', post)
    await victim.begun
    const other = hanging()
    await dial(server, { handler: other.handler, hello: { instance: 'two' } })
    first.ws.terminate()
    const answer = await calling
    expect([answer.status, answer.headers['sallyport-error'], other.count()]).toEqual([502, 'session-lost', 0])
  })

  test.each([
    [900, 200],
    [2000, 502],
  ])('with a bound of 1,000 bytes, a body of %i is retried: %i', async (bytes, status) => {
    await startEdge({ limits: { replayBytes: 1000 } })
    const victim = hanging()
    const first = await dial(server, { handler: victim.handler })
    const calling = call(server, HOST, '/', { body: 'x'.repeat(bytes), headers: { 'content-length': `${bytes}` } })
    await victim.begun
    await dial(server, { hello: { connection: 1 } })
    // What exceeds the bound is released as soon as the session has it.
    await until(() => server.stats().replayBytes <= 1000)
    first.ws.terminate()
    const answer = await calling
    expect(answer.status).toBe(status)
    if (status === 200) expect(answer.text).toBe(`GET / ${'x'.repeat(bytes)}`)
    expect(server.stats()).toMatchObject({ replayBytes: 0, exchanges: 0 })
  })

  test.each([
    ['one network', 1],
    ['ten networks', 10],
  ])('B3 uploads of %s that pause keep nobody else from being retried', async (_networks, networks) => {
    await startEdge({ limits: { replayTotalBytes: 40_000 } })
    const seen: string[] = []
    const handler: ExchangeHandler = (_preamble, { path }, response) => {
      seen.push(path)
      return discarding(response)
    }
    const first = await dial(server, { handler })
    const { host, port } = server.publicAddress!
    const head = `POST /paused HTTP/1.1\r\nHost: ${HOST}\r\nContent-Length: 2000\r\n\r\n`
    const uploads = Array.from({ length: 50 }, (_, i) =>
      connect({ host, port, localAddress: `127.0.1.${1 + (i % networks)}` }),
    )
    for (const upload of uploads) upload.on('error', () => {}).write(head + 'x'.repeat(1000))
    await until(() => seen.length === uploads.length)
    const calling = call(server, HOST, '/honest', post)
    await until(() => seen.includes('/honest'))
    await dial(server, { hello: { connection: 1 } })
    first.ws.terminate()
    expect(await calling).toMatchObject({ status: 200, text: 'POST /honest payload' })
    for (const upload of uploads) upload.destroy()
    await until(() => server.stats().exchanges === 0)
    expect(server.stats().replayBytes).toBe(0)
  })

  test('a body over the bound goes to another session if the first refuses it', async () => {
    await startEdge()
    let refusals = 1
    const handler: ExchangeHandler = (...args) => (refusals-- > 0 ? 'draining' : echo(...args))
    await dial(server, { handler })
    await dial(server, { handler, hello: { connection: 1 } })
    const body = 'z'.repeat(200_000)
    const headers = { 'content-length': `${body.length}` }
    const answer = await call(server, HOST, '/', { method: 'POST', body, headers })
    expect([answer.status, answer.text === `POST / ${body}`]).toEqual([200, true])
    expect(server.stats()).toMatchObject({ replayBytes: 0, exchanges: 0 })
  })

  test('a retried body of 60 KB arrives whole, and the connection goes on', async () => {
    await startEdge()
    const victim = hanging()
    const first = await dial(server, { handler: victim.handler })
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const body = 'y'.repeat(60_000)
    const calling = call(server, HOST, '/', { agent, body, headers: { 'content-length': '60000' } })
    await victim.begun
    await dial(server, { hello: { connection: 1 } })
    first.ws.terminate()
    expect((await calling).text).toBe(`GET / ${body}`)
    const again = await call(server, HOST, '/', { agent, method: 'POST', body: body.repeat(5) })
    expect(again.text).toBe(`POST / ${body.repeat(5)}`)
    agent.destroy()
  })

  test('a WebSocket whose session dies before the 101 is opened through another', async () => {
    await startEdge()
    const victim = hanging()
    const first = await dial(server, { handler: victim.handler })
    const { host, port } = server.publicAddress!
    const ws = new WebSocket(`ws://${host}:${port}/`, { headers: { host: HOST } })
    await victim.begun
    const accepting: ExchangeHandler = (_preamble, _request, response) => {
      response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
      response.responseData(Buffer.from('\x81\x02hi', 'latin1'))
      return discarding(response)
    }
    await dial(server, { handler: accepting, hello: { connection: 1 } })
    first.ws.terminate()
    const text = await new Promise(resolve => ws.once('message', data => resolve(String(data))))
    expect(text).toBe('hi')
    ws.terminate()
  })

  test('an answer that began is cut, never ended cleanly and never retried', async () => {
    const records: ExchangeRecord[] = []
    await startEdge({ onExchange: record => records.push(record) })
    let sent: ResponseSink | undefined
    const half: ExchangeHandler = (_preamble, _request, response) => {
      response.responseHead({ status: 200, headers: ['content-length', '10'], bodyBytes: 10 })
      response.responseData(Buffer.from('half'))
      sent = response
      return discarding(response)
    }
    await dial(server, { handler: half })
    const onResponse = () => sent!.responseAbort(new SallyportError('upstream-broken'))
    await expect(call(server, HOST, '/', { onResponse })).rejects.toThrow()
    expect(records).toMatchObject([{ status: 200, code: 'upstream-broken', cut: true }])
  })
})

describe('the record of an exchange', () => {
  test('tells what happened, without the query', async () => {
    const records: ExchangeRecord[] = []
    await startEdge({ onExchange: record => records.push(record) })
    await dial(server)
    await call(server, HOST, '/a?secret=1', { method: 'POST', body: 'abc' })
    expect(records).toHaveLength(1)
    expect(records[0]).toMatchObject({
      runtime: 'demo',
      method: 'POST',
      host: HOST,
      path: '/a',
      caller: '127.0.0.1',
      status: 200,
      code: undefined,
      cut: false,
      bytesIn: 3,
      bytesOut: 'POST /a?secret=1 abc'.length,
      upgrade: false,
      session: server.sessions()[0]!.id,
    })
    await call(server, 'nowhere.example')
    expect(records[1]).toMatchObject({ runtime: undefined, status: 404, code: 'unknown-host' })
  })

  test('a hook that throws affects nobody, and an unreadable request is recorded, too', async () => {
    const codes: (string | undefined)[] = []
    await startEdge({
      onExchange: record => {
        codes.push(record.code)
        throw new Error('mine')
      },
    })
    await dial(server)
    expect((await call(server, HOST)).status).toBe(200)
    expect((await call(server, HOST)).status).toBe(200)
    expect((await call(server, HOST, '/', { headers: { x: 'y'.repeat(20_000) } })).status).toBe(431)
    expect(codes).toEqual([undefined, undefined, 'head-too-large'])
  })

  test('a caller that leaves counts as cancelled, and the client is told', async () => {
    const records: ExchangeRecord[] = []
    const begun = Promise.withResolvers<void>()
    const gone = Promise.withResolvers<SallyportError>()
    await startEdge({ onExchange: record => records.push(record) })
    await dial(server, {
      handler: (_preamble, _request, response) => {
        begun.resolve()
        return { ...discarding(response), requestAbort: gone.resolve }
      },
    })
    const controller = new AbortController()
    call(server, HOST, '/', { signal: controller.signal }).catch(() => {})
    await begun.promise
    controller.abort()
    expect((await gone.promise).reason).toBe('cancelled')
    expect(records[0]).toMatchObject({ status: 0, code: 'cancelled', cut: false })
    expect(server.stats().exchanges).toBe(0)
  })
})

test('a full session is overloaded, and the answer says when to try again', async () => {
  await startEdge({ limits: { streams: 1 }, cors: { origins: [ORIGIN] } })
  const { handler, begun } = hanging()
  const client = await dial(server, { handler })
  const first = call(server, HOST)
  await begun
  const answer = await call(server, HOST, '/', { headers: { origin: ORIGIN } })
  expect([answer.status, answer.headers['sallyport-error']]).toEqual([503, 'overloaded'])
  expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0)
  expect(answer.headers['access-control-allow-origin']).toBe(ORIGIN)
  await dial(server, { handler: always('room'), hello: { connection: 1 } })
  expect((await call(server, HOST)).text).toBe('room')
  client.ws.terminate()
  expect((await first).text).toBe('room')
})

describe('several sessions', () => {
  test('share the exchanges, and a draining one gets none', async () => {
    await startEdge()
    const counts = [0, 0]
    const both = Promise.withResolvers<void>()
    // Nobody is answered before both have an exchange: open ones outweigh a round trip measured at a bad moment.
    const counting =
      (index: number): ExchangeHandler =>
      (_preamble, _request, response) => {
        counts[index]!++
        if (Math.min(...counts) > 0) both.resolve()
        void both.promise.then(() => answer(response, 200, String(index)))
        return discarding(response)
      }
    const first = await dial(server, { handler: counting(0) })
    await dial(server, { handler: counting(1), hello: { connection: 1 } })
    const calls: Promise<unknown>[] = []
    while (Math.min(...counts) === 0 && calls.length < 400) {
      calls.push(call(server, HOST))
      await until(() => counts[0]! + counts[1]! === calls.length)
    }
    expect(Math.min(...counts)).toBeGreaterThan(0)
    await Promise.all(calls)
    first.session.control({ type: 'drain', reason: 'test', afterMs: 0, deadlineMs: 5000 })
    await first.message('drained')
    const before = counts[0]
    for (let i = 0; i < 20; i++) await call(server, HOST)
    expect(counts[0]).toBe(before)
  })

  test('a newer instance takes over, and the older one returns when the newer leaves', async () => {
    await startEdge()
    const one = await dial(server, { handler: always('one'), hello: { instance: 'one' } })
    expect((await call(server, HOST)).text).toBe('one')
    const two = await dial(server, { handler: always('two'), hello: { instance: 'two' } })
    expect(await one.message('ready')).toMatchObject({ active: false, epoch: 1 })
    expect((await call(server, HOST)).text).toBe('two')
    two.session.close('gone')
    expect(await one.message('ready')).toMatchObject({ active: true, epoch: 3 })
    expect((await call(server, HOST)).text).toBe('one')
  })

  test('a session that drains is shown as active only while its instance is', async () => {
    await startEdge()
    const one = await dial(server, { handler: always('one'), hello: { instance: 'one' } })
    const held = hanging()
    const two = await dial(server, { handler: held.handler, hello: { instance: 'two' } })
    const open = call(server, HOST).catch(() => undefined)
    await held.begun
    two.session.control({ type: 'drain', reason: 'test', afterMs: 0, deadlineMs: 5000 })
    await two.message('drained')
    expect((await call(server, HOST)).text).toBe('one')
    expect(server.sessions().map(({ instance, state, active }) => [instance, state, active])).toEqual([
      ['one', 'open', true],
      ['two', 'draining', false],
    ])
    // As before, a session that has begun to leave is told nothing more.
    expect(two.messages.filter(({ type }) => type === 'ready')).toHaveLength(1)
    two.ws.terminate()
    await open
    one.ws.terminate()
  })

  test('another runtime gets none of it', async () => {
    await startEdge()
    await dial(server, { handler: always('demo') })
    await dial(server, { token: await token('demo2'), handler: always('demo2') })
    for (let i = 0; i < 10; i++) {
      expect((await call(server, HOST)).text).toBe('demo')
      expect((await call(server, `demo2.${DOMAIN}`)).text).toBe('demo2')
    }
  })
})
