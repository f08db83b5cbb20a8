import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { connect as connectTls, createServer as createTlsServer, type TLSSocket } from 'node:tls'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { WebSocket } from 'ws'
import {
  type CertificateAndKey,
  createAuthority,
  createReplicaCertificate,
  createServerCertificate,
} from '../../certs/index.ts'
import { discarding } from '../../protocol/base/guard.ts'
import { BODY_UNKNOWN, type HttpRequest, type RequestSink, type ResponseSink } from '../../protocol/exchange.ts'
import { getHeader } from '../../protocol/http/headers.ts'
import { createTracer } from '../../protocol/trace/tracer.ts'
import { acceptExchange, type ExchangeHandler } from '../../protocol/wire/exchange/accept.ts'
import { openExchange } from '../../protocol/wire/exchange/open.ts'
import type { RefusedError } from '../../protocol/wire/exchange/refusal.ts'
import type { Session, SessionOptions } from '../../protocol/wire/yamux/session.ts'
import { RESET_CODES } from '../../protocol/wire/yamux/stream.ts'
import { createSession } from '../../protocol/wire/yamux/yamux-session.ts'
import { PEER_NAME, peerTlsOptions } from '../../server/peer/tls.ts'
import { PeerTransport } from '../../server/peer/transport.ts'
import type { Server } from '../../server/server.ts'
import { always, answer, call, DOMAIN, dial, hanging, leave, makeWorld, token } from '../server/fixture.ts'
import { DEAF } from '../support/ends.ts'
import { needs } from '../support/needs.ts'
import { lastingPort } from '../support/ports.ts'
import { Relay } from '../support/relay.ts'
import { Spans, waterfall } from '../support/spans.ts'
import { eventually, until } from '../support/until.ts'
import { peerOptions, ReplicaGroup } from './fixture.ts'

const HOST = `demo.${DOMAIN}`

describe.runIf(needs('redis'))('a request at the wrong replica', () => {
  let replicas: ReplicaGroup
  let near: Server
  let far: Server
  beforeAll(async () => {
    replicas = await ReplicaGroup.start()
  })
  afterAll(() => replicas.stop())
  afterEach(async () => {
    vi.useRealTimers()
    await replicas.clear()
  })

  async function start(): Promise<void> {
    near = await replicas.add()
    far = await replicas.add()
  }

  test('takes one hop', async () => {
    await start()
    await dial(far)
    const answered = await call(near, HOST, '/path?query', { method: 'POST', body: 'a body' })
    expect([answered.status, answered.text]).toEqual([200, 'POST /path?query a body'])
    expect([near.stats().peers!.sent, far.stats().peers!.taken]).toEqual([1, 1])
    expect(far.sessions()[0]!.exchanges).toBe(0)
  })

  test('is answered over a path on which nothing arrives for 11 s, as at the right replica', {
    tags: ['slow'],
    timeout: 30_000,
  }, async () => {
    await start()
    const once: ExchangeHandler = (preamble, ...rest) =>
      preamble.attempt > 0 ? 'already-begun' : always('here')(preamble, ...rest)
    const { ws } = await dial(far, { handler: once })
    ws.pause()
    const asked = [near, far].map(server => call(server, HOST, '/', { method: 'POST', body: 'a body' }))
    await setTimeout(11_000)
    ws.resume()
    expect((await Promise.all(asked)).map(({ status }) => status)).toEqual([200, 200])
  })

  test('D3 an authority of replicas counts from when it is in the file until it is dropped, without a restart', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'sallyport-peers-'))
    const [old, next] = [await createAuthority(), await createAuthority()]
    const files = [1, 2, 3].map(n => join(folder, `ca-${n}.pem`))
    const trust = (cas: string) => Promise.all(files.map(file => writeFile(file, cas)))
    const add = async (authority: CertificateAndKey) => {
      const { certificate: cert, key } = await createReplicaCertificate(authority)
      await replicas.add({ peer: { port: 0, tls: { cert, key, ca: { file: files[replicas.servers.length]! } } } })
    }
    const connected = (...counts: number[]) =>
      until(() => replicas.servers.every((one, i) => one.stats().peers?.connected === counts[i]))
    await trust(old.certificate)
    await add(old)
    await add(old)
    await trust(old.certificate + next.certificate)
    await add(next)
    await writeFile(files[0]!, next.certificate)
    await connected(1, 1, 2)
    await trust(next.certificate)
    await connected(0, 0, 0)
    await rm(folder, { recursive: true })
  })

  test('and its trace shows it; the client receives the span of the hop, and its own spans come back', async () => {
    const spans = new Spans()
    near = await replicas.add({ trustedProxies: ['127.0.0.1'], tracing: { tracer: spans.tracer } })
    far = await replicas.add({ tracing: { tracer: createTracer(() => {}) } })
    const told: (string | undefined)[] = []
    const client = await dial(far, {
      hello: { features: ['spans'] },
      handler: (_preamble, request, response) => {
        told.push(getHeader(request.headers, 'traceparent'))
        answer(response, 200, 'ok')
        return discarding(response)
      },
    })
    // From then on, the replica knows where the client is.
    await call(near, HOST)
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
    await call(near, HOST, '/', { headers: { traceparent } })
    const { traceId, spanId: of } = await spans.named('hop')
    expect(told).toEqual([undefined, `00-${traceId}-${of}-01`])
    const span = { id: 'a'.repeat(16), parent: of, name: 'GET', kind: 'server', at: 0, took: 1 }
    client.session.control({ type: 'spans', requests: [{ of, spans: [span] }] })
    await until(() => near.stats().spansReturned!.taken === 1)
    await until(() => spans.finished.length === 3)
    const by = `sallyport.session=${far.sessions()[0]!.id} sallyport.reported_by=client`
    expect(waterfall(spans.finished, 'sallyport.session', 'sallyport.reported_by')).toEqual([
      'GET server',
      '  hop client',
      `    GET server ${by}`,
    ])
    expect(far.stats().spansReturned).toEqual({ taken: 0, refused: 0 })
  })

  test('takes none where the replica has its own session', async () => {
    await start()
    await dial(far)
    await dial(near)
    await call(near, HOST)
    expect(near.stats().peers!.sent).toBe(0)
  })

  test('large bodies pass both ways, byte for byte, at the pace of the reader', async () => {
    await start()
    await dial(far, {
      handler: (_preamble, _request, response) => {
        response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
        return {
          requestData: chunk => response.responseData(chunk),
          requestEnd: () => response.responseEnd([]),
          requestAbort() {},
          responseConsumed: bytes => response.requestConsumed(bytes),
        }
      },
    })
    const body = randomBytes(3_000_000)
    const answered = await call(near, HOST, '/', { method: 'POST', body: body.toString('base64') })
    expect(answered.text === body.toString('base64')).toBe(true)
    expect([near.stats(), far.stats()].map(({ bufferedBytes }) => bufferedBytes)).toEqual([0, 0])
  })

  test("the client sees the caller's address, and a caller that may not call is refused by the replica that it reached", async () => {
    await start()
    const seen: HttpRequest[] = []
    await dial(far, {
      handler: (_preamble, request, response) => {
        seen.push(request)
        answer(response, 200, 'ok')
        return discarding(response)
      },
    })
    await call(near, HOST)
    expect(seen[0]!.caller).toMatchObject({ address: '127.0.0.1', scheme: 'http' })
    await dial(far, { runtime: 'closed', hello: { instance: 'closed', allowCallers: ['192.0.2.0/24'] } })
    const refused = await call(near, `closed.${DOMAIN}`)
    expect([refused.status, refused.headers['sallyport-error']]).toEqual([403, 'caller-not-allowed'])
  })

  test('a caller that may not call keeps nobody waiting who may', async () => {
    near = await replicas.add({ trustedProxies: ['127.0.0.1'] })
    far = await replicas.add()
    await dial(far, { hello: { allowCallers: ['192.0.2.0/24'] } })
    const by = (address: string) => call(near, HOST, '/', { headers: { 'x-forwarded-for': address } })
    await by('192.0.2.1')
    const { resumed } = near.stats().heldOutcomes
    for (let i = 0; i < 5; i++) {
      expect((await by('198.51.100.1')).status).toBe(403)
      expect((await by('192.0.2.1')).status).toBe(200)
    }
    expect(near.stats().heldOutcomes.resumed).toBe(resumed)
  })

  test('an upgrade passes, and ends with a Close frame when its session drains', async () => {
    await start()
    const client = await dial(far, {
      handler: (_preamble, request, response) => {
        expect(request.upgrade).toBe(true)
        response.responseHead({ status: 101, headers: [], bodyBytes: 0 })
        return {
          requestData: chunk => response.responseData(chunk),
          requestEnd: () => response.responseEnd([]),
          requestAbort() {},
          responseConsumed: bytes => response.requestConsumed(bytes),
        }
      },
    })
    const { host, port } = near.publicAddress!
    const ws = new WebSocket(`ws://${host}:${port}/`, { headers: { host: HOST } })
    await once(ws, 'open')
    ws.close(4000, 'as agreed')
    // Nobody unmasks the echo: the frame comes back as it was sent, which a client treats as an error.
    await once(ws, 'error')
    expect(near.stats().peers!.sent).toBe(1)
    client.ws.terminate()
  })

  test('is cut if its runtime holds more here than it may, before it takes anything from the others', async () => {
    near = await replicas.add({ limits: { bufferBytesPerRuntime: 100_000 } })
    far = await replicas.add()
    const aborted = new Promise<string>(resolve => {
      const handler: ExchangeHandler = (_preamble, _request, response) => {
        response.responseHead({ status: 200, headers: [], bodyBytes: -1 })
        response.responseData(Buffer.alloc(65_536))
        const consumed = (bytes: number) => response.responseData(Buffer.alloc(bytes))
        return {
          requestData() {},
          requestEnd: () => consumed(10_000_000),
          requestAbort: error => resolve(error.message),
          responseConsumed: consumed,
        }
      }
      dial(far, { handler })
    })
    await until(() => far.sessions().length === 1)
    const caller = connect(near.publicAddress!.port, '127.0.0.1').pause()
    caller.on('error', () => {})
    caller.write(`GET / HTTP/1.1\r\nhost: ${HOST}\r\n\r\n`)
    expect(await aborted).toBe('the stream was reset: limit')
    caller.destroy()
  })

  test('is sent to a client that resets it no more often than without the hop, whatever reason it gives', async () => {
    near = await replicas.add({ hold: { holdMs: 0 } })
    far = await replicas.add({ hold: { holdMs: 0 } })
    let streams = 0
    const outcomes = { near: [] as string[], far: [] as string[] }
    for (const code of RESET_CODES) {
      const client = await dial(far, {
        onStream: stream => {
          streams++
          stream.reset(code)
        },
      })
      for (const [at, server] of Object.entries({ far, near })) {
        streams = 0
        const { status, headers } = await call(server, HOST, '/', { method: 'POST', body: 'x' })
        outcomes[at as keyof typeof outcomes].push(`${code}: ${streams} ${status} ${headers['sallyport-error']}`)
      }
      await leave(far, client)
    }
    expect(outcomes.near).toEqual(outcomes.far)
    expect(outcomes.far).toContain('session-lost: 1 502 upstream-broken')
  })

  test('is aborted at the client, too, when its caller leaves', async () => {
    await start()
    const gone = Promise.withResolvers<string>()
    const begun = Promise.withResolvers<void>()
    await dial(far, {
      handler: (_preamble, _request, response) => {
        begun.resolve()
        return { ...discarding(response), requestAbort: error => gone.resolve(error.reason) }
      },
    })
    const abort = new AbortController()
    const calling = call(near, HOST, '/', { signal: abort.signal }).catch(error => error.name)
    await begun.promise
    abort.abort()
    expect(await gone.promise).toBe('cancelled')
    expect(await calling).toBe('AbortError')
    await until(() => far.sessions()[0]!.exchanges === 0)
  })

  test('is aborted at the client with the reason, if the replica that its caller reached ends it', async () => {
    await start()
    const gone = Promise.withResolvers<string>()
    await dial(far, {
      handler: (_preamble, _request, response) => {
        response.responseHead({ status: 200, headers: [], bodyBytes: BODY_UNKNOWN })
        return { ...discarding(response), requestAbort: error => gone.resolve(error.reason) }
      },
    })
    const caller = connect(near.publicAddress!.port, '127.0.0.1')
    caller.write(`POST / HTTP/1.1\r\nHost: ${HOST}\r\nTransfer-Encoding: chunked\r\n\r\n`)
    await once(caller, 'data')
    caller.write('no chunk\r\n')
    expect(await gone.promise).toBe('bad-request')
    caller.destroy()
  })

  test('goes to another session of the instance, wherever it is, when its session dies', async () => {
    await start()
    const victim = hanging()
    const first = await dial(far, { handler: victim.handler, hello: { instance: 'one' } })
    const calling = call(near, HOST)
    await victim.begun
    await dial(near, { hello: { instance: 'one', connection: 1 }, handler: always('the other', 200) })
    first.ws.terminate()
    expect((await calling).text).toBe('the other')
  })

  test('goes to another session of the same replica when its session dies', async () => {
    await start()
    const victim = hanging()
    const first = await dial(far, { handler: victim.handler, hello: { instance: 'one' } })
    const calling = call(near, HOST)
    await victim.begun
    await dial(far, { hello: { instance: 'one', connection: 1 }, handler: always('the other', 200) })
    first.ws.terminate()
    expect((await calling).text).toBe('the other')
  })

  test('with a long body is sent again when the client refuses it', async () => {
    await start()
    let refusals = 0
    const refuse = () => {
      refusals++
      return 'draining' as const
    }
    const first = await dial(far, { handler: refuse, hello: { instance: 'one' } })
    const body = 'b'.repeat(200_000)
    // A distant client takes more than a moment to refuse.
    first.ws.pause()
    const calling = call(near, HOST, '/', { method: 'POST', body })
    await until(() => far.stats().streams > 0)
    await dial(far, { hello: { instance: 'one', connection: 1 } })
    first.ws.resume()
    const { status, text } = await calling
    expect([status, text.length]).toEqual([200, 'POST / '.length + body.length])
    expect(refusals).toBeGreaterThan(0)
  })

  test('is sent again if that is safe when its replica dies; the runtime stays reachable', async () => {
    await start()
    const third = await replicas.add()
    const victim = hanging()
    await dial(far, { handler: victim.handler, hello: { instance: 'one' } })
    const calling = call(near, HOST)
    await victim.begun
    await dial(third, { hello: { instance: 'one', connection: 1 }, handler: always('third', 200) })
    await far.close({ graceMs: 0 })
    expect((await calling).text).toBe('third')
  })

  test('is refused by a replica that turns out not to serve it; the first asks the directory and goes on', async () => {
    await start()
    const client = await dial(far, { hello: { instance: 'one' } })
    await call(near, HOST)
    // `near` does not hear of it, so its knowledge is one change behind.
    const stale = await dial(far, { hello: { instance: 'two' }, handler: always('two', 200) })
    const answers = await Promise.all(Array.from({ length: 5 }, () => call(near, HOST)))
    for (const { status, text } of answers) expect([status, text]).toEqual([200, 'two'])
    client.ws.terminate()
    stale.ws.terminate()
  })

  test('is held by the replica that the caller reached until a session appears anywhere', async () => {
    await start()
    const client = await dial(far)
    await call(near, HOST)
    client.ws.terminate()
    await until(() => far.stats().sessions === 0)
    const calling = call(near, HOST)
    await until(() => near.stats().held === 1)
    expect(far.stats().held).toBe(0)
    await dial(far, { handler: always('back', 200) })
    expect((await calling).text).toBe('back')
  })

  test('never goes to a session whose token has just ended while another one is well', async () => {
    let aheadMs = 0
    near = await replicas.add()
    far = await replicas.add({ clock: () => Date.now() + aheadMs })
    await dial(far, { token: await token('demo', { ttl: '1m' }) })
    await dial(far, { token: await token('demo', { ttl: '1h' }) })
    await call(near, HOST)
    const before = near.stats().peers!.sent
    aheadMs = 600_000
    const calls = Array.from({ length: 20 }, () => call(near, HOST))
    for (const one of calls) expect((await one).status).toBe(200)
    expect(near.stats().peers!.sent - before).toBe(20)
  })

  test.each([1, 2])('goes to another replica while the sessions here (%i) have no room', async count => {
    near = await replicas.add({ hold: { holdMs: 60_000 }, limits: { streams: 1 } })
    far = await replicas.add()
    const full = hanging()
    for (let connection = 0; connection < count; connection++)
      await dial(near, { handler: full.handler, hello: { connection } })
    await dial(far, { handler: always('far', 200), hello: { connection: count } })
    const stuck = Array.from({ length: count }, () => call(near, HOST).catch(() => {}))
    await until(() => full.count() === count)
    expect((await call(near, HOST)).text).toBe('far')
    await near.close({ graceMs: 0 })
    await Promise.all(stuck)
  })

  test('is held while the session has no room, and goes on once it has', async () => {
    near = await replicas.add({ hold: { holdMs: 30_000 } })
    far = await replicas.add()
    const begun: ResponseSink[] = []
    await dial(far, {
      hello: { limits: { streams: 1 } },
      handler: (_preamble, _request, response) => {
        begun.push(response)
        return discarding(response)
      },
    })
    const first = call(near, HOST)
    await until(() => begun.length === 1)
    const second = call(near, HOST)
    await until(() => near.stats().peers!.sent > 1)
    await until(() => far.stats().peers!.taken > 1)
    answer(begun[0]!, 200, 'first')
    expect((await first).text).toBe('first')
    await Promise.race([second, until(() => begun.length === 2)])
    expect(begun.length).toBe(2)
    answer(begun[1]!, 200, 'second')
    expect((await second).text).toBe('second')
  })

  test('is held while the other replica does not answer, and goes on once it does', async () => {
    const port = await lastingPort()
    const relay = await Relay.start({ port })
    const [directory, hold] = [{ url: replicas.redis.url, leaseMs: 60_000 }, { holdMs: 60_000 }]
    near = await replicas.add({ directory, hold })
    const peer = { ...(await peerOptions(port)), advertise: `127.0.0.1:${relay.port}` }
    far = await replicas.add({ directory, hold, peer })
    await dial(far)
    await call(near, HOST)
    relay.silent = true
    const calling: ReturnType<typeof call>[] = []
    await eventually(() => {
      calling.push(call(near, HOST))
      expect(near.stats().held).toBeGreaterThan(0)
    }, 200)
    relay.silent = false
    for (const { status } of await Promise.all(calling)) expect(status).toBe(200)
    await relay.stop()
  })

  test('has time to end at a replica that is stopping, however long callers stay there', async () => {
    await start()
    const endless = hanging()
    const posted = hanging()
    const client = await dial(far, {
      handler: (preamble, request, response) =>
        (request.method === 'POST' ? posted : endless).handler(preamble, request, response),
    })
    const staying = call(far, HOST)
    const events = await endless.begun
    events.responseHead({ status: 200, headers: [], bodyBytes: -1 })
    const closing = far.close({ graceMs: 20_000 })
    await client.message('drain')
    client.session.control({ type: 'drained', lastStream: 0 })
    const calling = call(near, HOST, '/', { method: 'POST' })
    const response = await posted.begun
    await until(() => far.sessions()[0]!.state === 'draining')
    await dial(near, { hello: { connection: 1 }, handler: always('near', 200) })
    expect((await call(near, HOST, '/', { method: 'POST' })).text).toBe('near')
    answer(response, 200, 'finished')
    expect((await calling).text).toBe('finished')
    events.responseEnd([])
    await Promise.all([staying, closing])
  })

  test('fails at once for a runtime that nobody knows', async () => {
    await start()
    const startedMs = performance.now()
    expect((await call(near, `nobody.${DOMAIN}`)).status).toBe(503)
    expect(near.stats().held).toBe(0)
    console.log(`an unknown runtime was told so after ${Math.round(performance.now() - startedMs)} ms`)
  })

  describe('between replicas', () => {
    /** A session with a replica, as another replica opens it. */
    async function asReplica(
      server: Server,
      certificate?: { cert: string; key: string },
      options: Partial<SessionOptions> = {},
    ): Promise<Session> {
      const address = String(await peerAddress(server))
      const [host, port] = address.split(':')
      const { tls } = await peerOptions()
      const socket: TLSSocket = connectTls({
        ...peerTlsOptions({ ...tls, ...certificate } as never),
        host,
        port: Number(port),
        servername: PEER_NAME,
      })
      await once(socket, 'secureConnect')
      return createSession(new PeerTransport(socket), { role: 'client', ...options })
    }

    /** As soon as the directory has it, which may take more than one attempt. */
    async function peerAddress(server: Server): Promise<string> {
      const { replica } = server.stats()
      let entry: string | undefined
      await until(async () => {
        const all = (await replicas.redis.command('HGETALL', '{sallyport}:replicas')) as Record<string, string>
        entry = Object.entries(all).find(([name]) => name.startsWith(`${replica}~`))?.[1]
        return entry !== undefined
      })
      return entry!.split(' ')[1]!
    }

    const request: HttpRequest = {
      method: 'GET',
      authority: HOST,
      path: '/',
      headers: [],
      bodyBytes: 0,
      upgrade: false,
      peerAddress: '127.0.0.1',
      encrypted: false,
      caller: { address: '127.0.0.1', scheme: 'http', host: HOST },
      requestId: 'x',
      exchangeId: undefined,
    }

    function ask(session: Session, options: { hops: number; epoch: number; runtime?: string }): Promise<string> {
      return new Promise(resolve => {
        openExchange(
          session.open(),
          request,
          { runtime: 'demo', attempt: 0, timeLeftMs: 0, ...options },
          {
            ...DEAF,
            responseHead: ({ status }) => resolve(String(status)),
            responseAbort: error => resolve((error as RefusedError).refusal ?? error.reason),
          },
        )
      })
    }

    test('D5, D3: one hop, for a runtime and epoch that are served here; everything else is refused unprocessed', async () => {
      await start()
      await dial(far)
      const session = await asReplica(far)
      expect(await ask(session, { hops: 1, epoch: 1 })).toBe('200')
      expect(await ask(session, { hops: 0, epoch: 1 })).toBe('not-here')
      expect(await ask(session, { hops: 2, epoch: 1 })).toBe('not-here')
      expect(await ask(session, { hops: 1, epoch: 2 })).toBe('not-here')
      expect(await ask(session, { hops: 1, epoch: 0 })).toBe('not-here')
      expect(await ask(session, { hops: 1, epoch: 1, runtime: 'other' })).toBe('not-here')
      session.close('done')
    })

    test('they may read the last answer of a draining session as slowly as they like: it waits', async () => {
      await start()
      const bytes = 400_000
      const client = await dial(far, {
        handler: (_preamble, _request, response) => {
          response.responseHead({ status: 200, headers: [], bodyBytes: bytes })
          response.responseData(Buffer.alloc(bytes))
          response.responseEnd([])
          return discarding(response)
        },
      })
      const session = await asReplica(far)
      const ended = Promise.withResolvers<string>()
      let got = 0
      let slow = true
      const exchange: RequestSink = openExchange(
        session.open(),
        request,
        { runtime: 'demo', attempt: 0, timeLeftMs: 0, hops: 1, epoch: 1 },
        {
          ...DEAF,
          responseData: chunk => {
            got += chunk.length
            if (!slow) exchange.responseConsumed(chunk.length)
          },
          responseEnd: () => ended.resolve('whole'),
          responseAbort: error => ended.resolve(error.reason),
        },
      )
      exchange.requestEnd([])
      await until(() => client.session.streams === 0)
      const closing = far.close({ graceMs: 200_000 })
      await client.message('drain')
      client.session.control({ type: 'drained', lastStream: 0 })
      await until(() => far.sessions()[0]?.state !== 'open')
      expect(got).toBeLessThan(bytes)
      slow = false
      exchange.responseConsumed(got)
      expect(await ended.promise).toBe('whole')
      expect(got).toBe(bytes)
      await closing
    })

    test.each([0, 100_000])(
      'a request with %i bytes that they refuse for a moment is sent again, without any news',
      async bytes => {
        near = await replicas.add()
        const { tls } = await peerOptions()
        const replica = createTlsServer({ ...peerTlsOptions(tls as never), requestCert: true })
        let refusals = 2
        replica.on('secureConnection', socket => {
          const session: Session = createSession(new PeerTransport(socket), {
            role: 'server',
            onStream: stream =>
              acceptExchange(stream, (_preamble, _request, response) => {
                if (refusals-- > 0) return 'not-here'
                response.responseHead({ status: 204, headers: [], bodyBytes: 0 })
                response.responseEnd([])
                return discarding(response)
              }),
          })
          session.control({ type: 'replica', name: 'r9~1', address: '' })
        })
        replica.listen(0, '127.0.0.1')
        await once(replica, 'listening')
        const { port } = replica.address() as { port: number }
        await enter('r9~1', port)
        await until(() => near.stats().peers!.connected === 1)
        const body = 'x'.repeat(bytes)
        const headers = { 'content-length': `${bytes}` }
        expect((await call(near, HOST, '/', { method: 'POST', body, headers })).status).toBe(204)
        expect(near.stats().peers!.sent).toBe(3)
        // So many that nobody in this network may ask for another one; this one is known.
        let made = 0
        const invent = () => call(near, `made-up-${made++}.${DOMAIN}`)
        await until(async () => (await Promise.all(Array.from({ length: 300 }, invent))).at(-1)?.status === 429)
        refusals = 2
        expect((await call(near, HOST, '/', { method: 'POST', body, headers })).status).toBe(204)
        replica.close()
      },
    )

    /** Adds another replica to the directory, with a session of the runtime. */
    async function enter(name: string, port: number): Promise<void> {
      const untilMs = Date.now() + 60_000
      await replicas.redis.command('HSET', '{sallyport}:replicas', name, `${untilMs} 127.0.0.1:${port}`)
      const record = ['@epoch', '1', '@active', 'one', '@lost', '0', '@version', '1', 'one', `1 ${name}`]
      await replicas.redis.command('HSET', '{sallyport}:runtime:demo', ...record)
    }

    test('what they hand to a stopping replica is refused until they confirm that they have heard', async () => {
      far = await replicas.add()
      const refused = Promise.withResolvers<string>()
      const closed = Promise.withResolvers<void>()
      const onControl = (text: string) => {
        // Sent before the go-away behind this message is read.
        if (text.includes('"bye"')) refused.resolve(ask(session, { hops: 1, epoch: 1 }))
      }
      const session = await asReplica(far, undefined, { onControl, onClose: () => closed.resolve() })
      vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
      const closing = far.close({ graceMs: 0 })
      expect(await refused.promise).toBe('overloaded')
      vi.advanceTimersByTime(1000)
      const echoed = Promise.withResolvers<number>()
      session.ping(echoed.resolve)
      expect(await echoed.promise).toBeGreaterThan(0)
      session.control({ type: 'bye' })
      await Promise.all([closing, closed.promise])
    })

    test("D3: a forged entry leads nowhere: whoever listens there must present a replica's certificate", {
      tags: ['slow'],
    }, async () => {
      near = await replicas.add()
      const { authority } = await makeWorld()
      const made = await createServerCertificate(authority, { hosts: ['localhost', '127.0.0.1'] })
      const heard: Buffer[] = []
      const thief = createTlsServer({ cert: made.certificate, key: made.key, ALPNProtocols: ['sallyport-peer/1'] })
      thief.on('secureConnection', socket =>
        socket.on('data', (data: Buffer) => heard.push(data)).on('error', () => {}),
      )
      thief.listen(0, '127.0.0.1')
      await once(thief, 'listening')
      const { port } = thief.address() as { port: number }
      const tried = once(thief, 'tlsClientError').catch(() => {})
      await enter('thief~1', port)
      await until(() => near.stats().peers!.known === 1)
      await tried
      expect((await call(near, HOST)).status).toBe(503)
      expect(Buffer.concat(heard).length).toBe(0)
      thief.close()
    })
  })
})
